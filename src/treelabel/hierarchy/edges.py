"""Edges between coded names: what pairs, parents, paths and nested values of labels are turned into.

Every maker returns `Edges`, integer codes plus the names behind them, and a function that says where an edge stood.
All of them are linear in nodes and edges, and nothing recurses.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.errors import TreelabelError, quote, shorten, some
from treelabel.core.types import IntArray
from treelabel.hierarchy.identifiers import Identifiers

ROOT_NAMES = ("root", "<root>", "[root]", "__root__")
NAME_KEYS = ("name", "label", "title", "id")
CHILD_KEYS = ("children", "subcategories", "nodes", "items")


def _edge_number(edge: int) -> str:
    return f"edge {edge + 1}"


@dataclass(frozen=True)
class Edges:
    """Parent and child codes of every edge (-1: the root), the names behind the codes, and where edge i stood.

    `identifiers` are those of the codes, if there are any.
    """

    parent: IntArray
    child: IntArray
    names: pa.Array
    where: Callable[[int], str] = _edge_number
    identifiers: Identifiers | None = None

    def name(self, code: int) -> str:
        """Return the name behind a code, quoted for a message."""
        return "the root" if code < 0 else quote(self.names[code].as_py())

    def arrow(self, edge: int) -> str:
        """Return "parent -> child" of an edge, for a message."""
        return f"{self.name(self.parent[edge])} -> {self.name(self.child[edge])}"


def text_array(values: Iterable[object], what: str, where: Callable[[int], str] | None = None) -> pa.Array:
    """Turn names into an Arrow string array, refusing anything that is not text.

    Messages call a value `what` with its number, or by `where` it stood.
    """
    values = values if isinstance(values, list) else list(values)
    try:
        array = pa.array(values, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        array = None
    if array is not None and array.null_count == 0:
        return array
    index = next(index for index, value in enumerate(values) if not _is_text(value))
    position = f"{what} number {index + 1}" if where is None else where(index)
    if values[index] is None:
        raise TreelabelError(f"{position}: empty name (None)")
    raise TreelabelError(f"{position}: a name must be text, found {quote(values[index])}")


def _is_text(value: object) -> bool:
    """Return whether a value is text without halves of surrogate pairs, which no file can hold."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode() == value


