"""Compiled loops that find the set with the largest expected hierarchical F."""

import numpy as np

from treelabel.compute import BoolArray, DoubleArray, FloatArray, IntArray, LongArray, kernel


@kernel
def own_masses(
    link_ptr: LongArray,
    link_idx: IntArray,
    is_tree: bool,
    place: IntArray,
    nodes: IntArray,
    values: FloatArray,
    mass: DoubleArray,
) -> None:
    """For one row, find the mass of each node that lies below none of its descendants: where true paths end.

    Links are parents in a tree, where sums are handed on from level to level, and all ancestors in a DAG, where each
    mass goes to every ancestor once, however many ways lead there. `place` tells where the nodes of this row stand.
    """
    for at in range(len(nodes)):
        place[nodes[at]] = at
        mass[at] = 0.0
    for at in range(len(nodes) - 1, -1, -1):
        below = mass[at]
        mass[at] = max(0.0, values[at] - below)
        handed = below + mass[at] if is_tree else mass[at]
        for link in range(link_ptr[nodes[at]], link_ptr[nodes[at] + 1]):
            if link_idx[link] >= 0:
                mass[place[link_idx[link]]] += handed


@kernel
def gains(
    link_ptr: LongArray,
    link_idx: IntArray,
    is_tree: bool,
    place: IntArray,
    nodes: IntArray,
    weighed: DoubleArray,
    gain: DoubleArray,
) -> None:
    """Sum over the ends at or below each node of a row what they weigh: Delta_k(n)."""
    count = len(nodes)
    gain[:count] = weighed[:count]
    for at in range(count - 1, -1, -1):
        handed = gain[at] if is_tree else weighed[at]
        if handed > 0:
            for link in range(link_ptr[nodes[at]], link_ptr[nodes[at] + 1]):
                if link_idx[link] >= 0:
                    gain[place[link_idx[link]]] += handed


@kernel
def is_worse(gain: DoubleArray, one: int, two: int) -> bool:
    """Order places of a row by gain, equal ones by id: parents never come after their children."""
    return gain[one] < gain[two] or (gain[one] == gain[two] and one > two)


