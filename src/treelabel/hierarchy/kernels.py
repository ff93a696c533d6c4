"""Compiled loops over hierarchies.

A graph is a pair (ptr, idx): the neighbours of node i are idx[ptr[i]:ptr[i + 1]]. The virtual root is -1 among
neighbours and is skipped by walks. Every loop here visits each edge a constant number of times, unless it says so.
"""

import numpy as np

from treelabel.core.compute import BoolArray, IntArray, LongArray, kernel


@kernel
def group_by(keys: IntArray, groups: int) -> tuple[IntArray, IntArray]:
    """Sort positions by key, stably, in linear time: group g is positions[ptr[g]:ptr[g + 1]] of (ptr, positions)."""
    ptr = np.zeros(groups + 1, np.int32)
    for key in keys:
        ptr[key + 1] += 1
    for group in range(groups):
        ptr[group + 1] += ptr[group]
    free = ptr[:-1].copy()
    positions = np.empty(len(keys), np.int32)
    for position in range(len(keys)):
        key = keys[position]
        positions[free[key]] = position
        free[key] += 1
    return ptr, positions


@kernel
def number_nodes(
    ptr: IntArray, edges: IntArray, child: IntArray, waiting: IntArray
) -> tuple[IntArray, IntArray, IntArray, int]:
    """Number nodes so that parents precede children and levels are slices (Kahn's algorithm, first in first out).

    A node enters the queue with its last parent. As the queue is in order of depth, that parent is its deepest, so the
    node's depth is the longest way from the root; in a tree this is breadth-first order and siblings are consecutive.
    `ptr`, `edges` group the edges by parent + 1 (group 0: the root); `waiting` counts parents and is used up.
    Returns (queue of old ids, rank of each old id or -1, depth by rank, nodes reached).
    """
    nodes = len(waiting)
    queue = np.empty(nodes, np.int32)
    rank = np.full(nodes, -1, np.int32)
    depth = np.empty(nodes, np.int32)
    filled = 0
    for taken in range(-1, nodes):
        if taken >= filled:
            break
        group = 0 if taken < 0 else queue[taken] + 1
        below = 1 if taken < 0 else depth[taken] + 1
        for at in range(ptr[group], ptr[group + 1]):
            node = child[edges[at]]
            waiting[node] -= 1
            if waiting[node] == 0:
                queue[filled] = node
                rank[node] = filled
                depth[filled] = below
                filled += 1
    return queue, rank, depth, filled


@kernel
def first_duplicate(ptr: IntArray, edges: IntArray, child: IntArray, nodes: int) -> tuple[int, int]:
    """Find two equal edges: (first, second) positions of the earliest second one, or (-1, -1)."""
    seen_group = np.full(nodes, -1, np.int32)
    seen_edge = np.empty(nodes, np.int32)
    first, second = -1, -1
    for group in range(len(ptr) - 1):
        for at in range(ptr[group], ptr[group + 1]):
            edge = edges[at]
            node = child[edge]
            if seen_group[node] == group and (second < 0 or edge < second):
                first, second = seen_edge[node], edge
            seen_group[node] = group
            seen_edge[node] = edge
    return first, second


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
        values[start:stop] = np.sort(values[start:stop])
        return
    for at in range(start + 1, stop):
        value = values[at]
        hole = at
        while hole > start and values[hole - 1] > value:
            values[hole] = values[hole - 1]
            hole -= 1
        values[hole] = value


@kernel
def with_room(values: IntArray, used: int, more: int) -> IntArray:
    """Return an array that begins with values[:used] and has room for at least `more` entries."""
    larger = np.empty(2 * (used + more), np.int32)
    larger[:used] = values[:used]
    return larger


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
    used = 0
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
    used = 0
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
    used = 0
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
def subtree_sizes(parent: IntArray) -> IntArray:
    """Count each tree node with all its descendants, in one reverse pass."""
    sizes = np.ones(len(parent), np.int32)
    for node in range(len(parent) - 1, -1, -1):
        if parent[node] >= 0:
            sizes[parent[node]] += sizes[node]
    return sizes


@kernel
def preorder(parent: IntArray, sizes: IntArray) -> IntArray:
    """Number tree nodes in depth-first order: the subtree of n takes the places place[n] + [0, sizes[n])."""
    nodes = len(parent)
    place = np.empty(nodes, np.int32)
    free = np.empty(nodes + 1, np.int32)
    free[nodes] = 0
    for node in range(nodes):
        above = parent[node] if parent[node] >= 0 else nodes
        place[node] = free[above]
        free[above] += sizes[node]
        free[node] = place[node] + 1
    return place


