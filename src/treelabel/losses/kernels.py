"""Compiled losses, one group of outputs of one document at a time; `losses` says the same in numpy, for reading."""

from typing import Any, NamedTuple

import numpy as np

from treelabel.core.compute import DoubleArray, FloatArray, IntArray, LongArray, kernel

SIGMOID, SOFTMAX, WIN_LOG, WIN_RAW, CHAMP = range(5)


class Plan(NamedTuple):
    """What a loss looks at: groups of outputs that are judged together.

    The outputs of group g are group_idx[group_ptr[g]:group_ptr[g + 1]]. `offsets` are added to the logits in training.
    For the win, the k-th ancestor of output l (from the top) has the outputs first[ptr[l] + k] .. last[ptr[l] + k] - 1.
    For champ, output n has the parents first[ptr[n]:ptr[n + 1]], and at distance d it weighs weight_at[d].
    """

    kind: int
    group_ptr: LongArray
    group_idx: IntArray
    offsets: FloatArray
    above_ptr: LongArray
    above_first: IntArray
    above_last: IntArray
    weight_at: DoubleArray


class Targets(NamedTuple):
    """What is true of documents: the groups that each is judged in, and which outputs of these are true."""

    group_ptr: LongArray
    groups: IntArray
    true_ptr: LongArray
    true: IntArray


class Room(NamedTuple):
    """Memory for one document: logits of a group, the share (or distance) of each output, and which are true."""

    logits: FloatArray
    shares: DoubleArray
    marks: IntArray


@kernel
def sigmoid_step(logits: Any, outputs: IntArray, marks: IntArray) -> float:
    """Replace logits s by sigmoid(s) - y; give the sum of ln(1 + e^s) - y s."""
    loss = 0.0
    for at in range(len(outputs)):
        s, y = float(logits[at]), marks[outputs[at]]
        small = np.exp(-abs(s))
        loss += max(s, 0.0) - y * s + np.log1p(small)
        logits[at] = (1.0 if s >= 0 else small) / (1.0 + small) - y
    return loss


@kernel
def softmax_step(logits: Any, true: int) -> float:
    """Replace logits by p - e_true, p their softmax; give -ln p_true."""
    largest = float(logits.max())
    own, total = float(logits[true]), 0.0
    for at in range(len(logits)):
        total += np.exp(float(logits[at]) - largest)
    for at in range(len(logits)):
        logits[at] = np.exp(float(logits[at]) - largest) / total
    logits[true] -= 1
    return float(np.log(total) + largest - own)


@kernel
def win_step(logits: Any, shares: DoubleArray, raw: bool) -> float:
    """Replace logits by p - q (times the win if raw), q being p times the shares, normalised; give -ln win or -win."""
    largest, near = float(logits.max()), -np.inf
    for at in range(len(logits)):
        if shares[at] > 0:
            near = max(near, float(logits[at]))
    total, part = 0.0, 0.0
    for at in range(len(logits)):
        total += np.exp(float(logits[at]) - largest)
        if shares[at] > 0:
            part += shares[at] * np.exp(float(logits[at]) - near)
    log_win = min(0.0, np.log(part) + near - np.log(total) - largest)
    scale = np.exp(log_win) if raw else 1.0
    for at in range(len(logits)):
        pulled = shares[at] * np.exp(float(logits[at]) - near) / part if shares[at] > 0 else 0.0
        logits[at] = scale * (np.exp(float(logits[at]) - largest) / total - pulled)
    return float(-np.exp(log_win) if raw else -log_win)


@kernel
def fill_shares(plan: Plan, true: int, shares: DoubleArray) -> None:
    """Find what each output would win: 1 - 2^-j with j ancestors shared with the true output, which wins 1."""
    shares[:] = 0.0
    value = 0.0
    for depth, at in enumerate(range(plan.above_ptr[true], plan.above_ptr[true + 1])):
        value += 0.5 ** (depth + 1)
        shares[plan.above_first[at] : plan.above_last[at]] = value
    shares[true] = 1.0


@kernel
def fill_distances(plan: Plan, marks: IntArray, away: DoubleArray) -> None:
    """Count the edges from every output to the nearest true one; 0 everywhere if none is. Parents come first."""
    away[: len(marks)] = 0.0
    if not marks.any():
        return
    for node in range(len(marks)):
        if marks[node] == 0:
            nearest = np.inf
            for at in range(plan.above_ptr[node], plan.above_ptr[node + 1]):
                above = plan.above_first[at]
                nearest = min(nearest, away[above] if above >= 0 else 1.0)
            away[node] = nearest + 1


@kernel
def champ_step(logits: Any, plan: Plan, outputs: IntArray, room: Room) -> float:
    """Do as `sigmoid_step` does, every output weighed by its distance from the truth."""
    fill_distances(plan, room.marks, room.shares)
    loss = 0.0
    for at in range(len(outputs)):
        weight = plan.weight_at[int(room.shares[outputs[at]])]
        loss += weight * sigmoid_step(logits[at : at + 1], outputs[at : at + 1], room.marks)
        logits[at] *= weight
    return loss


@kernel
def group_step(plan: Plan, group: int, size: int, room: Room) -> float:
    """Replace the logits of a group (the first `size` of the room's) by the gradient of the loss; give the loss."""
    first = plan.group_ptr[group]
    outputs = plan.group_idx[first : first + size]
    logits = room.logits[:size]
    if plan.kind == SIGMOID:
        return sigmoid_step(logits, outputs, room.marks)
    if plan.kind == CHAMP:
        return champ_step(logits, plan, outputs, room)
    true = 0
    while room.marks[outputs[true]] == 0:
        true += 1
    if plan.kind == SOFTMAX:
        return softmax_step(logits, true)
    fill_shares(plan, true, room.shares)
    return win_step(logits, room.shares, plan.kind == WIN_RAW)


@kernel
def mark(targets: Targets, document: int, value: int, marks: IntArray) -> None:
    """Mark the true outputs of a document, or take the marks away."""
    for at in range(targets.true_ptr[document], targets.true_ptr[document + 1]):
        marks[targets.true[at]] = value


@kernel
def losses_and_gradients(plan: Plan, targets: Targets, logits: DoubleArray, room: Room) -> tuple[Any, Any]:
    """Give the loss of each document and its gradient: documents, and documents x outputs."""
    losses, gradients = np.zeros(len(logits)), np.zeros(logits.shape)
    for document in range(len(logits)):
        mark(targets, document, 1, room.marks)
        for at in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            group = targets.groups[at]
            first, size = plan.group_ptr[group], plan.group_ptr[group + 1] - plan.group_ptr[group]
            for place in range(size):
                output = plan.group_idx[first + place]
                room.logits[place] = logits[document, output] + plan.offsets[output]
            losses[document] += group_step(plan, group, size, room)
            for place in range(size):
                gradients[document, plan.group_idx[first + place]] = room.logits[place]
        mark(targets, document, 0, room.marks)
    return losses, gradients
