"""Compiled loops over rows of scores.

A row is worked on in a scratch array with one place per node: a dense row is its own scratch, a CSR row is laid out in
one and read back, so that each operation is written once. CSR costs the stored entries (and their ancestors), never
the nodes. Scores are float32 or float64: each loop is compiled for both.
"""

from typing import Any

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import BoolArray, IntArray, LongArray, ScoreArray

MULTIPLY, MINIMUM, DIVIDE = 0, 1, 2


@kernel
def down(ptr: IntArray, idx: IntArray, nodes: IntArray, row: ScoreArray, how: int) -> None:
    """Combine each node with its parents, parents first: p * p(parent), or min(p, p(parents)). The root has 1."""
    for node in nodes:
        for above in idx[ptr[node] : ptr[node + 1]]:
            if above >= 0:
                row[node] = row[node] * row[above] if how == MULTIPLY else min(row[node], row[above])


@kernel
def divide(ptr: IntArray, idx: IntArray, nodes: IntArray, row: ScoreArray) -> None:
    """Turn marginals into conditionals, children first: p / p(parent), 0 where the parent has 0."""
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        above = idx[ptr[node]]
        if above >= 0:
            row[node] = row[node] / row[above] if row[above] > 0 else np.float32(0)


@kernel
def up(ptr: IntArray, idx: IntArray, nodes: IntArray, row: ScoreArray) -> None:
    """Raise each parent to its largest child, children first."""
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        for above in idx[ptr[node] : ptr[node + 1]]:
            if above >= 0 and row[above] < row[node]:
                row[above] = row[node]


@kernel
def change_dense(ptr: IntArray, idx: IntArray, values: ScoreArray, start: int, stop: int, how: int) -> None:
    """Apply down (MULTIPLY, MINIMUM) or divide (DIVIDE) to dense rows, in place."""
    nodes = np.arange(values.shape[1]).astype(np.int32)
    for row in range(start, stop):
        if how == DIVIDE:
            divide(ptr, idx, nodes, values[row])
        else:
            down(ptr, idx, nodes, values[row], how)


@kernel
def change_csr(
    ptr: IntArray,
    idx: IntArray,
    row_ptr: LongArray,
    row_idx: IntArray,
    data: ScoreArray,
    start: int,
    stop: int,
    how: int,
) -> None:
    """Apply down or divide to CSR rows, in place; a node that is not stored has 0."""
    scratch = np.zeros(len(ptr) - 1, data.dtype)
    for row in range(start, stop):
        entries = slice(row_ptr[row], row_ptr[row + 1])
        nodes = row_idx[entries]
        for index in range(entries.start, entries.stop):
            scratch[row_idx[index]] = data[index]
        if how == DIVIDE:
            divide(ptr, idx, nodes, scratch)
        else:
            down(ptr, idx, nodes, scratch, how)
        for index in range(entries.start, entries.stop):
            data[index] = scratch[row_idx[index]]
            scratch[row_idx[index]] = 0


@kernel
def raise_dense(ptr: IntArray, idx: IntArray, values: ScoreArray, start: int, stop: int) -> None:
    """Raise parents to their largest descendant in dense rows, in place."""
    nodes = np.arange(values.shape[1]).astype(np.int32)
    for row in range(start, stop):
        up(ptr, idx, nodes, values[row])


@kernel
def raise_csr(
    ptr: IntArray,
    idx: IntArray,
    row_ptr: LongArray,
    row_idx: IntArray,
    data: ScoreArray,
    closed_ptr: LongArray,
    closed_idx: IntArray,
    start: int,
    stop: int,
) -> ScoreArray:
    """Raise parents to their largest descendant; the result stands at the closed pattern of the rows."""
    scratch = np.zeros(len(ptr) - 1, data.dtype)
    raised = np.empty(closed_ptr[stop] - closed_ptr[start], data.dtype)
    for row in range(start, stop):
        for index in range(row_ptr[row], row_ptr[row + 1]):
            scratch[row_idx[index]] = data[index]
        nodes = closed_idx[closed_ptr[row] : closed_ptr[row + 1]]
        up(ptr, idx, nodes, scratch)
        begin = closed_ptr[row] - closed_ptr[start]
        for index in range(len(nodes)):
            raised[begin + index] = scratch[nodes[index]]
            scratch[nodes[index]] = 0
    return raised


