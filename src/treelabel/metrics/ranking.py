"""Measures of the k best labels of each document, as extreme classification reports them.

Truth is closed, as everywhere, which changes nothing for flat labels; equal scores are ranked by label id.
"""

import numpy as np
from scipy import sparse

from treelabel.compute import BoolArray, DoubleArray, IntArray, LongArray, over_rows
from treelabel.hierarchy import label_matrix, row_sizes
from treelabel.metrics import kernels
from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.information import inverse_propensities
from treelabel.metrics.labels import counted, label_f1
from treelabel.metrics.table import Parts, Sums, Value

FREQUENCY_EDGES = (1, 10, 100, 1000)


def ranking(batch: Batch, k: float) -> IntArray:
    """Give the k best labels of each document, best first; -1 where fewer have a score."""
    values, count = batch.scores.values, int(k)
    if batch.scores.is_sparse:
        ptr = values.indptr.astype(np.int64)
        parts = over_rows(
            lambda start, stop: kernels.ranking_csr(ptr, values.indices, values.data, start, stop, count), len(batch)
        )
    else:
        parts = over_rows(lambda start, stop: kernels.ranking_dense(values, start, stop, count), len(batch), least=64)
    return np.concatenate(parts)


def hits(batch: Batch, k: float) -> DoubleArray:
    """Mark, place by place, the ranked labels that are true."""
    ranks, truth = ranking(batch, k), batch.closed_truth
    true_ptr = truth.indptr.astype(np.int64)
    return np.concatenate(
        over_rows(lambda start, stop: kernels.ranking_hits(ranks, true_ptr, truth.indices, start, stop), len(batch))
    ).astype(np.float64)


def precision_at_k(batch: Batch, k: float) -> DoubleArray:
    """Hits among the k best / k."""
    share: DoubleArray = hits(batch, k).sum(axis=1) / k
    return share


def recall_at_k(batch: Batch, k: float) -> DoubleArray:
    """Hits among the k best / true labels; documents without any do not count."""
    sizes = row_sizes(batch.closed_truth).astype(np.float64)
    share: DoubleArray = np.divide(hits(batch, k).sum(axis=1), sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
    return share


def ndcg_at_k(batch: Batch, k: float) -> DoubleArray:
    """Sum of hits / log2(rank + 1), over the best that min(k, true labels) hits could reach."""
    gain = 1 / np.log2(np.arange(2, int(k) + 2))
    ideal = np.append(0.0, gain.cumsum())[np.minimum(row_sizes(batch.closed_truth), int(k))]
    gained: DoubleArray = np.divide(hits(batch, k) @ gain, ideal, out=np.full(len(ideal), np.nan), where=ideal > 0)
    return gained


def psp_sums(batch: Batch, k: float) -> Parts:
    """Inverse propensities of the hits, and of the best k true labels."""
    context = batch.context
    inverse = inverse_propensities(context.frequencies, context.reference_documents)
    ranks, truth = ranking(batch, k), batch.closed_truth
    gained = (hits(batch, k) * np.where(ranks >= 0, inverse[ranks], 0.0)).sum(axis=1)
    weights = sparse.csr_array((inverse[truth.indices].astype(np.float32), truth.indices, truth.indptr), truth.shape)
    ptr = weights.indptr.astype(np.int64)
    best = np.concatenate(
        over_rows(
            lambda start, stop: kernels.ranking_csr(ptr, weights.indices, weights.data, start, stop, int(k)), len(batch)
        )
    )
    reachable = np.where(best >= 0, inverse[best], 0.0).sum(axis=1)
    return (np.stack([gained, reachable], axis=1),)


def psp_at_k(sums: Sums, _: Context, __: float) -> float:
    """Propensity-scored precision: sum of gains / sum of reachable gains (a ratio of means over documents)."""
    gained, reachable = sums[0]
    return float(gained / reachable) if reachable else float("nan")


def top_k_counts(batch: Batch, k: float) -> Parts:
    """Count by label what the k best of each document predict."""
    ranks = np.sort(ranking(batch, k), axis=1)
    kept = ranks >= 0
    ptr = np.append(0, kept.sum(axis=1).cumsum())
    return counted(batch.closed_truth, label_matrix(ptr, ranks[kept], len(batch.hierarchy)))


def binned_macro_f1_at_k(sums: Sums, context: Context, _: float) -> Value:
    """Mean F1 of the labels in each bin of training frequency: 0, 1-9, 10-99, 100-999, 1000 and more."""
    values = label_f1(sums)
    return {
        name: float(values[keep].mean()) for name, keep in frequency_bins(context.frequencies).items() if keep.any()
    }


def frequency_bins(frequencies: LongArray, edges: tuple[int, ...] = FREQUENCY_EDGES) -> dict[str, BoolArray]:
    """Mark the labels of each bin of training frequency, rarest first.

    >>> {name: keep.tolist() for name, keep in frequency_bins(np.array([0, 5, 10]), (1, 10)).items()}
    {'0': [True, False, False], '1-9': [False, True, False], '10+': [False, False, True]}
    """
    bins = {"0": np.less(frequencies, edges[0])}
    for low, high in zip(edges, [*edges[1:], None], strict=True):
        name = f"{low}+" if high is None else f"{low}-{high - 1}"
        bins[name] = (frequencies >= low) & (True if high is None else frequencies < high)
    return bins
