"""From edges between named nodes to the numbered arrays of a hierarchy, refusing what is not one.

Makers turn their input into `Edges`: integer codes plus the names behind them, and a function that tells where an edge
was found. `number` checks them and numbers the nodes. All of it is linear in nodes and edges, and nothing recurses.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.types import IntArray
from treelabel.hierarchy.kernels import numbering

ROOT_NAMES = ("root", "<root>", "[root]", "__root__")


def _edge_place(edge: int) -> str:
    return f"edge {edge + 1}"


@dataclass(frozen=True)
class Edges:
    """Parent and child codes of every edge (-1: the root), the names behind the codes, and where edge i was found."""

    parent: IntArray
    child: IntArray
    names: pa.Array
    place: Callable[[int], str] = _edge_place


@dataclass(frozen=True)
class Numbered:
    """Nodes in their final order: parents as (ptr, idx), depths, names, and the new number of every old code."""

    parent_ptr: IntArray
    parent_idx: IntArray
    depth: IntArray
    names: pa.Array
    rank: IntArray


def number(edges: Edges, tree: bool = False) -> Numbered:
    """Check edges and number the nodes level by level (see `numbering.number_nodes`).

    Parameters
    ----------
    edges
        Edges between coded names.
    tree
        Whether a node with several parents is refused.

    Returns
    -------
    Numbered
    """
    nodes = len(edges.names)
    _check_names(edges)
    _check_loops(edges)
    orphans = np.flatnonzero(np.bincount(edges.child, minlength=nodes) == 0).astype(np.int32)
    parent = np.concatenate([edges.parent, np.full(len(orphans), -1, np.int32)])
    child = np.concatenate([edges.child, orphans])
    ptr, by_parent = numbering.group_by(parent + np.int32(1), nodes + 1)
    first, second = numbering.first_duplicate(ptr, by_parent, child, nodes)
    if second >= 0:
        raise TreelabelError(
            f"{edges.place(second)}: duplicate edge {_arrow(edges, second)}, first at {edges.place(first)}"
        )
    parents = np.bincount(child, minlength=nodes).astype(np.int32)
    if tree and len(child) > nodes:
        _refuse_second_parent(edges, parents)
    queue, rank, depth, reached = numbering.number_nodes(ptr, by_parent, child, parents)
    if reached < nodes:
        _refuse_cycle(edges, rank)
    new_parent = np.where(parent >= 0, rank[parent], np.int32(-1)).astype(np.int32)
    order = np.lexsort((new_parent, rank[child])) if len(child) > nodes else _inverse(rank[child])
    new_ptr = np.zeros(nodes + 1, np.int32)
    np.cumsum(np.bincount(rank[child], minlength=nodes), out=new_ptr[1:])
    return Numbered(new_ptr, new_parent[order], depth, edges.names.take(pa.array(queue)), rank)


def _inverse(permutation: IntArray) -> IntArray:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation), dtype=np.int32)
    return inverse


def _name(edges: Edges, code: int) -> str:
    return "the root" if code < 0 else quote(edges.names[code].as_py())


def _arrow(edges: Edges, edge: int) -> str:
    return f"{_name(edges, edges.parent[edge])} -> {_name(edges, edges.child[edge])}"


def _check_names(edges: Edges) -> None:
    blank = pc.equal(pc.utf8_trim_whitespace(edges.names), "")
    if pc.any(blank).as_py():
        code = pc.index(blank, True).as_py()
        found = np.flatnonzero((edges.parent == code) | (edges.child == code))
        where = f"{edges.place(int(found[0]))}: " if len(found) else ""
        raise TreelabelError(f"{where}empty name: label {code + 1} of {len(edges.names):,} has no text")


def _check_loops(edges: Edges) -> None:
    loops = np.flatnonzero(edges.parent == edges.child)
    if len(loops):
        name = _name(edges, edges.child[loops[0]])
        raise TreelabelError(f"{edges.place(int(loops[0]))}: self-loop: {name} is given as its own parent")


def _refuse_second_parent(edges: Edges, parents: IntArray) -> None:
    node = int(np.argmax(parents > 1))
    found = np.flatnonzero(edges.child == node)
    above = " and ".join(f"{_name(edges, edges.parent[edge])} ({edges.place(int(edge))})" for edge in found[:5])
    count = int(np.sum(parents > 1))
    raise TreelabelError(
        f"not a tree: {_name(edges, node)} has {parents[node]} parents, {above}"
        f"{f', and {count - 1:,} more labels have several' if count > 1 else ''}; "
        "allow a DAG, or make a tree of it with unfold()"
    )


def _refuse_cycle(edges: Edges, rank: IntArray) -> None:
    """Print one cycle as a path: every node that was not reached has a parent that was not reached either."""
    stuck = np.flatnonzero((edges.parent >= 0) & (rank[edges.child] < 0) & (rank[edges.parent] < 0))
    edge_above = dict(zip(edges.child[stuck].tolist(), stuck.tolist(), strict=True))
    path = [int(edges.child[stuck[0]])]
    position = {path[0]: 0}
    while (above := int(edges.parent[edge_above[path[-1]]])) not in position:
        position[above] = len(path)
        path.append(above)
    cycle = path[position[above] :][::-1]
    shown = [_name(edges, code) for code in cycle + cycle[:1]]
    if len(shown) > 12:
        shown = [*shown[:6], f"... {len(shown) - 11} more ...", *shown[-5:]]
    place = edges.place(edge_above[cycle[0]])
    raise TreelabelError(f"{place}: cycle of {len(cycle)} labels: {' -> '.join(shown)}; remove one of these edges")


def text_array(values: Iterable[object], what: str, place: Callable[[int], str] | None = None) -> pa.Array:
    """Turn names into an Arrow string array, refusing anything that is not text; `place` tells where value i stood.

    Parameters
    ----------
    values
        The names.
    what
        How messages call one of them.
    place
        Tells where value i stood, for messages.

    Returns
    -------
    pyarrow.Array
    """
    values = values if isinstance(values, list) else list(values)
    try:
        array = pa.array(values, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        array = None
    if array is not None and array.null_count == 0:
        return array
    at = next(at for at, value in enumerate(values) if not _is_text(value))
    where = f"{what} number {at + 1}" if place is None else place(at)
    if values[at] is None:
        raise TreelabelError(f"{where}: empty name (None)")
    raise TreelabelError(f"{where}: a name must be text, found {quote(values[at])}")


def _is_text(value: object) -> bool:
    """Return whether a value is text without halves of surrogate pairs, which no file can hold."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode() == value


