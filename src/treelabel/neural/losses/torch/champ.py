"""CHAMP in torch; see `neural.losses.champ`."""

import torch
from torch import Tensor

from treelabel.neural.losses.champ import Champ, largest_distance
from treelabel.neural.losses.torch import maps
from treelabel.neural.losses.torch.base import LossAndGradient
from treelabel.neural.losses.torch.batches import Batch
from treelabel.neural.losses.torch.bce import TorchBce, sigmoids
from treelabel.neural.losses.torch.leaf_softmax import labelled


class TorchChamp(TorchBce):
    """Binary cross-entropy weighted by distances, which are computed level by level."""

    def __init__(self, loss: Champ) -> None:
        super().__init__(loss)
        self.beta, self.largest = loss.params["beta"], max(1, largest_distance(loss.hierarchy))
        self.parents = self._keep("parents", maps.parent_tables(loss.hierarchy))

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        # The root is one edge away from the nearest true node; a true node is at 0, others one edge below a parent.
        wrong = torch.ones_like(logits)
        wrong.view(-1).index_fill_(0, batch.true, 0.0)
        d = maps.down_levels(wrong, 1.0, self._kept(self.parents), lambda nearest, own: own * (nearest + 1))
        some = labelled(batch.true, logits).unsqueeze(1)
        # beta ((d / d_max + 1)^2 - 1) = beta d / d_max (d / d_max + 2)
        weights = d.add(2 * self.largest).mul_(d).mul_(some * (self.beta / self.largest**2)).add_(1)
        return sigmoids(logits, batch.true, weights)