@kernel
def worst_edge_dense(ptr: IntArray, idx: IntArray, values: ScoreArray, start: int, stop: int) -> tuple[float, int, int]:
    """Find the largest p(child) - p(parent): (gap, row, child); (0, -1, -1) if no child is above its parent."""
    worst, worst_row, worst_node = 0.0, -1, -1
    for row in range(start, stop):
        for node in range(values.shape[1]):
            for above in idx[ptr[node] : ptr[node + 1]]:
                if above >= 0 and values[row, node] - values[row, above] > worst:
                    worst, worst_row, worst_node = values[row, node] - values[row, above], row, node
    return worst, worst_row, worst_node


@kernel
def worst_edge_csr(
    ptr: IntArray, idx: IntArray, row_ptr: LongArray, row_idx: IntArray, data: ScoreArray, start: int, stop: int
) -> tuple[float, int, int]:
    """The same on CSR rows."""
    scratch = np.zeros(len(ptr) - 1, data.dtype)
    worst, worst_row, worst_node = 0.0, -1, -1
    for row in range(start, stop):
        for index in range(row_ptr[row], row_ptr[row + 1]):
            scratch[row_idx[index]] = data[index]
        for index in range(row_ptr[row], row_ptr[row + 1]):
            node = row_idx[index]
            for above in idx[ptr[node] : ptr[node + 1]]:
                if above >= 0 and data[index] - scratch[above] > worst:
                    worst, worst_row, worst_node = data[index] - scratch[above], row, node
        for index in range(row_ptr[row], row_ptr[row + 1]):
            scratch[row_idx[index]] = 0
    return worst, worst_row, worst_node


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
def top_k_dense(values: ScoreArray, start: int, stop: int, count: int) -> tuple[IntArray, ScoreArray, LongArray]:
    """Keep the largest scores of dense rows: (nodes, scores, row sizes)."""
    nodes = np.empty((stop - start) * count, np.int32)
    data = np.empty((stop - start) * count, values.dtype)
    sizes = np.empty(stop - start, np.int64)
    selected = np.empty(count, np.int32)
    used = 0
    for row in range(start, stop):
        result = largest(values[row], count, selected)
        for index in range(result):
            nodes[used + index] = selected[index]
            data[used + index] = values[row, selected[index]]
        used += result
        sizes[row - start] = result
    return nodes[:used].copy(), data[:used].copy(), sizes


@kernel
def top_k_csr(
    row_ptr: LongArray, row_idx: IntArray, values: ScoreArray, start: int, stop: int, count: int
) -> tuple[IntArray, ScoreArray, LongArray]:
    """Keep the largest scores of CSR rows."""
    most = 0
    for row in range(start, stop):
        most += min(count, row_ptr[row + 1] - row_ptr[row])
    nodes = np.empty(most, np.int32)
    data = np.empty(most, values.dtype)
    sizes = np.empty(stop - start, np.int64)
    selected = np.empty(count, np.int32)
    used = 0
    for row in range(start, stop):
        begin = row_ptr[row]
        result = largest(values[begin : row_ptr[row + 1]], count, selected)
        for index in range(result):
            nodes[used + index] = row_idx[begin + selected[index]]
            data[used + index] = values[begin + selected[index]]
        used += result
        sizes[row - start] = result
    return nodes[:used].copy(), data[:used].copy(), sizes


@kernel
def best_in_slice(values: ScoreArray, allowed: BoolArray, start: int, stop: int) -> IntArray:
    """Find the allowed node with the largest score in dense rows; the lowest id among equals, -1 if all are 0."""
    best = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        top = np.float32(0)
        for node in range(values.shape[1]):
            if allowed[node] and values[row, node] > top:
                top = values[row, node]
                best[row - start] = node
    return best


@kernel
def best_in_csr(
    ptr: LongArray, idx: IntArray, values: ScoreArray, allowed: BoolArray, start: int, stop: int
) -> IntArray:
    """The same for CSR rows; -1 if no allowed node is stored."""
    best = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        top = np.float32(0)
        for index in range(ptr[row], ptr[row + 1]):
            if allowed[idx[index]] and values[index] > top:
                top = values[index]
                best[row - start] = idx[index]
    return best
