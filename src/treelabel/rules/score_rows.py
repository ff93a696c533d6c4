"""Walk over scores: one document after another, each the nodes with a score above 0, parents first.

Dense and CSR scores look the same to a rule's compiled loop. Dense ones are brought to rows some documents at a time,
so that memory stays small. The nodes of a row are sorted by id, so that parents stand before children and levels are in
order. Scores are coherent where a loop looks up parents, so that all parents of a node stand in its row. Of equal
values the lowest id wins. Scores are float32 or float64: each loop is compiled for both.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from treelabel.core.compute import SUMMED_ROWS, kernel, over_rows, sum_rows
from treelabel.core.types import DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, from_sizes, label_matrix, rows_of

if TYPE_CHECKING:
    from treelabel.scores.score_matrix import Scores


class ScoreRows(NamedTuple):
    """The rows start..stop of scores: row pointers, and the nodes with a score above 0 and these scores."""

    ptr: LongArray
    nodes: IntArray
    values: ScoreArray
    start: int
    stop: int


Part = TypeVar("Part")
Work = Callable[[ScoreRows], Part]

# Dense scores are brought to rows in blocks of this many numbers.
BLOCK = 1 << 19


def over_scores(scores: "Scores", work: Work[Part], least: int = 256) -> list[Part]:
    """Call `work` on consecutive parts of the documents, in threads; results come back in order.

    Fewer than `least` documents are not worth a thread.
    """
    return over_numbered_scores(scores, lambda rows, first: work(rows), least)


def over_numbered_scores(scores: "Scores", work: Callable[[ScoreRows, int], Part], least: int = 256) -> list[Part]:
    """Call `work` as `over_scores` does, with the number of the first document of each part."""
    if scores.is_sparse:
        rows = *rows_of(scores.values), scores.values.data
        return over_rows(lambda start, stop: work(ScoreRows(*rows, start, stop), start), len(scores), least)
    step = max(1, BLOCK // max(1, len(scores.hierarchy)))

    def blocks(start: int, stop: int) -> list[Part]:
        # An empty range of documents is one empty block, so that there is always a part to join.
        lows = range(start, max(stop, start + 1), step)
        return [work(dense_rows(scores.values, low, min(low + step, stop)), low) for low in lows]

    return [part for parts in over_rows(blocks, len(scores), min(least, step)) for part in parts]


def sum_scores(scores: "Scores", work: Work[DoubleArray]) -> DoubleArray:
    """Sum over documents what `work` returns for some of them: the same bits with any number of threads."""
    values = scores.values
    if scores.is_sparse:
        rows = *rows_of(values), values.data
        return sum_rows(lambda *span: work(ScoreRows(*rows, *span)), len(scores))
    step = max(1, min(SUMMED_ROWS, BLOCK // max(1, len(scores.hierarchy))))
    return sum_rows(lambda low, high: work(dense_rows(values, low, high)), len(scores), step)


def choose_sets(scores: "Scores", work: Work[tuple[IntArray, LongArray]]) -> LabelMatrix:
    """Join the sets that `work` chooses: concatenated node ids, sorted within a document, and the sizes of the sets."""
    nodes, sizes = map(np.concatenate, zip(*over_scores(scores, work), strict=True))
    return from_sizes(nodes, sizes, len(scores.hierarchy))


def choose_nodes(scores: "Scores", work: Work[IntArray]) -> LabelMatrix:
    """Join the single nodes that `work` chooses, -1 being none."""
    return single_labels(scores.hierarchy, np.concatenate(over_scores(scores, work)))


def single_labels(hierarchy: Hierarchy, nodes: IntArray) -> LabelMatrix:
    """Make label sets of one node per document, -1 being none."""
    some = nodes >= 0
    return label_matrix(np.concatenate([[0], np.cumsum(some)]), nodes[some], len(hierarchy))


def dense_rows(values: ScoreArray, start: int, stop: int) -> ScoreRows:
    """List the scores above 0 of the rows start..stop of a dense array."""
    return ScoreRows(*above_zero(values, start, stop), 0, stop - start)


@kernel
def above_zero(values: ScoreArray, start: int, stop: int) -> tuple[LongArray, IntArray, ScoreArray]:
    """List the scores above 0 of the rows start..stop as row pointers, nodes and values."""
    rows, columns = stop - start, values.shape[1]
    ptr = np.zeros(rows + 1, np.int64)
    nodes = np.empty(rows * columns, np.int32)
    stored = np.empty(rows * columns, values.dtype)
    used = 0
    for row in range(rows):
        for node in range(columns):
            value = values[start + row, node]
            nodes[used] = node
            stored[used] = value
            used += value > 0
        ptr[row + 1] = used
    return ptr, nodes[:used], stored[:used]


@kernel
def longest_row(rows: ScoreRows) -> int:
    """Return the length of the longest row."""
    most = 0
    for row in range(rows.start, rows.stop):
        most = max(most, rows.ptr[row + 1] - rows.ptr[row])
    return most


@kernel
def is_worse(gain: DoubleArray, one: int, two: int) -> bool:
    """Order places of a row by gain, equal ones by id: parents never come after their children."""
    return gain[one] < gain[two] or (gain[one] == gain[two] and one > two)


@kernel
def largest(gain: DoubleArray, count: int, size: int, heap: IntArray) -> float:
    """Put the places of the `size` largest gains into the heap, the worst on top; return the sum of the gains."""
    if size == 0:
        return 0.0
    for index in range(count):
        if index < size:
            hole = index
            while hole > 0 and is_worse(gain, index, heap[(hole - 1) // 2]):
                heap[hole] = heap[(hole - 1) // 2]
                hole = (hole - 1) // 2
            heap[hole] = index
        elif gain[index] > gain[heap[0]]:
            hole = 0
            while 2 * hole + 1 < size:
                below = 2 * hole + 1
                if below + 1 < size and is_worse(gain, heap[below + 1], heap[below]):
                    below += 1
                if is_worse(gain, index, heap[below]):
                    break
                heap[hole] = heap[below]
                hole = below
            heap[hole] = index
    total = 0.0
    for index in range(size):
        total += gain[heap[index]]
    return total


class TreeRow(NamedTuple):
    """One row over a tree, as `load_tree_row` fills it in. Arrays but `position` are by index in the row.

    `above` is the index of the parent, -1 for the root. `mass` is the score less those of the children: the probability
    that the true path ends there. `whole` is the mass at or below: the score, unless children sum to more. `position`
    is the index of each node of the hierarchy; entries of nodes outside the row are stale.
    """

    position: IntArray
    above: IntArray
    mass: DoubleArray
    whole: DoubleArray


@kernel
def make_tree_row(nodes: int, most: int) -> TreeRow:
    """Make room for rows of at most `most` nodes, of a tree with this many nodes."""
    return TreeRow(np.empty(nodes, np.int32), np.empty(most, np.int32), np.empty(most), np.empty(most))


@kernel
def load_tree_row(parent: IntArray, nodes: IntArray, values: ScoreArray, tree: TreeRow) -> None:
    """Fill in `tree` for the nodes of one row and their scores."""
    position, above, mass, whole = tree
    for index in range(len(nodes)):
        position[nodes[index]] = index
        above[index] = position[parent[nodes[index]]] if parent[nodes[index]] >= 0 else -1
        mass[index] = 0.0
    for index in range(len(nodes) - 1, -1, -1):
        # Until here, `mass` sums what stands below.
        below = mass[index]
        mass[index] = max(0.0, values[index] - below)
        whole[index] = below + mass[index]
        if above[index] >= 0:
            mass[above[index]] += whole[index]
