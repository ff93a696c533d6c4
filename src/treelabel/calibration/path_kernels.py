"""Compiled loops of the softmax over paths: one document after the other, from features to the probabilities of nodes.

Everything that a document needs is in a few short vectors, which never leave the cache; only the result is written.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treelabel.core.compute import fast_kernel, kernel
from treelabel.core.sparse_product import Dot, SparseDocuments, multiply_row
from treelabel.core.types import FloatArray, IntArray, LongArray

IndexArray = npt.NDArray[np.uint32]

LOG2_E = np.float32(1.4426950408889634)
# Nothing is surer than this leaves over.
LEAST_LEFT = 1e-6
# Beta calibration multiplies what the likeliest terminal leaves over by this at most.
MOST_FACTOR = np.float32(1e3)
# 2 ** f for f in [-0.5, 0.5], to 2e-7.
POWERS = tuple(np.float32(math.log(2) ** n / math.factorial(n)) for n in range(7))


@fast_kernel
def powers(values: FloatArray, inverse_temperature: float, result: FloatArray) -> np.float32:
    """result = exp(inverse_temperature x value) for values not above 0; return the sum.

    Unlike the library's exp, this compiles to vector instructions: e^x = 2^k 2^f with k whole and |f| <= 1/2; below
    e^-86 it is 0.
    """
    total = np.float32(0)
    scale = np.float32(inverse_temperature) * LOG2_E
    for index in range(len(values)):
        x = max(values[index] * scale, np.float32(-125))
        k = np.floor(x + np.float32(0.5))
        f = x - k
        series = POWERS[5] + f * POWERS[6]
        series = POWERS[4] + f * series
        series = POWERS[3] + f * series
        series = POWERS[2] + f * series
        series = POWERS[1] + f * series
        series = POWERS[0] + f * series
        power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
        result[index] = series * power if x > np.float32(-124) else np.float32(0)
        total += result[index]
    return total


@fast_kernel
def largest_value(values: FloatArray, least: np.float32) -> np.float32:
    """Return the largest of some values and `least`.

    One comparison waits for the one before; four chains of them do not wait for each other.
    """
    first, second, third, fourth = least, least, least, least
    whole = len(values) - len(values) % 4
    for index in range(0, whole, 4):
        first = max(first, values[index])
        second = max(second, values[index + 1])
        third = max(third, values[index + 2])
        fourth = max(fourth, values[index + 3])
    for index in range(whole, len(values)):
        first = max(first, values[index])
    return max(max(first, second), max(third, fourth))


@kernel
def level_parts(
    margins: FloatArray,
    terminals: LongArray,
    terminal_outputs: IntArray,
    ptr: LongArray,
    above: IntArray,
    levels: IntArray,
    count: int,
) -> FloatArray:
    """Compute the parts of the logits of some terminals: their margins, and the ancestors' of each level.

    The result is documents x terminals x levels.
    """
    result = np.zeros((*terminals.shape, count), np.float32)
    for row in range(len(terminals)):
        for column in range(terminals.shape[1]):
            terminal = terminals[row, column]
            result[row, column, 0] = margins[row, terminal_outputs[terminal]]
            for index in range(ptr[terminal], ptr[terminal + 1]):
                result[row, column, levels[index]] += margins[row, above[index]]
    return result


@fast_kernel
def tree_logits(
    margins: FloatArray,
    terminal_outputs: IndexArray,
    terminal_weight: np.float32,
    chain: tuple[IndexArray, IndexArray, FloatArray],
    last: IndexArray,
    sums: FloatArray,
    out: FloatArray,
) -> None:
    """Compute terminal_weight x margin + the weighted margins of all ancestors, summed along paths, parents first.

    sums[1 + i] = sums[parent[i]] + weight[i] x margins[output[i]]; `last` is the position of the ancestor right above
    each terminal, and position 0 adds nothing. Indices are unsigned: signed ones take vectors twice as long to look up.
    """
    parent, outputs, weights = chain
    sums[0] = 0
    for index in range(len(parent)):
        sums[index + 1] = sums[parent[index]] + weights[index] * margins[outputs[index]]
    for terminal in range(len(terminal_outputs)):
        out[terminal] = terminal_weight * margins[terminal_outputs[terminal]] + sums[last[terminal]]


@fast_kernel
def add_above(margins: FloatArray, ptr: LongArray, above: IndexArray, weights: FloatArray, out: FloatArray) -> None:
    """Add the weighted margins above each terminal, where they are listed."""
    for terminal in range(len(out)):
        for index in range(ptr[terminal], ptr[terminal + 1]):
            out[terminal] += weights[index] * margins[above[index]]


class Softmax(NamedTuple):
    """Parameters of the softmax over terminal nodes.

    In a tree, `chain` is (position of the parent, output, weight) of inner nodes and `last` the position above each
    terminal; in a DAG these are empty, and `above` lists (pointers, outputs, weights) of the ancestors of each
    terminal. `sharp` and `flat` are inverse temperatures, `flat_weight` is the weight of the flat softmax, and `beta`
    calibrates the likeliest terminal.
    """

    terminal_outputs: IndexArray
    terminal_weight: float
    chain: tuple[IndexArray, IndexArray, FloatArray]
    last: IndexArray
    above: tuple[LongArray, IndexArray, FloatArray]
    sharp: float
    flat: float
    flat_weight: float
    beta: tuple[float, float, float]


class Sums(NamedTuple):
    """How the probabilities of terminals sum up to those of nodes.

    In a tree, by `parent`; siblings there are mixed with the uniform distribution: `uniform_weights` (e) and `uniform`
    (1 / siblings, 0 where there are none) are those of the children of the root and of every node. In a DAG `parent`
    is empty, and the paths of terminals are listed (pointers, nodes).
    """

    terminals: IntArray
    parent: IntArray
    uniform_weights: FloatArray
    uniform: FloatArray
    path_ptr: IntArray
    path_idx: IntArray


@fast_kernel
def softmax_row(margins: FloatArray, fitted: Softmax, sums: FloatArray, scratch: FloatArray, out: FloatArray) -> None:
    """Mix a sharp and a flat softmax over terminals; `scratch` has two rows with one entry per terminal."""
    logits, other = scratch[0], scratch[1]
    weight = np.float32(fitted.terminal_weight)
    tree_logits(margins, fitted.terminal_outputs, weight, fitted.chain, fitted.last, sums, logits)
    if len(fitted.above[1]) > 0:
        add_above(margins, fitted.above[0], fitted.above[1], fitted.above[2], logits)
    largest = largest_value(logits, np.float32(-3e38))
    for terminal in range(len(logits)):
        logits[terminal] -= largest
    # Vectors are only used where what is read and what is written are different arrays.
    two = np.float32(fitted.flat_weight / powers(logits, fitted.flat, other))
    one = np.float32((1 - fitted.flat_weight) / powers(logits, fitted.sharp, out))
    for terminal in range(len(out)):
        out[terminal] = one * out[terminal] + two * other[terminal]


@fast_kernel
def sum_row(p_terminals: FloatArray, how: Sums, out: FloatArray) -> None:
    """Sum the terminals at or below every node; in a tree, siblings stand together and after their parent."""
    out[:] = 0
    if len(how.parent) == 0:
        for terminal in range(len(p_terminals)):
            for index in range(how.path_ptr[terminal], how.path_ptr[terminal + 1]):
                out[how.path_idx[index]] += p_terminals[terminal]
        for node in range(len(out)):
            out[node] = min(out[node], np.float32(1))
        return
    for terminal in range(len(p_terminals)):
        out[how.terminals[terminal]] = p_terminals[terminal]
    total = np.float32(0)
    for node in range(len(out) - 1, -1, -1):
        out[node] = min(out[node], np.float32(1))
        if how.parent[node] < 0:
            continue
        total += out[node]
        if how.parent[node - 1] != how.parent[node]:
            out[how.parent[node]] += total
            total = np.float32(0)


@fast_kernel
def mix_uniform_row(out: FloatArray, how: Sums, scratch: FloatArray) -> None:
    """Mix the distribution over the children of every node of a tree with the uniform one, in place.

    P(n | parent) becomes (1 - e) P(n | parent) + e / siblings, which leaves a little to labels never seen in training;
    below a parent with probability 0 it becomes uniform. `scratch` has three rows: the probability of each node, the
    factor of its children, and what is added to them.
    """
    whole, factor, added = scratch[0], scratch[1], scratch[2]
    whole[0], factor[0], added[0] = 1, 1 - how.uniform_weights[0], how.uniform_weights[0] * how.uniform[0]
    for node in range(len(out)):
        above, before = how.parent[node] + 1, out[node]
        now = min(whole[above], factor[above] * before + added[above])
        out[node] = now
        if how.uniform[node + 1] > 0:
            weight = how.uniform_weights[node + 1] if before > 0 else np.float32(1)
            whole[node + 1] = now
            factor[node + 1] = (np.float32(1) - weight) * now / before if before > 0 else np.float32(0)
            added[node + 1] = weight * now * how.uniform[node + 1]


@fast_kernel
def likeliest_of(terminals: FloatArray) -> int:
    """Return the index of the largest probability, the first of equal ones."""
    largest = largest_value(terminals, np.float32(0))
    for end in range(len(terminals)):
        if terminals[end] == largest:
            return end
    return 0


@fast_kernel
def second_of(best: int, terminals: FloatArray, how: Sums, out: FloatArray) -> np.float32:
    """Return the largest probability of another terminal, or of a leaf that was never seen."""
    in_tree, second = len(how.terminals) > 0 and len(how.parent) > 0, np.float32(0)
    for end in range(len(terminals)):
        # In a tree, leaves are looked at below, and this is about stops.
        if end != best and not (in_tree and how.uniform[how.terminals[end] + 1] == 0):
            second = max(second, terminals[end])
    if in_tree:
        for node in range(len(out)):
            if how.uniform[node + 1] == 0 and node != how.terminals[best]:
                second = max(second, out[node])
    return second


@fast_kernel
def terminal_probability(end: int, terminals: FloatArray, how: Sums, out: FloatArray) -> np.float32:
    """Return what a terminal has in the probabilities of nodes: a stop has what its node's children leave over."""
    if len(how.terminals) == 0 or len(how.parent) == 0:
        return np.float32(terminals[end])
    node = how.terminals[end]
    p = float(out[node])
    if how.uniform[node + 1] > 0:
        for child in range(node + 1, len(out)):
            if how.parent[child] == node:
                p -= out[child]
    return np.float32(max(p, 0.0))


