"""Compiled loops over the distribution of a document's label set, given the probability of every node.

P(Y) is proportional to g(|T|) h^(inner nodes in T) times the product over n in Y of v(n), Y a closed set of a tree, T
its most specific nodes; see `treelabel.rules.expected_f`. Odds of nodes are kept as q / (1 - q), q being the
probability of a node given its parent wherever g and h are 1. Polynomials in x, whose powers count T, have
probabilities as coefficients: no sum below subtracts anything. A power of y for each node of Y makes the same loops
generating functions of |Y|.
"""

from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, IntArray, LongArray

# Nodes less likely than this share of the likeliest are folded into their ancestors, in groups of this mass at most.
UNLIKELY, FULL = 1e-3, 0.05
# Ends less likely than this are left out.
NEGLIGIBLE = 1e-6


# The parents of every node: row pointers, and ids, -1 being the root.
ParentGraph = tuple[LongArray, IntArray]


class LikelyTree(NamedTuple):
    """The likely nodes of one document below a root at place 0, parents first, and groups of folded terminal nodes.

    `above` is the place of the parent, `length` the number of nodes that a place stands for, `p` its probability, and
    `node` its id, -1 for the root and for groups.
    """

    above: IntArray
    length: IntArray
    p: DoubleArray
    node: IntArray


class SetWeights(NamedTuple):
    """g(0), g(1), ... for the number of terminal nodes, and h for each one that has likely nodes below it."""

    g: DoubleArray
    inner: float


class TerminalCounts(NamedTuple):
    """Polynomials of each place: of its children together, of itself, and of the siblings multiplied before it."""

    below: DoubleArray
    local: DoubleArray
    others: DoubleArray
    outer: DoubleArray
    top: LongArray
    others_top: LongArray


@kernel
def links_up(graph: ParentGraph, position: IntArray, nodes: IntArray, values: DoubleArray) -> IntArray:
    """Find the place of the parent of each node of a row, of several the least likely one, -1 for the root."""
    parent_ptr, parent_idx = graph
    up = np.full(len(nodes), -1, np.int32)
    for index in range(len(nodes)):
        position[nodes[index]] = index
        for link in range(parent_ptr[nodes[index]], parent_ptr[nodes[index] + 1]):
            if parent_idx[link] >= 0:
                result = position[parent_idx[link]]
                if up[index] < 0 or values[result] < values[up[index]]:
                    up[index] = result
    return up


@kernel
def mass_beyond_children(up: IntArray, values: DoubleArray) -> DoubleArray:
    """Find what the children of each node lack of its score."""
    mass = values.copy()
    for index in range(len(up) - 1, -1, -1):
        if up[index] >= 0:
            mass[up[index]] -= values[index]
    return np.maximum(mass, 0.0)


@kernel
def likely_tree(up: IntArray, nodes: IntArray, values: DoubleArray) -> LikelyTree:
    """Keep the likely nodes of a row; what ends below others is joined by its nearest kept ancestor and its length."""
    count = len(nodes)
    least = UNLIKELY * values.max() if count else 0.0
    anchor, drop = np.zeros(count, np.int32), np.zeros(count, np.int32)
    used, deepest = 1, 0
    for index in range(count):
        if values[index] >= least:
            anchor[index] = used
            used += 1
        else:
            anchor[index] = anchor[up[index]] if up[index] >= 0 else 0
            drop[index] = drop[up[index]] + 1 if up[index] >= 0 else 1
            deepest = max(deepest, drop[index])
    above, length = np.zeros(count + 1, np.int32), np.ones(count + 1, np.int32)
    p, node = np.ones(count + 1), np.full(count + 1, -1, np.int32)
    for index in range(count):
        if drop[index] == 0:
            here = anchor[index]
            above[here] = anchor[up[index]] if up[index] >= 0 else 0
            p[here], node[here] = values[index], nodes[index]
    used = fold(up, values, anchor, drop, deepest, used, LikelyTree(above, length, p, node))
    return LikelyTree(above[:used], length[:used], p[:used], node[:used])


@kernel
def fold(
    up: IntArray, values: DoubleArray, anchor: IntArray, drop: IntArray, deepest: int, used: int, tree: LikelyTree
) -> int:
    """Join what ends at nodes that are not kept, in groups below their anchors; return the number of places."""
    if deepest == 0:
        return used
    first_group = used
    mass = mass_beyond_children(up, values)
    group = np.zeros((used, deepest + 1), np.int32)
    for index in range(len(up)):
        if drop[index] > 0 and mass[index] > NEGLIGIBLE:
            here = group[anchor[index], drop[index]]
            most = min(FULL, 0.5 * tree.p[anchor[index]])
            if here == 0 or tree.p[here] + mass[index] > most:
                here = used
                group[anchor[index], drop[index]] = here
                tree.above[here], tree.length[here], tree.p[here] = anchor[index], drop[index], 0.0
                used += 1
            tree.p[here] += mass[index]
    for here in range(first_group, used):
        tree.p[here] = min(tree.p[here], tree.p[tree.above[here]])
    return used