@kernel
def heavy_path_heads(parent: IntArray, sizes: IntArray) -> IntArray:
    """Split a tree into paths, each node followed by its largest child; return the top of the path of every node.

    Any way to the root crosses at most log2(nodes) paths, which bounds the lowest common ancestor search.
    """
    nodes = len(parent)
    heavy = np.full(nodes + 1, -1, np.int32)
    for node in range(nodes):
        above = parent[node] if parent[node] >= 0 else nodes
        if heavy[above] < 0 or sizes[node] > sizes[heavy[above]]:
            heavy[above] = node
    head = np.arange(nodes).astype(np.int32)
    for node in range(nodes):
        if parent[node] >= 0 and heavy[parent[node]] == node:
            head[node] = head[parent[node]]
    return head


@kernel
def tree_meet(head: IntArray, parent: IntArray, left: IntArray, right: IntArray, start: int, stop: int) -> IntArray:
    """Find the lowest common ancestor of each pair left[i], right[i] of tree nodes; -1 is the root."""
    met = np.empty(stop - start, np.int32)
    for pair in range(start, stop):
        one, two = left[pair], right[pair]
        # Numbers grow with depth: of two different paths, the one whose head has the larger number cannot hold the
        # common ancestor, and is left upwards.
        while one >= 0 and head[one] != head[two]:
            if head[one] < head[two]:
                one, two = two, one
            one = parent[head[one]]
        met[pair - start] = min(one, two)
    return met


@kernel
def dag_meet(
    ptr: IntArray, idx: IntArray, left: IntArray, right: IntArray, start: int, stop: int
) -> tuple[IntArray, IntArray]:
    """Find each pair's deepest common ancestor and the length of the shortest way up and down between the two.

    Costs the number of ancestors of both per pair. Equally deep ancestors: the largest id.
    """
    nodes = len(ptr) - 1
    # The root takes part as node number `nodes`.
    stamp = np.zeros((2, nodes + 1), np.int32)
    steps = np.zeros((2, nodes + 1), np.int32)
    queue = np.empty(nodes + 1, np.int32)
    met = np.empty(stop - start, np.int32)
    length = np.empty(stop - start, np.int32)
    for pair in range(start, stop):
        mark = pair - start + 1
        met[pair - start] = -1
        length[pair - start] = 2 * nodes + 2
        for side in range(2):
            node = left[pair] if side == 0 else right[pair]
            queue[0] = node
            stamp[side, node] = mark
            steps[side, node] = 0
            taken, filled = 0, 1
            while taken < filled:
                node = queue[taken]
                taken += 1
                if side == 1 and stamp[0, node] == mark:
                    if node < nodes:
                        met[pair - start] = max(met[pair - start], node)
                    length[pair - start] = min(length[pair - start], steps[0, node] + steps[1, node])
                if node == nodes:
                    continue
                for edge in range(ptr[node], ptr[node + 1]):
                    near = idx[edge] if idx[edge] >= 0 else nodes
                    if stamp[side, near] != mark:
                        stamp[side, near] = mark
                        steps[side, near] = steps[side, node] + 1
                        queue[filled] = near
                        filled += 1
    return met, length


@kernel
def dag_is_ancestor(ptr: IntArray, idx: IntArray, upper: IntArray, lower: IntArray, start: int, stop: int) -> IntArray:
    """Mark the pairs in which upper[i] is lower[i] or one of its ancestors, walking only nodes at or above it."""
    nodes = len(ptr) - 1
    stamp = np.zeros(nodes, np.int32)
    stack = np.empty(nodes + 1, np.int32)
    answer = np.zeros(stop - start, np.int32)
    for pair in range(start, stop):
        mark = pair - start + 1
        stack[0] = lower[pair]
        height = 1
        while height > 0:
            height -= 1
            node = stack[height]
            if node == upper[pair]:
                answer[pair - start] = 1
                break
            for edge in range(ptr[node], ptr[node + 1]):
                near = idx[edge]
                if near >= upper[pair] and near >= 0 and stamp[near] != mark:
                    stamp[near] = mark
                    stack[height] = near
                    height += 1
    return answer


@kernel
def shortest_depths(ptr: IntArray, idx: IntArray) -> IntArray:
    """Count the edges of the shortest way from the root to each node."""
    depth = np.empty(len(ptr) - 1, np.int32)
    for node in range(len(ptr) - 1):
        best = len(ptr)
        for edge in range(ptr[node], ptr[node + 1]):
            above = idx[edge]
            best = min(best, 1 if above < 0 else depth[above] + 1)
        depth[node] = best
    return depth


@kernel
def nearest_kept(parent: IntArray, kept: BoolArray) -> IntArray:
    """For each tree node, itself if kept, else its nearest kept ancestor (-1: none)."""
    nearest = np.empty(len(parent), np.int32)
    for node in range(len(parent)):
        above = parent[node]
        nearest[node] = node if kept[node] else (nearest[above] if above >= 0 else -1)
    return nearest


@kernel
def chain_ends(follow: IntArray) -> IntArray:
    """Follow links to larger numbers (-1: none) to their end."""
    end = np.empty(len(follow), np.int32)
    for node in range(len(follow) - 1, -1, -1):
        end[node] = node if follow[node] < 0 else end[follow[node]]
    return end


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
