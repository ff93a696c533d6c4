"""Metrics of scores without a decision: curves over operating points, hierarchical win, calibration, coverage."""

import numpy as np
from scipy import sparse

from treelabel.core.types import BoolArray, DoubleArray, LongArray
from treelabel.hierarchy.label_matrices import matches, row_numbers, row_sizes
from treelabel.metrics.batch import Batch, Context, Parts, Sums, Value, sum_rows
from treelabel.metrics.shared_formulas import negative_log, with_mean

CALIBRATION_BINS = 15
COVERAGE_STEPS = 100


# Hierarchical win


def softmax_win(batch: Batch) -> DoubleArray:
    """win = sum over the true path of 2^-j p(n_j), plus 2^-l p(n_l) for its end; in [0, 1]. NaN without truth.

    Needs a tree, in which the true label has one path.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> softmax_win(example()).round(3).tolist()
    [0.562, 0.5, 0.375, nan]
    """
    h, truth = batch.hierarchy, batch.closed_truth
    _ = h.parent
    true = batch._single(batch.truth, "true")
    scores = batch.scores.look_up(truth).astype(np.float64)
    depth = h.depth[truth.indices]
    is_terminal = truth.indices == true[row_numbers(truth)]
    win = sum_rows(truth, scores * 2.0**-depth * np.where(is_terminal, 2.0, 1.0))
    return np.where(true >= 0, win, np.nan)


def neg_log_win(batch: Batch) -> DoubleArray:
    """-ln win; infinite where the whole true path has score 0.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> neg_log_win(example()).round(3).tolist()
    [0.575, 0.693, 0.981, nan]
    """
    with np.errstate(divide="ignore"):
        return -np.log(softmax_win(batch))


def cross_entropy(batch: Batch) -> DoubleArray:
    """-ln p(y) of the most specific true node; infinite where it has score 0.

    Of leaves whose scores sum to 1 this is scikit-learn's `log_loss`; the metric log_loss here sums binary losses.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> cross_entropy(example()).round(3).tolist()
    [0.693, 1.386, 0.981, nan]
    """
    truth = batch.hierarchy.most_specific(batch.truth)
    batch._single(batch.truth, "true")
    lost = negative_log(batch.scores.look_up(truth).astype(np.float64))
    return np.where(row_sizes(truth) > 0, sum_rows(truth, lost), np.nan)


def cross_entropy_sums(batch: Batch) -> Parts:
    """-ln p of the true node of each depth, by document, and whether there is one; needs a tree."""
    _ = batch.hierarchy.parent
    batch._single(batch.truth, "true")
    truth = batch.closed_truth
    lost = negative_log(batch.scores.look_up(truth).astype(np.float64))
    shape = len(batch), batch.hierarchy.max_depth
    total, known = np.zeros(shape), np.zeros(shape)
    index = row_numbers(truth), batch.hierarchy.depth[truth.indices] - 1
    total[index], known[index] = lost, 1.0
    return total, known


def cross_entropy_by_depth(sums: Sums, _: Context) -> Value:
    """Mean of -ln p of the true node at each depth, over the documents whose truth goes that deep; and their mean.

    Takes the column sums of what `cross_entropy_sums` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = cross_entropy_by_depth(example_sums(cross_entropy_sums), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.81, '1': 0.58, '2': 1.04}
    """
    pairs = zip(*(np.asarray(part).tolist() for part in sums), strict=True)
    return with_mean({str(depth): total / count for depth, (total, count) in enumerate(pairs, 1) if count})


# Calibration, of the leaves and of each level


def _groups(batch: Batch) -> dict[str, BoolArray]:
    h = batch.hierarchy
    groups = {"leaves": h.is_leaf}
    return groups | {str(d): np.equal(h.depth, d) for d in range(1, h.max_depth + 1)}


def best_node(batch: Batch, allowed: BoolArray) -> tuple[DoubleArray, BoolArray, BoolArray]:
    """Find the best allowed node of each document: its score, whether it is true, whether the document has truth.

    Of equal scores the lowest id is best; where all are 0 there is none, and nothing is true.

    Parameters
    ----------
    allowed : array of shape (nodes,)
        Marks the nodes to choose from.

    Returns
    -------
    three arrays of shape (documents,)
    """
    best = batch.scores.best(allowed)
    one = sparse.csr_array(
        (np.ones(len(best), np.bool_), np.maximum(best, 0), np.arange(len(best) + 1)),
        (len(batch), len(batch.hierarchy)),
    )
    right = matches(batch.closed_truth, one) & (best >= 0)
    confidence = np.where(best >= 0, batch.scores.look_up(one), 0.0)
    return confidence.astype(np.float64), right, row_sizes(batch.truth) > 0


