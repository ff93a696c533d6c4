"""Every loss of LOSSES as a torch module: what it costs, with its gradient, and its map to probabilities.

The numpy losses say what is meant, and decide what a hierarchy looks like and which labels are refused; `torch_loss`
makes a module of one. A training set is prepared once, and each batch of it is a few index tensors.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.compute import IntArray
from treelabel.losses import torch_functions as functions
from treelabel.losses import torch_probabilities as maps
from treelabel.losses.base import Loss
from treelabel.losses.leaf_losses import LeafSoftmax
from treelabel.losses.penalties import Champ, Match, largest_distance
from treelabel.losses.torch_batches import Batch, Prepared, Ragged, wide_slices
from treelabel.losses.torch_functions import Judged

__all__ = ["Batch", "Prepared", "TorchLoss", "torch_loss"]


class TorchLoss(nn.Module, ABC):
    """A loss of LOSSES for torch; everything is computed in the precision of the logits, single or double.

    >>> from treelabel import Hierarchy
    >>> from treelabel.losses.registry import make_loss
    >>> cost = torch_loss(make_loss("conditional_softmax", Hierarchy.from_paths(["A > B", "A > C", "D"])))
    >>> batch = cost.prepare([[0, 0, 1, 0]]).batch(np.array([0]))
    >>> logits = torch.zeros(1, 4, requires_grad=True)
    >>> cost(logits, batch).sum().backward()
    >>> logits.grad.tolist(), cost.probabilities(logits.detach()).tolist()
    ([[-0.5, 0.5, -0.5, 0.5]], [[0.5, 0.5, 0.25, 0.25]])
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self.outputs: IntArray = loss.outputs
        self.coherent: bool = loss.coherent

    def prepare(self, truth: Any) -> Prepared:
        """Get the labels of a training set ready, closed or not; refuses what the loss cannot learn from."""
        targets, outputs = self.loss.targets(truth), len(self.outputs)
        none = Ragged.of(np.zeros(len(targets.true_ptr)), [])
        return Prepared(outputs, Ragged.of(targets.true_ptr, targets.true), none, Ragged.of([0], []), ())

    def forward(self, logits: Tensor, batch: Batch) -> Tensor:
        """Give the loss of each document: shape (documents,)."""
        precise = logits if logits.dtype == torch.float64 else logits.float()
        return functions.with_slopes(precise, partial(self._judge, batch=batch))

    @abstractmethod
    def probabilities(self, logits: Tensor) -> Tensor:
        """Give the probability of every node: documents x nodes."""

    def penalty(self, weight: Tensor) -> Tensor:
        """Give what the output weights (outputs x width) cost by themselves: nothing, if not told."""
        return weight.new_zeros(())

    @abstractmethod
    def _judge(self, logits: Tensor, batch: Batch) -> Judged:
        """Give losses and slopes."""

    def _keep(self, name: str, tensors: Iterable[Tensor]) -> list[str]:
        """Have tensors move with the module, but not be saved with it; give their names."""
        names = []
        for number, tensor in enumerate(tensors):
            self.register_buffer(f"{name}_{number}", tensor, persistent=False)
            names.append(f"{name}_{number}")
        return names

    def _kept(self, names: list[str]) -> list[Tensor]:
        return [self.get_buffer(name) for name in names]


