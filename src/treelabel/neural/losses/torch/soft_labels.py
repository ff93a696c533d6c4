"""Soft labels in torch; see `neural.losses.soft_labels`."""

import torch
from torch import Tensor

from treelabel.neural.losses.soft_labels import SoftLabels
from treelabel.neural.losses.torch.base import LossAndGradient
from treelabel.neural.losses.torch.batches import Batch
from treelabel.neural.losses.torch.leaf_softmax import labelled
from treelabel.neural.losses.torch.paths import TorchPathLoss, path_table


class TorchSoftLabels(TorchPathLoss):
    """Cross-entropy with leaves that are true by their distance from the true one."""

    def __init__(self, loss: SoftLabels) -> None:
        super().__init__(loss)
        (self.value,) = self._keep("value", [path_table(loss, *loss.values)])

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        row, leaf = batch.true // logits.shape[1], batch.true % logits.shape[1]
        shared = self.shared_path(logits, batch.true)
        y = torch.zeros_like(logits)
        values = self.get_buffer(self.value)[leaf].gather(1, shared[row])
        y[row] = (values / values.sum(1, keepdim=True)).to(y.dtype)
        log_p = torch.log_softmax(logits, 1)
        losses = -(y * log_p).sum(1)
        return losses, log_p.exp_().mul_(labelled(batch.true, logits).unsqueeze(1)).sub_(y)
