"""Compiled loops of the bag model: stochastic gradient descent, one document at a time, and validation logits.

Loops over documents release the GIL and write to the same arrays without locks, so several threads may run them at
once; with one thread the result is the same every time.
"""

from typing import Any, NamedTuple

import numpy as np

from treelabel.core.compute import fast_kernel, kernel
from treelabel.core.types import FloatArray, IntArray, LongArray
from treelabel.neural.bag.compiled_loss import Plan, Targets, Workspace, group_step, mark_true

# Documents whose logits are computed together, so that an output's vector is read once for all of them.
SCORED_TOGETHER = 16
# The squared length of the gradients that a row is taken to have had before its first.
INITIAL_SQUARES = 1e-3


class NgramRows(NamedTuple):
    """The n-grams of documents: those of document i are idx[ptr[i]:ptr[i + 1]], with the weights val."""

    ptr: LongArray
    idx: IntArray
    val: FloatArray


class BagWeights(NamedTuple):
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
def embed(rows: NgramRows, document: int, inputs: FloatArray, hidden: FloatArray) -> None:
    """Sum the weighted vectors of a document's n-grams."""
    hidden[:] = 0
    for index in range(rows.ptr[document], rows.ptr[document + 1]):
        add_to(hidden, rows.val[index], inputs[rows.idx[index]])


@kernel
def group_logits(plan: Plan, group: int, hidden: FloatArray, outputs: FloatArray, logits: FloatArray) -> Any:
    """Compute the logits of a group, without offsets; return their number."""
    first = plan.ptr[group]
    size = plan.ptr[group + 1] - first
    for offset in range(size):
        logits[offset] = product(hidden, outputs[plan.members[first + offset]])
    return size


@kernel
def step_length(
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
    weights: BagWeights,
    output: int,
    gradient: np.float32,
    hidden: FloatArray,
    square: np.float32,
    back: FloatArray,
    learning_rate: np.float32,
) -> None:
    """Move the vector of an output, and add to `back` the gradient of the document's vector."""
    add_to(back, gradient, weights.outputs[output])
    step = step_length(weights.output_squares, output, gradient, square, learning_rate)
    add_to(weights.outputs[output], step, hidden)


@kernel
def move_inputs(
    rows: NgramRows, document: int, weights: BagWeights, back: FloatArray, learning_rate: np.float32
) -> None:
    """Move the vectors of a document's n-grams."""
    square = product(back, back)
    for index in range(rows.ptr[document], rows.ptr[document + 1]):
        step = step_length(weights.input_squares, rows.idx[index], rows.val[index], square, learning_rate)
        add_to(weights.inputs[rows.idx[index]], step, back)


# With a compiled loss


@kernel
def descend(
    rows: NgramRows,
    plan: Plan,
    targets: Targets,
    weights: BagWeights,
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
        mark_true(targets, document, 1, workspace.is_true)
        for index in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            loss += descend_group(plan, targets.groups[index], weights, hidden, back, rate, workspace)
        mark_true(targets, document, 0, workspace.is_true)
        move_inputs(rows, document, weights, back, rate)
    return loss


@kernel
def descend_group(
    plan: Plan,
    group: int,
    weights: BagWeights,
    hidden: FloatArray,
    back: FloatArray,
    learning_rate: np.float32,
    workspace: Workspace,
) -> float:
    """Move the vectors of a group's outputs, and add to `back` the gradient of the document's vector."""
    first, size = plan.ptr[group], group_logits(plan, group, hidden, weights.outputs, workspace.logits)
    for offset in range(size):
        workspace.logits[offset] += plan.offsets[plan.members[first + offset]]
    loss = group_step(plan, group, size, workspace)
    square = product(hidden, hidden)
    for offset in range(size):
        output = plan.members[first + offset]
        move_output(weights, output, workspace.logits[offset], hidden, square, back, learning_rate)
    return loss


@kernel
def judged_logits(rows: NgramRows, plan: Plan, targets: Targets, weights: BagWeights, count: int) -> FloatArray:
    """List the logits of all groups that documents are judged in, `count` in all."""
    result = np.empty(count, np.float32)
    hidden = np.empty(weights.inputs.shape[1], np.float32)
    used = 0
    for document in range(len(rows.ptr) - 1):
        embed(rows, document, weights.inputs, hidden)
        for index in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            used += group_logits(plan, targets.groups[index], hidden, weights.outputs, result[used:])
    return result


@kernel
def mean_loss(
    plan: Plan, targets: Targets, logits: FloatArray, inverse_temperature: float, workspace: Workspace
) -> float:
    """Compute the mean loss of documents from their `judged_logits`, times an inverse temperature."""
    loss, used = 0.0, 0
    documents = len(targets.group_ptr) - 1
    for document in range(documents):
        mark_true(targets, document, 1, workspace.is_true)
        for index in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            group = targets.groups[index]
            first = plan.ptr[group]
            size = plan.ptr[group + 1] - first
            for offset in range(size):
                shift = plan.offsets[plan.members[first + offset]]
                workspace.logits[offset] = inverse_temperature * logits[used + offset] + shift
            loss += group_step(plan, group, size, workspace)
            used += size
        mark_true(targets, document, 0, workspace.is_true)
    return loss / max(1, documents)


# With any loss


@kernel
def all_logits(rows: NgramRows, weights: BagWeights, start: int, stop: int) -> FloatArray:
    """Compute the logits of all outputs, for the documents from `start` up to `stop`.

    Every logit is summed in the same order, however many documents and threads there are, as a product of BLAS is not.
    """
    documents, outputs = stop - start, len(weights.outputs)
    result = np.empty((documents, outputs), np.float32)
    hidden = np.empty((SCORED_TOGETHER, weights.inputs.shape[1]), np.float32)
    for low in range(0, documents, SCORED_TOGETHER):
        count = min(SCORED_TOGETHER, documents - low)
        for index in range(count):
            embed(rows, start + low + index, weights.inputs, hidden[index])
        for output in range(outputs):
            for index in range(count):
                result[low + index, output] = product(hidden[index], weights.outputs[output])
    return result


@kernel
def descend_along(
    rows: NgramRows, document: int, weights: BagWeights, gradient: FloatArray, learning_rate: np.float32
) -> None:
    """Take one step along minus a gradient of a document's logits."""
    width = weights.inputs.shape[1]
    hidden, back = np.empty(width, np.float32), np.zeros(width, np.float32)
    embed(rows, document, weights.inputs, hidden)
    square = product(hidden, hidden)
    for output in range(len(gradient)):
        if gradient[output] != 0:
            move_output(weights, output, gradient[output], hidden, square, back, learning_rate)
    move_inputs(rows, document, weights, back, learning_rate)
