"""Compiled loops of the linear model's scoring."""

import numpy as np

from treelabel.compute import DoubleArray, FloatArray, IntArray, LongArray, kernel


@kernel
def products(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    weight_ptr: IntArray,
    weight_idx: IntArray,
    weight_val: FloatArray,
    bias: FloatArray,
    start: int,
    stop: int,
) -> FloatArray:
    """Multiply sparse documents with sparse weights, features x outputs."""
    found = np.empty((stop - start, len(bias)), np.float32)
    for row in range(start, stop):
        out = found[row - start]
        out[:] = bias
        for at in range(ptr[row], ptr[row + 1]):
            x, feature = val[at], idx[at]
            for place in range(weight_ptr[feature], weight_ptr[feature + 1]):
                out[weight_idx[place]] += x * weight_val[place]
    return found


@kernel
def path_softmax(
    margins: FloatArray,
    own: IntArray,
    own_weight: float,
    ptr: LongArray,
    above: IntArray,
    weights: FloatArray,
    steep: float,
    flat: float,
    share: float,
    start: int,
    stop: int,
) -> FloatArray:
    """Softmax over ends of own_weight x own output + the weighted sum of the outputs above: a steep and a flat one."""
    found = np.empty((stop - start, len(own)), np.float32)
    for row in range(start, stop):
        out, given = found[row - start], margins[row]
        largest = -np.inf
        for end in range(len(own)):
            logit = own_weight * given[own[end]]
            for at in range(ptr[end], ptr[end + 1]):
                logit += weights[at] * given[above[at]]
            out[end] = logit
            largest = max(largest, logit)
        steep_total, flat_total = 0.0, 0.0
        for end in range(len(own)):
            steep_total += np.exp(steep * (out[end] - largest))
            flat_total += np.exp(flat * (out[end] - largest))
        for end in range(len(own)):
            one, two = np.exp(steep * (out[end] - largest)), np.exp(flat * (out[end] - largest))
            out[end] = (1 - share) * one / steep_total + share * two / flat_total
    return found


@kernel
def sum_to_nodes(
    ends: FloatArray,
    path_ptr: IntArray,
    path_idx: IntArray,
    parent: IntArray,
    sizes: IntArray,
    shares: DoubleArray,
    nodes: int,
    start: int,
    stop: int,
) -> FloatArray:
    """Give every node the sum of the ends at or below it; in a tree siblings then share a part alike.

    P(n | parent) becomes (1 - e) P(n | parent) + e / siblings, which leaves labels that training has never seen a
    little. `parent` is empty for a DAG.
    """
    found = np.zeros((stop - start, nodes), np.float32)
    sums, plain = np.empty(nodes), np.empty(nodes)
    for row in range(start, stop):
        sums[:] = 0.0
        for end in range(ends.shape[1]):
            for at in range(path_ptr[end], path_ptr[end + 1]):
                sums[path_idx[at]] += ends[row, end]
        out = found[row - start]
        if len(parent) == 0:
            out[:] = np.minimum(sums, 1.0)
            continue
        plain[:] = sums
        for node in range(nodes):
            above = parent[node]
            whole, before = (1.0, 1.0) if above < 0 else (sums[above], plain[above])
            alike = 1.0 / sizes[above + 1]
            given = plain[node] / before if before > 0 else alike
            sums[node] = whole * ((1 - shares[node]) * given + shares[node] * alike)
            out[node] = min(1.0, sums[node])
    return found
