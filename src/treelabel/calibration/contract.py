"""The contract of calibrations: evidence in, coherent probabilities out, fitted on held-out documents.

Margins are those of the outputs of a model: nodes seen in training, and stops at inner nodes (`OutputSpace`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Array, Arrays
from treelabel.core.compute import over_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.sparse_product import SparseWeights
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, label_matrix
from treelabel.scores.score_matrix import Scores

# Scores that a thread computes at once: with fewer it would wait for Python, with more for memory.
THREAD_SCORES = 1 << 19
# The largest single-precision probability that a threshold of 0.5 does not take.
BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))
# Fitted parameters stay far below.
LARGEST_PARAMETER = 1e6
# Levels at this depth and below share their parameters.
LEVELS = 8
# The margin of an output without a positive training document: a label that is not there.
ABSENT = np.float32(-1e4)
# Cosines that differ by less than this say nothing.
LEAST_SPREAD = 0.01


@dataclass(frozen=True, eq=False)
class OutputSpace:
    """Which output speaks for which node.

    A terminal node is one at which the labels of a training document end. A leaf's output is that of the node; a
    terminal inner node has a second one, its stop output: the path ends here. Nodes that have the same training
    documents share an output.

    Parameters
    ----------
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
    ) -> "OutputSpace":
        """Find the nodes and the terminal nodes of training documents.

        Parameters
        ----------
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
        OutputSpace
            The outputs, numbered from 0.
        """
        closed = hierarchy.closure(labels)
        nodes = np.unique(closed.indices).astype(np.int32)
        terminals = np.unique(hierarchy.most_specific(labels).indices).astype(np.int32)
        if terminals_only:
            numbers = np.arange(len(terminals), dtype=np.int32)
            node_outputs = np.full(len(nodes), -1, np.int32)
            node_outputs[np.searchsorted(nodes, terminals)] = numbers
            return cls(hierarchy, nodes, node_outputs, terminals, numbers)
        if multiple_paths:
            terminals = terminals[hierarchy.is_leaf[terminals]]
        node_outputs = np.arange(len(nodes), dtype=np.int32)
        if shared:
            # A node has the output of a child that all its documents have, for they are the same documents.
            frequencies = np.bincount(closed.indices, minlength=len(hierarchy))
            twin, parent, child = np.arange(len(hierarchy)), hierarchy.parent_idx, hierarchy.edge_child
            same = (parent >= 0) & (frequencies[child] > 0) & (frequencies[parent] == frequencies[child])
            twin[parent[same]] = child[same]
            while (further := twin[twin] != twin).any():
                twin[further] = twin[twin][further]
            node_outputs = np.unique(twin[nodes], return_inverse=True)[1].astype(np.int32)
        stops = ~hierarchy.is_leaf[terminals]
        first = int(node_outputs.max(initial=-1)) + 1
        numbers = np.where(stops, first + np.cumsum(stops) - 1, node_outputs[np.searchsorted(nodes, terminals)])
        return cls(hierarchy, nodes, node_outputs, terminals, numbers.astype(np.int32))

    @classmethod
    def of_all_nodes(cls, hierarchy: Hierarchy, stops: IntArray) -> "OutputSpace":
        """Make an output for every node, and after them each of `stops`, the inner nodes at which paths may end.

        Leaves and stops are terminal, also those that no document has.
        """
        nodes = np.arange(len(hierarchy), dtype=np.int32)
        terminals = np.union1d(hierarchy.leaves, stops).astype(np.int32)
        numbers = terminals.copy()
        numbers[np.searchsorted(terminals, stops)] = len(hierarchy) + np.arange(len(stops), dtype=np.int32)
        return cls(hierarchy, nodes, nodes, terminals, numbers)

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
        """The terminal nodes with a stop output besides that of the node, as positions among the terminals."""
        of_nodes = self.node_outputs[np.searchsorted(self.nodes, self.terminals)]
        return np.flatnonzero(of_nodes != self.terminal_outputs).astype(np.int32)

    def output(self, node: int) -> int:
        """Return the output of a node, -1 if it has none."""
        position = int(np.searchsorted(self.nodes, node))
        known = position < len(self.nodes) and self.nodes[position] == node
        return int(self.node_outputs[position]) if known else -1

    @cached_property
    def paths(self) -> LabelMatrix:
        """The nodes on the path to each terminal node, itself included: terminals x nodes."""
        return terminal_paths(self.hierarchy, self.terminals)

    @cached_property
    def above(self) -> tuple[LongArray, IntArray, IntArray]:
        """The outputs above that of each terminal node: pointers, outputs, and levels.

        Above a stop output, the output of its node is one of them.
        """
        paths = self.paths
        length = np.diff(paths.indptr)
        outputs = self.node_outputs[np.searchsorted(self.nodes, paths.indices)]
        at_end = paths.indices == np.repeat(self.terminals, length)
        keep = (outputs >= 0) & ~(at_end & (outputs == np.repeat(self.terminal_outputs, length)))
        ptr = np.concatenate([[0], np.cumsum(keep)])[paths.indptr]
        return ptr.astype(np.int64), outputs[keep], levels_of(self.hierarchy, paths.indices[keep])

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


