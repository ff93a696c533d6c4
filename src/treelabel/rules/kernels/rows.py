"""Compiled loops over the rows of scores that rules see.

A row is the nodes of a document with a score above 0, sorted by id, so that parents stand before children and levels
are in order; scores are coherent where a loop looks up parents, so that all parents of a node stand in its row. Of
equal values the lowest id wins. Scores are float32 or float64: each loop is compiled for both.
"""

from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, IntArray, LongArray, ScoreArray


class Workspace(NamedTuple):
    """Scratch for one row over a tree: see `own_mass`."""

    place: IntArray
    above: IntArray
    mass: DoubleArray
    whole: DoubleArray


@kernel
def above_zero(values: ScoreArray, start: int, stop: int) -> tuple[LongArray, IntArray, ScoreArray]:
    """List the scores above 0 of rows start..stop as row pointers, nodes and values."""
    rows, columns = stop - start, values.shape[1]
    ptr = np.zeros(rows + 1, np.int64)
    nodes = np.empty(rows * columns, np.int32)
    kept = np.empty(rows * columns, values.dtype)
    used = 0
    for row in range(rows):
        for node in range(columns):
            value = values[start + row, node]
            nodes[used] = node
            kept[used] = value
            used += value > 0
        ptr[row + 1] = used
    return ptr, nodes[:used], kept[:used]


@kernel
def longest_row(ptr: LongArray, start: int, stop: int) -> int:
    """Return the length of the longest of the rows start..stop."""
    most = 0
    for row in range(start, stop):
        most = max(most, ptr[row + 1] - ptr[row])
    return most


@kernel
def workspace_for(nodes: int, most: int) -> Workspace:
    """Make a workspace for rows of at most `most` nodes, of a tree with this many nodes."""
    return Workspace(np.empty(nodes, np.int32), np.empty(most, np.int32), np.empty(most), np.empty(most))


@kernel
def own_mass(parent: IntArray, nodes: IntArray, values: ScoreArray, workspace: Workspace) -> None:
    """For one row over a tree, find where the parent of each node stands, and the mass that is the node's own.

    `above` becomes the place of the parent in the row, -1 for the root. A node's own mass is its score less those of
    its children: the probability that the true path ends there. `whole` becomes the mass at or below it: its score,
    unless its children sum to more. `place` becomes the place of each node; other entries of it are stale.
    """
    place, above, mass, whole = workspace
    for at in range(len(nodes)):
        place[nodes[at]] = at
        above[at] = place[parent[nodes[at]]] if parent[nodes[at]] >= 0 else -1
        mass[at] = 0.0
    for at in range(len(nodes) - 1, -1, -1):
        # Until here, `mass` sums what stands below.
        below = mass[at]
        mass[at] = max(0.0, values[at] - below)
        whole[at] = below + mass[at]
        if above[at] >= 0:
            mass[above[at]] += whole[at]
