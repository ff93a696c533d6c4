"""Losses that judge groups of siblings, and of a document only the groups that its labels open."""

from abc import abstractmethod
from typing import Any

import numpy as np
from torch import Tensor

from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.neural.losses import maps
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.layout import NodeGroups, Ragged
from treelabel.neural.losses.loss_spec import LossSpec
from treelabel.neural.losses.truth import IndexedLabels, Truth, wide_slices


class ConditionalLoss(Loss):
    """A loss with one output per node that judges each node given its parents.

    Members of most groups are gathered. Wide groups are taken as slices: the top labels, and those with a good part of
    all outputs, of which there are few however many labels there are.
    """

    jumps: Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        h = spec.hierarchy
        self.groups = NodeGroups.of(h)
        self.slices = wide_slices(self.groups.members)
        if h.is_tree:
            jumps = maps.ancestor_jumps(h.parent.astype(np.int64), h.max_depth)
            self.register_buffer("jumps", jumps, persistent=False)

    def prepare(self, labels: Any) -> IndexedLabels:
        """Prepare the labels of a training set, and the groups that each document is judged in."""
        closed = self.spec.check_truth(labels)
        true, opened = self.spec.true_outputs(closed), self.open_groups(closed)
        return IndexedLabels(len(self.outputs), true, opened, self.groups.members, self.slices)

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute the loss of each document: see `Loss.forward`."""
        losses = logits.new_zeros(len(logits))
        for (_, first, last), (rows, true) in zip(self.slices, truth.wide, strict=True):
            # Documents are in order and none is there twice, so that as many as there are must be all.
            some = len(rows) < len(logits)
            part = logits[:, first:last].index_select(0, rows) if some else logits[:, first:last]
            losses = losses.index_add(0, rows, self._slice_losses(part, true, first))
        if len(truth.members):
            members = logits.flatten().index_select(0, truth.members)
            losses = losses.index_add(0, truth.owner, self._group_losses(members, truth))
        return losses

    @abstractmethod
    def open_groups(self, closed: LabelMatrix) -> Ragged:
        """Return the groups that documents are judged in, ascending."""

    @abstractmethod
    def _slice_losses(self, logits: Tensor, true: Tensor, first: int) -> Tensor:
        """Judge one group, the outputs from `first` on: documents x outputs of the group → shape (documents,)."""

    @abstractmethod
    def _group_losses(self, logits: Tensor, truth: Truth) -> Tensor:
        """Judge groups whose members stand in one line: shape (groups,)."""
