"""Findings about names that stand under several parents."""

import numpy as np

from treelabel.core.errors import quote, some
from treelabel.data.checks.finding import EXAMPLES, Finding, Inspected, counted
from treelabel.hierarchy import Hierarchy


def find_several_parents(inspected: Inspected) -> Finding | None:
    """Find names under several parents: one node of a DAG, or several nodes of a tree."""
    h = inspected.data.hierarchy
    return _of_graph(h) if not h.is_tree else _of_tree(h)


def _of_graph(h: Hierarchy) -> Finding | None:
    nodes = np.flatnonzero(np.diff(h.parent_ptr) > 1)
    if not len(nodes):
        return None

    def told(node: int) -> str:
        above = h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist()
        return f"{quote(h.names[node])} under {_listed(h, above)}"

    return Finding(
        "several_parents",
        len(nodes),
        f"{counted(len(nodes), 'name stands', 'names stand')} under several parents in the taxonomy: one label each, "
        "with all of these above it (a DAG)",
        tuple(told(node) for node in nodes[:EXAMPLES].tolist()),
        "if they are different labels, write the taxonomy as paths (lines 'A > Other'), or with columns id, parent and "
        "name, and labels as paths; treelabel convert FILE OUT --unfold makes one label per parent",
    )


def _of_tree(h: Hierarchy) -> Finding | None:
    if h.has_unique_names:
        return None
    names = [(name, ids) for name, ids in h.ids_by_name.items() if len(ids) > 1]

    def told(name: str, ids: list[int]) -> str:
        return f"{quote(name)} under {_listed(h, h.parent[ids].tolist())}"

    return Finding(
        "several_parents",
        len(names),
        f"{counted(len(names), 'name stands', 'names stand')} under several parents, for a different label under each",
        tuple(told(*each) for each in names[:EXAMPLES]),
        "nothing, as long as labels are written as paths; a name alone would not say which one is meant",
    )


def _listed(h: Hierarchy, above: list[int]) -> str:
    return some([h.names[node] if node >= 0 else "the root" for node in above])
