"""Compiled loops over nodes and their ancestors: subtrees, depths, common ancestors.

A tree is the array of parents, -1 being the virtual root; a graph is a pair (ptr, idx), in which the neighbours of node
i are idx[ptr[i]:ptr[i + 1]]. Parents have smaller numbers than their children.
"""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import BoolArray, IntArray


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
    """Number tree nodes in depth-first order: the subtree of n takes the numbers rank[n] + [0, sizes[n])."""
    nodes = len(parent)
    rank = np.empty(nodes, np.int32)
    free = np.empty(nodes + 1, np.int32)
    free[nodes] = 0
    for node in range(nodes):
        above = parent[node] if parent[node] >= 0 else nodes
        rank[node] = free[above]
        free[above] += sizes[node]
        free[node] = rank[node] + 1
    return rank


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
def dag_is_ancestor(ptr: IntArray, idx: IntArray, upper: IntArray, lower: IntArray, start: int, stop: int) -> BoolArray:
    """Mark the pairs in which upper[i] is lower[i] or one of its ancestors, walking only nodes at or above it."""
    nodes = len(ptr) - 1
    stamp = np.zeros(nodes, np.int32)
    stack = np.empty(nodes + 1, np.int32)
    answer = np.zeros(stop - start, np.bool_)
    for pair in range(start, stop):
        mark = pair - start + 1
        stack[0] = lower[pair]
        height = 1
        while height > 0:
            height -= 1
            node = stack[height]
            if node == upper[pair]:
                answer[pair - start] = True
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
def nearest_marked(parent: IntArray, marked: BoolArray) -> IntArray:
    """Find for each tree node itself if it is marked, else its nearest marked ancestor (-1: none)."""
    nearest = np.empty(len(parent), np.int32)
    for node in range(len(parent)):
        above = parent[node]
        nearest[node] = node if marked[node] else (nearest[above] if above >= 0 else -1)
    return nearest


@kernel
def chain_ends(follow: IntArray) -> IntArray:
    """Follow links to larger numbers (-1: none) to their end."""
    end = np.empty(len(follow), np.int32)
    for node in range(len(follow) - 1, -1, -1):
        end[node] = node if follow[node] < 0 else end[follow[node]]
    return end
