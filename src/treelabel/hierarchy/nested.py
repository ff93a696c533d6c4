"""Nested dicts and lists, the shape of most JSON taxonomies, as edges."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError, quote, shorten
from treelabel.hierarchy.build import Edges, text_array

NAME_KEYS = ("name", "label", "title", "id")
CHILD_KEYS = ("children", "subcategories", "nodes", "items")


def edges_of_nested(tree: Any) -> Edges:
    """Code a nested tree; the same name under two parents is two nodes.

    Three shapes are understood, at every level: `{"A": {"B": {}}}`, `{"A": ["B", "C"]}` and
    `{"name": "A", "children": [...]}`. Nothing recurses, so depth has no limit.
    """
    names: list[str] = []
    parent: list[int] = []
    stack: list[tuple[int, Any]] = [(-1, tree)]
    while stack:
        above, node = stack.pop()
        seen: set[str] = set()
        for name, below in _children(node, above, names, parent):
            if not isinstance(name, str) or not name.strip():
                raise TreelabelError(
                    f"under {_path(above, names, parent)}: empty name or one that is not text: {quote(name)}"
                )
            if name in seen:
                raise TreelabelError(f"duplicate: {quote(name)} stands twice under {_path(above, names, parent)}")
            seen.add(name)
            stack.append((len(names), below))
            names.append(name)
            parent.append(above)
    codes = np.array(parent, np.int32).reshape(-1)
    return Edges(codes, np.arange(len(names), dtype=np.int32), text_array(names, "name"))


def _children(node: Any, above: int, names: list[str], parent: list[int]) -> list[tuple[Any, Any]]:
    """List the (name, subtree) pairs that stand directly in a value; lists in a list are taken as one."""
    found: list[tuple[Any, Any]] = []
    waiting = [node]
    while waiting:
        value = waiting.pop()
        if value is None or value == "":
            continue
        if isinstance(value, str):
            found.append((value, None))
        elif isinstance(value, Mapping):
            found.extend(_members(value))
        elif isinstance(value, Sequence):
            waiting.extend(reversed(value))
        else:
            where = _path(above, names, parent)
            raise TreelabelError(f"under {where}: expected a dict, a list or a name, found {quote(value)}")
    return found


def _members(node: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """List the children a mapping holds, or the one node it describes."""
    key = next((key for key in NAME_KEYS if isinstance(node.get(key), str)), None)
    if key is None:
        return list(node.items())
    return [(node[key], next((node[below] for below in CHILD_KEYS if below in node), None))]


def _path(node: int, names: list[str], parent: list[int]) -> str:
    path: list[str] = []
    while node >= 0:
        path.append(names[node])
        node = parent[node]
    return shorten(" > ".join(reversed(path)), 200) or "the root"
