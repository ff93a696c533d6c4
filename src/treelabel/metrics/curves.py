"""Operating points of a whole corpus: mean hierarchical precision and recall at one threshold for all documents."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelRows, row_numbers, rows_of
from treelabel.metrics.batch import Batch, Context, Parts, Sums, sum_rows
from treelabel.scores.score_kernels import StoredRows, over_stored, score_of

STEPS = 100
THRESHOLDS: DoubleArray = np.arange(1, STEPS + 1) / STEPS


def weight_reached(rows: LongArray, scores: ScoreArray, weights: DoubleArray, documents: int) -> DoubleArray:
    """Sum the weights of the nodes with a score of at least each threshold: shape (documents, thresholds)."""
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
    predicted = weight_reached(row_numbers(scores), scores.data, weights[scores.indices], len(batch))
    of_truth = batch.coherent_scores.look_up(truth)
    shared = weight_reached(row_numbers(truth), of_truth, weights[truth.indices], len(batch))
    whole = sum_rows(truth, weights[truth.indices])[:, None]
    known = whole > 0
    # Nothing predicted yet is the start of the curve, where precision is 1.
    precision = np.divide(shared, predicted, out=np.ones_like(shared), where=predicted > 0) * known
    recall = np.divide(shared, whole, out=np.zeros_like(shared), where=known)
    return precision, recall, known.astype(np.float64)


def hierarchical_points(batch: Batch) -> Parts:
    """Operating points with every node weighing 1."""
    return _points(batch, batch.context.unit_weights)


def information_points(batch: Batch) -> Parts:
    """Operating points with every node weighing the information it adds."""
    return _points(batch, batch.context.information_weights)


def curve(sums: Sums) -> dict[str, DoubleArray]:
    """Threshold, mean precision and mean recall, for plots."""
    precision, recall, known = (np.asarray(part, np.float64) for part in sums)
    documents = known[0] if known[0] > 0 else np.nan
    return {"threshold": THRESHOLDS.copy(), "precision": precision / documents, "recall": recall / documents}


def best_f1(sums: Sums, _: Context) -> float:
    """The largest F1 of mean precision and mean recall over all thresholds.

    Takes the column sums of what `hierarchical_points` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(best_f1(example_sums(hierarchical_points), example_context()), 3)
    0.642
    """
    points = curve(sums)
    precision, recall = points["precision"], points["recall"]
    total = precision + recall
    return float(np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total != 0).max())


def hf1_auc(batch: Batch) -> DoubleArray:
    """Area under hierarchical precision over recall, browsing all thresholds; documents without truth do not count.

    With q(n) the largest score of n and its descendants: for every distinct q of a true node the sets {q > t} and
    {q >= t} are weighed, so a document costs its true nodes x its scores, without sorting. The authors cap children at
    their parents instead, which differs where scores are incoherent: hf1_auc(coherent=min).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> hf1_auc(example()).round(3).tolist()
    [1.0, 0.75, 0.167, nan]
    """
    return _curve_areas(batch, batch.context.unit_weights)


def info_hf1_auc(batch: Batch) -> DoubleArray:
    """The same area with every node weighing the information it adds.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> info_hf1_auc(example()).round(3).tolist()
    [1.0, 0.667, 0.25, nan]
    """
    return _curve_areas(batch, batch.context.information_weights)


def _curve_areas(batch: Batch, weights: DoubleArray) -> DoubleArray:
    truth = rows_of(batch.closed_truth)
    return np.concatenate(over_stored(curve_areas, batch.coherent_scores.rows, truth, weights))


@kernel
def curve_areas(rows: StoredRows, truth: LabelRows, weights: DoubleArray, start: int, stop: int) -> DoubleArray:
    """Compute the curve areas of rows of coherent scores; NaN without true nodes."""
    true_ptr, true_idx = truth
    areas = np.full(stop - start, np.nan)
    everything = weights.sum()
    for row in range(start, stop):
        true = true_idx[true_ptr[row] : true_ptr[row + 1]]
        if len(true) == 0:
            continue
        true_scores = np.empty(len(true), rows.values.dtype)
        for position in range(len(true)):
            true_scores[position] = score_of(rows, row, true[position])
        low, high = rows.ptr[row], rows.ptr[row + 1]
        if rows.is_dense:
            area = curve_area(true_scores, weights[true], rows.values[low:high], weights, 0.0)
        else:
            stored = weights[rows.nodes[low:high]]
            area = curve_area(true_scores, weights[true], rows.values[low:high], stored, everything - stored.sum())
        areas[row - start] = area
    return areas


@kernel
def curve_area(
    true_scores: ScoreArray, true_weights: DoubleArray, scores: ScoreArray, weights: DoubleArray, unstored: float
) -> float:
    """Area under precision over recall of one document, by the trapezoid rule.

    Recall only moves at the scores t of true nodes. There the curve goes from the point of {q > t} to that of {q >= t},
    so it is enough to weigh both sets for every distinct t: no sorting of all nodes. `unstored` is the weight of all
    nodes with score 0 that `scores` does not list.
    """
    # The sort that rules use, too: numba compiles each kind of sort for half a second.
    order = np.argsort(-true_scores, kind="mergesort")
    total = true_weights.sum()
    if total <= 0:
        return np.nan
    area, hit_before = 0.0, 0.0
    index = 0
    while index < len(order):
        threshold = true_scores[order[index]]
        hit_after = hit_before
        while index < len(order) and true_scores[order[index]] == threshold:
            hit_after += true_weights[order[index]]
            index += 1
        above, tied = 0.0, 0.0
        for position in range(len(scores)):
            if scores[position] > threshold:
                above += weights[position]
            elif scores[position] == threshold:
                tied += weights[position]
        if threshold == 0:
            tied += unstored
        precision_before = hit_before / above if above > 0 else 1.0
        precision_after = hit_after / (above + tied) if above + tied > 0 else 1.0
        area += (hit_after - hit_before) / total * (precision_before + precision_after) / 2
        hit_before = hit_after
    return area
