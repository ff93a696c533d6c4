"""Sets that are optimal for hierarchical F: exact where every node weighs the same, a search where nodes have weights.

Truth is taken to be one path, and scores a coherent distribution over where it ends: what the children of a node lack
of its score is the probability that the path ends there, and what the top labels lack of 1 is the probability that
nothing is true. There, predicting nothing is worth 1, and anything else 0 (or what the root is worth, if it counts): so
nothing is predicted where that is likelier to be right than any set is good.
"""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.rules.score_rows import ScoreRows, choose_sets
from treelabel.scores.score_matrix import Scores


def hf_beta(scores: Scores, beta: float = 1.0, count_root: bool = False, empty: float = 1.0) -> LabelMatrix:
    """Choose the set with the largest expected hF_beta = (1 + beta^2) c / (a + beta^2 b). Exact; closed.

    For a set S of k nodes the expectation is the sum over its nodes of Delta_k(n) = sum over the leaves l below n of
    p(l) (1 + beta^2) / (k + beta^2 |A(l)|), so the k nodes of largest Delta_k are the best of that size (they are
    closed, as Delta_k falls from parent to child), and the best size is found by trying them in turn until a bound on
    all larger ones ends the search. In a DAG a leaf counts once for each ancestor. `count_root` adds the root to both
    sets; without it, predicting nothing where nothing is true is worth `empty`: 0 for documents that all have a label,
    whatever their scores lack of 1. Each size tried is linear in the stored scores of the document (times its ancestors
    in a DAG).

    Parameters
    ----------
    beta
        How many times as much recall counts as precision.
    count_root
        Whether the root is in both sets.
    empty
        What predicting nothing is worth where nothing is true.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["1 > 3", "1 > 4", "1 > 5", "2"])
    >>> s = Scores.from_leaves(h, ["3", "4", "5", "2"], [[0.2, 0.2, 0.35, 0.25]])
    >>> [h.names[node] for node in hf_beta(s).indices]
    ['1', '2', '5']
    """
    if not 0 <= beta <= 1e6:
        raise TreelabelError(f"expected a beta of at least 0 and at most a million, found {beta:g}")
    h = scores.hierarchy
    if h.is_tree:
        link_ptr, links, sizes = h.parent_ptr.astype(np.int64), h.parent_idx, h.depth
    else:
        above = h.ancestors(np.arange(len(h)))
        link_ptr, links = above.indptr.astype(np.int64), above.indices
        sizes = (np.diff(link_ptr) + 1).astype(np.int32)
    options = (float(beta), int(count_root), float(empty))
    return choose_sets(scores.coherent(), lambda rows: best_sets(link_ptr, links, h.is_tree, sizes, *options, rows))


def hf1_root(scores: Scores) -> LabelMatrix:
    """Choose the set with the largest expected hierarchical F1 that counts the root in both sets. Exact; closed."""
    return hf_beta(scores, 1.0, count_root=True)


# Nodes of small score are folded into their ancestors in trees of at most this many levels: one number per node and
# level.
MOST_LEVELS = 64


@kernel
def find_terminal_masses(
    link_ptr: LongArray,
    link_idx: IntArray,
    is_tree: bool,
    position: IntArray,
    nodes: IntArray,
    values: ScoreArray,
    mass: DoubleArray,
    whole: DoubleArray,
) -> None:
    """For one row, find the mass of each node that lies below none of its descendants: where true paths end.

    `whole` becomes the mass at or below each node of a tree. This is its score, unless its children sum to more.

    Links are parents in a tree, where sums are handed on from level to level, and all ancestors in a DAG, where each
    mass goes to every ancestor once, however many ways lead there. `position` tells where the nodes of this row stand.
    """
    for index in range(len(nodes)):
        position[nodes[index]] = index
        mass[index] = 0.0
    for index in range(len(nodes) - 1, -1, -1):
        below = mass[index]
        mass[index] = max(0.0, values[index] - below)
        whole[index] = below + mass[index]
        handed = whole[index] if is_tree else mass[index]
        for link in range(link_ptr[nodes[index]], link_ptr[nodes[index] + 1]):
            if link_idx[link] >= 0:
                mass[position[link_idx[link]]] += handed


@kernel
def gains(link_ptr: LongArray, links: IntArray, is_tree: bool, weighed: DoubleArray, gain: DoubleArray) -> None:
    """Sum what the terminal nodes at or below each place of a row weigh: Delta_k(n). Links are places, too."""
    count = len(weighed)
    gain[:count] = weighed
    for index in range(count - 1, -1, -1):
        handed = gain[index] if is_tree else weighed[index]
        if handed > 0:
            for link in range(link_ptr[index], link_ptr[index + 1]):
                gain[links[link]] += handed
    if not is_tree:
        # The same terms, summed in another order, must not put a child before its parent.
        for index in range(count - 1, -1, -1):
            for link in range(link_ptr[index], link_ptr[index + 1]):
                gain[links[link]] = max(gain[links[link]], gain[index])


