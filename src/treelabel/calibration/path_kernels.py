"""Compiled loops of the softmax over paths: one document after the other, from features to the probabilities of nodes.

Everything that a document needs is in a few short vectors, which never leave the cache; only the result is written.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treelabel.core.compute import FloatArray, IntArray, LongArray, fast_kernel, kernel
from treelabel.core.sparse_product import Documents, Dot, multiply_row

IndexArray = npt.NDArray[np.uint32]

LOG2_E = np.float32(1.4426950408889634)
# 2 ** f for f in [-0.5, 0.5], to 2e-7.
POWERS = tuple(np.float32(math.log(2) ** n / math.factorial(n)) for n in range(7))


@fast_kernel
def powers(values: FloatArray, inverse_temperature: float, found: FloatArray) -> np.float32:
    """found = exp(inverse_temperature x value) for values not above 0; return the sum.

    Unlike the library's exp, this compiles to vector instructions: e^x = 2^k 2^f with k whole and |f| <= 1/2; below
    e^-86 it is 0.
    """
    total = np.float32(0)
    scale = np.float32(inverse_temperature) * LOG2_E
    for at in range(len(values)):
        x = max(values[at] * scale, np.float32(-125))
        k = np.floor(x + np.float32(0.5))
        f = x - k
        series = POWERS[5] + f * POWERS[6]
        series = POWERS[4] + f * series
        series = POWERS[3] + f * series
        series = POWERS[2] + f * series
        series = POWERS[1] + f * series
        series = POWERS[0] + f * series
        power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
        found[at] = series * power if x > np.float32(-124) else np.float32(0)
        total += found[at]
    return total


@kernel
def level_parts(
    margins: FloatArray,
    terminals: LongArray,
    own: IntArray,
    ptr: LongArray,
    above: IntArray,
    levels: IntArray,
    count: int,
) -> FloatArray:
    """Compute the parts of the logits of some terminals: the own margin, and the ancestors' of each level.

    The result is documents x terminals x levels.
    """
    found = np.zeros((*terminals.shape, count), np.float32)
    for row in range(len(terminals)):
        for place in range(terminals.shape[1]):
            terminal = terminals[row, place]
            found[row, place, 0] = margins[row, own[terminal]]
            for at in range(ptr[terminal], ptr[terminal + 1]):
                found[row, place, levels[at]] += margins[row, above[at]]
    return found


@fast_kernel
def tree_logits(
    given: FloatArray,
    own: IndexArray,
    own_weight: np.float32,
    chain: tuple[IndexArray, IndexArray, FloatArray],
    last: IndexArray,
    sums: FloatArray,
    out: FloatArray,
) -> None:
    """Compute own_weight x own margin + the weighted margins of all ancestors, summed along paths, parents first.

    sums[1 + i] = sums[parent[i]] + weight[i] x given[output[i]]; `last` is the place of the ancestor right above each
    terminal, and place 0 adds nothing. Indices are unsigned: signed ones take vectors twice as long to look up.
    """
    parent, outputs, weights = chain
    sums[0] = 0
    for at in range(len(parent)):
        sums[at + 1] = sums[parent[at]] + weights[at] * given[outputs[at]]
    for terminal in range(len(own)):
        out[terminal] = own_weight * given[own[terminal]] + sums[last[terminal]]


@fast_kernel
def add_above(given: FloatArray, ptr: LongArray, above: IndexArray, weights: FloatArray, out: FloatArray) -> None:
    """Add the weighted margins above each terminal, where they are listed."""
    for terminal in range(len(out)):
        for at in range(ptr[terminal], ptr[terminal + 1]):
            out[terminal] += weights[at] * given[above[at]]


class Softmax(NamedTuple):
    """Parameters of the softmax over terminal nodes.

    In a tree, `chain` is (place of the parent, output, weight) of inner nodes and `last` the place above each terminal;
    in a DAG these are empty, and `above` lists (pointers, outputs, weights) of the ancestors of each terminal. `sharp`
    and `flat` are inverse temperatures, and `flat_weight` is the weight of the flat softmax.
    """

    own: IndexArray
    own_weight: float
    chain: tuple[IndexArray, IndexArray, FloatArray]
    last: IndexArray
    above: tuple[LongArray, IndexArray, FloatArray]
    sharp: float
    flat: float
    flat_weight: float


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
def softmax_row(given: FloatArray, fitted: Softmax, sums: FloatArray, scratch: FloatArray, out: FloatArray) -> None:
    """Mix a sharp and a flat softmax over terminals; `scratch` has two rows with one entry per terminal."""
    logits, other = scratch[0], scratch[1]
    tree_logits(given, fitted.own, np.float32(fitted.own_weight), fitted.chain, fitted.last, sums, logits)
    if len(fitted.above[1]) > 0:
        add_above(given, fitted.above[0], fitted.above[1], fitted.above[2], logits)
    largest = np.float32(-3e38)
    for terminal in range(len(logits)):
        largest = logits[terminal] if logits[terminal] > largest else largest
    for terminal in range(len(logits)):
        logits[terminal] -= largest
    # Vectors are only used where what is read and what is written are different arrays.
    two = np.float32(fitted.flat_weight / powers(logits, fitted.flat, other))
    one = np.float32((1 - fitted.flat_weight) / powers(logits, fitted.sharp, out))
    for terminal in range(len(out)):
        out[terminal] = one * out[terminal] + two * other[terminal]


@fast_kernel
def sum_row(given: FloatArray, how: Sums, out: FloatArray) -> None:
    """Sum the terminals at or below every node; in a tree, siblings stand together and after their parent."""
    out[:] = 0
    if len(how.parent) == 0:
        for terminal in range(len(given)):
            for at in range(how.path_ptr[terminal], how.path_ptr[terminal + 1]):
                out[how.path_idx[at]] += given[terminal]
        for node in range(len(out)):
            out[node] = min(out[node], np.float32(1))
        return
    for terminal in range(len(given)):
        out[how.terminals[terminal]] = given[terminal]
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
def score_paths(
    documents: Documents, dot: Dot, fitted: Softmax, how: Sums, start: int, stop: int, found: FloatArray
) -> None:
    """Write the probabilities of the nodes of documents start..stop; without terminals in `how`, those of terminals."""
    given, terminals = np.empty(len(dot.bias), np.float32), np.empty(len(fitted.own), np.float32)
    sums, scratch = np.empty(1 + len(fitted.chain[0]), np.float32), np.empty((3, 1 + found.shape[1]), np.float32)
    logits = np.empty((2, len(fitted.own)), np.float32)
    mixed = len(how.parent) > 0 and how.uniform_weights.max() > 0
    for row in range(start, stop):
        if len(documents.margins) > 0:
            given[:] = documents.margins[row]
        else:
            multiply_row(documents, dot, row, given)
        softmax_row(given, fitted, sums, logits, terminals)
        if len(how.terminals) == 0:
            found[row] = terminals
            continue
        sum_row(terminals, how, found[row])
        if mixed:
            mix_uniform_row(found[row], how, scratch)


@fast_kernel
def mix_uniform(p: FloatArray, how: Sums) -> None:
    """Mix siblings with the uniform distribution in all rows, in place."""
    scratch = np.empty((3, 1 + p.shape[1]), np.float32)
    for row in range(len(p)):
        mix_uniform_row(p[row], how, scratch)
