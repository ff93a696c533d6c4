"""Rules for metrics of label counts over all documents: what is best for one document depends on the others.

Scores are taken as marginals, and counts as their expectations: a label that is predicted for documents with scores
p_1, ..., p_m has an expected F1 of about 2 (p_1 + ... + p_m) / (m + t), t being the sum of its scores over all
documents. This is close where there are many documents and scores are calibrated.
"""

from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelMatrix, keep_entries, matches, rows_of
from treelabel.rules.score_rows import ScoreRows
from treelabel.rules.threshold import above, top_k, whole_number
from treelabel.scores.score_matrix import Scores

# A pass of block coordinate ascent that gains less than this share of the value is the last one.
TOLERANCE = 1e-5


def micro_f1(scores: Scores) -> LabelMatrix:
    """Predict {p > F / 2}, F the largest micro F1 to be expected with one threshold for all labels.

    The best F of a ratio is found by Dinkelbach's method: predict what gains at the present F, compute F anew; a few
    passes over the scores. Coherent scores make closed sets.

    >>> from treelabel.hierarchy import Hierarchy
    >>> micro_f1(Scores(Hierarchy.flat(["A", "B"]), [[0.9, 0.1], [0.5, 0.2]])).indices.tolist()
    [0, 0]
    """
    return above(scores, _best_ratios(scores, of_all=True) / 2)


def macro_f1(scores: Scores) -> LabelMatrix:
    """Predict {p > F_l / 2}, F_l the largest F1 of label l to be expected with one threshold for each label.

    >>> from treelabel.hierarchy import Hierarchy
    >>> macro_f1(Scores(Hierarchy.flat(["A", "B"]), [[0.9, 0.1], [0.5, 0.2]])).indices.tolist()
    [0, 0, 1]
    """
    return above(scores, _best_ratios(scores, of_all=False) / 2)


def _best_ratios(scores: Scores, of_all: bool) -> DoubleArray:
    """Find, for each label or for all together, the largest 2 sum of p / (m + t) over sets of m scores."""
    total = _column_sums(scores)
    whole = total.sum() if of_all else total
    ratio = np.zeros(len(scores.hierarchy))
    while True:
        selected = above(scores, ratio / 2)
        hits, predicted = _column_sums(scores, selected), np.bincount(selected.indices, minlength=len(ratio))
        if of_all:
            hits, predicted = hits.sum(), predicted.sum()
        larger = np.divide(2 * hits, predicted + whole, out=np.zeros(np.shape(whole)), where=whole > 0)
        # Each step raises the ratio until none does; rounding must not keep it going.
        if not (larger > ratio * (1 + 1e-12)).any():
            return ratio
        ratio = np.maximum(ratio, larger)


def _column_sums(scores: Scores, selected: LabelMatrix | None = None) -> DoubleArray:
    """Sum the scores of each label, all or only the selected ones, in double precision."""
    values, size = scores.values, len(scores.hierarchy)
    if selected is not None:
        return _sum_by_label(selected.indices, scores.look_up(selected), size)
    if scores.is_sparse:
        return _sum_by_label(values.indices, values.data, size)
    return np.asarray(values.sum(axis=0, dtype=np.float64))


def _sum_by_label(labels: IntArray, values: ScoreArray, size: int) -> DoubleArray:
    return np.bincount(labels, weights=values, minlength=size).astype(np.float64, copy=False)


def macro_f1_at_k(scores: Scores, k: int = 5, at_most: bool = False, seed: int = 0) -> LabelMatrix:
    """Predict k labels per document so that the expected macro F1 over all documents is as large as can be found.

    Block coordinate ascent (Schultheis et al. 2023): beginning with the k best labels of each document, take one
    document after the other in random order, and choose for it the k labels that raise the macro F1 most, given what
    is predicted for the others. No step lowers the expected macro F1, so the result is never worse than `top_k` in
    expectation. With `at_most`, labels that would lower it are left out, so that a document may get fewer. Only
    stored scores are candidates; each pass is linear in them, on one core, and some ten passes do.

    Parameters
    ----------
    scores
        The scores of the whole test set.
    k
        How many labels each document gets.
    at_most
        Whether a document may get fewer.
    seed
        Takes the documents in the same order again.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> s = Scores(Hierarchy.flat(["head", "tail"]), [[0.9, 0.5], [0.8, 0.1], [0.9, 0.01]])
    >>> macro_f1_at_k(s, 1).indices.tolist()
    [1, 0, 0]
    """
    return ascend(scores, np.ones(len(scores.hierarchy)), k, at_most, seed)


