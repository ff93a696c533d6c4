"""Losses with one softmax over leaves: cross-entropy, the hierarchical win, and cross-entropy of top labels alone.

The hierarchical win (Wu, Tygert and LeCun) of a distribution p over leaves, with true leaf y at the end of the path
n_1 .. n_l: win = sum over j of 2^-j p(n_j) + 2^-l p(y), the sum over leaves of p times what a leaf shares with y. It is
1 where p(y) = 1, and 0 where p has nothing of y's top label.
"""

from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import sparse, special

from treelabel.core.compute import DoubleArray, IntArray, LongArray
from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix, row_numbers
from treelabel.losses.base import Loss, one_group, plan_of
from treelabel.losses.kernels import WIN_LOG, WIN_RAW, Plan, Targets


class LeafSoftmax(Loss):
    """Cross-entropy over the leaves: -ln p(y), p = softmax of the leaves' logits; P(n) = the sum of n's leaves.

    Takes a tree or a DAG, and one leaf a document. In a tree the outputs are the leaves from left to right, so that
    those of a node are consecutive.

    >>> cost = LeafSoftmax(Hierarchy.from_paths(["A > B", "A > C", "D"]))
    >>> cost.loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]]).round(3).tolist()
    [1.099]
    >>> cost.probabilities([[0.0, 0.0, 0.0]]).round(3).tolist()
    [[0.667, 0.333, 0.333, 0.333]]
    """

    name = "leaf_softmax"
    needs: ClassVar[Literal["any", "path", "leaf"]] = "leaf"

    def _check_hierarchy(self) -> None:
        """Anything has leaves."""

    def _outputs(self) -> IntArray:
        h = self.hierarchy
        if not h.is_tree:
            return h.leaves
        return h.leaves[np.argsort(leaf_order(h)[h.leaves], kind="stable")]

    @cached_property
    def below(self) -> sparse.csr_array:
        """The leaves of every node: nodes x outputs."""
        ones = label_matrix(np.arange(len(self.outputs) + 1), self.outputs, len(self.hierarchy))
        return sparse.csr_array(self.hierarchy.closure(ones).T.astype(np.float64))

    @cached_property
    def _output_of(self) -> LongArray:
        """The output of every node, -1 for those that have none."""
        found = np.full(len(self.hierarchy), -1, np.int64)
        found[self.outputs] = np.arange(len(self.outputs))
        return found

    def plan(self) -> Plan:
        """One group of all outputs."""
        return plan_of(self, *one_group(len(self.outputs)))

    def targets(self, truth: Any) -> Targets:
        """One true output a document."""
        closed = self._truth(truth)
        known = self._output_of[closed.indices] >= 0
        ptr = np.concatenate([[0], np.cumsum(known)])[closed.indptr].astype(np.int64)
        true = self._output_of[closed.indices[known]].astype(np.int32)
        return Targets(ptr, np.zeros(len(true), np.int32), ptr, true)

    def _shares(self, truth: LabelMatrix) -> DoubleArray:
        """What each leaf wins if it is chosen, documents x outputs: here only the true leaf wins."""
        return np.asarray(truth.toarray()[:, self.outputs], np.float64)

    def _log_win(self, logits: DoubleArray, shares: DoubleArray) -> DoubleArray:
        some = shares.any(axis=1)
        near = np.where(shares > 0, logits, -np.inf)
        won = np.zeros(len(logits))
        won[some] = special.logsumexp(near[some], b=shares[some], axis=1) - special.logsumexp(logits[some], axis=1)
        return np.minimum(won, 0.0)

    def _loss(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        return -self._log_win(logits, self._shares(truth)) + 0.0

    def _gradient(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        shares = self._shares(truth)
        some, found = shares.any(axis=1), np.zeros(logits.shape)
        with np.errstate(divide="ignore"):
            pulled = special.softmax(logits[some] + np.log(shares[some]), axis=1)
        found[some] = special.softmax(logits[some], axis=1) - pulled
        return found

    def _probabilities(self, logits: DoubleArray) -> DoubleArray:
        return np.asarray(np.minimum((self.below @ special.softmax(logits, axis=1).T).T, 1.0))


class WinFlat(LeafSoftmax):
    """Cross-entropy over the leaves of a tree, -ln p(y): what the win's paper calls training with a flat hierarchy.

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> WinFlat(h).loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]]).round(3).tolist()
    [1.099]
    """

    name = "win_flat"

    def _check_hierarchy(self) -> None:
        Loss._check_hierarchy(self)


class WinLog(WinFlat):
    """Minus the logarithm of the hierarchical win: -ln win. On a flat hierarchy it is the cross-entropy.

    With q = p times what each leaf shares with the true one, normalised, the gradient is p - q.

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> np.exp(-WinLog(h).loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]])).round(3).tolist()
    [0.5]
    """

    name = "win_log"
    kind: ClassVar[int] = WIN_LOG

    def plan(self) -> Plan:
        """One group, and where the leaves of each leaf's ancestors begin and end."""
        h, (first, last) = self.hierarchy, self._slices
        above = h.ancestors(self.outputs)
        slices = above.indptr.astype(np.int64), first[above.indices], last[above.indices]
        return plan_of(self, *one_group(len(self.outputs)), slices)

    @cached_property
    def _slices(self) -> tuple[IntArray, IntArray]:
        """The outputs of every node, which are consecutive: the first, and one past the last."""
        below = self.below
        first = below.indices[below.indptr[:-1]].astype(np.int32)
        return first, (first + np.diff(below.indptr)).astype(np.int32)

    def _shares(self, truth: LabelMatrix) -> DoubleArray:
        h, own = self.hierarchy, super()._shares(truth)
        halves = truth.astype(np.float64)
        halves.data = 0.5 ** h.depth[truth.indices].astype(np.float64)
        ends = h.most_specific(truth)
        last = np.zeros(truth.shape[0])
        last[row_numbers(ends)] = 0.5 ** h.depth[ends.indices].astype(np.float64)
        return np.asarray((halves @ self.below).toarray() + last[:, None] * own)


class WinRaw(WinLog):
    """Minus the hierarchical win: -win. Its gradient is win x (p - q), which vanishes where all is wrong.

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> WinRaw(h).loss([[0.0, 0.0, 0.0]], [[1, 0, 1, 0]]).round(3).tolist()
    [-0.5]
    """

    name = "win_raw"
    kind: ClassVar[int] = WIN_RAW

    def _loss(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        shares = self._shares(truth)
        return np.where(shares.any(axis=1), -np.exp(self._log_win(logits, shares)), 0.0)

    def _gradient(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        return -self._loss(logits, truth)[:, None] * super()._gradient(logits, truth)


class WinCoarse(LeafSoftmax):
    """Cross-entropy over the top labels, with a softmax of their own. Below them nothing is learned.

    Every node's children share its probability alike: P(n) = P(parent) / siblings.

    >>> cost = WinCoarse(Hierarchy.from_paths(["A > B", "A > C", "D"]))
    >>> cost.outputs.tolist(), cost.probabilities([[0.0, 0.0]]).tolist()
    ([0, 1], [[0.5, 0.5, 0.25, 0.25]])
    """

    name = "win_coarse"
    needs = "path"

    def _check_hierarchy(self) -> None:
        Loss._check_hierarchy(self)

    def _outputs(self) -> IntArray:
        h = self.hierarchy
        return np.arange(len(h), dtype=np.int32)[h.level(1)] if len(h) else np.zeros(0, np.int32)

    def _probabilities(self, logits: DoubleArray) -> DoubleArray:
        h = self.hierarchy
        p = np.zeros((len(logits), len(h)))
        p[:, self.outputs] = special.softmax(logits, axis=1)
        children = np.bincount(h.parent + 1, minlength=len(h) + 1)[1:]
        for depth in range(2, h.max_depth + 1):
            above = h.parent[h.level(depth)]
            p[:, h.level(depth)] = p[:, above] / children[above]
        return p


def leaf_order(h: Hierarchy) -> LongArray:
    """Number the leaves of a tree from left to right, children in order of ids; inner nodes have the first of theirs.

    >>> leaf_order(Hierarchy.from_paths(["A > B", "C", "A > D"])).tolist()
    [0, 2, 0, 1]
    """
    leaves = h.is_leaf.astype(np.int64)
    for depth in range(h.max_depth, 1, -1):
        level = h.level(depth)
        np.add.at(leaves, h.parent[level], leaves[level])
    first = np.zeros(len(h), np.int64)
    for depth in range(1, h.max_depth + 1):
        level = h.level(depth)
        # Places before a node: those of all nodes of the level before it, less those before its first sibling.
        before = np.cumsum(leaves[level]) - leaves[level]
        above = h.parent[level]
        eldest = np.searchsorted(above, above)
        first[level] = before - before[eldest] + np.where(above >= 0, first[above], 0)
    return first
