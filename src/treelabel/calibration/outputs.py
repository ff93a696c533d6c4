"""The meaning of the outputs of a model: nodes seen in training, and stops at inner nodes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.types import IntArray, LongArray
from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix

# Levels at this depth and below share their parameters.
LEVELS = 8
# The margin of an output without a positive training document: a label that is not there.
ABSENT = np.float32(-1e4)


@dataclass(frozen=True, eq=False)
class Outputs:
    """Which output speaks for which node.

    A terminal node is one at which the labels of a training document end. A leaf's output is that of the node; a
    terminal inner node has a second one, its stop output: the path ends here. Nodes that have the same training
    documents share an output.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy.
    nodes : array of int32, increasing
        The nodes seen in training.
    node_outputs : array of int32
        The output of each of them, -1 if it has none.
    terminals : array of int32, increasing
        The terminal nodes.
    terminal_outputs : array of int32
        The output of each of them.
    """

    hierarchy: Hierarchy
    nodes: IntArray
    node_outputs: IntArray
    terminals: IntArray
    terminal_outputs: IntArray

    @classmethod
    def of(
        cls,
        hierarchy: Hierarchy,
        labels: LabelMatrix,
        *,
        multiple_paths: bool = False,
        terminals_only: bool = False,
        shared: bool = True,
    ) -> "Outputs":
        """Find the nodes and the terminal nodes of training documents.

        Parameters
        ----------
        hierarchy : Hierarchy
            The hierarchy.
        labels : csr_array of shape (documents, nodes)
            The labels of training documents.
        multiple_paths : bool
            Whether documents have several paths; then inner nodes have no stop outputs.
        terminals_only : bool
            Whether only terminal nodes have an output.
        shared : bool
            Whether nodes with the same documents share an output.

        Returns
        -------
        Outputs
            The outputs, numbered from 0.
        """
        closed = hierarchy.closure(labels)
        nodes = np.unique(closed.indices).astype(np.int32)
        terminals = np.unique(hierarchy.most_specific(labels).indices).astype(np.int32)
        if terminals_only:
            own = np.arange(len(terminals), dtype=np.int32)
            of_nodes = np.full(len(nodes), -1, np.int32)
            of_nodes[np.searchsorted(nodes, terminals)] = own
            return cls(hierarchy, nodes, of_nodes, terminals, own)
        if multiple_paths:
            terminals = terminals[hierarchy.is_leaf[terminals]]
        of_nodes = np.arange(len(nodes), dtype=np.int32)
        if shared:
            frequencies = np.bincount(closed.indices, minlength=len(hierarchy)).astype(np.int64)
            of_nodes = _without_twins(hierarchy, nodes, frequencies)
        stops = ~hierarchy.is_leaf[terminals]
        first = int(of_nodes.max(initial=-1)) + 1
        own = np.where(stops, first + np.cumsum(stops) - 1, of_nodes[np.searchsorted(nodes, terminals)])
        return cls(hierarchy, nodes, of_nodes, terminals, own.astype(np.int32))

    @property
    def count(self) -> int:
        """Number of outputs."""
        return 1 + int(max(self.node_outputs.max(initial=-1), self.terminal_outputs.max(initial=-1)))

    def check(self, count: int) -> None:
        """Refuse arrays from a file that do not fit each other; each for itself is in its range.

        Nodes are looked up by binary search, and so are those above them.
        """
        h, known = self.hierarchy, np.zeros(len(self.hierarchy), np.bool_)
        known[self.nodes] = True
        if not len(self.nodes) or not known[self.terminals].all():
            raise TreelabelError("terminals holds a node that is not among nodes")
        lost = known[h.edge_child] & (h.parent_idx >= 0) & ~known[h.parent_idx]
        if lost.any():
            raise TreelabelError(f"nodes holds {h.edge_child[lost][0]}, but not its parent {h.parent_idx[lost][0]}")
        if self.count != count:
            raise TreelabelError(
                f"node_outputs and terminal_outputs number {self.count:,} outputs, but bias has {count:,}"
            )

    @property
    def stops(self) -> IntArray:
        """The terminal nodes with a stop output beside that of the node, as places among the terminals."""
        own = self.node_outputs[np.searchsorted(self.nodes, self.terminals)]
        return np.flatnonzero(own != self.terminal_outputs).astype(np.int32)

    def output(self, node: int) -> int:
        """Return the output of a node, -1 if it has none."""
        place = int(np.searchsorted(self.nodes, node))
        known = place < len(self.nodes) and self.nodes[place] == node
        return int(self.node_outputs[place]) if known else -1

    @cached_property
    def paths(self) -> LabelMatrix:
        """The nodes on the path to each terminal node, itself included: terminals x nodes."""
        own = label_matrix(np.arange(len(self.terminals) + 1), self.terminals, len(self.hierarchy))
        return self.hierarchy.closure(own)

    @cached_property
    def above(self) -> tuple[LongArray, IntArray, IntArray]:
        """The outputs above each terminal node's own: pointers, outputs, and levels.

        Above a stop output, the output of its node is one of them.
        """
        paths = self.paths
        length = np.diff(paths.indptr)
        outputs = self.node_outputs[np.searchsorted(self.nodes, paths.indices)]
        at_end = paths.indices == np.repeat(self.terminals, length)
        keep = (outputs >= 0) & ~(at_end & (outputs == np.repeat(self.terminal_outputs, length)))
        ptr = np.concatenate([[0], np.cumsum(keep)])[paths.indptr]
        return ptr.astype(np.int64), outputs[keep], self.levels(paths.indices[keep])

    def levels(self, nodes: IntArray) -> IntArray:
        """Return the levels of nodes, as far as parameters differ by level."""
        return np.minimum(self.hierarchy.depth[nodes], LEVELS).astype(np.int32)

    def targets(self, labels: LabelMatrix) -> sparse.csc_array:
        """Mark the positive documents of each output.

        Parameters
        ----------
        labels : csr_array of shape (documents, nodes)
            The labels of documents.

        Returns
        -------
        csc_array of shape (documents, outputs)
            1 where a document is positive.
        """
        h = self.hierarchy
        has = self.node_outputs >= 0
        _, first = np.unique(self.node_outputs[has], return_index=True)
        closed = sparse.csc_array(h.closure(labels))[:, self.nodes[has][first]]
        stops = self.terminals[self.stops]
        if not len(stops):
            return closed
        return sparse.csc_array(sparse.hstack([closed, sparse.csc_array(h.most_specific(labels))[:, stops]]))


def _without_twins(h: Hierarchy, nodes: IntArray, frequencies: LongArray) -> IntArray:
    """Number nodes; a node has the number of a child that all its documents have, for they are the same documents."""
    twin = np.arange(len(h))
    parent, child = h.parent_idx, h.edge_child
    same = (parent >= 0) & (frequencies[child] > 0) & (frequencies[parent] == frequencies[child])
    twin[parent[same]] = child[same]
    while (further := twin[twin] != twin).any():
        twin[further] = twin[twin][further]
    return np.unique(twin[nodes], return_inverse=True)[1].astype(np.int32)
