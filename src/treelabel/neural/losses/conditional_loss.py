"""Losses that judge groups of siblings, and of a document only the groups that its labels open."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.neural.losses import maps
from treelabel.neural.losses.base import Loss, Tables
from treelabel.neural.losses.bce import sigmoid_losses
from treelabel.neural.losses.layout import NodeGroups, Ragged
from treelabel.neural.losses.registry import LossSpec
from treelabel.neural.losses.truth import IndexedLabels, Truth, class_indices, wide_slices


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


class ConditionalSoftmax(ConditionalLoss):
    """The sum over true nodes n of -ln P(n | parent), a softmax among siblings; P(n) = the product along the path.

    Needs a tree and one path per document; where the path ends inside, so does the loss.
    """

    group: Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        tables, group = maps.group_tables(self.groups.members.ptr)
        self.tables = Tables(tables)
        self.register_buffer("group", group, persistent=False)

    def adjust(self, logits: Tensor, outputs: Tensor | slice) -> Tensor:
        """Return the logits of some outputs as training sees them: unchanged."""
        return logits

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the product along the path of P(. | parent), of the plain logits."""
        log_p = maps.group_log_softmax(logits, self.tables, self.group)
        return maps.sums_along_paths(log_p, self.jumps).exp()

    def open_groups(self, closed: LabelMatrix) -> Ragged:
        """Return the groups along the path."""
        return self.groups.with_true_member(closed)

    def _slice_losses(self, logits: Tensor, true: Tensor, first: int) -> Tensor:
        adjusted = self.adjust(logits, slice(first, first + logits.shape[1]))
        return functional.cross_entropy(adjusted, class_indices(true, logits), reduction="none")

    def _group_losses(self, logits: Tensor, truth: Truth) -> Tensor:
        adjusted = self.adjust(logits, truth.members % len(self.outputs))
        return grouped_cross_entropy(adjusted, truth.true_members, truth.sizes)


class ConditionalSoftmaxLa(ConditionalSoftmax):
    """The conditional softmax with logit adjustment (Menon et al.): training adds tau ln v(n | parent) to the logits.

    v is the share of n among its siblings' training documents, with one more document counted for each sibling.
    Probabilities are of the plain logits, so rare siblings are not held down. tau = 0 is the plain conditional softmax.
    """

    adjustment: Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        assert spec.frequencies is not None
        adjustment = spec.params["tau"] * torch.from_numpy(self.groups.log_shares(spec.frequencies))
        self.register_buffer("adjustment", adjustment, persistent=False)

    def adjust(self, logits: Tensor, outputs: Tensor | slice) -> Tensor:
        """Return s_n + tau ln v(n | parent)."""
        return logits + self.adjustment[outputs].to(logits.dtype)


def grouped_cross_entropy(logits: Tensor, true: Tensor, sizes: Tensor) -> Tensor:
    """Compute -ln P(n | parent) of the true n in each of a line of groups: ln of the sum of e^s over the group, - s_n.

    Parameters
    ----------
    logits
        The logits of all groups, one group after another.
    true
        The position of each group's true output.
    sizes
        The number of outputs of each group.

    Examples
    --------
    >>> grouped_cross_entropy(torch.zeros(3), torch.tensor([1, 2]), torch.tensor([2, 1])).tolist()
    [0.6931471824645996, 0.0]
    """
    largest = torch.segment_reduce(logits.detach(), "max", lengths=sizes, unsafe=True)
    shifted = logits - torch.repeat_interleave(largest, sizes, output_size=len(logits))
    total = torch.segment_reduce(shifted.exp(), "sum", lengths=sizes, unsafe=True)
    return total.log() - shifted.index_select(0, true)
