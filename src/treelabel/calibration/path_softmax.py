"""Documents with one path: a softmax over terminal nodes, summed up to all nodes."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration import path_kernels as kernels
from treelabel.calibration.base import LARGEST_PARAMETER, Calibration, in_blocks
from treelabel.calibration.fitting import fit_beta, fit_softmax, fit_softmax_mixture
from treelabel.calibration.outputs import ABSENT, LEVELS, Outputs
from treelabel.calibration.uniform import fit_uniform_weights, sums_of
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.bounded_memory import MANY_NODES, TOP_SCORES
from treelabel.core.compute import over_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.sparse_product import Documents, Dot, Weights, documents_of, known_margins
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, LongArray
from treelabel.hierarchy import LabelMatrix

# Probabilities of terminal nodes that are computed at once where there are very many.
BLOCK_TERMINALS = 1 << 20
# Margins of a model of all documents count (documents before / after) to this power times as much as those of folds:
# on random parts of the training documents of five sets, confidence is then least biased on most of them.
GROWTH = 0.2
# Terminal nodes of a document that are looked at in calibration: the likeliest, and some of the others.
LIKELIEST = 16
OTHERS = 16


@dataclass(frozen=True, eq=False)
class PathSoftmax(Calibration):
    """P(terminal) = softmax of v_0 x its own margin + the sum over its ancestors of v_level x theirs.

    The softmax is a mixture of a sharp and a flat one, in which the likeliest terminal is calibrated on its own: by
    likelihood alone, all others count as much. A node has the sum of the terminal nodes at and below it, and in a tree,
    siblings are mixed with the uniform distribution. Of more than 20,000 nodes only those on the way to the
    100 likeliest terminal nodes are kept, as CSR, and nothing is mixed with the uniform distribution.

    Parameters
    ----------
    outputs : Outputs
        What the margins stand for.
    level_weights : array of shape (LEVELS + 1,)
        v_0 of the terminal's own margin, and the weights of its ancestors by level.
    mixture : array of shape (3,)
        The inverse temperatures of the sharp and of the flat softmax, and the weight of the flat one.
    uniform_weights : array of shape (LEVELS + 1,)
        The weight of the uniform distribution over siblings, by level.
    beta : array of shape (3,)
        The beta calibration of the likeliest terminal; see `fit_beta`. By default it changes nothing.
    """

    outputs: Outputs
    level_weights: DoubleArray
    mixture: DoubleArray
    uniform_weights: DoubleArray
    beta: DoubleArray = field(default_factory=lambda: np.array([1.0, 1.0, 0.0]))

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, labels: LabelMatrix) -> "PathSoftmax":
        """Fit all weights; see `Calibration.fit`."""
        h = outputs.hierarchy
        rows, true = possible_terminals(outputs, margins, labels)
        weights, mixture = np.zeros(LEVELS + 1), np.array([1.0, 1.0, 0.0])
        weights[0] = 5.0
        if len(rows):
            weights, mixture = fit_terminals(outputs, margins[rows], true)
        plain = cls(outputs, weights, mixture, np.zeros(LEVELS + 1))
        if h.is_tree and len(h) <= MANY_NODES:
            found = fit_uniform_weights(h, plain.probabilities(margins), h.closure(labels))
            plain = replace(plain, uniform_weights=found)
        return replace(plain, beta=plain._fit_beta(margins, labels))

    def for_more_documents(self, ratio: float) -> "PathSoftmax":
        """Return the same with smaller weights; see `Calibration.for_more_documents`."""
        return replace(self, level_weights=self.level_weights * ratio**GROWTH)

    def arrays(self) -> Arrays:
        """Return the fitted parameters, to save."""
        names = ("level_weights", "mixture", "uniform_weights", "beta")
        return {name: getattr(self, name) for name in names}

    @staticmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns."""
        size = (str(LEVELS + 1),)
        return {
            "level_weights": Array("float64", size, -LARGEST_PARAMETER, LARGEST_PARAMETER),
            "mixture": Array("float64", ("3",), 0, LARGEST_PARAMETER),
            "uniform_weights": Array("float64", size, 0, 1),
            "beta": Array("float64", ("3",), -LARGEST_PARAMETER, LARGEST_PARAMETER),
        }

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse a mixture weight above 1, and outputs without a terminal node."""
        if arrays["mixture"][2] > 1:
            raise TreelabelError(f"mixture ends in {arrays['mixture'][2]:g}, expected a weight from 0 to 1")
        if not len(outputs.terminals):
            raise TreelabelError("terminals is empty, but every path ends somewhere")

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "PathSoftmax":
        """Make a calibration of what `arrays` returned."""
        return cls(outputs, arrays["level_weights"], arrays["mixture"], arrays["uniform_weights"], arrays["beta"])

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
        found = over_rows(
            lambda start, stop: kernels.likeliest_paths(documents, dot, self._softmax, how, start, stop, width),
            len(margins),
            least=64,
        )
        best, p = (np.concatenate(part)[rows] for part in zip(*found, strict=True))
        right = terminals[best] == ends.indices[ends.indptr[rows]]
        return np.array(fit_beta(np.clip(p.astype(np.float64), kernels.LEAST_LEFT, 1 - kernels.LEAST_LEFT), right))

    def _node_probabilities(self, margins: FloatArray) -> Any:
        return self._scored(*known_margins(margins), len(margins), None)

    def probabilities(self, margins: FloatArray, top: int | None = None) -> Any:
        """Turn margins into probabilities; see `Calibration.probabilities`."""
        return self._scored(*known_margins(margins), len(margins), top)

    def probabilities_of(self, features: sparse.csr_array, weights: Weights, top: int | None = None) -> Any:
        """Turn features into probabilities in one compiled loop; see `Calibration.probabilities_of`."""
        return self._scored(documents_of(features), weights.dot, features.shape[0], top)

    def _scored(self, documents: Documents, dot: Dot, count: int, top: int | None) -> Any:
        h = self.outputs.hierarchy
        if len(h) > MANY_NODES:
            return self._likeliest(documents, dot, count, top)
        if top is not None:
            return in_blocks(lambda start, stop: self._block(documents.since(start), dot, stop - start), count, h, top)
        found = np.empty((count, len(h)), np.float32)
        over_rows(
            lambda start, stop: kernels.score_paths(documents, dot, self._softmax, self._sums, start, stop, found),
            count,
            least=64,
        )
        return found

    def block(self, margins: FloatArray) -> FloatArray:
        """Turn the margins of some documents into the probabilities of all nodes, in the thread of the caller."""
        return self._block(*known_margins(margins), len(margins))

    def _block(self, documents: Documents, dot: Dot, count: int) -> FloatArray:
        """Score the first documents."""
        found = np.empty((count, len(self.outputs.hierarchy)), np.float32)
        kernels.score_paths(documents, dot, self._softmax, self._sums, 0, count, found)
        return found

    def _likeliest(self, documents: Documents, dot: Dot, count: int, top: int | None) -> sparse.csr_array:
        """Score the nodes on the way to the likeliest terminal nodes."""
        terminals, paths = len(self.outputs.terminals), self.outputs.paths.astype(np.float64)
        # Terminals alone, a few documents at a time: all of them at once would fill the memory.
        plain = self._sums._replace(terminals=np.zeros(0, np.int32))

        def block(start: int, stop: int) -> sparse.csr_array:
            found = np.empty((stop - start, terminals), np.float32)
            kernels.score_paths(documents.since(start), dot, self._softmax, plain, 0, stop - start, found)
            return sparse.csr_array(largest_of(found, TOP_SCORES) @ paths, dtype=np.float32)

        most = max(16, BLOCK_TERMINALS // terminals)
        return in_blocks(block, count, self.outputs.hierarchy, top, least=8, most=most)

    @cached_property
    def _softmax(self) -> kernels.Softmax:
        chain, last, above = self._ancestors
        sharp, flat, flat_weight = self.mixture.tolist()
        own = self.outputs.terminal_outputs.astype(np.uint32)
        a, b, c = self.beta.tolist()
        return kernels.Softmax(
            own, float(self.level_weights[0]), chain, last, above, sharp, flat, flat_weight, (a, b, c)
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
        place = np.zeros(1 + len(h), np.uint32)
        place[inner] = np.arange(1, 1 + len(inner))
        of_inner = outputs.node_outputs[np.searchsorted(outputs.nodes, inner)]
        # A node without an output adds nothing, but hands on the sum of its ancestors.
        weights = np.where(of_inner >= 0, level_weights[outputs.levels(inner)], np.float32(0))
        chain = place[h.parent[inner]], np.maximum(of_inner, 0).astype(np.uint32), weights
        stops = np.zeros(count, np.bool_)
        stops[outputs.stops] = True
        last = place[np.where(stops, outputs.terminals, h.parent[outputs.terminals])]
        return chain, last, (np.zeros(count + 1, np.int64), none, np.zeros(0, np.float32))


def possible_terminals(outputs: Outputs, margins: FloatArray, labels: LabelMatrix) -> tuple[LongArray, BoolArray]:
    """Mark the terminal nodes that documents may have by what was learned without them, which may differ by document.

    Of a terminal that was learned, that is itself; otherwise all terminals below the lowest ancestor that has one.
    Leaving such documents out would make all others look easier than documents are.

    Parameters
    ----------
    outputs : Outputs
        What the margins stand for.
    margins : array of shape (documents, outputs)
        Margins.
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
        at = np.flatnonzero(which.ravel() == pattern)
        found, true = _terminals_there(outputs, known[at[0]], labels[at])
        rows.append(at[found])
        marks.append(true)
    return np.concatenate(rows), np.concatenate(marks)