@kernel
def beta_calibrated(p: float, beta: tuple[float, float, float]) -> float:
    """Compute sigmoid(a ln p - b ln(1 - p) + c)."""
    odds = beta[0] * np.log(max(p, LEAST_LEFT)) - beta[1] * np.log(max(1 - p, LEAST_LEFT)) + beta[2]
    return float(1 / (1 + np.exp(-odds)))


@fast_kernel
def calibrate_row(terminals: FloatArray, how: Sums, beta: tuple[float, float, float], out: FloatArray) -> None:
    """Calibrate the likeliest terminal, and scale all others to what it leaves over; `out` has nodes or terminals.

    Where the uniform distribution has made another leaf likelier, nothing changes.
    """
    end = likeliest_of(terminals)
    p = terminal_probability(end, terminals, how, out)
    now, left = beta_calibrated(float(p), beta), np.float32(1) - p
    if now < 0.5 or p < 0.5:
        second = second_of(end, terminals, how, out)
        if p <= second:
            return
        # It stays the likeliest, by a hair if need be.
        now = max(now, float(1.0001 * second / (left + second)))
    # What rounding leaves over cannot be made much of: all is still to sum to 1.
    factor = min(np.float32((1 - now) / max(left, np.float32(1e-30))), MOST_FACTOR)
    more = np.float32(1) - factor * left - factor * p
    for index in range(len(out)):
        out[index] *= factor
    if len(how.terminals) == 0:
        add_within(out, end, more)
    elif len(how.parent) == 0:
        for index in range(how.path_ptr[end], how.path_ptr[end + 1]):
            add_within(out, how.path_idx[index], more)
    else:
        node = how.terminals[end]
        while node >= 0:
            add_within(out, node, more)
            node = how.parent[node]


