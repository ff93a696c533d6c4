"""Losses with one output a node: a sigmoid for each, alone or given its parents, or a softmax among siblings."""

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse, special

from treelabel.core.compute import DoubleArray, IntArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import LabelMatrix
from treelabel.losses.base import Loss, one_group, plan_of
from treelabel.losses.kernels import SIGMOID, Plan, Targets

# One sigmoid an output


class Bce(Loss):
    """Binary cross-entropy of every node: sum over n of ln(1 + e^s_n) - y_n s_n. P(n) = sigmoid(s_n).

    Nothing keeps children below their parents; `Scores.coherent()` does it afterwards.

    >>> from treelabel.hierarchy import Hierarchy
    >>> cost = Bce(Hierarchy.flat(["A", "B"]))
    >>> cost.loss([[0.0, 100.0]], [[1, 1]]).round(3).tolist(), cost.probabilities([[0.0, 100.0]]).tolist()
    ([0.693], [[0.5, 1.0]])
    """

    name = "bce"
    kind = SIGMOID
    coherent = False

    def _check_hierarchy(self) -> None:
        pass

    def plan(self) -> Plan:
        """One group of all nodes."""
        return plan_of(self, *one_group(len(self.outputs)))

    def targets(self, truth: Any) -> Targets:
        """All documents are judged everywhere."""
        closed = self._truth(truth)
        rows = closed.shape[0]
        return Targets(np.arange(rows + 1), np.zeros(rows, np.int32), closed.indptr.astype(np.int64), closed.indices)

    def _judged(self, truth: LabelMatrix) -> Any:
        """Where the loss looks: everywhere."""
        return 1.0

    def _loss(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        each = np.logaddexp(0, logits) - np.where(truth.toarray(), logits, 0.0)
        return np.asarray((self._judged(truth) * each).sum(axis=1))

    def _gradient(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        return np.asarray(self._judged(truth) * (special.expit(logits) - truth.toarray()))

    def _probabilities(self, logits: DoubleArray) -> DoubleArray:
        return np.asarray(special.expit(logits))


class ConditionalSigmoid(Bce):
    """A sigmoid for every node given its parents: binary cross-entropy over the nodes whose parents are all true.

    P(n) = sigmoid(s_n) P(parent); in a DAG the least likely parent counts, for a true node has only true parents. Takes
    any labels: several paths, paths that end inside, none.

    >>> from treelabel.hierarchy import Hierarchy
    >>> cost = ConditionalSigmoid(Hierarchy.from_paths(["A > B"]))
    >>> cost.loss([[0.0, 0.0]], [[0, 0]]).round(3).tolist(), cost.probabilities([[0.0, 0.0]]).tolist()
    ([0.693], [[0.5, 0.25]])
    """

    name = "conditional_sigmoid"
    coherent = True

    @cached_property
    def _groups(self) -> tuple[LongArray, IntArray, sparse.csr_array]:
        """The nodes with the same parents: pointers and nodes, and the parents of each group (nodes x groups)."""
        h = self.hierarchy
        members: dict[tuple[int, ...], list[int]] = {}
        for node in range(len(h)):
            above = h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist()
            members.setdefault(tuple(above), []).append(node)
        ptr = np.concatenate([[0], np.cumsum([len(group) for group in members.values()])])
        idx = np.concatenate([*members.values()]).astype(np.int32)
        pairs = [(node, group) for group, above in enumerate(members) for node in above if node >= 0]
        row, column = np.array(pairs, np.int64).reshape(-1, 2).T
        return ptr, idx, sparse.csr_array((np.ones(len(row), np.int32), (row, column)), (len(h), len(members)))

    def plan(self) -> Plan:
        """Groups of the same parents."""
        ptr, idx, _ = self._groups
        return plan_of(self, ptr, idx)

    def _open(self, truth: LabelMatrix) -> tuple[LongArray, IntArray]:
        """The groups whose parents are all true: pointers, and those of each document, the top labels (0) first."""
        _, _, parents = self._groups
        needed = np.bincount(parents.indices, minlength=parents.shape[1])
        found = sparse.csr_array(truth.astype(np.int32) @ parents)
        found.data *= found.data == needed[found.indices]
        found.eliminate_zeros()
        found.sort_indices()
        opened = np.insert(found.indices, found.indptr[:-1], 0).astype(np.int32)
        return (found.indptr + np.arange(len(found.indptr))).astype(np.int64), opened

    def targets(self, truth: Any) -> Targets:
        """The groups whose parents are all true."""
        closed = self._truth(truth)
        return Targets(*self._open(closed), closed.indptr.astype(np.int64), closed.indices)

    def _judged(self, truth: LabelMatrix) -> DoubleArray:
        ptr, idx, _ = self._groups
        opened_ptr, opened = self._open(truth)
        is_open = np.zeros((truth.shape[0], len(ptr) - 1))
        is_open[np.repeat(np.arange(truth.shape[0]), np.diff(opened_ptr)), opened] = 1.0
        judged = np.empty(truth.shape)
        judged[:, idx] = np.repeat(is_open, np.diff(ptr), axis=1)
        return judged

    def _probabilities(self, logits: DoubleArray) -> DoubleArray:
        h, p = self.hierarchy, np.asarray(special.expit(logits))
        for depth in range(2, h.max_depth + 1):
            nodes = np.arange(len(h))[h.level(depth)]
            edges = slice(int(h.parent_ptr[nodes[0]]), int(h.parent_ptr[nodes[-1] + 1]))
            above = h.parent_idx[edges]
            of_parent = np.where(above >= 0, p[:, above], 1.0)
            p[:, nodes] *= np.minimum.reduceat(of_parent, h.parent_ptr[nodes] - edges.start, axis=1)
        return p


# A softmax in every group of siblings


class ConditionalSoftmax(Loss):
    """A softmax among the children of every node: -sum over n in Y of ln P(n | parent); P(n) = the product on the path.

    Needs a tree and one path a document; where the path ends inside, so does the loss.
    """

    name = "conditional_softmax"
    needs = "path"

    @cached_property
    def _first(self) -> LongArray:
        """Where groups of siblings begin; they are consecutive in a tree."""
        return np.flatnonzero(np.diff(self.hierarchy.parent, prepend=-2))

    @cached_property
    def _group(self) -> LongArray:
        """The group of every node."""
        return np.cumsum(np.diff(self.hierarchy.parent, prepend=-2) != 0) - 1

    def plan(self) -> Plan:
        """Groups of siblings."""
        return plan_of(self, np.append(self._first, len(self.outputs)).astype(np.int64), self.outputs)

    def targets(self, truth: Any) -> Targets:
        """The groups along the path."""
        closed = self._truth(truth)
        ptr = closed.indptr.astype(np.int64)
        return Targets(ptr, self._group[closed.indices].astype(np.int32), ptr, closed.indices)

    def _log_conditional(self, logits: DoubleArray) -> DoubleArray:
        shifted = logits - np.maximum.reduceat(logits, self._first, axis=1)[:, self._group]
        return np.asarray(shifted - np.log(np.add.reduceat(np.exp(shifted), self._first, axis=1))[:, self._group])

    def _loss(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        return np.asarray(-np.where(truth.toarray(), self._log_conditional(logits + self.offsets), 0.0).sum(axis=1))

    def _gradient(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        true = truth.toarray()
        judged = np.logical_or.reduceat(true, self._first, axis=1)[:, self._group]
        return np.where(judged, np.exp(self._log_conditional(logits + self.offsets)) - true, 0.0)

    def _probabilities(self, logits: DoubleArray) -> DoubleArray:
        log_p = self._log_conditional(logits)
        for depth in range(2, self.hierarchy.max_depth + 1):
            level = self.hierarchy.level(depth)
            log_p[:, level] += log_p[:, self.hierarchy.parent[level]]
        return np.asarray(np.exp(log_p))


class ConditionalSoftmaxLa(ConditionalSoftmax):
    """The conditional softmax with logit adjustment: training adds tau ln v(n | parent) to the logits.

    v is the share of n among its siblings' training documents, one more counted for each. Probabilities are of the
    plain logits, so rare siblings are not held down. tau = 0 is the plain conditional softmax.

    >>> from treelabel.hierarchy import Hierarchy
    >>> cost = ConditionalSoftmaxLa(Hierarchy.flat(["A", "B"]), frequencies=[8, 0])
    >>> cost.loss([[0.0, 0.0], [0.0, 0.0]], [[1, 0], [0, 1]]).round(3).tolist()
    [0.105, 2.303]
    """

    name = "conditional_softmax_la"

    def _offsets(self, frequencies: npt.ArrayLike | None, tau: float) -> DoubleArray:
        if frequencies is None:
            raise TreelabelError(f"the loss {self.name} needs the training frequencies of the nodes: frequencies=")
        counts = np.asarray(frequencies, np.float64) + 1
        if counts.shape != (len(self.hierarchy),):
            raise TreelabelError(f"{counts.size:,} frequencies, but the hierarchy has {len(self.hierarchy):,} nodes")
        return np.asarray(tau * np.log(counts / np.add.reduceat(counts, self._first)[self._group]))
