"""The cost of a required precision: how many documents still get a label, how deep it is, how often it is right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.evaluation.alignment import validation
from treelabel.evaluation.statistics import Interval, binomial_interval
from treelabel.rules.precise import Ways, precise_thresholds
from treelabel.scores import Scores

PRECISIONS: Final = (0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
FOLDS: Final = 5


@dataclass(frozen=True)
class BackOffRow:
    """The effect of `back_off` for a required precision, measured on documents that its thresholds were not found on.

    `coverage` is the share of documents with a label, `leaf_coverage` of those with a leaf, `mean_depth` that of the
    labels, `precision` the share of them that are true, with its Clopper-Pearson interval.
    """

    required: float
    coverage: float
    leaf_coverage: float
    mean_depth: float
    precision: Interval

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by name; what is not known is None."""
        named = {
            "required precision": self.required,
            "precision": self.precision.value,
            "precision low": self.precision.low,
            "precision high": self.precision.high,
            "share of documents with a label": self.coverage,
            "share of documents with a leaf": self.leaf_coverage,
            "mean depth": self.mean_depth,
        }
        return {name: None if math.isnan(value) else value for name, value in named.items()}


@dataclass(frozen=True)
class BackOffTable:
    """A row for each required precision; `str` is a table for people."""

    documents: int
    rows: tuple[BackOffRow, ...]

    def __str__(self) -> str:
        lines = [f"{'required':<10}{'with a label':<14}{'with a leaf':<13}{'mean depth':<12}precision [95% interval]"]
        for row in self.rows:
            depth = "-" if math.isnan(row.mean_depth) else f"{row.mean_depth:.2f}"
            reached = "-" if math.isnan(row.precision.value) else str(row.precision)
            shares = f"{row.coverage:<14.1%}{row.leaf_coverage:<13.1%}"
            lines.append(f"{row.required:<10g}{shares}{depth:<12}{reached}")
        how = f"{self.documents:,} documents in {FOLDS} folds, each by thresholds found on the others"
        return "\n".join([*lines, how])


def back_off_table(
    truth: Any, scores: Scores, precisions: Sequence[float] = PRECISIONS, confidence: float = 0.9
) -> BackOffTable:
    """Measure what `back_off` does for several required precisions, each on documents not used for its thresholds.

    Parameters
    ----------
    truth : Dataset, lists of names or label matrix
        The labels of validation documents; those with ids are matched by them. Documents of a group are in one fold.
    scores : Scores
        Their scores.
    precisions : sequence of float
        The precisions to require.
    confidence : float
        As for `tune(truth, scores, "back_off(precision=0.95, confidence=0.9)")`.

    Returns
    -------
    BackOffTable

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.flat(["A", "B"])
    >>> sure = Scores(h, [[0.9, 0.1]] * 30 + [[0.4, 0.6]] * 30)
    >>> table = back_off_table([["A"]] * 45 + [["B"]] * 15, sure, [0.9], confidence=0)
    >>> table.rows[0].coverage, str(table.rows[0].precision)
    (0.5, '1.0000 [0.8843, 1.0000]')
    """
    kept, true = validation(truth, scores)
    ways, groups = Ways.of(kept, true), getattr(truth, "groups", None)
    return BackOffTable(len(kept), tuple(back_off_row(ways, each, confidence, groups) for each in precisions))


def back_off_row(ways: Ways, required: float, confidence: float, groups: Sequence[str] | None = None) -> BackOffRow:
    """Measure one required precision by cross-fitting; a fold without thresholds predicts nothing.

    Parameters
    ----------
    ways
        The ways up from the best leaves, and what is true of them.
    required
        The required precision.
    confidence
        The confidence with which thresholds must reach it.
    groups
        The group of each document; documents of one group are in one fold.

    Returns
    -------
    BackOffRow
    """
    unit = np.arange(ways.documents)
    if groups is not None:
        unit = np.unique(np.asarray(groups, dtype=object), return_inverse=True)[1]
    # Documents often come sorted by their labels, so that folds are drawn.
    fold = np.random.default_rng(0).permutation(int(unit.max()) + 1)[unit] % FOLDS
    found: list[tuple[Any, ...]] = []
    for at in range(FOLDS):
        try:
            t = precise_thresholds(ways.among(fold != at), required, confidence)
        except TreelabelError:
            continue
        found.append(ways.among(fold == at).judged(t))
    is_right, is_leaf, depth = (np.concatenate([[], *(part[which] for part in found)]) for which in range(3))
    return BackOffRow(
        float(required),
        len(is_right) / ways.documents,
        float(is_leaf.sum()) / ways.documents,
        float(depth.mean()) if len(depth) else float("nan"),
        binomial_interval(int(is_right.sum()), len(is_right)),
    )
