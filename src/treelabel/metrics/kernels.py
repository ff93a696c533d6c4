"""Compiled loops under the metrics. Rows are documents; label rows are sorted without duplicates.

Scores are float32 or float64: each loop is compiled for both.
"""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray, ScoreArray


@kernel
def overlap(
    true_ptr: LongArray,
    true_idx: IntArray,
    pred_ptr: LongArray,
    pred_idx: IntArray,
    is_hit: BoolArray,
    weights: DoubleArray,
    start: int,
    stop: int,
) -> DoubleArray:
    """Weigh prediction, truth and what they share, as `hits` marks it: columns (a, b, c) = (w(S), w(Y), w(S & Y))."""
    result = np.zeros((3, stop - start))
    for row in range(start, stop):
        a, b, c = 0.0, 0.0, 0.0
        for at in range(pred_ptr[row], pred_ptr[row + 1]):
            weight = weights[pred_idx[at]]
            a += weight
            c += weight if is_hit[at] else 0.0
        for at in range(true_ptr[row], true_ptr[row + 1]):
            b += weights[true_idx[at]]
        result[0, row - start] = a
        result[1, row - start] = b
        result[2, row - start] = c
    return result


@kernel
def column_counts(idx: IntArray, marks: BoolArray, columns: int) -> LongArray:
    """Count the marked entries of each column."""
    counts = np.zeros(columns, np.int64)
    for at in range(len(idx)):
        counts[idx[at]] += marks[at]
    return counts


@kernel
def row_sums(ptr: LongArray, values: DoubleArray, start: int, stop: int) -> DoubleArray:
    """Sum the values of each row."""
    sums = np.zeros(stop - start)
    for row in range(start, stop):
        total = 0.0
        for at in range(ptr[row], ptr[row + 1]):
            total += values[at]
        sums[row - start] = total
    return sums


@kernel
def scores_at(
    ptr: LongArray, idx: IntArray, values: ScoreArray, row_ptr: LongArray, row_idx: IntArray, start: int, stop: int
) -> ScoreArray:
    """Look up the CSR scores of the given labels; what is not stored is 0."""
    found = np.zeros(row_ptr[stop] - row_ptr[start], values.dtype)
    for row in range(start, stop):
        left = ptr[row]
        for at in range(row_ptr[row], row_ptr[row + 1]):
            while left < ptr[row + 1] and idx[left] < row_idx[at]:
                left += 1
            if left < ptr[row + 1] and idx[left] == row_idx[at]:
                found[at - row_ptr[start]] = values[left]
    return found


@kernel
def insert_by_score(names: IntArray, scores: ScoreArray, size: int, name: int, score: float) -> int:
    """Put a label into a list ordered by descending score, keeping its length; equals stay in order of arrival."""
    limit = len(names)
    if size == limit and score <= scores[limit - 1]:
        return size
    at = min(size, limit - 1)
    while at > 0 and scores[at - 1] < score:
        names[at] = names[at - 1]
        scores[at] = scores[at - 1]
        at -= 1
    names[at] = name
    scores[at] = score
    return min(size + 1, limit)


@kernel
def ranking_csr(ptr: LongArray, idx: IntArray, values: ScoreArray, start: int, stop: int, count: int) -> IntArray:
    """Rank the `count` best labels of CSR rows, best first, lower ids first among equals; -1 fills up."""
    ranks = np.full((stop - start, count), -1, np.int32)
    best = np.empty(count, values.dtype)
    for row in range(start, stop):
        size = 0
        for at in range(ptr[row], ptr[row + 1]):
            size = insert_by_score(ranks[row - start], best, size, idx[at], values[at])
    return ranks


@kernel
def ranking_dense(values: ScoreArray, start: int, stop: int, count: int) -> IntArray:
    """The same for dense rows; labels with score 0 are not ranked."""
    ranks = np.full((stop - start, count), -1, np.int32)
    best = np.empty(count, values.dtype)
    for row in range(start, stop):
        size = 0
        for node in range(values.shape[1]):
            if values[row, node] > 0:
                size = insert_by_score(ranks[row - start], best, size, node, values[row, node])
    return ranks


