"""Some rows of a sparse matrix, with only the columns that they have, so that loops over them stay in the cache."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import FloatArray, IntArray


@kernel
def compact_rows(
    ptr: IntArray, idx: IntArray, val: FloatArray, rows: IntArray, width: int
) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    """Copy rows with their columns numbered anew, in the order in which they turn up.

    Parameters
    ----------
    ptr, idx, val
        A sparse matrix.
    rows : array of int32
        Which rows.
    width : int
        Its number of columns.

    Returns
    -------
    (array, array, array, array)
        Where rows begin, columns, values, and the old numbers of columns.

    >>> ptr, idx, val = np.array([0, 1, 3]), np.array([9, 4, 9], np.int32), np.ones(3, np.float32)
    >>> starts, columns, _, names = compact_rows(ptr, idx, val, np.array([1, 0]), 10)
    >>> starts.tolist(), columns.tolist(), names.tolist()
    ([0, 2, 3], [0, 1, 1], [4, 9])
    """
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
