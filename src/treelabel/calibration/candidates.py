"""From evidence for a few candidate labels of each document to probabilities of nodes, sparse all the way.

Evidence is a number above 0 for each candidate, such as the votes of neighbours or odds; what is not stored has none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from treelabel.calibration.contract import (
    LARGEST_PARAMETER,
    LEVELS,
    Calibration,
    levels_of,
    sum_to_nodes,
    terminal_paths,
)
from treelabel.calibration.isotonic import MAPS, STEPS, apply_isotonic, check_maps, fit_isotonic
from treelabel.calibration.likelihood import fit_logistic, fit_sigmoid
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.bounded_memory import TOP_SCORES
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, matches, row_numbers
from treelabel.scores.score_kernels import largest_entries
from treelabel.scores.score_matrix import Scores

# ln evidence beyond these makes no difference.
MOST_LOG_EVIDENCE = 30.0
LEAST_EVIDENCE = 1e-13
# A level with fewer true candidates shares the map of all levels.
FEWEST_TRUE = 30
# The share of a sigmoid in isotonic maps, which have steps: without it, labels on one step would have no order.
SIGMOID_SHARE = 0.1
# The frequency of a terminal node that no document has, and the least probability that a loss looks at.
LEAST = 1e-6
# The numbers of evidence for a candidate of label trees: its score there, and cosines with its documents and its name.
PARTS = 3
# The largest weight of one of them, and the smallest slope of margins.
LARGEST_SLOPE = 50
LEAST_SLOPE = 1e-3


@dataclass(frozen=True, eq=False)
class CandidateCalibration(Calibration):
    """A calibration of candidates: documents x nodes, CSR.

    `counts` are the training documents with each node, or with each node at which a path ends; see `targets_of`.
    """

    hierarchy: Hierarchy
    counts: LongArray

    def fitted_loss(self, evidence: sparse.csr_array, labels: LabelMatrix) -> float | None:
        """Return the mean log loss of documents once it is fitted to them, NaN if nothing is known of any.

        None means that a log loss would hardly tell settings apart: it would be that of the many candidates which are
        nearly impossible.
        """
        return None


def odds_map() -> DoubleArray:
    """Return the map of evidence that is odds, for all levels: e becomes e / (1 + e)."""
    # Values are those in the middle of steps.
    p = 1 / (1 + np.exp(10 - 20 * (np.arange(STEPS + 1) + 0.5) / STEPS))
    return np.tile(np.concatenate([[-10.0, 10.0], p]), (LEVELS + 1, 1))


@dataclass(frozen=True, eq=False)
class CandidateIsotonic(CandidateCalibration):
    """Documents with several paths: P(n) = isotonic function of ln evidence, by level, made coherent.

    `maps` are those of `fit_isotonic`, levels x (STEPS + 3); by default evidence is taken for odds.
    """

    parameters: ClassVar = {"maps": MAPS}
    maps: DoubleArray = field(default_factory=odds_map)

    def fit(self, evidence: sparse.csr_array, labels: LabelMatrix) -> "CandidateIsotonic":
        """Fit the maps; see `Calibration.fit`."""
        z, true = log_evidence(evidence), matches(self.hierarchy.closure(labels), evidence)
        if not len(z) or not true.any():
            return self
        maps = np.tile(fit_isotonic(z, true, SIGMOID_SHARE), (LEVELS + 1, 1))
        levels = levels_of(self.hierarchy, evidence.indices)
        for level in np.unique(levels[true]) if len(np.unique(levels)) > 1 else ():
            some = levels == level
            if true[some].sum() >= FEWEST_TRUE:
                maps[level] = fit_isotonic(z[some], true[some], SIGMOID_SHARE)
        return replace(self, maps=maps)

    def probabilities(self, evidence: sparse.csr_array) -> sparse.csr_array:
        """Map evidence to probabilities; see `Calibration.probabilities`."""
        p = apply_isotonic(log_evidence(evidence), levels_of(self.hierarchy, evidence.indices), self.maps)
        values = sparse.csr_array((p, evidence.indices, evidence.indptr), evidence.shape)
        return Scores(self.hierarchy, values).coherent().csr()

    def check(self, arrays: Arrays) -> None:
        """Refuse maps without a range of evidence, or with values that are no probabilities."""
        check_maps(arrays["maps"])


@dataclass(frozen=True, eq=False)
class CandidateSoftmax(CandidateCalibration):
    """Documents with one path: P(t) = (e^s + k x prior(t)) / (sum over terminal nodes of e^s + k), summed up to nodes.

    e is the evidence for a terminal node (a leaf, or an inner node at which paths of training end); evidence for other
    nodes does not count. Priors are the shares of terminal nodes in training, of the 100 most frequent ones where there
    are more. `numbers` are s and k.
    """

    parameters: ClassVar = {"numbers": Array("float64", ("2",), 0, LARGEST_PARAMETER)}
    numbers: DoubleArray = field(default_factory=lambda: np.array([1.0, 0.01]))

    @cached_property
    def terminals(self) -> IntArray:
        """The terminal nodes, increasing."""
        return np.union1d(self.hierarchy.leaves, np.flatnonzero(self.counts)).astype(np.int32)

    @cached_property
    def prior(self) -> DoubleArray:
        """The prior probabilities of terminal nodes."""
        prior = self.counts[self.terminals] + LEAST
        if len(prior) > TOP_SCORES:
            prior[np.argsort(-prior, kind="stable")[TOP_SCORES:]] = 0
        shares: DoubleArray = prior / prior.sum()
        return shares

    def fit(self, evidence: sparse.csr_array, labels: LabelMatrix) -> "CandidateSoftmax":
        """Fit s and k; see `Calibration.fit`."""
        from scipy.optimize import minimize

        loss = self.loss_of(evidence, labels)
        if loss is None:
            return self
        starts = [np.log([s, k]) for s in (0.5, 1.0, 3.0) for k in (1e-4, 0.01, 1.0)]
        bounds = [(-2.5, 2.5), (-30, 10)]
        result = minimize(loss, min(starts, key=loss), method="Nelder-Mead", bounds=bounds, options={"maxiter": 60})
        return replace(self, numbers=np.exp(result.x))

    def fitted_loss(self, evidence: sparse.csr_array, labels: LabelMatrix) -> float | None:
        """Return the mean log loss of terminal nodes; see `CandidateCalibration.fitted_loss`."""
        loss = self.loss_of(evidence, labels)
        return np.nan if loss is None else loss(np.log(self.fit(evidence, labels).numbers))

    def loss_of(self, evidence: sparse.csr_array, labels: LabelMatrix) -> Callable[[DoubleArray], float] | None:
        """Return the mean log loss as a function of ln s and ln k; None if no document has a terminal node."""
        true = self.hierarchy.most_specific(labels)
        rows = np.flatnonzero(np.diff(true.indptr) == 1)
        ends = true.indices[true.indptr[rows]]
        rows, ends = rows[np.isin(ends, self.terminals)], ends[np.isin(ends, self.terminals)]
        if not len(rows):
            return None
        position = np.searchsorted(self.terminals, ends)
        candidates = sparse.csr_array(evidence[rows][:, self.terminals])
        z, row = log_evidence(candidates), row_numbers(candidates)
        hit, prior = candidates.indices == position[row], self.prior[position]

        def loss(numbers: DoubleArray) -> float:
            s, k = np.exp(numbers)
            power = np.exp(np.clip(s * z, -MOST_LOG_EVIDENCE, MOST_LOG_EVIDENCE))
            total = np.bincount(row, power, len(rows)) + k
            p = (np.bincount(row[hit], power[hit], len(rows)) + k * prior) / total
            return float(-np.log(np.maximum(p, LEAST)).mean())

        return loss

    def probabilities(self, evidence: sparse.csr_array) -> sparse.csr_array:
        """Map evidence to probabilities; see `Calibration.probabilities`."""
        s, k = self.numbers
        powers = sparse.csr_array(evidence[:, self.terminals], dtype=np.float64)
        powers.data = np.exp(np.clip(s * log_evidence(powers), -MOST_LOG_EVIDENCE, MOST_LOG_EVIDENCE))
        frequent, count = np.flatnonzero(self.prior), evidence.shape[0]
        priors = np.tile(k * self.prior[frequent], count), np.tile(frequent, count)
        added = sparse.csr_array((*priors, np.arange(count + 1) * len(frequent)), powers.shape)
        summed = sparse.csr_array(powers + added)
        scale = 1 / np.maximum(np.asarray(summed.sum(axis=1)).ravel(), 1e-300)
        p: sparse.csr_array = sum_to_nodes(sparse.diags_array(scale) @ summed, self._paths)
        return p

    @cached_property
    def _paths(self) -> sparse.csr_array:
        return terminal_paths(self.hierarchy, self.terminals).astype(np.float64)

    def check(self, arrays: Arrays) -> None:
        """Refuse a k of 0, with which a document without candidates would have no distribution."""
        if not arrays["numbers"][1] > 0:
            raise TreelabelError("numbers ends in 0, expected a number above it")


class Candidates(NamedTuple):
    """Candidates with several numbers of evidence: where each document's begin, their labels (rising), and evidence."""

    ptr: LongArray
    labels: IntArray
    evidence: FloatArray

    @classmethod
    def concat(cls, parts: "Sequence[Candidates]") -> "Candidates":
        """Put the candidates of some documents after those of others."""
        sizes = np.concatenate([[0], *(np.diff(part.ptr) for part in parts)])
        return cls(np.cumsum(sizes), *(np.concatenate([part[which] for part in parts]) for which in (1, 2)))

    def csr(self, values: FloatArray, labels: int) -> sparse.csr_array:
        """Return a matrix of values of the candidates, documents x labels."""
        return sparse.csr_array((values, self.labels, self.ptr), (len(self.ptr) - 1, labels))


