"""MATCH in torch; see `neural.losses.match`."""

import numpy as np
import torch
from torch import Tensor

from treelabel.neural.losses.match import Match
from treelabel.neural.losses.torch.base import LossAndGradient
from treelabel.neural.losses.torch.batches import Batch
from treelabel.neural.losses.torch.bce import TorchBce


class TorchMatch(TorchBce):
    """Binary cross-entropy with penalties that pull children towards their parents."""

    def __init__(self, loss: Match) -> None:
        super().__init__(loss)
        self.params = loss.params
        self.edges = self._keep("edges", (torch.from_numpy(nodes.astype(np.int64)) for nodes in loss.edges))

    def penalty(self, weight: Tensor) -> Tensor:
        """Return lambda_parameters / 2 x the sum over edges of |W_child - W_parent|^2."""
        child, parent = self._kept(self.edges)
        apart = weight.index_select(0, child) - weight.index_select(0, parent)
        return self.params["lambda_parameters"] / 2 * apart.square().sum()

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        losses, gradient = super()._loss_and_gradient(logits, batch)
        of_edges, edges_gradient = hinges(logits, *self._kept(self.edges))
        factor = self.params["lambda_probabilities"]
        return losses.add_(of_edges, alpha=factor), gradient.add_(edges_gradient, alpha=factor)


def hinges(logits: Tensor, child: Tensor, parent: Tensor) -> LossAndGradient:
    """Compute the sum over edges of max(0, P(child) - P(parent)), P = sigmoid, and its gradient.

    Parameters
    ----------
    logits
        Documents x outputs.
    child, parent
        The two ends of every edge.

    Returns
    -------
    LossAndGradient
        Shapes (documents,) and (documents, outputs); +-P(1 - P) where a child is above its parent.

    Examples
    --------
    >>> losses, gradient = hinges(torch.tensor([[0.0, 50.0]]), torch.tensor([1]), torch.tensor([0]))
    >>> losses.tolist(), gradient[0, 0].tolist()
    ([0.5], -0.25)
    """
    p = torch.sigmoid(logits)
    apart = p.index_select(1, child) - p.index_select(1, parent)
    above = (apart > 0).to(p.dtype)
    by_p = torch.zeros_like(p).scatter_add_(1, child.expand(len(p), -1), above)
    by_p.scatter_add_(1, parent.expand(len(p), -1), -above)
    return apart.clamp_(min=0).sum(1), by_p.mul_(p).mul_(torch.sigmoid(-logits))