@kernel
def ranking_hits(ranks: IntArray, true_ptr: LongArray, true_idx: IntArray, start: int, stop: int) -> BoolArray:
    """Mark the ranked labels that are true."""
    marks = np.zeros((stop - start, ranks.shape[1]), np.bool_)
    for row in range(start, stop):
        true = true_idx[true_ptr[row] : true_ptr[row + 1]]
        for place in range(ranks.shape[1]):
            at = np.searchsorted(true, ranks[row, place])
            marks[row - start, place] = at < len(true) and true[at] == ranks[row, place]
    return marks


@kernel
def curve_area(
    true_scores: ScoreArray, true_weights: DoubleArray, scores: ScoreArray, weights: DoubleArray, unstored: float
) -> float:
    """Area under precision over recall of one document, by the trapezoid rule.

    Recall only moves at the scores t of true nodes. There the curve goes from the point of {q > t} to that of {q >= t},
    so it is enough to weigh both sets for every distinct t: no sorting of all nodes. `unstored` is the weight of all
    nodes with score 0 that `scores` does not list.
    """
    order = np.argsort(-true_scores)
    total = true_weights.sum()
    if total <= 0:
        return np.nan
    area, hit_before = 0.0, 0.0
    at = 0
    while at < len(order):
        threshold = true_scores[order[at]]
        hit_after = hit_before
        while at < len(order) and true_scores[order[at]] == threshold:
            hit_after += true_weights[order[at]]
            at += 1
        above, tied = 0.0, 0.0
        for place in range(len(scores)):
            if scores[place] > threshold:
                above += weights[place]
            elif scores[place] == threshold:
                tied += weights[place]
        if threshold == 0:
            tied += unstored
        precision_before = hit_before / above if above > 0 else 1.0
        precision_after = hit_after / (above + tied) if above + tied > 0 else 1.0
        area += (hit_after - hit_before) / total * (precision_before + precision_after) / 2
        hit_before = hit_after
    return area


@kernel
def curve_areas_dense(
    true_ptr: LongArray, true_idx: IntArray, values: ScoreArray, weights: DoubleArray, start: int, stop: int
) -> DoubleArray:
    """Curve areas of dense rows of coherent scores; NaN without true nodes."""
    areas = np.full(stop - start, np.nan)
    for row in range(start, stop):
        true = true_idx[true_ptr[row] : true_ptr[row + 1]]
        if len(true):
            areas[row - start] = curve_area(values[row][true], weights[true], values[row], weights, 0.0)
    return areas


@kernel
def curve_areas_csr(
    true_ptr: LongArray,
    true_idx: IntArray,
    ptr: LongArray,
    idx: IntArray,
    values: ScoreArray,
    weights: DoubleArray,
    start: int,
    stop: int,
) -> DoubleArray:
    """Curve areas of CSR rows of coherent scores."""
    areas = np.full(stop - start, np.nan)
    everything = weights.sum()
    for row in range(start, stop):
        true = true_idx[true_ptr[row] : true_ptr[row + 1]]
        if len(true) == 0:
            continue
        nodes = idx[ptr[row] : ptr[row + 1]]
        stored = values[ptr[row] : ptr[row + 1]]
        true_scores = np.zeros(len(true), values.dtype)
        for place in range(len(true)):
            at = np.searchsorted(nodes, true[place])
            if at < len(nodes) and nodes[at] == true[place]:
                true_scores[place] = stored[at]
        row_weights = weights[nodes]
        unstored = everything - row_weights.sum()
        areas[row - start] = curve_area(true_scores, weights[true], stored, row_weights, unstored)
    return areas


@kernel
def standing(row_ptr: LongArray, row_idx: IntArray, ptr: LongArray, idx: IntArray, nodes: int) -> BoolArray:
    """Mark the labels of each row whose parents are all marked; `ptr`, `idx` list the parents of every stored label."""
    keep = np.zeros(len(row_idx), np.bool_)
    stamp = np.zeros(nodes, np.int64)
    for row in range(len(row_ptr) - 1):
        # Parents have lower ids, so they are settled first.
        for at in range(row_ptr[row], row_ptr[row + 1]):
            stands = True
            for above in idx[ptr[at] : ptr[at + 1]]:
                stands = stands and stamp[above] == row + 1
            if stands:
                keep[at] = True
                stamp[row_idx[at]] = row + 1
    return keep
