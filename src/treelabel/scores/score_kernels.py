"""Compiled loops over rows of scores.

Dense and CSR rows are one thing here: `StoredRows`. A row is worked on in an array with one place per node, which a
dense row is itself, and into which a CSR row is laid out. CSR costs the stored entries, never the nodes. Scores are
float32 or float64: each loop is compiled for both.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel, over_rows
from treelabel.core.types import BoolArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import rows_of

MULTIPLY, MINIMUM, DIVIDE, MAXIMUM = 0, 1, 2, 3

Part = TypeVar("Part")


class StoredRows(NamedTuple):
    """Rows of a matrix one behind the other: row pointers, the node of every value (none if dense), and the values."""

    ptr: LongArray
    nodes: IntArray
    values: ScoreArray
    is_dense: bool


def stored_rows(matrix: Any) -> StoredRows:
    """Return the rows of a dense array in C order or of a CSR matrix, without copying their values."""
    if sparse.issparse(matrix):
        return StoredRows(*rows_of(matrix), matrix.data, False)
    rows, columns = matrix.shape
    return StoredRows(np.arange(rows + 1) * columns, np.zeros(0, np.int32), matrix.reshape(-1), True)


def over_stored(work: Callable[..., Part], rows: StoredRows, *arguments: Any) -> list[Part]:
    """Call `work(rows, *arguments, start, stop)` on consecutive parts of the rows in threads."""
    least = 64 if rows.is_dense else 2048
    return over_rows(lambda start, stop: work(rows, *arguments, start, stop), len(rows.ptr) - 1, least)


def largest_entries(matrix: Any, count: int) -> sparse.csr_array:
    """Keep the `count` largest values above 0 of each row of a dense or CSR matrix, of equal ones the first."""
    parts = over_stored(top_k, stored_rows(matrix), count)
    nodes, data, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sparse.csr_array((data, nodes, np.concatenate([[0], np.cumsum(sizes)])), matrix.shape)


@kernel
def down(ptr: IntArray, idx: IntArray, nodes: IntArray, row: ScoreArray, how: int) -> None:
    """Combine each node with its parents, parents first: p * p(parent), or min(p, p(parents)). The root has 1."""
    for node in nodes:
        for above in idx[ptr[node] : ptr[node + 1]]:
            if above >= 0:
                row[node] = row[node] * row[above] if how == MULTIPLY else min(row[node], row[above])


@kernel
def up(ptr: IntArray, idx: IntArray, nodes: IntArray, row: ScoreArray) -> None:
    """Raise each parent to its largest child, children first."""
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        for above in idx[ptr[node] : ptr[node + 1]]:
            if above >= 0 and row[above] < row[node]:
                row[above] = row[node]


@kernel
def change_row(ptr: IntArray, idx: IntArray, nodes: IntArray, row: ScoreArray, how: int) -> None:
    """Apply `down` or `up` in place, or DIVIDE: p / p(parent), children first, 0 where the parent has 0 (a tree)."""
    if how <= MINIMUM:
        down(ptr, idx, nodes, row, how)
    elif how == MAXIMUM:
        up(ptr, idx, nodes, row)
    else:
        for index in range(len(nodes) - 1, -1, -1):
            node, above = nodes[index], idx[ptr[nodes[index]]]
            if above >= 0:
                row[node] = row[node] / row[above] if row[above] > 0 else np.float32(0)


@kernel
def change_rows(rows: StoredRows, ptr: IntArray, idx: IntArray, how: int, start: int, stop: int) -> None:
    """Apply `change_row` to rows, in place; a node that is not stored has 0 and stays so."""
    every, scratch = np.arange(len(ptr) - 1).astype(np.int32), np.zeros(len(ptr) - 1, rows.values.dtype)
    for row in range(start, stop):
        low, high = rows.ptr[row], rows.ptr[row + 1]
        if rows.is_dense:
            change_row(ptr, idx, every, rows.values[low:high], how)
            continue
        for index in range(low, high):
            scratch[rows.nodes[index]] = rows.values[index]
        change_row(ptr, idx, rows.nodes[low:high], scratch, how)
        for index in range(low, high):
            rows.values[index] = scratch[rows.nodes[index]]
            scratch[rows.nodes[index]] = 0


@kernel
def dense_gap(row: ScoreArray, ptr: IntArray, idx: IntArray) -> float:
    """Find the largest p(child) - p(parent) of a dense row."""
    worst = 0.0
    for node in range(len(row)):
        for above in idx[ptr[node] : ptr[node + 1]]:
            if above >= 0 and row[node] - row[above] > worst:
                worst = float(row[node] - row[above])
    return worst


@kernel
def largest_gap(rows: StoredRows, ptr: IntArray, idx: IntArray, start: int, stop: int) -> float:
    """Find the largest p(child) - p(parent) of rows; 0 if no child is above its parent."""
    scratch = np.zeros(len(ptr) - 1, rows.values.dtype)
    worst = 0.0
    for row in range(start, stop):
        low, high = rows.ptr[row], rows.ptr[row + 1]
        if rows.is_dense:
            worst = max(worst, dense_gap(rows.values[low:high], ptr, idx))
            continue
        for index in range(low, high):
            scratch[rows.nodes[index]] = rows.values[index]
        for index in range(low, high):
            node = rows.nodes[index]
            for above in idx[ptr[node] : ptr[node + 1]]:
                if above >= 0 and rows.values[index] - scratch[above] > worst:
                    worst = float(rows.values[index] - scratch[above])
        for index in range(low, high):
            scratch[rows.nodes[index]] = 0
    return worst


@kernel
def score_of(rows: StoredRows, row: int, node: int) -> Any:
    """Look up the score of a node; what is not stored is 0."""
    low, high = rows.ptr[row], rows.ptr[row + 1]
    if rows.is_dense:
        return rows.values[low + node]
    index = low + np.searchsorted(rows.nodes[low:high], node)
    return rows.values[index] if index < high and rows.nodes[index] == node else rows.values.dtype.type(0)


@kernel
def look_up(rows: StoredRows, ptr: LongArray, idx: IntArray, start: int, stop: int) -> ScoreArray:
    """Look up the score of every label of the rows start..stop of label sets."""
    result = np.empty(ptr[stop] - ptr[start], rows.values.dtype)
    for row in range(start, stop):
        for index in range(ptr[row], ptr[row + 1]):
            result[index - ptr[start]] = score_of(rows, row, idx[index])
    return result


# Up to so many of the largest values are found by keeping them sorted: of many values, few come in between.
FEW = 64


@kernel
def kth_largest(values: ScoreArray, count: int) -> Any:
    """Find the `count`-th largest of more values than that."""
    if count > FEW:
        return np.partition(values, len(values) - count)[len(values) - count]
    held = np.sort(values[:count])
    for index in range(count, len(values)):
        value = values[index]
        if value > held[0]:
            position = 1
            while position < count and held[position] < value:
                held[position - 1] = held[position]
                position += 1
            held[position - 1] = value
    return held[0]


@kernel
def largest(values: ScoreArray, count: int, selected: IntArray) -> int:
    """Write into `selected` the indices of the `count` largest values above 0, in order; of equal ones the first."""
    threshold = np.float32(0)
    if len(values) > count:
        threshold = kth_largest(values, count)
    above = 0
    for value in values:
        above += value > threshold
    ties = count - above if threshold > 0 else 0
    used = 0
    for index in range(len(values)):
        value = values[index]
        if value > threshold or (value == threshold and ties > 0):
            ties -= value == threshold
            selected[used] = index
            used += 1
    return used


@kernel
def top_k(rows: StoredRows, count: int, start: int, stop: int) -> tuple[IntArray, ScoreArray, LongArray]:
    """Keep the largest values of rows: (nodes, values, row sizes)."""
    most = 0
    for row in range(start, stop):
        most += min(count, rows.ptr[row + 1] - rows.ptr[row])
    nodes, data = np.empty(most, np.int32), np.empty(most, rows.values.dtype)
    sizes, selected = np.empty(stop - start, np.int64), np.empty(count, np.int32)
    used = 0
    for row in range(start, stop):
        low = rows.ptr[row]
        size = largest(rows.values[low : rows.ptr[row + 1]], count, selected)
        for index in range(size):
            nodes[used + index] = selected[index] if rows.is_dense else rows.nodes[low + selected[index]]
            data[used + index] = rows.values[low + selected[index]]
        used += size
        sizes[row - start] = size
    return nodes[:used].copy(), data[:used].copy(), sizes


@kernel
def best_nodes(rows: StoredRows, allowed: BoolArray, start: int, stop: int) -> IntArray:
    """Find the allowed node with the largest value of rows; the lowest id among equals, -1 if none is above 0."""
    best = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        top, values = np.float32(0), rows.values[rows.ptr[row] : rows.ptr[row + 1]]
        for index in range(len(values)):
            node = index if rows.is_dense else rows.nodes[rows.ptr[row] + index]
            if allowed[node] and values[index] > top:
                top = values[index]
                best[row - start] = node
    return best
