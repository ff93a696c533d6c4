"""Metrics of the k best labels of each document, as extreme classification reports them.

Truth is closed, as everywhere, which changes nothing for flat labels; equal scores are ranked by label id. Labels with
a score of 0 are not ranked, stored or not; see `treelabel.metrics.metric` for that and other conventions.
"""

import numpy as np

from treelabel.core.compute import join_rows, kernel
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelRows, label_matrix, row_sizes, rows_of
from treelabel.metrics.batch import Batch, Context, Parts, Sums, Value, set_counts
from treelabel.metrics.shared_formulas import label_f1, ndcg, with_mean
from treelabel.scores.score_kernels import StoredRows, over_stored


def _ranking(batch: Batch, count: int) -> IntArray:
    return np.concatenate(over_stored(rank_rows, batch.scores.rows, count))


def ranking(batch: Batch, k: float) -> IntArray:
    """Return the k best labels of each document, best first; -1 where fewer have a score.

    Parameters
    ----------
    batch
        Documents with scores.
    k
        How many labels to rank.

    Returns
    -------
    array of shape (documents, at most k)
    """
    return batch.first_columns(_ranking, k)


def _hits(batch: Batch, count: int) -> BoolArray:
    ranks, truth = np.ascontiguousarray(ranking(batch, count)), batch.closed_truth
    rows = rows_of(truth)
    marks: BoolArray = join_rows(lambda start, stop: ranking_hits(ranks, rows, start, stop), len(batch))
    return marks


def hits(batch: Batch, k: float) -> BoolArray:
    """Mark, place by place, the ranked labels that are true.

    Parameters
    ----------
    batch
        Documents with truth and scores.
    k
        How many labels to rank.

    Returns
    -------
    array of shape (documents, at most k)
    """
    return batch.first_columns(_hits, k)


def precision_at_k(batch: Batch, k: float) -> DoubleArray:
    """Hits among the k best / k; 0 for documents without true labels.

    One value per document: shape (documents,).

    Parameters
    ----------
    batch
        Documents with truth and scores.
    k
        How many labels to rank.

    Returns
    -------
    array of shape (documents,)

    >>> from treelabel.metrics.example import example
    >>> precision_at_k(example(), 2).round(3).tolist()
    [1.0, 0.5, 0.5, 0.0]
    """
    share: DoubleArray = np.count_nonzero(hits(batch, k), axis=1) / k
    return share


