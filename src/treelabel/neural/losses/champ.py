"""CHAMP: binary cross-entropy in which a wrong node costs more the further it is from the truth (Vaswani et al.)."""

import numpy as np
from torch import Tensor

from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.neural.losses import maps
from treelabel.neural.losses.base import Tables
from treelabel.neural.losses.bce import Bce, sigmoid_losses
from treelabel.neural.losses.registry import LossSpec
from treelabel.neural.losses.truth import Truth


class Champ(Bce):
    """The sum over nodes j of w_j (ln(1 + e^s_j) - y_j s_j), w_j = 1 + beta ((d(j, Y) / d_max + 1)^2 - 1); 1 if true.

    d(j, Y) counts the edges to the nearest true node. Y is closed, so that is the lowest true ancestor or, where no
    ancestor is true, a top label on the other side of the root, depth(j) + 1 edges away. In a DAG paths go up and then
    down, as in `Hierarchy.distance`: d(j, Y) is one more than the smallest of j's parents. d_max is `largest_distance`.
    All nodes of a document without labels weigh 1. beta = 0 is plain bce. Takes any labels and any hierarchy.
    """

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        self.beta, self.d_max = spec.params["beta"], max(1, largest_distance(spec.hierarchy))
        self.parents = Tables(maps.parent_tables(spec.hierarchy))

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute the loss of each document: see `Loss.forward`."""
        weights = 1 + self.beta * ((self.distances(logits, truth) / self.d_max + 1) ** 2 - 1)
        return (weights * sigmoid_losses(logits, truth.true)).sum(1)

    def distances(self, logits: Tensor, truth: Truth) -> Tensor:
        """Count the edges from every node to the nearest true one, 0 for documents without labels: like the logits."""
        wrong = 1 - truth.dense(logits)
        # The root is one edge away from the nearest true node; a true node is at 0, others one edge below a parent.
        d = maps.down_levels(wrong, 1.0, self.parents, lambda nearest, is_wrong: is_wrong * (nearest + 1))
        return d * truth.label_mask(logits)


def largest_distance(h: Hierarchy) -> int:
    """Compute the largest distance between two nodes of a tree, paths through the virtual root included: its diameter.

    In a DAG all pairs would have to be tried; twice the depth of the node furthest from the root is taken, which no
    distance exceeds.

    >>> largest_distance(Hierarchy.from_paths(["A > B > C", "A > D"]))
    3
    """
    if not len(h):
        return 0
    deepest = int(np.argmax(h.shortest_depth))
    if not h.is_tree:
        return 2 * int(h.shortest_depth[deepest])
    # A longest path of a tree has the node that is furthest from any other node at one end, so from the root too.
    return int(h.distance([deepest], np.arange(len(h))).max())