def edges_of_pairs(
    pairs: Iterable[tuple[str, str]], nodes: Iterable[str] = (), where: Callable[[int], str] = _edge_number
) -> Edges:
    """Code (parent, child) pairs of names.

    Parameters
    ----------
    pairs
        (parent, child) names.
    nodes
        Names of further nodes, which may be in no pair.
    where
        Says where pair i stood, for messages.

    Returns
    -------
    Edges
    """
    pairs = pairs if isinstance(pairs, (list, tuple)) else list(pairs)
    _check_pairs(pairs, where)
    flat = text_array(chain.from_iterable(pairs), "name", lambda index: where(index // 2))
    coded = pa.concat_arrays([flat, text_array(nodes, "node")]).dictionary_encode()
    codes = coded.indices.to_numpy()[: len(flat)].reshape(-1, 2)
    return Edges(np.ascontiguousarray(codes[:, 0]), np.ascontiguousarray(codes[:, 1]), coded.dictionary, where)


def _check_pairs(pairs: Sequence[Any], where: Callable[[int], str]) -> None:
    # A million pairs are looked at in bulk, and one by one only if something else is among them.
    if set(map(type, pairs)) <= {tuple, list} and set(map(len, pairs)) <= {2}:
        return
    for index, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sized) or len(pair) != 2:
            raise TreelabelError(f"{where(index)}: expected a (parent, child) pair, found {quote(pair)}")


def edges_of_parents(parents: Mapping[str, Any] | Sequence[int] | IntArray, names: Sequence[str] | None) -> Edges:
    """Code a mapping child -> parent(s), or an array of parent numbers (-1: none) with the names of the nodes."""
    if isinstance(parents, Mapping):
        return _edges_of_parent_names(parents)
    array = np.asarray(parents)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise TreelabelError(f"parents must be a mapping or a list of node numbers, found {array.dtype} {array.shape}")
    if names is None:
        raise TreelabelError("parents given as numbers need names=, one for each node")
    if len(names) != len(array):
        raise TreelabelError(f"{len(array):,} parents but {len(names):,} names")
    wrong = np.flatnonzero((array < -1) | (array >= len(array)))
    if len(wrong):
        node = int(wrong[0])
        raise TreelabelError(
            f"unknown parent: node {node} ({quote(names[node])}) has parent {array[node]}, "
            f"but nodes go from 0 to {len(array) - 1}"
        )
    coded = text_array(names, "name")
    pairs = Counter(zip(array.tolist(), names, strict=True))
    if len(pairs) < len(array):
        (above, name), count = pairs.most_common(1)[0]
        position = "at the top" if above < 0 else f"under {quote(names[above])}"
        raise TreelabelError(
            f"duplicate: {quote(name)} stands {count} times {position}, and no path could tell them apart"
        )
    return Edges(array.astype(np.int32), np.arange(len(array), dtype=np.int32), coded, lambda edge: f"node {edge}")


def _edges_of_parent_names(parents: Mapping[str, Any]) -> Edges:
    pairs: list[tuple[str, str]] = []
    for child, above in parents.items():
        for name in [above] if isinstance(above, str) else above or ():
            if name not in parents:
                raise TreelabelError(
                    f"unknown parent: {quote(child)} has parent {quote(name)}, which is no key of the mapping; "
                    f"add {quote(name)}: None if it is a top label"
                )
            pairs.append((name, child))
    names = text_array(parents, "name")
    code = {name: index for index, name in enumerate(parents)}
    codes = np.array([(code[above], code[below]) for above, below in pairs], np.int32).reshape(-1, 2)
    return Edges(codes[:, 0].copy(), codes[:, 1].copy(), names, lambda edge: f"label {quote(pairs[edge][1])}")


def edges_of_graph(graph: Any) -> Edges:
    """Code the edges of a networkx DiGraph; nodes are named by `str`."""
    if not graph.is_directed():
        raise TreelabelError("the graph has no directions; expected a DiGraph with edges from parent to child")
    names = {node: str(node) for node in graph.nodes}
    if len(set(names.values())) < len(names):
        raise TreelabelError("two nodes of the graph have the same text as a name; rename them first")
    return edges_of_pairs([(names[above], names[below]) for above, below in graph.edges()], names.values())


def edges_of_paths(paths: Iterable[Sequence[str]]) -> Edges:
    """Code label paths, each a sequence of names from the top; the same name under two parents is two nodes."""
    code: dict[tuple[int, str], int] = {}
    for index, path in enumerate(paths):
        above = -1
        for name in path:
            if not isinstance(name, str) or not name.strip():
                raise TreelabelError(f"path {index + 1}: empty name in {quote(list(path))}")
            above = code.setdefault((above, name), len(code))
    parent = np.fromiter((above for above, _ in code), np.int32, len(code))
    names = text_array((name for _, name in code), "name")
    return Edges(parent, np.arange(len(code), dtype=np.int32), names)


def edges_of_nested(tree: Any) -> Edges:
    """Code nested dicts and lists, the shape of most JSON taxonomies; the same name under two parents is two nodes.

    Three shapes are understood, at every level: `{"A": {"B": {}}}`, `{"A": ["B", "C"]}` and
    `{"name": "A", "children": [...]}`.
    """
    names: list[str] = []
    parent: list[int] = []

    def path_of(node: int) -> str:
        path: list[str] = []
        while node >= 0:
            path.append(names[node])
            node = parent[node]
        return shorten(" > ".join(reversed(path)), 200) or "the root"

    stack: list[tuple[int, Any]] = [(-1, tree)]
    while stack:
        above, value = stack.pop()
        seen: set[str] = set()
        for name, below in _children(value, lambda above=above: path_of(above)):  # type: ignore[misc]
            if not isinstance(name, str) or not name.strip():
                raise TreelabelError(f"under {path_of(above)}: empty name or one that is not text: {quote(name)}")
            if name in seen:
                raise TreelabelError(f"duplicate: {quote(name)} stands twice under {path_of(above)}")
            seen.add(name)
            stack.append((len(names), below))
            names.append(name)
            parent.append(above)
    codes = np.array(parent, np.int32).reshape(-1)
    return Edges(codes, np.arange(len(names), dtype=np.int32), text_array(names, "name"))


def _children(value: Any, where: Callable[[], str]) -> list[tuple[Any, Any]]:
    """List the (name, subtree) pairs that stand directly in a value; lists in a list are taken as one."""
    children: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if each is None or each == "":
            continue
        if isinstance(each, str):
            children.append((each, None))
        elif isinstance(each, Mapping):
            children.extend(_members(each))
        elif isinstance(each, Sequence):
            waiting.extend(reversed(each))
        else:
            raise TreelabelError(f"under {where()}: expected a dict, a list or a name, found {quote(each)}")
    return children


def _members(node: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """List the children a mapping holds, or the one node it describes."""
    key = next((key for key in NAME_KEYS if isinstance(node.get(key), str)), None)
    if key is None:
        return list(node.items())
    return [(node[key], next((node[below] for below in CHILD_KEYS if below in node), None))]


def without_root(edges: Edges, root: str | None) -> Edges:
    """Remove the node that stands for the root from the edges.

    `root` names it; None looks for a single top node that is called "Root" or alike; "" says there is none.
    """
    code = _root_code(edges, root)
    if code is None:
        return edges
    above = np.flatnonzero((edges.child == code) & (edges.parent >= 0))
    if len(above):
        edge = int(above[0])
        raise TreelabelError(f"{edges.where(edge)}: the root {quote(root)} has a parent: {edges.arrow(edge)}")
    if len(edges.names) == 1:
        raise TreelabelError(f"the root {edges.name(code)} has no labels below it")
    shift = np.arange(len(edges.names), dtype=np.int32)
    shift[code:] -= 1
    shift[code] = -1
    names = pa.concat_arrays([edges.names.slice(0, code), edges.names.slice(code + 1)])
    # The named root itself may hang under -1; that edge goes with it.
    rest = np.flatnonzero(edges.child != code)
    parent = np.where(edges.parent >= 0, shift[edges.parent], np.int32(-1)).astype(np.int32)
    identifiers = edges.identifiers
    if identifiers is not None:
        identifiers = identifiers.take(np.delete(np.arange(len(edges.names)), code))
    return Edges(parent[rest], shift[edges.child[rest]], names, lambda edge: edges.where(int(rest[edge])), identifiers)


def _root_code(edges: Edges, root: str | None) -> int | None:
    if root == "":
        return None
    if root is not None:
        code = pc.index(edges.names, root).as_py()
        if code < 0:
            first = some(edges.names.slice(0, 5).to_pylist())
            raise TreelabelError(f"the root {quote(root)} is in no edge; the first names are {first}")
        return int(code)
    tops = np.flatnonzero(np.bincount(edges.child[edges.parent >= 0], minlength=len(edges.names)) == 0)
    if len(tops) == 1 and edges.names[tops[0]].as_py().strip().lower() in ROOT_NAMES:
        return int(tops[0])
    return None