def edges_of_pairs(
    pairs: Iterable[tuple[str, str]], nodes: Iterable[str] = (), place: Callable[[int], str] | None = None
) -> Edges:
    """Code (parent, child) pairs of names; `nodes` may name labels that stand in no pair.

    Parameters
    ----------
    pairs
        (parent, child) names.
    nodes
        Names of further nodes.
    place
        Tells where pair i stood, for messages.

    Returns
    -------
    Edges
    """
    pairs = pairs if isinstance(pairs, (list, tuple)) else list(pairs)
    place = place or _edge_place
    _check_pairs(pairs, place)
    flat = text_array(chain.from_iterable(pairs), "name", lambda at: place(at // 2))
    extra = text_array(nodes, "node")
    coded = pa.concat_arrays([flat, extra]).dictionary_encode()
    codes = coded.indices.to_numpy()[: len(flat)].reshape(-1, 2)
    return Edges(np.ascontiguousarray(codes[:, 0]), np.ascontiguousarray(codes[:, 1]), coded.dictionary, place)


def _check_pairs(pairs: Sequence[Any], place: Callable[[int], str]) -> None:
    # A million pairs are looked at in bulk, and one by one only if something odd is among them.
    if set(map(type, pairs)) <= {tuple, list} and set(map(len, pairs)) <= {2}:
        return
    for at, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sized) or len(pair) != 2:
            raise TreelabelError(f"{place(at)}: expected a (parent, child) pair, found {quote(pair)}")


def without_root(edges: Edges, root: str | None) -> Edges:
    """Remove the node that stands for the root from the edges.

    `root` names it; None looks for a single top node that is called "Root" or alike; "" says there is none.

    Parameters
    ----------
    edges
        The edges.
    root
        The name of the root.

    Returns
    -------
    Edges
    """
    code = _root_code(edges, root)
    if code is None:
        return edges
    above = np.flatnonzero((edges.child == code) & (edges.parent >= 0))
    if len(above):
        edge = int(above[0])
        raise TreelabelError(f"{edges.place(edge)}: the root {quote(root)} has a parent: {_arrow(edges, edge)}")
    if len(edges.names) == 1:
        raise TreelabelError(f"the root {_name(edges, code)} has no labels below it")
    shift = np.arange(len(edges.names), dtype=np.int32)
    shift[code:] -= 1
    shift[code] = -1
    keep = pa.concat_arrays([edges.names.slice(0, code), edges.names.slice(code + 1)])
    # The named root itself may hang under -1; that edge goes with it.
    stays = np.flatnonzero(edges.child != code)
    parent = np.where(edges.parent >= 0, shift[edges.parent], np.int32(-1)).astype(np.int32)
    return Edges(parent[stays], shift[edges.child[stays]], keep, lambda edge: edges.place(int(stays[edge])))


def _root_code(edges: Edges, root: str | None) -> int | None:
    if root == "":
        return None
    if root is not None:
        code = pc.index(edges.names, root).as_py()
        if code < 0:
            raise TreelabelError(f"the root {quote(root)} is in no edge; the first names are {_first_names(edges)}")
        return int(code)
    tops = np.flatnonzero(np.bincount(edges.child[edges.parent >= 0], minlength=len(edges.names)) == 0)
    if len(tops) == 1 and edges.names[tops[0]].as_py().strip().lower() in ROOT_NAMES:
        return int(tops[0])
    return None


def _first_names(edges: Edges) -> str:
    return some(edges.names.slice(0, 5).to_pylist())


def edges_of_parents(parents: Mapping[str, Any] | Sequence[int] | IntArray, names: Sequence[str] | None) -> Edges:
    """Code a mapping child -> parent(s), or an array of parent numbers (-1: none) with the names of the nodes.

    Parameters
    ----------
    parents
        The parents of each node.
    names
        The names of the nodes, where parents are numbers.

    Returns
    -------
    Edges
    """
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
        at = int(wrong[0])
        raise TreelabelError(
            f"unknown parent: node {at} ({quote(names[at])}) has parent {array[at]}, "
            f"but nodes go from 0 to {len(array) - 1}"
        )
    coded = text_array(names, "name")
    pairs = Counter(zip(array.tolist(), names, strict=True))
    if len(pairs) < len(array):
        (above, name), count = pairs.most_common(1)[0]
        where = "at the top" if above < 0 else f"under {quote(names[above])}"
        raise TreelabelError(
            f"duplicate: {quote(name)} stands {count} times {where}, and no path could tell them apart"
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
    code = {name: at for at, name in enumerate(parents)}
    above_codes = np.fromiter((code[above] for above, _ in pairs), np.int32, len(pairs))
    below_codes = np.fromiter((code[below] for _, below in pairs), np.int32, len(pairs))
    return Edges(above_codes, below_codes, names, lambda edge: f"label {quote(pairs[edge][1])}")


def edges_of_paths(paths: Iterable[Sequence[str]]) -> Edges:
    """Code label paths, each a sequence of names from the top; the same name under two parents is two nodes."""
    code: dict[tuple[int, str], int] = {}
    for at, path in enumerate(paths):
        above = -1
        for name in path:
            if not isinstance(name, str) or not name.strip():
                raise TreelabelError(f"path {at + 1}: empty name in {quote(list(path))}")
            above = code.setdefault((above, name), len(code))
    parent = np.fromiter((above for above, _ in code), np.int32, len(code))
    names = text_array((name for _, name in code), "name")
    return Edges(parent, np.arange(len(code), dtype=np.int32), names)
