"""The hierarchical win in torch: raw, log and coarse; see `neural.losses.win`. Flat is the leaf softmax."""

import numpy as np
import torch
from torch import Tensor

from treelabel.neural.losses.torch.base import LossAndGradient, TorchLoss
from treelabel.neural.losses.torch.batches import Batch
from treelabel.neural.losses.torch.leaf_softmax import labelled, softmax
from treelabel.neural.losses.torch.paths import TorchPathLoss
from treelabel.neural.losses.win import WinCoarse, WinLog, WinRaw


class TorchWin(TorchPathLoss):
    """Minus the hierarchical win, or minus its logarithm."""

    def __init__(self, loss: WinLog) -> None:
        super().__init__(loss)
        self.raw = isinstance(loss, WinRaw)
        with np.errstate(divide="ignore"):
            log_share = np.log1p(-(0.5 ** np.arange(loss.hierarchy.max_depth + 1)))
        (self.log_share,) = self._keep("log_share", [torch.from_numpy(log_share)])

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        some = labelled(batch.true, logits)
        return win(logits, self._log_shares(logits, batch.true, some), some, self.raw)

    def _log_shares(self, logits: Tensor, true: Tensor, some: Tensor) -> Tensor:
        """Compute the logarithm of each leaf's share: ln(1 - 2^-j) with j ancestors in common with the true leaf."""
        shared = self.shared_path(logits, true)
        shares = self.get_buffer(self.log_share).to(logits.dtype).index_select(0, shared.flatten()).view_as(logits)
        shares.view(-1).index_fill_(0, true, 0.0)
        return shares.masked_fill_(some.unsqueeze(1) == 0, 0.0)


class TorchWinCoarse(TorchLoss):
    """A softmax over the top labels, whose descendants share evenly."""

    def __init__(self, loss: WinCoarse) -> None:
        super().__init__(loss)
        self.top, self.share = self._keep("top", (torch.from_numpy(array) for array in loss.top_and_share))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return P(top label) x the share of it that a node has."""
        p = torch.softmax(logits, 1).index_select(1, self.get_buffer(self.top))
        return p * self.get_buffer(self.share).to(p.dtype)

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        return softmax(logits, batch.true)


def win(logits: Tensor, log_shares: Tensor, some: Tensor, raw: bool) -> LossAndGradient:
    """Compute -ln win, or -win, with win = the sum of p x shares and p = softmax(s).

    With q = p x shares, normalised, the gradient is p - q, times the win if raw.

    Parameters
    ----------
    logits
        Documents x outputs.
    log_shares
        Logarithms of the shares, documents x outputs; all 0 for documents without labels.
    some
        1 for documents with labels and 0 for others, which cost nothing.
    raw
        Whether the loss is -win.

    Returns
    -------
    LossAndGradient
        Shapes (documents,) and (documents, outputs).
    """
    largest = logits.amax(1, keepdim=True)
    nearest = logits.masked_fill(log_shares == -torch.inf, -torch.inf).amax(1, keepdim=True)
    # Large logits are subtracted from one another first, for beside them the digits of the shares would be lost.
    p, q = (logits - largest).exp_(), (logits - nearest).add_(log_shares).exp_()
    whole, part = p.sum(1, keepdim=True), q.sum(1, keepdim=True)
    log_win = (nearest - largest + (part.log() - whole.log())).clamp_(max=0)
    gradient = p.div_(whole).sub_(q.div_(part))
    if not raw:
        return -log_win.squeeze(1) * some, gradient
    won = log_win.exp_()
    return -won.squeeze(1) * some, gradient.mul_(won)
