"""Coding trees: few levels of groups of labels that describe the label graph in as few bits as possible.

The label graph has an edge for every parent and child of the hierarchy, without the virtual root. The structural
entropy of a tree over the labels (Li and Pan 2016) is -Σ (g/V) log2(v/v⁺) over its nodes but the root: v is the volume
of a node (the degrees of its labels, summed), v⁺ that of its parent, g the number of edges that leave it, and V the
volume of the root. Summed along the way up from both ends of an edge, the terms telescope:

    V · entropy = 2 Σ_edges log2 v(lowest common group of its ends) - Σ_labels degree · log2 degree.

So an edge costs the logarithm of the volume of the smallest group that holds it, and nothing else counts.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.numbering import freeze
from treelabel.neural.systems.hitin_merging import binary_tree

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
    edges : int32 array, edges × 2
        The label graph.
    """

    parents: tuple[IntArray, ...]
    edges: IntArray

    @property
    def height(self) -> int:
        """The number of levels above the labels."""
        return len(self.parents)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of every level, labels first."""
        return (*(len(above) for above in self.parents), 1)

    def members(self, level: int) -> IntArray:
        """Return the group of every label at a level."""
        groups = np.arange(len(self.parents[0]), dtype=np.int32)
        for above in self.parents[:level]:
            groups = above[groups]
        return groups

    @cached_property
    def entropy(self) -> float:
        """The structural entropy of the label graph under this tree, in bits."""
        return _entropy(self.parents, self.edges)


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
    >>> tree.members(1).tolist(), tree.sizes
    ([0, 1, 0, 0, 1, 1], (6, 2, 1))
    >>> tree.entropy, coding_tree(h, height=1).entropy
    (1.5, 2.5)
    """
    if height < 1:
        raise TreelabelError(f"a coding tree has a height of at least 1, not {height}")
    if len(hierarchy) == 0:
        raise TreelabelError("a coding tree needs a hierarchy with at least one label")
    edges = label_edges(hierarchy)
    volume, cut, above = binary_tree(len(hierarchy), edges)
    retained = least_rise(volume, cut, above, height)
    parents = _levels(len(hierarchy), above, retained, height)
    return CodingTree(tuple(freeze(level) for level in parents), freeze(edges))


def label_edges(hierarchy: Hierarchy) -> IntArray:
    """Return the edges between labels, parent and child, in order of the child.

    >>> label_edges(Hierarchy.from_edges([("A", "a"), ("A", "b")])).tolist()
    [[0, 1], [0, 2]]
    """
    child = np.repeat(np.arange(len(hierarchy)), np.diff(hierarchy.parent_ptr))
    edges = np.stack([hierarchy.parent_idx, child], axis=1)
    return edges[edges[:, 0] >= 0].astype(np.int32)


def _entropy(parents: tuple[IntArray, ...], edges: IntArray) -> float:
    volume = np.bincount(edges.ravel(), minlength=len(parents[0]))
    ends, bits = edges, 0.0
    for above in parents:
        leaving = ends[ends[:, 0] != ends[:, 1]].ravel()
        cut = np.bincount(leaving, minlength=len(above))
        upper = np.bincount(above, weights=volume)
        crossed = cut > 0
        bits -= float(cut[crossed] @ np.log2(volume[crossed] / upper[above[crossed]]))
        volume, ends = upper, above[ends]
    return bits / max(2 * len(edges), 1)


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
