"""The hierarchical win (Wu, Tygert and LeCun): raw, log and coarse; flat is the leaf softmax.

The win of a distribution p over leaves, with true leaf y at the end of the path n_1 .. n_l, is
win = sum over j of 2^-j p(n_j) + 2^-l p(y): the sum over leaves of p times the share that a leaf has with y. It is 1
where p(y) = 1, and 0 where p has nothing of y's top label.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.layout import even_shares
from treelabel.neural.losses.leaf_softmax import PathLoss
from treelabel.neural.losses.registry import LossSpec
from treelabel.neural.losses.truth import Truth


class WinLog(PathLoss):
    """Minus the logarithm of the win: -ln win. On a flat hierarchy it is the cross-entropy.

    Needs a tree and one leaf per document.
    """

    log_share: Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        with np.errstate(divide="ignore"):
            log_share = np.log1p(-(0.5 ** np.arange(spec.hierarchy.max_depth + 1)))
        self.register_buffer("log_share", torch.from_numpy(log_share), persistent=False)

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute -ln win of each document: see `Loss.forward`."""
        return -log_win(logits, self.log_shares(logits, truth))

    def log_shares(self, logits: Tensor, truth: Truth) -> Tensor:
        """Return ln(1 - 2^-j) of a leaf below j nodes of the true path, and ln 1 of the true one: like the logits.

        1 - 2^-j = 2^-1 + .. + 2^-j. Documents without labels have ln 1 everywhere, so that they win 1 and cost nothing.
        """
        shared = self.shared_path(logits, truth.true)
        shares = self.log_share.to(logits.dtype).index_select(0, shared.flatten()).view_as(logits)
        shares.view(-1).index_fill_(0, truth.true, 0.0)
        return shares.masked_fill_(truth.label_mask(logits) == 0, 0.0)


class WinRaw(WinLog):
    """Minus the win: -win. Its gradient vanishes where everything is wrong. Needs a tree and one leaf per document."""

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute -win of each document, 0 without labels: see `Loss.forward`."""
        return -log_win(logits, self.log_shares(logits, truth)).exp() * truth.label_mask(logits).squeeze(1)


class WinCoarse(Loss):
    """Cross-entropy over the top labels, with a softmax of their own. Nothing is learned below them.

    Children share the probability of their parent evenly: P(n) = P(parent) / siblings. Needs a tree and one path.
    """

    top: Tensor
    share: Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        top, share = even_shares(spec.hierarchy)
        self.register_buffer("top", torch.from_numpy(top), persistent=False)
        self.register_buffer("share", torch.from_numpy(share), persistent=False)

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute the loss of each document: see `Loss.forward`."""
        return functional.cross_entropy(logits, truth.classes(logits), reduction="none")

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return P(top label) x the share of it that a node has."""
        p = torch.softmax(logits, 1).index_select(1, self.top)
        return p * self.share.to(p.dtype)


def log_win(logits: Tensor, log_shares: Tensor) -> Tensor:
    """Compute ln of the sum over leaves of p x shares, p = softmax(s); at most 0.

    >>> log_win(torch.zeros(1, 2), torch.tensor([[1.0, 0.5]]).log()).exp().tolist()
    [0.75]
    """
    with torch.no_grad():
        largest = logits.amax(1, keepdim=True)
        nearest = logits.masked_fill(log_shares == -torch.inf, -torch.inf).amax(1, keepdim=True)
    # Large logits are subtracted from one another first, for beside them the digits of the shares would be lost.
    total = (logits - largest).exp().sum(1)
    won = ((logits - nearest) + log_shares).exp().sum(1)
    return ((nearest - largest).squeeze(1) + (won.log() - total.log())).clamp(max=0)
