"""Merging labels pair by pair into a binary tree, the pair first that lowers the structural entropy most.

See `coding_tree` for the entropy; this is the first step of making a tree that has little of it.
"""

import heapq
from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import IntArray, LongArray

# Products of volumes and logarithms stay within 64 bits up to 2^26 edges.
_PRECISION = 2**30


def binary_tree(labels: int, edges: IntArray) -> tuple[LongArray, LongArray, IntArray]:
    """Merge neighbouring groups in pairs, the pair first whose union as one group without inner groups costs least.

    Parameters
    ----------
    labels : int
        The number of labels, which are nodes 0 .. labels - 1.
    edges : int32 array, edges × 2
        The label graph.

    Returns
    -------
    tuple of arrays
        The volume of every node, the number of edges between its two children (0 for labels), and its parent. Children
        have smaller numbers than parents; the last node is the root over all components.

    >>> volume, cut, above = binary_tree(4, np.array([[0, 1], [2, 3]], np.int32))
    >>> volume.tolist(), cut.tolist(), above.tolist()
    ([1, 1, 1, 1, 2, 2, 4], [0, 0, 0, 0, 1, 1, 0], [4, 4, 5, 5, 6, 6, -1])
    """
    return _merge(_graph(labels, edges), labels)


class _Graph(NamedTuple):
    """Groups and the edges between them while groups merge; a group that has merged keeps its place."""

    volume: LongArray
    # The number of edges between a group and all others, and between its two children.
    leaving: LongArray
    cut: LongArray
    above: IntArray
    # A group that the node is part of, on the way to the largest one.
    part_of: IntArray
    # The ends of edges at a group are a linked list: its first, its last, and the one after each.
    first: IntArray
    last: IntArray
    after: IntArray
    # Which node an end leads to, and how many edges it stands for.
    target: IntArray
    weight: LongArray
    # The neighbour to merge with, of those that are older than the group.
    best: IntArray
    # For `_scan`: which end leads to a group.
    seen: IntArray
    # log2 of every volume there can be in whole parts of `_PRECISION`, so that equal costs are equal on every machine.
    logs: LongArray


def _graph(labels: int, edges: IntArray) -> _Graph:
    nodes, ends = 2 * labels, edges.ravel()
    order = np.argsort(ends, kind="stable").astype(np.int32)
    degree = np.bincount(ends, minlength=nodes)
    stop = np.cumsum(degree)
    after = np.full(len(ends), -1, np.int32)
    after[order[:-1]] = np.where(ends[order[:-1]] == ends[order[1:]], order[1:], -1)
    none = np.full(nodes, -1, np.int32)
    first, last = none.copy(), none.copy()
    linked = degree > 0
    first[linked], last[linked] = order[(stop - degree)[linked]], order[stop[linked] - 1]
    return _Graph(
        volume=degree.copy(),
        leaving=degree.copy(),
        cut=np.zeros(nodes, np.int64),
        above=none.copy(),
        part_of=np.arange(nodes, dtype=np.int32),
        first=first,
        last=last,
        after=after,
        target=edges[:, ::-1].ravel(),
        weight=np.ones(len(ends), np.int64),
        best=none.copy(),
        seen=none.copy(),
        logs=np.rint(_PRECISION * np.log2(np.maximum(np.arange(len(ends) + 1), 1))).astype(np.int64),
    )


@kernel
def _merge(graph: _Graph, labels: int) -> tuple[LongArray, LongArray, IntArray]:
    """Merge as `binary_tree` says. The heap holds every group with the best of its older neighbours.

    An edge between groups is thus known to the younger one. Where the older one has merged meanwhile, the younger looks
    for the next best, which cannot be better.
    """
    volume, above = graph.volume, graph.above
    heap = [(0, 0) for _ in range(0)]
    for node in range(labels):
        _tidy(graph, node)
        _find_best(graph, node, heap)
    made = labels
    while len(heap) > 0:
        _, young = heapq.heappop(heap)
        if above[young] >= 0:
            continue
        old = graph.best[young]
        if above[old] >= 0:
            _tidy(graph, young)
            _find_best(graph, young, heap)
            continue
        above[young] = above[old] = graph.part_of[young] = graph.part_of[old] = made
        graph.after[graph.last[old]] = graph.first[young]
        graph.first[made], graph.last[made] = graph.first[old], graph.last[young]
        volume[made] = volume[old] + volume[young]
        inside = _tidy(graph, made)
        graph.cut[made] = inside // 2
        graph.leaving[made] = graph.leaving[old] + graph.leaving[young] - inside
        _find_best(graph, made, heap)
        made += 1
    volume[made] = len(graph.target)
    for node in range(made):
        if above[node] < 0:
            above[node] = made
    return volume[: made + 1], graph.cut[: made + 1], above[: made + 1]


@kernel
def _tidy(graph: _Graph, node: int) -> int:
    """Unite ends of a group that lead to the same one, drop and count those that lead into itself."""
    target, after, seen, part_of = graph.target, graph.after, graph.seen, graph.part_of
    inside, tail, end = 0, -1, graph.first[node]
    graph.first[node] = -1
    while end >= 0:
        to = target[end]
        while part_of[to] != to:
            part_of[to] = part_of[part_of[to]]
            to = part_of[to]
        target[end] = to
        if to == node:
            inside += graph.weight[end]
        elif seen[to] >= 0:
            graph.weight[seen[to]] += graph.weight[end]
        else:
            seen[to] = end
            if tail < 0:
                graph.first[node] = end
            else:
                after[tail] = end
            tail = end
        end = after[end]
    graph.last[node] = tail
    if tail >= 0:
        after[tail] = -1
    end = graph.first[node]
    while end >= 0:
        seen[target[end]] = -1
        end = after[end]
    return inside


@kernel
def _find_best(graph: _Graph, node: int, heap: list[tuple[int, int]]) -> None:
    """Put a group on the heap with the older neighbour that it costs least to merge with; the first of equal ones."""
    logs, volume, leaving = graph.logs, graph.volume, graph.leaving
    least, best, end = 0, -1, graph.first[node]
    size, inside = volume[node], volume[node] - leaving[node]
    while end >= 0:
        other = graph.target[end]
        if other < node:
            log = logs[size + volume[other]]
            rise = inside * (log - logs[size]) + (volume[other] - leaving[other]) * (log - logs[volume[other]])
            rise -= 2 * graph.weight[end] * (logs[len(graph.target)] - log)
            if best < 0 or rise < least or (rise == least and other < best):
                least, best = rise, other
        end = graph.after[end]
    graph.best[node] = best
    if best >= 0:
        heapq.heappush(heap, (least, node))
