"""Compiled loops over label sets: closing them upwards or downwards, keeping the most specific labels, comparing sets.

A graph is a pair (ptr, idx): the neighbours of node i are idx[ptr[i]:ptr[i + 1]]. The virtual root is -1 among
neighbours and is skipped by walks. Label sets are the rows of a CSR matrix.
"""

import numpy as np

from treelabel.core.compute import kernel, with_room
from treelabel.core.types import BoolArray, IntArray, LongArray


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
def matches(
    true_ptr: LongArray,
    true_idx: IntArray,
    pred_ptr: LongArray,
    pred_idx: IntArray,
    columns: int,
    start: int,
    stop: int,
) -> BoolArray:
    """Mark the predicted labels that are true."""
    marks = np.empty(pred_ptr[stop] - pred_ptr[start], np.bool_)
    # Stamping true labels with the row is several times faster than merging two rows, whose branches nobody can guess.
    stamp = np.zeros(columns, np.int32)
    for row in range(start, stop):
        for entry in range(true_ptr[row], true_ptr[row + 1]):
            stamp[true_idx[entry]] = row - start + 1
        for entry in range(pred_ptr[row], pred_ptr[row + 1]):
            marks[entry - pred_ptr[start]] = stamp[pred_idx[entry]] == row - start + 1
    return marks