def levels_of(hierarchy: Hierarchy, nodes: IntArray | LongArray) -> IntArray:
    """Return the depths of nodes, LEVELS at most: what parameters by level are indexed by."""
    return np.minimum(hierarchy.depth[nodes], LEVELS).astype(np.int32)


def terminal_paths(hierarchy: Hierarchy, terminals: IntArray) -> LabelMatrix:
    """Mark the nodes on the path to each terminal node, itself included: terminals x nodes."""
    return hierarchy.closure(label_matrix(np.arange(len(terminals) + 1), terminals, len(hierarchy)))


def sum_to_nodes(p: Any, paths: sparse.csr_array) -> Any:
    """Sum probabilities of terminal nodes up to all nodes, at most 1.

    Parameters
    ----------
    paths : csr_array of shape (terminals, nodes)
        What `terminal_paths` returns, as float64.

    Returns
    -------
    array or csr_array of shape (documents, nodes)
        float32, CSR if `p` is.
    """
    if not sparse.issparse(p):
        # The product with a sparse matrix on the right is slow; transposed it streams.
        return np.minimum((paths.T @ p.T).T, 1).astype(np.float32)
    nodes = sparse.csr_array(p @ paths, dtype=np.float32)
    nodes.data = np.minimum(nodes.data, 1)
    return nodes


def softmax_of_spread(values: DoubleArray, temperature: float) -> DoubleArray:
    """Compute the softmax of each row of cosines, divided by `temperature` x their standard deviation.

    For models without held-out documents: how far apart cosines are depends on the features alone.

    >>> softmax_of_spread(np.array([[0.3, 0.1], [0.2, 0.2]]), 1.0).round(3).tolist()
    [[0.881, 0.119], [0.5, 0.5]]
    """
    spread = np.maximum(values.std(axis=1, keepdims=True), LEAST_SPREAD)
    odds = np.exp(1 / (temperature * spread) * (values - values.max(axis=1, keepdims=True)))
    p: DoubleArray = odds / odds.sum(axis=1, keepdims=True)
    return p


def sigmoid_of_sign(margins: DoubleArray) -> DoubleArray:
    """Compute 1 / (1 + exp(-margin)); rounding raises none to 0.5 whose margin is not above 0.

    For models without held-out documents: a threshold of 0.5 decides by the sign of the margin.

    >>> sigmoid_of_sign(np.array([0.0, 2.0])).round(3).tolist(), bool(sigmoid_of_sign(np.array([0.0]))[0] < 0.5)
    ([0.5, 0.881], True)
    """
    from scipy.special import expit

    p: DoubleArray = expit(margins)
    return np.where(margins > 0, p, np.minimum(p, BELOW_HALF))


