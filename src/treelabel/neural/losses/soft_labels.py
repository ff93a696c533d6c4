"""Soft labels (Bertinetto et al., "Making better mistakes", CVPR 2020, section 3.2)."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from treelabel.core.types import DoubleArray
from treelabel.hierarchy import row_sizes
from treelabel.neural.losses.base import Parameter, Truth
from treelabel.neural.losses.hierarchical_cross_entropy import heights
from treelabel.neural.losses.leaf_softmax import LeafSoftmax


class SoftLabels(LeafSoftmax):
    """Cross-entropy -sum over leaves A of y(A) ln p(A) with y(A) = exp(-beta d(A, C)) / sum_B exp(-beta d(B, C)).

    C is the true leaf, p = softmax(s), and d(A, C) = height(lowest common ancestor) / height of the tree. The larger
    beta, the harder the labels: beta → ∞ is plain cross-entropy over the leaves, beta = 0 makes all leaves alike. Needs
    a tree and one leaf per document.

    >>> from treelabel.hierarchy import Hierarchy
    >>> soft = SoftLabels(Hierarchy.from_paths(["A > B", "A > C", "D"]), beta=np.log(4))
    >>> soft.targets(soft.checked_truth([[0, 0, 1, 0]])).round(3).tolist()
    [[0.571, 0.286, 0.143]]
    """

    name = "soft_labels"
    needs_tree = True
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "beta": Parameter(10.0, 0.0, 1e6, "hardness of the labels; large is plain cross-entropy")
    }

    @cached_property
    def values(self) -> tuple[DoubleArray, float]:
        """The value of exp(-beta d) where each node is the lowest common ancestor, and where the root is."""
        h, beta = self.hierarchy, self.params["beta"]
        return np.asarray(np.exp(-beta * heights(h) / max(1, h.max_depth))), float(np.exp(-beta))

    def targets(self, truth: Truth) -> DoubleArray:
        """Return the soft labels y of each document, all 0 without labels: documents x outputs.

        Going down the true path, the value rises from parent to node; up to the lowest common ancestor, it adds up.
        """
        value, of_root = self.values
        rise = value - np.where(self.hierarchy.parent >= 0, value[self.hierarchy.parent], of_root)
        rises = truth.closed.astype(np.float64)
        rises.data = rise[truth.closed.indices]
        labelled = row_sizes(truth.closed) > 0
        y = np.where(labelled[:, None], of_root + (rises @ self.below).toarray(), 0.0)
        return np.asarray(y / np.where(labelled, y.sum(axis=1), 1.0)[:, None])
