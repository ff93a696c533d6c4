"""Means of embeddings per node, shrunk towards parents and label names; and the whitening of embeddings."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import one_blas_thread, row_product, sum_rows
from treelabel.core.matrices import normalize_rows
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_numbers
from treelabel.selection.training import Training

# No direction is whitened further than this.
LEAST_VARIANCE = 1e-4
# Rows whose squares are summed by one thread, and into how many blocks rows are divided at most.
LEAST_BLOCK, MOST_BLOCKS = 1024, 8
# Shrinkage is this many times Ledoit and Wolf's, which is the best for the covariance itself: on training data of four
# sets and two encoders, prototypes need more of it where texts are few, and it does no harm where they are many.
LEDOIT_WOLF_FACTOR, MOST_SHRINKAGE = 3.0, 0.9

# The strengths of the parent's and of the label's prior: k_p and k_l.
Strengths = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Means:
    """Sums and counts of the texts of every output, and vectors of label texts: what prototypes are made of.

    Outputs are the nodes and, after them, the stops at inner nodes, which are children of their node.

    Parameters
    ----------
    depth : array of int32
        The depth of each output.
    above : csr_array of shape (outputs, outputs)
        The mean over the parents of each.
    labels : array of shape (outputs, dimension)
        Vectors of label texts.
    sums : array of shape (outputs, dimension)
        Sums of the vectors of texts.
    counts : array of shape (outputs,)
        Numbers of texts.
    """

    depth: IntArray
    above: sparse.csr_array
    labels: FloatArray
    sums: FloatArray
    counts: FloatArray

    @classmethod
    def first(cls, h: Hierarchy, stops: IntArray, labels: FloatArray) -> "Means":
        """Start with no text.

        Parameters
        ----------
        h : Hierarchy
            The hierarchy.
        stops : array of int32
            The inner nodes at which paths may end.
        labels : array of shape (nodes, dimension)
            Vectors of label texts.

        Returns
        -------
        Means
            Means of nodes and stops.
        """
        nodes, count = len(h), len(h) + len(stops)
        known = h.parent_idx >= 0
        child = np.concatenate([h.edge_child[known], np.arange(nodes, count)])
        parent = np.concatenate([h.parent_idx[known], stops])
        share = 1 / np.bincount(child, minlength=count)[child]
        above = sparse.csr_array((share.astype(np.float32), (child, parent)), (count, count))
        depth = np.concatenate([h.depth, h.depth[stops] + 1]).astype(np.int32)
        vectors = np.concatenate([labels, labels[stops]])
        return cls(depth, above, vectors, np.zeros_like(vectors), np.zeros(count, np.float32))

    def with_texts(self, vectors: FloatArray, rows: LabelMatrix) -> "Means":
        """Add texts to the outputs that they have. Costs these texts alone.

        Parameters
        ----------
        vectors : array of shape (texts, dimension)
            Texts.
        rows : csr_array of shape (texts, outputs)
            Marks the outputs of each.

        Returns
        -------
        Means
            Means with these texts.
        """
        marks = rows.astype(np.float32)
        counts = self.counts + np.asarray(marks.sum(axis=0), np.float32).ravel()
        return replace(self, sums=self.sums + np.asarray(marks.T @ vectors, np.float32), counts=counts)

    def prototypes(self, strengths: Strengths) -> FloatArray:
        """Compute (sum + k_p x the parents' prototype + k_l x the label's vector) / (count + k_p + k_l), top down."""
        result = np.zeros_like(self.sums)
        for level in range(1, int(self.depth.max(initial=0)) + 1):
            index = np.flatnonzero(self.depth == level)
            result[index] = self._shrunk(
                self.sums[index], self.counts[index], index, self.above[index] @ result, strengths
            )
        return result

    def _shrunk(
        self, sums: FloatArray, counts: FloatArray, index: Any, above: FloatArray, strengths: Strengths
    ) -> FloatArray:
        to_parent = np.where(np.diff(self.above.indptr)[index] > 0, np.float32(strengths[0]), np.float32(0))[:, None]
        to_label = np.float32(strengths[1])
        whole = sums + to_parent * above + to_label * self.labels[index]
        # Without texts and priors there is no prototype, and nothing is near it.
        result: FloatArray = whole / np.maximum(counts[:, None] + to_parent + to_label, np.float32(1e-9))
        return result

    def left_out(self, vectors: FloatArray, rows: LabelMatrix, strengths: Strengths) -> FloatArray:
        """Compute cosines of texts with all prototypes, those of their own outputs without the text itself.

        What a text adds to prototypes that are shrunk towards one of its own stays.

        Parameters
        ----------
        vectors : array of shape (texts, dimension)
            Texts that the means contain.
        rows : csr_array of shape (texts, outputs)
            Marks the outputs of each.
        strengths : (float, float)
            k_p and k_l.

        Returns
        -------
        array of shape (texts, outputs)
            Cosines.
        """
        full = self.prototypes(strengths)
        unit = normalize_rows(vectors)
        cosines = row_product(unit, normalize_rows(full).T)
        row = row_numbers(rows)
        # Prototypes of texts' own outputs, entry by entry of `rows`, parents first.
        without = np.zeros((len(row), full.shape[1]), np.float32)
        keys = row * rows.shape[1] + rows.indices
        for level in np.unique(self.depth[rows.indices]):
            index = np.flatnonzero(self.depth[rows.indices] == level)
            outputs = rows.indices[index]
            above = self._above_without(keys, without, row[index], outputs)
            sums, counts = self.sums[outputs] - vectors[row[index]], self.counts[outputs] - 1
            without[index] = self._shrunk(sums, counts, outputs, above, strengths)
        cosines[row, rows.indices] = (normalize_rows(without) * unit[row]).sum(axis=1)
        return np.asarray(cosines, np.float32)

    def _above_without(self, keys: LongArray, without: FloatArray, row: LongArray, outputs: IntArray) -> FloatArray:
        """Compute the mean of the parents' prototypes without the text, which are already in `without`."""
        result = np.zeros((len(row), without.shape[1]), np.float32)
        length = np.diff(self.above.indptr)[outputs]
        entry = np.repeat(np.arange(len(row)), length)
        start = np.repeat(self.above.indptr[outputs] - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
        index = start + np.arange(len(entry))
        parents, weights = self.above.indices[index], self.above.data[index]
        places = np.searchsorted(keys, row[entry] * len(self.depth) + parents)
        np.add.at(result, entry, weights[:, None] * without[places])
        return result


def whitening(vectors: FloatArray, train: Training, shrinkage: float | None) -> FloatArray:
    """Compute the matrix that makes texts of one label vary equally in all directions, as far as that is known.

    ((1 - s) C + s I)^-1/2, where C is the covariance within labels of two texts or more, of mean variance 1. Texts with
    several labels or with none are left out.

    Parameters
    ----------
    vectors : array of shape (texts, dimension)
        Embeddings.
    train : Training
        Their labels.
    shrinkage : float or None
        s; None estimates it.

    Returns
    -------
    array of shape (dimension, dimension)
        The matrix.
    """
    width = vectors.shape[1]
    apart, freedom = within_labels(vectors, train)
    size = float((apart**2).sum())
    if freedom < 1 or size <= 0 or shrinkage == 1:
        return np.eye(width, dtype=np.float32)
    apart *= np.sqrt(width * len(apart) / size)
    with one_blas_thread():
        block = max(LEAST_BLOCK, -(-len(apart) // MOST_BLOCKS))
        covariance = sum_rows(lambda start, stop: apart[start:stop].T @ apart[start:stop], len(apart), block)
    covariance /= len(apart)
    squares = float((covariance**2).sum())
    if shrinkage is None:
        by_chance = (float(((apart**2).sum(axis=1) ** 2).mean()) - squares) / freedom
        shrinkage = min(MOST_SHRINKAGE, LEDOIT_WOLF_FACTOR * by_chance / max(squares - width, 1e-12))
    with one_blas_thread():
        values, axes = np.linalg.eigh((1 - shrinkage) * covariance + shrinkage * np.eye(width))
        root = (axes / np.sqrt(np.maximum(values, LEAST_VARIANCE))) @ axes.T
    result: FloatArray = root.astype(np.float32)
    return result


def within_labels(vectors: FloatArray, train: Training) -> tuple[DoubleArray, int]:
    """Subtract the mean of their label from texts, where the label has two texts or more.

    Parameters
    ----------
    vectors : array of shape (texts, dimension)
        Embeddings.
    train : Training
        Their labels.

    Returns
    -------
    (array of shape (n, dimension), int)
        Differences, and their degrees of freedom.
    """
    terminals = train.hierarchy.most_specific(train.labels)
    single = np.flatnonzero(np.diff(terminals.indptr) == 1)
    terminal = terminals.indices[terminals.indptr[single]]
    counts = np.bincount(terminal, minlength=len(train.hierarchy))
    rows, label = single[counts[terminal] > 1], terminal[counts[terminal] > 1]
    known = vectors[rows].astype(np.float64)
    marks = sparse.csr_array((np.ones(len(rows)), (label, np.arange(len(rows)))), (len(counts), len(rows)))
    means = (marks @ known) / np.maximum(counts, 1)[:, None]
    return known - means[label], len(rows) - int((counts > 1).sum())
