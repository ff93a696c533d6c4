"""The registry of losses: what each needs of labels and outputs, alone and with a hierarchy, known without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treelabel.core.errors import TreelabelError
from treelabel.core.registry import Lazy, Registry
from treelabel.core.types import DoubleArray, IntArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.neural.losses.layout import Ragged, leaf_order

Needs = Literal["any", "path", "leaf"]
Outputs = Literal["nodes", "leaves", "top"]


@dataclass(frozen=True)
class Parameter:
    """A number that a loss takes: its default, the smallest and the largest value, and one line of help."""

    default: float
    low: float
    high: float
    help: str


@dataclass(frozen=True)
class LossRow(Lazy[Any]):
    """A row of LOSSES: where the module of a loss is, and what must be known about it before torch is imported.

    Attributes
    ----------
    needs
        The labels that a document may have: "any", one "path", or one "leaf". No labels at all are always allowed.
    needs_tree, needs_frequencies
        Whether the hierarchy must be a tree, and whether the training documents of each node must be known.
    coherent
        Whether `Loss.probabilities` promises that no child is above its parent.
    outputs
        The nodes that have a logit: all "nodes", the "leaves", or the "top" labels.
    parameters
        The loss's parameters by name.
    """

    needs: Needs = "any"
    needs_tree: bool = False
    needs_frequencies: bool = False
    coherent: bool = True
    outputs: Outputs = "nodes"
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def bind(self, hierarchy: Hierarchy, frequencies: npt.ArrayLike | None, params: Mapping[str, float]) -> "LossSpec":
        """Bind the loss to a hierarchy; refuse one that it cannot work with, and wrong parameters.

        Parameters
        ----------
        hierarchy
            The hierarchy of the labels.
        frequencies
            Training documents of each node, for losses that look at them.
        params
            Values of `parameters`; those left out have their defaults.
        """
        if self.needs_tree and not hierarchy.is_tree:
            raise TreelabelError(
                f"the loss {self.name} needs a tree, but this hierarchy is a DAG; make it a tree with "
                "Hierarchy.unfold(), or use conditional_sigmoid, bce or leaf_softmax"
            )
        if self.needs_frequencies and frequencies is None:
            raise TreelabelError(f"the loss {self.name} needs the training frequencies of the nodes: frequencies=")
        counts = None if frequencies is None else np.asarray(frequencies, np.float64)
        if counts is not None and counts.shape != (len(hierarchy),):
            raise TreelabelError(f"{counts.size:,} frequencies, but the hierarchy has {len(hierarchy):,} nodes")
        return LossSpec(self, hierarchy, counts, self._check_params(params))

    def _check_params(self, params: Mapping[str, float]) -> dict[str, float]:
        for name, value in params.items():
            if name not in self.parameters:
                raise TreelabelError(f"the loss {self.name} has no parameter {name!r}; {self._parameter_list()}")
            limits = self.parameters[name]
            is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not is_number or not limits.low <= value <= limits.high:
                raise TreelabelError(
                    f"the parameter {name} of the loss {self.name} must be a number from {limits.low:g} to "
                    f"{limits.high:g}, found {value!r}"
                )
        return {name: float(params.get(name, each.default)) for name, each in self.parameters.items()}

    def _parameter_list(self) -> str:
        listed = [f"{name}={each.default:g} ({each.low:g} to {each.high:g})" for name, each in self.parameters.items()]
        return f"it has: {', '.join(listed)}" if listed else "it has none"


@dataclass(frozen=True, eq=False)
class LossSpec:
    """A loss bound to a hierarchy: its outputs, the labels it accepts, and the values of its parameters."""

    row: LossRow
    hierarchy: Hierarchy
    frequencies: DoubleArray | None
    params: Mapping[str, float]

    def build(self) -> Any:
        """Build the torch module, a `Loss`: its class is not imported here, as that needs torch."""
        return self.row.maker(self)

    @cached_property
    def outputs(self) -> IntArray:
        """The node of each output. Leaves of a tree stand from left to right, so that those of a node are a slice."""
        h = self.hierarchy
        if self.row.outputs == "nodes":
            return np.arange(len(h), dtype=np.int32)
        if self.row.outputs == "top":
            return np.arange(len(h), dtype=np.int32)[h.level(1)] if len(h) else h.leaves
        return h.leaves[np.argsort(leaf_order(h)[h.leaves], kind="stable")] if h.is_tree else h.leaves

    @cached_property
    def output_of_node(self) -> IntArray:
        """The output of every node, -1 for nodes without one."""
        result = np.full(len(self.hierarchy), -1, np.int32)
        result[self.outputs] = np.arange(len(self.outputs))
        return result

    def check_truth(self, truth: Any) -> LabelMatrix:
        """Close labels (documents x nodes) under ancestors; refuse those that the loss cannot learn from."""
        h, needs, name = self.hierarchy, self.row.needs, self.row.name
        closed = h.closure(truth)
        if needs == "any":
            return closed
        terminal = h.most_specific(closed)
        sizes = row_sizes(terminal)
        many = np.flatnonzero(sizes > 1)
        if len(many):
            raise TreelabelError(
                f"document {many[0]}: labels end at {sizes[many[0]]} nodes, but the loss {name} needs one path per "
                "document; use conditional_sigmoid or bce"
            )
        inner = terminal.indices[~h.is_leaf[terminal.indices]]
        if needs == "leaf" and len(inner):
            raise TreelabelError(
                f"labels end at {h.names[inner[0]]!r}, which is no leaf, but the loss {name} needs one leaf per "
                "document; give such nodes an 'other' leaf with treelabel.with_other_leaves, or use "
                "conditional_softmax or conditional_sigmoid"
            )
        return closed

    def true_outputs(self, closed: LabelMatrix) -> Ragged:
        """Return the true outputs of each document, from labels that `check_truth` has closed."""
        output = self.output_of_node[closed.indices]
        ptr = np.concatenate([[0], np.cumsum(output >= 0)])[closed.indptr]
        return Ragged.of(ptr, output[output >= 0])


_ROWS = (
    LossRow("bce", "a sigmoid for every node; any labels, any hierarchy", "neural.losses.bce:Bce", coherent=False),
    LossRow(
        "leaf_softmax",
        "cross-entropy over the leaves; one leaf per document",
        "neural.losses.leaf_softmax:LeafSoftmax",
        needs="leaf",
        outputs="leaves",
    ),
    LossRow(
        "conditional_softmax",
        "a softmax among siblings; one path in a tree",
        "neural.losses.conditional_loss:ConditionalSoftmax",
        needs="path",
        needs_tree=True,
    ),
    LossRow(
        "conditional_softmax_la",
        "the same, adjusted for the siblings' training frequencies (logit adjustment)",
        "neural.losses.conditional_loss:ConditionalSoftmaxLa",
        needs="path",
        needs_tree=True,
        needs_frequencies=True,
        parameters={"tau": Parameter(1.0, 0.0, 1e6, "strength of the logit adjustment; 1 balances siblings")},
    ),
    LossRow(
        "conditional_sigmoid",
        "a sigmoid given the parents; any labels, any hierarchy",
        "neural.losses.conditional_loss:ConditionalSigmoid",
    ),
    LossRow(
        "champ",
        "bce in which a wrong node costs more the further it is from the truth",
        "neural.losses.champ:Champ",
        coherent=False,
        parameters={"beta": Parameter(0.2, 0.0, 1e6, "how much more distant mistakes cost")},
    ),
    LossRow(
        "match",
        "bce with children pulled towards and below their parents",
        "neural.losses.match:Match",
        coherent=False,
        parameters={
            "lambda_parameters": Parameter(1e-4, 0.0, 1e6, "weight of |W_child - W_parent|^2 / 2"),
            "lambda_probabilities": Parameter(1e-2, 0.0, 1e6, "weight of max(0, P(child) - P(parent))"),
        },
    ),
    LossRow(
        "win_flat",
        "cross-entropy over the leaves; the baseline of the hierarchical win",
        "neural.losses.leaf_softmax:LeafSoftmax",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
    ),
    LossRow(
        "win_raw",
        "minus the hierarchical win; one leaf in a tree",
        "neural.losses.win:WinRaw",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
    ),
    LossRow(
        "win_log",
        "minus the logarithm of the hierarchical win; one leaf in a tree",
        "neural.losses.win:WinLog",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
    ),
    LossRow(
        "win_coarse",
        "cross-entropy over the top labels only",
        "neural.losses.win:WinCoarse",
        needs="path",
        needs_tree=True,
        outputs="top",
    ),
    LossRow(
        "hierarchical_cross_entropy",
        "cross-entropy along the path; mistakes near the root cost more (HXE)",
        "neural.losses.hierarchical_cross_entropy:HierarchicalCrossEntropy",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
        parameters={
            "alpha": Parameter(0.1, 0.0, 100.0, "how much more mistakes near the root cost"),
            "normalize": Parameter(0.0, 0.0, 1.0, "1: the weights of all nodes sum to 1"),
        },
    ),
    LossRow(
        "soft_labels",
        "cross-entropy over the leaves; leaves near the true one count in part",
        "neural.losses.soft_labels:SoftLabels",
        needs="leaf",
        needs_tree=True,
        outputs="leaves",
        parameters={"beta": Parameter(10.0, 0.0, 1e6, "hardness of the labels; large is plain cross-entropy")},
    ),
)

LOSSES: Registry[LossRow] = Registry("loss", _ROWS)
