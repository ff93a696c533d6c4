"""Compiled loops that number the nodes of a new hierarchy.

Edges are grouped by parent: group g is positions[ptr[g]:ptr[g + 1]] of (ptr, positions). Every loop visits each edge a
constant number of times.
"""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import IntArray


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
        for entry in range(ptr[group], ptr[group + 1]):
            node = child[edges[entry]]
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
        for entry in range(ptr[group], ptr[group + 1]):
            edge = edges[entry]
            node = child[edge]
            if seen_group[node] == group and (second < 0 or edge < second):
                first, second = seen_edge[node], edge
            seen_group[node] = group
            seen_edge[node] = edge
    return first, second
