"""Sparse weights, features x outputs: gathered from blocks while they are learned, and multiplied with documents."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.calibration.path_kernels import Documents, Dot, multiply
from treelabel.core.compute import FloatArray, IntArray, kernel

# Rows with at least this share of weights are added whole, as long as they fit into so many numbers.
WORTH_A_ROW = 0.12
MOST_DENSE = 1 << 22


class Gathered:
    """Collects blocks of weights, leaving out what is smaller than `least`, and the values of documents held out."""

    def __init__(self, documents: int, features: int, outputs: int, least: float) -> None:
        self.margins = np.zeros((documents, outputs), np.float32)
        self.bias = np.zeros(outputs, np.float32)
        self._features, self._least = features, least
        self._parts: dict[int, tuple[IntArray, IntArray, FloatArray]] = {}

    def take(self, outputs: IntArray, margins: FloatArray, weights: FloatArray, bias: FloatArray) -> None:
        """Keep a block: its outputs, their values for the documents held out, weights and bias."""
        self.margins[:, outputs] = margins[:, : len(outputs)]
        self.bias[outputs] = bias[: len(outputs)]
        if len(outputs):
            self._parts[int(outputs[0])] = large_weights(weights, outputs, self._least)

    def weights(self) -> sparse.csr_array:
        """All weights, features x outputs."""
        parts = [self._parts[first] for first in sorted(self._parts)]
        none = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)
        features, outputs, values = (np.concatenate([part[which] for part in (none, *parts)]) for which in range(3))
        order = np.argsort(features, kind="stable")
        ptr = np.concatenate([[0], np.cumsum(np.bincount(features, minlength=self._features))])
        kind: npt.DTypeLike = np.int32 if ptr[-1] < 1 << 31 else np.int64
        return sparse.csr_array((values[order], outputs[order], ptr.astype(kind)), (self._features, len(self.bias)))


@kernel
def large_weights(weights: FloatArray, outputs: IntArray, least: float) -> tuple[IntArray, IntArray, FloatArray]:
    """List what is not smaller than `least`: features, outputs and values, by feature."""
    found = 0
    for feature in range(len(weights)):
        for b in range(len(outputs)):
            found += abs(weights[feature, b]) >= least
    features, columns, values = np.empty(found, np.int32), np.empty(found, np.int32), np.empty(found, np.float32)
    found = 0
    for feature in range(len(weights)):
        for b in range(len(outputs)):
            if abs(weights[feature, b]) >= least:
                features[found], columns[found], values[found] = feature, outputs[b], weights[feature, b]
                found += 1
    return features, columns, values


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights to multiply with documents: features x outputs and a bias; rows of the commonest features are dense too.

    Features come with the commonest first. Those have a weight for most outputs, and adding a whole row of them takes a
    fraction of the time of adding each in its place.
    """

    sparse: sparse.csr_array
    bias: FloatArray

    @cached_property
    def dense(self) -> FloatArray:
        """The first rows, sixteen at a time as long as these have enough weights, within some megabytes."""
        width = len(self.bias)
        counts = np.diff(self.sparse.indptr)
        filled = (
            np.add.reduceat(counts, np.arange(0, len(counts), 16)) / (16 * max(1, width)) if len(counts) else counts
        )
        rows = 16 * int(np.argmin(np.append(filled, 0) >= WORTH_A_ROW))
        rows = min(rows, MOST_DENSE // max(1, width))
        filled_rows: FloatArray = self.sparse[:rows].toarray()
        return filled_rows

    @cached_property
    def dot(self) -> Dot:
        """The same as arrays, for compiled loops."""
        return Dot(self.dense, self.sparse.indptr, self.sparse.indices, self.sparse.data, self.bias)

    def times(self, features: sparse.csr_array, start: int, stop: int) -> FloatArray:
        """Multiply documents start..stop with the weights: documents x outputs."""
        return multiply(documents_of(features), self.dot, start, stop)


def documents_of(features: sparse.csr_array) -> Documents:
    """Give rows of features as compiled loops take them."""
    return Documents(features.indptr, features.indices, features.data, np.zeros((0, 0), np.float32))