@fast_kernel
def add_within(p: FloatArray, index: int, more: np.float32) -> None:
    """Add to a probability, which stays one though numbers are rounded."""
    p[index] = min(max(p[index] + more, np.float32(0)), np.float32(1))


class Scratch(NamedTuple):
    """Vectors that the scoring of a document writes to, the probabilities of terminals among them."""

    margins: FloatArray
    sums: FloatArray
    logits: FloatArray
    mixing: FloatArray
    terminals: FloatArray


@fast_kernel
def scratch_for(dot: Dot, fitted: Softmax, width: int) -> Scratch:
    """Make vectors for probabilities of so many nodes."""
    outputs, inner, terminals = len(dot.bias), 1 + len(fitted.chain[0]), len(fitted.terminal_outputs)
    return Scratch(
        np.empty(outputs, np.float32),
        np.empty(inner, np.float32),
        np.empty((2, terminals), np.float32),
        np.empty((3, 1 + width), np.float32),
        np.empty(terminals, np.float32),
    )


@fast_kernel
def score_row(
    documents: SparseDocuments, dot: Dot, fitted: Softmax, how: Sums, row: int, scratch: Scratch, out: FloatArray
) -> None:
    """Write the probabilities of a document's terminals, and of its nodes, before the likeliest one is calibrated."""
    margins, terminals = scratch.margins, scratch.terminals
    if len(documents.margins) > 0:
        for output in range(len(margins)):
            margins[output] = documents.margins[row, output]
    else:
        multiply_row(documents, dot, row, margins)
    softmax_row(margins, fitted, scratch.sums, scratch.logits, terminals)
    if len(how.terminals) == 0:
        for terminal in range(len(out)):
            out[terminal] = terminals[terminal]
        return
    sum_row(terminals, how, out)
    mixes = False
    for index in range(len(how.uniform_weights)):
        mixes |= how.uniform_weights[index] > 0
    if len(how.parent) > 0 and mixes:
        mix_uniform_row(out, how, scratch.mixing)


