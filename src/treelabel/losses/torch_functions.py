"""Losses as pure functions of logits: the loss of each document and its slopes, d loss / d logits, in one go.

Slopes are what the formulas say, so that nothing is differentiated and nothing is kept but them. What is true is given
as flat positions in documents x outputs, so that a batch costs no dense matrix to move. Each result is (losses of shape
(documents,), slopes of shape (documents, outputs)).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

Judged = tuple[Tensor, Tensor]

# Above this, ln(1 + e^s) is s in double precision too.
LINEAR = 40.0
# Slopes below this are 0: nobody misses them, and matrices of denormal numbers multiply ten times slower.
TINY = 1e-35


class WithSlopes(torch.autograd.Function):
    """Lets autograd use known slopes: `with_slopes(logits, judge)` is the losses that judge(logits) gives."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, judge: Callable[[Tensor], Judged]) -> Tensor:
        """Judge, and keep the slopes."""
        losses, slopes = judge(logits.detach())
        ctx.save_for_backward(slopes)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Multiply the slopes by what comes from above."""
        (slopes,) = ctx.saved_tensors
        return functional.hardshrink(gradient.unsqueeze(1) * slopes, TINY), None


with_slopes: Callable[[Tensor, Callable[[Tensor], Judged]], Tensor] = WithSlopes.apply


def sigmoids(logits: Tensor, true: Tensor, weights: Tensor | None = None) -> Judged:
    """Judge all outputs one by one: the sum over n of w_n (ln(1 + e^s_n) - y_n s_n); slopes w_n (sigmoid(s_n) - y_n).

    >>> losses, slopes = sigmoids(torch.zeros(1, 2), torch.tensor([1]))
    >>> losses.tolist(), slopes.tolist()
    ([1.3862943649291992], [[0.5, -0.5]])
    """
    costs, slopes = single_sigmoids(logits.clone(memory_format=torch.contiguous_format).view(-1), true)
    costs, slopes = costs.view_as(logits), slopes.view_as(logits)
    if weights is not None:
        costs, slopes = costs.mul_(weights), slopes.mul_(weights)
    return costs.sum(1), slopes


def single_sigmoids(logits: Tensor, true: Tensor) -> Judged:
    """Judge a line of outputs, true at some places: the loss of each and its slope. The logits are written over."""
    # ln(1 + e^s) - s is ln(1 + e^-s): where a label is true the sign of its logit is turned, and nothing cancels out.
    signed = turned(logits, true)
    return functional.softplus(signed, threshold=LINEAR), turned(torch.sigmoid(signed), true)


def turned(values: Tensor, places: Tensor) -> Tensor:
    """Change the signs of values at some places, in the tensor itself."""
    return values.scatter_(0, places, values.index_select(0, places).neg_())


def softmax(logits: Tensor, true: Tensor) -> Judged:
    """Judge outputs of which one is true: -ln p_y with p = softmax(s); slopes p - e_y. Nothing where nothing is true.

    >>> losses, slopes = softmax(torch.zeros(2, 2), torch.tensor([1]))
    >>> losses.tolist(), slopes.tolist()
    ([0.6931471824645996, 0.0], [[0.5, -0.5], [0.0, 0.0]])
    """
    row = true // logits.shape[1]
    log_p = torch.log_softmax(logits, 1)
    losses = logits.new_zeros(len(logits))
    losses[row] = -log_p.flatten().index_select(0, true)
    slopes = log_p.exp_()
    if len(true) < len(logits):
        slopes *= labelled(true, slopes).unsqueeze(1)
    slopes.view(-1)[true] -= 1
    return losses, slopes


def labelled(true: Tensor, like: Tensor) -> Tensor:
    """Give 1 for documents that have a true output and 0 for others, in the numbers of a documents x outputs tensor."""
    return like.new_zeros(len(like)).index_fill_(0, true // like.shape[1], 1.0)


def grouped_softmax(logits: Tensor, true: Tensor, sizes: Tensor) -> Judged:
    """Judge a line of groups, one after another, in each of which one output is true: a softmax in every group.

    Gives the losses of groups, -ln P(n | parent) of the true n, and the slopes of all outputs, P(n | parent) - 1[n is
    true]. `true` are the places of the true ones, a place a group.

    >>> losses, slopes = grouped_softmax(torch.zeros(3), torch.tensor([1, 2]), torch.tensor([2, 1]))
    >>> losses.tolist(), slopes.tolist()
    ([0.6931471824645996, 0.0], [0.5, -0.5, 0.0])
    """
    largest = torch.segment_reduce(logits, "max", lengths=sizes, unsafe=True)
    group = torch.repeat_interleave(sizes, output_size=len(logits))
    p = (logits - largest.index_select(0, group)).exp_()
    total = torch.segment_reduce(p, "sum", lengths=sizes, unsafe=True)
    p /= total.index_select(0, group)
    p[true] -= 1
    return largest - logits.index_select(0, true) + total.log(), p


def win(logits: Tensor, log_shares: Tensor, some: Tensor, raw: bool) -> Judged:
    """Judge by the hierarchical win, the sum of p x shares with p = softmax(s): -ln win, or -win if raw.

    With q = p x shares, normalised, slopes are p - q, times the win if raw. `some` is 0 for documents without labels,
    which cost nothing and whose shares are all 1.
    """
    largest = logits.amax(1, keepdim=True)
    nearest = logits.masked_fill(log_shares == -torch.inf, -torch.inf).amax(1, keepdim=True)
    # Large logits are taken from one another first, for beside them the digits of the shares would be lost.
    p, q = (logits - largest).exp_(), (logits - nearest).add_(log_shares).exp_()
    whole, part = p.sum(1, keepdim=True), q.sum(1, keepdim=True)
    log_win = (nearest - largest + (part.log() - whole.log())).clamp_(max=0)
    slopes = p.div_(whole).sub_(q.div_(part))
    if not raw:
        return -log_win.squeeze(1) * some, slopes
    won = log_win.exp_()
    return -won.squeeze(1) * some, slopes.mul_(won)


def hinges(logits: Tensor, child: Tensor, parent: Tensor) -> Judged:
    """Judge edges: the sum over (n, m) of max(0, P(n) - P(m)) with P = sigmoid; slopes +-P(1 - P) where n is above m.

    >>> losses, slopes = hinges(torch.zeros(1, 2) + torch.tensor([0.0, 50.0]), torch.tensor([1]), torch.tensor([0]))
    >>> losses.tolist(), slopes[0, 0].tolist()
    ([0.5], -0.25)
    """
    p = torch.sigmoid(logits)
    above = p.index_select(1, child) - p.index_select(1, parent)
    pushed = (above > 0).to(p.dtype)
    slopes = torch.zeros_like(p).scatter_add_(1, child.expand(len(p), -1), pushed)
    slopes.scatter_add_(1, parent.expand(len(p), -1), -pushed)
    return above.clamp_(min=0).sum(1), slopes.mul_(p).mul_(torch.sigmoid(-logits))
