"""Compiled loops of the bag model: stochastic gradient descent, one document at a time, and the logits it is judged by.

Loops over documents let go of the GIL and write to the same arrays without locks, so several threads may run them at
once; with one thread the result is the same every time.
"""

from typing import Any, NamedTuple

import numpy as np

from treelabel.core.compute import FloatArray, IntArray, LongArray, fast_kernel, kernel
from treelabel.losses.kernels import Plan, Room, Targets, group_step, mark

# The squared length of gradients that a row counts as having had before its first.
SMALL = 1e-3


class Rows(NamedTuple):
    """The n-grams of documents: those of document i are idx[ptr[i]:ptr[i + 1]], weighed by val."""

    ptr: LongArray
    idx: IntArray
    val: FloatArray


class Weights(NamedTuple):
    """What is learned: one vector an n-gram, one an output, and the squares of all gradients that each has had.

    Without squares, steps are plain ones.
    """

    inputs: FloatArray
    outputs: FloatArray
    input_squares: FloatArray
    output_squares: FloatArray


@fast_kernel
def add_to(vector: FloatArray, x: np.float32, other: FloatArray) -> None:
    """Add x times another vector."""
    for d in range(len(vector)):
        vector[d] += x * other[d]


@fast_kernel
def product(one: FloatArray, two: FloatArray) -> np.float32:
    """Multiply two vectors."""
    total = np.float32(0)
    for d in range(len(one)):
        total += one[d] * two[d]
    return total


@kernel
def average(rows: Rows, document: int, inputs: FloatArray, hidden: FloatArray) -> None:
    """Sum the weighed vectors of a document's n-grams."""
    hidden[:] = 0
    for at in range(rows.ptr[document], rows.ptr[document + 1]):
        add_to(hidden, rows.val[at], inputs[rows.idx[at]])


@kernel
def group_logits(plan: Plan, group: int, hidden: FloatArray, outputs: FloatArray, logits: FloatArray) -> Any:
    """Compute the logits of a group, offsets left out; give how many there are."""
    first, size = plan.group_ptr[group], plan.group_ptr[group + 1] - plan.group_ptr[group]
    for place in range(size):
        logits[place] = product(hidden, outputs[plan.group_idx[first + place]])
    return size


@kernel
def descend(
    rows: Rows,
    plan: Plan,
    targets: Targets,
    weights: Weights,
    order: LongArray,
    rates: tuple[float, float],
    room: Room,
) -> float:
    """Take one step a document, the rate falling evenly from the first to the second; give the sum of the losses."""
    width = weights.inputs.shape[1]
    hidden, back = np.empty(width, np.float32), np.empty(width, np.float32)
    loss = 0.0
    for turn in range(len(order)):
        document = order[turn]
        rate = np.float32(rates[0] + (rates[1] - rates[0]) * turn / len(order))
        average(rows, document, weights.inputs, hidden)
        back[:] = 0
        mark(targets, document, 1, room.marks)
        for at in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            loss += descend_group(plan, targets.groups[at], weights, hidden, back, rate, room)
        mark(targets, document, 0, room.marks)
        square = product(back, back)
        for at in range(rows.ptr[document], rows.ptr[document + 1]):
            step = adapted(weights.input_squares, rows.idx[at], rows.val[at], square, rate)
            add_to(weights.inputs[rows.idx[at]], step, back)
    return loss


@kernel
def adapted(squares: FloatArray, row: int, slope: np.float32, square: np.float32, rate: np.float32) -> np.float32:
    """Give the step along minus slope x a vector of squared length `square`, shorter the more a row has had (Adagrad).

    A row counts as having had a little before its first gradient, so that tiny gradients make no long steps. Without
    squares it is the plain step.
    """
    if len(squares) == 0:
        return np.float32(-rate * slope)
    squares[row] += slope * slope * square
    return np.float32(-rate * slope / np.sqrt(squares[row] + np.float32(SMALL)))


@kernel
def descend_group(
    plan: Plan, group: int, weights: Weights, hidden: FloatArray, back: FloatArray, rate: np.float32, room: Room
) -> float:
    """Move the vectors of a group's outputs, and add to `back` the gradient of the document's vector."""
    first, size = plan.group_ptr[group], group_logits(plan, group, hidden, weights.outputs, room.logits)
    for place in range(size):
        room.logits[place] += plan.offsets[plan.group_idx[first + place]]
    loss = group_step(plan, group, size, room)
    square = product(hidden, hidden)
    for place in range(size):
        output, slope = plan.group_idx[first + place], room.logits[place]
        add_to(back, slope, weights.outputs[output])
        add_to(weights.outputs[output], adapted(weights.output_squares, output, slope, square, rate), hidden)
    return loss


@kernel
def judged_logits(rows: Rows, plan: Plan, targets: Targets, weights: Weights, count: int) -> FloatArray:
    """List the logits of all groups that documents are judged in, `count` in all."""
    found = np.empty(count, np.float32)
    hidden = np.empty(weights.inputs.shape[1], np.float32)
    used = 0
    for document in range(len(rows.ptr) - 1):
        average(rows, document, weights.inputs, hidden)
        for at in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            used += group_logits(plan, targets.groups[at], hidden, weights.outputs, found[used:])
    return found


@kernel
def loss_at(plan: Plan, targets: Targets, logits: FloatArray, slope: float, room: Room) -> float:
    """Give the mean loss of documents whose logits `judged_logits` has listed, multiplied by a slope."""
    loss, used = 0.0, 0
    documents = len(targets.group_ptr) - 1
    for document in range(documents):
        mark(targets, document, 1, room.marks)
        for at in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            group = targets.groups[at]
            first, size = plan.group_ptr[group], plan.group_ptr[group + 1] - plan.group_ptr[group]
            for place in range(size):
                room.logits[place] = slope * logits[used + place] + plan.offsets[plan.group_idx[first + place]]
            loss += group_step(plan, group, size, room)
            used += size
        mark(targets, document, 0, room.marks)
    return loss / max(1, documents)
