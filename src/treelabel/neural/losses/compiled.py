"""Compiled forms of losses, for loops that see one group of outputs of one document at a time.

The loss classes state the formulas; the kernels here compute the same numbers faster. `compiled_loss` returns None for
a loss without a compiled form, and models then use the numpy form.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.bce import Bce
from treelabel.neural.losses.champ import Champ
from treelabel.neural.losses.conditional_sigmoid import ConditionalSigmoid
from treelabel.neural.losses.conditional_softmax import ConditionalSoftmax, ConditionalSoftmaxLa
from treelabel.neural.losses.groups import GroupedLoss, Groups
from treelabel.neural.losses.leaf_softmax import AncestorLeaves, LeafSoftmax
from treelabel.neural.losses.win import WinCoarse, WinFlat, WinLog, WinRaw

SIGMOID, SOFTMAX, WIN_LOG, WIN_RAW, CHAMP = range(5)
# By the class itself: a subclass has another formula, and so no compiled form until it is listed.
KINDS: dict[type[Loss], int] = {
    Bce: SIGMOID,
    ConditionalSigmoid: SIGMOID,
    Champ: CHAMP,
    LeafSoftmax: SOFTMAX,
    ConditionalSoftmax: SOFTMAX,
    ConditionalSoftmaxLa: SOFTMAX,
    WinFlat: SOFTMAX,
    WinCoarse: SOFTMAX,
    WinLog: WIN_LOG,
    WinRaw: WIN_RAW,
}


class ChampTables(NamedTuple):
    """The parents of each node, parent_idx[parent_ptr[n]:parent_ptr[n + 1]], and the weight at each distance."""

    parent_ptr: LongArray
    parent_idx: IntArray
    weight_at: DoubleArray


class Plan(NamedTuple):
    """The outputs that are judged together, in groups, and the tables of the losses that need some, else empty.

    `offsets` are added to the logits in training.
    """

    kind: int
    groups: Groups
    offsets: FloatArray
    win: AncestorLeaves
    champ: ChampTables


class Targets(NamedTuple):
    """The truth about documents: the groups that each is judged in, and its true outputs."""

    group_ptr: LongArray
    groups: IntArray
    true_ptr: LongArray
    true: IntArray


class Workspace(NamedTuple):
    """Memory for one document: logits of a group, and the share, the distance and the truth of every output."""

    logits: FloatArray
    shares: DoubleArray
    distances: DoubleArray
    marks: IntArray


@dataclass(frozen=True, eq=False)
class CompiledLoss:
    """A loss and its plan.

    >>> from treelabel.hierarchy import Hierarchy
    >>> found = compiled_loss(Bce(Hierarchy.flat(["A", "B"])))
    >>> [values.round(3).tolist() for values in found.loss_and_gradient(np.zeros((1, 2)), [[1, 0]])]
    [[1.386], [[-0.5, 0.5]]]
    """

    loss: Loss
    plan: Plan

    def targets(self, truth: Any) -> Targets:
        """Prepare the truth about documents; refuse labels that the loss cannot learn from."""
        true = self.loss.checked_truth(truth)
        ptr, outputs = self.loss.true_outputs(true)
        if isinstance(self.loss, GroupedLoss):
            return Targets(*self.loss.open_groups(true), ptr, outputs)
        # All outputs are one group: sigmoids judge every document in it, a softmax those with a true output.
        judged = np.ones(len(true), np.int64) if self.loss.needs == "any" else np.diff(ptr)
        group_ptr = np.concatenate([[0], np.cumsum(judged)]).astype(np.int64)
        return Targets(group_ptr, np.zeros(group_ptr[-1], np.int32), ptr, outputs)

    def workspace(self, dtype: npt.DTypeLike = np.float32) -> Workspace:
        """Allocate memory for one document."""
        outputs = max(1, len(self.loss.outputs))
        largest = max(1, int(np.diff(self.plan.groups.ptr).max(initial=0)))
        return Workspace(np.empty(largest, dtype), np.empty(outputs), np.empty(outputs), np.zeros(outputs, np.int32))

    def loss_and_gradient(self, logits: DoubleArray, truth: Any) -> tuple[DoubleArray, DoubleArray]:
        """Compute what `Loss.loss` and `Loss.gradient` do.

        Parameters
        ----------
        logits
            Documents x outputs.
        truth
            True labels, closed or not.

        Returns
        -------
        tuple[DoubleArray, DoubleArray]
            The loss of each document, and documents x outputs.
        """
        workspace = self.workspace(np.float64)
        found: tuple[DoubleArray, DoubleArray] = losses_and_gradients(self.plan, self.targets(truth), logits, workspace)
        return found


def compiled_loss(loss: Loss) -> CompiledLoss | None:
    """Return the compiled form of a loss, or None if there is none.

    >>> from treelabel.hierarchy import Hierarchy
    >>> from treelabel.neural.losses.match import Match
    >>> compiled_loss(Match(Hierarchy.flat(["A", "B"]))) is None
    True
    """
    kind = KINDS.get(type(loss))
    if kind is None:
        return None
    count, none = len(loss.outputs), np.zeros(0, np.int32)
    groups = Groups(np.array([0, count], np.int64), np.arange(count, dtype=np.int32))
    offsets = np.zeros(count)
    win, champ = (
        AncestorLeaves(np.zeros(1, np.int64), none, none),
        ChampTables(np.zeros(1, np.int64), none, np.zeros(0)),
    )
    if isinstance(loss, GroupedLoss):
        groups = loss.groups
    if isinstance(loss, ConditionalSoftmax):
        offsets = loss.offsets
    if isinstance(loss, WinLog):
        win = loss.ancestor_leaves
    if isinstance(loss, Champ):
        h = loss.hierarchy
        champ = ChampTables(h.parent_ptr.astype(np.int64), h.parent_idx, loss.weight_at)
    return CompiledLoss(loss, Plan(kind, groups, offsets.astype(np.float32), win, champ))


# Kernels: each replaces logits by the gradient, and returns the loss


@kernel
def sigmoid_step(logits: Any, outputs: IntArray, marks: IntArray) -> float:
    """Replace logits s by sigmoid(s) - y; return the sum of ln(1 + e^s) - y s."""
    loss = 0.0
    for at in range(len(outputs)):
        s, y = float(logits[at]), marks[outputs[at]]
        small = np.exp(-abs(s))
        loss += max(s, 0.0) - y * s + np.log1p(small)
        logits[at] = (1.0 if s >= 0 else small) / (1.0 + small) - y
    return loss


@kernel
def softmax_step(logits: Any, true: int) -> float:
    """Replace logits by p - e_true, p their softmax; return -ln p_true."""
    largest = float(logits.max())
    own, total = float(logits[true]), 0.0
    for at in range(len(logits)):
        total += np.exp(float(logits[at]) - largest)
    for at in range(len(logits)):
        logits[at] = np.exp(float(logits[at]) - largest) / total
    logits[true] -= 1
    return float(np.log(total) + largest - own)


@kernel
def win_step(logits: Any, shares: DoubleArray, raw: bool) -> float:
    """Replace logits by p - q (times the win if raw), q = p x shares, normalised; return -ln win or -win."""
    largest, near = float(logits.max()), -np.inf
    for at in range(len(logits)):
        if shares[at] > 0:
            near = max(near, float(logits[at]))
    total, part = 0.0, 0.0
    for at in range(len(logits)):
        total += np.exp(float(logits[at]) - largest)
        if shares[at] > 0:
            part += shares[at] * np.exp(float(logits[at]) - near)
    log_win = min(0.0, np.log(part) + near - np.log(total) - largest)
    scale = np.exp(log_win) if raw else 1.0
    for at in range(len(logits)):
        q = shares[at] * np.exp(float(logits[at]) - near) / part if shares[at] > 0 else 0.0
        logits[at] = scale * (np.exp(float(logits[at]) - largest) / total - q)
    return float(-np.exp(log_win) if raw else -log_win)


@kernel
def fill_shares(tables: AncestorLeaves, true: int, shares: DoubleArray) -> None:
    """Fill in the share of each output: 1 - 2^-j with j ancestors in common with the true output, whose share is 1."""
    shares[:] = 0.0
    value = 0.0
    for depth, at in enumerate(range(tables.ptr[true], tables.ptr[true + 1])):
        value += 0.5 ** (depth + 1)
        shares[tables.first[at] : tables.last[at]] = value
    shares[true] = 1.0


@kernel
def fill_distances(tables: ChampTables, marks: IntArray, distances: DoubleArray) -> None:
    """Count the edges from every output to the nearest true one; 0 everywhere if none is. Parents come first."""
    distances[: len(marks)] = 0.0
    if not marks.any():
        return
    for node in range(len(marks)):
        if marks[node] == 0:
            nearest = np.inf
            for at in range(tables.parent_ptr[node], tables.parent_ptr[node + 1]):
                parent = tables.parent_idx[at]
                nearest = min(nearest, distances[parent] if parent >= 0 else 1.0)
            distances[node] = nearest + 1


@kernel
def champ_step(logits: Any, tables: ChampTables, outputs: IntArray, workspace: Workspace) -> float:
    """Do as `sigmoid_step` does, with every output weighted by its distance from the truth."""
    fill_distances(tables, workspace.marks, workspace.distances)
    loss = 0.0
    for at in range(len(outputs)):
        weight = tables.weight_at[int(workspace.distances[outputs[at]])]
        loss += weight * sigmoid_step(logits[at : at + 1], outputs[at : at + 1], workspace.marks)
        logits[at] *= weight
    return loss


@kernel
def group_step(plan: Plan, group: int, size: int, workspace: Workspace) -> float:
    """Replace the logits of a group (the first `size` of the workspace) by the gradient; return the loss."""
    first = plan.groups.ptr[group]
    outputs = plan.groups.idx[first : first + size]
    logits = workspace.logits[:size]
    if plan.kind == SIGMOID:
        return sigmoid_step(logits, outputs, workspace.marks)
    if plan.kind == CHAMP:
        return champ_step(logits, plan.champ, outputs, workspace)
    true = 0
    while workspace.marks[outputs[true]] == 0:
        true += 1
    if plan.kind == SOFTMAX:
        return softmax_step(logits, true)
    fill_shares(plan.win, true, workspace.shares)
    return win_step(logits, workspace.shares, plan.kind == WIN_RAW)


@kernel
def mark(targets: Targets, document: int, value: int, marks: IntArray) -> None:
    """Mark the true outputs of a document with a value: 1, or 0 to take the marks away."""
    for at in range(targets.true_ptr[document], targets.true_ptr[document + 1]):
        marks[targets.true[at]] = value


@kernel
def losses_and_gradients(plan: Plan, targets: Targets, logits: DoubleArray, workspace: Workspace) -> tuple[Any, Any]:
    """Compute the loss of each document, and its gradient, documents x outputs."""
    losses, gradients = np.zeros(len(logits)), np.zeros(logits.shape)
    for document in range(len(logits)):
        mark(targets, document, 1, workspace.marks)
        for at in range(targets.group_ptr[document], targets.group_ptr[document + 1]):
            group = targets.groups[at]
            first = plan.groups.ptr[group]
            size = plan.groups.ptr[group + 1] - first
            for place in range(size):
                output = plan.groups.idx[first + place]
                workspace.logits[place] = logits[document, output] + plan.offsets[output]
            losses[document] += group_step(plan, group, size, workspace)
            for place in range(size):
                gradients[document, plan.groups.idx[first + place]] = workspace.logits[place]
        mark(targets, document, 0, workspace.marks)
    return losses, gradients
