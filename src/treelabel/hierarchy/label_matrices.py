"""Label sets as CSR matrices: one boolean row per document, columns are node ids, sorted, no duplicates.

The compiled loops over them close sets upwards or downwards, keep the most specific labels, and compare sets. There a
graph is a pair (ptr, idx): the neighbours of node i are idx[ptr[i]:ptr[i + 1]]. The virtual root is -1 among neighbours
and is skipped by walks.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import LIGHT, join_rows, kernel, with_room
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import sound_csr
from treelabel.core.types import BoolArray, IntArray, LongArray

LabelMatrix: TypeAlias = sparse.csr_array
LabelRows: TypeAlias = tuple[LongArray, IntArray]


def label_matrix(ptr: npt.ArrayLike, nodes: npt.ArrayLike, columns: int) -> LabelMatrix:
    """Wrap row pointers and node ids (sorted, no duplicates) as a label matrix.

    Parameters
    ----------
    ptr : array of shape (documents + 1,)
        Where rows begin.
    nodes
        The node ids of all rows.
    columns
        The number of nodes.

    Returns
    -------
    label matrix of shape (documents, columns)

    >>> label_matrix([0, 2, 2], [0, 3], 4).toarray().astype(int)
    array([[1, 0, 0, 1],
           [0, 0, 0, 0]])
    """
    indices = np.asarray(nodes, np.int32)
    # scipy gives both arrays the wider type of the two, so 64-bit pointers would double the memory of the node ids.
    indptr = np.asarray(ptr).astype(np.int32 if len(indices) < 2**31 else np.int64, copy=False)
    return sparse.csr_array((np.ones(len(indices), np.bool_), indices, indptr), shape=(len(indptr) - 1, columns))


def from_sizes(nodes: IntArray, sizes: LongArray, columns: int) -> LabelMatrix:
    """Wrap the node ids of all rows and the length of each row as a label matrix of so many columns."""
    return label_matrix(np.concatenate([[0], np.cumsum(sizes)]), nodes, columns)


def from_ids(ptr: Any, ids: Any, columns: int) -> LabelMatrix:
    """Make a label matrix of ragged rows of node ids in any order, perhaps with duplicates; rows begin at `ptr`."""
    data = np.ones(len(ids), np.bool_)
    return as_labels(sparse.csr_array((data, np.asarray(ids, np.int32), ptr), (len(ptr) - 1, columns)), columns)


def as_labels(labels: Any, columns: int, what: str = "label matrix") -> LabelMatrix:
    """Check a label matrix at the edge and bring it to the one form: sorted, no duplicates, no stored zeros.

    Takes any scipy sparse matrix or a dense array with one column per node; never densifies. Whole numbers may be
    counts, all but 0 of which mark a label; of scores nobody can tell which ones do, so they are refused.

    Parameters
    ----------
    labels
        The matrix.
    columns
        The number of nodes.
    what
        How messages call it.

    Returns
    -------
    label matrix of shape (documents, columns)
    """
    if not sparse.issparse(labels):
        labels = np.asarray(labels)
        if labels.ndim != 2 or labels.dtype.kind not in "biuf":
            raise TreelabelError(
                f"{what}: expected a documents x {columns:,} matrix, found {labels.dtype} {labels.shape}"
            )
    if labels.shape[1] != columns:
        raise TreelabelError(f"{what}: {labels.shape[1]:,} columns, but the hierarchy has {columns:,} nodes")
    matrix = sound_csr(labels, what) if sparse.issparse(labels) else sparse.csr_array(labels)
    if matrix.nnz and not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    if matrix.dtype != np.bool_:
        _require_counts(matrix.data, what)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if matrix.dtype == np.bool_ and matrix.indices.dtype == np.int32:
        return matrix
    return label_matrix(matrix.indptr, matrix.indices, columns)


def _require_counts(values: npt.NDArray[Any], what: str) -> None:
    """Refuse what does not mark labels, be it scores or the -1 of other programs for a label that is not there."""
    wrong = ~((values > 0) & np.isfinite(values) & (np.floor(values) == values))
    if wrong.any():
        raise TreelabelError(
            f"{what}: expected 0 and 1, found {values[wrong][0]:g}; these look like scores: pass "
            "scores=Scores(hierarchy, matrix), or mark the labels among them, such as matrix >= 0.5"
        )


def row_sizes(matrix: sparse.csr_array) -> LongArray:
    """Count the entries of each row."""
    sizes: LongArray = np.diff(matrix.indptr).astype(np.int64)
    return sizes


def rows_of(matrix: sparse.csr_array) -> LabelRows:
    """Return row pointers and node ids, as compiled loops take them."""
    return matrix.indptr.astype(np.int64), matrix.indices


def row_numbers(matrix: sparse.csr_array) -> LongArray:
    """Return the row of every stored entry."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int64), row_sizes(matrix))


