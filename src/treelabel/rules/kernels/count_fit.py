"""Compiled loops over held-out documents that tell how likely each number of true paths is."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.rules.kernels.label_sets import (
    count_up,
    likely_tree,
    links_up,
    most_terminals,
    total_weight,
    weights_of,
    workspace_for_counts,
)
from treelabel.rules.kernels.odds import fit_log_odds, log_odds
from treelabel.rules.kernels.rows import longest_row

# Shares of documents are found with less precision than decisions.
TOLERANCE, STEPS = 1e-3, 30


@kernel
def count_shares(
    parent_ptr: LongArray,
    parent_idx: IntArray,
    counts: DoubleArray,
    inner: DoubleArray,
    refit: bool,
    ptr: LongArray,
    nodes: IntArray,
    values: ScoreArray,
    start: int,
    stop: int,
) -> DoubleArray:
    """Sum over documents the log of the weight of all sets for two values of `inner`, and the chance of each number.

    The first two entries are the logs, the others the expected number of documents with 0, 1, ... paths; numbers beyond
    the given weights are counted with the last one.
    """
    found = np.zeros(2 + len(counts))
    place, up = np.empty(len(parent_ptr) - 1, np.int32), np.empty(longest_row(ptr, start, stop), np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        here, given = nodes[low:high], values[low:high].astype(np.float64)
        links_up(parent_ptr, parent_idx, place, here, given, up)
        tree = likely_tree(up[: high - low], here, given)
        terminals = most_terminals(tree)
        weights, workspace = weights_of(counts, inner[0], terminals), workspace_for_counts(len(tree.p), terminals)
        logits = log_odds(tree)
        if refit:
            fit_log_odds(tree, weights, logits, workspace, np.zeros(len(tree.p)), TOLERANCE, STEPS)
        odds = np.exp(logits)
        count_up(tree, odds, 1.0, inner[1], workspace)
        found[1] += np.log(total_weight(weights.g, workspace))
        count_up(tree, odds, 1.0, inner[0], workspace)
        total = total_weight(weights.g, workspace)
        found[0] += np.log(total)
        for number in range(terminals + 1):
            found[2 + min(number, len(counts) - 1)] += weights.g[number] * workspace.below[0, number] / total
    return found