@kernel
def is_worse(gain: DoubleArray, one: int, two: int) -> bool:
    """Order places of a row by gain, equal ones by id: parents never come after their children."""
    return gain[one] < gain[two] or (gain[one] == gain[two] and one > two)


@kernel
def largest(gain: DoubleArray, count: int, size: int, heap: IntArray) -> float:
    """Put the places of the `size` largest gains into the heap, the worst on top; return the sum of the gains."""
    if size == 0:
        return 0.0
    for index in range(count):
        if index < size:
            hole = index
            while hole > 0 and is_worse(gain, index, heap[(hole - 1) // 2]):
                heap[hole] = heap[(hole - 1) // 2]
                hole = (hole - 1) // 2
            heap[hole] = index
        elif gain[index] > gain[heap[0]]:
            hole = 0
            while 2 * hole + 1 < size:
                below = 2 * hole + 1
                if below + 1 < size and is_worse(gain, heap[below + 1], heap[below]):
                    below += 1
                if is_worse(gain, index, heap[below]):
                    break
                heap[hole] = heap[below]
                hole = below
            heap[hole] = index
    total = 0.0
    for index in range(size):
        total += gain[heap[index]]
    return total


@kernel
def keep_likely(
    link_ptr: LongArray,
    link_idx: IntArray,
    position: IntArray,
    nodes: IntArray,
    whole: DoubleArray,
    least: float,
    selected: IntArray,
    nearest: IntArray,
    local_ptr: LongArray,
    local_links: IntArray,
) -> int:
    """List the places of a row with a mass of at least `least`, and their links as places in that list; count them.

    `nearest` becomes, for every place of the row, the nearest kept place at or above it: with all places kept this is
    the place itself, and in a tree it is one for each.
    """
    count, used = 0, 0
    for index in range(len(nodes)):
        low, high = link_ptr[nodes[index]], link_ptr[nodes[index] + 1]
        if whole[index] >= least:
            selected[count] = index
            nearest[index] = count
            local_ptr[count] = used
            for link in range(low, high):
                if link_idx[link] >= 0:
                    local_links[used] = nearest[position[link_idx[link]]]
                    used += 1
            count += 1
            local_ptr[count] = used
        else:
            nearest[index] = nearest[position[link_idx[low]]] if link_idx[low] >= 0 else -1
    return count


@kernel
def gather_terminals(
    path_sizes: IntArray,
    nodes: IntArray,
    mass: DoubleArray,
    nearest: IntArray,
    table: DoubleArray,
    terminal_place: IntArray,
    terminal_size: IntArray,
    terminal_mass: DoubleArray,
) -> int:
    """List the terminal nodes of a row: the kept place they are at or below, the size of their path, and their mass.

    Those with the same place and size are joined where `table` has room for all of them; it is all 0 before and after.
    """
    used = 0
    for index in range(len(nodes)):
        size = path_sizes[nodes[index]]
        if mass[index] > 0 and nearest[index] >= 0:
            if len(table) == 0 or table[nearest[index], size] == 0:
                terminal_place[used], terminal_size[used], terminal_mass[used] = nearest[index], size, mass[index]
                used += 1
            if len(table) > 0:
                table[nearest[index], size] += mass[index]
    if len(table) > 0:
        for which in range(used):
            terminal_mass[which] = table[terminal_place[which], terminal_size[which]]
            table[terminal_place[which], terminal_size[which]] = 0.0
    return used


@kernel
def masses_by_size(path_sizes: IntArray, nodes: IntArray, mass: DoubleArray, of_size: DoubleArray) -> int:
    """Sum the mass of the terminal nodes of a row by the size of their path; return the largest size."""
    longest = 0
    for index in range(len(nodes)):
        longest = max(longest, path_sizes[nodes[index]])
    of_size[: longest + 1] = 0.0
    for index in range(len(nodes)):
        of_size[path_sizes[nodes[index]]] += mass[index]
    return longest


@kernel
def weigh_sizes(of_size: DoubleArray, squared: float, size: int, root: int, worth: DoubleArray) -> tuple[float, float]:
    """Weigh one shared node of a set of k nodes, by the size of the true path: (1 + beta^2) / (k + beta^2 b).

    Returns what sharing every path as a whole would be worth, a bound for all sets of k nodes or more, and what sharing
    the root is worth.
    """
    whole, one = 0.0, 0.0
    for length in range(len(of_size)):
        worth[length] = (1 + squared) / (size + root + squared * (length + root))
        whole += of_size[length] * worth[length] * (length + root)
        one += of_size[length] * worth[length]
    return whole, one * root


@kernel
def weigh(
    worth: DoubleArray,
    terminal_place: IntArray,
    terminal_size: IntArray,
    terminal_mass: DoubleArray,
    weighed: DoubleArray,
) -> None:
    """Sum what one shared node is worth over the terminal nodes at, or folded into, each place."""
    weighed[:] = 0.0
    for which in range(len(terminal_place)):
        weighed[terminal_place[which]] += terminal_mass[which] * worth[terminal_size[which]]


@kernel
def open_sizes(
    of_size: DoubleArray, squared: float, size: int, count: int, root: int, best: float, worth: DoubleArray
) -> int:
    """Return the largest size that may still have a better set."""
    while size < count and weigh_sizes(of_size, squared, size + 1, root, worth)[0] > best:
        size += 1
    return size


@kernel
def least_mass(whole: DoubleArray, largest_size: int, spread: float, heap: IntArray) -> float:
    """Return the mass below which no node is in a best set of up to `largest_size` nodes; all have at least 0."""
    if largest_size >= len(whole):
        return 0.0
    largest(whole, len(whole), largest_size, heap)
    least: float = whole[heap[0]] * spread
    return least


@kernel
def room_needed(link_ptr: LongArray, ptr: LongArray, nodes: IntArray, start: int, stop: int) -> tuple[int, int]:
    """Return the most nodes that a row has, and the most links."""
    most, ways = 0, 0
    for row in range(start, stop):
        most = max(most, ptr[row + 1] - ptr[row])
        above = 0
        for index in range(ptr[row], ptr[row + 1]):
            above += link_ptr[nodes[index] + 1] - link_ptr[nodes[index]]
        ways = max(ways, above)
    return most, ways


@kernel
def best_sets(
    link_ptr: LongArray,
    link_idx: IntArray,
    is_tree: bool,
    path_sizes: IntArray,
    beta: float,
    root: int,
    nothing: float,
    rows: ScoreRows,
) -> tuple[IntArray, LongArray]:
    """For each size k find the k nodes with the largest Delta_k, and of these sets the one of the largest expected F.

    Delta_k(n) = sum over terminal nodes e below n of m(e) (1 + beta^2) / (k + beta^2 |A(e)|). No set of k nodes or
    more has more than the sum over all e of m(e) (1 + beta^2) |A(e)| / (k + beta^2 |A(e)|), which ends the search.
    `root` is 1 if the root counts in both sets. What the masses lack of 1 is the probability that nothing is true:
    there predicting nothing is worth `nothing` if the root does not count, and any node 0.

    Of a node only its mass p matters where it is too small to be chosen: Delta_k lies between (1 + beta^2) p times
    1 / (k + beta^2 longest path) and 1 / (k + beta^2), so no best set of k to K nodes has one whose mass is below the
    K-th largest by more than that. Such nodes are folded into their nearest kept ancestor, first for sets of up to 16
    nodes, then for all sizes that the bound leaves open.
    """
    ptr, nodes, values, start, stop = rows
    most, ways = room_needed(link_ptr, ptr, nodes, start, stop)
    highest = path_sizes.max() if len(path_sizes) else 0
    can_fold = is_tree and highest <= MOST_LEVELS
    position, heap = np.empty(len(path_sizes), np.int32), np.empty(most + 1, np.int32)
    selected, nearest = np.empty(most, np.int32), np.empty(most, np.int32)
    local_ptr, local_links = np.zeros(most + 1, np.int64), np.empty(ways, np.int32)
    terminal_place, terminal_size, terminal_mass = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most)
    table = np.zeros((most if can_fold else 0, highest + 1))
    mass, whole, weighed, gain = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    of_size, worth = np.zeros(highest + 1), np.zeros(highest + 1)
    result = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    squared, used = beta * beta, 0
    for row in range(start, stop):
        low, count = ptr[row], ptr[row + 1] - ptr[row]
        if count == 0:
            continue
        here, below = nodes[low : low + count], whole[:count]
        find_terminal_masses(link_ptr, link_idx, is_tree, position, here, values[low : low + count], mass, whole)
        longest = masses_by_size(path_sizes, here, mass, of_size)
        of_size[0] = max(0.0, 1.0 - of_size[1 : longest + 1].sum())
        best, best_size, largest_size, total, terminals = -1.0 if root else nothing * of_size[0], 0, -1, 0, 0
        lengths = of_size[: longest + 1]
        for size in range(0 if root else 1, count + 1):
            bound, shared = weigh_sizes(lengths, squared, size, root, worth)
            if bound <= best:
                break
            if size > largest_size:
                # At first there is next to nothing to compare with.
                first = min(count, 16) if can_fold else count
                largest_size = (
                    open_sizes(lengths, squared, size, count, root, best, worth) if largest_size >= 0 else first
                )
                weigh_sizes(lengths, squared, size, root, worth)
                spread = worth[longest] / worth[1]
                least = least_mass(below, largest_size, spread, heap)
                total = keep_likely(
                    link_ptr, link_idx, position, here, below, least, selected, nearest, local_ptr, local_links
                )
                terminals = gather_terminals(
                    path_sizes, here, mass, nearest, table, terminal_place, terminal_size, terminal_mass
                )
            weigh(worth, terminal_place[:terminals], terminal_size[:terminals], terminal_mass, weighed[:total])
            gains(local_ptr, local_links, is_tree, weighed[:total], gain)
            value = shared + largest(gain, total, size, heap)
            if value > best:
                best, best_size = value, size
                result[used : used + size] = here[selected[heap[:size]]]
        result[used : used + best_size].sort()
        used += best_size
        sizes[row - start] = best_size
    return result[:used], sizes
