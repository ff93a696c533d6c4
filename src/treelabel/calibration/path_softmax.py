"""Documents with one path: a softmax over terminal nodes, summed up to all nodes."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from treelabel.calibration import path_kernels as kernels
from treelabel.calibration.contract import (
    ABSENT,
    LARGEST_PARAMETER,
    LEVELS,
    MarginCalibration,
    OutputSpace,
    in_blocks,
    levels_of,
)
from treelabel.calibration.likelihood import fit_beta, fit_mixture_weight, fit_softmax, fit_softmax_mixture
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.bounded_memory import MANY_NODES, TOP_SCORES
from treelabel.core.compute import over_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.sparse_product import Dot, SparseDocuments, SparseWeights, documents_of, known_margins
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_numbers

# Probabilities of terminal nodes that are computed at once where there are very many.
BLOCK_TERMINALS = 1 << 20
# Terminal nodes of a document that are looked at in calibration: the likeliest, and some of the others.
LIKELIEST = 16
OTHERS = 16


def neutral_level_weights() -> DoubleArray:
    """Return the weights of terminals alone, for margins of about 1.

    >>> neutral_level_weights()[:3].tolist()
    [5.0, 0.0, 0.0]
    """
    return np.array([5.0] + [0.0] * LEVELS)


def neutral_mixture() -> DoubleArray:
    """Return the mixture that is one softmax of temperature 1."""
    return np.array([1.0, 1.0, 0.0])


@dataclass(frozen=True, eq=False)
class PathSoftmax(MarginCalibration):
    """P(terminal) = softmax of v_0 x its margin + the sum over its ancestors of v_level x theirs.

    The softmax is a mixture of a sharp and a flat one, in which the likeliest terminal is calibrated by itself: by
    likelihood alone, all others count as much. A node has the sum of the terminal nodes at and below it, and in a tree,
    siblings are mixed with the uniform distribution. Of more than 20,000 nodes only those on the way to the
    100 likeliest terminal nodes are kept, as CSR, and nothing is mixed with the uniform distribution.

    Parameters
    ----------
    level_weights : array of shape (LEVELS + 1,)
        v_0 of the terminal's margin, and the weights of its ancestors by level.
    mixture : array of shape (3,)
        The inverse temperatures of the sharp and of the flat softmax, and the weight of the flat one.
    uniform_weights : array of shape (LEVELS + 1,)
        The weight of the uniform distribution over siblings, by level.
    beta : array of shape (3,)
        The beta calibration of the likeliest terminal; see `fit_beta`. By default it changes nothing.
    """

    parameters: ClassVar = {
        "level_weights": Array("float64", (str(LEVELS + 1),), -LARGEST_PARAMETER, LARGEST_PARAMETER),
        "mixture": Array("float64", ("3",), 0, LARGEST_PARAMETER),
        "uniform_weights": Array("float64", (str(LEVELS + 1),), 0, 1),
        "beta": Array("float64", ("3",), -LARGEST_PARAMETER, LARGEST_PARAMETER),
    }
    level_weights: DoubleArray = field(default_factory=neutral_level_weights)
    mixture: DoubleArray = field(default_factory=neutral_mixture)
    uniform_weights: DoubleArray = field(default_factory=lambda: np.zeros(LEVELS + 1))
    beta: DoubleArray = field(default_factory=lambda: np.array([1.0, 1.0, 0.0]))

    def fit(self, evidence: FloatArray, labels: LabelMatrix) -> "PathSoftmax":
        """Fit all weights; see `Calibration.fit`."""
        h, plain = self.outputs.hierarchy, self
        rows, true = possible_terminals(self.outputs, evidence, labels)
        if len(rows):
            weights, mixture = fit_terminals(self.outputs, evidence[rows], true)
            plain = replace(plain, level_weights=weights, mixture=mixture)
        if h.is_tree and len(h) <= MANY_NODES:
            uniform_weights = fit_uniform_weights(h, plain.probabilities(evidence), h.closure(labels))
            plain = replace(plain, uniform_weights=uniform_weights)
        return replace(plain, beta=plain._fit_beta(evidence, labels))

    def check(self, arrays: Arrays) -> None:
        """Refuse a mixture weight above 1, and outputs without a terminal node."""
        if arrays["mixture"][2] > 1:
            raise TreelabelError(f"mixture ends in {arrays['mixture'][2]:g}, expected a weight from 0 to 1")
        if not len(self.outputs.terminals):
            raise TreelabelError("terminals is empty, but every path ends somewhere")

    def _fit_beta(self, margins: FloatArray, labels: LabelMatrix) -> DoubleArray:
        """Fit the beta calibration of the likeliest terminal to the documents that have a label."""
        h, terminals, (documents, dot) = self.outputs.hierarchy, self.outputs.terminals, known_margins(margins)
        ends = h.most_specific(labels)
        rows = np.flatnonzero(np.diff(ends.indptr))
        if not len(rows):
            return self.beta
        how, width = self._sums, len(h)
        if len(h) > MANY_NODES:
            how, width = how._replace(terminals=np.zeros(0, np.int32)), len(terminals)
        blocks = over_rows(
            lambda start, stop: kernels.likeliest_paths(documents, dot, self._softmax, how, start, stop, width),
            len(margins),
            least=64,
        )
        best, p = (np.concatenate(part)[rows] for part in zip(*blocks, strict=True))
        right = terminals[best] == ends.indices[ends.indptr[rows]]
        return np.array(fit_beta(np.clip(p.astype(np.float64), kernels.LEAST_LEFT, 1 - kernels.LEAST_LEFT), right))

    def _node_probabilities(self, margins: FloatArray) -> Any:
        return self._score(*known_margins(margins), len(margins), None)

    def probabilities(self, evidence: FloatArray, top: int | None = None) -> Any:
        """Turn margins into probabilities; see `MarginCalibration.probabilities`."""
        return self._score(*known_margins(evidence), len(evidence), top)

    def probabilities_of(self, features: sparse.csr_array, weights: SparseWeights, top: int | None = None) -> Any:
        """Turn features into probabilities in one compiled loop; see `MarginCalibration.probabilities_of`."""
        return self._score(documents_of(features), weights.dot, features.shape[0], top)

    def _score(self, documents: SparseDocuments, dot: Dot, count: int, top: int | None) -> Any:
        h = self.outputs.hierarchy
        if len(h) > MANY_NODES:
            return self._likeliest(documents, dot, count, top)
        if top is not None:
            return in_blocks(lambda start, stop: self._block(documents.since(start), dot, stop - start), count, h, top)
        p = np.empty((count, len(h)), np.float32)
        over_rows(
            lambda start, stop: kernels.score_paths(documents, dot, self._softmax, self._sums, start, stop, p),
            count,
            least=64,
        )
        return p

    def block(self, margins: FloatArray) -> FloatArray:
        """Turn the margins of some documents into the probabilities of all nodes, in the thread of the caller."""
        return self._block(*known_margins(margins), len(margins))

    def _block(self, documents: SparseDocuments, dot: Dot, count: int) -> FloatArray:
        """Score the first documents."""
        p = np.empty((count, len(self.outputs.hierarchy)), np.float32)
        kernels.score_paths(documents, dot, self._softmax, self._sums, 0, count, p)
        return p

    def _likeliest(self, documents: SparseDocuments, dot: Dot, count: int, top: int | None) -> sparse.csr_array:
        """Score the nodes on the way to the likeliest terminal nodes."""
        terminals, paths = len(self.outputs.terminals), self.outputs.paths.astype(np.float64)
        # Terminals alone, a few documents at a time: all of them at once would fill the memory.
        plain = self._sums._replace(terminals=np.zeros(0, np.int32))

        def block(start: int, stop: int) -> sparse.csr_array:
            p = np.empty((stop - start, terminals), np.float32)
            kernels.score_paths(documents.since(start), dot, self._softmax, plain, 0, stop - start, p)
            return sparse.csr_array(largest_of(p, TOP_SCORES) @ paths, dtype=np.float32)

        most = max(16, BLOCK_TERMINALS // terminals)
        return in_blocks(block, count, self.outputs.hierarchy, top, least=8, most=most)

    @cached_property
    def _softmax(self) -> kernels.Softmax:
        chain, last, above = self._ancestors
        sharp, flat, flat_weight = self.mixture.tolist()
        outputs = self.outputs.terminal_outputs.astype(np.uint32)
        a, b, c = self.beta.tolist()
        return kernels.Softmax(
            outputs, float(self.level_weights[0]), chain, last, above, sharp, flat, flat_weight, (a, b, c)
        )

    @cached_property
    def _sums(self) -> kernels.Sums:
        return sums_of(self.outputs, self.uniform_weights)

    @cached_property
    def _ancestors(self) -> tuple[Any, kernels.IndexArray, Any]:
        """The ancestors of terminals, in the two forms that the kernel takes."""
        outputs, h = self.outputs, self.outputs.hierarchy
        ptr, above, levels = outputs.above
        level_weights, none = self.level_weights.astype(np.float32), np.zeros(0, np.uint32)
        count = len(outputs.terminals)
        if not h.is_tree or not len(above):
            nothing = none, none, np.zeros(0, np.float32)
            return nothing, np.zeros(count, np.uint32), (ptr, above.astype(np.uint32), level_weights[levels])
        inner = outputs.nodes[~h.is_leaf[outputs.nodes]]
        position = np.zeros(1 + len(h), np.uint32)
        position[inner] = np.arange(1, 1 + len(inner))
        of_inner = outputs.node_outputs[np.searchsorted(outputs.nodes, inner)]
        # A node without an output adds nothing, but hands on the sum of its ancestors.
        weights = np.where(of_inner >= 0, level_weights[levels_of(h, inner)], np.float32(0))
        chain = position[h.parent[inner]], np.maximum(of_inner, 0).astype(np.uint32), weights
        stops = np.zeros(count, np.bool_)
        stops[outputs.stops] = True
        last = position[np.where(stops, outputs.terminals, h.parent[outputs.terminals])]
        return chain, last, (np.zeros(count + 1, np.int64), none, np.zeros(0, np.float32))


def possible_terminals(outputs: OutputSpace, margins: FloatArray, labels: LabelMatrix) -> tuple[LongArray, BoolArray]:
    """Mark the terminal nodes that documents may have by what was learned without them, which may differ by document.

    Of a terminal that was learned, that is itself; otherwise all terminals below the lowest ancestor that has one.
    Leaving such documents out would make all others look easier than documents are.

    Parameters
    ----------
    outputs : Outputs
        What the margins stand for.
    labels : csr_array of shape (documents, nodes)
        The true labels.

    Returns
    -------
    (rows, array of shape (rows, terminals))
        The documents that have any, and their marks.
    """
    known = margins[:, outputs.terminal_outputs] > ABSENT
    # Documents of one fold lack the same outputs.
    patterns, which = np.unique(np.packbits(known, axis=1), axis=0, return_inverse=True)
    rows, marks = [np.zeros(0, np.int64)], [np.zeros((0, known.shape[1]), np.bool_)]
    for pattern in range(len(patterns)):
        documents = np.flatnonzero(which.ravel() == pattern)
        some, true = _learned_terminals(outputs, known[documents[0]], labels[documents])
        rows.append(documents[some])
        marks.append(true)
    return np.concatenate(rows), np.concatenate(marks)


def _learned_terminals(outputs: OutputSpace, learned: BoolArray, labels: LabelMatrix) -> tuple[LongArray, BoolArray]:
    """Mark the terminal nodes that documents may have, of those that were learned."""
    h, documents = outputs.hierarchy, labels.shape[0]
    closed, paths = sparse.csr_array(h.closure(labels)), outputs.paths
    reached = np.zeros(len(h), np.bool_)
    reached[paths[np.flatnonzero(learned)].indices] = True
    # The lowest node that is reached: of one path, the one with the highest number.
    lowest = np.full(documents, -1)
    np.maximum.at(lowest, row_numbers(closed), np.where(reached[closed.indices], closed.indices, -1))
    rows = np.flatnonzero(lowest >= 0)
    below = sparse.csr_array(sparse.csc_array(paths)[:, lowest[rows]].T).toarray().astype(np.bool_)
    true = h.most_specific(labels)
    true_terminals = true.indices[true.indptr[rows]]
    position = np.minimum(np.searchsorted(outputs.terminals, true_terminals), len(outputs.terminals) - 1)
    known = np.flatnonzero((outputs.terminals[position] == true_terminals) & learned[position])
    below[known] = False
    below[known, position[known]] = True
    return rows, below & learned


def largest_of(values: FloatArray, count: int) -> sparse.csr_array:
    """Keep the `count` largest values of each row, as CSR in double precision."""
    few = min(count, values.shape[1])
    columns = np.sort(np.argpartition(-values, few - 1, axis=1)[:, :few], axis=1)
    data = np.take_along_axis(values, columns, axis=1).astype(np.float64)
    return sparse.csr_array((data.ravel(), columns.ravel(), np.arange(0, columns.size + 1, few)), values.shape)


def fit_terminals(outputs: OutputSpace, margins: FloatArray, true: BoolArray) -> tuple[DoubleArray, DoubleArray]:
    """Fit the softmax over terminals: the weights of the levels, and the mixture.

    Of each document only the likeliest terminals are looked at, and some of the others, which stand for all of them.

    Parameters
    ----------
    outputs : Outputs
        What the margins stand for.
    true : array of shape (documents, terminals)
        Marks the terminal nodes of which one is true; at least one of each document.

    Returns
    -------
    (level_weights, mixture)
        See `PathSoftmax`.
    """
    terminals, stands_for = _sample_terminals(outputs, margins, true)
    hit = np.take_along_axis(true, terminals, axis=1)
    ptr, above, levels = outputs.above
    near = kernels.level_parts(margins, terminals, outputs.terminal_outputs, ptr, above, levels, LEVELS + 1)
    used = [0, *(level for level in range(1, LEVELS + 1) if near[:, :, level].any())]
    weights = np.zeros(LEVELS + 1)
    weights[used] = fit_softmax(np.ascontiguousarray(near[:, :, used]), hit, stands_for)
    logits = near[:, :, used].astype(np.float64) @ weights[used]
    return weights, fit_softmax_mixture(logits, hit, stands_for)


def _sample_terminals(outputs: OutputSpace, margins: FloatArray, true: BoolArray) -> tuple[LongArray, DoubleArray]:
    """Choose terminals of each document, a true one among them, and compute ln of how many each stands for."""
    ptr, above, _ = outputs.above
    count = len(outputs.terminals)
    row = np.concatenate([outputs.terminal_outputs, above])
    column = np.concatenate([np.arange(count), np.repeat(np.arange(count), np.diff(ptr))])
    counts = np.concatenate([np.full(count, 5, np.float32), np.ones(len(above), np.float32)])
    together = sparse.csr_array((counts, (column, row)), (count, margins.shape[1]))
    rough = -np.asarray(together @ margins.T).T
    best = np.where(true, rough, np.inf).argmin(axis=1)
    rough[np.arange(len(true)), best] = -np.inf
    few, more = min(LIKELIEST, count), min(OTHERS, max(0, count - LIKELIEST))
    order = np.argpartition(rough, few - 1, axis=1)
    # Those beyond the likeliest are in no order that matters, so any of them will do.
    every = max(1, (count - few) // max(1, more))
    terminals = np.concatenate([order[:, :few], order[:, few::every][:, :more]], axis=1)
    return terminals, np.concatenate([np.zeros(few), np.full(more, np.log(max(1, count - few) / max(1, more)))])


def fit_uniform_weights(hierarchy: Hierarchy, p: FloatArray, closed: LabelMatrix) -> DoubleArray:
    """Fit the weight of the uniform distribution over siblings, by level.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree.
    closed : csr_array of shape (documents, nodes)
        The true labels and their ancestors.

    Returns
    -------
    array of shape (LEVELS + 1,)
        Weights; that of level 0 is 0.
    """
    h, row, nodes = hierarchy, row_numbers(closed), closed.indices
    parent = h.parent[nodes]
    above = np.where(parent >= 0, p[row, parent], 1.0)
    sizes = np.bincount(h.parent + 1, minlength=len(h) + 1)[parent + 1]
    uniform = 1.0 / sizes
    conditional = np.where(above > 0, p[row, nodes] / np.maximum(above, 1e-30), uniform)
    levels = levels_of(h, nodes)
    weights = np.zeros(LEVELS + 1)
    for level in range(1, LEVELS + 1):
        some = (levels == level) & (sizes > 1)
        weights[level] = fit_mixture_weight(conditional[some], uniform[some])
    return weights


def sums_of(outputs: OutputSpace, uniform_weights: DoubleArray) -> kernels.Sums:
    """Prepare how terminals sum up to nodes, and how siblings in a tree are mixed with the uniform distribution."""
    h, none, paths = outputs.hierarchy, np.zeros(0, np.int32), outputs.paths
    if not h.is_tree:
        nothing = np.zeros(0, np.float32)
        return kernels.Sums(outputs.terminals, none, nothing, nothing, paths.indptr, paths.indices)
    sizes = np.bincount(h.parent + 1, minlength=len(h) + 1)
    depth = np.minimum(np.concatenate([[0], h.depth]) + 1, LEVELS)
    uniform = np.where(sizes > 0, 1 / np.maximum(sizes, 1), 0).astype(np.float32)
    return kernels.Sums(outputs.terminals, h.parent, uniform_weights[depth].astype(np.float32), uniform, none, none)
