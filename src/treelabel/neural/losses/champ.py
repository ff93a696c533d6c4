"""CHAMP: binary cross-entropy in which a wrong node costs more the further it is from the truth (Vaswani et al.)."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from treelabel.core.types import DoubleArray, IntArray
from treelabel.hierarchy import Hierarchy, row_sizes
from treelabel.neural.losses.base import Parameter, Truth
from treelabel.neural.losses.bce import Bce
from treelabel.neural.losses.parents import smallest_of_parents


class Champ(Bce):
    """Binary cross-entropy with w_j = 1 + beta ((d(j, Y) / d_max + 1)^2 - 1) for a node j that is not true, else 1.

    d(j, Y) counts the edges to the nearest true node. Y is closed, so that is the lowest true ancestor or, where no
    ancestor is true, a top label on the other side of the root, depth(j) + 1 edges away. In a DAG paths go up and then
    down, as in `Hierarchy.distance`: d(j, Y) is one more than the smallest of j's parents. d_max is `largest_distance`.
    All nodes of a document without labels weigh 1. beta = 0 is plain bce. Takes any labels and any hierarchy.

    >>> champ = Champ(Hierarchy.from_paths(["A > B", "C > D"]), beta=1.0)
    >>> champ.weights(champ.checked_truth([[0, 0, 1, 0]])).tolist()
    [[1.0, 2.25, 1.0, 3.0625]]
    """

    name = "champ"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "beta": Parameter(0.2, 0.0, 1e6, "how much more distant mistakes cost")
    }

    @cached_property
    def weight_at(self) -> DoubleArray:
        """The weight of a negative at each distance, from 0 to the largest possible."""
        h = self.hierarchy
        d = np.arange(int(h.shortest_depth.max(initial=0)) + 2)
        return np.asarray(1 + self.params["beta"] * ((d / max(1, largest_distance(h)) + 1) ** 2 - 1))

    def weights(self, truth: Truth) -> DoubleArray:
        """Return the weight of every node: documents x nodes."""
        return np.asarray(self.weight_at[distances(self.hierarchy, truth)])


def distances(h: Hierarchy, truth: Truth) -> IntArray:
    """Count the edges from every node to the nearest true one.

    Parameters
    ----------
    h
        The hierarchy.
    truth
        Closed labels of documents.

    Returns
    -------
    IntArray
        Documents x nodes; 0 for documents without labels.

    Examples
    --------
    >>> h = Hierarchy.from_paths(["A > B", "C > D"])
    >>> distances(h, Truth(h.closure([[0, 0, 1, 0], [0, 0, 0, 0]]))).tolist()
    [[0, 2, 0, 3], [0, 0, 0, 0]]
    """
    true = truth.dense()
    d = np.where(true, 0, 2).astype(np.int32)
    for depth in range(2, h.max_depth + 1):
        # The root is one edge away from the nearest true node.
        nodes, nearest = smallest_of_parents(h, depth, d, 1)
        d[:, nodes] = np.where(true[:, nodes], 0, nearest + 1)
    d[row_sizes(truth.closed) == 0] = 0
    return d


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
