"""Conditional sigmoid in torch; see `neural.losses.conditional_sigmoid`."""

import torch
from torch import Tensor
from torch.nn import functional

from treelabel.neural.losses.conditional_sigmoid import ConditionalSigmoid
from treelabel.neural.losses.torch import maps
from treelabel.neural.losses.torch.base import LossAndGradient
from treelabel.neural.losses.torch.batches import Batch
from treelabel.neural.losses.torch.bce import sigmoids, single_sigmoids
from treelabel.neural.losses.torch.groups import TorchGrouped


class TorchConditionalSigmoid(TorchGrouped):
    """A sigmoid for every node given its parents."""

    def __init__(self, loss: ConditionalSigmoid) -> None:
        super().__init__(loss)
        h = loss.hierarchy
        self.parents = [] if h.is_tree else self._keep("parents", maps.parent_tables(h))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return sigmoid(s_n) P(parent), with the least likely parent in a DAG."""
        log_p = functional.logsigmoid(logits)
        if not self.parents:
            return maps.sums_along_paths(log_p, self.get_buffer(self.jumps)).exp()
        return maps.down_levels(log_p, 0.0, self._kept(self.parents), torch.add).exp()

    def _judge_slice(self, logits: Tensor, true: Tensor, first: int) -> LossAndGradient:
        return sigmoids(logits, true)

    def _judge_gathered(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        losses, gradient = single_sigmoids(logits, batch.found)
        return torch.segment_reduce(losses, "sum", lengths=batch.sizes, unsafe=True), gradient
