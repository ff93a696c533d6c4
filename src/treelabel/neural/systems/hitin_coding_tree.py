"""Coding trees: few levels of groups of labels that describe the label graph in as few bits as possible.

The label graph has an edge for every parent and child of the hierarchy, without the virtual root. The structural
entropy of a tree over the labels (Li and Pan 2016) is -Σ (g/V) log2(v/v⁺) over its nodes but the root: v is the volume
of a node (the degrees of its labels, summed), v⁺ that of its parent, g the number of edges that leave it, and V the
volume of the root. Summed along the way up from both ends of an edge, the terms telescope:

    V · entropy = 2 Σ_edges log2 v(lowest common group of its ends) - Σ_labels degree · log2 degree.

So an edge costs the logarithm of the volume of the smallest group that holds it, and nothing else counts.
"""

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.numbering import freeze

# Sums of logarithms that differ by less are equal: a group that saves nothing is left out.
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class CodingTree:
    """Levels of groups over the labels of a hierarchy; every label stands equally deep.

    Level 0 holds the labels in order, the last level one root. Groups of a level are numbered by their first label. A
    group with a single child only fills a level, and adds no entropy.

    Attributes
    ----------
    parents : tuple of int32 arrays
        parents[k][i] is the group at level k + 1 that node i of level k belongs to.
    """

    parents: tuple[IntArray, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of every level, labels first."""
        return (*(len(above) for above in self.parents), 1)


def coding_tree(hierarchy: Hierarchy, height: int = 2) -> CodingTree:
    """Build a coding tree of little structural entropy (Li and Pan 2016; Zhu et al. 2023, HiTIN).

    Neighbouring groups are merged in pairs, the cheapest pair first, until every component of the graph is one binary
    tree. Of all trees of the given height that leave out groups of this binary tree, the one of least entropy is taken;
    HiTIN's own program leaves out groups one by one down to height 2, and then lets the tree grow again. More height
    never means more entropy.

    Merging takes time in proportion to the edges times the neighbours of a merged group, leaving out to the labels
    times the depth of the binary tree times height; memory is linear. 20,000 labels take less than a second, but both
    steps are quadratic for a star, where they take some five seconds.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG with at least one label.
    height : int
        How many levels to put above the labels; 1 has no groups but the root.

    Returns
    -------
    CodingTree

    >>> h = Hierarchy.from_edges([("A", "a"), ("A", "b"), ("B", "c"), ("B", "d")])
    >>> tree = coding_tree(h)
    >>> h.names
    ('A', 'B', 'a', 'b', 'c', 'd')
    >>> tree.parents[0].tolist(), tree.sizes
    ([0, 1, 0, 0, 1, 1], (6, 2, 1))
    """
    if height < 1:
        raise TreelabelError(f"a coding tree has a height of at least 1, not {height}")
    if len(hierarchy) == 0:
        raise TreelabelError("a coding tree needs a hierarchy with at least one label")
    volume, cut, above = binary_tree(len(hierarchy), label_edges(hierarchy))
    retained = least_rise(volume, cut, above, height)
    parents = _levels(len(hierarchy), above, retained, height)
    return CodingTree(tuple(freeze(level) for level in parents))


def label_edges(hierarchy: Hierarchy) -> IntArray:
    """Return the edges between labels, parent and child, in order of the child.

    >>> label_edges(Hierarchy.from_edges([("A", "a"), ("A", "b")])).tolist()
    [[0, 1], [0, 2]]
    """
    edges = np.stack([hierarchy.parent_idx, hierarchy.edge_child], axis=1)
    return edges[edges[:, 0] >= 0].astype(np.int32)


def least_rise(volume: LongArray, cut: LongArray, above: IntArray, height: int) -> BoolArray:
    """Choose which groups of a binary tree to keep so that the entropy rises least.

    An edge costs the logarithm of the volume of the smallest kept group that holds it. The best choice below a node
    depends on its lowest kept ancestor and on how many more groups there may be on the way down, and on nothing else.

    Parameters
    ----------
    volume, cut, above : arrays
        The tree, as from `binary_tree`.
    height : int
        How many kept groups, the root included, there may be above a label.

    Returns
    -------
    bool array
        For every node whether it is kept; labels and the root always are.

    >>> path = binary_tree(4, np.array([[0, 1], [1, 2], [2, 3]], np.int32))
    >>> least_rise(*path, height=1)[4:].tolist(), least_rise(*path, height=2)[4:].tolist()
    ([False, False, False, True], [True, True, False, True])
    """
    labels = len(cut) - int(np.count_nonzero(cut)) - 1
    logs = np.log2(np.maximum(volume, 1))
    return _keep(labels, cut, above, logs, height)


@kernel
def _keep(labels: int, cut: LongArray, above: IntArray, logs: DoubleArray, height: int) -> BoolArray:
    """Compute the costs bottom-up, and choose top-down.

    The lower the kept ancestor, the less there is to gain by keeping a node: `limit` is the depth of the lowest for
    which keeping it is best.
    """
    nodes = len(cut)
    depth, order, row = _heavy_first(labels, above)
    limit = np.full((nodes, height), -1, np.int32)
    # cost[row[a], d, k] is that of node a if its lowest kept ancestor has depth d and k more may be kept on a way down.
    # The costs of its children are summed there before.
    cost = np.zeros((row.max() + 1, depth.max() + 1, height))
    for node in order:
        costs, here = cost[row[node]], cut[node] * logs[node]
        alone = costs[depth[node]]
        ancestor = above[node]
        while ancestor >= 0:
            ancestor_depth = depth[ancestor]
            for more in range(height):
                costs[ancestor_depth, more] += cut[node] * logs[ancestor]
                if more > 0 and here + alone[more - 1] < costs[ancestor_depth, more] - _TOLERANCE:
                    costs[ancestor_depth, more] = here + alone[more - 1]
                    limit[node, more] = max(limit[node, more], ancestor_depth)
            ancestor = above[ancestor]
        _hand_up(cost, row[node], row[above[node]], depth[node])
    retained = np.zeros(nodes, np.bool_)
    retained[:labels] = retained[-1] = True
    room, lowest = np.full(nodes, height - 1), np.zeros(nodes, np.int32)
    for node in range(nodes - 2, labels - 1, -1):
        room[node], lowest[node] = room[above[node]], lowest[above[node]]
        if lowest[node] <= limit[node, room[node]]:
            retained[node] = True
            room[node] -= 1
            lowest[node] = depth[node]
    return retained


@kernel
def _hand_up(cost: DoubleArray, row: int, upper: int, depth: int) -> None:
    """Add the costs of a node to those of its parent, unless they stand there already, and clear the rest."""
    for more in range(cost.shape[2]):
        cost[row, depth, more] = 0.0
        for ancestor_depth in range(depth if row != upper else 0):
            if upper >= 0:
                cost[upper, ancestor_depth, more] += cost[row, ancestor_depth, more]
            cost[row, ancestor_depth, more] = 0.0


@kernel
def _heavy_first(labels: int, above: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Order groups so that children come before parents, and a larger child with all below it before a smaller one.

    Returns the depth of every node, the groups in order without the root, and how many nodes on the way up have a
    larger sibling: while groups are visited in this order, one row of memory for each such number is enough.
    """
    nodes = len(above)
    size, heavy = np.zeros(nodes, np.int32), np.full(nodes, -1, np.int32)
    for node in range(labels, nodes - 1):
        up = above[node]
        size[node] += 1
        size[up] += size[node]
        if heavy[up] < 0 or size[node] > size[heavy[up]]:
            heavy[up] = node
    depth, row, start = np.zeros(nodes, np.int32), np.full(nodes, -1, np.int32), np.zeros(nodes, np.int32)
    order = np.empty(size[-1], np.int32)
    for node in range(nodes - 2, labels - 1, -1):
        up = above[node]
        depth[node] = depth[up] + 1
        if up == nodes - 1:
            row[node], start[node] = 0, start[up]
            start[up] += size[node]
        elif heavy[up] == node:
            row[node], start[node] = row[up], start[up]
        else:
            row[node], start[node] = row[up] + 1, start[up] + size[heavy[up]]
        order[start[node] + size[node] - 1] = node
    return depth, order, row


def _levels(labels: int, above: IntArray, retained: BoolArray, height: int) -> tuple[IntArray, ...]:
    """Lay kept groups out in levels, each right above its highest child, and fill the ways in between."""
    upper, level = _heights(labels, above, retained)
    level[-1] = height
    here, parents = np.arange(labels), []
    for number in range(1, height + 1):
        moved = np.where(level[upper[here]] <= number, upper[here], here)
        groups, where, of = np.unique(moved, return_index=True, return_inverse=True)
        order = np.argsort(where)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order))
        parents.append(rank[of])
        here = groups[order]
    return tuple(parents)


@kernel
def _heights(labels: int, above: IntArray, retained: BoolArray) -> tuple[IntArray, IntArray]:
    """Find the lowest kept ancestor of every node (the root's is itself), and the height of every kept node."""
    nodes = len(above)
    upper, level = above.copy(), np.zeros(nodes, np.int32)
    upper[-1] = nodes - 1
    for node in range(nodes - 2, -1, -1):
        if not retained[upper[node]]:
            upper[node] = upper[upper[node]]
    for node in range(nodes - 1):
        if retained[node]:
            level[upper[node]] = max(level[upper[node]], level[node] + 1)
    return upper, level


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
