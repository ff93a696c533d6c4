"""Metrics of a whole ranking of the labels by their scores: every true label against every false one.

Truth is closed, as everywhere; a label without a stored score has 0. Equal scores are no order: they count against the
ranking in three metrics, as in scikit-learn, and half in areas under the ROC curve.
"""

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelRows, row_numbers, rows_of
from treelabel.metrics.batch import Batch, Context, Parts, Sums, Value
from treelabel.metrics.probabilities import best_node
from treelabel.metrics.shared_formulas import with_mean
from treelabel.scores.score_kernels import StoredRows, over_stored

# Scores that share their first 16 bits in single precision (a factor of at most 1 + 2^-7) count as equal in micro_auc.
SCORE_BINS = 0x3F81
# In macro_auc, scores are told apart over so many factors of 2, and labels x bins are at most so many where possible.
OCTAVES, MOST_COUNTS = 20, 2**18


def _compared(batch: Batch) -> DoubleArray:
    """Compute what `compare_labels` returns, once for all metrics here."""
    if compare_labels not in batch._tables:
        truth = batch.closed_truth
        arguments = rows_of(truth), len(batch.hierarchy), batch.scores.look_up(truth)
        batch._tables[compare_labels] = np.concatenate(over_stored(compare_labels, batch.scores.rows, *arguments))
    table: DoubleArray = batch._tables[compare_labels]
    return table


def ranking_loss(batch: Batch) -> DoubleArray:
    """Share of the pairs of a true and a false label in which the true one does not score higher (lower is better).

    |{(t, f) : s(t) <= s(f)}| / (|Y| (nodes - |Y|)); 0 where all labels are true, or none is (scikit-learn's
    `label_ranking_loss`; Wu and Zhou 2017).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> ranking_loss(example()).round(3).tolist()
    [0.0, 0.333, 0.5, 0.0]
    """
    return _compared(batch)[:, 0]


def label_ranking_average_precision(batch: Batch) -> DoubleArray:
    """Mean over true labels of the share of true ones among the labels that score at least as high.

    1 where all labels are true, or none is (scikit-learn's `label_ranking_average_precision_score`).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> label_ranking_average_precision(example()).round(3).tolist()
    [1.0, 0.75, 0.333, 1.0]
    """
    return _compared(batch)[:, 1]


def coverage_error(batch: Batch) -> DoubleArray:
    """How far down the ranking the last true label is: labels that score at least as high as the lowest true one.

    0 without true labels (scikit-learn's `coverage_error`; what papers call coverage is one less). Lower is better.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> coverage_error(example()).round(3).tolist()
    [2.0, 4.0, 3.0, 0.0]
    """
    return _compared(batch)[:, 2]


def instance_auc(batch: Batch) -> DoubleArray:
    """Area under the ROC curve of each document's labels: share of pairs of a true and a false label in order.

    Equal scores count half. Documents in which all labels are true, or none is, do not count.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> instance_auc(example()).round(3).tolist()
    [1.0, 0.75, 0.625, nan]
    """
    return _compared(batch)[:, 3]


