"""Losses that judge groups of siblings, in torch; see `neural.losses.groups`."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from treelabel.neural.losses.groups import GroupedLoss
from treelabel.neural.losses.torch import maps
from treelabel.neural.losses.torch.base import LossAndGradient, Prepared, TorchLoss
from treelabel.neural.losses.torch.batches import Batch, IndexedLabels, Ragged, wide_slices


class TorchGrouped(TorchLoss):
    """A loss that judges only the groups that a document's labels open.

    Members of most groups are gathered. Wide groups are taken as slices: the top labels, and those with a good part of
    all outputs, of which there are few however many labels there are.
    """

    def __init__(self, loss: GroupedLoss) -> None:
        super().__init__(loss)
        h = loss.hierarchy
        self.grouped = loss
        self.slices = wide_slices(loss.groups)
        if h.is_tree:
            (self.jumps,) = self._keep("jumps", [maps.ancestor_jumps(h.parent.astype(np.int64), h.max_depth)])

    def prepare(self, truth: Any) -> Prepared:
        """Prepare the labels of a training set, and the groups that each document is judged in."""
        checked = self.loss.checked_truth(truth)
        true, opened = self.loss.true_outputs(checked), self.grouped.open_groups(checked)
        members = Ragged.of(*self.grouped.groups)
        return IndexedLabels(len(self.outputs), Ragged.of(*true), Ragged.of(*opened), members, self.slices)

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        losses = logits.new_zeros(len(logits))
        gradient = torch.zeros_like(logits, memory_format=torch.contiguous_format)
        for (_, first, last), (rows, true) in zip(self.slices, batch.wide, strict=True):
            # Documents are in order and none is there twice, so that as many as there are must be all.
            some = len(rows) < len(logits)
            part = logits[:, first:last].index_select(0, rows) if some else logits[:, first:last]
            of_slice, slice_gradient = self._judge_slice(part, true, first)
            losses.index_add_(0, rows, of_slice)
            gradient[rows if some else slice(None), first:last] = slice_gradient
        if len(batch.judged):
            of_groups, members = self._judge_gathered(logits.flatten().index_select(0, batch.judged), batch)
            losses.index_add_(0, batch.owner, of_groups)
            gradient.view(-1).scatter_(0, batch.judged, members)
        return losses, gradient

    @abstractmethod
    def _judge_slice(self, logits: Tensor, true: Tensor, first: int) -> LossAndGradient:
        """Judge one group, the outputs from `first` on: shapes (documents,) and (documents, outputs of the group)."""

    @abstractmethod
    def _judge_gathered(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        """Judge groups whose members stand in one line: the loss of each group, and the gradient of each member."""
