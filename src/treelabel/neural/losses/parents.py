"""The parents of the nodes of a level, for losses that work their way down a hierarchy in numpy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from treelabel.core.types import LongArray
from treelabel.hierarchy import Hierarchy


def smallest_of_parents(
    hierarchy: Hierarchy, depth: int, values: npt.NDArray[Any], of_root: float
) -> tuple[LongArray, npt.NDArray[Any]]:
    """Find the smallest value among the parents of each node of a level.

    Parameters
    ----------
    hierarchy
        A tree or DAG.
    depth
        The level, 1 being that of the top labels.
    values
        Documents x nodes; only the levels above are read.
    of_root
        The value of the root.

    Returns
    -------
    nodes, smallest
        The nodes of the level, and documents x these nodes.

    Examples
    --------
    >>> h = Hierarchy.from_edges([("A", "C"), ("B", "C")])
    >>> nodes, smallest = smallest_of_parents(h, 2, np.array([[0.5, 0.25, 0.0]]), 1.0)
    >>> nodes.tolist(), smallest.tolist()
    ([2], [[0.25]])
    """
    h = hierarchy
    nodes: LongArray = np.arange(len(h), dtype=np.int64)[h.level(depth)]
    edges = slice(int(h.parent_ptr[nodes[0]]), int(h.parent_ptr[nodes[-1] + 1]))
    parents = h.parent_idx[edges]
    of_parent = np.where(parents >= 0, values[:, parents], of_root)
    return nodes, np.minimum.reduceat(of_parent, h.parent_ptr[nodes] - edges.start, axis=1)