def _terminals_there(outputs: Outputs, there: BoolArray, labels: LabelMatrix) -> tuple[LongArray, BoolArray]:
    """Mark the terminal nodes that documents may have of those that are there."""
    h, documents = outputs.hierarchy, labels.shape[0]
    closed, paths = sparse.csr_array(h.closure(labels)), outputs.paths
    reached = np.zeros(len(h), np.bool_)
    reached[paths[np.flatnonzero(there)].indices] = True
    row = np.repeat(np.arange(documents), np.diff(closed.indptr))
    # The lowest node that is reached: of one path, the one with the highest number.
    lowest = np.full(documents, -1)
    np.maximum.at(lowest, row, np.where(reached[closed.indices], closed.indices, -1))
    rows = np.flatnonzero(lowest >= 0)
    below = sparse.csr_array(sparse.csc_array(paths)[:, lowest[rows]].T).toarray().astype(np.bool_)
    true = h.most_specific(labels)
    true_terminals = true.indices[true.indptr[rows]]
    place = np.minimum(np.searchsorted(outputs.terminals, true_terminals), len(outputs.terminals) - 1)
    known = np.flatnonzero((outputs.terminals[place] == true_terminals) & there[place])
    below[known] = False
    below[known, place[known]] = True
    return rows, below & there


