"""Compiled loops of the bag model: stochastic gradient descent, one document at a time, and validation logits.

Loops over documents release the GIL and write to the same arrays without locks, so several threads may run them at
once; with one thread the result is the same every time.
"""

from typing import Any, NamedTuple

import numpy as np

from treelabel.core.compute import fast_kernel, kernel
from treelabel.core.types import FloatArray, IntArray, LongArray
from treelabel.neural.losses.compiled import Plan, Targets, Workspace, group_step, mark

# The squared length of the gradients that a row is taken to have had before its first.
INITIAL_SQUARES = 1e-3


class Rows(NamedTuple):
    """The n-grams of documents: those of document i are idx[ptr[i]:ptr[i + 1]], with the weights val."""

    ptr: LongArray
    idx: IntArray
    val: FloatArray


class Weights(NamedTuple):
    """The learned weights: one vector per n-gram, one per output, and the sum of all squared gradients of each.

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
def embed(rows: Rows, document: int, inputs: FloatArray, hidden: FloatArray) -> None:
    """Sum the weighted vectors of a document's n-grams."""
    hidden[:] = 0
    for at in range(rows.ptr[document], rows.ptr[document + 1]):
        add_to(hidden, rows.val[at], inputs[rows.idx[at]])


@kernel
def group_logits(plan: Plan, group: int, hidden: FloatArray, outputs: FloatArray, logits: FloatArray) -> Any:
    """Compute the logits of a group, without offsets; return their number."""
    first = plan.groups.ptr[group]
    size = plan.groups.ptr[group + 1] - first
    for place in range(size):
        logits[place] = product(hidden, outputs[plan.groups.idx[first + place]])
    return size


@kernel
def adapted(
    squares: FloatArray, row: int, gradient: np.float32, square: np.float32, learning_rate: np.float32
) -> np.float32:
    """Return the factor of a step along minus gradient x a vector of squared length `square` (Adagrad, one per row).

    The more gradients a row has had, the shorter its steps. Without squares it is the plain step.
    """
    if len(squares) == 0:
        return np.float32(-learning_rate * gradient)
    squares[row] += gradient * gradient * square
    return np.float32(-learning_rate * gradient / np.sqrt(squares[row] + np.float32(INITIAL_SQUARES)))


@kernel
def move_output(
    weights: Weights,
    output: int,
    gradient: np.float32,
    hidden: FloatArray,
    square: np.float32,
    back: FloatArray,
    learning_rate: np.float32,
) -> None:
    """Move the vector of an output, and add to `back` the gradient of the document's vector."""
    add_to(back, gradient, weights.outputs[output])
    step = adapted(weights.output_squares, output, gradient, square, learning_rate)
    add_to(weights.outputs[output], step, hidden)


@kernel
def move_inputs(rows: Rows, document: int, weights: Weights, back: FloatArray, learning_rate: np.float32) -> None:
    """Move the vectors of a document's n-grams."""
    square = product(back, back)
    for at in range(rows.ptr[document], rows.ptr[document + 1]):
        step = adapted(weights.input_squares, rows.idx[at], rows.val[at], square, learning_rate)
        add_to(weights.inputs[rows.idx[at]], step, back)


# With a compiled loss


@kernel
def descend(
    rows: Rows,
    plan: Plan,
    targets: Targets,
    weights: Weights,
    order: LongArray,
    learning_rates: tuple[float, float],
    workspace: Workspace,
) -> float:
    """Take one step per document, the learning rate falling evenly from first to second; return the sum of losses."""
    width = weights.inputs.shape[1]
    hidden, back = np.empty(width, np.float32), np.empty(width, np.float32)
    loss = 0.0
    for turn in range(len(order)):
        document = order[turn]
        rate = np.float32(learning_rates[0] + (learning_rates[1] - learning_rates[0]) * turn / len(order))
        embed(rows, document, weights.inputs, hidden)
        back[:] = 0
        mark(targets, document, 1, workspace.marks)
        for at in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            loss += descend_group(plan, targets.groups[at], weights, hidden, back, rate, workspace)
        mark(targets, document, 0, workspace.marks)
        move_inputs(rows, document, weights, back, rate)
    return loss


@kernel
def descend_group(
    plan: Plan,
    group: int,
    weights: Weights,
    hidden: FloatArray,
    back: FloatArray,
    learning_rate: np.float32,
    workspace: Workspace,
) -> float:
    """Move the vectors of a group's outputs, and add to `back` the gradient of the document's vector."""
    first, size = plan.groups.ptr[group], group_logits(plan, group, hidden, weights.outputs, workspace.logits)
    for place in range(size):
        workspace.logits[place] += plan.offsets[plan.groups.idx[first + place]]
    loss = group_step(plan, group, size, workspace)
    square = product(hidden, hidden)
    for place in range(size):
        output = plan.groups.idx[first + place]
        move_output(weights, output, workspace.logits[place], hidden, square, back, learning_rate)
    return loss


@kernel
def judged_logits(rows: Rows, plan: Plan, targets: Targets, weights: Weights, count: int) -> FloatArray:
    """List the logits of all groups that documents are judged in, `count` in all."""
    found = np.empty(count, np.float32)
    hidden = np.empty(weights.inputs.shape[1], np.float32)
    used = 0
    for document in range(len(rows.ptr) - 1):
        embed(rows, document, weights.inputs, hidden)
        for at in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            used += group_logits(plan, targets.groups[at], hidden, weights.outputs, found[used:])
    return found


@kernel
def mean_loss(
    plan: Plan, targets: Targets, logits: FloatArray, inverse_temperature: float, workspace: Workspace
) -> float:
    """Compute the mean loss of documents from their `judged_logits`, times an inverse temperature."""
    loss, used = 0.0, 0
    documents = len(targets.group_ptr) - 1
    for document in range(documents):
        mark(targets, document, 1, workspace.marks)
        for at in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            group = targets.groups[at]
            first = plan.groups.ptr[group]
            size = plan.groups.ptr[group + 1] - first
            for place in range(size):
                offset = plan.offsets[plan.groups.idx[first + place]]
                workspace.logits[place] = inverse_temperature * logits[used + place] + offset
            loss += group_step(plan, group, size, workspace)
            used += size
        mark(targets, document, 0, workspace.marks)
    return loss / max(1, documents)


# With any loss


@kernel
def all_logits(rows: Rows, document: int, weights: Weights, hidden: FloatArray, logits: FloatArray) -> None:
    """Compute a document's vector and the logits of all outputs."""
    embed(rows, document, weights.inputs, hidden)
    for output in range(len(logits)):
        logits[output] = product(hidden, weights.outputs[output])


@kernel
def descend_along(
    rows: Rows, document: int, weights: Weights, gradient: FloatArray, hidden: FloatArray, learning_rate: np.float32
) -> None:
    """Take one step along minus a gradient of a document's logits; `hidden` is the document's vector."""
    back = np.zeros(len(hidden), np.float32)
    square = product(hidden, hidden)
    for output in range(len(gradient)):
        if gradient[output] != 0:
            move_output(weights, output, gradient[output], hidden, square, back, learning_rate)
    move_inputs(rows, document, weights, back, learning_rate)
