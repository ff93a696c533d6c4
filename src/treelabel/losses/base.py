"""Losses over a hierarchy: the table LOSSES, each with its gradient and its map from logits to node probabilities.

A loss is made for a hierarchy. Logits are documents x outputs, `outputs` says which node each output stands for, and
truth is a label matrix, documents x nodes. Everything is computed in log space and double precision.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from treelabel.core.compute import DoubleArray, IntArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Hierarchy, LabelMatrix, row_sizes
from treelabel.losses.kernels import SOFTMAX, Plan, Targets


class Loss(ABC):
    """A loss for a hierarchy; a document without labels costs a softmax nothing.

    `frequencies` (documents of each node) and `tau` matter to conditional_softmax_la only. `coherent` says whether
    `probabilities` promises that no child is above its parent, `needs` what labels a document may have: any, one
    path, or one leaf, and `settings` which settings a loss has of its own.

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> cost = make_loss("conditional_softmax", h)
    >>> truth = h.closure([[0, 0, 1, 0]])
    >>> cost.loss([[0.0, 0.0, 0.0, 0.0]], truth).round(3).tolist()
    [1.386]
    >>> cost.gradient([[0.0, 0.0, 0.0, 0.0]], truth).tolist()
    [[-0.5, 0.5, -0.5, 0.5]]
    >>> cost.probabilities([[0.0, 0.0, 0.0, 0.0]]).tolist()
    [[0.5, 0.5, 0.25, 0.25]]
    """

    name: ClassVar[str]
    kind: ClassVar[int] = SOFTMAX
    coherent: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[Literal["any", "path", "leaf"]] = "any"

    def __init__(self, hierarchy: Hierarchy, frequencies: npt.ArrayLike | None = None, tau: float = 1.0) -> None:
        self.hierarchy = hierarchy
        self._check_hierarchy()
        self.outputs = self._outputs()
        self.offsets = self._offsets(frequencies, tau)

    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Give the loss of each document: shape (documents,)."""
        return self._loss(*self._checked(logits, truth))

    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Give d loss / d logits: documents x outputs."""
        return self._gradient(*self._checked(logits, truth))

    def probabilities(self, logits: npt.ArrayLike) -> DoubleArray:
        """Give the probability of every node: documents x nodes."""
        return self._probabilities(self._numbers(logits))

    def penalty(self, weights: npt.ArrayLike) -> tuple[float, DoubleArray]:
        """Give what the output weights (outputs x width) cost by themselves, and the gradient: nothing, if not told."""
        return 0.0, np.zeros(np.shape(weights))

    @abstractmethod
    def plan(self) -> Plan:
        """What compiled loops need to know of the loss."""

    @abstractmethod
    def targets(self, truth: Any) -> Targets:
        """What compiled loops need to know of documents; refuses what the loss cannot learn from."""

    def _check_hierarchy(self) -> None:
        if not self.hierarchy.is_tree:
            raise TreelabelError(
                f"the loss {self.name} needs a tree, but this hierarchy is a DAG; make it a tree with "
                "Hierarchy.unfold(), or use conditional_sigmoid, bce or leaf_softmax"
            )

    def _outputs(self) -> IntArray:
        return np.arange(len(self.hierarchy), dtype=np.int32)

    def _offsets(self, frequencies: npt.ArrayLike | None, tau: float) -> DoubleArray:
        return np.zeros(len(self.outputs))

    @abstractmethod
    def _loss(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray: ...

    @abstractmethod
    def _gradient(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray: ...

    @abstractmethod
    def _probabilities(self, logits: DoubleArray) -> DoubleArray: ...

    def _numbers(self, logits: npt.ArrayLike) -> DoubleArray:
        given = np.asarray(logits, np.float64)
        if given.ndim != 2 or given.shape[1] != len(self.outputs):
            raise TreelabelError(
                f"logits of shape {given.shape}, but the loss {self.name} has {len(self.outputs):,} outputs here; "
                "expected documents x outputs"
            )
        return given

    def _checked(self, logits: npt.ArrayLike, truth: Any) -> tuple[DoubleArray, LabelMatrix]:
        given, true = self._numbers(logits), self._truth(truth)
        if len(given) != true.shape[0]:
            raise TreelabelError(f"logits of {len(given):,} documents, but truth of {true.shape[0]:,}")
        return given, true

    def _truth(self, truth: Any) -> LabelMatrix:
        """Close the truth, and refuse what the loss cannot learn from."""
        closed = self.hierarchy.closure(truth)
        if self.needs == "any":
            return closed
        ends = self.hierarchy.most_specific(closed)
        many = np.flatnonzero(row_sizes(ends) > 1)
        if len(many):
            raise TreelabelError(
                f"document {many[0]}: labels end at {row_sizes(ends)[many[0]]} nodes, but the loss {self.name} needs "
                "one path a document; use conditional_sigmoid or bce"
            )
        inside = ends.indices[~self.hierarchy.is_leaf[ends.indices]]
        if self.needs == "leaf" and len(inside):
            raise TreelabelError(
                f"labels end at {self.hierarchy.names[inside[0]]!r}, which is no leaf, but the loss {self.name} needs "
                "one leaf a document; give such nodes an 'other' leaf with treelabel.with_other_leaves, or use "
                "conditional_softmax or conditional_sigmoid"
            )
        return closed


# For compiled loops


def one_group(outputs: int) -> tuple[LongArray, IntArray]:
    """Judge all outputs together."""
    return np.array([0, outputs], np.int64), np.arange(outputs, dtype=np.int32)


def plan_of(
    loss: Loss,
    ptr: LongArray,
    idx: IntArray,
    above: tuple[LongArray, IntArray, IntArray] | None = None,
    weight_at: DoubleArray | None = None,
) -> Plan:
    """Put together what compiled loops need to know of a loss."""
    none = np.zeros(0, np.int32)
    slices = above if above is not None else (np.zeros(1, np.int64), none, none)
    weights = np.zeros(0) if weight_at is None else weight_at
    return Plan(loss.kind, ptr, idx, loss.offsets.astype(np.float32), *slices, weights)