@fast_kernel
def score_paths(
    documents: SparseDocuments, dot: Dot, fitted: Softmax, how: Sums, start: int, stop: int, result: FloatArray
) -> None:
    """Write the probabilities of the nodes of documents start..stop; without terminals in `how`, those of terminals."""
    scratch = scratch_for(dot, fitted, result.shape[1])
    for row in range(start, stop):
        score_row(documents, dot, fitted, how, row, scratch, result[row])
        if fitted.beta != (1.0, 1.0, 0.0):
            calibrate_row(scratch.terminals, how, fitted.beta, result[row])


@fast_kernel
def likeliest_paths(
    documents: SparseDocuments, dot: Dot, fitted: Softmax, how: Sums, start: int, stop: int, width: int
) -> tuple[LongArray, FloatArray]:
    """Find the likeliest terminals of documents start..stop, and their probabilities before they are calibrated.

    `width` is the number of nodes, or of terminals where `how` has none.
    """
    best, p = np.empty(stop - start, np.int64), np.empty(stop - start, np.float32)
    scratch, out = scratch_for(dot, fitted, width), np.empty(width, np.float32)
    for row in range(start, stop):
        score_row(documents, dot, fitted, how, row, scratch, out)
        best[row - start] = likeliest_of(scratch.terminals)
        p[row - start] = terminal_probability(best[row - start], scratch.terminals, how, out)
    return best, p


@fast_kernel
def mix_uniform(p: FloatArray, how: Sums) -> None:
    """Mix siblings with the uniform distribution in all rows, in place."""
    scratch = np.empty((3, 1 + p.shape[1]), np.float32)
    for row in range(len(p)):
        mix_uniform_row(p[row], how, scratch)
