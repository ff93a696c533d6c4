"""Leaf softmax in torch; see `neural.losses.leaf_softmax`."""

import numpy as np
import torch
from torch import Tensor

from treelabel.neural.losses.leaf_softmax import LeafSoftmax
from treelabel.neural.losses.torch import maps
from treelabel.neural.losses.torch.base import LossAndGradient, TorchLoss
from treelabel.neural.losses.torch.batches import Batch


class TorchLeafSoftmax(TorchLoss):
    """Cross-entropy of a softmax over the leaves."""

    def __init__(self, loss: LeafSoftmax) -> None:
        super().__init__(loss)
        below, output = loss.below, np.full(len(loss.hierarchy), -1)
        output[loss.outputs] = np.arange(len(loss.outputs))
        self.leaves = self._keep("leaves", maps.leaf_slices(below.indptr, below.indices, output))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the sums of the softmax over the leaves of nodes."""
        return maps.sums_of_leaves(logits, *self._kept(self.leaves))

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        return softmax(logits, batch.true)


def softmax(logits: Tensor, true: Tensor) -> LossAndGradient:
    """Compute -ln p_y with p = softmax(s), and its gradient p - e_y; both are 0 where nothing is true.

    Parameters
    ----------
    logits
        Documents x outputs.
    true
        Positions of what is true in documents x outputs, at most one per document.

    Returns
    -------
    LossAndGradient
        Shapes (documents,) and (documents, outputs).

    Examples
    --------
    >>> losses, gradient = softmax(torch.zeros(2, 2), torch.tensor([1]))
    >>> losses.tolist(), gradient.tolist()
    ([0.6931471824645996, 0.0], [[0.5, -0.5], [0.0, 0.0]])
    """
    row = true // logits.shape[1]
    log_p = torch.log_softmax(logits, 1)
    losses = logits.new_zeros(len(logits))
    losses[row] = -log_p.flatten().index_select(0, true)
    gradient = log_p.exp_()
    if len(true) < len(logits):
        gradient *= labelled(true, gradient).unsqueeze(1)
    gradient.view(-1)[true] -= 1
    return losses, gradient


def labelled(true: Tensor, like: Tensor) -> Tensor:
    """Return 1 for documents that have a true output and 0 for others.

    Parameters
    ----------
    true
        Positions of what is true in documents x outputs.
    like
        A tensor of that shape, whose number type and device are taken.

    Returns
    -------
    Tensor
        Shape (documents,).
    """
    return like.new_zeros(len(like)).index_fill_(0, true // like.shape[1], 1.0)
