"""Weights of blocks of outputs without the small ones, and how blocks become one matrix."""

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import kernel
from treelabel.core.types import FloatArray, IntArray, LongArray

# Weights that are not small: features, outputs and values, by feature.
LargeWeights = tuple[IntArray, IntArray, FloatArray]


def prune_block(weights: FloatArray, outputs: IntArray, least: float) -> LargeWeights:
    """List the weights of a block that are not smaller than `least`; none, without a look, if it is infinite."""
    if least == np.inf:
        return np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
    return large_weights(weights, outputs, least)


class WeightCollector:
    """Collects blocks of weights without the small ones, and the margins of held-out documents.

    Parameters
    ----------
    documents : int
        Documents held out.
    features, outputs : int
        The shape of the weights.
    """

    def __init__(self, documents: int, features: int, outputs: int) -> None:
        self.margins = np.zeros((documents, outputs), np.float32)
        self.bias = np.zeros(outputs, np.float32)
        self._features = features
        self._parts: dict[int, LargeWeights] = {}

    def take(self, outputs: IntArray, margins: FloatArray, weights: LargeWeights, bias: FloatArray) -> None:
        """Keep a block.

        Parameters
        ----------
        outputs : array of int32
            Which outputs the columns of the block belong to; columns beyond are padding.
        margins : array of shape (documents, block)
            Of held-out documents.
        """
        self.margins[:, outputs] = margins[:, : len(outputs)]
        self.bias[outputs] = bias[: len(outputs)]
        if len(outputs):
            self._parts[int(outputs[0])] = weights

    def weights(self) -> sparse.csr_array:
        """Return all weights, features x outputs."""
        parts = [self._parts[first] for first in sorted(self._parts)]
        none = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
        features, outputs, values = (np.concatenate([part[which] for part in (none, *parts)]) for which in range(3))
        ptr = np.concatenate([[0], np.cumsum(np.bincount(features, minlength=self._features))])
        kind: npt.DTypeLike = np.int32 if ptr[-1] < 1 << 31 else np.int64
        entries = by_feature(ptr[:-1].copy(), features, outputs, values)
        return sparse.csr_array((*entries, ptr.astype(kind)), (self._features, len(self.bias)))


@kernel
def by_feature(
    free: LongArray, features: IntArray, outputs: IntArray, values: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Put weights in the order of features, those of one as they come; `free` is where those of each begin."""
    sorted_values, sorted_outputs = np.empty_like(values), np.empty_like(outputs)
    for index in range(len(features)):
        position = free[features[index]]
        sorted_values[position], sorted_outputs[position] = values[index], outputs[index]
        free[features[index]] += 1
    return sorted_values, sorted_outputs


@kernel
def large_weights(weights: FloatArray, outputs: IntArray, least: float) -> LargeWeights:
    """List the weights that are not smaller than `least`: features, outputs and values, by feature."""
    count = 0
    for feature in range(len(weights)):
        for b in range(len(outputs)):
            count += abs(weights[feature, b]) >= least
    # One more: each weight is written, and the next one over it if it was too small, for guessing it takes longer.
    features, columns, values = (
        np.empty(count + 1, np.int32),
        np.empty(count + 1, np.int32),
        np.empty(count + 1, np.float32),
    )
    count = 0
    for feature in range(len(weights)):
        for b in range(len(outputs)):
            features[count], columns[count], values[count] = feature, outputs[b], weights[feature, b]
            count += abs(weights[feature, b]) >= least
    return features[:count], columns[:count], values[:count]
