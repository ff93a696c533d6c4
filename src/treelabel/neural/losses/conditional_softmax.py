"""Conditional softmax: a softmax among the children of every node, plain and with logit adjustment."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy import Hierarchy
from treelabel.neural.losses.base import Parameter, Truth
from treelabel.neural.losses.groups import GroupedLoss, Groups


class ConditionalSoftmax(GroupedLoss):
    """The sum over true nodes n of -ln P(n | parent), a softmax among siblings; P(n) = the product along the path.

    Needs a tree and one path per document; where the path ends inside, so does the loss.
    """

    name = "conditional_softmax"
    needs = "path"
    needs_tree = True

    @cached_property
    def offsets(self) -> DoubleArray:
        """The offsets that training adds to the logits: none."""
        return np.zeros(len(self.outputs))

    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute the loss of each document: see `Loss.loss`."""
        s, true = self.checked(logits, truth)
        log_p = self._log_conditional(s + self.offsets)
        return np.asarray(-np.where(true.dense(), log_p, 0.0).sum(axis=1))

    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute P(n | parent) - y_n among the siblings of true nodes, and 0 elsewhere: see `Loss.gradient`."""
        s, true = self.checked(logits, truth)
        y = true.dense()
        judged = np.logical_or.reduceat(y, self._first, axis=1)[:, self._group]
        return np.where(judged, np.exp(self._log_conditional(s + self.offsets)) - y, 0.0)

    def probabilities(self, logits: npt.ArrayLike) -> DoubleArray:
        """Return the product along the path of P(. | parent), without offsets: documents x nodes."""
        log_p = self._log_conditional(self.checked_logits(logits))
        for depth in range(2, self.hierarchy.max_depth + 1):
            level = self.hierarchy.level(depth)
            log_p[:, level] += log_p[:, self.hierarchy.parent[level]]
        return np.asarray(np.exp(log_p))

    @property
    def groups(self) -> Groups:
        """Siblings."""
        return Groups(np.append(self._first, len(self.outputs)).astype(np.int64), self.outputs)

    def open_groups(self, truth: Truth) -> tuple[LongArray, IntArray]:
        """Return the groups along the path."""
        closed = truth.closed
        return closed.indptr.astype(np.int64), self._group[closed.indices].astype(np.int32)

    @cached_property
    def _first(self) -> LongArray:
        """The first output of every group; siblings are consecutive in a tree."""
        return np.flatnonzero(np.diff(self.hierarchy.parent, prepend=-2))

    @cached_property
    def _group(self) -> LongArray:
        """The group of every node."""
        return np.cumsum(np.diff(self.hierarchy.parent, prepend=-2) != 0) - 1

    def _log_conditional(self, logits: DoubleArray) -> DoubleArray:
        """Compute ln P(n | parent)."""
        shifted = logits - np.maximum.reduceat(logits, self._first, axis=1)[:, self._group]
        return np.asarray(shifted - np.log(np.add.reduceat(np.exp(shifted), self._first, axis=1))[:, self._group])


class ConditionalSoftmaxLa(ConditionalSoftmax):
    """The conditional softmax with logit adjustment (Menon et al.): training adds tau ln v(n | parent) to the logits.

    v is the share of n among its siblings' training documents, with one more document counted for each sibling.
    Probabilities are of the plain logits, so rare siblings are not held down. tau = 0 is the plain conditional softmax.

    >>> loss = ConditionalSoftmaxLa(Hierarchy.flat(["A", "B"]), frequencies=[8, 0])
    >>> loss.loss([[0.0, 0.0], [0.0, 0.0]], [[1, 0], [0, 1]]).round(3).tolist()
    [0.105, 2.303]
    """

    name = "conditional_softmax_la"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "tau": Parameter(1.0, 0.0, 1e6, "strength of the logit adjustment; 1 balances siblings")
    }

    def __init__(self, hierarchy: Hierarchy, frequencies: npt.ArrayLike | None = None, **params: float) -> None:
        super().__init__(hierarchy, frequencies, **params)
        if self.frequencies is None:
            raise TreelabelError(f"the loss {self.name} needs the training frequencies of the nodes: frequencies=")

    @cached_property
    def offsets(self) -> DoubleArray:
        """The offsets that training adds to the logits: tau ln v(n | parent)."""
        assert self.frequencies is not None
        counts = self.frequencies + 1
        share = counts / np.add.reduceat(counts, self._first)[self._group]
        return np.asarray(self.params["tau"] * np.log(share))
