"""Sums over documents that do not depend on how documents are divided into batches.

A sum is carried as two numbers, `high + low`, with twice the digits of one (Neumaier, 1974); `high` is the exact sum
rounded once. So batches of any size, merged in any order, give the bits that one pass over all documents gives.
"""

from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, IntArray
from treelabel.metrics.batch import label_totals

Pair = tuple[Any, Any]


def column_sums(part: Any) -> Pair:
    """Sum a documents x columns part by column; counts stay whole numbers.

    Parameters
    ----------
    part : array or sparse array of shape (documents, columns)
        Additive parts of documents.

    Returns
    -------
    (array, array), each of shape (columns,)
        The sums, and what rounding took from each.

    >>> high, low = column_sums(np.array([[1.0], [1e-20]]))
    >>> high.tolist(), low.tolist()
    ([1.0], [1e-20])
    """
    if sparse.issparse(part):
        if part.dtype == np.bool_:
            counts = label_totals(part)
            return counts, np.zeros(part.shape[1])
        return sum_entries(part.indices.astype(np.int32, copy=False), part.data.astype(np.float64), part.shape[1])
    if part.dtype.kind in "iub":
        counted = part.sum(axis=0)
        return counted, np.zeros(counted.shape)
    return sum_rows(np.ascontiguousarray(part.T, np.float64))


def add_sums(one: Pair, two: Pair) -> Pair:
    """Add sums with what rounding took from them.

    Parameters
    ----------
    one, two : (array, array)
        What `column_sums` returned.

    Returns
    -------
    (array, array)
    """
    if one[0].dtype.kind in "iu":
        return one[0] + two[0], one[1]
    total, lost = _two_sum(one[0], two[0])
    return _two_sum(total, one[1] + two[1] + lost)


def _two_sum(one: DoubleArray, two: DoubleArray) -> Pair:
    """Return the rounded sum and exactly what rounding took; nothing of what is not finite."""
    total = one + two
    with np.errstate(invalid="ignore"):
        back = total - one
        lost = (one - (total - back)) + (two - back)
    return total, np.where(np.isfinite(total), lost, 0.0)


@kernel
def sum_rows(columns: DoubleArray) -> tuple[DoubleArray, DoubleArray]:
    """Sum every row of a matrix: the sums, and what rounding took from them."""
    high, low = np.zeros(columns.shape[0]), np.zeros(columns.shape[0])
    for index in range(columns.shape[0]):
        total, lost = 0.0, 0.0
        for value in columns[index]:
            more = total + value
            if np.isfinite(more):
                lost += (total - more) + value if abs(total) >= abs(value) else (value - more) + total
            total = more
        high[index] = total + lost if np.isfinite(total) else total
        low[index] = (total - high[index]) + lost if np.isfinite(total) else 0.0
    return high, low


@kernel
def sum_entries(indices: IntArray, values: DoubleArray, columns: int) -> tuple[DoubleArray, DoubleArray]:
    """Sum the stored entries of a sparse matrix by column: the sums, and what rounding took from them."""
    high, low = np.zeros(columns), np.zeros(columns)
    for entry in range(len(indices)):
        index, value = indices[entry], values[entry]
        more = high[index] + value
        if np.isfinite(more):
            low[index] += (
                (high[index] - more) + value if abs(high[index]) >= abs(value) else (value - more) + high[index]
            )
        high[index] = more
    for index in range(columns):
        total = high[index]
        if np.isfinite(total):
            high[index] = total + low[index]
            low[index] += total - high[index]
        else:
            low[index] = 0.0
    return high, low
