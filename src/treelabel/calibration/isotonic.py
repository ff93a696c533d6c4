"""Isotonic calibration, by level and made coherent: the map itself, and the calibration of margins by it.

Used where documents have several paths. The evidence for a node is its margin, and how it does against all other nodes
of the document: the log odds of a softmax over paths. By the margin alone, labels that exclude each other are all
promised where each looks likely.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import sparse

from treelabel.calibration.contract import (
    ABSENT,
    LARGEST_PARAMETER,
    LEVELS,
    MarginCalibration,
    OutputSpace,
    levels_of,
)
from treelabel.calibration.level_sums import fit_level_shifts, shift_columns, shift_odds
from treelabel.calibration.likelihood import fit_logistic, fit_sigmoid
from treelabel.calibration.path_softmax import PathSoftmax, fit_terminals, neutral_level_weights, neutral_mixture
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.bounded_memory import MANY_NODES
from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.scores.score_matrix import Scores

# The range of evidence is divided into this many steps: no probability changes visibly.
STEPS = 400
# A map: the smallest and the largest evidence, and the probabilities in the middle of equal steps between them.
MAPS = Array("float64", (str(LEVELS + 1), str(STEPS + 3)), -LARGEST_PARAMETER, LARGEST_PARAMETER)
# Log odds beyond this make no difference.
MOST_LOG_ODDS = 15.0
# Negative outputs of a level that its slopes are fitted to: this many of the hardest, and of the others.
HARDEST = 30_000
OTHERS = 30_000


def fit_isotonic(evidence: FloatArray | DoubleArray, true: BoolArray, sigmoid_share: float = 0.0) -> DoubleArray:
    """Fit the increasing map from evidence to probabilities with the least squared error (isotonic regression).

    Parameters
    ----------
    true : array of shape (n,)
        Whether each is one of a true label.
    sigmoid_share : float
        The weight of a fitted sigmoid that is mixed in, so that the map rises everywhere and keeps the order of labels.

    Returns
    -------
    array of shape (STEPS + 3,)
        The smallest and the largest evidence, and the probabilities in the middle of equal steps between them.
    """
    from scipy.special import expit
    from sklearn.isotonic import isotonic_regression

    values = evidence.astype(np.float32)
    low, high = float(values.min()), float(values.max()) + 1e-6
    step = ((values - low) / (high - low) * STEPS).astype(np.int64)
    total = np.bincount(step, minlength=STEPS + 1).astype(np.float64)
    right = np.bincount(step[true], minlength=STEPS + 1)
    seen = np.flatnonzero(total)
    # Half a document of each kind in all keeps both ends away from 0 and 1, which nothing can be sure of.
    prior = 0.5 / len(values)
    p = isotonic_regression(
        (right[seen] + prior * total[seen]) / (total[seen] * (1 + 2 * prior)), sample_weight=total[seen]
    )
    steps = np.interp(np.arange(STEPS + 1), seen, p)
    if sigmoid_share:
        slope, intercept = fit_sigmoid(evidence, true)
        middles = low + (high - low) * (np.arange(STEPS + 1) + 0.5) / STEPS
        steps = (1 - sigmoid_share) * steps + sigmoid_share * expit(slope * middles + intercept)
    fitted: DoubleArray = np.concatenate([[low, high], steps])
    return fitted


@kernel
def isotonic_value(fitted: DoubleArray, evidence: float) -> float:
    """Look up the probability of evidence in a map, which is linear between the middles of its steps."""
    last = len(fitted) - 3
    position = (evidence - fitted[0]) / (fitted[1] - fitted[0]) * last - 0.5
    position = min(max(position, 0.0), float(last))
    low = min(int(position), last - 1)
    part = position - low
    return float((1 - part) * fitted[2 + low] + part * fitted[3 + low])


@kernel
def apply_isotonic(evidence: DoubleArray, levels: IntArray, maps: DoubleArray) -> FloatArray:
    """Look up the probability of each entry in the map of its level."""
    p = np.empty(len(evidence), np.float32)
    for entry in range(len(evidence)):
        p[entry] = isotonic_value(maps[levels[entry]], evidence[entry])
    return p


def check_maps(maps: DoubleArray) -> None:
    """Refuse maps without a range of evidence, or with values that are no probabilities."""
    if (maps[:, 0] >= maps[:, 1]).any():
        raise TreelabelError("maps holds a smallest evidence that is not below the largest")
    if not ((maps[:, 2:] >= 0) & (maps[:, 2:] <= 1)).all():
        raise TreelabelError("maps holds a value that is no probability")


@dataclass(frozen=True, eq=False)
class Isotonic(MarginCalibration):
    """P(n) = isotonic function of a x margin + b x log odds of n in a softmax over paths + c, by level.

    Nodes are then raised to the largest of their children. Where there are more than 20,000 nodes, b is 0: a softmax
    over so many paths is not computed for every node. Levels that nothing is known of are never taken for true.

    Parameters
    ----------
    level_weights, mixture : arrays of shapes (LEVELS + 1,) and (3,)
        Those of the softmax; see `PathSoftmax`.
    coefficients : array of shape (LEVELS + 1, 3)
        a, b and c.
    maps : array of shape (LEVELS + 1, STEPS + 3)
        What `fit_isotonic` returns, by level.
    """

    parameters: ClassVar = {
        "level_weights": PathSoftmax.parameters["level_weights"],
        "mixture": PathSoftmax.parameters["mixture"],
        "coefficients": Array("float64", (str(LEVELS + 1), "3"), -LARGEST_PARAMETER, LARGEST_PARAMETER),
        "maps": MAPS,
    }
    level_weights: DoubleArray = field(default_factory=lambda: np.zeros(LEVELS + 1))
    mixture: DoubleArray = field(default_factory=neutral_mixture)
    coefficients: DoubleArray = field(default_factory=lambda: np.tile([1.0, 0.0, 0.0], (LEVELS + 1, 1)))
    maps: DoubleArray = field(
        default_factory=lambda: np.tile(np.concatenate([[-1.0, 1.0], np.zeros(STEPS + 1)]), (LEVELS + 1, 1))
    )

    def fit(self, evidence: FloatArray, labels: LabelMatrix) -> "Isotonic":
        """Fit the softmax, the coefficients and the maps; see `Calibration.fit`."""
        weights, mixture = _fit_softmax_over_paths(self.outputs, evidence, labels)
        plain = replace(self, level_weights=weights, mixture=mixture)
        coefficients, maps = self.coefficients.copy(), self.maps.copy()
        nodes, outputs, levels = self._columns
        true = sparse.csc_array(self.outputs.hierarchy.closure(labels))[:, nodes].toarray().astype(np.bool_)
        odds = plain._log_odds(evidence)
        for level in np.unique(levels):
            columns = np.flatnonzero(levels == level)
            margins, hits = evidence[:, outputs[columns]], true[:, columns]
            known = margins > ABSENT
            if not known.any():
                continue
            parts = [margins[known]] if odds is None else [margins[known], odds[:, nodes[columns]][known]]
            a, b, c = coefficients[level] = _fit_slopes(np.column_stack(parts), hits[known])
            combined = a * parts[0] + b * (0 if odds is None else parts[1]) + c
            combined = np.clip(combined, -MOST_LOG_ODDS, MOST_LOG_ODDS).astype(np.float32)
            maps[level] = fit_isotonic(combined, hits[known])
        return replace(plain, coefficients=coefficients, maps=maps)

    def match_sums(self, evidence: FloatArray, labels: LabelMatrix) -> "Isotonic":
        """Shift the maps until the sums of levels are true; see `MarginCalibration.match_sums`."""
        h, values = self.outputs.hierarchy, self._values(evidence)
        levels = levels_of(h, np.arange(len(h)))

        def coherent(shifts: DoubleArray) -> FloatArray:
            return Scores(h, shift_columns(values, np.exp(shifts)[levels])).coherent().dense()

        shifts = fit_level_shifts(coherent, self.outputs, evidence, labels)
        maps = self.maps.copy()
        maps[:, 2:] = shift_odds(maps[:, 2:], shifts[:, None])
        return replace(self, maps=maps)

    def check(self, arrays: Arrays) -> None:
        """Refuse maps that are none, and what the softmax over paths refuses."""
        check_maps(arrays["maps"])
        if arrays["coefficients"][:, 1].any():
            PathSoftmax(self.outputs).check(arrays)

    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        return Scores(self.outputs.hierarchy, self._values(margins)).coherent().dense()

    def _values(self, margins: FloatArray) -> FloatArray:
        """Map the evidence for each node on its own: documents x nodes."""
        odds = self._log_odds(margins) if self.coefficients[:, 1].any() else None
        log_odds = np.zeros((0, 0), np.float32) if odds is None else odds
        count = len(self.outputs.hierarchy)
        return isotonic_margins(margins, log_odds, *self._columns, self.coefficients, self.maps, count)

    def _log_odds(self, margins: FloatArray) -> FloatArray | None:
        """Compute the log odds of nodes in the softmax over paths: documents x nodes; None where there is none."""
        if not competes(self.outputs):
            return None
        return log_odds(PathSoftmax(self.outputs, self.level_weights, self.mixture).block(margins))

    @cached_property
    def _columns(self) -> tuple[IntArray, IntArray, IntArray]:
        """The nodes that have an output, their outputs, and their levels."""
        has_output = self.outputs.node_outputs >= 0
        nodes = self.outputs.nodes[has_output]
        return nodes, self.outputs.node_outputs[has_output], levels_of(self.outputs.hierarchy, nodes)


def margin_calibration(multiple_paths: bool) -> type[MarginCalibration]:
    """Return the calibration of independent margins that suits documents with one path, or with several."""
    return Isotonic if multiple_paths else PathSoftmax


def competes(outputs: OutputSpace) -> bool:
    """Return whether there are paths to compare, and not too many."""
    return len(outputs.terminals) > 1 and len(outputs.hierarchy) <= MANY_NODES


def _fit_softmax_over_paths(
    outputs: OutputSpace, margins: FloatArray, labels: LabelMatrix
) -> tuple[DoubleArray, DoubleArray]:
    """Fit a softmax over terminal nodes, of which each document has at least one; level weights and mixture."""
    if not competes(outputs):
        return np.zeros(LEVELS + 1), neutral_mixture()
    true = sparse.csc_array(outputs.hierarchy.closure(labels))[:, outputs.terminals].toarray().astype(np.bool_)
    true &= margins[:, outputs.terminal_outputs] > ABSENT
    rows = np.flatnonzero(true.any(axis=1))
    if not len(rows):
        return neutral_level_weights(), neutral_mixture()
    return fit_terminals(outputs, margins[rows], true[rows])


def _fit_slopes(parts: FloatArray, true: BoolArray) -> DoubleArray:
    """Fit the coefficients of a level to its positive outputs, its hardest negative ones, and some of the others."""
    if parts.shape[1] == 1 or not true.any():
        return np.array([1.0, 0.0, 0.0])
    negative = np.flatnonzero(~true)
    if len(negative) > HARDEST + OTHERS:
        order = np.argpartition(-parts[negative, 1], HARDEST)
        rest = order[HARDEST:]
        # With replacement: drawing without takes longer than fitting.
        drawn = rest[np.random.default_rng(0).integers(0, len(rest), OTHERS)]
        rows: LongArray = np.concatenate([np.flatnonzero(true), negative[order[:HARDEST]], negative[drawn]])
        weights = np.ones(len(rows))
        weights[-OTHERS:] = len(rest) / OTHERS
    else:
        rows, weights = np.arange(len(true)), np.ones(len(true))
    return fit_logistic(parts[rows], true[rows].astype(np.float64), weights)


@kernel
def log_odds(p: FloatArray) -> FloatArray:
    """Turn probabilities into log odds, in place; what is nearly 0 or 1 is cut at odds of e^-16 and e^16."""
    for row in range(p.shape[0]):
        for node in range(p.shape[1]):
            value = min(max(p[row, node], np.float32(1.2e-7)), np.float32(1 - 1.2e-7))
            p[row, node] = np.log(value / (np.float32(1) - value))
    return p


@kernel
def isotonic_margins(
    margins: FloatArray,
    odds: FloatArray,
    nodes: IntArray,
    outputs: IntArray,
    levels: IntArray,
    coefficients: DoubleArray,
    maps: DoubleArray,
    count: int,
) -> FloatArray:
    """Map the evidence for each node by the map of its level: documents x nodes."""
    p = np.zeros((len(margins), count), np.float32)
    for row in range(len(margins)):
        for column in range(len(nodes)):
            weights = coefficients[levels[column]]
            evidence = weights[0] * margins[row, outputs[column]] + weights[2]
            if len(odds):
                evidence += weights[1] * odds[row, nodes[column]]
            evidence = min(max(evidence, -MOST_LOG_ODDS), MOST_LOG_ODDS)
            p[row, nodes[column]] = isotonic_value(maps[levels[column]], evidence)
    return p