@kernel
def most_terminals(tree: LikelyTree) -> int:
    """Return how many terminal nodes are counted at most: six standard deviations and six more than are expected."""
    expected = np.zeros(len(tree.p))
    for here in range(len(tree.p) - 1, 0, -1):
        expected[tree.above[here]] += max(tree.p[here], expected[here])
    most: int = min(len(tree.p) - 1, int(expected[0] + 6 * np.sqrt(expected[0]) + 6))
    return most


@kernel
def weights_of(prior: SetWeights, most: int) -> SetWeights:
    """Return g(0), ..., g(most), the last of the input weights holding for all larger numbers, and h."""
    return SetWeights(prior.g[np.minimum(np.arange(most + 1), len(prior.g) - 1)], prior.inner)


@kernel
def workspace_for_counts(places: int, most: int) -> TerminalCounts:
    """Make a workspace for polynomials of degree `most`."""
    room, tops = np.zeros((4, places, most + 1)), np.zeros((2, places), np.int64)
    return TerminalCounts(room[0], room[1], room[2], room[3], tops[0], tops[1])


@kernel
def count_up(tree: LikelyTree, odds: DoubleArray, y: float, inner: float, counts: TerminalCounts) -> None:
    """From the leaves up, find the distribution of the number of terminal nodes at or below each place.

    A place has none with probability 1 - q; otherwise those of its children, or one if they have none.
    """
    most = counts.below.shape[1] - 1
    for here in range(len(odds)):
        counts.top[here] = 0
        counts.below[here, 0] = 1.0
        for number in range(1, most + 1):
            counts.below[here, number] = 0.0
    for here in range(len(odds) - 1, 0, -1):
        below, here_counts, up = counts.below[here], counts.local[here], tree.above[here]
        size = max(1, counts.top[here])
        factor = odds[here] / (1 + odds[here]) * y ** tree.length[here]
        here_counts[0] = 1 / (1 + odds[here])
        for number in range(1, size + 1):
            here_counts[number] = factor * below[number]
        here_counts[1] += factor * below[0] * (inner if counts.top[here] > 0 else 1.0)
        joined, last = counts.below[up], counts.top[up]
        for number in range(last + 1):
            counts.others[here, number] = joined[number]
        counts.others_top[here] = last
        counts.top[up] = min(most, last + size)
        for number in range(counts.top[up], -1, -1):
            total = 0.0
            for part in range(max(0, number - last), min(size, number) + 1):
                total += joined[number - part] * here_counts[part]
            joined[number] = total


@kernel
def count_down(
    tree: LikelyTree, odds: DoubleArray, y: float, weights: SetWeights, counts: TerminalCounts, p: DoubleArray
) -> None:
    """From the root down, find the weight of all sets that have each place: `outer` is for its terminal nodes.

    It is the derivative of the sum over all sets by the coefficients of a place, found by the chain rule.
    """
    for number in range(len(weights.g)):
        counts.outer[0, number] = weights.g[number]
    for here in range(1, len(odds)):
        up, size, last = tree.above[here], max(1, counts.top[here]), counts.others_top[here]
        here_counts, others = counts.local[here], counts.others[here]
        outer, above = counts.outer[here], counts.outer[up]
        end = min(len(weights.g) - 1, last + size)
        factor = odds[here] / (1 + odds[here]) * y ** tree.length[here]
        p[here] = 0.0
        for part in range(1, size + 1):
            worth = 0.0
            for number in range(min(last, end - part) + 1):
                worth += above[number + part] * others[number]
            p[here] += here_counts[part] * worth
            outer[part] = factor * worth
        outer[0] = outer[1] * (weights.inner if counts.top[here] > 0 else 1.0)
        for number in range(last + 1):
            worth = 0.0
            for part in range(min(size, end - number) + 1):
                worth += above[number + part] * here_counts[part]
            above[number] = worth


@kernel
def total_weight(g: DoubleArray, counts: TerminalCounts) -> float:
    """Sum the weights of all sets, after `count_up`."""
    total = 0.0
    for number in range(len(g)):
        total += g[number] * counts.below[0, number]
    return total


# How far a node may be from being certain, given its parent.
CERTAIN = 1e-9
# How many steps are remembered, and how far one may go in log odds.
MEMORY, FAR = 8, 4.0


@kernel
def log_odds(tree: LikelyTree) -> DoubleArray:
    """Compute the log odds of every place given its parent, which are right if all weights are 1."""
    result = np.zeros(len(tree.p))
    for here in range(1, len(result)):
        share = min(max(tree.p[here] / tree.p[tree.above[here]], CERTAIN), 1 - CERTAIN)
        result[here] = np.log(share / (1 - share))
    return result