def binned_macro_f1_at_k(
    scores: Scores,
    frequencies: LongArray,
    k: int = 5,
    bin_edges: tuple[int, ...] = (1, 10, 100, 1000),
    at_most: bool = False,
    seed: int = 0,
) -> LabelMatrix:
    """Predict k labels per document for the mean over bins of training frequency of their macro F1.

    As `macro_f1_at_k`, labels weighing 1 / labels of their bin; those never seen in training weigh nothing, as in the
    metric: one is chosen only where every other label would lower the value.

    Parameters
    ----------
    scores, k, at_most, seed
        As in `macro_f1_at_k`.
    frequencies : array of shape (nodes,)
        The training documents of each label.
    bin_edges
        The least frequency of each bin.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    bins = np.searchsorted(np.asarray(bin_edges), np.asarray(frequencies), side="right")
    sizes = np.bincount(bins, minlength=len(bin_edges) + 1)
    weights = np.where(bins > 0, 1 / sizes[bins], 0.0)
    return ascend(scores, weights * len(weights), k, at_most, seed)


def ascend(scores: Scores, weights: DoubleArray, k: int, at_most: bool = False, seed: int = 0) -> LabelMatrix:
    """Choose k labels per document by block coordinate ascent on the sum of weights x expected F1 over labels.

    Parameters
    ----------
    scores, k, at_most, seed
        As in `macro_f1_at_k`.
    weights : array of shape (nodes,)
        The weight of each label's F1.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    count = whole_number(k, "k")
    matrix = scores.csr()
    rows = ScoreRows(*rows_of(matrix), matrix.data, 0, len(scores))
    chosen = matches(top_k(Scores(scores.hierarchy, matrix), count), matrix)
    total = _sum_by_label(matrix.indices, matrix.data, matrix.shape[1])
    sums = LabelTotals(weights, total, np.zeros_like(total), np.zeros_like(total))
    rng = np.random.default_rng(seed)
    value = -np.inf
    while True:
        reached = sweep(rows, sums, chosen, rng.permutation(len(scores)), count, at_most)
        if not reached > value + TOLERANCE * abs(reached):
            return keep_entries(matrix, chosen)
        value = reached


class LabelTotals(NamedTuple):
    """Sums by label: its weight, the sum of all its scores, that of the predicted ones, and how many these are."""

    weights: DoubleArray
    total: DoubleArray
    hits: DoubleArray
    predicted: DoubleArray


@kernel
def largest_gains(
    labels: IntArray, values: ScoreArray, sums: LabelTotals, at_most: bool, gains: DoubleArray, places: LongArray
) -> int:
    """Find the labels of a document that raise the value most, the largest first; return how many there are.

    Predicting label l with score p raises its F1 / 2 from h / (m + t) to (h + p) / (m + 1 + t).
    """
    held, last = 0, len(gains) - 1
    for index in range(len(labels)):
        label = labels[index]
        size, hits = sums.predicted[label] + sums.total[label], sums.hits[label]
        gain = sums.weights[label] * ((hits + values[index]) / (size + 1) - hits / size)
        if (at_most and gain <= 0) or (held > last and gain <= gains[last]):
            continue
        hole = min(held, last)
        while hole > 0 and gains[hole - 1] < gain:
            gains[hole], places[hole] = gains[hole - 1], places[hole - 1]
            hole -= 1
        gains[hole], places[hole] = gain, index
        held = min(held + 1, last + 1)
    return held


@kernel
def sweep(rows: ScoreRows, sums: LabelTotals, chosen: BoolArray, order: LongArray, k: int, at_most: bool) -> float:
    """Choose the labels of each document anew, given those of all others; return the value that is reached."""
    ptr, labels, values = rows.ptr, rows.nodes, rows.values
    hits, predicted, total = sums.hits, sums.predicted, sums.total
    hits[:], predicted[:] = 0.0, 0.0
    for index in range(len(labels)):
        if chosen[index]:
            hits[labels[index]] += values[index]
            predicted[labels[index]] += 1
    gains, places = np.empty(k), np.empty(k, np.int64)
    for row in order:
        low, high = ptr[row], ptr[row + 1]
        for index in range(low, high):
            if chosen[index]:
                chosen[index] = False
                hits[labels[index]] -= values[index]
                predicted[labels[index]] -= 1
        held = largest_gains(labels[low:high], values[low:high], sums, at_most, gains, places)
        for slot in range(held):
            index = low + places[slot]
            chosen[index] = True
            hits[labels[index]] += values[index]
            predicted[labels[index]] += 1
    value = 0.0
    for label in range(len(total)):
        if total[label] > 0:
            value += sums.weights[label] * 2 * hits[label] / (predicted[label] + total[label])
    return value
