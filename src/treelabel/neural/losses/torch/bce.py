"""Binary cross-entropy in torch; see `neural.losses.bce`."""

import torch
from torch import Tensor
from torch.nn import functional

from treelabel.neural.losses.torch.base import LossAndGradient, TorchLoss
from treelabel.neural.losses.torch.batches import Batch

# Above this, ln(1 + e^s) is s in double precision too.
LINEAR = 40.0


class TorchBce(TorchLoss):
    """A sigmoid for every node."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return sigmoid(s_n)."""
        return torch.sigmoid(logits)

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        return sigmoids(logits, batch.true)


def sigmoids(logits: Tensor, true: Tensor, weights: Tensor | None = None) -> LossAndGradient:
    """Compute the sum over n of w_n (ln(1 + e^s_n) - y_n s_n), and its gradient w_n (sigmoid(s_n) - y_n).

    Parameters
    ----------
    logits
        Documents x outputs.
    true
        Positions of what is true in documents x outputs.
    weights
        Documents x outputs; 1 if not given.

    Returns
    -------
    LossAndGradient
        Shapes (documents,) and (documents, outputs).

    Examples
    --------
    >>> losses, gradient = sigmoids(torch.zeros(1, 2), torch.tensor([1]))
    >>> losses.tolist(), gradient.tolist()
    ([1.3862943649291992], [[0.5, -0.5]])
    """
    losses, gradient = single_sigmoids(logits.clone(memory_format=torch.contiguous_format).view(-1), true)
    losses, gradient = losses.view_as(logits), gradient.view_as(logits)
    if weights is not None:
        losses, gradient = losses.mul_(weights), gradient.mul_(weights)
    return losses.sum(1), gradient


def single_sigmoids(logits: Tensor, true: Tensor) -> LossAndGradient:
    """Compute the loss of each of a line of outputs, some of them true, and its gradient; overwrites the logits.

    Parameters
    ----------
    logits
        One line of logits.
    true
        Positions of those that are true.

    Returns
    -------
    LossAndGradient
        Both of the shape of the logits.
    """
    # ln(1 + e^s) - s is ln(1 + e^-s): where a label is true its logit is negated, and nothing cancels out.
    signed = negated(logits, true)
    return functional.softplus(signed, threshold=LINEAR), negated(torch.sigmoid(signed), true)


def negated(values: Tensor, places: Tensor) -> Tensor:
    """Change the signs of values at some places, in the tensor itself.

    Parameters
    ----------
    values
        The tensor to change.
    places
        Places along its first dimension.

    Returns
    -------
    Tensor
        The same tensor.
    """
    return values.scatter_(0, places, values.index_select(0, places).neg_())
