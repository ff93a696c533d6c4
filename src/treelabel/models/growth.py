"""Hierarchies that grow: where the nodes of one are in another that has further labels."""

import numpy as np

from treelabel.core.errors import TreelabelError, some
from treelabel.core.types import IntArray
from treelabel.hierarchy.hierarchy import Hierarchy


def grown_nodes(old: Hierarchy, larger: Hierarchy) -> IntArray:
    """Find the nodes of a hierarchy in a larger one, by their paths.

    Parameters
    ----------
    old : Hierarchy
        The hierarchy that was learned.
    larger : Hierarchy
        One with further labels; if it lacks any, it is refused.

    Returns
    -------
    array of int32
        The node of the larger one for each of the old.

    >>> grown_nodes(Hierarchy.flat(["A", "C"]), Hierarchy.flat(["A", "B", "C"])).tolist()
    [0, 2]
    """
    places = {path: node for node, path in enumerate(larger.paths())}
    lost = [path for path in old.paths() if path not in places]
    if lost:
        raise TreelabelError(
            f"the new hierarchy lacks labels that were learned: {some(lost)}; labels can be added, not taken away"
        )
    return np.array([places[path] for path in old.paths()], np.int32)
