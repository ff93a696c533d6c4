"""Compiled loops of conditional calibrations: from margins to probabilities along paths."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray


@kernel
def group_softmax(
    margins: FloatArray,
    ptr: LongArray,
    outputs: IntArray,
    nodes: IntArray,
    parents: IntArray,
    inverse_temperatures: DoubleArray,
    count: int,
) -> FloatArray:
    """Compute P(n) = P(parent) x softmax over siblings of margin / temperature; node -1 is a stop at the parent.

    Groups are sorted with parents before children; labels never seen in training have 0.
    """
    found = np.zeros((len(margins), count), np.float32)
    for row in range(len(margins)):
        out, given = found[row], margins[row]
        for group in range(len(parents)):
            first, last = ptr[group], ptr[group + 1]
            whole = np.float32(1) if parents[group] < 0 else out[parents[group]]
            inverse = np.float32(inverse_temperatures[group])
            largest = np.float32(-np.inf)
            for at in range(first, last):
                largest = max(largest, inverse * given[outputs[at]])
            total = np.float32(0)
            for at in range(first, last):
                total += np.exp(inverse * given[outputs[at]] - largest)
            for at in range(first, last):
                if nodes[at] >= 0:
                    out[nodes[at]] = whole * np.exp(inverse * given[outputs[at]] - largest) / total
    return found


@kernel
def node_sigmoids(
    margins: FloatArray,
    output: IntArray,
    parent_ptr: IntArray,
    parent_idx: IntArray,
    slopes: DoubleArray,
    intercepts: DoubleArray,
) -> FloatArray:
    """Compute P(n) = the least P of its parents x sigmoid(slope x margin + intercept); 0 without an output."""
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
            z = slopes[node] * margins[row, output[node]] + intercepts[node]
            out[node] = whole / np.float32(1 + np.exp(-z))
    return found
