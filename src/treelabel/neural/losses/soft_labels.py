"""Soft labels (Bertinetto et al., "Making better mistakes", CVPR 2020, section 3.2)."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelabel.core.types import LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.neural.losses import maps
from treelabel.neural.losses.leaf_softmax import PathLoss
from treelabel.neural.losses.registry import LossSpec
from treelabel.neural.losses.truth import Truth


class SoftLabels(PathLoss):
    """Cross-entropy -sum over leaves A of y(A) ln p(A) with y(A) = exp(-beta d(A, C)) / sum_B exp(-beta d(B, C)).

    C is the true leaf, p = softmax(s), and d(A, C) = height(lowest common ancestor) / height of the tree. The larger
    beta, the harder the labels: beta → ∞ is plain cross-entropy over the leaves, beta = 0 makes all leaves alike. Needs
    a tree and one leaf per document.
    """

    similarity: Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        h, beta = spec.hierarchy, spec.params["beta"]
        # exp(-beta d) where each node is the lowest common ancestor, and where the root is.
        similarity = maps.path_table(h, spec.outputs, np.exp(-beta * heights(h) / max(1, h.max_depth)), np.exp(-beta))
        self.register_buffer("similarity", similarity, persistent=False)

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute the loss of each document: see `Loss.forward`."""
        return functional.cross_entropy(logits, self.targets(logits, truth), reduction="none")

    def targets(self, logits: Tensor, truth: Truth) -> Tensor:
        """Return the soft labels y of each document, all 0 without labels: documents x outputs."""
        row, leaf = truth.true // logits.shape[1], truth.true % logits.shape[1]
        similarity = self.similarity[leaf].gather(1, self.shared_path(logits, truth.true)[row])
        y = torch.zeros_like(logits)
        y[row] = (similarity / similarity.sum(1, keepdim=True)).to(y.dtype)
        return y


def heights(h: Hierarchy) -> LongArray:
    """Count the edges from every node of a tree down to its furthest leaf; leaves have height 0.

    >>> heights(Hierarchy.from_paths(["A > B > C", "A > D", "E"])).tolist()
    [2, 0, 1, 0, 0]
    """
    result = np.zeros(len(h), np.int64)
    for depth in range(h.max_depth, 1, -1):
        level = h.level(depth)
        np.maximum.at(result, h.parent[level], result[level] + 1)
    return result
