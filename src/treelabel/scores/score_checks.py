"""Checking what scores are made of, once, at the edge."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.errors import TreelabelError, some
from treelabel.core.matrices import sound_csr
from treelabel.core.types import LongArray, ScoreArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import find_label

# float32 sums of a thousand leaves stray this far from 1.
ROUNDING = 1e-4


def numbers(values: Any) -> Any:
    """Return a dense or sparse matrix as it is and anything else as an array, refusing what holds no numbers."""
    try:
        stored = values if sparse.issparse(values) else np.asarray(values)
    except ValueError as error:
        raise TreelabelError(f"scores are no matrix: {error}") from error
    if stored.dtype.kind not in "biuf":
        raise TreelabelError(f"scores of type {stored.dtype}, expected numbers")
    return stored


def precision(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """Return the type that scores of a type are kept in: double precision stays, all else is single.

    >>> precision(np.dtype(np.float64)).__name__, precision(np.dtype(np.int64)).__name__
    ('float64', 'float32')
    """
    return np.float64 if dtype.kind == "f" and dtype.itemsize >= 8 else np.float32


def checked_scores(values: Any, hierarchy: Hierarchy) -> ScoreArray | sparse.csr_array:
    """Bring scores to their one form: float32 or float64, C order or CSR without stored zeros, all in [0, 1].

    Parameters
    ----------
    values : array_like or sparse matrix, documents x nodes
        Double precision is kept; anything else becomes single precision.
    hierarchy : Hierarchy
        Its nodes are the columns.

    Returns
    -------
    ndarray or csr_array
        Rounding errors beyond 0 and 1 are clipped; larger ones are refused.
    """
    stored = numbers(values)
    if stored.ndim != 2 or stored.shape[1] != len(hierarchy):
        raise TreelabelError(f"scores of shape {stored.shape}, expected documents x {len(hierarchy):,} nodes")
    if not sparse.issparse(stored):
        dense = np.ascontiguousarray(stored, precision(stored.dtype))
        return _in_range(dense, dense, hierarchy)
    matrix = sound_csr(stored, "scores are no valid CSR matrix", precision(stored.dtype))
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if matrix.indices.dtype != np.int32 and matrix.nnz < 1 << 31:
        # Both or neither: scipy fails later on matrices that mix the two.
        matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    data = _in_range(matrix.data, matrix, hierarchy)
    if data is matrix.data and data.all():
        return matrix
    cleaned = sparse.csr_array((data, matrix.indices, matrix.indptr), matrix.shape, copy=True)
    cleaned.eliminate_zeros()
    return cleaned


def _in_range(data: ScoreArray, matrix: Any, hierarchy: Hierarchy) -> ScoreArray:
    if data.size == 0:
        return data
    # Numbers from 0 to 1 are in the order of their bits, before all others, so that one look at them is enough.
    bits = data.view(np.uint32 if data.dtype == np.float32 else np.uint64)
    if bits.max() <= data.dtype.type(1).view(bits.dtype):
        return data
    wrong = ~((data >= -ROUNDING) & (data <= 1 + ROUNDING))
    if wrong.any():
        index = int(np.flatnonzero(wrong.ravel())[0])
        if sparse.issparse(matrix):
            row, node = int(np.searchsorted(matrix.indptr, index, side="right")) - 1, int(matrix.indices[index])
        else:
            row, node = divmod(index, len(hierarchy))
        raise TreelabelError(
            f"row {row}, {hierarchy.names[node]!r}: score {data.ravel()[index]:.6g} is not a probability in [0, 1]; "
            "turn raw outputs into probabilities first (softmax or sigmoid)"
        )
    return np.clip(data, 0, 1)


def leaf_ids(hierarchy: Hierarchy, leaves: Sequence[str | int] | npt.NDArray[np.integer[Any]]) -> LongArray:
    """Find the leaves that columns stand for, refusing inner nodes and duplicates.

    Parameters
    ----------
    leaves
        The names or ids of the leaves, column by column.

    Returns
    -------
    array of node ids
    """
    result = [leaf if isinstance(leaf, int | np.integer) else find_label(hierarchy, leaf) for leaf in leaves]
    nodes = np.array(result, np.int64)
    outside = nodes[(nodes < 0) | (nodes >= len(hierarchy))]
    if len(outside):
        raise TreelabelError(f"node id {outside[0]} is out of range: the hierarchy has ids 0 to {len(hierarchy) - 1}")
    inner = nodes[~hierarchy.is_leaf[nodes]]
    if len(inner) or len(np.unique(nodes)) < len(nodes):
        what = f"not leaves: {some(hierarchy.paths(inner))}" if len(inner) else "one leaf stands for two columns"
        raise TreelabelError(f"expected the scores of distinct leaves, but {what}")
    return nodes
