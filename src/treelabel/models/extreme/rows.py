"""Some rows of a sparse matrix, with only the columns that they have, so that loops over them stay in the cache."""

from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import FloatArray, IntArray


class Rows(NamedTuple):
    """Sparse rows whose columns are numbered in the order in which they turn up; `names` are their old numbers."""

    ptr: IntArray
    idx: IntArray
    val: FloatArray
    names: IntArray


def compact(ptr: IntArray, idx: IntArray, val: FloatArray, rows: IntArray, width: int) -> Rows:
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
    >>> found = compact(ptr, idx, val, np.array([1, 0]), 10)
    >>> found.ptr.tolist(), found.idx.tolist(), found.names.tolist()
    ([0, 2, 3], [0, 1, 1], [4, 9])
    """
    return Rows(*compact_rows(ptr, idx, val, rows, width))


@kernel
def compact_rows(
    ptr: IntArray, idx: IntArray, val: FloatArray, rows: IntArray, width: int
) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    """Copy rows with their columns numbered anew: where rows begin, columns, values, and old numbers of columns."""
    starts = np.zeros(len(rows) + 1, np.int32)
    for place in range(len(rows)):
        starts[place + 1] = starts[place] + ptr[rows[place] + 1] - ptr[rows[place]]
    number, names = np.full(width, -1, np.int32), np.empty(min(width, starts[-1]), np.int32)
    places, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
    known, into = 0, 0
    for row in rows:
        for at in range(ptr[row], ptr[row + 1]):
            if number[idx[at]] < 0:
                number[idx[at]] = known
                names[known] = idx[at]
                known += 1
            places[into], values[into] = number[idx[at]], val[at]
            into += 1
    return starts, places, values, names[:known].copy()
