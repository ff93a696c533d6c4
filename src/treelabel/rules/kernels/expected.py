"""Compiled loops of the rules that choose the node with the largest expected value; see `rows` for what a row is."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.rules.kernels.rows import longest_row, own_mass, workspace_for


@kernel
def best_path(
    parent: IntArray,
    worth: DoubleArray,
    worth_of_end: DoubleArray,
    ptr: LongArray,
    nodes: IntArray,
    values: ScoreArray,
    start: int,
    stop: int,
) -> IntArray:
    """Find the node with the largest sum over its path of worth x score + worth_of_end x own mass; linear in the row.

    Both worths are by node and not below 0, so that it is the end of a longest path of the row.
    """
    most = longest_row(ptr, start, stop)
    workspace, total = workspace_for(len(parent), most), np.empty(most)
    above, mass = workspace.above, workspace.mass
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        own_mass(parent, nodes[low:high], values[low:high], workspace)
        best = -1.0
        for at in range(high - low):
            node = nodes[low + at]
            total[at] = worth[node] * values[low + at] + worth_of_end[node] * mass[at]
            if above[at] >= 0:
                total[at] += total[above[at]]
            # A child that adds nothing to its parent is still preferred: the path goes on to a leaf.
            if total[at] > best or (above[at] >= 0 and nodes[low + above[at]] == found[row - start]):
                best = total[at]
                found[row - start] = node
    return found


@kernel
def best_wu_palmer(
    parent: IntArray,
    depth: IntArray,
    ptr: LongArray,
    nodes: IntArray,
    values: ScoreArray,
    start: int,
    stop: int,
) -> IntArray:
    """Find the node (-1: the root) with the largest expected Wu-Palmer similarity to where the true path ends.

    For a node s at depth k, 2 d(lcs) / (d(s) + d(e)) is a sum over the common ancestors a of s and e, the root counted,
    of 2 / (d(s) + d(e)), so the expectation is a sum over the path of s of what lies below each of its nodes. One pass
    up and one down for each depth: linear in the row times its levels.
    """
    most = longest_row(ptr, start, stop)
    workspace, path = workspace_for(len(parent), most), np.empty(most)
    above = workspace.above
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        own_mass(parent, nodes[low:high], values[low:high], workspace)
        best, none = -1.0, none_true(workspace.above, workspace.whole, high - low)
        for level in range(depth[nodes[high - 1]] + 1 if high > low else 0):
            root = similarity_below(depth, nodes[low:high], above, workspace.mass, level, path)
            # Where nothing is true, the true end is the root.
            root += none * 2 / (level + 2)
            if level == 0:
                best = root
            for at in range(high - low):
                if depth[nodes[low + at]] > level:
                    break
                path[at] += path[above[at]] if above[at] >= 0 else root
                if depth[nodes[low + at]] == level and path[at] > best:
                    best = path[at]
                    found[row - start] = nodes[low + at]
    return found


@kernel
def none_true(above: IntArray, whole: DoubleArray, count: int) -> float:
    """Return what the top nodes of a row lack of 1."""
    lacking = 1.0
    for at in range(count):
        if above[at] < 0:
            lacking -= whole[at]
    return max(0.0, lacking)


@kernel
def similarity_below(
    depth: IntArray, nodes: IntArray, above: IntArray, mass: DoubleArray, level: int, below: DoubleArray
) -> float:
    """Sum 2 m(e) / (level + d(e)) over the terminal nodes e below each node of a row; return the sum of the root.

    Depths count from 1.
    """
    for at in range(len(nodes)):
        below[at] = mass[at] * 2 / (level + depth[nodes[at]] + 2)
    root = 0.0
    for at in range(len(nodes) - 1, -1, -1):
        if above[at] >= 0:
            below[above[at]] += below[at]
        else:
            root += below[at]
    return root


@kernel
def lin_bound(information: DoubleArray, above: IntArray, nodes: IntArray, whole: DoubleArray, at: int) -> float:
    """Bound the expected Lin similarity of a node: terminal nodes are as close to its path as they can be."""
    own = information[nodes[at]]
    bound = whole[at]
    passed = bound
    step = above[at]
    while step >= 0:
        shared = information[nodes[step]]
        if shared > 0:
            bound += max(0.0, whole[step] - passed) * 2 * shared / (shared + own)
        passed = whole[step]
        step = above[step]
    found: float = bound
    return found


@kernel
def expected_lin(
    information: DoubleArray, above: IntArray, mass: DoubleArray, nodes: IntArray, at: int, shared: DoubleArray
) -> float:
    """Compute the expected Lin similarity of one node of a row to the end of the true path.

    `shared` is scratch: ic(lcs).
    """
    shared[: len(nodes)] = -1.0
    step = at
    while step >= 0:
        shared[step] = information[nodes[step]]
        step = above[step]
    own = information[nodes[at]]
    expected = 0.0
    for terminal in range(len(nodes)):
        if shared[terminal] < 0:
            shared[terminal] = shared[above[terminal]] if above[terminal] >= 0 else 0.0
        both = own + information[nodes[terminal]]
        if terminal == at:
            expected += mass[terminal]
        elif both > 0:
            expected += mass[terminal] * 2 * shared[terminal] / both
    return expected


@kernel
def best_lin(
    parent: IntArray,
    information: DoubleArray,
    ptr: LongArray,
    nodes: IntArray,
    values: ScoreArray,
    start: int,
    stop: int,
) -> IntArray:
    """Find the node with the largest expected Lin similarity to where the true path ends.

    One expectation is linear in the row; a bound that costs a node's depth leaves only few nodes to compute it for.
    """
    most = longest_row(ptr, start, stop)
    workspace, bound, shared = workspace_for(len(parent), most), np.empty(most), np.empty(most)
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        own_mass(parent, nodes[low:high], values[low:high], workspace)
        promising = 0
        for at in range(high - low):
            bound[at] = lin_bound(information, workspace.above, nodes[low:high], workspace.whole, at)
            if bound[at] > bound[promising]:
                promising = at
        # Where nothing is true, only predicting nothing is like it.
        best, best_at = none_true(workspace.above, workspace.whole, high - low), -1
        for turn in range(-1, high - low):
            # The most promising node goes first, so that most others need not be looked at.
            at = promising if turn < 0 else turn
            if high == low or (turn == promising) or bound[at] * (1 + 1e-12) < best:
                continue
            expected = expected_lin(information, workspace.above, workspace.mass, nodes[low:high], at, shared)
            if expected > best or (expected == best and 0 <= at < best_at):
                best, best_at = expected, at
        if best_at >= 0:
            found[row - start] = nodes[low + best_at]
    return found
