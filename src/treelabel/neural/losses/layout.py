"""How outputs lie in a hierarchy, without torch: groups of siblings, and the leaves below nodes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, label_matrix


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths: row i is idx[ptr[i]:ptr[i + 1]]."""

    ptr: LongArray
    idx: LongArray

    @classmethod
    def of(cls, ptr: Any, idx: Any) -> "Ragged":
        """Take arrays of any integers."""
        return cls(np.asarray(ptr, np.int64), np.asarray(idx, np.int64))

    @property
    def sizes(self) -> LongArray:
        """The length of each row."""
        return np.diff(self.ptr)

    def take(self, rows: LongArray) -> tuple[LongArray, LongArray]:
        """Concatenate some rows; return for each entry the number of its row among these, and the entry.

        >>> [values.tolist() for values in Ragged.of([0, 2, 3], [7, 8, 9]).take(np.array([1, 0]))]
        [[0, 1, 1], [9, 7, 8]]
        """
        sizes = self.ptr[rows + 1] - self.ptr[rows]
        row = np.repeat(np.arange(len(rows)), sizes)
        return row, self.idx[np.arange(len(row)) + (self.ptr[rows] - np.cumsum(sizes) + sizes)[row]]


@dataclass(frozen=True, eq=False)
class NodeGroups:
    """Nodes with the same parents, in groups; group 0 holds the top labels. In a tree a group is a slice of nodes.

    `members` are the nodes of each group, `of_node` the group of each node, and `parents` nodes x groups.

    >>> groups = NodeGroups.of(Hierarchy.from_paths(["A > B", "A > C", "D"]))
    >>> groups.of_node.tolist(), groups.members.ptr.tolist()
    ([0, 0, 1, 1], [0, 2, 4])
    """

    members: Ragged
    of_node: LongArray
    parents: sparse.csr_array

    @classmethod
    def of(cls, h: Hierarchy) -> "NodeGroups":
        """Group the nodes of a tree or DAG."""
        if h.is_tree:
            group = np.cumsum(np.diff(h.parent, prepend=-2) != 0) - 1
        else:
            numbers: dict[tuple[int, ...], int] = {}
            parents = np.split(h.parent_idx, h.parent_ptr[1:-1])
            group = np.array([numbers.setdefault(tuple(each.tolist()), len(numbers)) for each in parents])
        count = int(group.max(initial=-1)) + 1
        nodes = np.argsort(group, kind="stable")
        ptr = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=count))])
        edges, parent = Ragged.of(h.parent_ptr, h.parent_idx).take(nodes[ptr[:-1]])
        real = parent >= 0
        entries = (np.ones(int(real.sum()), np.int32), (parent[real], edges[real]))
        return cls(Ragged.of(ptr, nodes), group, sparse.csr_array(entries, (len(h), count)))

    def with_true_member(self, closed: LabelMatrix) -> Ragged:
        """Return the groups along the path of each document in a tree: those of its labels."""
        return Ragged.of(closed.indptr, self.of_node[closed.indices])

    def with_true_parents(self, closed: LabelMatrix) -> Ragged:
        """Return the groups whose parents are all labels of a document, in ascending order; group 0 always is one."""
        needed = np.bincount(self.parents.indices, minlength=self.parents.shape[1])
        true = sparse.csr_array(closed.astype(np.int32) @ self.parents)
        true.data *= true.data == needed[true.indices]
        true.eliminate_zeros()
        true.sort_indices()
        return Ragged.of(true.indptr + np.arange(len(true.indptr)), np.insert(true.indices, true.indptr[:-1], 0))

    def log_shares(self, frequencies: DoubleArray) -> DoubleArray:
        """Return ln v(n | parent): the share of n in its siblings' documents, one more counted for each sibling.

        >>> groups = NodeGroups.of(Hierarchy.flat(["A", "B"]))
        >>> np.exp(groups.log_shares(np.array([8.0, 0.0]))).round(3).tolist()
        [0.9, 0.1]
        """
        counts = frequencies + 1
        return np.asarray(np.log(counts / np.bincount(self.of_node, counts)[self.of_node]))


def leaf_order(h: Hierarchy) -> LongArray:
    """Number the leaves of a tree from left to right, children in order of ids; inner nodes have their first leaf's.

    >>> leaf_order(Hierarchy.from_paths(["A > B", "C", "A > D"])).tolist()
    [0, 2, 0, 1]
    """
    leaves = h.is_leaf.astype(np.int64)
    for depth in range(h.max_depth, 1, -1):
        level = h.level(depth)
        np.add.at(leaves, h.parent[level], leaves[level])
    first = np.zeros(len(h), np.int64)
    for depth in range(1, h.max_depth + 1):
        level = h.level(depth)
        # Leaves before a node: those of all nodes of the level before it, less those before its first sibling.
        before = np.cumsum(leaves[level]) - leaves[level]
        parents = h.parent[level]
        eldest = np.searchsorted(parents, parents)
        first[level] = before - before[eldest] + np.where(parents >= 0, first[parents], 0)
    return first


def leaves_below(h: Hierarchy, leaves: IntArray) -> sparse.csr_array:
    """Mark the leaves below every node, in the order given; a leaf is below itself: nodes x leaves."""
    each = label_matrix(np.arange(len(leaves) + 1), leaves, len(h))
    return sparse.csr_array(h.closure(each).T.astype(np.float64))


def even_shares(h: Hierarchy) -> tuple[LongArray, DoubleArray]:
    """Return the top label above every node of a tree, and the node's share of it if children share evenly.

    >>> top, share = even_shares(Hierarchy.from_paths(["A > B", "A > C", "D"]))
    >>> top.tolist(), share.tolist()
    ([0, 1, 0, 0], [1.0, 1.0, 0.5, 0.5])
    """
    top, share = np.arange(len(h)), np.ones(len(h))
    children = np.bincount(h.parent + 1, minlength=len(h) + 1)[1:]
    for depth in range(2, h.max_depth + 1):
        level = h.level(depth)
        parents = h.parent[level]
        top[level], share[level] = top[parents], share[parents] / children[parents]
    return top, share
