"""Products of sparse documents with the weights of many outputs, most of which are sparse too."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from treelabel.core.compute import fast_kernel, kernel
from treelabel.core.types import FloatArray, IntArray

# Rows with at least this share of weights are added whole, as long as they fit into this many numbers.
DENSE_SHARE = 0.12
MOST_DENSE = 1 << 22


class SparseDocuments(NamedTuple):
    """Sparse rows of features; or, where these are empty, margins that are known: documents x outputs."""

    ptr: IntArray
    idx: IntArray
    val: FloatArray
    margins: FloatArray

    def since(self, start: int) -> "SparseDocuments":
        """Return the documents from number `start` on, without copying any."""
        return self._replace(ptr=self.ptr[start:], margins=self.margins[start:])


class Dot(NamedTuple):
    """Weights, features x outputs: the first rows dense, all of them sparse; and a bias."""

    dense: FloatArray
    ptr: IntArray
    idx: IntArray
    val: FloatArray
    bias: FloatArray


@dataclass(frozen=True, eq=False)
class SparseWeights:
    """Weights to multiply documents with: features x outputs and a bias; rows of frequent features are dense as well.

    Features are sorted by frequency. The most frequent have a weight for most outputs, and adding a whole row of
    weights takes a fraction of the time of adding each in its place.
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
        rows = 16 * int(np.argmin(np.append(filled, 0) >= DENSE_SHARE))
        rows = min(rows, MOST_DENSE // max(1, width))
        filled_rows: FloatArray = self.sparse[:rows].toarray()
        return filled_rows

    @cached_property
    def dot(self) -> Dot:
        """The same as arrays, for compiled loops."""
        return Dot(self.dense, self.sparse.indptr, self.sparse.indices, self.sparse.data, self.bias)

    def times(self, features: sparse.csr_array, start: int, stop: int) -> FloatArray:
        """Multiply documents with the weights.

        Parameters
        ----------
        features : csr_array of shape (documents, features)
            Documents.
        start, stop : int
            Which of them: the first, and the one after the last.

        Returns
        -------
        array of shape (stop - start, outputs)
            Margins.
        """
        return multiply(documents_of(features), self.dot, start, stop)


def documents_of(features: sparse.csr_array) -> SparseDocuments:
    """Return rows of features in the form that compiled loops take."""
    return SparseDocuments(features.indptr, features.indices, features.data, np.zeros((0, 0), np.float32))


def known_margins(margins: FloatArray) -> tuple[SparseDocuments, Dot]:
    """Return margins that are known already in the same form, with weights that nothing is multiplied with."""
    none, nothing = np.zeros(0, np.int32), np.zeros(0, np.float32)
    dot = Dot(np.zeros((0, 0), np.float32), none, none, nothing, np.zeros(margins.shape[1], np.float32))
    return SparseDocuments(none, none, nothing, margins), dot


@fast_kernel
def multiply_row(documents: SparseDocuments, dot: Dot, row: int, out: FloatArray) -> None:
    """Multiply a sparse document with the weights."""
    for output in range(len(out)):
        out[output] = dot.bias[output]
    for entry in range(documents.ptr[row], documents.ptr[row + 1]):
        x, feature = documents.val[entry], documents.idx[entry]
        if feature < len(dot.dense):
            weights = dot.dense[feature]
            for output in range(len(out)):
                out[output] += x * weights[output]
        else:
            for weight in range(dot.ptr[feature], dot.ptr[feature + 1]):
                out[dot.idx[weight]] += x * dot.val[weight]


@kernel
def multiply(documents: SparseDocuments, dot: Dot, start: int, stop: int) -> FloatArray:
    """Multiply documents start..stop with the weights: documents x outputs."""
    margins = np.empty((stop - start, len(dot.bias)), np.float32)
    for row in range(start, stop):
        multiply_row(documents, dot, row, margins[row - start])
    return margins
