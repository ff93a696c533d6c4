"""The set with the largest expected F1: for documents with many labels, independent or not, and with one path."""

from collections.abc import Sequence
from functools import cache, partial

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix, sort_up
from treelabel.rules.hierarchical_f import hf_beta
from treelabel.rules.label_set_distribution import (
    LabelSetFit,
    LikelyTree,
    ParentGraph,
    SetWeights,
    count_down,
    count_up,
    fit_label_sets,
    total_weight,
)
from treelabel.rules.score_rows import ScoreRows, choose_sets, largest, longest_row
from treelabel.scores.score_matrix import Scores

# What is less likely than this is left out of distributions of counts.
NEGLIGIBLE = 1e-15


def hf1(
    scores: Scores,
    count_root: bool = False,
    empty: float = 1.0,
    counts: Sequence[float] | DoubleArray | None = None,
    inner: float = 1.0,
    refit: bool = True,
) -> LabelMatrix:
    """Choose the set with the largest expected hierarchical F1: `hf_beta` with beta = 1. Exact; closed.

    Hierarchical F1 is the F1 of closed sets, so with `counts`, weights of the number of true paths, this is
    `samples_f1` with the same settings, but that predicting nothing where nothing is true is worth 1, as in the metric.
    Where that is likelier than any set is good, nothing is predicted; with empty=0, as for data in which every document
    has a label, something always is.

    Parameters
    ----------
    count_root
        Whether the root is in both sets.
    empty
        What predicting nothing is worth where nothing is true.
    counts, inner, refit
        As in `samples_f1`.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> hf1(Scores(h, [[0.9, 0.7, 0.2], [0.2, 0.1, 0.1]])).toarray().astype(int).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    if counts is None:
        _require_counts(inner, refit)
        return hf_beta(scores, 1.0, count_root, empty)
    if count_root:
        raise TreelabelError("counts weigh the paths of sets without the root; leave out count_root")
    return best_label_set(scores, counts, inner, refit, empty)


def _require_counts(inner: float, refit: bool) -> None:
    if inner != 1 or not refit:
        raise TreelabelError("inner and refit go with counts=[...], the weights of 0, 1, 2, ... true paths")


def samples_f1(
    scores: Scores,
    beta: float = 1.0,
    empty: float = 0.0,
    counts: Sequence[float] | DoubleArray | None = None,
    inner: float = 1.0,
    refit: bool = True,
) -> LabelMatrix:
    """Choose the set with the largest expected F_beta if labels are independent with the given marginals. Closed.

    With `counts`, the weights of 0, 1, 2, ... true paths that `fit_counts` finds, labels are not independent:
    `best_label_set` says what `inner` and `refit` are.

    Exact under that assumption. The best set of k labels is the k likeliest (Lewis 1995), so with coherent scores it
    is closed; with H hits among them and R true labels among the others, its value is
    E[(1 + beta^2) H / (k + beta^2 (H + R))]. Both counts are sums of independent coins, whose distributions are built
    label by label (Ye et al. 2012). No set of k or more has more than E[(1 + beta^2) |Y| / (k + beta^2 |Y|)], which
    ends the search. `empty` is what predicting nothing is worth if nothing is true. Costs sorting the stored scores,
    and those times the number of labels that may be true; the sizes tried cost their square times that number.

    Parameters
    ----------
    beta
        How many times as much recall counts as precision.
    empty
        What predicting nothing is worth where nothing is true.
    counts
        The weights of the numbers of true paths.
    inner, refit
        As in `best_label_set`.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> s = Scores(Hierarchy.flat(["A", "B", "C"]), [[0.9, 0.45, 0.1]])
    >>> samples_f1(s).indices.tolist()
    [0, 1]
    """
    if not 0 <= beta < np.inf:
        raise TreelabelError(f"expected a beta of at least 0, found {beta:g}")
    if counts is not None:
        if beta != 1:
            raise TreelabelError(f"beta = {beta:g} with counts; expected beta = 1, or no counts")
        return best_label_set(scores, counts, inner, refit, empty)
    _require_counts(inner, refit)
    return choose_sets(scores.coherent(), lambda rows: best_prefixes(float(beta), float(empty), rows))


@kernel
def count_the_rest(p: DoubleArray, rest: DoubleArray, top: LongArray) -> None:
    """Find the distribution of the number of true labels among those from each place on: rest[at, number].

    Numbers above top[at] have next to no probability.
    """
    count, width = len(p), rest.shape[1]
    rest[count, 0], top[count] = 1.0, 0
    for index in range(count - 1, -1, -1):
        last = top[index + 1]
        rest[index, 0] = rest[index + 1, 0] * (1 - p[index])
        for number in range(1, last + 1):
            rest[index, number] = rest[index + 1, number] * (1 - p[index]) + rest[index + 1, number - 1] * p[index]
        top[index] = last
        if last + 1 < width and rest[index + 1, last] * p[index] > NEGLIGIBLE:
            rest[index, last + 1] = rest[index + 1, last] * p[index]
            top[index] = last + 1


@kernel
def add_coin(hits: DoubleArray, size: int, p: float) -> None:
    """Make the distribution of hits among size - 1 labels that among `size`."""
    hits[size] = hits[size - 1] * p
    for number in range(size - 1, 0, -1):
        hits[number] = hits[number] * (1 - p) + hits[number - 1] * p
    hits[0] *= 1 - p


@kernel
def expected_f(hits: DoubleArray, rest: DoubleArray, top: int, size: int, squared: float) -> float:
    """E[(1 + beta^2) H / (k + beta^2 (H + R))], H the true among k predicted labels, R those among the others."""
    value = 0.0
    for right in range(1, size + 1):
        if hits[right] > NEGLIGIBLE:
            inner = 0.0
            for missed in range(top + 1):
                inner += rest[missed] / (size + squared * (right + missed))
            value += hits[right] * (1 + squared) * right * inner
    return value


@kernel
def best_size(
    p: DoubleArray, rest: DoubleArray, top: LongArray, hits: DoubleArray, squared: float, empty: float
) -> int:
    """Find how many of the likeliest labels to predict."""
    best, result = empty * rest[0, 0], 0
    hits[0] = 1.0
    for size in range(1, len(p) + 1):
        bound = 0.0
        for number in range(1, top[0] + 1):
            bound += rest[0, number] * (1 + squared) * number / (size + squared * number)
        if bound <= best:
            break
        add_coin(hits, size, p[size - 1])
        value = expected_f(hits, rest[size], top[size], size, squared)
        if value > best:
            best, result = value, size
    return result


@kernel
def best_prefixes(beta: float, empty: float, rows: ScoreRows) -> tuple[IntArray, LongArray]:
    """Choose, for each row, its likeliest labels, as many as are worth it."""
    ptr, nodes, values, start, stop = rows
    most, expected = 0, 0.0
    for row in range(start, stop):
        most = max(most, ptr[row + 1] - ptr[row])
        expected = max(expected, values[ptr[row] : ptr[row + 1]].sum())
    # Sums of independent coins with mean m exceed 4 m + 64 with a probability below 1e-20.
    width = min(most, int(4 * expected + 64)) + 1
    rest, top = np.zeros((most + 1, width)), np.zeros(most + 1, np.int64)
    hits = np.zeros(most + 1)
    result = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        # A stable sort by falling score leaves equal ones in the order of their ids, parents first.
        order = np.argsort(-values[low:high], kind="mergesort")
        p = values[low:high][order].astype(np.float64)
        count_the_rest(p, rest, top)
        size = best_size(p, rest, top, hits, beta * beta, empty)
        for index in range(size):
            result[used + index] = nodes[low + order[index]]
        sort_up(result, used, used + size)
        used += size
        sizes[row - start] = size
    return result[:used], sizes


# Weights of 0 become this share of the largest: scores may ask for such a number all the same.
LEAST_WEIGHT = 1e-6
# Gauss-Legendre rules by their number of points, and the degree up to which each is right to ten digits.
_DEGREES = {16: 53, 24: 117, 32: 209, 48: 483, 64: 880, 96: 2061}

# Points, their weights, how many of them there are, and degrees; one row per rule.
Quadrature = tuple[DoubleArray, DoubleArray, LongArray, LongArray]


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
    graph, weights = (h.parent_ptr.astype(np.int64), h.parent_idx), SetWeights(g, max(float(inner), LEAST_WEIGHT))
    choose = partial(best_label_sets, graph, weights, STEPS if refit else 0, float(empty), gauss_legendre())
    return choose_sets(scores.coherent(), choose)


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
def gauss_legendre() -> Quadrature:
    """Compute Gauss-Legendre rules on [0, 1]."""
    points, weights = np.zeros((len(_DEGREES), max(_DEGREES))), np.zeros((len(_DEGREES), max(_DEGREES)))
    for row, size in enumerate(_DEGREES):
        z, share = np.polynomial.legendre.leggauss(size)
        points[row, :size], weights[row, :size] = (z + 1) / 2, share / 2
    return points, weights, np.array(list(_DEGREES), np.int64), np.array(list(_DEGREES.values()), np.int64)


# How far marginals may be from the scores, and how many steps are taken to bring them there.
TOLERANCE, STEPS = 1e-5, 50


@kernel
def size_functions(fit: LabelSetFit, total: float, points: DoubleArray) -> DoubleArray:
    """Compute the sum over s of P(n in Y, |Y| = s) z^s for every place n and every point z: points x places."""
    tree, odds, weights, counts = fit
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
def best_places(fit: LabelSetFit, empty: float, quadrature: Quadrature, heap: IntArray) -> IntArray:
    """Choose the places of the best set: of each size those with the largest Delta_k, until a bound ends the search.

    `quadrature` are Gauss-Legendre rules with more and more points, and the degree that each integrates to ten digits.
    """
    tree, odds, weights, counts = fit
    points, shares, sizes, degrees = quadrature
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
            functions = size_functions(fit, total, z)
        if gains(tree, functions, worth, gain) <= best:
            break
        value = largest(gain[1:selected], selected - 1, size, heap)
        if value > best:
            best, chosen = value, heap[:size] + np.int32(1)
        worth = worth * z
    return chosen


@kernel
def best_label_sets(
    graph: ParentGraph, weights: SetWeights, steps: int, empty: float, quadrature: Quadrature, rows: ScoreRows
) -> tuple[IntArray, LongArray]:
    """For each row fit the distribution of its label set, and choose the set with the largest expected F1."""
    ptr, nodes, values, start, stop = rows
    position, heap = np.empty(len(graph[0]) - 1, np.int32), np.empty(longest_row(rows) + 1, np.int32)
    result = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        if low == high:
            continue
        p = values[low:high].astype(np.float64)
        fit = fit_label_sets(graph, position, nodes[low:high], p, weights, TOLERANCE, steps)
        picked = fit.tree.node[best_places(fit, empty, quadrature, heap)]
        result[used : used + len(picked)] = picked
        sort_up(result, used, used + len(picked))
        used += len(picked)
        sizes[row - start] = len(picked)
    return result[:used], sizes
