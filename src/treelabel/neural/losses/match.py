"""MATCH: binary cross-entropy with two penalties that pull children towards their parents (Zhang et al., MATCH)."""

import numpy as np
import torch
from torch import Tensor

from treelabel.neural.losses.bce import Bce
from treelabel.neural.losses.registry import LossSpec
from treelabel.neural.losses.truth import Truth


class Match(Bce):
    """Binary cross-entropy + lambda_probabilities x the sum over edges of max(0, P(child) - P(parent)), plus `penalty`.

    `penalty` is lambda_parameters / 2 x the sum over edges of |W_child - W_parent|^2, Gopal and Yang's recursive
    regulariser of the output weights W. Edges from the virtual root have no term: it has neither weights nor doubts.
    With both parameters at 0 this is plain bce. Takes any labels and any hierarchy.
    """

    child: Tensor
    parent: Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        h = spec.hierarchy
        real = h.parent_idx >= 0
        self.register_buffer("child", torch.from_numpy(h.edge_child[real].astype(np.int64)), persistent=False)
        self.register_buffer("parent", torch.from_numpy(h.parent_idx[real].astype(np.int64)), persistent=False)

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute the loss of each document: see `Loss.forward`."""
        p = torch.sigmoid(logits)
        excess = torch.relu(p.index_select(1, self.child) - p.index_select(1, self.parent)).sum(1)
        return super().forward(logits, truth) + self.spec.params["lambda_probabilities"] * excess

    def penalty(self, weight: Tensor) -> Tensor:
        """Return lambda_parameters / 2 x the sum over edges of |W_child - W_parent|^2."""
        difference = weight.index_select(0, self.child) - weight.index_select(0, self.parent)
        return self.spec.params["lambda_parameters"] / 2 * difference.square().sum()
