"""The set with the largest expected F1 under a distribution of label sets that knows how many paths documents have."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.rules.hierarchical_f import hf_beta, largest
from treelabel.rules.label_set_distribution import (
    LikelyTree,
    SetWeights,
    TerminalCounts,
    count_down,
    count_up,
    likely_tree,
    links_up,
    most_terminals,
    total_weight,
    weights_of,
    workspace_for_counts,
)
from treelabel.rules.label_set_odds import fit_log_odds, log_odds
from treelabel.rules.score_rows import ScoreRows, choose_sets, longest_row
from treelabel.scores.score_matrix import Scores

# Weights of 0 become this share of the largest: scores may ask for such a number all the same.
LEAST_WEIGHT = 1e-6
# Gauss-Legendre rules by their number of points, and the degree up to which each is right to ten digits.
_DEGREES = {16: 53, 24: 117, 32: 209, 48: 483, 64: 880, 96: 2061}

# Points, their weights, how many of them there are, and degrees; one row per rule.
Rules = tuple[DoubleArray, DoubleArray, LongArray, LongArray]


def best_label_set(
    scores: Scores, counts: Sequence[float] | DoubleArray, inner: float = 1.0, refit: bool = True, empty: float = 0.0
) -> LabelMatrix:
    """Choose the set with the largest expected F1 where the number of true paths has weights. Closed.

    A document's closed label set Y, with T its most specific nodes, has P(Y) proportional to g(|T|) h^(inner nodes in
    T) times the product over n in Y of v(n). With g = h = 1, children are independent given their parent; with all
    weight on g(1) one path is true, as in `optimal:hf1`. By default the v are fitted to each document so that
    P(n in Y) is the score of n, for every node, inner ones included: of all distributions with these marginals it is
    the one that is closest to g and h. So what the children lack of a node's score is not lost: the path ends there, or
    they are true together less often. With `refit` false the v are those of g = h = 1, and the weights change the
    marginals: better where scores were calibrated node by node, and do not know that siblings exclude each other.

    For any distribution the expected F1 of a set S of k nodes is the sum over its nodes of Delta_k(n) = sum over s of
    P(n in Y, |Y| = s) 2 / (k + s), so the k nodes of largest Delta_k are the best of that size (Dembczynski et al.
    2011). The sum over s is an integral over z of z^(k-1) times the generating function of |Y|, for which a
    Gauss-Legendre rule is right to ten digits, so each of its 16 to 96 points takes one pass up and down the tree with
    polynomials that count T.

    Nodes below a thousandth of the document's largest score are never chosen, which loses at most 0.002: taking such
    nodes out of a set of k loses less than k times 0.001 times 2 / (k + 1). What ends below them keeps its length and
    its ancestors, but of those that have both in common, in groups of at most 0.05, only one can be true, so that
    expected values are wrong by up to the probability that two of a group are. Ends less likely than a millionth, and
    more terminal nodes than expected by six standard deviations and six, are left out. In a DAG a node hangs below the
    least likely of its parents, others being on their own. Each pass costs the likely nodes of a document times the
    number of paths that it may have.

    Parameters
    ----------
    scores : Scores
        Made coherent first.
    counts : sequence of float
        g(0), g(1), ...; the last one holds for all larger numbers. Where 0, a millionth of the largest.
    inner : float
        h, for each path that ends at a node with likely nodes below it.
    refit : bool
        Whether marginals stay what the scores say.
    empty : float
        What predicting nothing is worth if nothing is true.

    Returns
    -------
    LabelMatrix, documents x nodes

    >>> from treelabel.hierarchy import Hierarchy
    >>> s = Scores(Hierarchy.flat(["A", "B", "C"]), [[0.6, 0.4, 0.1]])
    >>> best_label_set(s, [1]).indices.tolist(), best_label_set(s, [0, 1, 0.1], refit=False).indices.tolist()
    ([0, 1], [0])
    """
    g, h = checked_counts(counts), scores.hierarchy
    if not 0 <= inner < np.inf:
        raise TreelabelError(f"inner = {inner:g}, expected a weight of at least 0")
    if refit and inner == 1 and len(g) > 1 and np.flatnonzero(g > LEAST_WEIGHT).tolist() == [1]:
        return hf_beta(scores, empty=empty)
    ptr, inner = h.parent_ptr.astype(np.int64), max(float(inner), LEAST_WEIGHT)
    rules = gauss_legendre()
    return choose_sets(
        scores.coherent(),
        lambda rows: best_label_sets(ptr, h.parent_idx, g, inner, bool(refit), float(empty), rules, rows),
    )


def checked_counts(counts: Sequence[float] | DoubleArray) -> DoubleArray:
    """Return the weights g(0), g(1), ... with the largest being 1, refusing what is no list of weights.

    >>> checked_counts([0, 2, 1]).tolist()
    [1e-06, 1.0, 0.5]
    """
    g = np.atleast_1d(np.asarray(counts, np.float64))
    if g.ndim != 1 or not len(g) or not (np.isfinite(g) & (g >= 0)).all() or not g.any():
        raise TreelabelError("counts: expected weights of at least 0 for 0, 1, 2, ... true paths, not all of them 0")
    weights: DoubleArray = np.maximum(g / g.max(), LEAST_WEIGHT)
    return weights


@cache
def gauss_legendre() -> Rules:
    """Compute Gauss-Legendre rules on [0, 1]."""
    points, weights = np.zeros((len(_DEGREES), max(_DEGREES))), np.zeros((len(_DEGREES), max(_DEGREES)))
    for row, size in enumerate(_DEGREES):
        z, share = np.polynomial.legendre.leggauss(size)
        points[row, :size], weights[row, :size] = (z + 1) / 2, share / 2
    return points, weights, np.array(list(_DEGREES), np.int64), np.array(list(_DEGREES.values()), np.int64)


# How far marginals may be from the scores, and how many steps are taken to bring them there.
TOLERANCE, STEPS = 1e-5, 50


@kernel
def size_functions(
    tree: LikelyTree, odds: DoubleArray, weights: SetWeights, total: float, points: DoubleArray, counts: TerminalCounts
) -> DoubleArray:
    """Compute the sum over s of P(n in Y, |Y| = s) z^s for every place n and every point z: points x places."""
    result = np.zeros((len(points), len(odds)))
    is_flat = tree.above.max() == 0 and tree.length.max() == 1
    numbers = np.arange(len(weights.g))
    if is_flat:
        count_up(tree, odds, 1.0, weights.inner, counts)
    for index in range(len(points)):
        if is_flat:
            # Every node is terminal, so that the number of terminal nodes is the size.
            powers = SetWeights(weights.g * points[index] ** numbers, weights.inner)
            count_down(tree, odds, 1.0, powers, counts, result[index])
        else:
            count_up(tree, odds, points[index], weights.inner, counts)
            count_down(tree, odds, points[index], weights, counts, result[index])
    return result / total


@kernel
def gains(tree: LikelyTree, functions: DoubleArray, worth: DoubleArray, gain: DoubleArray) -> float:
    """Compute Delta_k of every place, `worth` being 2 z^(k-1) times the weight of each point z.

    Returns their sum over all nodes, E[2 |Y| / (k + |Y|)], which no set of k nodes or more exceeds.
    """
    bound = 0.0
    for here in range(1, len(gain)):
        gain[here] = 0.0
        for index in range(len(worth)):
            gain[here] += worth[index] * functions[index, here]
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
    weights: SetWeights,
    empty: float,
    rules: tuple[DoubleArray, DoubleArray, LongArray, LongArray],
    counts: TerminalCounts,
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
    selected = 1
    while selected < len(tree.node) and tree.node[selected] >= 0:
        selected += 1
    longest, rule, gain = longest_sets(tree, len(weights.g) - 1), -1, np.zeros(len(odds))
    functions, worth, z = np.zeros((0, 0)), np.zeros(0), np.zeros(0)
    for size in range(1, selected):
        if rule < 0 or (longest + size > degrees[rule] and rule + 1 < len(sizes)):
            rule += 1
            while longest + size > degrees[rule] and rule + 1 < len(sizes):
                rule += 1
            z = points[rule, : sizes[rule]]
            worth = 2 * shares[rule, : sizes[rule]] * z ** (size - 1)
            functions = size_functions(tree, odds, weights, total, z, counts)
        if gains(tree, functions, worth, gain) <= best:
            break
        value = largest(gain[1:selected], selected - 1, size, heap)
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
    rows: ScoreRows,
) -> tuple[IntArray, LongArray]:
    """For each row fit the distribution of its label set, and choose the set with the largest expected F1."""
    ptr, nodes, values, start, stop = rows
    most = longest_row(rows)
    position, up = np.empty(len(parent_ptr) - 1, np.int32), np.empty(most, np.int32)
    heap = np.empty(most + 1, np.int32)
    result = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        if low == high:
            continue
        here, p_row = nodes[low:high], values[low:high].astype(np.float64)
        links_up(parent_ptr, parent_idx, position, here, p_row, up)
        tree = likely_tree(up[: high - low], here, p_row)
        terminals = most_terminals(tree)
        weights, workspace = weights_of(counts, inner, terminals), workspace_for_counts(len(tree.p), terminals)
        logits, p = log_odds(tree), np.zeros(len(tree.p))
        if refit:
            fit_log_odds(tree, weights, logits, workspace, p, TOLERANCE, STEPS)
        picked = tree.node[best_places(tree, np.exp(logits), weights, empty, rules, workspace, heap)]
        result[used : used + len(picked)] = np.sort(picked)
        used += len(picked)
        sizes[row - start] = len(picked)
    return result[:used], sizes
