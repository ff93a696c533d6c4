"""The contract of a loss over a hierarchy: its outputs, its formula, its gradient, and logits → node probabilities.

A loss is made for a hierarchy. Logits are documents x outputs, `outputs` are the nodes that they belong to, and truth
is a label matrix, documents x nodes. Everything is computed in log space and in double precision.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy import Hierarchy, LabelMatrix, row_sizes

Needs = Literal["any", "path", "leaf"]


@dataclass(frozen=True)
class Parameter:
    """A number that a loss takes: its default, the smallest and the largest value, and one line of help."""

    default: float
    low: float
    high: float
    help: str


@dataclass(frozen=True, eq=False)
class Truth:
    """True labels that a loss has closed under ancestors and accepted: documents x nodes."""

    closed: LabelMatrix

    def __len__(self) -> int:
        return int(self.closed.shape[0])

    def __getitem__(self, rows: Any) -> "Truth":
        return Truth(self.closed[rows])

    def dense(self) -> BoolArray:
        """Return the labels as a dense matrix."""
        found: BoolArray = self.closed.toarray()
        return found


class Loss(ABC):
    """A loss for a hierarchy.

    A new loss is a subclass with `loss`, `gradient` and `probabilities`, and one row in LOSSES; with that it trains in
    every model that takes a loss. Other class attributes and methods are overridden where a loss differs from the
    defaults. Forms for torch and for compiled loops, in `torch` and `compiled`, are optional, and faster.

    Attributes
    ----------
    name
        The name in LOSSES.
    needs
        The labels that a document may have: "any", one "path", or one "leaf". No labels at all are always allowed.
    needs_tree
        Whether the hierarchy must be a tree.
    coherent
        Whether `probabilities` promises that no child is above its parent.
    parameters
        The loss's own parameters by name; the values are in `params`.

    Examples
    --------
    >>> from treelabel.neural.losses.registry import make_loss
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> loss = make_loss("conditional_softmax", h)
    >>> truth = h.closure([[0, 0, 1, 0]])
    >>> loss.loss([[0.0, 0.0, 0.0, 0.0]], truth).round(3).tolist()
    [1.386]
    >>> loss.gradient([[0.0, 0.0, 0.0, 0.0]], truth).tolist()
    [[-0.5, 0.5, -0.5, 0.5]]
    >>> loss.probabilities([[0.0, 0.0, 0.0, 0.0]]).tolist()
    [[0.5, 0.5, 0.25, 0.25]]
    """

    name: ClassVar[str]
    needs: ClassVar[Needs] = "any"
    needs_tree: ClassVar[bool] = False
    coherent: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, Parameter]] = {}

    def __init__(self, hierarchy: Hierarchy, frequencies: npt.ArrayLike | None = None, **params: float) -> None:
        """Make the loss for a hierarchy.

        Parameters
        ----------
        hierarchy
            The hierarchy of the labels.
        frequencies
            Training documents of each node, for losses that look at them.
        **params
            Values of the loss's own `parameters`; those not given have their defaults.
        """
        self.hierarchy = hierarchy
        if self.needs_tree and not hierarchy.is_tree:
            raise TreelabelError(
                f"the loss {self.name} needs a tree, but this hierarchy is a DAG; make it a tree with "
                "Hierarchy.unfold(), or use conditional_sigmoid, bce or leaf_softmax"
            )
        self.params = self._checked_params(params)
        self.frequencies = None if frequencies is None else np.asarray(frequencies, np.float64)
        if self.frequencies is not None and self.frequencies.shape != (len(hierarchy),):
            raise TreelabelError(
                f"{self.frequencies.size:,} frequencies, but the hierarchy has {len(hierarchy):,} nodes"
            )

    # Formulas

    @abstractmethod
    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute the loss of each document.

        Parameters
        ----------
        logits
            Documents x outputs.
        truth
            True labels, closed or not: a label matrix, documents x nodes, or a `Truth`.

        Returns
        -------
        DoubleArray
            Shape (documents,).
        """

    @abstractmethod
    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute d loss / d logits.

        Parameters
        ----------
        logits
            Documents x outputs.
        truth
            True labels, closed or not: a label matrix, documents x nodes, or a `Truth`.

        Returns
        -------
        DoubleArray
            Documents x outputs.
        """

    @abstractmethod
    def probabilities(self, logits: npt.ArrayLike) -> DoubleArray:
        """Return the probability of every node: documents x nodes."""

    @cached_property
    def outputs(self) -> IntArray:
        """The node of each output; all nodes, unless a loss has other outputs."""
        return np.arange(len(self.hierarchy), dtype=np.int32)

    def penalty(self, weights: npt.ArrayLike) -> tuple[float, DoubleArray]:
        """Return the cost of the output weights themselves (outputs x width) and its gradient; none by default."""
        return 0.0, np.zeros(np.shape(weights))

    @property
    def has_penalty(self) -> bool:
        """Whether output weights cost anything by themselves."""
        return type(self).penalty is not Loss.penalty

    # Checks

    def checked(self, logits: npt.ArrayLike, truth: Any) -> tuple[DoubleArray, Truth]:
        """Check logits and truth together.

        Parameters
        ----------
        logits
            Documents x outputs.
        truth
            True labels in any form; a `Truth` is taken as it is.

        Returns
        -------
        tuple[DoubleArray, Truth]
            The logits in double precision, and the closed labels.
        """
        given, true = self.checked_logits(logits), self.checked_truth(truth)
        if len(given) != len(true):
            raise TreelabelError(f"logits of {len(given):,} documents, but truth of {len(true):,}")
        return given, true

    def checked_logits(self, logits: npt.ArrayLike) -> DoubleArray:
        """Return logits in double precision; refuse a wrong shape."""
        given = np.asarray(logits, np.float64)
        if given.ndim != 2 or given.shape[1] != len(self.outputs):
            raise TreelabelError(
                f"logits of shape {given.shape}, but the loss {self.name} has {len(self.outputs):,} outputs here; "
                "expected documents x outputs"
            )
        return given

    def checked_truth(self, truth: Any) -> Truth:
        """Close labels under ancestors; refuse those that the loss cannot learn from."""
        if isinstance(truth, Truth):
            return truth
        closed = self.hierarchy.closure(truth)
        if self.needs == "any":
            return Truth(closed)
        terminal = self.hierarchy.most_specific(closed)
        many = np.flatnonzero(row_sizes(terminal) > 1)
        if len(many):
            raise TreelabelError(
                f"document {many[0]}: labels end at {row_sizes(terminal)[many[0]]} nodes, but the loss {self.name} "
                "needs one path per document; use conditional_sigmoid or bce"
            )
        inside = terminal.indices[~self.hierarchy.is_leaf[terminal.indices]]
        if self.needs == "leaf" and len(inside):
            raise TreelabelError(
                f"labels end at {self.hierarchy.names[inside[0]]!r}, which is no leaf, but the loss {self.name} needs "
                "one leaf per document; give such nodes an 'other' leaf with treelabel.with_other_leaves, or use "
                "conditional_softmax or conditional_sigmoid"
            )
        return Truth(closed)

    def true_outputs(self, truth: Truth) -> tuple[LongArray, IntArray]:
        """Return the true outputs of all documents: those of document i are idx[ptr[i]:ptr[i + 1]]."""
        output = self._output_of[truth.closed.indices]
        ptr = np.concatenate([[0], np.cumsum(output >= 0)])[truth.closed.indptr]
        return ptr.astype(np.int64), output[output >= 0]

    @cached_property
    def _output_of(self) -> IntArray:
        """The output of every node, -1 for nodes without one."""
        found = np.full(len(self.hierarchy), -1, np.int32)
        found[self.outputs] = np.arange(len(self.outputs))
        return found

    def _checked_params(self, params: Mapping[str, float]) -> dict[str, float]:
        for name, value in params.items():
            if name not in self.parameters:
                raise TreelabelError(f"the loss {self.name} has no parameter {name!r}; {described(self.parameters)}")
            own = self.parameters[name]
            is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not is_number or not own.low <= value <= own.high:
                raise TreelabelError(
                    f"the parameter {name} of the loss {self.name} must be a number from {own.low:g} to {own.high:g}, "
                    f"found {value!r}"
                )
        return {name: float(params.get(name, own.default)) for name, own in self.parameters.items()}


def described(parameters: Mapping[str, Parameter]) -> str:
    """Return one line about the parameters of a loss.

    >>> described({"beta": Parameter(0.2, 0.0, 1e6, "weight of distances")})
    'it has: beta=0.2 (0 to 1e+06)'
    """
    listed = [f"{name}={own.default:g} ({own.low:g} to {own.high:g})" for name, own in parameters.items()]
    return f"it has: {', '.join(listed)}" if listed else "it has none"