@dataclass(frozen=True, eq=False)
class CandidateLogistic(Calibration):
    """Candidates of label trees: logit P(label) = the sum of weights x evidence + a constant, with weights >= 0.

    Where documents have one path each, probabilities that sum to more than 1 are scaled to 1, and a node has the sum of
    those below it; with several paths it has the largest of them.

    Parameters
    ----------
    labels : array of int32
        The node of each label.
    columns : int
        How many of the PARTS numbers of evidence count; the weights of others are 0.
    """

    parameters: ClassVar = {"weights": Array("float64", (str(PARTS + 1),), -LARGEST_PARAMETER, LARGEST_PARAMETER)}
    hierarchy: Hierarchy
    labels: IntArray
    multiple_paths: bool
    columns: int = PARTS
    weights: DoubleArray = field(default_factory=lambda: np.eye(PARTS + 1)[0])

    def targets(self, labels: LabelMatrix) -> LabelMatrix:
        """Mark the labels at which the paths of documents end: documents x labels."""
        return sparse.csr_array(sparse.csc_array(self.hierarchy.most_specific(labels))[:, self.labels])

    def fit(self, evidence: Candidates, labels: LabelMatrix) -> "CandidateLogistic":
        """Fit the weights and the constant; see `Calibration.fit`."""
        true = matches(self.targets(labels), evidence.csr(evidence.evidence[:, 0], len(self.labels)))
        if not true.any():
            return self
        weights, known = np.zeros(PARTS + 1), evidence.evidence[:, : self.columns]
        slopes = (0, LARGEST_SLOPE)
        weights[[*range(self.columns), PARTS]] = fit_logistic(known, true.astype(np.float64), slopes=slopes)
        return replace(self, weights=weights)

    def probabilities(self, evidence: Candidates) -> sparse.csr_array:
        """Turn evidence into probabilities; see `Calibration.probabilities`."""
        from scipy.special import expit

        h = self.hierarchy
        values = expit(evidence.evidence @ self.weights[:PARTS] + self.weights[PARTS]).astype(np.float32)
        p = evidence.csr(values, len(self.labels))
        if self.multiple_paths or not h.is_tree:
            nodes = sparse.csr_array((p.data, self.labels[p.indices], p.indptr), (p.shape[0], len(h)))
        else:
            sums = np.repeat(np.asarray(p.sum(axis=1)).ravel(), np.diff(p.indptr))
            scaled = sparse.csr_array((p.data / np.maximum(sums, 1), p.indices, p.indptr), p.shape)
            nodes = sparse.csr_array(scaled @ terminal_paths(h, self.labels).astype(np.float32))
            nodes.sort_indices()
            np.minimum(nodes.data, 1, out=nodes.data)
        # Sums may be rounded to less than one of their parts.
        return Scores(h, nodes).coherent().values


