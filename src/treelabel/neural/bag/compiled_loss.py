"""Losses that `bag` trains with in compiled loops, one group of outputs of one document at a time, and without torch.

The modules of `neural.losses` state the formulas; the loops here compute the same numbers for a sigmoid for every node
and for a softmax, over all outputs or among siblings. Other losses train through their module.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.neural.losses.layout import NodeGroups, Ragged, even_shares, leaves_below
from treelabel.neural.losses.registry import LossSpec

SIGMOID, SOFTMAX = range(2)
# What each output is given, and whether it is given its parents: then only groups of siblings are judged.
COMPILED: dict[str, tuple[int, bool]] = {
    "bce": (SIGMOID, False),
    "conditional_sigmoid": (SIGMOID, True),
    "conditional_softmax": (SOFTMAX, True),
    "conditional_softmax_la": (SOFTMAX, True),
    "leaf_softmax": (SOFTMAX, False),
    "win_flat": (SOFTMAX, False),
    "win_coarse": (SOFTMAX, False),
}


class Plan(NamedTuple):
    """The outputs that are judged together: those of group g are members[ptr[g]:ptr[g + 1]].

    `offsets` are added to the logits in training.
    """

    kind: int
    ptr: LongArray
    members: IntArray
    offsets: FloatArray


class Targets(NamedTuple):
    """The truth about documents: the groups that each is judged in, and its true outputs."""

    group_ptr: LongArray
    groups: IntArray
    true_ptr: LongArray
    true: IntArray


class Workspace(NamedTuple):
    """Memory for one document: the logits of a group, and whether each output is true."""

    logits: FloatArray
    is_true: IntArray


@dataclass(frozen=True, eq=False)
class CompiledLoss:
    """A loss with a compiled form, bound to a hierarchy; `siblings` is None if all outputs are one group."""

    spec: LossSpec
    plan: Plan
    siblings: NodeGroups | None

    @classmethod
    def of(cls, spec: LossSpec) -> "CompiledLoss":
        """Plan the loops of a loss of COMPILED."""
        kind, conditional = COMPILED[spec.row.name]
        count, siblings = len(spec.outputs), NodeGroups.of(spec.hierarchy) if conditional else None
        members, offsets = Ragged.of([0, count], np.arange(count)), np.zeros(count)
        if siblings is not None:
            members = siblings.members
            if "tau" in spec.params and spec.frequencies is not None:
                offsets = spec.params["tau"] * siblings.log_shares(spec.frequencies)
        return cls(spec, Plan(kind, members.ptr, members.idx.astype(np.int32), offsets.astype(np.float32)), siblings)

    def targets(self, truth: Any) -> Targets:
        """Prepare the truth about documents; refuse labels that the loss cannot learn from."""
        closed = self.spec.check_truth(truth)
        true = self.spec.true_outputs(closed)
        if self.siblings is not None:
            judged = self.siblings.with_true_member if self.plan.kind == SOFTMAX else self.siblings.with_true_parents
            groups = judged(closed)
        else:
            # All outputs are one group: sigmoids judge every document in it, a softmax those with a true output.
            ptr = true.ptr if self.plan.kind == SOFTMAX else np.arange(closed.shape[0] + 1)
            groups = Ragged.of(ptr, np.zeros(ptr[-1]))
        return Targets(groups.ptr, groups.idx.astype(np.int32), true.ptr, true.idx.astype(np.int32))

    def workspace(self) -> Workspace:
        """Allocate memory for one document."""
        largest = int(np.diff(self.plan.ptr).max(initial=1))
        return Workspace(np.empty(largest, np.float32), np.zeros(max(1, len(self.spec.outputs)), np.int32))

    def probabilities(self, logits: DoubleArray) -> DoubleArray:
        """Return the probability of every node, as `Loss.probabilities` does: documents x nodes."""
        h, p = self.spec.hierarchy, special.expit(logits) if self.plan.kind == SIGMOID else self._softmax(logits)
        if self.siblings is not None:
            return times_parents(self.spec, p)
        if self.spec.row.outputs == "leaves":
            return np.asarray(np.minimum((leaves_below(h, self.spec.outputs) @ p.T).T, 1.0))
        if self.spec.row.outputs == "top":
            top, share = even_shares(h)
            return np.asarray(p[:, top] * share)
        return np.asarray(p)

    def _softmax(self, logits: DoubleArray) -> DoubleArray:
        """Compute a softmax in every group; the groups of a softmax are slices of the outputs."""
        first, sizes = self.plan.ptr[:-1], np.diff(self.plan.ptr)
        p = np.exp(logits - np.repeat(np.maximum.reduceat(logits, first, axis=1), sizes, axis=1))
        return np.asarray(p / np.repeat(np.add.reduceat(p, first, axis=1), sizes, axis=1))


def times_parents(spec: LossSpec, conditional: DoubleArray) -> DoubleArray:
    """Multiply P(n | parents) by the probability of n's least likely parent, from the top down: documents x nodes."""
    h, p = spec.hierarchy, conditional.copy()
    for depth in range(2, h.max_depth + 1):
        nodes = np.arange(len(h))[h.level(depth)]
        edges = slice(int(h.parent_ptr[nodes[0]]), int(h.parent_ptr[nodes[-1] + 1]))
        parents = h.parent_idx[edges]
        of_parent = np.where(parents >= 0, p[:, parents], 1.0)
        p[:, nodes] *= np.minimum.reduceat(of_parent, h.parent_ptr[nodes] - edges.start, axis=1)
    return p


# Loops: each replaces logits by the gradient, and returns the loss


@kernel
def sigmoid_step(logits: FloatArray, outputs: IntArray, is_true: IntArray) -> float:
    """Replace logits s by sigmoid(s) - y; return the sum of ln(1 + e^s) - y s."""
    loss = 0.0
    for index in range(len(outputs)):
        s, y = float(logits[index]), is_true[outputs[index]]
        small = np.exp(-abs(s))
        loss += max(s, 0.0) - y * s + np.log1p(small)
        logits[index] = (1.0 if s >= 0 else small) / (1.0 + small) - y
    return loss


@kernel
def softmax_step(logits: FloatArray, true: int) -> float:
    """Replace logits by p - e_true, p their softmax; return -ln p_true."""
    largest = float(logits.max())
    true_logit, total = float(logits[true]), 0.0
    for index in range(len(logits)):
        total += np.exp(float(logits[index]) - largest)
    for index in range(len(logits)):
        logits[index] = np.exp(float(logits[index]) - largest) / total
    logits[true] -= 1
    return float(np.log(total) + largest - true_logit)


@kernel
def group_step(plan: Plan, group: int, size: int, workspace: Workspace) -> float:
    """Replace the logits of a group (the first `size` of the workspace) by the gradient; return the loss."""
    first = plan.ptr[group]
    outputs = plan.members[first : first + size]
    logits = workspace.logits[:size]
    if plan.kind == SIGMOID:
        return sigmoid_step(logits, outputs, workspace.is_true)
    true = 0
    while workspace.is_true[outputs[true]] == 0:
        true += 1
    return softmax_step(logits, true)


@kernel
def mark_true(targets: Targets, document: int, value: int, is_true: IntArray) -> None:
    """Mark the true outputs of a document with a value: 1, or 0 to take the marks away."""
    for index in range(targets.true_ptr[document], targets.true_ptr[document + 1]):
        is_true[targets.true[index]] = value
