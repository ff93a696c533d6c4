"""Compiled loops that find the set with the largest expected F1 under a distribution of label sets."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.rules.kernels.hf import largest
from treelabel.rules.kernels.label_sets import (
    Counts,
    LikelyTree,
    Weights,
    count_down,
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

# How far marginals may be from the scores, and how many steps are taken to bring them there.
TOLERANCE, STEPS = 1e-5, 50


@kernel
def size_functions(
    tree: LikelyTree, odds: DoubleArray, weights: Weights, total: float, points: DoubleArray, counts: Counts
) -> DoubleArray:
    """Compute the sum over s of P(n in Y, |Y| = s) z^s for every place n and every point z: points x places."""
    found = np.zeros((len(points), len(odds)))
    is_flat = tree.above.max() == 0 and tree.length.max() == 1
    numbers = np.arange(len(weights.g))
    if is_flat:
        count_up(tree, odds, 1.0, weights.inner, counts)
    for at in range(len(points)):
        if is_flat:
            # Every node is terminal, so that the number of terminal nodes is the size.
            powers = Weights(weights.g * points[at] ** numbers, weights.inner)
            count_down(tree, odds, 1.0, powers, counts, found[at])
        else:
            count_up(tree, odds, points[at], weights.inner, counts)
            count_down(tree, odds, points[at], weights, counts, found[at])
    return found / total


@kernel
def gains(tree: LikelyTree, functions: DoubleArray, worth: DoubleArray, gain: DoubleArray) -> float:
    """Compute Delta_k of every place, `worth` being 2 z^(k-1) times the weight of each point z.

    Returns their sum over all nodes, E[2 |Y| / (k + |Y|)], which no set of k nodes or more exceeds.
    """
    bound = 0.0
    for here in range(1, len(gain)):
        gain[here] = 0.0
        for at in range(len(worth)):
            gain[here] += worth[at] * functions[at, here]
        bound += tree.length[here] * gain[here]
    # Rounding must not put a child before its parent.
    for here in range(len(gain) - 1, 0, -1):
        gain[tree.above[here]] = max(gain[tree.above[here]], gain[here])
    return bound


@kernel
def longest_sets(tree: LikelyTree, most: int) -> int:
    """Return a size that no set with `most` terminal nodes exceeds."""
    depth, deepest, nodes = np.zeros(len(tree.p), np.int64), 0, 0
    for here in range(1, len(tree.p)):
        depth[here] = depth[tree.above[here]] + tree.length[here]
        deepest = max(deepest, depth[here])
        nodes += tree.length[here]
    return min(nodes, deepest * most)


@kernel
def best_places(
    tree: LikelyTree,
    odds: DoubleArray,
    weights: Weights,
    empty: float,
    rules: tuple[DoubleArray, DoubleArray, LongArray, LongArray],
    counts: Counts,
    heap: IntArray,
) -> IntArray:
    """Choose the places of the best set: of each size those with the largest Delta_k, until a bound ends the search.

    `rules` are Gauss-Legendre rules with more and more points, and the degree that each integrates to ten digits.
    """
    points, shares, sizes, degrees = rules
    count_up(tree, odds, 1.0, weights.inner, counts)
    total = total_weight(weights.g, counts)
    best = empty * weights.g[0] * counts.below[0, 0] / total
    chosen = np.empty(0, np.int32)
    kept = 1
    while kept < len(tree.node) and tree.node[kept] >= 0:
        kept += 1
    longest, rule, gain = longest_sets(tree, len(weights.g) - 1), -1, np.zeros(len(odds))
    functions, worth, z = np.zeros((0, 0)), np.zeros(0), np.zeros(0)
    for size in range(1, kept):
        if rule < 0 or (longest + size > degrees[rule] and rule + 1 < len(sizes)):
            rule += 1
            while longest + size > degrees[rule] and rule + 1 < len(sizes):
                rule += 1
            z = points[rule, : sizes[rule]]
            worth = 2 * shares[rule, : sizes[rule]] * z ** (size - 1)
            functions = size_functions(tree, odds, weights, total, z, counts)
        if gains(tree, functions, worth, gain) <= best:
            break
        value = largest(gain[1:kept], kept - 1, size, heap)
        if value > best:
            best, chosen = value, heap[:size] + np.int32(1)
        worth = worth * z
    return chosen


@kernel
def best_label_sets(
    parent_ptr: LongArray,
    parent_idx: IntArray,
    counts: DoubleArray,
    inner: float,
    refit: bool,
    empty: float,
    rules: tuple[DoubleArray, DoubleArray, LongArray, LongArray],
    ptr: LongArray,
    nodes: IntArray,
    values: ScoreArray,
    start: int,
    stop: int,
) -> tuple[IntArray, LongArray]:
    """For each row fit the distribution of its label set, and choose the set with the largest expected F1."""
    most = longest_row(ptr, start, stop)
    place, up = np.empty(len(parent_ptr) - 1, np.int32), np.empty(most, np.int32)
    heap = np.empty(most + 1, np.int32)
    found = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        if low == high:
            continue
        here, given = nodes[low:high], values[low:high].astype(np.float64)
        links_up(parent_ptr, parent_idx, place, here, given, up)
        tree = likely_tree(up[: high - low], here, given)
        terminals = most_terminals(tree)
        weights, workspace = weights_of(counts, inner, terminals), workspace_for_counts(len(tree.p), terminals)
        logits, p = log_odds(tree), np.zeros(len(tree.p))
        if refit:
            fit_log_odds(tree, weights, logits, workspace, p, TOLERANCE, STEPS)
        picked = tree.node[best_places(tree, np.exp(logits), weights, empty, rules, workspace, heap)]
        found[used : used + len(picked)] = np.sort(picked)
        used += len(picked)
        sizes[row - start] = len(picked)
    return found[:used], sizes
