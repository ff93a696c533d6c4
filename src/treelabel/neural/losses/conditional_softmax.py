"""Conditional softmax: a softmax among the children of every node, plain and with logit adjustment."""

import torch
from torch import Tensor
from torch.nn import functional

from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.neural.losses import maps
from treelabel.neural.losses.base import Tables
from treelabel.neural.losses.conditional_loss import ConditionalLoss
from treelabel.neural.losses.layout import Ragged
from treelabel.neural.losses.loss_spec import LossSpec
from treelabel.neural.losses.truth import Truth, class_indices


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
