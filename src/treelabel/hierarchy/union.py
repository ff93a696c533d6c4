"""Hierarchies joined by path: which node of one is which of another, and one that has the labels of both."""

from collections.abc import Iterable, Sequence

import numpy as np

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.types import IntArray, LongArray
from treelabel.hierarchy.core import Hierarchy
from treelabel.hierarchy.labels import find_label


def united(hierarchies: Sequence[Hierarchy]) -> Hierarchy:
    """Make one tree of all paths of several trees.

    >>> united([Hierarchy.from_paths(["A > B"]), Hierarchy.from_paths(["A > C"])]).paths()
    ['A', 'A > B', 'A > C']
    """
    for each in hierarchies:
        # Raises an error where it is no tree.
        _ = each.parent
    return Hierarchy.from_paths(tuple(each.path_names(node)) for each in hierarchies for node in range(len(each)))


def with_paths(known: Hierarchy, paths: Iterable[Sequence[str]]) -> Hierarchy:
    """Add paths to a tree; the nodes that it has stay in their order.

    Parameters
    ----------
    known
        A tree.
    paths
        The names from the top label down to each new one.

    Returns
    -------
    Hierarchy

    >>> with_paths(Hierarchy.from_paths(["A > B", "C"]), [["A", "D"]]).paths()
    ['A', 'C', 'A > B', 'A > D']
    """
    return Hierarchy.from_paths([*(known.path_names(node) for node in range(len(known))), *paths])


def nodes_in(own: Hierarchy, other: Hierarchy) -> IntArray:
    """Find which node of another hierarchy each node is: the one with the same path.

    Labels of one level are names, and are found by name where the other hierarchy has several levels.

    Parameters
    ----------
    own
        The hierarchy whose nodes are looked for.
    other
        Where they are looked for.

    Returns
    -------
    array of shape (nodes of own,)
        -1 where the other hierarchy has no such node.

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> nodes_in(Hierarchy.from_paths(["D", "A > C"]), h).tolist(), nodes_in(Hierarchy.flat(["C", "D"]), h).tolist()
    ([-1, 0, 2], [2, -1])
    """
    if own == other:
        return np.arange(len(own), dtype=np.int32)
    if own.max_depth == 1 < other.max_depth:
        return np.array([find_label(other, name) if name in other.ids_by_name else -1 for name in own.names], np.int32)
    if not (own.is_tree and other.is_tree):
        raise TreelabelError(
            "two hierarchies differ, and labels with several parents cannot be matched by their paths; give both the "
            "same taxonomy"
        )
    named = {
        (above, name): node for node, (above, name) in enumerate(zip(other.parent.tolist(), other.names, strict=True))
    }
    found = np.full(len(own), -1, np.int32)
    for node, (above, name) in enumerate(zip(own.parent.tolist(), own.names, strict=True)):
        if above < 0 or found[above] >= 0:
            found[node] = named.get((-1 if above < 0 else int(found[above]), name), -1)
    return found


def require_nodes_in(own: Hierarchy, other: Hierarchy, what: str) -> IntArray:
    """Find which node of another hierarchy each node is, and refuse one that it does not have.

    Parameters
    ----------
    own, other
        As for `nodes_in`.
    what
        How messages call what belongs to the first.

    Returns
    -------
    array of shape (nodes of own,)
    """
    found = nodes_in(own, other)
    if (found < 0).any():
        raise _another(what, f"there is no label {quote(own.paths([int(np.argmax(found < 0))])[0])} here")
    return found


def spread_counts(counts: LongArray, own: Hierarchy, larger: Hierarchy) -> LongArray:
    """Bring counts by node under a hierarchy that has all these nodes; others have 0.

    Parameters
    ----------
    counts : array of shape (nodes of own,)
    own, larger
        Where counts are from, and where they go.

    Returns
    -------
    array of shape (nodes of larger,)

    >>> spread_counts(np.array([3, 3]), Hierarchy.from_paths(["A > B"]), Hierarchy.from_paths(["C", "A > B"])).tolist()
    [0, 3, 3]
    """
    if own == larger:
        return counts
    found = np.zeros(len(larger), np.int64)
    found[require_nodes_in(own, larger, "the training data")] = counts
    return found


def joined(known: Hierarchy, other: Hierarchy, what: str) -> Hierarchy:
    """Extend a hierarchy by the labels of another that it does not have, by their paths.

    It is for labels that are paths themselves; hierarchies that were given must be the same.

    Parameters
    ----------
    known
        The hierarchy, such as that of scores. Its nodes stay in their order.
    other
        The other one, such as that of the truth.
    what
        How messages call what the other one belongs to.

    Returns
    -------
    Hierarchy

    >>> joined(Hierarchy.from_paths(["A > B"]), Hierarchy.from_paths(["A > C", "D"]), "the truth").paths()
    ['A', 'D', 'A > B', 'A > C']
    """
    if other == known:
        return known
    where = nodes_in(other, known)
    if not (where < 0).any():
        return known
    new = np.flatnonzero(where < 0).tolist()
    if other.max_depth == 1 < known.max_depth:
        raise TreelabelError(
            f"{what} has labels without a path that are not known: {some([other.names[node] for node in new])}; write "
            f"full paths such as {quote(known.paths([known.leaves[0]])[0])}"
        )
    if known.max_depth == 1 < other.max_depth:
        _refuse_moved(known, other, new, what)
    if len(new) == len(other):
        raise _another(
            what, f"no label in common: {quote(other.paths([new[-1]])[0])} there, {quote(known.paths()[-1])} here"
        )
    return with_paths(known, (other.path_names(node) for node in new))


def _refuse_moved(known: Hierarchy, other: Hierarchy, new: Sequence[int], what: str) -> None:
    """Refuse a name that is clear in both hierarchies, but stands at different places."""
    for node in new:
        name = other.names[node]
        if len(other.ids_by_name[name]) == 1 == len(known.ids_by_name.get(name, ())):
            there, here = other.paths([node])[0], known.paths(known.ids_by_name[name])[0]
            raise _another(what, f"{quote(name)} is {quote(there)} there, but {quote(here)} here")


def _another(what: str, why: str) -> TreelabelError:
    return TreelabelError(f"{what} belongs to another hierarchy: {why}; give both the same taxonomy")
