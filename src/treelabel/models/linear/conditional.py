"""Logistic regression inside groups of siblings: which child, given that the parent is right.

Every group is a small problem of its own, learned from the documents below its parent by stochastic dual coordinate
ascent (Shalev-Shwartz and Zhang 2013). Groups run in threads; the order of documents comes from the seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from treelabel.core.compute import FloatArray, IntArray, LongArray, kernel
from treelabel.models.linear.blocks import BLOCK, add_multiples, add_products
from treelabel.models.linear.descent import (
    ABSENT,
    LONGEST_REST,
    SMALL,
    Rows,
    Take,
    block_products,
    in_threads,
)
from treelabel.models.stopping import StopSignal

# The length of a row, a bias of 1 included, squared.
SQUARES = 2.0
LEAST_SHARE = np.float32(1e-12)


@dataclass(frozen=True, eq=False)
class Group:
    """Siblings: their outputs, the documents below their parent, which of them are true, and what is added in training.

    `true` is documents x siblings; `offsets` is tau x ln of each sibling's share where logits are adjusted, else 0.
    """

    outputs: IntArray
    rows: LongArray
    true: FloatArray
    offsets: FloatArray


@kernel
def softmax_step(logits: FloatArray, duals: FloatArray, cost: float, change: FloatArray) -> None:
    """How far the dual variables of a document go to the softmax of its logits: change = s (p - a).

    With D = p - a, s = min(1, (KL(a || p) + |D|_1^2 / 2) / (|D|_1^2 + C |x|^2 |D|_2^2)) raises the dual by most of what
    it can.
    """
    largest = logits.max()
    total = np.float32(0)
    for k in range(len(logits)):
        change[k] = np.exp(logits[k] - largest)
        total += change[k]
    gap, one, two = np.float32(0), np.float32(0), np.float32(0)
    for k in range(len(logits)):
        p, a = max(change[k] / total, LEAST_SHARE), duals[k]
        if a > LEAST_SHARE:
            gap += a * np.log(a / p)
        change[k] = p - a
        one += abs(change[k])
        two += change[k] * change[k]
    below = one * one + np.float32(cost * SQUARES) * two
    step = min(np.float32(1), (gap + one * one / np.float32(2)) / below) if below > 0 else np.float32(0)
    for k in range(len(logits)):
        change[k] *= step


@kernel
def sigmoid_step(logits: FloatArray, duals: FloatArray, cost: float, change: FloatArray) -> None:
    """The same for a sigmoid each: s = min(1, (KL(a || p) + 2 D^2) / (4 D^2 + C |x|^2 D^2))."""
    for k in range(len(logits)):
        p = np.float32(1) / (np.float32(1) + np.exp(-logits[k]))
        p = min(max(p, LEAST_SHARE), np.float32(1 - 1e-7))
        a = duals[k]
        gap = np.float32(0)
        if a > LEAST_SHARE:
            gap += a * np.log(a / p)
        if a < 1:
            gap += (1 - a) * np.log((1 - a) / (1 - p))
        square = (p - a) * (p - a)
        below = square * np.float32(4 + cost * SQUARES)
        step = min(np.float32(1), (gap + 2 * square) / below) if below > 0 else np.float32(0)
        change[k] = step * (p - a)


@kernel
def group_pass(
    softmax: bool,
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    rows: LongArray,
    weights: FloatArray,
    bias: FloatArray,
    duals: FloatArray,
    offsets: FloatArray,
    rests: IntArray,
    cost: float,
    order: LongArray,
) -> int:
    """Visit the documents of a group once, `order` being places among its rows; give how many changed anything.

    The problem is min 1/2 |W|^2 + C sum of cross-entropies; W = C sum of (y - a) x, and a comes near to what W says.
    """
    size, blocks = len(offsets), len(weights)
    logits, change = np.zeros(blocks * BLOCK, np.float32), np.zeros(blocks * BLOCK, np.float32)
    changed = 0
    for place in order:
        if rests[place, 0] > 0:
            rests[place, 0] -= 1
            continue
        first, last = np.int64(ptr[rows[place]]), np.int64(ptr[rows[place] + 1])
        for block in range(blocks):
            part = logits[block * BLOCK : (block + 1) * BLOCK]
            part[:] = bias[block]
            add_products(idx, val, first, last, weights[block], part)
        logits[:size] += offsets
        if softmax:
            softmax_step(logits[:size], duals[place], cost, change[:size])
        else:
            sigmoid_step(logits[:size], duals[place], cost, change[:size])
        if np.abs(change[:size]).max() * cost < SMALL:
            rests[place, 1] = min(LONGEST_REST, 2 * rests[place, 1] + 1)
            rests[place, 0] = rests[place, 1]
            continue
        changed += 1
        rests[place, 1] = 0
        duals[place] += change[:size]
        change[:size] *= np.float32(-cost)
        for block in range(blocks):
            part = change[block * BLOCK : (block + 1) * BLOCK]
            bias[block] += part
            add_multiples(idx, val, first, last, weights[block], part)
    return changed


def train_groups(
    rows: Rows,
    groups: Sequence[Group],
    softmax: bool,
    cost: float,
    take: Take,
    stop: StopSignal,
    done: Callable[[int], None],
) -> None:
    """Train each group on the documents below its parent, as train_hinge does: first without those held out.

    Costs about documents x features a document x the siblings on their paths x passes / 16, however many other labels
    there are; memory holds the features x siblings of one group a thread.
    """
    features = rows.features
    ptr, idx, val = features.indptr, features.indices, features.data

    def learn(group: Group) -> None:
        blocks = -(-len(group.outputs) // BLOCK)
        weights = np.zeros((blocks, features.shape[1], BLOCK), np.float32)
        bias = np.zeros((blocks, BLOCK), np.float32)
        duals = group.true.copy()
        place = np.full(features.shape[0], -1, np.int64)
        place[group.rows] = np.arange(len(group.rows))
        state = ptr, idx, val, group.rows, weights, bias, duals

        def visit(orders: Sequence[LongArray]) -> None:
            rests = np.zeros((len(group.rows), 2), np.int32)
            for order in orders:
                if not group_pass(softmax, *state, group.offsets, rests, cost, place[order]) or stop:
                    break

        first, then = rows.orders(group.rows)
        visit(first)
        known = np.asarray(group.true[place[first[0]]].any(axis=0))
        margins = [block_products(ptr, idx, val, weights[b], bias[b], rows.held) for b in range(blocks)]
        visit(then)
        for b in range(blocks):
            part = slice(b * BLOCK, (b + 1) * BLOCK)
            margins[b][:, np.flatnonzero(~known[part])] = ABSENT
            take(group.outputs[part], margins[b], weights[b], bias[b])

    in_threads(learn, sorted(groups, key=lambda group: -len(group.rows) * len(group.outputs)), stop, done)
