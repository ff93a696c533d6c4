"""Conditional softmax in torch, plain and with logit adjustment; see `neural.losses.conditional_softmax`."""

import torch
from torch import Tensor

from treelabel.neural.losses.conditional_softmax import ConditionalSoftmax
from treelabel.neural.losses.torch import maps
from treelabel.neural.losses.torch.base import LossAndGradient
from treelabel.neural.losses.torch.batches import Batch
from treelabel.neural.losses.torch.groups import TorchGrouped
from treelabel.neural.losses.torch.leaf_softmax import softmax


class TorchConditionalSoftmax(TorchGrouped):
    """A softmax among siblings; offsets are added in training alone."""

    def __init__(self, loss: ConditionalSoftmax) -> None:
        super().__init__(loss)
        tables, group = maps.group_tables(loss.groups.ptr)
        self.tables = self._keep("tables", tables)
        self.group, self.offsets = self._keep("group", [group, torch.from_numpy(loss.offsets)])
        self.adjusted = bool(loss.offsets.any())

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the product along the path of P(. | parent)."""
        log_p = maps.group_log_softmax(logits, self._kept(self.tables), self.get_buffer(self.group))
        return maps.sums_along_paths(log_p, self.get_buffer(self.jumps)).exp()

    def _judge_slice(self, logits: Tensor, true: Tensor, first: int) -> LossAndGradient:
        if self.adjusted:
            logits = logits + self.get_buffer(self.offsets)[first : first + logits.shape[1]].to(logits.dtype)
        return softmax(logits, true)

    def _judge_gathered(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        if self.adjusted:
            logits = logits + self.get_buffer(self.offsets)[batch.judged % len(self.outputs)].to(logits.dtype)
        return grouped_softmax(logits, batch.found, batch.sizes)


def grouped_softmax(logits: Tensor, true: Tensor, sizes: Tensor) -> LossAndGradient:
    """Compute a softmax in each of a line of groups, one output of each being true: -ln P(n | parent) of the true n.

    Parameters
    ----------
    logits
        The logits of all groups, one group after another.
    true
        The place of each group's true output.
    sizes
        The number of outputs of each group.

    Returns
    -------
    LossAndGradient
        The losses of groups, and the gradient P(n | parent) - 1[n is true] of all outputs.

    Examples
    --------
    >>> losses, gradient = grouped_softmax(torch.zeros(3), torch.tensor([1, 2]), torch.tensor([2, 1]))
    >>> losses.tolist(), gradient.tolist()
    ([0.6931471824645996, 0.0], [0.5, -0.5, 0.0])
    """
    largest = torch.segment_reduce(logits, "max", lengths=sizes, unsafe=True)
    group = torch.repeat_interleave(sizes, output_size=len(logits))
    p = (logits - largest.index_select(0, group)).exp_()
    total = torch.segment_reduce(p, "sum", lengths=sizes, unsafe=True)
    p /= total.index_select(0, group)
    p[true] -= 1
    return largest - logits.index_select(0, true) + total.log(), p
