"""Leaf softmax: one softmax over all leaves, and cross-entropy with the true leaf."""

from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse, special

from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy import Hierarchy, label_matrix
from treelabel.neural.losses.base import Loss, Needs, Truth


class AncestorLeaves(NamedTuple):
    """The leaves below the ancestors of each leaf of a tree.

    The k-th ancestor of output l, from the top, has the outputs first[ptr[l] + k] .. last[ptr[l] + k] - 1.
    """

    ptr: LongArray
    first: IntArray
    last: IntArray


class LeafSoftmax(Loss):
    """Cross-entropy over outputs, -sum over leaves A of y(A) ln p(A), with p = softmax(s) and y = 1 at the true leaf.

    P(n) = the sum of p over n's leaves. Takes a tree or a DAG, and one leaf per document; a document without labels
    costs nothing. In a tree the outputs are the leaves from left to right, so that those of a node are consecutive.
    Losses with other targets y override `targets`.

    >>> loss = LeafSoftmax(Hierarchy.from_paths(["A > B", "A > C", "D"]))
    >>> loss.loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]]).round(3).tolist()
    [1.099]
    >>> loss.probabilities([[0.0, 0.0, 0.0]]).round(3).tolist()
    [[0.667, 0.333, 0.333, 0.333]]
    """

    name = "leaf_softmax"
    needs: ClassVar[Needs] = "leaf"

    @cached_property
    def outputs(self) -> IntArray:
        """The leaves, from left to right in a tree."""
        h = self.hierarchy
        if not h.is_tree:
            return h.leaves
        return h.leaves[np.argsort(leaf_order(h)[h.leaves], kind="stable")]

    @cached_property
    def below(self) -> sparse.csr_array:
        """The leaves of every node: nodes x outputs."""
        ones = label_matrix(np.arange(len(self.outputs) + 1), self.outputs, len(self.hierarchy))
        return sparse.csr_array(self.hierarchy.closure(ones).T.astype(np.float64))

    @cached_property
    def ancestor_leaves(self) -> AncestorLeaves:
        """The leaves below the ancestors of each leaf of a tree."""
        above, below = self.hierarchy.ancestors(self.outputs), self.below
        first = below.indices[below.indptr[:-1]].astype(np.int32)
        last = (first + np.diff(below.indptr)).astype(np.int32)
        return AncestorLeaves(above.indptr.astype(np.int64), first[above.indices], last[above.indices])

    def targets(self, truth: Truth) -> DoubleArray:
        """Return the target distribution y of each document, all 0 without labels: documents x outputs."""
        return np.asarray(truth.dense()[:, self.outputs], np.float64)

    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute the loss of each document: see `Loss.loss`."""
        s, true = self.checked(logits, truth)
        return np.asarray(-(self.targets(true) * special.log_softmax(s, axis=1)).sum(axis=1) + 0.0)

    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute p - y, 0 for documents without labels: see `Loss.gradient`."""
        s, true = self.checked(logits, truth)
        y = self.targets(true)
        return np.where(y.any(axis=1, keepdims=True), special.softmax(s, axis=1) - y, 0.0)

    def probabilities(self, logits: npt.ArrayLike) -> DoubleArray:
        """Return the sums of p over the leaves of nodes: documents x nodes."""
        p = special.softmax(self.checked_logits(logits), axis=1)
        return np.asarray(np.minimum((self.below @ p.T).T, 1.0))


def leaf_order(h: Hierarchy) -> LongArray:
    """Number the leaves of a tree from left to right, children in order of ids; inner nodes have their first leaf's.

    >>> leaf_order(Hierarchy.from_paths(["A > B", "C", "A > D"])).tolist()
    [0, 2, 0, 1]
    """
    leaves = h.is_leaf.astype(np.int64)
    for depth in range(h.max_depth, 1, -1):
        level = h.level(depth)
        np.add.at(leaves, h.parent[level], leaves[level])
    first = np.zeros(len(h), np.int64)
    for depth in range(1, h.max_depth + 1):
        level = h.level(depth)
        # Places before a node: those of all nodes of the level before it, less those before its first sibling.
        before = np.cumsum(leaves[level]) - leaves[level]
        parents = h.parent[level]
        eldest = np.searchsorted(parents, parents)
        first[level] = before - before[eldest] + np.where(parents >= 0, first[parents], 0)
    return first