@dataclass(frozen=True, eq=False)
class Calibration(ABC):
    """A map from evidence to coherent probabilities of nodes: a dataclass whose arrays are its parameters.

    An instance is made for what the evidence stands for, with parameters that fit no data in particular; `fit` and
    `restore` return another one. Whoever uses a calibration need not know which one it is.
    """

    # The fields that are fitted and saved, and what their arrays may hold.
    parameters: ClassVar[Mapping[str, Array]]

    @abstractmethod
    def fit(self, evidence: Any, labels: LabelMatrix) -> Self:
        """Fit the parameters to held-out documents.

        Parameters
        ----------
        evidence
            As in `probabilities`.
        labels : csr_array of shape (documents, nodes)
            The true labels, closed or not.

        Returns
        -------
        Calibration
            One of the same class; the same one where documents say nothing.
        """

    @abstractmethod
    def probabilities(self, evidence: Any) -> Any:
        """Turn evidence into probabilities of nodes.

        Parameters
        ----------
        evidence
            Documents x columns: margins (dense), candidates (CSR), or a sequence of the scores of several models.

        Returns
        -------
        array or csr_array of shape (documents, nodes)
            float32; a child never has more than its parent.
        """

    def arrays(self) -> Arrays:
        """Return the parameters, to save."""
        return {name: getattr(self, name) for name in self.parameters}

    def restore(self, arrays: Arrays) -> Self:
        """Return the same with parameters that `arrays` returned and `check` has passed."""
        return replace(self, **{name: arrays[name] for name in self.parameters})

    def check(self, arrays: Arrays) -> None:  # noqa: B027
        """Refuse arrays, each of which fits `parameters`, that do not fit each other or the evidence."""


@dataclass(frozen=True, eq=False)
class MarginCalibration(Calibration):
    """A calibration of the margins of a linear model, of cosines or of logits: documents x outputs.

    `outputs` tells what each column stands for; a margin of ABSENT marks an output that has learned nothing.
    """

    outputs: OutputSpace

    @abstractmethod
    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        """Return the probabilities of all nodes: documents x nodes."""

    def match_sums(self, evidence: FloatArray, labels: LabelMatrix) -> Self:
        """Return the calibration whose probabilities sum to the number of true labels of documents, level by level.

        Where documents have one path, they always do.

        Parameters
        ----------
        evidence : array of shape (documents, outputs)
            Margins by the model that is to be calibrated, or by one like it, which has not learned the documents.
        labels : csr_array of shape (documents, nodes)
            Their true labels.

        Returns
        -------
        MarginCalibration
        """
        return self

    def probabilities(self, evidence: FloatArray, top: int | None = None) -> Any:
        """Turn margins into probabilities; with `top`, keep the largest of each document, as CSR."""
        if top is None:
            return self._node_probabilities(evidence)
        return in_blocks(
            lambda start, stop: self._node_probabilities(evidence[start:stop]),
            len(evidence),
            self.outputs.hierarchy,
            top,
        )

    def probabilities_of(self, features: sparse.csr_array, weights: SparseWeights, top: int | None = None) -> Any:
        """Turn the features of documents into probabilities, some documents at a time.

        Parameters
        ----------
        weights : SparseWeights
            Turn features into margins.
        top : int or None
            How many of the largest probabilities of each document to keep, as CSR; None keeps all.

        Returns
        -------
        array or csr_array of shape (documents, nodes)
        """
        return in_blocks(
            lambda start, stop: self._node_probabilities(weights.times(features, start, stop)),
            features.shape[0],
            self.outputs.hierarchy,
            top,
        )


def in_blocks(
    score: Callable[[int, int], Any],
    documents: int,
    hierarchy: Hierarchy,
    top: int | None,
    least: int = 64,
    most: int | None = None,
) -> Any:
    """Score blocks of documents in threads, keeping the largest scores of each block before the next one is made.

    Parameters
    ----------
    score : callable
        Returns the probabilities of the documents from its first argument up to its second: documents x nodes.
    documents : int
        The number of documents.
    top : int or None
        Scores of a document to keep; None keeps all.
    least : int
        Documents that are worth a thread.
    most : int or None
        Documents of a block at most; by default, as many as keep a thread busy.

    Returns
    -------
    array or csr_array of shape (documents, nodes)
        CSR if `top` is set or the blocks are.
    """

    def block(start: int, stop: int) -> Any:
        p = score(start, stop)
        return p if top is None else Scores(hierarchy, p).top_k(top).values

    if most is None:
        most = max(16, THREAD_SCORES // max(1, len(hierarchy)))
    parts = over_rows(block, documents, least=least, most=most)
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