def calibration_bins(batch: Batch) -> Parts:
    """Documents by confidence in their best node of each group: columns (count, confidence, hits) a bin."""
    parts = []
    for allowed in _groups(batch).values():
        confidence, right, known = best_node(batch, allowed)
        which = np.minimum((confidence * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
        parts.append(_in_bins(which, np.stack([known, confidence * known, right & known], axis=1), CALIBRATION_BINS))
    return tuple(parts)


def _in_bins(which: LongArray, values: DoubleArray, bins: int) -> sparse.csr_array:
    """Lay values of each document into the columns of its bin."""
    width = values.shape[1]
    columns = (which[:, None] * width + np.arange(width)).astype(np.int32)
    ptr = np.arange(len(which) + 1) * width
    return sparse.csr_array((values.astype(np.float64).ravel(), columns.ravel(), ptr), (len(which), bins * width))


def ece(sums: Sums, context: Context) -> Value:
    """Expected calibration error of the best node: sum over bins of |confidence - hits| / documents.

    Takes the column sums of what `calibration_bins` returns.

    Parameters
    ----------
    sums
        The sums of what `calibration_bins` returns.
    context
        What is known of hierarchy and training.

    Returns
    -------
    Value
        The error of the best leaf, and that of the best node of each level.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = ece(example_sums(calibration_bins), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.208, 'leaves': 0.208, '1': 0.167, '2': 0.125}
    """
    errors = {}
    for name, part in zip(["leaves", *map(str, range(1, context.hierarchy.max_depth + 1))], sums, strict=True):
        count, confidence, right = np.asarray(part).reshape(-1, 3).T
        errors[name] = float(np.abs(confidence - right).sum() / count.sum()) if count.sum() else float("nan")
    return {"mean": errors["leaves"], **errors}


def _per_group(batch: Batch, values: DoubleArray, nodes: DoubleArray, rows: LongArray) -> DoubleArray:
    """Sum values of (row, node) pairs by document and group; first the leaves, then each level."""
    groups = np.stack(list(_groups(batch).values()))
    size = len(groups)
    out = np.zeros((len(batch), size))
    for index, allowed in enumerate(groups):
        keep = allowed[nodes]
        out[:, index] = np.bincount(rows[keep], weights=values[keep], minlength=len(batch))
    return out


def brier_sums(batch: Batch) -> Parts:
    """Sum of (p - y)^2 over the leaves and over each level, by document."""
    csr, truth = batch.scores.csr(), batch.closed_truth
    square = csr.data.astype(np.float64) ** 2
    cross = 1 - 2 * batch.scores.look_up(truth).astype(np.float64)
    total = _per_group(batch, square, csr.indices, row_numbers(csr))
    total += _per_group(batch, cross, truth.indices, row_numbers(truth))
    return (np.hstack([total, np.ones((len(batch), 1))]),)


def log_loss_sums(batch: Batch) -> Parts:
    """Sum of -ln(1 - p) over false and -ln p over true nodes, by document and group; infinite if surely wrong.

    Each node is a binary question here; scikit-learn's `log_loss`, of one class among all, is `cross_entropy`.
    """
    csr, truth = batch.scores.csr(), batch.closed_truth
    of_truth = batch.scores.look_up(truth).astype(np.float64)
    is_true = matches(truth, csr)
    with np.errstate(divide="ignore"):
        missed = np.where(is_true, 0.0, -np.log1p(-csr.data.astype(np.float64)))
        result = -np.log(of_truth)
    total = _per_group(batch, missed, csr.indices, row_numbers(csr))
    total += _per_group(batch, result, truth.indices, row_numbers(truth))
    return (np.hstack([total, np.ones((len(batch), 1))]),)


def group_means(sums: Sums, context: Context) -> Value:
    """Mean over documents for the leaves (the value itself) and for each level.

    Takes the column sums of what `brier_sums` returns.

    Parameters
    ----------
    sums
        The sums of what `brier_sums` returns.
    context
        What is known of hierarchy and training.

    Returns
    -------
    Value
        The value of leaves, and that of each level.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = group_means(example_sums(brier_sums), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.562, 'leaves': 0.562, '1': 0.453, '2': 0.398}
    """
    *totals, documents = sums[0]
    names = ["leaves", *map(str, range(1, context.hierarchy.max_depth + 1))]
    means = {name: float(t / documents) if documents else float("nan") for name, t in zip(names, totals, strict=True)}
    return {"mean": means["leaves"], **means}


# Coverage against accuracy


def coverage_bins(batch: Batch) -> Parts:
    """Documents and hits by confidence in the best leaf, in steps of 0.01."""
    confidence, right, known = best_node(batch, batch.hierarchy.is_leaf)
    which = np.minimum((confidence * COVERAGE_STEPS).astype(np.int64), COVERAGE_STEPS - 1)
    return (_in_bins(which, np.stack([known, right & known], axis=1), COVERAGE_STEPS),)


def coverage_curve(sums: Sums) -> dict[str, DoubleArray]:
    """Return thresholds, the share of documents whose best leaf reaches each, and the accuracy among them.

    >>> counts = np.zeros((COVERAGE_STEPS, 2))
    >>> counts[-1] = 1, 1
    >>> curve = coverage_curve((counts.ravel(),))
    >>> curve["coverage"][[0, -1]].tolist(), curve["accuracy"][[0, -1]].tolist()
    ([1.0, 1.0], [1.0, 1.0])
    """
    count, right = sums[0].reshape(-1, 2).T
    covered, hit = count[::-1].cumsum()[::-1], right[::-1].cumsum()[::-1]
    total = max(count.sum(), 1)
    accuracy = np.divide(hit, covered, out=np.full(len(hit), np.nan), where=covered > 0)
    return {"threshold": np.arange(COVERAGE_STEPS) / COVERAGE_STEPS, "coverage": covered / total, "accuracy": accuracy}


def selective_accuracy(sums: Sums, _: Context) -> Value:
    """Area under accuracy over coverage: the mean accuracy when only the surest documents are decided.

    Takes the column sums of what `coverage_bins` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(selective_accuracy(example_sums(coverage_bins), example_context()), 3)
    0.528
    """
    curve = coverage_curve(sums)
    keep = curve["coverage"] > 0
    coverage, accuracy = curve["coverage"][keep][::-1], curve["accuracy"][keep][::-1]
    if len(coverage) == 0:
        return float("nan")
    # Up to the first point the surest documents have the first point's accuracy.
    return float(np.trapezoid(np.append(accuracy[0], accuracy), np.append(0.0, coverage)) / coverage[-1])
