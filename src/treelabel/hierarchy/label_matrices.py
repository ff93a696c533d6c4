"""Label sets as CSR matrices: one boolean row per document, columns are node ids, sorted, no duplicates."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import LIGHT, over_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.matrices import sound_csr
from treelabel.core.types import BoolArray, IntArray, LongArray
from treelabel.hierarchy.kernels import closure

LabelMatrix: TypeAlias = sparse.csr_array


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
    true, columns = (truth.indptr.astype(np.int64), truth.indices), truth.shape[1]
    entries = predicted.indptr.astype(np.int64), predicted.indices
    parts = over_rows(
        lambda start, stop: closure.matches(*true, *entries, columns, start, stop), truth.shape[0], least=LIGHT
    )
    return np.concatenate(parts)


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
