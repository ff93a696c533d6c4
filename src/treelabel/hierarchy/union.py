"""Hierarchies joined by path: which node of one is which of another, and one that has the labels of both."""

from collections.abc import Iterable, Sequence

import numpy as np

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.types import IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import find_label


def unite_trees(hierarchies: Sequence[Hierarchy]) -> Hierarchy:
    """Make one tree of all paths of several trees.

    >>> unite_trees([Hierarchy.from_paths(["A > B"]), Hierarchy.from_paths(["A > C"])]).paths()
    ['A', 'A > B', 'A > C']
    """
    for each in hierarchies:
        # Raises an error where it is no tree.
        _ = each.parent
    united = Hierarchy.from_paths(tuple(each.path_names(node)) for each in hierarchies for node in range(len(each)))
    return _with_identifiers_of(united, hierarchies)


def _with_identifiers_of(united: Hierarchy, sources: Sequence[Hierarchy]) -> Hierarchy:
    """Carry over the identifiers of hierarchies to one that has their nodes; those of the first go before others."""
    uris: list[str | None] = [None] * len(united)
    notations = uris.copy()
    for source in sources:
        if source.identifiers is not None:
            columns = source.identifiers.uris.to_pylist(), source.identifiers.notations.to_pylist()
            for node, uri, notation in zip(nodes_in(source, united).tolist(), *columns, strict=True):
                uris[node], notations[node] = uris[node] or uri, notations[node] or notation
    return united if all(source.identifiers is None for source in sources) else united.with_identifiers(uris, notations)


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
    extended = Hierarchy.from_paths([*(known.path_names(node) for node in range(len(known))), *paths])
    return _with_identifiers_of(extended, [known])


def nodes_in(source: Hierarchy, other: Hierarchy) -> IntArray:
    """Find which node of another hierarchy each node is: the one with the same path.

    Labels of one level are names, and are found by name where the other hierarchy has several levels.

    Parameters
    ----------
    source
        The hierarchy whose nodes are looked for.
    other
        Where they are looked for.

    Returns
    -------
    array of shape (nodes of source,)
        -1 where the other hierarchy has no such node.

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> nodes_in(Hierarchy.from_paths(["D", "A > C"]), h).tolist(), nodes_in(Hierarchy.flat(["C", "D"]), h).tolist()
    ([-1, 0, 2], [2, -1])
    """
    if source == other:
        return np.arange(len(source), dtype=np.int32)
    if source.max_depth == 1 < other.max_depth:
        ids = [find_label(other, name) if name in other.ids_by_name else -1 for name in source.names]
        return np.array(ids, np.int32)
    if not (source.is_tree and other.is_tree):
        raise TreelabelError(
            "two hierarchies differ, and labels with several parents cannot be matched by their paths; give both the "
            "same taxonomy"
        )
    child = {key: node for node, key in enumerate(zip(other.parent.tolist(), other.names, strict=True))}
    ids = []
    for above, name in zip(source.parent.tolist(), source.names, strict=True):
        # Below a node that the other one lacks, no key is known: none has the parent None.
        ids.append(child.get((-1 if above < 0 else (ids[above] if ids[above] >= 0 else None), name), -1))
    return np.array(ids, np.int32)


def require_nodes_in(source: Hierarchy, other: Hierarchy, what: str) -> IntArray:
    """Find which node of another hierarchy each node is, as `nodes_in`, and refuse one that it does not have.

    Messages call what belongs to the first hierarchy `what`.
    """
    nodes = nodes_in(source, other)
    if (nodes < 0).any():
        raise _another(what, f"there is no label {quote(source.paths([int(np.argmax(nodes < 0))])[0])} here")
    return nodes


def spread_counts(counts: LongArray, source: Hierarchy, larger: Hierarchy) -> LongArray:
    """Bring counts by node of one hierarchy under another that has all these nodes; others have 0.

    >>> spread_counts(np.array([3, 3]), Hierarchy.from_paths(["A > B"]), Hierarchy.from_paths(["C", "A > B"])).tolist()
    [0, 3, 3]
    """
    spread = np.zeros(len(larger), np.int64)
    spread[require_nodes_in(source, larger, "the training data")] = counts
    return spread


def join_hierarchies(known: Hierarchy, other: Hierarchy, what: str) -> Hierarchy:
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

    >>> join_hierarchies(Hierarchy.from_paths(["A > B"]), Hierarchy.from_paths(["A > C", "D"]), "truth").paths()
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
    return _with_identifiers_of(with_paths(known, (other.path_names(node) for node in new)), [known, other])


def _refuse_moved(known: Hierarchy, other: Hierarchy, new: Sequence[int], what: str) -> None:
    """Refuse a name that is clear in both hierarchies, but stands at different places."""
    for node in new:
        name = other.names[node]
        if len(other.ids_by_name[name]) == 1 == len(known.ids_by_name.get(name, ())):
            there, here = other.paths([node])[0], known.paths(known.ids_by_name[name])[0]
            raise _another(what, f"{quote(name)} is {quote(there)} there, but {quote(here)} here")


def _another(what: str, why: str) -> TreelabelError:
    return TreelabelError(f"{what} belongs to another hierarchy: {why}; give both the same taxonomy")
