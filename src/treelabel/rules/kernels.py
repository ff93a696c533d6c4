"""Compiled loops of the rules that choose nodes or paths.

A row is the nodes of a document with a score above 0, sorted by id, so that parents stand before children and levels
are in order; scores are coherent where a loop looks up parents, so that all parents of a node stand in its row. Equal
values: the lowest id.
"""

import numpy as np

from treelabel.core.compute import BoolArray, DoubleArray, FloatArray, IntArray, LongArray, kernel


@kernel
def above_zero(values: FloatArray, start: int, stop: int) -> tuple[LongArray, IntArray, FloatArray]:
    """List the scores above 0 of rows start..stop as row pointers, nodes and values."""
    rows, columns = stop - start, values.shape[1]
    ptr = np.zeros(rows + 1, np.int64)
    nodes = np.empty(rows * columns, np.int32)
    kept = np.empty(rows * columns, np.float32)
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
    """The most nodes that any of the rows start..stop has."""
    most = 0
    for row in range(start, stop):
        most = max(most, ptr[row + 1] - ptr[row])
    return most


@kernel
def best_by_level(
    depth: IntArray, ptr: LongArray, nodes: IntArray, values: FloatArray, start: int, stop: int
) -> tuple[IntArray, LongArray]:
    """Find the node with the largest score at each depth."""
    found = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.empty(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        begin, level = used, -1
        best = np.float32(0)
        for at in range(ptr[row], ptr[row + 1]):
            if depth[nodes[at]] != level:
                level = depth[nodes[at]]
                best = values[at]
                found[used] = nodes[at]
                used += 1
            elif values[at] > best:
                best = values[at]
                found[used - 1] = nodes[at]
        sizes[row - start] = used - begin
    return found[:used], sizes


@kernel
def follow_best_child(
    parent_ptr: IntArray,
    parent_idx: IntArray,
    least: float,
    ptr: LongArray,
    nodes: IntArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> IntArray:
    """Go from the root to the child with the largest score, while that is at least `least`; give where this ends."""
    total = len(parent_ptr) - 1
    # The best child of every node, the root standing last; entries are valid only if their stamp is this row's.
    child = np.empty(total + 1, np.int32)
    score = np.empty(total + 1, np.float32)
    stamp = np.full(total + 1, -1, np.int64)
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        for at in range(ptr[row], ptr[row + 1]):
            node = nodes[at]
            for edge in range(parent_ptr[node], parent_ptr[node + 1]):
                above = parent_idx[edge] if parent_idx[edge] >= 0 else total
                if stamp[above] != row or values[at] > score[above]:
                    stamp[above] = row
                    child[above] = node
                    score[above] = values[at]
        node = total
        while stamp[node] == row and score[node] >= least:
            node = child[node]
            found[row - start] = node
    return found


@kernel
def has_kept_parent(parent_ptr: IntArray, parent_idx: IntArray, kept_in: LongArray, row: int, node: int) -> bool:
    """Whether a node hangs under the root or under a node that this row kept."""
    for edge in range(parent_ptr[node], parent_ptr[node + 1]):
        if parent_idx[edge] < 0 or kept_in[parent_idx[edge]] == row:
            return True
    return False


@kernel
def beam(
    parent_ptr: IntArray,
    parent_idx: IntArray,
    depth: IntArray,
    is_leaf: BoolArray,
    width: int,
    ptr: LongArray,
    nodes: IntArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> IntArray:
    """Keep the `width` best nodes of each level among the children of kept ones; give the best leaf that was kept.

    Where no leaf was kept, because the row holds none below the kept nodes, the best of the deepest kept nodes.
    """
    kept_in = np.full(len(depth), -1, np.int64)
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        leaf, inner, inner_depth = -1, -1, 0
        at, end = ptr[row], ptr[row + 1]
        while at < end:
            level = depth[nodes[at]]
            last = at
            while last < end and depth[nodes[last]] == level:
                last += 1
            open_nodes = np.empty(last - at, np.int64)
            count = 0
            for place in range(at, last):
                open_nodes[count] = place
                count += has_kept_parent(parent_ptr, parent_idx, kept_in, row, nodes[place])
            # A stable sort by falling score leaves equal ones in the order of their ids.
            order = np.argsort(-values[open_nodes[:count]], kind="mergesort")
            for rank in range(min(width, count)):
                place = open_nodes[order[rank]]
                kept_in[nodes[place]] = row
                if is_leaf[nodes[place]]:
                    if leaf < 0 or values[place] > values[leaf]:
                        leaf = place
                elif level > inner_depth:
                    inner, inner_depth = place, level
            at = last
        best = leaf if leaf >= 0 else inner
        if best >= 0:
            found[row - start] = nodes[best]
    return found


@kernel
def deepest_above(
    depth: IntArray, least: float, ptr: LongArray, nodes: IntArray, values: FloatArray, start: int, stop: int
) -> IntArray:
    """Find the deepest node with a score above `least`."""
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        best, deepest = np.float32(0), 0
        for at in range(ptr[row], ptr[row + 1]):
            level = depth[nodes[at]]
            if values[at] > least and (level > deepest or values[at] > best):
                best, deepest = values[at], level
                found[row - start] = nodes[at]
    return found


@kernel
def deepest_without_rival(
    parent: IntArray, ptr: LongArray, nodes: IntArray, values: FloatArray, start: int, stop: int
) -> IntArray:
    """Go to the best child for as long as it is likelier than every sibling met on the way; give where this ends.

    With coherent scores no node off the way is likelier than the sibling it lies under.
    """
    total = len(parent)
    # The best child of every node and the score of the second best; entries count only if their stamp is this row's.
    child = np.empty(total + 1, np.int32)
    first, second = np.empty(total + 1, np.float32), np.empty(total + 1, np.float32)
    stamp = np.full(total + 1, -1, np.int64)
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        for at in range(ptr[row], ptr[row + 1]):
            above = parent[nodes[at]] if parent[nodes[at]] >= 0 else total
            if stamp[above] != row:
                stamp[above] = row
                child[above], first[above], second[above] = nodes[at], values[at], 0
            elif values[at] > first[above]:
                second[above] = first[above]
                child[above], first[above] = nodes[at], values[at]
            else:
                second[above] = max(second[above], values[at])
        node, rival = total, np.float32(0)
        while stamp[node] == row:
            rival = max(rival, second[node])
            if first[node] <= rival:
                break
            node = child[node]
            found[row - start] = node
    return found


@kernel
def own_mass(
    parent: IntArray,
    place: IntArray,
    nodes: IntArray,
    values: FloatArray,
    above: IntArray,
    mass: DoubleArray,
    whole: DoubleArray,
) -> None:
    """For one row over a tree, find where each node's parent stands in it (-1: the root), and the mass that is its own.

    A node's own mass is what its children lack of its score: the probability that the true path ends there. `whole` is
    the mass at or below it: its score, unless its children sum to more. `place` is scratch for all nodes; its entries
    are valid for nodes of this row only.
    """
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


@kernel
def best_path(
    parent: IntArray,
    worth: DoubleArray,
    worth_of_end: DoubleArray,
    ptr: LongArray,
    nodes: IntArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> IntArray:
    """Find the node with the largest sum over its path of worth x score + worth_of_end x own mass; linear in the row.

    Both worths are by node and not below 0, so that it is the end of a longest path of the row.
    """
    most = longest_row(ptr, start, stop)
    place = np.empty(len(parent), np.int32)
    above = np.empty(most, np.int32)
    mass, whole, total = np.empty(most), np.empty(most), np.empty(most)
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        own_mass(parent, place, nodes[low:high], values[low:high], above, mass, whole)
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
    values: FloatArray,
    start: int,
    stop: int,
) -> IntArray:
    """Find the node (-1: the root) with the largest expected Wu-Palmer similarity to where the true path ends.

    For a node s at depth k, 2 d(lcs) / (d(s) + d(e)) is a sum over the common ancestors a of s and e, the root counted,
    of 2 / (d(s) + d(e)), so the expectation is a sum over the path of s of what lies below each of its nodes. One pass
    up and one down for each depth: linear in the row times its levels.
    """
    most = longest_row(ptr, start, stop)
    place = np.empty(len(parent), np.int32)
    above = np.empty(most, np.int32)
    mass, whole, path = np.empty(most), np.empty(most), np.empty(most)
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        own_mass(parent, place, nodes[low:high], values[low:high], above, mass, whole)
        best = -1.0
        for level in range(depth[nodes[high - 1]] + 1 if high > low else 0):
            root = similarity_below(depth, nodes[low:high], above, mass, level, path)
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
def similarity_below(
    depth: IntArray, nodes: IntArray, above: IntArray, mass: DoubleArray, level: int, below: DoubleArray
) -> float:
    """Sum, over the ends below each node of a row, 2 m(e) / (level + d(e)), with depths from 1; give the root's."""
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
    """Bound the expected Lin similarity of a node by that of ends that are as close to its path as they can be."""
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
    """Expected Lin similarity of one node of a row to where the true path ends; `shared` is scratch, ic(lcs)."""
    shared[: len(nodes)] = -1.0
    step = at
    while step >= 0:
        shared[step] = information[nodes[step]]
        step = above[step]
    own = information[nodes[at]]
    expected = 0.0
    for end in range(len(nodes)):
        if shared[end] < 0:
            shared[end] = shared[above[end]] if above[end] >= 0 else 0.0
        both = own + information[nodes[end]]
        if end == at:
            expected += mass[end]
        elif both > 0:
            expected += mass[end] * 2 * shared[end] / both
    return expected


@kernel
def best_lin(
    parent: IntArray,
    information: DoubleArray,
    ptr: LongArray,
    nodes: IntArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> IntArray:
    """Find the node with the largest expected Lin similarity to where the true path ends.

    One expectation is linear in the row; a bound that costs a node's depth leaves only few nodes to compute it for.
    """
    most = longest_row(ptr, start, stop)
    place = np.empty(len(parent), np.int32)
    above = np.empty(most, np.int32)
    mass, whole, bound, shared = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    found = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        own_mass(parent, place, nodes[low:high], values[low:high], above, mass, whole)
        promising = 0
        for at in range(high - low):
            bound[at] = lin_bound(information, above, nodes[low:high], whole, at)
            if bound[at] > bound[promising]:
                promising = at
        best, best_at = 0.0, -1
        for turn in range(-1, high - low):
            # The most promising node goes first, so that most others need not be looked at.
            at = promising if turn < 0 else turn
            if high == low or (turn == promising) or bound[at] * (1 + 1e-12) < best:
                continue
            expected = expected_lin(information, above, mass, nodes[low:high], at, shared)
            if expected > best or (expected == best and 0 <= at < best_at):
                best, best_at = expected, at
        if best_at >= 0:
            found[row - start] = nodes[low + best_at]
    return found
