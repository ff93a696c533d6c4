"""From edges between coded names to the numbered arrays of a hierarchy, refusing what is not one.

All of it is linear in nodes and edges, and nothing recurses.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import IntArray
from treelabel.hierarchy.edges import Edges
from treelabel.hierarchy.identifiers import Identifiers

Numbers = TypeVar("Numbers", bound=npt.NDArray[Any])


@dataclass(frozen=True)
class NumberedNodes:
    """Nodes in their final order: parents as (ptr, idx), depths, names, identifiers if there are any.

    `rank` is the new number of every old code.
    """

    parent_ptr: IntArray
    parent_idx: IntArray
    depth: IntArray
    names: pa.Array
    rank: IntArray
    identifiers: Identifiers | None = None


def number(edges: Edges, tree: bool = False) -> NumberedNodes:
    """Check edges and number the nodes level by level (see `number_nodes`); `tree` refuses a second parent."""
    nodes = len(edges.names)
    _check_names(edges)
    _check_loops(edges)
    orphans = np.flatnonzero(np.bincount(edges.child, minlength=nodes) == 0).astype(np.int32)
    parent = np.concatenate([edges.parent, np.full(len(orphans), -1, np.int32)])
    child = np.concatenate([edges.child, orphans])
    ptr, by_parent = group_by(parent + np.int32(1), nodes + 1)
    first, second = first_duplicate(ptr, by_parent, child, nodes)
    if second >= 0:
        raise TreelabelError(
            f"{edges.where(second)}: duplicate edge {edges.arrow(second)}, first at {edges.where(first)}"
        )
    parents = np.bincount(child, minlength=nodes).astype(np.int32)
    if tree and len(child) > nodes:
        _refuse_second_parent(edges, parents)
    queue, rank, depth, reached = number_nodes(ptr, by_parent, child, parents)
    if reached < nodes:
        _refuse_cycle(edges, rank)
    new_parent = np.where(parent >= 0, rank[parent], np.int32(-1)).astype(np.int32)
    order = np.lexsort((new_parent, rank[child])) if len(child) > nodes else _inverse(rank[child])
    new_ptr = np.zeros(nodes + 1, np.int32)
    np.cumsum(np.bincount(rank[child], minlength=nodes), out=new_ptr[1:])
    identifiers = None if edges.identifiers is None else edges.identifiers.take(queue)
    return NumberedNodes(new_ptr, new_parent[order], depth, edges.names.take(pa.array(queue)), rank, identifiers)


def _inverse(permutation: IntArray) -> IntArray:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation), dtype=np.int32)
    return inverse


def _check_names(edges: Edges) -> None:
    blank = pc.equal(pc.utf8_trim_whitespace(edges.names), "")
    if pc.any(blank).as_py():
        code = pc.index(blank, True).as_py()
        touching = np.flatnonzero((edges.parent == code) | (edges.child == code))
        where = f"{edges.where(int(touching[0]))}: " if len(touching) else ""
        raise TreelabelError(f"{where}empty name: label {code + 1} of {len(edges.names):,} has no text")


def _check_loops(edges: Edges) -> None:
    loops = np.flatnonzero(edges.parent == edges.child)
    if len(loops):
        name = edges.name(edges.child[loops[0]])
        raise TreelabelError(f"{edges.where(int(loops[0]))}: self-loop: {name} is given as its own parent")


def _refuse_second_parent(edges: Edges, parents: IntArray) -> None:
    node = int(np.argmax(parents > 1))
    incoming = np.flatnonzero(edges.child == node)
    above = " and ".join(f"{edges.name(edges.parent[edge])} ({edges.where(int(edge))})" for edge in incoming[:5])
    count = int(np.sum(parents > 1))
    raise TreelabelError(
        f"not a tree: {edges.name(node)} has {parents[node]} parents, {above}"
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
    shown = [edges.name(code) for code in cycle + cycle[:1]]
    if len(shown) > 12:
        shown = [*shown[:6], f"... {len(shown) - 11} more ...", *shown[-5:]]
    where = edges.where(edge_above[cycle[0]])
    raise TreelabelError(f"{where}: cycle of {len(cycle)} labels: {' -> '.join(shown)}; remove one of these edges")


def freeze(array: Numbers) -> Numbers:
    """Make an array read-only: hierarchies are shared, and what they answer is cached."""
    array.setflags(write=False)
    return array


@kernel
def group_by(keys: IntArray, groups: int) -> tuple[IntArray, IntArray]:
    """Sort positions by key, stably, in linear time: group g is positions[ptr[g]:ptr[g + 1]] of (ptr, positions)."""
    ptr = np.zeros(groups + 1, np.int32)
    for key in keys:
        ptr[key + 1] += 1
    for group in range(groups):
        ptr[group + 1] += ptr[group]
    free = ptr[:-1].copy()
    positions = np.empty(len(keys), np.int32)
    for position in range(len(keys)):
        key = keys[position]
        positions[free[key]] = position
        free[key] += 1
    return ptr, positions


@kernel
def number_nodes(
    ptr: IntArray, edges: IntArray, child: IntArray, waiting: IntArray
) -> tuple[IntArray, IntArray, IntArray, int]:
    """Number nodes so that parents precede children and levels are slices (Kahn's algorithm, first in first out).

    A node enters the queue with its last parent. As the queue is in order of depth, that parent is its deepest, so the
    node's depth is the longest way from the root; in a tree this is breadth-first order and siblings are consecutive.
    `ptr`, `edges` group the edges by parent + 1 (group 0: the root); `waiting` counts parents and is used up.
    Returns (queue of old ids, rank of each old id or -1, depth by rank, nodes reached).
    """
    nodes = len(waiting)
    queue = np.empty(nodes, np.int32)
    rank = np.full(nodes, -1, np.int32)
    depth = np.empty(nodes, np.int32)
    filled = 0
    for taken in range(-1, nodes):
        if taken >= filled:
            break
        group = 0 if taken < 0 else queue[taken] + 1
        below = 1 if taken < 0 else depth[taken] + 1
        for entry in range(ptr[group], ptr[group + 1]):
            node = child[edges[entry]]
            waiting[node] -= 1
            if waiting[node] == 0:
                queue[filled] = node
                rank[node] = filled
                depth[filled] = below
                filled += 1
    return queue, rank, depth, filled


@kernel
def first_duplicate(ptr: IntArray, edges: IntArray, child: IntArray, nodes: int) -> tuple[int, int]:
    """Find two equal edges: (first, second) positions of the earliest second one, or (-1, -1)."""
    seen_group = np.full(nodes, -1, np.int32)
    seen_edge = np.empty(nodes, np.int32)
    first, second = -1, -1
    for group in range(len(ptr) - 1):
        for entry in range(ptr[group], ptr[group + 1]):
            edge = edges[entry]
            node = child[edge]
            if seen_group[node] == group and (second < 0 or edge < second):
                first, second = seen_edge[node], edge
            seen_group[node] = group
            seen_edge[node] = edge
    return first, second