class TorchBce(TorchLoss):
    """A sigmoid for every node; see Bce."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """P(n) = sigmoid(s_n)."""
        return torch.sigmoid(logits)

    def _judge(self, logits: Tensor, batch: Batch) -> Judged:
        return functions.sigmoids(logits, batch.true)


class TorchChamp(TorchBce):
    """Binary cross-entropy weighed by distances, which are found level by level; see Champ."""

    def __init__(self, loss: Champ) -> None:
        super().__init__(loss)
        self.beta, self.largest = loss.beta, max(1, largest_distance(loss.hierarchy))
        self.parents = self._keep("parents", maps.parent_tables(loss.hierarchy))

    def _judge(self, logits: Tensor, batch: Batch) -> Judged:
        # From the root it is one step to the nearest true node; a true node is at 0, others one step below a parent.
        wrong = torch.ones_like(logits)
        wrong.view(-1).index_fill_(0, batch.true, 0.0)
        away = maps.down_levels(wrong, 1.0, self._kept(self.parents), lambda least, own: own * (least + 1))
        some = functions.labelled(batch.true, logits).unsqueeze(1)
        # beta ((d / d_max + 1)^2 - 1) = beta d / d_max (d / d_max + 2)
        weights = away.add(2 * self.largest).mul_(away).mul_(some * (self.beta / self.largest**2)).add_(1)
        return functions.sigmoids(logits, batch.true, weights)


class TorchMatch(TorchBce):
    """Binary cross-entropy and penalties on children that are not like their parents; see Match."""

    def __init__(self, loss: Match) -> None:
        super().__init__(loss)
        self.of_parameters, self.of_probabilities = loss.lambda_parameters, loss.lambda_probabilities
        self.edges = self._keep("edges", (torch.from_numpy(nodes.astype(np.int64)) for nodes in loss.edges))

    def penalty(self, weight: Tensor) -> Tensor:
        """Give lambda_parameters / 2 x the sum over edges of |W_child - W_parent|^2."""
        child, parent = self._kept(self.edges)
        apart = weight.index_select(0, child) - weight.index_select(0, parent)
        return self.of_parameters / 2 * apart.square().sum()

    def _judge(self, logits: Tensor, batch: Batch) -> Judged:
        losses, slopes = super()._judge(logits, batch)
        of_edges, pushed = functions.hinges(logits, *self._kept(self.edges))
        return losses.add_(of_edges, alpha=self.of_probabilities), slopes.add_(pushed, alpha=self.of_probabilities)


class TorchConditional(TorchLoss):
    """A loss that judges only groups whose parents are all true.

    Members of most groups are gathered. Wide groups are taken as slices: the top labels, and those with a good part of
    all outputs, of which there are few however many labels there are.
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        h = loss.hierarchy
        self.slices = wide_slices(loss.plan())
        if h.is_tree:
            (self.jumps,) = self._keep("jumps", [maps.ancestor_jumps(h.parent.astype(np.int64), h.max_depth)])

    def prepare(self, truth: Any) -> Prepared:
        """Get the labels of a training set ready, and the groups that each document is judged in."""
        targets, plan = self.loss.targets(truth), self.loss.plan()
        true, groups = Ragged.of(targets.true_ptr, targets.true), Ragged.of(targets.group_ptr, targets.groups)
        members = Ragged.of(plan.group_ptr, plan.group_idx)
        return Prepared(len(self.outputs), true, groups, members, self.slices)

    def _judge(self, logits: Tensor, batch: Batch) -> Judged:
        losses, slopes = logits.new_zeros(len(logits)), torch.zeros_like(logits, memory_format=torch.contiguous_format)
        for (_, first, last), (rows, true) in zip(self.slices, batch.wide, strict=True):
            # Documents are in order and none is there twice, so that as many as there are must be all.
            some = len(rows) < len(logits)
            part = logits[:, first:last].index_select(0, rows) if some else logits[:, first:last]
            costs, slopes_here = self._judge_slice(part, true, first)
            losses.index_add_(0, rows, costs)
            slopes[rows if some else slice(None), first:last] = slopes_here
        if len(batch.judged):
            costs, slopes_here = self._judge_gathered(logits.flatten().index_select(0, batch.judged), batch)
            losses.index_add_(0, batch.owner, costs)
            slopes.view(-1).scatter_(0, batch.judged, slopes_here)
        return losses, slopes

    @abstractmethod
    def _judge_slice(self, logits: Tensor, true: Tensor, first: int) -> Judged:
        """Give losses and slopes of a group whose first output is told: documents, and documents x outputs."""

    @abstractmethod
    def _judge_gathered(self, logits: Tensor, batch: Batch) -> Judged:
        """Give losses of groups and slopes of their members, one group after another."""


class TorchConditionalSoftmax(TorchConditional):
    """A softmax among siblings, offsets added in training alone; see ConditionalSoftmax and ConditionalSoftmaxLa."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        tables, group = maps.group_tables(loss.plan().group_ptr)
        self.tables = self._keep("tables", tables)
        self.group, self.offsets = self._keep("group", [group, torch.from_numpy(loss.offsets)])
        self.adjusted = bool(loss.offsets.any())

    def probabilities(self, logits: Tensor) -> Tensor:
        """P(n) = the product along the path of P(. | parent)."""
        log_p = maps.group_log_softmax(logits, self._kept(self.tables), self.get_buffer(self.group))
        return maps.sums_along_paths(log_p, self.get_buffer(self.jumps)).exp()

    def _judge_slice(self, logits: Tensor, true: Tensor, first: int) -> Judged:
        if self.adjusted:
            logits = logits + self.get_buffer(self.offsets)[first : first + logits.shape[1]].to(logits.dtype)
        return functions.softmax(logits, true)

    def _judge_gathered(self, logits: Tensor, batch: Batch) -> Judged:
        if self.adjusted:
            logits = logits + self.get_buffer(self.offsets)[batch.judged % len(self.outputs)].to(logits.dtype)
        return functions.grouped_softmax(logits, batch.found, batch.sizes)


class TorchConditionalSigmoid(TorchConditional):
    """A sigmoid given the parents; see ConditionalSigmoid."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        h = loss.hierarchy
        self.parents = [] if h.is_tree else self._keep("parents", maps.parent_tables(h))

    def probabilities(self, logits: Tensor) -> Tensor:
        """P(n) = sigmoid(s_n) P(parent), the least likely parent's in a DAG."""
        log_p = functional.logsigmoid(logits)
        if not self.parents:
            return maps.sums_along_paths(log_p, self.get_buffer(self.jumps)).exp()
        return maps.down_levels(log_p, 0.0, self._kept(self.parents), torch.add).exp()

    def _judge_slice(self, logits: Tensor, true: Tensor, first: int) -> Judged:
        return functions.sigmoids(logits, true)

    def _judge_gathered(self, logits: Tensor, batch: Batch) -> Judged:
        costs, slopes = functions.single_sigmoids(logits, batch.found)
        return torch.segment_reduce(costs, "sum", lengths=batch.sizes, unsafe=True), slopes


