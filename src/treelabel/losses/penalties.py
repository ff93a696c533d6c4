"""Losses that add what a hierarchy knows to one sigmoid a node: mistakes cost by distance, children stay below parents.

Both take any labels and any hierarchy, trees and DAGs, and neither promises that no child is above its parent.
"""

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import special

from treelabel.core.compute import DoubleArray, IntArray
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Hierarchy, LabelMatrix, row_sizes
from treelabel.losses.base import Loss, one_group, plan_of
from treelabel.losses.kernels import CHAMP, Plan
from treelabel.losses.node_losses import Bce


class Champ(Bce):
    """Binary cross-entropy in which a wrong node costs more the further it is from the truth (Vaswani et al., CHAMP).

    The negative term of node j is weighed 1 + beta ((d(j, Y) / d_max + 1)^2 - 1). d(j, Y) counts the edges to the
    nearest true node: Y is closed, so that is the lowest true ancestor or, where no ancestor is true, a top label on
    the other side of the root, depth(j) + 1 edges away. In a DAG ways go up and then down, as `Hierarchy.distance`
    has it: d(j, Y) is one more than the least of j's parents. d_max is `largest_distance`. Positives weigh 1, and so
    does all of a document without labels. beta = 0 is plain bce.

    >>> cost = Champ(Hierarchy.from_paths(["A > B", "C > D"]), beta=1.0)
    >>> cost.weights(cost.hierarchy.closure([[0, 0, 1, 0]])).tolist()
    [[1.0, 2.25, 1.0, 3.0625]]
    """

    name = "champ"
    kind = CHAMP
    settings: ClassVar[tuple[str, ...]] = ("beta",)

    def __init__(
        self,
        hierarchy: Hierarchy,
        frequencies: npt.ArrayLike | None = None,
        tau: float = 1.0,
        beta: float = 0.2,
    ) -> None:
        super().__init__(hierarchy, frequencies, tau)
        self.beta = not_negative(self, "beta", beta)

    @cached_property
    def weight_at(self) -> DoubleArray:
        """The weight of a negative at each distance, 0 to the largest that is possible."""
        h = self.hierarchy
        away = np.arange(int(h.shortest_depth.max(initial=0)) + 2) / max(1, largest_distance(h))
        return np.asarray(1 + self.beta * ((away + 1) ** 2 - 1))

    def weights(self, truth: LabelMatrix) -> DoubleArray:
        """Weigh every node of documents whose truth is closed: documents x nodes."""
        return np.asarray(self.weight_at[distances(self.hierarchy, truth)])

    def plan(self) -> Plan:
        """One group of all nodes, and the parents of each."""
        h = self.hierarchy
        parents = h.parent_ptr.astype(np.int64), h.parent_idx, np.zeros(0, np.int32)
        return plan_of(self, *one_group(len(self.outputs)), parents, self.weight_at)

    def _judged(self, truth: LabelMatrix) -> Any:
        return self.weights(truth)


