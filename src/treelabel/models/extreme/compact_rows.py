"""Some rows of a sparse matrix, with only the columns that they have, so that loops over them stay in the cache."""

from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import FloatArray, IntArray


class CompactRows(NamedTuple):
    """Sparse rows whose columns are numbered in the order in which they turn up; `names` are their old numbers."""

    ptr: IntArray
    idx: IntArray
    val: FloatArray
    names: IntArray


def compact(ptr: IntArray, idx: IntArray, val: FloatArray, rows: IntArray, width: int) -> CompactRows:
    """Copy some rows of a sparse matrix.

    Parameters
    ----------
    ptr, idx, val
        The matrix.
    rows : array of int32
        Which rows.
    width : int
        Its number of columns.

    Returns
    -------
    Rows

    >>> ptr, idx, val = np.array([0, 1, 3]), np.array([9, 4, 9], np.int32), np.ones(3, np.float32)
    >>> rows = compact(ptr, idx, val, np.array([1, 0]), 10)
    >>> rows.ptr.tolist(), rows.idx.tolist(), rows.names.tolist()
    ([0, 2, 3], [0, 1, 1], [4, 9])
    """
    return CompactRows(*compact_rows(ptr, idx, val, rows, width))


@kernel
def compact_rows(
    ptr: IntArray, idx: IntArray, val: FloatArray, rows: IntArray, width: int
) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    """Copy rows with their columns numbered anew: where rows begin, columns, values, and old numbers of columns."""
    starts = np.zeros(len(rows) + 1, np.int32)
    for position in range(len(rows)):
        starts[position + 1] = starts[position] + ptr[rows[position] + 1] - ptr[rows[position]]
    number, names = np.full(width, -1, np.int32), np.empty(min(width, starts[-1]), np.int32)
    positions, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    known, into = 0, 0
    for row in rows:
        for index in range(ptr[row], ptr[row + 1]):
            if number[idx[index]] < 0:
                number[idx[index]] = known
                names[known] = idx[index]
                known += 1
            positions[into], values[into] = number[idx[index]], val[index]
            into += 1
    return starts, positions, values, names[:known].copy()
