"""Learn on held-out documents how many true paths a document has, given its scores."""

from functools import partial
from typing import Any

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels, row_sizes
from treelabel.rules.label_set_distribution import ParentGraph, SetWeights, count_up, fit_label_sets, total_weight
from treelabel.rules.score_rows import ScoreRows, sum_scores
from treelabel.scores.score_matrix import Scores

# Log weights have a normal prior with this precision, and lie within these bounds.
PRIOR, BOUND = 1.0, 8.0
# More paths than this share one weight.
MOST = 64
# The log of `inner` is moved by this to find a derivative.
SMALL = 1e-4
# Scaling ends where no weight changes by more than this share.
ROUNDS, TOLERANCE = 30, 0.03


def fit_counts(
    scores: Scores, truth: LabelMatrix, refit: bool = False, most_documents: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Learn the weights of `best_label_set` on held-out documents: the settings of `optimal:samples_f1`.

    g(k) is the weight of k true paths, h that of a path that ends at an inner node, as log-linear factors on top of
    what the scores say. They are the maximum a posteriori: at the optimum the expected number of documents with k
    paths is the true one, up to a normal prior on log g and log h with mean 0 and variance 1, which draws a number that
    few documents have, or none, to 1, the weight without any evidence. Numbers above all that were seen share the last
    weight. Found by iterative scaling; each round costs one pass over the likely nodes of every document times the
    paths that it may have (with `refit`, one for each step that fitting its odds takes).

    Parameters
    ----------
    scores : Scores
        Of documents that the model did not learn from.
    truth : LabelMatrix, documents x nodes
        Their labels, closed or not.
    refit : bool
        Whether the weights are for odds that keep the marginals as they are; see `best_label_set`.
    most_documents : int
        If there are more documents, this many are drawn.
    seed : int
        For drawing them.

    Returns
    -------
    dict
        "counts" (the weights g(0), g(1), ..., the largest being 1), "inner" and "refit".

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.flat(["A", "B", "C"])
    >>> result = fit_counts(Scores(h, [[0.5, 0.4, 0.3]] * 100), h.closure(np.eye(3)[np.arange(100) % 3]))
    >>> [round(g, 2) for g in result["counts"]]
    [0.04, 1.0, 0.03]
    """
    h = scores.hierarchy
    closed = h.closure(as_labels(truth, len(h), "truth"))
    if closed.shape[0] != len(scores):
        raise TreelabelError(f"{len(scores):,} rows of scores, but the truth of {closed.shape[0]:,} documents")
    if len(scores) > most_documents:
        rows = np.sort(np.random.default_rng(seed).choice(len(scores), most_documents, replace=False))
        scores, closed = scores[rows], closed[rows]
    terminal = h.most_specific(closed)
    numbers = row_sizes(terminal)
    size = min(MOST, int(numbers.max(initial=0)) + 1) + 1
    true = np.bincount(np.minimum(numbers, size - 1), minlength=size).astype(np.float64)
    target = np.concatenate([[float((~h.is_leaf[terminal.indices]).sum())], true])
    # Log h, and log g of each number, at which expected numbers are true ones but for the prior.
    logs, coherent, above = np.zeros(len(target)), scores.coherent(), (h.parent_ptr.astype(np.int64), h.parent_idx)
    for _ in range(ROUNDS):
        inner, g = np.exp([logs[0], logs[0] + SMALL]), np.exp(logs[1:] - logs[1:].max())
        sums = sum_scores(coherent, partial(count_shares, above, g, inner, ODDS_STEPS if refit else 0))
        expected = np.concatenate([[(sums[1] - sums[0]) / SMALL], sums[2:]])
        step = (target - expected - PRIOR * logs) / (np.maximum(target, expected) + PRIOR)
        logs = np.clip(logs + step, -BOUND, BOUND)
        if np.abs(step).max() < TOLERANCE:
            break
    weights = np.exp(logs[1:] - logs[1:].max())
    counts = [float(f"{weight:.4g}") for weight in weights]
    return {"counts": counts, "inner": float(f"{np.exp(logs[0]):.4g}"), "refit": refit}


# Shares of documents are found with less precision than decisions.
ODDS_TOLERANCE, ODDS_STEPS = 1e-3, 30


@kernel
def count_shares(
    graph: ParentGraph, counts: DoubleArray, inner: DoubleArray, steps: int, rows: ScoreRows
) -> DoubleArray:
    """Sum over documents the log of the weight of all sets for two values of `inner`, and the chance of each number.

    The first two entries are the logs, the others the expected number of documents with 0, 1, ... paths; numbers beyond
    the given weights are counted with the last one.
    """
    ptr, nodes, values, start, stop = rows
    result = np.zeros(2 + len(counts))
    position = np.empty(len(graph[0]) - 1, np.int32)
    for row in range(start, stop):
        here, p = nodes[ptr[row] : ptr[row + 1]], values[ptr[row] : ptr[row + 1]].astype(np.float64)
        fit = fit_label_sets(graph, position, here, p, SetWeights(counts, inner[0]), ODDS_TOLERANCE, steps)
        weights, workspace = fit.weights, fit.counts
        count_up(fit.tree, fit.odds, 1.0, inner[1], workspace)
        result[1] += np.log(total_weight(weights.g, workspace))
        count_up(fit.tree, fit.odds, 1.0, inner[0], workspace)
        total = total_weight(weights.g, workspace)
        result[0] += np.log(total)
        for number in range(len(weights.g)):
            result[2 + min(number, len(counts) - 1)] += weights.g[number] * workspace.below[0, number] / total
    return result
