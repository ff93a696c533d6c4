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
    # Every place of a heap has two places below it; those past the labels of the row hold -1.
    heap = np.full(2 * most + 1, -1, np.int32)
    found = np.empty(max(16, 4 * (stop - start)), np.int32)
    sizes = np.empty(stop - start, np.int64)
    # Of a literal, numba would compile the loops that get it once more.
    used: int = np.int64(0)  # type: ignore[assignment]
    for row in range(start, stop):
        last = row_ptr[row + 1]
        labels = last - row_ptr[row]
        for at in range(labels):
            heap[at] = row_idx[last - 1 - at]
        room = min(labels * max_depth, len(parent))
        if used + room > len(found):
            found = with_room(found, used, room)
        sizes[row - start] = climb(parent, heap, found, used)
        used += sizes[row - start]
    return found[:used], sizes


@kernel
def climb(parent: IntArray, heap: IntArray, found: IntArray, start: int) -> int:
    """Write the nodes of a heap and all their ancestors, sorted, from found[start] on; return their number.

    The heap holds the next node on the way up from each label, the largest on top. Parents have smaller numbers, so
    nodes leave it in descending order, and where ways meet, equal ones in a row. A way that is over is -1 and sinks.
    This stands apart from the loop over rows because an array that may be replaced slows down every access to it.
    """
    used, listed = start, -1
    while heap[0] >= 0:
        above = -1
        if heap[0] != listed:
            listed = heap[0]
            found[used] = listed
            used += 1
            above = parent[listed]
        at = 0
        while True:
            below = 2 * at + 1
            if heap[below + 1] > heap[below]:
                below += 1
            if heap[below] <= above:
                break
            heap[at] = heap[below]
            at = below
        heap[at] = above
    turn_round(found, start, used)
    return used - start


@kernel
def reach(
    ptr: IntArray, idx: IntArray, row_ptr: LongArray, row_idx: IntArray, start: int, stop: int
) -> tuple[IntArray, LongArray]:
    """List, for rows start..stop of label sets, the labels and every node that can be reached from them, sorted."""
    nodes = len(ptr) - 1
    stamp = np.zeros(nodes, np.int32)
    found = np.empty(nodes + 4 * (stop - start), np.int32)
    sizes = np.empty(stop - start, np.int64)
    # Of a literal, numba would compile the loops that get it once more.
    used: int = np.int64(0)  # type: ignore[assignment]
    for row in range(start, stop):
        if used + nodes > len(found):
            found = with_room(found, used, nodes)
        labels = row_idx[row_ptr[row] : row_ptr[row + 1]]
        sizes[row - start] = spread(ptr, idx, labels, stamp, row - start + 1, found, used)
        used += sizes[row - start]
    return found[:used], sizes


@kernel
def spread(
    ptr: IntArray, idx: IntArray, labels: IntArray, stamp: IntArray, mark: int, found: IntArray, start: int
) -> int:
    """Write labels and every node that can be reached from them, sorted, from found[start] on; return their number."""
    taken = used = start
    for node in labels:
        stamp[node] = mark
        found[used] = node
        used += 1
    while taken < used:
        node = found[taken]
        taken += 1
        for edge in range(ptr[node], ptr[node + 1]):
            near = idx[edge]
            if near >= 0 and stamp[near] != mark:
                stamp[near] = mark
                found[used] = near
                used += 1
    sort_up(found, start, used)
    return used - start


@kernel
def keep_most_specific(
    ptr: IntArray, idx: IntArray, row_ptr: LongArray, row_idx: IntArray, start: int, stop: int
) -> tuple[IntArray, LongArray]:
    """Drop from each row the nodes that are ancestors of another node of the row."""
    nodes = len(ptr) - 1
    stamp = np.zeros(nodes, np.int32)
    stack = np.empty(nodes + 1, np.int32)
    kept = np.empty(row_ptr[stop] - row_ptr[start], np.int32)
    sizes = np.empty(stop - start, np.int64)
    # Of a literal, numba would compile the loops that get it once more.
    used: int = np.int64(0)  # type: ignore[assignment]
    for row in range(start, stop):
        mark = row - start + 1
        begin = used
        # Largest ids first: a node is looked at only after every descendant it may have in the row.
        for at in range(row_ptr[row + 1] - 1, row_ptr[row] - 1, -1):
            node = row_idx[at]
            if stamp[node] == mark:
                continue
            kept[used] = node
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
        sort_up(kept, begin, used)
        sizes[row - start] = used - begin
    return kept[:used], sizes


@kernel
def turn_round(values: IntArray, start: int, stop: int) -> None:
    """Reverse values[start:stop] in place."""
    low, high = start, stop - 1
    while low < high:
        values[low], values[high] = values[high], values[low]
        low += 1
        high -= 1


@kernel
def sort_up(values: IntArray, start: int, stop: int) -> None:
    """Sort values[start:stop]; walks towards the root come out nearly descending, so those are turned round first."""
    if start < stop and values[start] > values[stop - 1]:
        turn_round(values, start, stop)
    if stop - start > 64:
        heap_sort(values, start, stop)
        return
    for at in range(start + 1, stop):
        value = values[at]
        hole = at
        while hole > start and values[hole - 1] > value:
            values[hole] = values[hole - 1]
            hole -= 1
        values[hole] = value


@kernel
def heap_sort(values: IntArray, start: int, stop: int) -> None:
    """Sort values[start:stop] in place; numba's own sort takes over a second to compile."""
    count = stop - start
    for step in range(count // 2 + count):
        # At first every place sinks to where it belongs in a heap; then the largest leaves it, again and again.
        if step < count // 2:
            at, size = count // 2 - 1 - step, count
        else:
            at, size = 0, count - 1 - (step - count // 2)
            values[start], values[start + size] = values[start + size], values[start]
        value = values[start + at]
        while 2 * at + 1 < size:
            below = 2 * at + 1
            if below + 1 < size and values[start + below + 1] > values[start + below]:
                below += 1
            if values[start + below] <= value:
                break
            values[start + at] = values[start + below]
            at = below
        values[start + at] = value


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
        for at in range(true_ptr[row], true_ptr[row + 1]):
            stamp[true_idx[at]] = row - start + 1
        for at in range(pred_ptr[row], pred_ptr[row + 1]):
            marks[at - pred_ptr[start]] = stamp[pred_idx[at]] == row - start + 1
    return marks