@kernel
def descend(
    tree: LikelyTree,
    weights: SetWeights,
    logits: DoubleArray,
    counts: TerminalCounts,
    p: DoubleArray,
    gradient: DoubleArray,
) -> float:
    """Compute the loss that is least where all marginals are right, its gradient, and the marginals p.

    The loss is the log of the sum of all weights less sum of p(n) log q(n) + (p(parent) - p(n)) log(1 - q(n)).
    """
    odds = np.exp(logits)
    count_up(tree, odds, 1.0, weights.inner, counts)
    total = total_weight(weights.g, counts)
    count_down(tree, odds, 1.0, weights, counts, p)
    p[0] = total
    loss: float = np.log(total)
    for here in range(len(odds)):
        p[here] /= total
    for here in range(1, len(odds)):
        up, q = tree.above[here], odds[here] / (1 + odds[here])
        loss += tree.p[up] * np.log1p(odds[here]) - tree.p[here] * logits[here]
        gradient[here] = p[here] - tree.p[here] - q * (p[up] - tree.p[up])
    return loss


@kernel
def direction(
    gradient: DoubleArray, scale: DoubleArray, moves: DoubleArray, changes: DoubleArray, remembered: int, last: int
) -> DoubleArray:
    """Compute the step of L-BFGS from the last moves and changes of the gradient, `scale` being the first guess."""
    step = -gradient
    parts = np.zeros(MEMORY)
    for age in range(remembered):
        index = (last - age) % MEMORY
        parts[index] = (moves[index] @ step) / (moves[index] @ changes[index])
        step -= parts[index] * changes[index]
    step *= scale
    for age in range(remembered - 1, -1, -1):
        index = (last - age) % MEMORY
        step += moves[index] * (parts[index] - (changes[index] @ step) / (moves[index] @ changes[index]))
    return step


@kernel
def largest_error(tree: LikelyTree, p: DoubleArray) -> float:
    """Return how far any marginal is from what it should be."""
    worst = 0.0
    for here in range(1, len(p)):
        worst = max(worst, abs(p[here] - tree.p[here]))
    return worst


@kernel
def fit_log_odds(
    tree: LikelyTree,
    weights: SetWeights,
    logits: DoubleArray,
    counts: TerminalCounts,
    p: DoubleArray,
    tolerance: float,
    steps: int,
) -> int:
    """Find the log odds at which every marginal is within `tolerance` of the given one, by L-BFGS; count the steps.

    In terms of log v the loss is convex, so that there is one solution, and steps that do not lower it are halved.
    """
    size = len(logits)
    gradient, trial_gradient = np.zeros(size), np.zeros(size)
    moves, changes = np.zeros((MEMORY, size)), np.zeros((MEMORY, size))
    scale = np.zeros(size)
    for here in range(1, size):
        share = min(tree.p[here] / tree.p[tree.above[here]], 1 - CERTAIN)
        scale[here] = 1 / max(tree.p[here] * (1 - share), CERTAIN)
    loss = descend(tree, weights, logits, counts, p, gradient)
    remembered, last = 0, -1
    for taken in range(steps):
        if largest_error(tree, p) <= tolerance:
            return taken
        step = direction(gradient, scale, moves, changes, remembered, last)
        slope = step @ gradient
        if slope >= 0:
            remembered, step = 0, -gradient * scale
            slope = step @ gradient
        length = min(1.0, FAR / max(np.abs(step).max(), 1e-300))
        trial = logits + length * step
        trial_loss = descend(tree, weights, trial, counts, p, trial_gradient)
        while trial_loss > loss + 1e-4 * length * slope and length > 1e-6:
            length *= 0.5
            trial = logits + length * step
            trial_loss = descend(tree, weights, trial, counts, p, trial_gradient)
        if length * step @ (trial_gradient - gradient) > 0:
            last = (last + 1) % MEMORY
            remembered = min(remembered + 1, MEMORY)
            moves[last], changes[last] = trial - logits, trial_gradient - gradient
        logits[:], gradient[:], loss = trial, trial_gradient, trial_loss
    return steps


class LabelSetFit(NamedTuple):
    """The distribution of one document's label set: its likely nodes, their odds, the weights, and room to count."""

    tree: LikelyTree
    odds: DoubleArray
    weights: SetWeights
    counts: TerminalCounts


@kernel
def fit_label_sets(
    graph: ParentGraph,
    position: IntArray,
    nodes: IntArray,
    values: DoubleArray,
    prior: SetWeights,
    tolerance: float,
    steps: int,
) -> LabelSetFit:
    """Fit the distribution of the label set of one row, in at most so many steps: with 0 its odds are as the scores."""
    tree = likely_tree(links_up(graph, position, nodes, values), nodes, values)
    terminals = most_terminals(tree)
    weights, workspace = weights_of(prior, terminals), workspace_for_counts(len(tree.p), terminals)
    logits = log_odds(tree)
    if steps > 0:
        fit_log_odds(tree, weights, logits, workspace, np.zeros(len(tree.p)), tolerance, steps)
    return LabelSetFit(tree, np.exp(logits), weights, workspace)
