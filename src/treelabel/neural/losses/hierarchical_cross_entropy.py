"""Hierarchical cross-entropy, HXE (Bertinetto et al., "Making better mistakes", CVPR 2020, section 3.1)."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from treelabel.core.types import DoubleArray, LongArray
from treelabel.hierarchy import Hierarchy
from treelabel.neural.losses.base import Parameter
from treelabel.neural.losses.leaf_softmax import LeafSoftmax


class HierarchicalCrossEntropy(LeafSoftmax):
    """The sum over the true path n_1 .. n_k of -lambda(n_d) ln p(n_d | n_d-1), with lambda(n_d) = exp(-alpha d).

    n_0 is the root and n_k the true leaf; p = softmax(s) over the leaves, p(n) the sum over n's leaves, and
    p(n_d | n_d-1) = p(n_d) / p(n_d-1). With alpha = 0 the sum telescopes to plain cross-entropy over the leaves; the
    larger alpha, the more mistakes near the root cost, compared with those near the leaves. That is the authors'
    program (`get_exponential_weighting`); with normalize = 1 weights are divided by the sum of exp(-alpha depth) over
    all nodes, the root's 1 included, as there. Needs a tree and one leaf per document.

    >>> hxe = HierarchicalCrossEntropy(Hierarchy.from_paths(["A > B", "A > C", "D"]), alpha=0.0)
    >>> hxe.loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]]).round(3).tolist()
    [1.099]
    """

    name = "hierarchical_cross_entropy"
    needs_tree = True
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "alpha": Parameter(0.1, 0.0, 100.0, "how much more mistakes near the root cost"),
        "normalize": Parameter(0.0, 0.0, 1.0, "1: the weights of all nodes sum to 1"),
    }

    @cached_property
    def weight(self) -> DoubleArray:
        """The weight lambda of every node."""
        weight = np.asarray(np.exp(-self.params["alpha"] * self.hierarchy.depth))
        return weight / (1 + weight.sum()) if self.params["normalize"] else weight

    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute the loss of each document: see `Loss.loss`."""
        s, true = self.checked(logits, truth)
        log_p = log_conditional(self.hierarchy, self._by_node(s))
        return np.asarray(-np.where(true.dense(), self.weight * log_p, 0.0).sum(axis=1))

    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute the gradient: see `Loss.gradient`.

        The term of C adds -lambda(C) p(A | C) to its leaves A, and lambda(C) p(A | parent) to those of its parent. So A
        gets the sum of q(m) p(A | m) over its ancestors m on the true path, with q(m) = lambda(child of m on the path)
        - lambda(m); going down, r(n) = q(n) + r(parent) p(n | parent) adds it up.
        """
        s, true = self.checked(logits, truth)
        h, y = self.hierarchy, np.where(true.dense(), self.weight, 0.0)
        p = np.exp(log_conditional(h, self._by_node(s)))
        below = np.zeros((len(h) + 1, len(s)))
        np.add.at(below, h.parent, y.T)
        r = below[:-1].T - y
        for depth in range(1, h.max_depth + 1):
            level = h.level(depth)
            r_parent = below[-1][:, None] if depth == 1 else r[:, h.parent[level]]
            r[:, level] += r_parent * p[:, level]
        return np.asarray(r[:, self.outputs])

    def _by_node(self, logits: DoubleArray) -> DoubleArray:
        """Put logits at the nodes of the leaves, -inf elsewhere: documents x nodes."""
        found = np.full((len(logits), len(self.hierarchy)), -np.inf)
        found[:, self.outputs] = logits
        return found


def log_conditional(h: Hierarchy, logits: DoubleArray) -> DoubleArray:
    """Compute ln p(n | parent) of every node of a tree, with p = softmax over the leaves.

    Parameters
    ----------
    h
        A tree.
    logits
        Logits of leaves, and -inf for inner nodes: documents x nodes.

    Returns
    -------
    DoubleArray
        Documents x nodes.

    Examples
    --------
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> np.exp(log_conditional(h, np.array([[-np.inf, 0.0, 0.0, 0.0]]))).round(3).tolist()
    [[0.667, 0.333, 0.5, 0.5]]
    """
    log_sum = logits.copy()
    found = np.empty_like(logits)
    for depth in range(h.max_depth, 0, -1):
        level, parents = h.level(depth), h.parent[h.level(depth)]
        first = np.flatnonzero(np.diff(parents, prepend=-2))
        of_parent = np.logaddexp.reduceat(log_sum[:, level], first, axis=1)
        sizes = np.diff(np.append(first, len(parents)))
        found[:, level] = log_sum[:, level] - np.repeat(of_parent, sizes, axis=1)
        if depth > 1:
            log_sum[:, parents[first]] = of_parent
    return found


def heights(h: Hierarchy) -> LongArray:
    """Count the edges from every node of a tree down to its furthest leaf; leaves have height 0.

    >>> heights(Hierarchy.from_paths(["A > B > C", "A > D", "E"])).tolist()
    [2, 0, 1, 0, 0]
    """
    found = np.zeros(len(h), np.int64)
    for depth in range(h.max_depth, 1, -1):
        level = h.level(depth)
        np.maximum.at(found, h.parent[level], found[level] + 1)
    return found