class TorchLeafSoftmax(TorchLoss):
    """A softmax over leaves; see LeafSoftmax and WinFlat."""

    def __init__(self, loss: LeafSoftmax) -> None:
        super().__init__(loss)
        below, output = loss.below, np.full(len(loss.hierarchy), -1)
        output[loss.outputs] = np.arange(len(loss.outputs))
        self.leaves = self._keep("leaves", maps.leaf_slices(below.indptr, below.indices, output))

    def probabilities(self, logits: Tensor) -> Tensor:
        """P(n) = the sum of n's leaves."""
        return maps.sums_of_leaves(logits, *self._kept(self.leaves))

    def _judge(self, logits: Tensor, batch: Batch) -> Judged:
        return functions.softmax(logits, batch.true)


class TorchWin(TorchLeafSoftmax):
    """Minus the hierarchical win, or minus its logarithm; see WinRaw and WinLog."""

    def __init__(self, loss: LeafSoftmax) -> None:
        super().__init__(loss)
        plan, levels = loss.plan(), np.arange(loss.hierarchy.max_depth + 1)
        with np.errstate(divide="ignore"):
            log_share = np.log1p(-(0.5**levels))
        arrays = (plan.above_ptr, plan.above_first, plan.above_last)
        self.above = self._keep("above", (torch.from_numpy(array.astype(np.int64)) for array in arrays))
        (self.log_share,) = self._keep("log_share", [torch.from_numpy(log_share)])

    def _judge(self, logits: Tensor, batch: Batch) -> Judged:
        some = functions.labelled(batch.true, logits)
        return functions.win(logits, self._log_shares(logits, batch.true, some), some, self.loss.name == "win_raw")

    def _log_shares(self, logits: Tensor, true: Tensor, some: Tensor) -> Tensor:
        """Find what each leaf would win, ln(1 - 2^-j) with j ancestors shared with the true leaf, which wins ln 1.

        A node's leaves are a slice: j is a running sum of 1 where the slice of an ancestor begins and -1 after it ends.
        """
        ptr, first, last = self._kept(self.above)
        outputs = logits.shape[1]
        row, leaf = true // outputs, true % outputs
        start, sizes = ptr[leaf], ptr[leaf + 1] - ptr[leaf]
        turn = torch.repeat_interleave(sizes)
        at = torch.arange(len(turn), device=true.device) + (start - sizes.cumsum(0) + sizes)[turn]
        begins = row[turn] * (outputs + 1)
        change = logits.new_zeros(len(logits) * (outputs + 1))
        change.index_add_(0, begins + first[at], torch.ones_like(at, dtype=change.dtype))
        change.index_add_(0, begins + last[at], torch.full_like(at, -1, dtype=change.dtype))
        shared = change.view(len(logits), outputs + 1).cumsum(1)[:, :-1].int()
        shares = self.get_buffer(self.log_share).to(logits.dtype).index_select(0, shared.flatten()).view_as(logits)
        shares.view(-1).index_fill_(0, true, 0.0)
        return shares.masked_fill_(some.unsqueeze(1) == 0, 0.0)


class TorchWinCoarse(TorchLoss):
    """A softmax over top labels, whose descendants share alike; see WinCoarse."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        h = loss.hierarchy
        top, share = np.arange(len(h)), np.ones(len(h))
        children = np.bincount(h.parent + 1, minlength=len(h) + 1)[1:]
        for depth in range(2, h.max_depth + 1):
            level = h.level(depth)
            above = h.parent[level]
            top[level], share[level] = top[above], share[above] / children[above]
        self.top, self.share = self._keep("top", [torch.from_numpy(top), torch.from_numpy(share)])

    def probabilities(self, logits: Tensor) -> Tensor:
        """P(n) = P(top label) x the share of it that n has."""
        p = torch.softmax(logits, 1).index_select(1, self.get_buffer(self.top))
        return p * self.get_buffer(self.share).to(p.dtype)

    def _judge(self, logits: Tensor, batch: Batch) -> Judged:
        return functions.softmax(logits, batch.true)


_MODULES: dict[str, type[Any]] = {
    "bce": TorchBce,
    "leaf_softmax": TorchLeafSoftmax,
    "conditional_softmax": TorchConditionalSoftmax,
    "conditional_softmax_la": TorchConditionalSoftmax,
    "conditional_sigmoid": TorchConditionalSigmoid,
    "champ": TorchChamp,
    "match": TorchMatch,
    "win_flat": TorchLeafSoftmax,
    "win_raw": TorchWin,
    "win_log": TorchWin,
    "win_coarse": TorchWinCoarse,
}


def torch_loss(loss: Loss) -> TorchLoss:
    """Make a torch module of a loss.

    >>> from treelabel import Hierarchy
    >>> from treelabel.losses.registry import make_loss
    >>> torch_loss(make_loss("bce", Hierarchy.flat("AB"))).probabilities(torch.zeros(1, 2)).tolist()
    [[0.5, 0.5]]
    """
    made: TorchLoss = _MODULES[loss.name](loss)
    return made