def one_error(batch: Batch) -> DoubleArray:
    """1 where the label with the highest score (of equal ones the lowest id) is not true; so, too, without true labels.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> one_error(example()).round(3).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    return 1.0 - best_node(batch, np.ones(len(batch.hierarchy), np.bool_))[1].astype(np.float64)


def score_bins(batch: Batch) -> Parts:
    """Count true labels, and all labels, by score: two sparse matrices of shape (documents, bins of close scores)."""
    truth, rows = batch.closed_truth, batch.scores.rows
    true = StoredRows(*rows_of(truth), batch.scores.look_up(truth), False)
    matrices = []
    for values, nodes in ((true, 0), (rows, len(batch.hierarchy))):
        parts = over_stored(count_bins, values, nodes, SCORE_BINS)
        counts, columns, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
        shape = len(batch), SCORE_BINS
        matrices.append(sparse.csr_array((counts, columns, np.append(0, np.cumsum(sizes))), shape))
    return tuple(matrices)


def micro_auc(sums: Sums, _: Context) -> float:
    """Area under the ROC curve of all pairs of a document and a label; equal scores count half.

    Scores that share their first 16 bits in single precision (within 1%) count as equal, so that the value is one of
    sums over documents. NaN where all pairs are true, or none is.

    Takes the column sums of what `score_bins` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(micro_auc(example_sums(score_bins), example_context()), 3)
    0.76
    """
    positive, every = (np.asarray(part, np.float64) for part in sums)
    return float(roc_areas(positive, every, len(every), every.sum())[0])


def bins_per_octave(nodes: int) -> int:
    """Return how many bins a factor of 2 in scores has in `macro_auc`: 128 up to 102 nodes, 1 from 6,242 nodes on.

    >>> [bins_per_octave(nodes) for nodes in (5, 102, 1000, 6_241, 6_242, 1_000_000)]
    [128, 128, 8, 2, 1, 1]
    """
    return next((bins for bins in (128, 64, 32, 16, 8, 4, 2) if nodes * (OCTAVES * bins + 2) <= MOST_COUNTS), 1)


def _label_bins(scores: ScoreArray, bins: int) -> IntArray:
    """Number the bins of scores: 0 for a score of 0, 1 for what is below 2^-20, and the last for 1."""
    # The bits of a float rise with it; its exponent and the first bits after that are the bin.
    shift = 24 - bins.bit_length()
    bits = (np.asarray(scores, np.float32).view(np.uint32) >> shift).astype(np.int32)
    return np.where(scores > 0, 1 + np.maximum(bits - (127 - OCTAVES) * bins, 0), 0).astype(np.int32)


def score_bins_by_label(batch: Batch) -> Parts:
    """Count documents by label and score: where the label is true, and where its score is above 0.

    Two sparse matrices of shape (documents, nodes x bins of close scores), a column of ones, and the closed truth.
    """
    nodes, truth, csr = len(batch.hierarchy), batch.closed_truth, batch.scores.csr()
    bins = bins_per_octave(nodes)
    width = OCTAVES * bins + 2
    matrices = []
    for labels, values, marks in (
        (truth, batch.scores.look_up(truth), truth.data),
        (csr, csr.data, np.greater(csr.data, 0)),
    ):
        columns = labels.indices * width + _label_bins(values, bins)
        matrices.append(sparse.csr_array((marks, columns, labels.indptr), (len(batch), nodes * width)))
    return *matrices, np.ones((len(batch), 1), np.int64), truth


def macro_auc(sums: Sums, context: Context) -> float:
    """Mean over labels of the area under the ROC curve of the documents by the label's score; equal scores count half.

    Labels that are true in all documents, or in none, have no curve and do not count; NaN without any other label.
    Scores that are close (within 1% up to 102 nodes, 3% up to 408, 13% up to 1,618, a factor of 2 from 6,242 on) and
    those below 1e-6 count as equal, so that the value is one of sums over documents. These take 8 MB, or 704 bytes a
    label if that is more.

    Parameters
    ----------
    sums
        The column sums of what `score_bins_by_label` returns.
    context
        What is known of hierarchy and training.

    Returns
    -------
    float

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(macro_auc(example_sums(score_bins_by_label), example_context()), 3)
    0.625
    """
    positive, every = (np.asarray(part, np.float64) for part in sums[:2])
    # What is not stored has a score of 0.
    areas = roc_areas(positive, every, OCTAVES * bins_per_octave(len(context.hierarchy)) + 2, float(sums[2].sum()))
    known = areas[~np.isnan(areas)]
    return float(known.mean()) if len(known) else float("nan")


def frequent_labels_ranked(parts: Parts, fewest: int) -> Sums:
    """Make sums in which labels with enough documents, true and not true, are ranked rightly, and all others wrongly.

    Parameters
    ----------
    parts
        What `score_bins_by_label` returns, or its sums over groups.
    fewest
        How many documents, or groups, are enough.

    Returns
    -------
    Sums
    """
    every, _, count, truth = parts
    nodes = truth.shape[1]
    shape = nodes, every.shape[1] // max(1, nodes)
    occurs = np.bincount(truth.indices, truth.data != 0, nodes)
    has_curve = (occurs > 0) & (truth.sum(axis=0) < count.sum())
    is_right = (occurs >= fewest) & (truth.shape[0] - occurs >= fewest)
    positive, stored = np.zeros(shape), np.zeros(shape)
    # Of two documents one has the largest score, and is the true one, or not.
    stored[has_curve, -1] = 1
    positive[has_curve & is_right, -1] = 1
    positive[has_curve & ~is_right, 0] = 1
    return positive.ravel(), stored.ravel(), np.full(1, 2.0), occurs


def argmax_matches(batch: Batch) -> Parts:
    """For each document and depth: whether truth has a node there, and whether the best node there is true."""
    h = batch.hierarchy
    truth = batch.closed_truth
    present = np.zeros((len(batch), max(1, h.max_depth)))
    present[row_numbers(truth), h.depth[truth.indices] - 1] = 1.0
    levels = [best_node(batch, np.equal(h.depth, depth))[1] for depth in range(1, present.shape[1] + 1)]
    return present, np.stack(levels, axis=1) * present


def argmax_level_accuracy(sums: Sums, _: Context) -> Value:
    """At each depth, the share of documents with true nodes there whose best-scoring node there is true; the mean.

    Levels are decided one by one, as the submission of the paper does (argmax over the nodes of a level): nothing is
    closed, and the nodes of a document need not lie on a path. Of equal scores the lowest id is best; a level in which
    all scores are 0 is wrong.

    Takes the column sums of what `argmax_matches` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = argmax_level_accuracy(example_sums(argmax_matches), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.583, '1': 0.667, '2': 0.5}
    """
    present, right = sums
    return with_mean({str(d + 1): float(right[d] / present[d]) for d in range(len(present)) if present[d]})


@kernel
def compare_labels(
    rows: StoredRows, truth: LabelRows, nodes: int, scores: DoubleArray, start: int, stop: int
) -> DoubleArray:
    """Compare true with false labels: ranking loss, average precision, coverage, and area under the ROC curve."""
    true_ptr = truth[0]
    result = np.zeros((stop - start, 4))
    for row in range(start, stop):
        values = rows.values[rows.ptr[row] : rows.ptr[row + 1]]
        true = np.sort(scores[true_ptr[row] : true_ptr[row + 1]])
        size = len(true)
        # How many labels reach, and exceed, just the lowest so many true scores.
        reach, exceed = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
        for value in values:
            reach[np.searchsorted(true, value, side="right")] += 1
            exceed[np.searchsorted(true, value)] += 1
        # Labels without a stored score have 0, which reaches the true scores of 0.
        reach[np.searchsorted(true, 0, side="right")] += nodes - len(values)
        wrong, tied, precision, at_least, above = 0.0, 0.0, 0.0, 0, 0
        for index in range(size - 1, -1, -1):
            at_least += reach[index + 1]
            above += exceed[index + 1]
            true_at_least = size - np.searchsorted(true, true[index])
            true_above = size - np.searchsorted(true, true[index], side="right")
            wrong += at_least - true_at_least
            tied += (at_least - above) - (true_at_least - true_above)
            precision += true_at_least / at_least
        pairs = size * (nodes - size)
        result[row - start, 0] = wrong / pairs if pairs > 0 else 0.0
        result[row - start, 1] = precision / size if pairs > 0 else 1.0
        result[row - start, 2] = at_least
        result[row - start, 3] = 1.0 - (wrong - tied / 2) / pairs if pairs > 0 else np.nan
    return result


@kernel
def roc_areas(positive: DoubleArray, every: DoubleArray, width: int, count: float) -> DoubleArray:
    """Compute the area under each ROC curve of so many bins of rising scores; NaN without true or without other ones.

    `positive` counts the true ones and `every` all that are counted; what they lack of `count` is in the first bin.
    """
    areas = np.full(len(every) // max(1, width), np.nan)
    for curve in range(len(areas)):
        low, high = curve * width, (curve + 1) * width
        true, total = 0.0, 0.0
        for index in range(low, high):
            true += positive[index]
            total += every[index]
        if true <= 0 or count - true <= 0:
            continue
        below, ordered = 0.0, 0.0
        for index in range(low, high):
            negative = every[index] - positive[index] + (count - total if index == low else 0.0)
            ordered += positive[index] * (below + negative / 2)
            below += negative
        areas[curve] = ordered / (true * below)
    return areas


@kernel
def count_bins(
    rows: StoredRows, nodes: int, most: int, start: int, stop: int
) -> tuple[DoubleArray, IntArray, LongArray]:
    """Count the scores of each row by their first 16 bits: counts, bins in order, and how many bins a row has.

    What a row has less than `nodes` scores counts as 0.
    """
    room = rows.ptr[stop] - rows.ptr[start] + stop - start
    counts, columns = np.empty(room), np.empty(room, np.int32)
    sizes, totals, filled = np.zeros(stop - start, np.int64), np.zeros(most, np.int64), 0
    for row in range(start, stop):
        values = rows.values[rows.ptr[row] : rows.ptr[row + 1]]
        bits = values.astype(np.float32).view(np.uint32)
        begin, lowest, highest, zeros = filled, most, 0, max(0, nodes - len(values))
        for index in range(len(values)):
            if values[index] > 0:
                place = bits[index] >> 16
                totals[place] += 1
                lowest, highest = min(lowest, place), max(highest, place)
            else:
                zeros += 1
        # Scores that single precision has no number for are in the first bin, too.
        if lowest == 0:
            zeros += totals[0]
            totals[0] = 0
        if zeros > 0:
            counts[filled], columns[filled] = zeros, 0
            filled += 1
        for place in range(max(1, lowest), highest + 1):
            if totals[place] > 0:
                counts[filled], columns[filled] = totals[place], place
                totals[place] = 0
                filled += 1
        sizes[row - start] = filled - begin
    return counts[:filled], columns[:filled], sizes
