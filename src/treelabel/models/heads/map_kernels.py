"""Compiled loops of the maps from outputs to probabilities."""

import math

import numpy as np

from treelabel.compute import DoubleArray, FloatArray, IntArray, LongArray, fast_kernel, kernel

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
def add_along_paths(
    given: FloatArray, parent: IntArray, outputs: IntArray, weights: FloatArray, sums: FloatArray
) -> None:
    """sums[i] = sums[parent[i]] + weights[i] x given[outputs[i]]: in a tree, what all ancestors say at once."""
    for at in range(len(parent)):
        above = sums[parent[at]] if parent[at] >= 0 else np.float32(0)
        sums[at] = above + weights[at] * given[outputs[at]]


@fast_kernel
def path_softmax(
    margins: FloatArray,
    own: IntArray,
    own_weight: float,
    chain: tuple[IntArray, IntArray, FloatArray],
    last: IntArray,
    above: tuple[LongArray, IntArray, FloatArray],
    steep: float,
    flat: float,
    share: float,
) -> FloatArray:
    """Softmax over ends of own_weight x own output + the weighted sum of the outputs above: a steep and a flat one.

    In a tree `chain` is (parent, outputs, weights) of inner nodes and `last` the one above each end; in a DAG `last` is
    -1 and `above` lists (pointers, outputs, weights) of the ancestors of each end.
    """
    found = np.empty((len(margins), len(own)), np.float32)
    other, sums = np.empty(len(own), np.float32), np.empty(len(chain[0]), np.float32)
    weight, (ptr, outputs, weights) = np.float32(own_weight), above
    for row in range(len(margins)):
        out, given = found[row], margins[row]
        add_along_paths(given, chain[0], chain[1], chain[2], sums)
        largest = np.float32(-3e38)
        for end in range(len(own)):
            logit = weight * given[own[end]]
            if last[end] >= 0:
                logit += sums[last[end]]
            for at in range(ptr[end], ptr[end + 1]):
                logit += weights[at] * given[outputs[at]]
            out[end] = logit
            largest = max(largest, logit)
        for end in range(len(own)):
            out[end] -= largest
        two = np.float32(share / powers(out, flat, other))
        one = np.float32((1 - share) / powers(out, steep, out))
        for end in range(len(own)):
            out[end] = one * out[end] + two * other[end]
    return found


@kernel
def sum_in_dag(ends: FloatArray, path_ptr: IntArray, path_idx: IntArray, nodes: int) -> FloatArray:
    """Give every node the sum of the ends at or below it."""
    found = np.zeros((len(ends), nodes), np.float32)
    sums = np.empty(nodes)
    for row in range(len(ends)):
        sums[:] = 0.0
        for end in range(ends.shape[1]):
            for at in range(path_ptr[end], path_ptr[end + 1]):
                sums[path_idx[at]] += ends[row, end]
        for node in range(nodes):
            found[row, node] = min(1.0, sums[node])
    return found


@fast_kernel
def sum_in_tree(
    ends: FloatArray, end_nodes: IntArray, inner: IntArray, first: IntArray, last: IntArray, nodes: int
) -> FloatArray:
    """The same in a tree, where children are a slice: `first` and `last` of each inner node, parents first."""
    found = np.zeros((len(ends), nodes), np.float32)
    for row in range(len(ends)):
        out = found[row]
        for end in range(len(end_nodes)):
            out[end_nodes[end]] = ends[row, end]
        for at in range(len(inner) - 1, -1, -1):
            if inner[at] >= 0:
                total = np.float32(0)
                for child in range(first[at], last[at]):
                    total += out[child]
                out[inner[at]] = min(out[inner[at]] + total, np.float32(1))
    return found


@fast_kernel
def share_alike(p: FloatArray, inner: IntArray, first: IntArray, last: IntArray, shares: FloatArray) -> None:
    """Let siblings share a part of their parent alike, in place, in a tree; `shares` is one for each inner node.

    P(n | parent) becomes (1 - e) P(n | parent) + e / siblings, which leaves labels that training has never seen a
    little. Of a parent that had nothing, all have the same.
    """
    before = np.empty(p.shape[1], np.float32)
    for row in range(len(p)):
        out = p[row]
        before[:] = out
        for at in range(len(inner)):
            node = inner[at]
            whole, plain = (np.float32(1), np.float32(1)) if node < 0 else (out[node], before[node])
            share = shares[at] if plain > 0 else np.float32(1)
            if share == 0 and whole == plain:
                continue
            factor = (np.float32(1) - share) * whole / plain if plain > 0 else np.float32(0)
            alike = share * whole / np.float32(last[at] - first[at])
            for child in range(first[at], last[at]):
                out[child] = min(whole, factor * before[child] + alike)


@kernel
def group_softmax(
    margins: FloatArray,
    ptr: LongArray,
    outputs: IntArray,
    nodes: IntArray,
    parents: IntArray,
    slopes: DoubleArray,
    count: int,
) -> FloatArray:
    """P(n) = P(parent) x softmax over its group of siblings of slope x output; a node of -1 is an end inside.

    Groups come with parents before children; labels that training has never seen have 0.
    """
    found = np.zeros((len(margins), count), np.float32)
    for row in range(len(margins)):
        out, given = found[row], margins[row]
        for group in range(len(parents)):
            first, last = ptr[group], ptr[group + 1]
            whole = np.float32(1) if parents[group] < 0 else out[parents[group]]
            slope = np.float32(slopes[group])
            largest = np.float32(-np.inf)
            for at in range(first, last):
                largest = max(largest, slope * given[outputs[at]])
            total = np.float32(0)
            for at in range(first, last):
                total += np.exp(slope * given[outputs[at]] - largest)
            for at in range(first, last):
                if nodes[at] >= 0:
                    out[nodes[at]] = whole * np.exp(slope * given[outputs[at]] - largest) / total
    return found


@kernel
def node_sigmoids(
    margins: FloatArray,
    output: IntArray,
    parent_ptr: IntArray,
    parent_idx: IntArray,
    slopes: DoubleArray,
    shifts: DoubleArray,
) -> FloatArray:
    """P(n) = the least P of its parents x sigmoid(slope x output + shift); 0 for nodes without an output."""
    found = np.zeros((len(margins), len(output)), np.float32)
    for row in range(len(margins)):
        out = found[row]
        for node in range(len(output)):
            if output[node] < 0:
                continue
            whole = np.float32(1)
            for at in range(parent_ptr[node], parent_ptr[node + 1]):
                if parent_idx[at] >= 0:
                    whole = min(whole, out[parent_idx[at]])
            z = slopes[node] * margins[row, output[node]] + shifts[node]
            out[node] = whole / np.float32(1 + np.exp(-z))
    return found
