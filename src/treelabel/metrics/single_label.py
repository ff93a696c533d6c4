"""Metrics of one predicted label against one true label: accuracies by level, and similarities of nodes."""

import numpy as np

from treelabel.core.types import BoolArray, DoubleArray, LongArray
from treelabel.hierarchy import similarity
from treelabel.hierarchy.label_matrices import LabelMatrix, row_numbers, row_sizes
from treelabel.metrics.batch import Batch, Context, Parts, Sums, Value
from treelabel.metrics.shared_formulas import with_mean


def level_matches(batch: Batch) -> Parts:
    """For each document and depth: whether truth has a node there, and whether prediction has the same nodes there."""
    levels, depth = max(1, batch.hierarchy.max_depth), batch.hierarchy.depth
    predicted, is_hit = batch.closed_decisions, batch.is_hit

    def by_level(labels: LabelMatrix, keep: BoolArray) -> LongArray:
        index = row_numbers(labels)[keep] * levels + depth[labels.indices][keep] - 1
        counts: LongArray = np.bincount(index, minlength=len(batch) * levels)
        return counts.reshape(len(batch), levels)

    chosen, hits = by_level(predicted, predicted.data), by_level(predicted, is_hit)
    true = by_level(batch.closed_truth, batch.closed_truth.data)
    right = (true > 0) & (chosen == hits) & (true == hits)
    return (true > 0).astype(np.float64), right.astype(np.float64)


def level_accuracy(sums: Sums, _: Context) -> Value:
    """At each depth, the share of documents with true nodes there that have the same predicted there; the mean.

    Takes the column sums of what `level_matches` returns. Predictions are closed: nodes of several branches, as the
    rule best_per_level may choose, bring their ancestors with them, and a level that has these beside the true node is
    wrong.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> result = level_accuracy(example_sums(level_matches), example_context())
    >>> {name: round(value, 3) for name, value in result.items()}
    {'mean': 0.333, '1': 0.667, '2': 0.0}
    """
    present, right = sums
    return with_mean({str(d + 1): float(right[d] / present[d]) for d in range(len(present)) if present[d]})


def leaf_accuracy(batch: Batch) -> DoubleArray:
    """1 where the most specific predicted node is the most specific true node.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> leaf_accuracy(example()).round(3).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    true, predicted = batch.single_terminals
    return np.equal(true, predicted).astype(np.float64)


def coarsest_accuracy(batch: Batch) -> DoubleArray:
    """1 where both labels have the same ancestor at depth 1 (or are both missing).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> coarsest_accuracy(example()).round(3).tolist()
    [1.0, 1.0, 0.0, 1.0]
    """
    _ = batch.hierarchy.parent, batch.single_terminals
    tops = np.full((2, len(batch)), -1, np.int32)
    for top, labels in zip(tops, (batch.closed_truth, batch.closed_decisions), strict=True):
        some = row_sizes(labels) > 0
        # The lowest id of a closed path is its top label.
        top[some] = labels.indices[labels.indptr[:-1][some]]
    same: DoubleArray = np.equal(tops[0], tops[1]).astype(np.float64)
    return same


def parent_accuracy(batch: Batch) -> DoubleArray:
    """1 where both labels have the same parent, the root counting as the parent of top labels.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> parent_accuracy(example()).round(3).tolist()
    [0.0, 1.0, 1.0, 1.0]
    """
    parent = batch.hierarchy.parent
    true, predicted = (np.where(nodes >= 0, parent[nodes], -2) for nodes in batch.single_terminals)
    return np.equal(true, predicted).astype(np.float64)


def onehot_win(batch: Batch) -> DoubleArray:
    """Hierarchical win of the one-hot vector at the predicted leaf: sum of 2^-j over shared nodes, the leaf's twice.

    Needs a tree, in which the true label has one path. NaN without truth.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> onehot_win(example()).round(3).tolist()
    [0.5, 0.5, 0.0, nan]
    """
    true, predicted = batch.single_terminals
    return np.where(true < 0, np.nan, similarity.win(batch.hierarchy, predicted, true))


def wu_palmer(batch: Batch) -> DoubleArray:
    """2 d(lcs) / (d(x) + d(y)), depths from a root at depth 1.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> wu_palmer(example()).round(3).tolist()
    [0.8, 0.667, 0.5, 1.0]
    """
    return similarity.wu_palmer(batch.hierarchy, *batch.single_terminals)


def _steps_up(batch: Batch) -> tuple[DoubleArray, DoubleArray]:
    """Count the edges from the predicted and from the true label up to where they meet, once; needs a tree."""
    if _steps_up not in batch._tables:
        h, (true, predicted) = batch.hierarchy, batch.single_terminals
        _ = h.parent
        met = similarity.meeting_points(h, predicted, true)
        one, two, shared = (np.where(nodes >= 0, h.depth[nodes], 0.0) for nodes in (predicted, true, met))
        batch._tables[_steps_up] = one - shared, two - shared
    steps: tuple[DoubleArray, DoubleArray] = batch._tables[_steps_up]
    return steps


def lca_precision(batch: Batch) -> DoubleArray:
    """LCA precision (Kosmopoulos et al. 2015): |P & T| / |P|, P and T the ways from each label up to where they meet.

    Both ways have their lowest common ancestor in common and nothing else, so this is 1 / (1 + edges up from the
    predicted label). The root counts where they meet there, and stands for a document without labels. Needs a tree.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> lca_precision(example()).round(3).tolist()
    [1.0, 0.5, 0.5, 1.0]
    """
    return 1 / (1 + _steps_up(batch)[0])


def lca_recall(batch: Batch) -> DoubleArray:
    """LCA recall: |P & T| / |T| of the ways of `lca_precision`, which is 1 / (1 + edges up from the true label).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> lca_recall(example()).round(3).tolist()
    [0.5, 0.5, 0.5, 1.0]
    """
    return 1 / (1 + _steps_up(batch)[1])


def lca_f1(batch: Batch) -> DoubleArray:
    """LCA F1: 2 |P & T| / (|P| + |T|) of the ways of `lca_precision`, which is 2 / (2 + edges between the labels).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> lca_f1(example()).round(3).tolist()
    [0.667, 0.5, 0.5, 1.0]
    """
    one, two = _steps_up(batch)
    return 2 / (2 + one + two)


def leacock_chodorow(batch: Batch) -> DoubleArray:
    """-ln(len / 2D), len the nodes on the shortest path between the labels, D the largest depth (root at 1).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> leacock_chodorow(example()).round(3).tolist()
    [1.099, 0.693, 0.693, 1.792]
    """
    return similarity.leacock_chodorow(batch.hierarchy, *batch.single_terminals)


def resnik(batch: Batch) -> DoubleArray:
    """ic(lcs).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> resnik(example()).round(3).tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    return similarity.resnik(batch.hierarchy, *batch.single_terminals, batch.context.information)


def lin(batch: Batch) -> DoubleArray:
    """2 ic(lcs) / (ic(x) + ic(y)); 1 for equal labels.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> lin(example()).round(3).tolist()
    [0.5, 0.4, 0.0, 1.0]
    """
    return similarity.lin(batch.hierarchy, *batch.single_terminals, batch.context.information)


def jiang_conrath(batch: Batch) -> DoubleArray:
    """Distance ic(x) + ic(y) - 2 ic(lcs).

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> jiang_conrath(example()).round(3).tolist()
    [2.0, 3.0, 3.0, 0.0]
    """
    return similarity.jiang_conrath(batch.hierarchy, *batch.single_terminals, batch.context.information)
