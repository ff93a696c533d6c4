"""Conditional sigmoid: a sigmoid for every node given its parents."""

import torch
from torch import Tensor
from torch.nn import functional

from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.neural.losses import maps
from treelabel.neural.losses.base import Tables
from treelabel.neural.losses.bce import sigmoid_losses
from treelabel.neural.losses.conditional_loss import ConditionalLoss
from treelabel.neural.losses.layout import Ragged
from treelabel.neural.losses.loss_spec import LossSpec
from treelabel.neural.losses.truth import Truth


class ConditionalSigmoid(ConditionalLoss):
    """The sum of ln(1 + e^s_n) - y_n s_n over the nodes n whose parents are all true. P(n) = sigmoid(s_n) P(parent).

    In a DAG the least likely parent counts, for a true node has only true parents. Takes any labels (several paths,
    paths that end inside, none) and any hierarchy.
    """

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        self.parents = None if spec.hierarchy.is_tree else Tables(maps.parent_tables(spec.hierarchy))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return sigmoid(s_n) P(parent), with the least likely parent in a DAG."""
        log_p = functional.logsigmoid(logits)
        if self.parents is None:
            return maps.sums_along_paths(log_p, self.jumps).exp()
        return maps.down_levels(log_p, 0.0, self.parents, torch.add).exp()

    def open_groups(self, closed: LabelMatrix) -> Ragged:
        """Return the groups whose parents are all true."""
        return self.groups.with_true_parents(closed)

    def _slice_losses(self, logits: Tensor, true: Tensor, first: int) -> Tensor:
        return sigmoid_losses(logits.contiguous(), true).sum(1)

    def _group_losses(self, logits: Tensor, truth: Truth) -> Tensor:
        losses = sigmoid_losses(logits, truth.true_members)
        return torch.segment_reduce(losses, "sum", lengths=truth.sizes, unsafe=True)
