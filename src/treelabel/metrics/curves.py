"""Operating points of a whole corpus: mean hierarchical precision and recall at one threshold for all documents."""

import numpy as np

from treelabel.core.types import DoubleArray, LongArray, ScoreArray
from treelabel.hierarchy import row_numbers
from treelabel.metrics.batch import Batch, Context, sum_rows
from treelabel.metrics.metric import Parts, Sums

STEPS = 100
THRESHOLDS: DoubleArray = np.arange(1, STEPS + 1) / STEPS


def _weight_reached(rows: LongArray, scores: ScoreArray, weights: DoubleArray, documents: int) -> DoubleArray:
    """The weight of the nodes with a score of at least each threshold, by document."""
    # Compared in the precision of the scores: 0.1 reaches 0.1.
    passed = np.searchsorted(THRESHOLDS.astype(scores.dtype), scores, side="right")
    by_step = np.bincount(rows * (STEPS + 1) + passed, weights=weights, minlength=documents * (STEPS + 1))
    # Without entries bincount forgets that it was given weights.
    reached: DoubleArray = by_step.astype(np.float64).reshape(documents, STEPS + 1)[:, ::-1].cumsum(axis=1)[:, ::-1]
    return reached[:, 1:]


def _points(batch: Batch, weights: DoubleArray) -> Parts:
    """Precision and recall of each document at each threshold, and whether it has truth at all.

    Thresholds 0.01, 0.02, ..., 1 on q(n), the largest score of n and its descendants. A document costs its scores and
    the thresholds.
    """
    scores, truth = batch.coherent_scores.csr(), batch.closed_truth
    predicted = _weight_reached(row_numbers(scores), scores.data, weights[scores.indices], len(batch))
    at_truth = batch.scores_at(truth, batch.coherent_scores)
    shared = _weight_reached(row_numbers(truth), at_truth, weights[truth.indices], len(batch))
    whole = sum_rows(truth, weights[truth.indices])[:, None]
    known = whole > 0
    # Nothing predicted yet is the start of the curve, where precision is 1.
    precision = np.divide(shared, predicted, out=np.ones_like(shared), where=predicted > 0) * known
    recall = np.divide(shared, whole, out=np.zeros_like(shared), where=known)
    return precision, recall, known.astype(np.float64)


def hierarchical_points(batch: Batch, _: float = 0) -> Parts:
    """Operating points with every node weighing 1."""
    return _points(batch, batch.context.unit_weights)


def information_points(batch: Batch, _: float = 0) -> Parts:
    """Operating points with every node weighing the information it adds."""
    return _points(batch, batch.context.information_weights)


def curve(sums: Sums) -> dict[str, DoubleArray]:
    """Threshold, mean precision and mean recall, for plots."""
    precision, recall, known = (np.asarray(part, np.float64) for part in sums)
    documents = known[0] if known[0] > 0 else np.nan
    return {
        "threshold": THRESHOLDS.copy(),
        "precision": precision / documents,
        "recall": recall / documents,
    }


def best_f1(sums: Sums, _: Context, __: float) -> float:
    """The largest F1 of mean precision and mean recall over all thresholds.

    Takes the column sums of what `hierarchical_points` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(best_f1(example_sums(hierarchical_points), example_context(), 0), 3)
    0.741
    """
    points = curve(sums)
    precision, recall = points["precision"], points["recall"]
    total = precision + recall
    return float(np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total != 0).max())
