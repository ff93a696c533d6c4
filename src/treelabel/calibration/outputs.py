"""What the outputs of a linear model stand for: nodes that training has seen, and ends of paths inside the tree."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from treelabel.core.compute import IntArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix
from treelabel.models.base import Training

# Levels at this depth and below share their numbers.
LEVELS = 8


@dataclass(frozen=True, eq=False)
class Outputs:
    """Which output speaks for which node.

    `nodes` are those that training has seen and `of_nodes` the output of each (-1: it has none). An end is a node at
    which the labels of a training document end; `of_ends` is the output of each. A leaf's is that of the node; an end
    inside has one of its own: "here, and no further". Nodes that all training documents have together share one.
    """

    hierarchy: Hierarchy
    nodes: IntArray
    of_nodes: IntArray
    ends: IntArray
    of_ends: IntArray

    @classmethod
    def of(cls, train: Training, ends_only: bool = False, shared: bool = True) -> "Outputs":
        """Find the nodes and the ends that training has seen; with `ends_only`, give only ends an output.

        Unless they are `shared`, every node has an output of its own.
        """
        h = train.hierarchy
        nodes = np.unique(train.closed.indices).astype(np.int32)
        ends = np.unique(h.most_specific(train.labels).indices).astype(np.int32)
        if train.regime == "many":
            ends = ends[h.is_leaf[ends]] if not ends_only else ends
        if ends_only:
            of_ends = np.arange(len(ends), dtype=np.int32)
            of_nodes = np.full(len(nodes), -1, np.int32)
            of_nodes[np.searchsorted(nodes, ends)] = of_ends
            return cls(h, nodes, of_nodes, ends, of_ends)
        of_nodes = _without_twins(h, nodes, train.frequencies) if shared else np.arange(len(nodes), dtype=np.int32)
        inside = ~h.is_leaf[ends]
        own = of_nodes[np.searchsorted(nodes, ends)]
        first = int(of_nodes.max(initial=-1)) + 1
        return cls(h, nodes, of_nodes, ends, np.where(inside, first + np.cumsum(inside) - 1, own).astype(np.int32))

    @property
    def count(self) -> int:
        """The number of outputs."""
        return 1 + int(max(self.of_nodes.max(initial=-1), self.of_ends.max(initial=-1)))

    def check(self, count: int) -> None:
        """Refuse numbers from a file that do not fit each other; each for itself is in its range.

        Nodes are looked up by binary search, and so are those above them.
        """
        h, known = self.hierarchy, np.zeros(len(self.hierarchy), np.bool_)
        known[self.nodes] = True
        if not len(self.nodes) or not known[self.ends].all():
            raise TreelabelError("ends holds a node that is not among nodes")
        lost = known[h.edge_child] & (h.parent_idx >= 0) & ~known[h.parent_idx]
        if lost.any():
            raise TreelabelError(f"nodes holds {h.edge_child[lost][0]}, but not its parent {h.parent_idx[lost][0]}")
        if self.count != count:
            raise TreelabelError(f"of_nodes and of_ends number {self.count:,} outputs, but bias has {count:,}")

    @property
    def inside(self) -> IntArray:
        """The ends with an output of their own beside that of the node, as places among the ends."""
        own = self.of_nodes[np.searchsorted(self.nodes, self.ends)]
        return np.flatnonzero(own != self.of_ends).astype(np.int32)

    def output(self, node: int) -> int:
        """The output of a node, -1 if it has none."""
        place = int(np.searchsorted(self.nodes, node))
        known = place < len(self.nodes) and self.nodes[place] == node
        return int(self.of_nodes[place]) if known else -1

    @cached_property
    def paths(self) -> LabelMatrix:
        """The nodes on the way to each end, itself included."""
        return self.hierarchy.closure(label_matrix(np.arange(len(self.ends) + 1), self.ends, len(self.hierarchy)))

    @cached_property
    def above(self) -> tuple[LongArray, IntArray, IntArray]:
        """The outputs above each end (of an end inside, that of its node is one): pointers, outputs, and levels."""
        paths = self.paths
        length = np.diff(paths.indptr)
        outputs = self.of_nodes[np.searchsorted(self.nodes, paths.indices)]
        at_end = paths.indices == np.repeat(self.ends, length)
        keep = (outputs >= 0) & ~(at_end & (outputs == np.repeat(self.of_ends, length)))
        ptr = np.concatenate([[0], np.cumsum(keep)])[paths.indptr]
        return ptr.astype(np.int64), outputs[keep], self.levels(paths.indices[keep])

    def levels(self, nodes: IntArray) -> IntArray:
        """The levels of nodes as far as numbers differ by level."""
        return np.minimum(self.hierarchy.depth[nodes], LEVELS).astype(np.int32)

    def targets(self, train: Training) -> sparse.csc_array:
        """Mark which documents are positive for each output."""
        h = self.hierarchy
        has = self.of_nodes >= 0
        _, first = np.unique(self.of_nodes[has], return_index=True)
        closed = sparse.csc_array(train.closed)[:, self.nodes[has][first]]
        inside = self.ends[self.inside]
        if not len(inside):
            return closed
        return sparse.csc_array(sparse.hstack([closed, sparse.csc_array(h.most_specific(train.labels))[:, inside]]))


def _without_twins(h: Hierarchy, nodes: IntArray, frequencies: LongArray) -> IntArray:
    """Number nodes, giving a node the number of a child that all its documents have (they are the same documents)."""
    twin = np.arange(len(h))
    parent, child = h.parent_idx, h.edge_child
    same = (parent >= 0) & (frequencies[child] > 0) & (frequencies[parent] == frequencies[child])
    twin[parent[same]] = child[same]
    while (further := twin[twin] != twin).any():
        twin[further] = twin[twin][further]
    return np.unique(twin[nodes], return_inverse=True)[1].astype(np.int32)