def recall_at_k(batch: Batch, k: float) -> DoubleArray:
    """Hits among the k best / true labels; documents without any do not count.

    One value per document: shape (documents,).

    Parameters
    ----------
    batch
        Documents with truth and scores.
    k
        How many labels to rank.

    Returns
    -------
    array of shape (documents,)

    >>> from treelabel.metrics.example import example
    >>> recall_at_k(example(), 2).round(3).tolist()
    [1.0, 0.5, 1.0, nan]
    """
    sizes = row_sizes(batch.closed_truth).astype(np.float64)
    result = np.count_nonzero(hits(batch, k), axis=1)
    share: DoubleArray = np.divide(result, sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
    return share


def ndcg_at_k(batch: Batch, k: float) -> DoubleArray:
    """Sum of hits / log2(rank + 1), over the best that min(k, true labels) hits could reach.

    Documents without true labels do not count.

    One value per document: shape (documents,).

    Parameters
    ----------
    batch
        Documents with truth and scores.
    k
        How many labels to rank.

    Returns
    -------
    array of shape (documents,)

    >>> from treelabel.metrics.example import example
    >>> ndcg_at_k(example(), 2).round(3).tolist()
    [1.0, 0.613, 0.631, nan]
    """
    return ndcg(hits(batch, k), row_sizes(batch.closed_truth))


def _gains(batch: Batch, count: int) -> DoubleArray:
    return np.where(hits(batch, count), batch.context.inverse_propensities[ranking(batch, count)], 0.0)


def _largest_gains(batch: Batch, count: int) -> DoubleArray:
    inverse, truth = batch.context.inverse_propensities, batch.closed_truth
    rows = StoredRows(*rows_of(truth), inverse[truth.indices].astype(np.float32), False)
    best = np.concatenate(over_stored(rank_rows, rows, count))
    return np.where(best >= 0, inverse[best], 0.0)


def psp_sums(batch: Batch, k: float) -> Parts:
    """Inverse propensities of the hits, and of the best k true labels.

    Parameters
    ----------
    batch
        Documents with truth and scores.
    k
        How many labels to rank.

    Returns
    -------
    tuple of one array of shape (documents, 2)
    """
    return (np.array([batch.first_columns(gains, k).sum(axis=1) for gains in (_gains, _largest_gains)]).T,)


def psp_at_k(sums: Sums, _: Context) -> float:
    """Propensity-scored precision: sum of gains / sum of reachable gains (a ratio of means over documents).

    Takes the column sums of what `psp_sums` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(psp_at_k(example_sums(psp_sums, 2), example_context()), 3)
    0.795
    """
    gained, reachable = sums[0]
    return float(gained / reachable) if reachable else float("nan")


def psp_printed_at_k(batch: Batch, k: float) -> DoubleArray:
    """Inverse propensities of the hits / k, as the tail-label paper prints it: (1 / k) sum over hits of 1 / p.

    It is not divided by what is reachable, so it may exceed 1. The paper's own table has values of `psp_at_k`. Without
    true labels it is 0.

    One value per document: shape (documents,).

    Parameters
    ----------
    batch
        Documents with truth and scores.
    k
        How many labels to rank.

    Returns
    -------
    array of shape (documents,)

    >>> from treelabel.metrics.example import example
    >>> psp_printed_at_k(example(), 2).round(3).tolist()
    [2.162, 0.925, 1.074, 0.0]
    """
    share: DoubleArray = batch.first_columns(_gains, k).sum(axis=1) / k
    return share


def psndcg_sums(batch: Batch, k: float) -> Parts:
    """Discounted inverse propensities of the hits, and of the best k true labels, each over the ideal of plain nDCG.

    Parameters
    ----------
    batch
        Documents with truth and scores.
    k
        How many labels to rank.

    Returns
    -------
    tuple of one array of shape (documents, 2)
    """
    sizes = row_sizes(batch.closed_truth)
    columns = []
    for gains in (_gains, _largest_gains):
        values = batch.first_columns(gains, k)
        discount = 1 / np.log2(np.arange(2, values.shape[1] + 2))
        ideal = np.append(0.0, discount.cumsum())[np.minimum(sizes, values.shape[1])]
        columns.append(np.divide(values @ discount, ideal, out=np.zeros(len(batch)), where=ideal > 0))
    return (np.array(columns).T,)


def psndcg_at_k(sums: Sums, _: Context) -> float:
    """Propensity-scored nDCG (Jain et al. 2016): PSnDCG of the ranking / that of the best ranking, a ratio of means.

    PSnDCG = (sum over hits of 1 / (p log2(rank + 1))) / (sum over ranks to min(k, true labels) of 1 / log2(rank + 1)).
    Documents without true labels have 0 in both means.

    Takes the column sums of what `psndcg_sums` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(psndcg_at_k(example_sums(psndcg_sums, 2), example_context()), 3)
    0.714
    """
    gained, reachable = sums[0]
    return float(gained / reachable) if reachable else float("nan")


def top_k_counts(batch: Batch, k: float) -> Parts:
    """Count by label what the k best of each document predict.

    Parameters
    ----------
    batch
        Documents with truth and scores.
    k
        How many labels to rank.

    Returns
    -------
    tuple of four matrices
        As `set_counts` returns them.
    """
    ranks = ranking(batch, k)
    selected = ranks >= 0
    ptr = np.append(0, np.count_nonzero(selected, axis=1).cumsum())
    # Rows are in order of rank and not of ids, which sums over columns do not mind.
    predicted = label_matrix(ptr, ranks[selected], len(batch.hierarchy))
    return set_counts(batch.closed_truth, predicted, hits(batch, k)[selected])


def binned_macro_f1_at_k(sums: Sums, context: Context) -> Value:
    """Mean F1 of the labels in each bin of training frequency: 0, 1-9, 10-99, 100-999, 1000 and more.

    The value itself is the mean over the bins of labels that occur in training.

    Takes the sums of counts by label, each of shape (nodes,), and the number of documents.

    Parameters
    ----------
    sums
        Predictions, truths and hits by label, and the number of documents.
    context
        What is known of hierarchy and training.

    Returns
    -------
    Value
        The mean, and the value of each bin.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = binned_macro_f1_at_k(example_sums(top_k_counts, 2), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.583, '0': 0.0, '1-9': 0.583}
    """
    values = label_f1(sums)
    bins = frequency_bins(context.frequencies, context.bin_edges)
    means = {name: float(values[keep].mean()) for name, keep in bins.items() if keep.any()}
    seen = with_mean({name: value for name, value in means.items() if name != "0"})
    return {"mean": seen["mean"], **means}


def frequency_bins(frequencies: LongArray, edges: tuple[int, ...]) -> dict[str, BoolArray]:
    """Mark the labels of each bin of training frequency, rarest first.

    Parameters
    ----------
    frequencies : array of shape (nodes,)
        The training documents of each label.
    edges
        The least frequency of each bin; rarer labels are in the bin "0".

    Returns
    -------
    dict of arrays of shape (nodes,)
        By the name of the bin.

    >>> {name: keep.tolist() for name, keep in frequency_bins(np.array([0, 5, 10]), (1, 10)).items()}
    {'0': [True, False, False], '1-9': [False, True, False], '10+': [False, False, True]}
    """
    bins = {"0": np.less(frequencies, edges[0])}
    for low, high in zip(edges, [*edges[1:], None], strict=True):
        name = f"{low}+" if high is None else f"{low}-{high - 1}"
        bins[name] = (frequencies >= low) & (True if high is None else frequencies < high)
    return bins


@kernel
def insert_by_score(names: IntArray, scores: ScoreArray, size: int, name: int, score: float) -> int:
    """Put a label into a list ordered by descending score, keeping its length; equals stay in order of arrival."""
    limit = len(names)
    if size == limit and score <= scores[limit - 1]:
        return size
    index = min(size, limit - 1)
    while index > 0 and scores[index - 1] < score:
        names[index] = names[index - 1]
        scores[index] = scores[index - 1]
        index -= 1
    names[index] = name
    scores[index] = score
    return min(size + 1, limit)


@kernel
def rank_rows(rows: StoredRows, count: int, start: int, stop: int) -> IntArray:
    """Rank the `count` best labels of rows, best first, lower ids first among equals; -1 where none is above 0."""
    ranks = np.full((stop - start, count), -1, np.int32)
    best = np.empty(count, rows.values.dtype)
    for row in range(start, stop):
        size, values = 0, rows.values[rows.ptr[row] : rows.ptr[row + 1]]
        for index in range(len(values)):
            if values[index] > 0:
                node = index if rows.is_dense else rows.nodes[rows.ptr[row] + index]
                size = insert_by_score(ranks[row - start], best, size, node, values[index])
    return ranks


@kernel
def ranking_hits(ranks: IntArray, truth: LabelRows, start: int, stop: int) -> BoolArray:
    """Mark the ranked labels that are true."""
    true_ptr, true_idx = truth
    marks = np.zeros((stop - start, ranks.shape[1]), np.bool_)
    for row in range(start, stop):
        true = true_idx[true_ptr[row] : true_ptr[row + 1]]
        for position in range(ranks.shape[1]):
            index = np.searchsorted(true, ranks[row, position])
            marks[row - start, position] = index < len(true) and true[index] == ranks[row, position]
    return marks
