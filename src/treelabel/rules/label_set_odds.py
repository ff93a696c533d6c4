"""Compiled loops that fit the distribution of a document's label set to the probability of every node."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray
from treelabel.rules.label_set_distribution import (
    LikelyTree,
    SetWeights,
    TerminalCounts,
    count_down,
    count_up,
    total_weight,
)

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