class CandidateSigmoid(NamedTuple):
    """Margins of candidates: P(label) = sigmoid(slope x margin + intercept), documents x labels as CSR (Platt scaling).

    Without held-out documents it is sigmoid(2 m): at 0 as steep as (1 + m) / 2, which the squared hinge loss estimates.
    """

    slope: float = 2.0
    intercept: float = 0.0

    def fit(self, margins: sparse.csr_array, true: sparse.csr_array) -> "CandidateSigmoid":
        """Fit to the labels that were looked at; `true` marks the true ones, documents x labels."""
        is_true = matches(true, margins)
        if is_true.all() or not is_true.any():
            return self
        return CandidateSigmoid(*fit_sigmoid(margins.data, is_true, LEAST_SLOPE))

    def probabilities(self, margins: sparse.csr_array) -> sparse.csr_array:
        """Turn margins into probabilities of the same labels."""
        from scipy.special import expit

        p = expit(self.slope * margins.data + self.intercept).astype(np.float32)
        return sparse.csr_array((p, margins.indices, margins.indptr), margins.shape)


def candidate_calibration(multiple_paths: bool) -> type[CandidateCalibration]:
    """Return the calibration of candidates that suits documents with one path, or with several."""
    return CandidateIsotonic if multiple_paths else CandidateSoftmax


def log_evidence(evidence: sparse.csr_array) -> DoubleArray:
    """Compute ln evidence of all candidates, in double precision, within limits."""
    z: DoubleArray = np.log(np.maximum(evidence.data.astype(np.float64), LEAST_EVIDENCE))
    return np.minimum(z, MOST_LOG_EVIDENCE)


def largest_evidence(evidence: sparse.csr_array, count: int) -> sparse.csr_array:
    """Keep at most `count` candidates with the largest evidence of each document, in the order of nodes."""
    sizes = np.diff(evidence.indptr)
    if not len(sizes) or sizes.max() <= count:
        return evidence
    return largest_entries(evidence, count)


def targets_of(hierarchy: Hierarchy, labels: LabelMatrix, regime: str) -> LabelMatrix:
    """Mark what documents are evidence for, as float32: all their nodes, or where their one path ends."""
    marks = hierarchy.closure(labels) if regime == "multi_path" else hierarchy.most_specific(labels)
    return sparse.csr_array((np.ones(marks.nnz, np.float32), marks.indices, marks.indptr), marks.shape)
