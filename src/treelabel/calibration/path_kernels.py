"""Compiled loops of the softmax over paths: one document after the other, from features to the probabilities of nodes.

All that a document needs stands in a few short vectors, which never leave the cache; only what is asked for is written.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treelabel.core.compute import FloatArray, IntArray, LongArray, fast_kernel, kernel

IndexArray = npt.NDArray[np.uint32]

LOG2_E = np.float32(1.4426950408889634)
# 2 ** f for f in [-0.5, 0.5], to 2e-7.
POWERS = tuple(np.float32(math.log(2) ** n / math.factorial(n)) for n in range(7))


@fast_kernel
def powers(values: FloatArray, slope: float, found: FloatArray) -> np.float32:
    """found = exp(slope x value) for values not above 0; give the sum. Vectors can do this, and not what libraries do.

    e^x = 2^k 2^f with k whole and |f| <= 1/2; below e^-86 it is 0.
    """
    total = np.float32(0)
    scale = np.float32(slope) * LOG2_E
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
    ends: LongArray,
    own: IntArray,
    ptr: LongArray,
    above: IntArray,
    levels: IntArray,
    count: int,
) -> FloatArray:
    """The parts of some ends' logits, documents x ends x levels: the own output, and the ancestors' of each level."""
    found = np.zeros((*ends.shape, count), np.float32)
    for row in range(len(ends)):
        for place in range(ends.shape[1]):
            end = ends[row, place]
            found[row, place, 0] = margins[row, own[end]]
            for at in range(ptr[end], ptr[end + 1]):
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
    """own_weight x own output + what all ancestors say, which is summed along paths, parents first.

    sums[1 + i] = sums[parent[i]] + weight[i] x given[output[i]]; `last` is the place of the one above each end, and
    place 0 says nothing. Unsigned numbers, as those that might be negative take vectors twice as long to look up.
    """
    parent, outputs, weights = chain
    sums[0] = 0
    for at in range(len(parent)):
        sums[at + 1] = sums[parent[at]] + weights[at] * given[outputs[at]]
    for end in range(len(own)):
        out[end] = own_weight * given[own[end]] + sums[last[end]]


@fast_kernel
def add_above(given: FloatArray, ptr: LongArray, above: IndexArray, weights: FloatArray, out: FloatArray) -> None:
    """Add the weighed outputs above each end, where they are listed."""
    for end in range(len(out)):
        for at in range(ptr[end], ptr[end + 1]):
            out[end] += weights[at] * given[above[at]]


class Documents(NamedTuple):
    """Sparse rows of features, or if these are empty, outputs that are known: documents x outputs."""

    ptr: IntArray
    idx: IntArray
    val: FloatArray
    margins: FloatArray


class Dot(NamedTuple):
    """Weights, features x outputs: the first rows dense, all of them sparse; and a bias."""

    dense: FloatArray
    ptr: IntArray
    idx: IntArray
    val: FloatArray
    bias: FloatArray


class Softmax(NamedTuple):
    """Numbers of the softmax over ends.

    In a tree `chain` is (place of the parent, output, weight) of inner nodes and `last` the place above each end; in a
    DAG these are empty, and `above` lists (pointers, outputs, weights) of the ancestors of each end.
    """

    own: IndexArray
    own_weight: float
    chain: tuple[IndexArray, IndexArray, FloatArray]
    last: IndexArray
    above: tuple[LongArray, IndexArray, FloatArray]
    steep: float
    flat: float
    share: float


class Sums(NamedTuple):
    """How ends sum to nodes.

    In a tree by `parent`; siblings there share alike: `shares` (e) and `alike` (1 / siblings, 0 where there are none)
    are those of the children of the root and of every node. In a DAG `parent` is empty, and the paths of ends are
    listed (pointers, nodes).
    """

    ends: IntArray
    parent: IntArray
    shares: FloatArray
    alike: FloatArray
    path_ptr: IntArray
    path_idx: IntArray


@fast_kernel
def multiply_row(documents: Documents, dot: Dot, row: int, out: FloatArray) -> None:
    """Multiply a sparse document with the weights."""
    out[:] = dot.bias
    for at in range(documents.ptr[row], documents.ptr[row + 1]):
        x, feature = documents.val[at], documents.idx[at]
        if feature < len(dot.dense):
            weights = dot.dense[feature]
            for output in range(len(out)):
                out[output] += x * weights[output]
        else:
            for place in range(dot.ptr[feature], dot.ptr[feature + 1]):
                out[dot.idx[place]] += x * dot.val[place]


@fast_kernel
def softmax_row(given: FloatArray, numbers: Softmax, sums: FloatArray, room: FloatArray, out: FloatArray) -> None:
    """Mix a steep and a flat softmax over ends of own_weight x own output + the weighted sum of the outputs above.

    `room` has two rows, an entry an end.
    """
    logits, other = room[0], room[1]
    tree_logits(given, numbers.own, np.float32(numbers.own_weight), numbers.chain, numbers.last, sums, logits)
    if len(numbers.above[1]) > 0:
        add_above(given, numbers.above[0], numbers.above[1], numbers.above[2], logits)
    largest = np.float32(-3e38)
    for end in range(len(logits)):
        largest = logits[end] if logits[end] > largest else largest
    for end in range(len(logits)):
        logits[end] -= largest
    # Vectors are only used where what is read and what is written are different arrays.
    two = np.float32(numbers.share / powers(logits, numbers.flat, other))
    one = np.float32((1 - numbers.share) / powers(logits, numbers.steep, out))
    for end in range(len(out)):
        out[end] = one * out[end] + two * other[end]


@fast_kernel
def sum_row(ends: FloatArray, how: Sums, out: FloatArray) -> None:
    """Give every node the sum of the ends at or below it; in a tree siblings stand together and after their parent."""
    out[:] = 0
    if len(how.parent) == 0:
        for end in range(len(ends)):
            for at in range(how.path_ptr[end], how.path_ptr[end + 1]):
                out[how.path_idx[at]] += ends[end]
        for node in range(len(out)):
            out[node] = min(out[node], np.float32(1))
        return
    for end in range(len(ends)):
        out[how.ends[end]] = ends[end]
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
def share_row(out: FloatArray, how: Sums, room: FloatArray) -> None:
    """Let siblings share a part of their parent alike, in place, in a tree.

    P(n | parent) becomes (1 - e) P(n | parent) + e / siblings, which leaves labels that training has never seen a
    little; of a parent that had nothing, all have the same. `room` has three rows: what each node has, by what its
    children are multiplied, and what is added to them.
    """
    whole, factor, added = room[0], room[1], room[2]
    whole[0], factor[0], added[0] = 1, 1 - how.shares[0], how.shares[0] * how.alike[0]
    for node in range(len(out)):
        above, before = how.parent[node] + 1, out[node]
        now = min(whole[above], factor[above] * before + added[above])
        out[node] = now
        if how.alike[node + 1] > 0:
            share = how.shares[node + 1] if before > 0 else np.float32(1)
            whole[node + 1] = now
            factor[node + 1] = (np.float32(1) - share) * now / before if before > 0 else np.float32(0)
            added[node + 1] = share * now * how.alike[node + 1]


@fast_kernel
def score_paths(
    documents: Documents, dot: Dot, numbers: Softmax, how: Sums, start: int, stop: int, found: FloatArray
) -> None:
    """Write the probabilities of the nodes of documents start..stop, or if `found` has a column an end, of their ends.

    From 20,000 nodes on only those of ends are asked for.
    """
    given, ends = np.empty(len(dot.bias), np.float32), np.empty(len(numbers.own), np.float32)
    sums, room = np.empty(1 + len(numbers.chain[0]), np.float32), np.empty((3, 1 + found.shape[1]), np.float32)
    logits = np.empty((2, len(numbers.own)), np.float32)
    shared = len(how.parent) > 0 and how.shares.max() > 0
    for row in range(start, stop):
        if len(documents.margins) > 0:
            given[:] = documents.margins[row]
        else:
            multiply_row(documents, dot, row, given)
        softmax_row(given, numbers, sums, logits, ends)
        if len(how.ends) == 0:
            found[row] = ends
            continue
        sum_row(ends, how, found[row])
        if shared:
            share_row(found[row], how, room)


@fast_kernel
def share_alike(p: FloatArray, how: Sums) -> None:
    """Let siblings share alike in all rows, in place."""
    room = np.empty((3, 1 + p.shape[1]), np.float32)
    for row in range(len(p)):
        share_row(p[row], how, room)


@kernel
def multiply(documents: Documents, dot: Dot, start: int, stop: int) -> FloatArray:
    """Multiply documents start..stop with the weights: documents x outputs."""
    found = np.empty((stop - start, len(dot.bias)), np.float32)
    for row in range(start, stop):
        multiply_row(documents, dot, row, found[row - start])
    return found
