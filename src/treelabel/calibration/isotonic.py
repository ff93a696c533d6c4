"""Documents with several paths: isotonic regression per level of what speaks for a node, made coherent.

What speaks for a node is its own margin, and how it does against all other nodes of the document: the log odds of a
softmax over paths. By the margin alone, labels that exclude each other are all promised where each looks likely.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from treelabel.calibration.base import LARGEST_PARAMETER, Calibration
from treelabel.calibration.fitting import fit_logistic
from treelabel.calibration.outputs import ABSENT, LEVELS, Outputs
from treelabel.calibration.path_softmax import PathSoftmax, fit_terminals
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.bounded_memory import MANY_NODES
from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy import LabelMatrix
from treelabel.scores import Scores

# The range of evidence is divided into this many steps: no probability changes visibly.
STEPS = 400
# Log odds beyond this make no difference.
MOST_EVIDENCE = 15.0
# Negative outputs of a level that its slopes are fitted to: this many of the hardest, and of the others.
HARDEST = 30_000
OTHERS = 30_000
# Log odds of a model of all documents count this times ln(documents after / before) less than those of folds: on random
# parts of the training documents of three sets, sums of probabilities are then 1 to 2% above the truth, not 2 to 4%.
GROWTH = 0.3


@dataclass(frozen=True, eq=False)
class Isotonic(Calibration):
    """P(n) = isotonic function of a x margin + b x log odds of n in a softmax over paths + c, by level.

    Nodes are then raised to the largest of their children. Where there are more than 20,000 nodes, b is 0: a softmax
    over so many paths is not computed for every node.

    Parameters
    ----------
    outputs : Outputs
        What the margins stand for.
    level_weights, mixture : arrays of shapes (LEVELS + 1,) and (3,)
        Those of the softmax; see `PathSoftmax`.
    coefficients : array of shape (LEVELS + 1, 3)
        a, b and c.
    maps : array of shape (LEVELS + 1, STEPS + 3)
        The smallest and the largest evidence, and the probabilities at equal steps between them.
    """

    outputs: Outputs
    level_weights: DoubleArray
    mixture: DoubleArray
    coefficients: DoubleArray
    maps: DoubleArray

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, labels: LabelMatrix) -> "Isotonic":
        """Fit the softmax, the coefficients and the maps; see `Calibration.fit`."""
        plain = cls(outputs, *_softmax_over_paths(outputs, margins, labels), *_nothing_known())
        nodes, own, levels = plain._places
        true = sparse.csc_array(outputs.hierarchy.closure(labels))[:, nodes].toarray().astype(np.bool_)
        odds = plain._log_odds(margins)
        for level in np.unique(levels):
            at = np.flatnonzero(levels == level)
            given, hits = margins[:, own[at]], true[:, at]
            known = given > ABSENT
            if not known.any():
                continue
            parts = [given[known]] if odds is None else [given[known], odds[:, nodes[at]][known]]
            found = _fit_slopes(np.column_stack(parts), hits[known])
            plain.coefficients[level] = found
            evidence = _evidence(parts[0], 0 if odds is None else parts[1], found)
            plain.maps[level] = fit_isotonic(evidence, hits[known])
        return plain

    def for_more_documents(self, ratio: float) -> "Isotonic":
        """Return the same with smaller log odds; see `Calibration.for_more_documents`."""
        if not competes(self.outputs):
            # Evidence is a margin then, which has another unit.
            return self
        return replace(self, coefficients=self.coefficients + np.array([0.0, 0.0, GROWTH * np.log(ratio)]))

    def arrays(self) -> Arrays:
        """Return the fitted parameters, to save."""
        return {name: getattr(self, name) for name in ("level_weights", "mixture", "coefficients", "maps")}

    @staticmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns."""
        softmax = PathSoftmax.schema()
        return {
            "level_weights": softmax["level_weights"],
            "mixture": softmax["mixture"],
            "coefficients": Array("float64", (str(LEVELS + 1), "3"), -LARGEST_PARAMETER, LARGEST_PARAMETER),
            "maps": Array("float64", (str(LEVELS + 1), str(STEPS + 3))),
        }

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse maps without a range of evidence, or with values that are no probabilities."""
        maps = arrays["maps"]
        if (maps[:, 0] >= maps[:, 1]).any():
            raise TreelabelError("maps holds a smallest margin that is not below the largest")
        if not ((maps[:, 2:] >= 0) & (maps[:, 2:] <= 1)).all():
            raise TreelabelError("maps holds what is no probability")
        if arrays["coefficients"][:, 1].any():
            PathSoftmax.check(outputs, arrays)

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "Isotonic":
        """Make a calibration of what `arrays` returned."""
        return cls(outputs, *(arrays[name] for name in ("level_weights", "mixture", "coefficients", "maps")))

    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        h = self.outputs.hierarchy
        odds = self._log_odds(margins) if self.coefficients[:, 1].any() else None
        given = np.zeros((0, 0), np.float32) if odds is None else odds
        values = apply_isotonic(margins, given, *self._places, self.coefficients, self.maps, len(h))
        return Scores(h, values).coherent().dense()

    def _log_odds(self, margins: FloatArray) -> FloatArray | None:
        """Compute the log odds of nodes in the softmax over paths: documents x nodes; None where there is none."""
        if not competes(self.outputs):
            return None
        softmax = PathSoftmax(self.outputs, self.level_weights, self.mixture, np.zeros(LEVELS + 1))
        return log_odds(softmax.block(margins))

    @cached_property
    def _places(self) -> tuple[IntArray, IntArray, IntArray]:
        has = self.outputs.node_outputs >= 0
        nodes = self.outputs.nodes[has]
        return nodes, self.outputs.node_outputs[has], self.outputs.levels(nodes)


def competes(outputs: Outputs) -> bool:
    """Return whether there are paths to compare, and not too many."""
    return len(outputs.terminals) > 1 and len(outputs.hierarchy) <= MANY_NODES


def _softmax_over_paths(outputs: Outputs, margins: FloatArray, labels: LabelMatrix) -> tuple[DoubleArray, DoubleArray]:
    """Fit a softmax over terminal nodes, of which each document has at least one; level weights and mixture."""
    weights, mixture = np.zeros(LEVELS + 1), np.array([1.0, 1.0, 0.0])
    if not competes(outputs):
        return weights, mixture
    true = sparse.csc_array(outputs.hierarchy.closure(labels))[:, outputs.terminals].toarray().astype(np.bool_)
    true &= margins[:, outputs.terminal_outputs] > ABSENT
    rows = np.flatnonzero(true.any(axis=1))
    weights[0] = 5.0
    return fit_terminals(outputs, margins[rows], true[rows]) if len(rows) else (weights, mixture)


def _nothing_known() -> tuple[DoubleArray, DoubleArray]:
    """Coefficients and maps of levels that nothing is known of: their outputs are never taken for true."""
    maps = np.tile(np.concatenate([[-1.0, 1.0], np.zeros(STEPS + 1)]), (LEVELS + 1, 1))
    return np.tile([1.0, 0.0, 0.0], (LEVELS + 1, 1)), maps


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
        kept: LongArray = np.concatenate([np.flatnonzero(true), negative[order[:HARDEST]], negative[drawn]])
        weights = np.ones(len(kept))
        weights[-OTHERS:] = len(rest) / OTHERS
    else:
        kept, weights = np.arange(len(true)), np.ones(len(true))
    return fit_logistic(parts[kept], true[kept].astype(np.float64), weights)


def _evidence(margins: FloatArray, odds: FloatArray | int, coefficients: DoubleArray) -> FloatArray:
    found = coefficients[0] * margins + coefficients[1] * odds + coefficients[2]
    clipped: FloatArray = np.clip(found, -MOST_EVIDENCE, MOST_EVIDENCE).astype(np.float32)
    return clipped


def fit_isotonic(margins: FloatArray, true: BoolArray) -> DoubleArray:
    """Fit the increasing map from evidence to probabilities with the least squared error (isotonic regression).

    Parameters
    ----------
    margins : array of shape (n,)
        Margins.
    true : array of shape (n,)
        Whether each is one of a true label.

    Returns
    -------
    array of shape (STEPS + 3,)
        The smallest and the largest margin, and the probabilities at equal steps between them.
    """
    from sklearn.isotonic import isotonic_regression

    low, high = float(margins.min()), float(margins.max()) + 1e-6
    place = ((margins - low) / (high - low) * STEPS).astype(np.int64)
    total = np.bincount(place, minlength=STEPS + 1).astype(np.float64)
    right = np.bincount(place[true], minlength=STEPS + 1)
    seen = np.flatnonzero(total)
    # Half a document of each kind in all keeps both ends away from 0 and 1, which nothing can be sure of.
    prior = 0.5 / len(margins)
    found = isotonic_regression(
        (right[seen] + prior * total[seen]) / (total[seen] * (1 + 2 * prior)), sample_weight=total[seen]
    )
    fitted: DoubleArray = np.concatenate([[low, high], np.interp(np.arange(STEPS + 1), seen, found)])
    return fitted


@kernel
def log_odds(p: FloatArray) -> FloatArray:
    """Turn probabilities into log odds, in place; what is nearly 0 or 1 is cut at odds of e^-16 and e^16."""
    for row in range(p.shape[0]):
        for node in range(p.shape[1]):
            value = min(max(p[row, node], np.float32(1.2e-7)), np.float32(1 - 1.2e-7))
            p[row, node] = np.log(value / (np.float32(1) - value))
    return p


@kernel
def apply_isotonic(
    margins: FloatArray,
    odds: FloatArray,
    nodes: IntArray,
    outputs: IntArray,
    levels: IntArray,
    coefficients: DoubleArray,
    maps: DoubleArray,
    count: int,
) -> FloatArray:
    """Map what speaks for each node by the map of its level, which is linear between its steps: documents x nodes."""
    found = np.zeros((len(margins), count), np.float32)
    last = maps.shape[1] - 3
    for row in range(len(margins)):
        for at in range(len(nodes)):
            fitted, weights = maps[levels[at]], coefficients[levels[at]]
            evidence = weights[0] * margins[row, outputs[at]] + weights[2]
            if len(odds):
                evidence += weights[1] * odds[row, nodes[at]]
            evidence = min(max(evidence, -MOST_EVIDENCE), MOST_EVIDENCE)
            place = (evidence - fitted[0]) / (fitted[1] - fitted[0]) * last - 0.5
            place = min(max(place, 0.0), float(last))
            low = min(int(place), last - 1)
            part = place - low
            found[row, nodes[at]] = (1 - part) * fitted[2 + low] + part * fitted[3 + low]
    return found