def largest_of(values: FloatArray, count: int) -> sparse.csr_array:
    """Keep the `count` largest values of each row, as CSR in double precision.

    Parameters
    ----------
    values : array of shape (documents, nodes)
    count
        How many to keep.

    Returns
    -------
    csr_array of shape (documents, nodes)
    """
    few = min(count, values.shape[1])
    kept = np.sort(np.argpartition(-values, few - 1, axis=1)[:, :few], axis=1)
    data = np.take_along_axis(values, kept, axis=1).astype(np.float64)
    return sparse.csr_array((data.ravel(), kept.ravel(), np.arange(0, kept.size + 1, few)), values.shape)


def fit_terminals(outputs: Outputs, margins: FloatArray, true: BoolArray) -> tuple[DoubleArray, DoubleArray]:
    """Fit the softmax over terminals: the weights of the levels, and the mixture.

    Of each document only the likeliest terminals are looked at, and some of the others, which stand for all of them.

    Parameters
    ----------
    outputs : Outputs
        What the margins stand for.
    margins : array of shape (documents, outputs)
        Margins.
    true : array of shape (documents, terminals)
        Marks the terminal nodes of which one is true; at least one of each document.

    Returns
    -------
    (level_weights, mixture)
        See `PathSoftmax`.
    """
    kept, stands_for = _candidates(outputs, margins, true)
    hit = np.take_along_axis(true, kept, axis=1)
    ptr, above, levels = outputs.above
    near = kernels.level_parts(margins, kept, outputs.terminal_outputs, ptr, above, levels, LEVELS + 1)
    used = [0, *(level for level in range(1, LEVELS + 1) if near[:, :, level].any())]
    weights = np.zeros(LEVELS + 1)
    weights[used] = fit_softmax(np.ascontiguousarray(near[:, :, used]), hit, stands_for)
    logits = near[:, :, used].astype(np.float64) @ weights[used]
    return weights, np.array(fit_softmax_mixture(logits, hit, stands_for))


def _candidates(outputs: Outputs, margins: FloatArray, true: BoolArray) -> tuple[LongArray, DoubleArray]:
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
    kept = np.concatenate([order[:, :few], order[:, few::every][:, :more]], axis=1)
    return kept, np.concatenate([np.zeros(few), np.full(more, np.log(max(1, count - few) / max(1, more)))])
