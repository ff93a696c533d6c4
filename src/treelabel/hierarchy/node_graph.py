"""Nodes of a tree or DAG by their numbers: parents, levels, leaves, how two nodes are related, and sets of nodes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import join_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, IntArray, LongArray
from treelabel.hierarchy import ancestry, label_matrices
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels, label_matrix, map_rows, take_rows
from treelabel.hierarchy.numbering import freeze, group_by


@dataclass(frozen=True, eq=False, repr=False)
class NodeGraph:
    """Nodes 0 .. n-1 in the order that `Hierarchy` describes, without their names.

    The parents of node i are parent_idx[parent_ptr[i]:parent_ptr[i + 1]], sorted; -1 is the root.
    """

    parent_ptr: IntArray
    parent_idx: IntArray
    depth: IntArray

    def __len__(self) -> int:
        return len(self.depth)

    def _describe(self, node: int) -> str:
        """Call a node by its number; a subclass that knows names, by its name."""
        return f"node {node}"

    @cached_property
    def is_tree(self) -> bool:
        """Whether every node has exactly one parent, the root counted."""
        return len(self.parent_idx) == len(self)

    @property
    def parent(self) -> IntArray:
        """The parent of every node, -1 for top labels; only a tree has it."""
        if not self.is_tree:
            node = int(np.argmax(np.diff(self.parent_ptr) > 1))
            raise TreelabelError(
                f"this needs a tree, but the hierarchy is a DAG: {self._describe(node)} has "
                f"{self.parent_ptr[node + 1] - self.parent_ptr[node]} parents; make it a tree with unfold()"
            )
        return self.parent_idx

    @property
    def parent_graph(self) -> tuple[IntArray, IntArray]:
        """The parents of every node: those of n are idx[ptr[n]:ptr[n + 1]], -1 being the root."""
        return self.parent_ptr, self.parent_idx

    # Levels, leaves, sizes

    @property
    def max_depth(self) -> int:
        """The depth of the deepest level (0 without nodes)."""
        return int(self.depth[-1]) if len(self) else 0

    @cached_property
    def level_ptr(self) -> LongArray:
        """Where levels begin: the nodes of depth d are the ids level_ptr[d - 1] .. level_ptr[d] - 1."""
        return freeze(np.searchsorted(self.depth, np.arange(1, self.max_depth + 2)).astype(np.int64))

    def level(self, depth: int) -> slice:
        """Return the nodes at a depth as a slice of ids.

        >>> from treelabel.hierarchy import Hierarchy
        >>> Hierarchy.from_paths(["A > B", "A > C"]).level(2)
        slice(1, 3, None)
        """
        if not 1 <= depth <= self.max_depth:
            raise TreelabelError(f"depth {depth} is not in the hierarchy, whose levels are 1 to {self.max_depth}")
        return slice(int(self.level_ptr[depth - 1]), int(self.level_ptr[depth]))

    @property
    def level_sizes(self) -> list[int]:
        """Count the nodes of each level, from depth 1 on."""
        return np.diff(self.level_ptr).tolist() if len(self) else []

    @cached_property
    def child_graph(self) -> tuple[IntArray, IntArray]:
        """The children of every node: those of n are idx[ptr[n + 1]:ptr[n + 2]], and idx[:ptr[1]] the top labels.

        In a tree idx is 0, 1, 2, ... and ptr alone has the children as slices of ids.
        """
        ptr, edges = group_by(self.parent_idx + np.int32(1), len(self) + 1)
        return freeze(ptr), freeze(self.edge_child[edges])

    @cached_property
    def edge_child(self) -> IntArray:
        """The child of every edge; its parent is the entry of `parent_idx` at the same place."""
        return freeze(np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.parent_ptr)))

    @cached_property
    def is_leaf(self) -> BoolArray:
        """Mark nodes without children."""
        return freeze(np.equal(np.diff(self.child_graph[0])[1:], 0))

    @cached_property
    def leaves(self) -> IntArray:
        """Ids of the nodes without children."""
        return freeze(np.flatnonzero(self.is_leaf).astype(np.int32))

    @cached_property
    def subtree_sizes(self) -> IntArray:
        """Count each node with its distinct descendants; linear in a tree, in a DAG as long as the answer."""
        if self.is_tree:
            return freeze(ancestry.subtree_sizes(self.parent))
        down = self.descendants(np.arange(len(self)))
        return freeze((np.diff(down.indptr) + 1).astype(np.int32))

    @cached_property
    def leaf_counts(self) -> IntArray:
        """Count the distinct leaves at or below each node; linear in a tree, in a DAG as long as the answer.

        >>> from treelabel.hierarchy import Hierarchy
        >>> Hierarchy.from_paths(["A > B", "A > C", "D"]).leaf_counts.tolist()
        [2, 1, 1, 1]
        """
        counts = self.is_leaf.astype(np.int32)
        if self.is_tree:
            for depth in range(self.max_depth, 1, -1):
                level = self.level(depth)
                np.add.at(counts, self.parent[level], counts[level])
            return freeze(counts)
        down = self.descendants(np.arange(len(self)))
        row = np.repeat(np.arange(len(self)), np.diff(down.indptr))
        below = np.bincount(row, weights=self.is_leaf[down.indices], minlength=len(self))
        return freeze(counts + below.astype(np.int32))

    @cached_property
    def shortest_depth(self) -> IntArray:
        """Edges of the shortest way from the root; in a tree the same as `depth`."""
        return self.depth if self.is_tree else freeze(ancestry.shortest_depths(*self.parent_graph))

    # Relations of single nodes

    def _ids(self, ids: npt.ArrayLike, lowest: int = 0) -> IntArray:
        nodes = np.atleast_1d(np.asarray(ids))
        if nodes.ndim != 1 or (len(nodes) and nodes.dtype.kind not in "iu"):
            raise TreelabelError(f"expected node ids, found an array of {nodes.dtype} {nodes.shape}")
        if len(nodes) and not (lowest <= nodes.min() and nodes.max() < len(self)):
            wrong = nodes[(nodes < lowest) | (nodes >= len(self))][0]
            raise TreelabelError(f"node id {wrong} is out of range: the hierarchy has ids {lowest} to {len(self) - 1}")
        return nodes.astype(np.int32, copy=False)

    def parents_of(self, node: int) -> list[int]:
        """List the parents of one node, sorted; -1 is the root.

        >>> from treelabel.hierarchy import Hierarchy
        >>> Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "C")]).parents_of(2)
        [0, 1]
        """
        parents: list[int] = self.parent_idx[self.parent_ptr[node] : self.parent_ptr[node + 1]].tolist()
        return parents

    def parents(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the parents of each node; top labels have an empty row."""
        nodes = self._ids(ids)
        ptr, flat = take_rows(*self.parent_graph, nodes)
        real = flat >= 0
        counts = np.concatenate([[0], np.cumsum(real)])
        return label_matrix(counts[ptr], flat[real], len(self))

    def children(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the children of each node (-1: the top labels)."""
        ptr, idx = self.child_graph
        return label_matrix(*take_rows(ptr, idx, self._ids(ids, lowest=-1) + np.int32(1)), len(self))

    def siblings(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the other children of each node's parents.

        >>> from treelabel.hierarchy import Hierarchy
        >>> h = Hierarchy.from_paths(["A > C", "A > D", "B > E"])
        >>> h.siblings([2, 4]).toarray().astype(int).tolist()
        [[0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]
        """
        nodes = self._ids(ids)
        ptr, above = take_rows(*self.parent_graph, nodes)
        child_ptr, child_idx = self.child_graph
        flat_ptr, flat = take_rows(child_ptr, child_idx, above + np.int32(1))
        row = np.repeat(np.arange(len(nodes)), np.diff(flat_ptr[ptr]))
        other = flat != nodes[row]
        others = sparse.coo_array((np.ones(other.sum(), np.bool_), (row[other], flat[other])), (len(nodes), len(self)))
        return as_labels(others.tocsr(), len(self))

    def ancestors(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the ancestors of each node, without itself and the root; as long as the answer."""
        return self.closure(self.parents(ids))

    def descendants(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the descendants of each node, without itself (-1: all nodes); as long as the answer."""
        ptr, idx = self.child_graph
        return map_rows(label_matrices.reach, (ptr[1:], idx), self.children(ids))

    def is_ancestor(self, upper: npt.ArrayLike, lower: npt.ArrayLike) -> BoolArray:
        """Mark the pairs in which `upper` is a proper ancestor of `lower`; in a tree, constant time per pair.

        Parameters
        ----------
        upper, lower : node ids
            Numbers or arrays of the same shape.

        Returns
        -------
        array of bool

        >>> from treelabel.hierarchy import Hierarchy
        >>> h = Hierarchy.from_paths(["A > B > C", "D"])
        >>> h.is_ancestor([0, 1, 2], [3, 2, 2]).tolist()
        [True, False, False]
        """
        above, below = self._pairs(upper, lower)
        if self.is_tree:
            rank, sizes = self._preorder, self.subtree_sizes
            # One unsigned comparison does for both ends of rank[above] < rank[below] < rank[above] + size.
            inside: BoolArray = (rank[below] - rank[above] - 1).view(np.uint32) < (sizes[above] - 1).view(np.uint32)
            return inside
        pairs = *self.parent_graph, above, below
        reached = join_rows(lambda start, stop: ancestry.dag_is_ancestor(*pairs, start, stop), len(above))
        proper: BoolArray = reached & (above != below)
        return proper

    def lowest_common_ancestor(self, left: npt.ArrayLike, right: npt.ArrayLike) -> IntArray:
        """Find the deepest node above or equal to both nodes of each pair; -1 is the root.

        In a tree a pair costs the logarithm of the nodes, whatever the depth; in a DAG the ancestors of the pair (of
        equally deep ones, the largest id).

        Parameters
        ----------
        left, right : node ids
            Numbers or arrays of the same shape.

        Returns
        -------
        array of node ids

        >>> from treelabel.hierarchy import Hierarchy
        >>> h = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
        >>> h.lowest_common_ancestor([4, 4, 4], [3, 2, 1]).tolist()
        [0, 2, -1]
        """
        one, two = self._pairs(left, right)
        if not self.is_tree:
            return self._dag_meet(one, two)[0]
        pairs = self._heads, self.parent, one, two
        met: IntArray = join_rows(lambda start, stop: ancestry.tree_meet(*pairs, start, stop), len(one))
        return met

    def distance(self, left: npt.ArrayLike, right: npt.ArrayLike) -> IntArray:
        """Count the edges of the shortest way up and down again between the nodes of each pair.

        Parameters
        ----------
        left, right : node ids
            Numbers or arrays of the same shape; -1 is the root.

        Returns
        -------
        array of int

        >>> from treelabel.hierarchy import Hierarchy
        >>> h = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
        >>> h.distance([4, 4, 4], [3, 2, 1]).tolist()
        [3, 1, 4]
        """
        one, two = self._pairs(left, right)
        if not self.is_tree:
            return self._dag_meet(one, two)[1]
        met = self.lowest_common_ancestor(one, two)
        return self.depth[one] + self.depth[two] - 2 * np.where(met >= 0, self.depth[met], 0).astype(np.int32)

    def _dag_meet(self, one: IntArray, two: IntArray) -> tuple[IntArray, IntArray]:
        pairs = *self.parent_graph, one, two
        met, length = join_rows(lambda start, stop: ancestry.dag_meet(*pairs, start, stop), len(one))
        return met, length

    def _pairs(self, left: npt.ArrayLike, right: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        one, two = self._ids(left), self._ids(right)
        if len(one) != len(two) and 1 not in (len(one), len(two)):
            raise TreelabelError(
                f"expected pairs of node ids, found {len(one):,} on the left and {len(two):,} on the right"
            )
        if len(one) != len(two):
            # Copies, as numpy warns of arrays that were broadcast.
            one, two = (each.copy() for each in np.broadcast_arrays(one, two))
        return one, two

    @cached_property
    def _heads(self) -> IntArray:
        return ancestry.heavy_path_heads(self.parent, self.subtree_sizes)

    @cached_property
    def _preorder(self) -> IntArray:
        return ancestry.preorder(self.parent, self.subtree_sizes)

    # Label sets

    def closure(self, labels: Any) -> LabelMatrix:
        """Add to each row all ancestors of its labels: cl(S) = union of A(s).

        Takes and returns a label matrix, documents x nodes. Costs the size of the result; rows run on all cores.

        >>> from treelabel.hierarchy import Hierarchy
        >>> h = Hierarchy.from_paths(["A > B", "C"])
        >>> h.closure([[0, 0, 1], [0, 1, 0]]).toarray().astype(int).tolist()
        [[1, 0, 1], [0, 1, 0]]
        """
        rows = as_labels(labels, len(self))
        if self.is_tree:
            return map_rows(label_matrices.close_in_tree, (self.parent, self.max_depth), rows)
        return map_rows(label_matrices.reach, self.parent_graph, rows)

    def most_specific(self, labels: Any) -> LabelMatrix:
        """Drop from each row the labels that are ancestors of another label of the row."""
        return map_rows(label_matrices.keep_most_specific, self.parent_graph, as_labels(labels, len(self)))

    def count_leaves(self, labels: Any) -> LongArray:
        """Count the distinct leaves at or below the labels of each row, none of which is an ancestor of another.

        In a tree linear in the labels, in a DAG as long as what is below them.

        >>> from treelabel.hierarchy import Hierarchy
        >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
        >>> h.count_leaves([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).tolist()
        [2, 2, 0]
        """
        rows = as_labels(labels, len(self))
        if not self.is_tree:
            ptr, idx = self.child_graph
            rows = map_rows(label_matrices.reach, (ptr[1:], idx), rows)
        counts = self.leaf_counts if self.is_tree else self.is_leaf
        row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        return np.bincount(row, weights=counts[rows.indices], minlength=rows.shape[0]).astype(np.int64)