def matches(truth: LabelMatrix, predicted: sparse.csr_array) -> BoolArray:
    """Mark the stored entries of a matrix that are true, one mark per entry.

    Parameters
    ----------
    truth : label matrix of shape (documents, nodes)
        The true labels.
    predicted : csr_array of the same shape
        Labels or scores; only which entries are stored counts.

    Returns
    -------
    array of shape (stored entries of predicted,)

    >>> matches(label_matrix([0, 1], [2], 3), label_matrix([0, 2], [0, 2], 3)).tolist()
    [False, True]
    """
    rows = rows_of(truth), rows_of(predicted), truth.shape[1]
    marks: BoolArray = join_rows(lambda start, stop: mark_matches(*rows, start, stop), truth.shape[0], LIGHT)
    return marks


def keep_entries(matrix: LabelMatrix, keep: BoolArray) -> LabelMatrix:
    """Keep the stored entries that are marked, one mark per entry."""
    ptr = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    return label_matrix(ptr, matrix.indices[keep], matrix.shape[1])


def renumber_columns(matrix: sparse.csr_array, numbers: IntArray, columns: int) -> LabelMatrix:
    """Renumber every column i as numbers[i], of `columns` new ones; columns with the same number are united."""
    moved = sparse.csr_array((matrix.data, numbers[matrix.indices], matrix.indptr), (matrix.shape[0], columns))
    # scipy cannot see that the new column numbers may be out of order.
    moved.has_sorted_indices = False
    moved.has_canonical_format = False
    return as_labels(moved, columns)


def take_rows(ptr: IntArray, idx: IntArray, rows: IntArray) -> tuple[LongArray, IntArray]:
    """Select rows of a ragged array: their pointers and entries."""
    starts, sizes = ptr[rows].astype(np.int64), np.diff(ptr)[rows].astype(np.int64)
    new_ptr = np.concatenate([[0], np.cumsum(sizes)])
    return new_ptr, idx[np.arange(new_ptr[-1]) + np.repeat(starts - new_ptr[:-1], sizes)]


def map_rows(
    work: Callable[..., tuple[IntArray, LongArray]], graph: tuple[IntArray | int, ...], rows: LabelMatrix
) -> LabelMatrix:
    """Make label sets of label sets with a compiled loop over a graph, parts of the rows in threads."""
    arguments = *graph, *rows_of(rows)
    nodes, sizes = join_rows(lambda start, stop: work(*arguments, start, stop), rows.shape[0])
    return from_sizes(nodes, sizes, rows.shape[1])


@kernel
def close_in_tree(
    parent: IntArray, max_depth: int, row_ptr: LongArray, row_idx: IntArray, start: int, stop: int
) -> tuple[IntArray, LongArray]:
    """List, for rows start..stop of label sets over a tree, the labels and all their ancestors, sorted."""
    most = 0
    for row in range(start, stop):
        most = max(most, row_ptr[row + 1] - row_ptr[row])
    # Every slot of a heap has two slots below it; those past the labels of the row hold -1.
    heap = np.full(2 * most + 1, -1, np.int32)
    result = np.empty(max(16, 4 * (stop - start)), np.int32)
    sizes = np.empty(stop - start, np.int64)
    # Of a literal, numba would compile the loops that get it once more.
    used: int = np.int64(0)  # type: ignore[assignment]
    for row in range(start, stop):
        last = row_ptr[row + 1]
        labels = last - row_ptr[row]
        for slot in range(labels):
            heap[slot] = row_idx[last - 1 - slot]
        room = min(labels * max_depth, len(parent))
        if used + room > len(result):
            result = with_room(result, used, room)
        sizes[row - start] = climb(parent, heap, result, used)
        used += sizes[row - start]
    return result[:used], sizes


@kernel
def climb(parent: IntArray, heap: IntArray, result: IntArray, start: int) -> int:
    """Write the nodes of a heap and all their ancestors, sorted, from result[start] on; return their number.

    The heap holds the next node on the way up from each label, the largest on top. Parents have smaller numbers, so
    nodes leave it in descending order, and where ways meet, equal ones in a row. A way that is over is -1 and sinks.
    This stands apart from the loop over rows because an array that may be replaced slows down every access to it.
    """
    used, listed = start, -1
    while heap[0] >= 0:
        above = -1
        if heap[0] != listed:
            listed = heap[0]
            result[used] = listed
            used += 1
            above = parent[listed]
        slot = 0
        while True:
            below = 2 * slot + 1
            if heap[below + 1] > heap[below]:
                below += 1
            if heap[below] <= above:
                break
            heap[slot] = heap[below]
            slot = below
        heap[slot] = above
    reverse(result, start, used)
    return used - start


@kernel
def reach(
    ptr: IntArray, idx: IntArray, row_ptr: LongArray, row_idx: IntArray, start: int, stop: int
) -> tuple[IntArray, LongArray]:
    """List, for rows start..stop of label sets, the labels and every node that can be reached from them, sorted."""
    nodes = len(ptr) - 1
    stamp = np.zeros(nodes, np.int32)
    result = np.empty(nodes + 4 * (stop - start), np.int32)
    sizes = np.empty(stop - start, np.int64)
    # Of a literal, numba would compile the loops that get it once more.
    used: int = np.int64(0)  # type: ignore[assignment]
    for row in range(start, stop):
        if used + nodes > len(result):
            result = with_room(result, used, nodes)
        labels = row_idx[row_ptr[row] : row_ptr[row + 1]]
        sizes[row - start] = spread(ptr, idx, labels, stamp, row - start + 1, result, used)
        used += sizes[row - start]
    return result[:used], sizes


