"""Binary cross-entropy: an independent sigmoid for every node."""

import torch
from torch import Tensor
from torch.nn import functional

from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import Truth

# Above this, ln(1 + e^s) is s in double precision too.
LINEAR = 40.0


class Bce(Loss):
    """Binary cross-entropy: the sum over nodes n of ln(1 + e^s_n) - y_n s_n. P(n) = sigmoid(s_n).

    Takes any labels and any hierarchy. Nothing keeps children below their parents; `Scores.coherent()` does it
    afterwards.
    """

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute the loss of each document: see `Loss.forward`."""
        return sigmoid_losses(logits, truth.true).sum(1)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return sigmoid(s_n)."""
        return torch.sigmoid(logits)


def sigmoid_losses(logits: Tensor, true: Tensor) -> Tensor:
    """Compute ln(1 + e^s) - y s of every output.

    Where a label is true this is ln(1 + e^-s): the logit is negated, so that nothing cancels out.

    Parameters
    ----------
    logits
        Any shape.
    true
        Positions of true outputs in the logits, flattened.

    Examples
    --------
    >>> sigmoid_losses(torch.tensor([[-100.0, 0.0]]), torch.tensor([0])).tolist()
    [[100.0, 0.6931471824645996]]
    """
    sign = torch.ones_like(logits)
    sign.view(-1).index_fill_(0, true, -1)
    return functional.softplus(sign * logits, threshold=LINEAR)