@kernel
def largest(gain: DoubleArray, count: int, size: int, heap: IntArray) -> float:
    """Put the places of the `size` largest gains into the heap, the worst on top; give the sum of the gains."""
    if size == 0:
        return 0.0
    for at in range(count):
        if at < size:
            hole = at
            while hole > 0 and is_worse(gain, at, heap[(hole - 1) // 2]):
                heap[hole] = heap[(hole - 1) // 2]
                hole = (hole - 1) // 2
            heap[hole] = at
        elif gain[at] > gain[heap[0]]:
            hole = 0
            while 2 * hole + 1 < size:
                below = 2 * hole + 1
                if below + 1 < size and is_worse(gain, heap[below + 1], heap[below]):
                    below += 1
                if is_worse(gain, at, heap[below]):
                    break
                heap[hole] = heap[below]
                hole = below
            heap[hole] = at
    total = 0.0
    for at in range(size):
        total += gain[heap[at]]
    return total


@kernel
def best_sets(
    link_ptr: LongArray,
    link_idx: IntArray,
    is_tree: bool,
    path_sizes: IntArray,
    beta: float,
    root: int,
    ptr: LongArray,
    nodes: IntArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> tuple[IntArray, LongArray]:
    """For each size k find the k nodes with the largest Delta_k, and of these sets the one of the largest expected F.

    Delta_k(n) = sum over ends e below n of m(e) (1 + beta^2) / (k + beta^2 |A(e)|). No set of k nodes or more has more
    than the sum over all ends of m(e) (1 + beta^2) |A(e)| / (k + beta^2 |A(e)|), which ends the search. `root` is 1 if
    the root counts in both sets. Linear in the row for each size tried.
    """
    most = 0
    for row in range(start, stop):
        most = max(most, ptr[row + 1] - ptr[row])
    place, heap = np.empty(len(path_sizes), np.int32), np.empty(most + 1, np.int32)
    mass, weighed, gain = np.empty(most), np.empty(most), np.empty(most)
    of_size = np.zeros(path_sizes.max() + 1 if len(path_sizes) else 1)
    found = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    squared, used = beta * beta, 0
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        count = high - low
        here = nodes[low:high]
        own_masses(link_ptr, link_idx, is_tree, place, here, values[low:high], mass)
        longest = 0
        for at in range(count):
            longest = max(longest, path_sizes[here[at]])
        of_size[: longest + 1] = 0.0
        for at in range(count):
            of_size[path_sizes[here[at]]] += mass[at]
        best, best_size, size = -1.0, 0, 0 if root else 1
        while size <= count:
            bound, shared = 0.0, 0.0
            for length in range(1, longest + 1):
                weight = of_size[length] * (1 + squared) / (size + root + squared * (length + root))
                bound += weight * (length + root)
                shared += weight * root
            if bound <= best:
                break
            weigh(path_sizes, here, mass, squared, size + root, root, weighed)
            gains(link_ptr, link_idx, is_tree, place, here, weighed, gain)
            value = shared + largest(gain, count, size, heap)
            if value > best:
                best, best_size = value, size
            size += 1
        weigh(path_sizes, here, mass, squared, best_size + root, root, weighed)
        gains(link_ptr, link_idx, is_tree, place, here, weighed, gain)
        largest(gain, count, best_size, heap)
        chosen = np.sort(heap[:best_size])
        for at in range(best_size):
            found[used + at] = here[chosen[at]]
        used += best_size
        sizes[row - start] = best_size
    return found[:used], sizes


@kernel
def weigh(
    path_sizes: IntArray,
    nodes: IntArray,
    mass: DoubleArray,
    squared: float,
    size: float,
    root: int,
    weighed: DoubleArray,
) -> None:
    """What one shared node is worth if the truth ends at each node: m(e) (1 + beta^2) / (k + beta^2 |A(e)|)."""
    for at in range(len(nodes)):
        weighed[at] = 0.0
        if mass[at] > 0:
            weighed[at] = mass[at] * (1 + squared) / (size + squared * (path_sizes[nodes[at]] + root))


# Sets of weighted nodes


@kernel
def expected_weighted(
    above: IntArray,
    mass: DoubleArray,
    path_weight: DoubleArray,
    weight: DoubleArray,
    chosen: BoolArray,
    squared: float,
    shared: DoubleArray,
) -> float:
    """Expected F of a closed set of weighted nodes of a row over a tree; `shared` is scratch."""
    total = 0.0
    for at in range(len(above)):
        own = weight[at] if chosen[at] else 0.0
        total += own
        shared[at] = own + (shared[above[at]] if above[at] >= 0 else 0.0)
    expected = 0.0
    for at in range(len(above)):
        if mass[at] > 0 and shared[at] > 0:
            expected += mass[at] * (1 + squared) * shared[at] / (total + squared * path_weight[at])
    return expected


@kernel
def can_gain(
    added: float, score: float, ends: float, total: float, longest: float, value: float, squared: float
) -> bool:
    """Whether adding a node may raise the expected F, by a bound on what it gains and on what the others lose."""
    gained = score * (1 + squared) / (total + added + squared * ends)
    return gained > value / (total + added + squared * longest)


@kernel
def improve(
    above: IntArray,
    values: FloatArray,
    mass: DoubleArray,
    path_weight: DoubleArray,
    weight: DoubleArray,
    chosen: BoolArray,
    squared: float,
    shared: DoubleArray,
) -> None:
    """Add or remove single nodes, keeping the set closed, for as long as the expected F rises."""
    count = len(above)
    below = np.zeros(count, np.int32)
    longest = path_weight.max()
    value = expected_weighted(above, mass, path_weight, weight, chosen, squared, shared)
    total = 0.0
    for at in range(count):
        if chosen[at]:
            total += weight[at]
            if above[at] >= 0:
                below[above[at]] += 1
    better = True
    while better:
        better = False
        for at in range(count):
            if chosen[at]:
                worth_trying = below[at] == 0
            else:
                is_addable = above[at] < 0 or chosen[above[at]]
                worth_trying = is_addable and can_gain(
                    weight[at], values[at], path_weight[at], total, longest, value, squared
                )
            if weight[at] == 0 or not worth_trying:
                continue
            chosen[at] = not chosen[at]
            changed = expected_weighted(above, mass, path_weight, weight, chosen, squared, shared)
            if changed > value * (1 + 1e-12):
                value, better = changed, True
                total += weight[at] if chosen[at] else -weight[at]
                if above[at] >= 0:
                    below[above[at]] += 1 if chosen[at] else -1
            else:
                chosen[at] = not chosen[at]


@kernel
def best_weighted_sets(
    parent_ptr: LongArray,
    parent: IntArray,
    node_weight: DoubleArray,
    beta: float,
    ptr: LongArray,
    nodes: IntArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> tuple[IntArray, LongArray]:
    """Search the set of the largest expected F with weighted nodes, over a tree.

    Which nodes a set of weight W should have is a knapsack; taking those that gain most for their weight,
    r_W(n) = sum over ends e below n of m(e) (1 + beta^2) / (W + beta^2 w(A(e))), is its relaxation. So for each size
    that many nodes are taken, W being the weight of the set before; the best set is then improved node by node.
    """
    most = 0
    for row in range(start, stop):
        most = max(most, ptr[row + 1] - ptr[row])
    place, heap = np.empty(len(parent), np.int32), np.empty(most + 1, np.int32)
    above, chosen, best_set = np.empty(most, np.int32), np.empty(most, np.bool_), np.empty(most, np.bool_)
    mass, weighed, gain, shared = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    weight, path_weight = np.empty(most), np.empty(most)
    found = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    squared, used = beta * beta, 0
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        count, here = high - low, nodes[low:high]
        if count == 0:
            continue
        own_masses(parent_ptr, parent, True, place, here, values[low:high], mass)
        for at in range(count):
            above[at] = place[parent[here[at]]] if parent[here[at]] >= 0 else -1
            weight[at] = node_weight[here[at]]
            path_weight[at] = weight[at] + (path_weight[above[at]] if above[at] >= 0 else 0.0)
        best, total = -1.0, 0.0
        best_set[:count] = False
        for size in range(1, count + 1):
            if weigh_in_bits(path_weight[:count], mass, squared, total, weighed) <= best:
                break
            gains(parent_ptr, parent, True, place, here, weighed, gain)
            largest(gain, count, size, heap)
            chosen[:count] = False
            chosen[heap[:size]] = True
            total = weight[heap[:size]].sum()
            value = expected_weighted(above[:count], mass, path_weight, weight, chosen, squared, shared)
            if value > best:
                best = value
                best_set[:count] = chosen[:count]
        improve(above[:count], values[low:high], mass, path_weight[:count], weight, best_set, squared, shared)
        picked = here[best_set[:count]]
        found[used : used + len(picked)] = picked
        used += len(picked)
        sizes[row - start] = len(picked)
    return found[:used], sizes


@kernel
def weigh_in_bits(
    path_weight: DoubleArray, mass: DoubleArray, squared: float, total: float, weighed: DoubleArray
) -> float:
    """What a shared bit is worth to a set of this weight if the truth ends at each node; give what sharing all is."""
    bound = 0.0
    for at in range(len(path_weight)):
        weighed[at] = 0.0
        if mass[at] > 0 and path_weight[at] > 0:
            weighed[at] = mass[at] * (1 + squared) / (total + squared * path_weight[at])
            bound += weighed[at] * path_weight[at]
    return bound