class Match(Bce):
    """Binary cross-entropy and two penalties that pull children towards their parents (hypernymy in HiMatch's terms).

    In probabilities: lambda_probabilities x the sum over edges of max(0, P(child) - P(parent)), part of each document's
    loss. In parameters: `penalty`, Gopal and Yang's recursive regulariser of the output weights. Top labels have the
    virtual root above them, which has neither weights nor doubts, and so no term. Both at 0 are plain bce.

    >>> cost = Match(Hierarchy.from_paths(["A > B"]), lambda_probabilities=1.0)
    >>> plain = Bce(cost.hierarchy)
    >>> (cost.loss([[0.0, 50.0]], [[1, 1]]) - plain.loss([[0.0, 50.0]], [[1, 1]])).round(3).tolist()
    [0.5]
    """

    name = "match"
    settings: ClassVar[tuple[str, ...]] = ("lambda_parameters", "lambda_probabilities")

    def __init__(
        self,
        hierarchy: Hierarchy,
        frequencies: npt.ArrayLike | None = None,
        tau: float = 1.0,
        lambda_parameters: float = 1e-4,
        lambda_probabilities: float = 1e-2,
    ) -> None:
        super().__init__(hierarchy, frequencies, tau)
        self.lambda_parameters = not_negative(self, "lambda_parameters", lambda_parameters)
        self.lambda_probabilities = not_negative(self, "lambda_probabilities", lambda_probabilities)

    @cached_property
    def edges(self) -> tuple[IntArray, IntArray]:
        """All children and their parents, edges from the root left out."""
        h = self.hierarchy
        real = h.parent_idx >= 0
        return h.edge_child[real], h.parent_idx[real]

    def penalty(self, weights: npt.ArrayLike) -> tuple[float, DoubleArray]:
        """Give lambda_parameters / 2 x the sum over edges of |W_child - W_parent|^2, and its gradient.

        >>> Match(Hierarchy.from_paths(["A > B"]), lambda_parameters=1.0).penalty([[1.0, 0.0], [0.0, 2.0]])[0]
        2.5
        """
        given, (child, parent) = np.asarray(weights, np.float64), self.edges
        apart = given[child] - given[parent]
        slope = np.zeros(given.shape)
        np.add.at(slope, child, apart)
        np.subtract.at(slope, parent, apart)
        return float(self.lambda_parameters * (apart**2).sum() / 2), self.lambda_parameters * slope

    def plan(self) -> Plan:
        """Refuse: compiled loops see one document at a time, and neither edges nor weights."""
        raise TreelabelError(
            f"the loss {self.name} has penalties over pairs of labels, which the model bag does not learn with; "
            "use the model neural, or the loss bce or champ"
        )

    def _loss(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        p, (child, parent) = special.expit(logits), self.edges
        above = np.maximum(p[:, child] - p[:, parent], 0).sum(axis=1)
        return np.asarray(super()._loss(logits, truth) + self.lambda_probabilities * above)

    def _gradient(self, logits: DoubleArray, truth: LabelMatrix) -> DoubleArray:
        p, (child, parent) = special.expit(logits), self.edges
        above = (p[:, child] > p[:, parent]).astype(np.float64)
        pushed = np.zeros((len(self.outputs), len(logits)))
        np.add.at(pushed, child, above.T)
        np.subtract.at(pushed, parent, above.T)
        slope = p * special.expit(-logits) * pushed.T
        return np.asarray(super()._gradient(logits, truth) + self.lambda_probabilities * slope)


def distances(h: Hierarchy, truth: LabelMatrix) -> IntArray:
    """Count the edges from every node to the nearest true one: documents x nodes; 0 for documents without labels.

    >>> h = Hierarchy.from_paths(["A > B", "C > D"])
    >>> distances(h, h.closure([[0, 0, 1, 0], [0, 0, 0, 0]])).tolist()
    [[0, 2, 0, 3], [0, 0, 0, 0]]
    """
    true = truth.toarray()
    away = np.where(true, 0, 2).astype(np.int32)
    for depth in range(2, h.max_depth + 1):
        nodes = np.arange(len(h))[h.level(depth)]
        edges = slice(int(h.parent_ptr[nodes[0]]), int(h.parent_ptr[nodes[-1] + 1]))
        above = h.parent_idx[edges]
        # From the root it is one step to the nearest true node.
        of_parent = np.where(above >= 0, away[:, above], 1)
        nearest = np.minimum.reduceat(of_parent, h.parent_ptr[nodes] - edges.start, axis=1)
        away[:, nodes] = np.where(true[:, nodes], 0, nearest + 1)
    away[row_sizes(truth) == 0] = 0
    return away


def largest_distance(h: Hierarchy) -> int:
    """Find how far apart two nodes of a tree can be, ways through the virtual root counted: its diameter.

    In a DAG all pairs would have to be tried; twice the depth of the node that is furthest from the root is taken,
    which no distance exceeds.

    >>> largest_distance(Hierarchy.from_paths(["A > B > C", "A > D"]))
    3
    """
    if not len(h):
        return 0
    deepest = int(np.argmax(h.shortest_depth))
    if not h.is_tree:
        return 2 * int(h.shortest_depth[deepest])
    # One end of a longest way in a tree is the node that is furthest from any other, so from the root too.
    return int(h.distance([deepest], np.arange(len(h))).max())


def not_negative(loss: Loss, name: str, value: float) -> float:
    """Refuse settings below 0."""
    if not value >= 0:
        raise TreelabelError(f"the setting {name} of the loss {loss.name} must be 0 or more, found {value}")
    return float(value)