@kernel
def spread(
    ptr: IntArray, idx: IntArray, labels: IntArray, stamp: IntArray, mark: int, result: IntArray, start: int
) -> int:
    """Write labels and every node that can be reached from them, sorted, from result[start] on; return their number."""
    taken = used = start
    for node in labels:
        stamp[node] = mark
        result[used] = node
        used += 1
    while taken < used:
        node = result[taken]
        taken += 1
        for edge in range(ptr[node], ptr[node + 1]):
            near = idx[edge]
            if near >= 0 and stamp[near] != mark:
                stamp[near] = mark
                result[used] = near
                used += 1
    sort_up(result, start, used)
    return used - start


@kernel
def keep_most_specific(
    ptr: IntArray, idx: IntArray, row_ptr: LongArray, row_idx: IntArray, start: int, stop: int
) -> tuple[IntArray, LongArray]:
    """Drop from each row the nodes that are ancestors of another node of the row."""
    nodes = len(ptr) - 1
    stamp = np.zeros(nodes, np.int32)
    stack = np.empty(nodes + 1, np.int32)
    result = np.empty(row_ptr[stop] - row_ptr[start], np.int32)
    sizes = np.empty(stop - start, np.int64)
    # Of a literal, numba would compile the loops that get it once more.
    used: int = np.int64(0)  # type: ignore[assignment]
    for row in range(start, stop):
        mark = row - start + 1
        begin = used
        # Largest ids first: a node is looked at only after every descendant it may have in the row.
        for entry in range(row_ptr[row + 1] - 1, row_ptr[row] - 1, -1):
            node = row_idx[entry]
            if stamp[node] == mark:
                continue
            result[used] = node
            used += 1
            stack[0] = node
            height = 1
            while height > 0:
                height -= 1
                top = stack[height]
                for edge in range(ptr[top], ptr[top + 1]):
                    near = idx[edge]
                    if near >= 0 and stamp[near] != mark:
                        stamp[near] = mark
                        stack[height] = near
                        height += 1
        sort_up(result, begin, used)
        sizes[row - start] = used - begin
    return result[:used], sizes


@kernel
def reverse(values: IntArray, start: int, stop: int) -> None:
    """Reverse values[start:stop] in place."""
    low, high = start, stop - 1
    while low < high:
        values[low], values[high] = values[high], values[low]
        low += 1
        high -= 1


@kernel
def sort_up(values: IntArray, start: int, stop: int) -> None:
    """Sort values[start:stop]; walks towards the root come out nearly descending, so those are reversed first."""
    if start < stop and values[start] > values[stop - 1]:
        reverse(values, start, stop)
    if stop - start > 64:
        heap_sort(values, start, stop)
        return
    for position in range(start + 1, stop):
        value = values[position]
        hole = position
        while hole > start and values[hole - 1] > value:
            values[hole] = values[hole - 1]
            hole -= 1
        values[hole] = value


@kernel
def heap_sort(values: IntArray, start: int, stop: int) -> None:
    """Sort values[start:stop] in place; numba's own sort takes over a second to compile."""
    count = stop - start
    for step in range(count // 2 + count):
        # At first every value sinks to where it belongs in a heap; then the largest leaves it, again and again.
        if step < count // 2:
            slot, size = count // 2 - 1 - step, count
        else:
            slot, size = 0, count - 1 - (step - count // 2)
            values[start], values[start + size] = values[start + size], values[start]
        value = values[start + slot]
        while 2 * slot + 1 < size:
            below = 2 * slot + 1
            if below + 1 < size and values[start + below + 1] > values[start + below]:
                below += 1
            if values[start + below] <= value:
                break
            values[start + slot] = values[start + below]
            slot = below
        values[start + slot] = value


@kernel
def mark_matches(true: LabelRows, predicted: LabelRows, columns: int, start: int, stop: int) -> BoolArray:
    """Mark the predicted labels that are true."""
    (true_ptr, true_idx), (pred_ptr, pred_idx) = true, predicted
    marks = np.empty(pred_ptr[stop] - pred_ptr[start], np.bool_)
    # Stamping true labels with the row is several times faster than merging two rows, whose branches nobody can guess.
    stamp = np.zeros(columns, np.int32)
    for row in range(start, stop):
        for entry in range(true_ptr[row], true_ptr[row + 1]):
            stamp[true_idx[entry]] = row - start + 1
        for entry in range(pred_ptr[row], pred_ptr[row + 1]):
            marks[entry - pred_ptr[start]] = stamp[pred_idx[entry]] == row - start + 1
    return marks
