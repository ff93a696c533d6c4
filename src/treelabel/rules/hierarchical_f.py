"""Sets that are optimal for hierarchical F: exact where every node weighs the same, a search where nodes have weights.

Truth is taken to be one path, and scores a coherent distribution over where it ends: what the children of a node lack
of its score is the probability that the path ends there, and what the top labels lack of 1 is the probability that
nothing is true. There, predicting nothing is worth 1, and anything else 0 (or what the root is worth, if it counts): so
nothing is predicted where that is likelier to be right than any set is good.
"""

from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelMatrix, rows_of, sort_up
from treelabel.rules.score_rows import ScoreRows, choose_sets, largest, longest_row
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
    h, options = scores.hierarchy, (float(beta), int(count_root), float(empty))
    if h.is_tree:
        links, sizes = Links(h.parent_ptr.astype(np.int64), h.parent_idx, True), h.depth
    else:
        above = h.ancestors(np.arange(len(h)))
        links = Links(*rows_of(above), False)
        sizes = (np.diff(links.ptr) + 1).astype(np.int32)
    return choose_sets(scores.coherent(), lambda rows: best_sets(links, sizes, *options, rows))


def hf1_root(scores: Scores) -> LabelMatrix:
    """Choose the set with the largest expected hierarchical F1 that counts the root in both sets. Exact; closed."""
    return hf_beta(scores, 1.0, count_root=True)


# Nodes of small score are folded into their ancestors in trees of at most this many levels: one number per node and
# level.
MOST_LEVELS = 64


class Links(NamedTuple):
    """Where each node leads up, -1 being the root: to its parent in a tree, to all of its ancestors in a DAG."""

    ptr: LongArray
    idx: IntArray
    is_tree: bool


class Terminals(NamedTuple):
    """Terminal nodes of a row: the selected place they are at or below, the size of their path, and their mass."""

    anchor: IntArray
    size: IntArray
    mass: DoubleArray


@kernel
def find_terminal_masses(
    links: Links, position: IntArray, nodes: IntArray, values: ScoreArray, mass: DoubleArray, whole: DoubleArray
) -> None:
    """For one row, find the mass of each node that lies below none of its descendants: where true paths end.

    `whole` becomes the mass at or below each node of a tree. This is its score, unless its children sum to more.

    In a tree sums are handed on from level to level; in a DAG each mass goes to every ancestor once, however many ways
    lead there. `position` tells where the nodes of this row stand.
    """
    for index in range(len(nodes)):
        position[nodes[index]] = index
        mass[index] = 0.0
    for index in range(len(nodes) - 1, -1, -1):
        below = mass[index]
        mass[index] = max(0.0, values[index] - below)
        whole[index] = below + mass[index]
        handed = whole[index] if links.is_tree else mass[index]
        for link in range(links.ptr[nodes[index]], links.ptr[nodes[index] + 1]):
            if links.idx[link] >= 0:
                mass[position[links.idx[link]]] += handed


@kernel
def gains(links: Links, weighed: DoubleArray, gain: DoubleArray) -> None:
    """Sum what the terminal nodes at or below each place of a row weigh: Delta_k(n). Links are places, too."""
    count = len(weighed)
    # A loop, as numba compiles an assignment to a slice with the message of its error, for a second.
    for index in range(count):
        gain[index] = weighed[index]
    for index in range(count - 1, -1, -1):
        handed = gain[index] if links.is_tree else weighed[index]
        if handed > 0:
            for link in range(links.ptr[index], links.ptr[index + 1]):
                gain[links.idx[link]] += handed
    if not links.is_tree:
        # The same terms, summed in another order, must not put a child before its parent.
        for index in range(count - 1, -1, -1):
            for link in range(links.ptr[index], links.ptr[index + 1]):
                gain[links.idx[link]] = max(gain[links.idx[link]], gain[index])


@kernel
def select_likely(
    links: Links,
    position: IntArray,
    nodes: IntArray,
    is_likely: BoolArray,
    selected: IntArray,
    nearest: IntArray,
    local: Links,
) -> int:
    """List the likely places of a row, and their links as places in that list (`local`); count them.

    `nearest` becomes, for every place of the row, the nearest selected place at or above it: with all places selected
    this is the place itself, and in a tree it is one for each.
    """
    count, used = 0, 0
    for index in range(len(nodes)):
        low, high = links.ptr[nodes[index]], links.ptr[nodes[index] + 1]
        if is_likely[index]:
            selected[count] = index
            nearest[index] = count
            local.ptr[count] = used
            for link in range(low, high):
                if links.idx[link] >= 0:
                    local.idx[used] = nearest[position[links.idx[link]]]
                    used += 1
            count += 1
            local.ptr[count] = used
        else:
            nearest[index] = nearest[position[links.idx[low]]] if links.idx[low] >= 0 else -1
    return count


@kernel
def gather_terminals(
    sizes: IntArray, mass: DoubleArray, nearest: IntArray, table: DoubleArray, terminals: Terminals
) -> int:
    """List the terminal nodes of a row, whose paths have these sizes, and count them.

    Those with the same place and size are joined where `table` has room for all of them; it is all 0 before and after.
    """
    used = 0
    for index in range(len(sizes)):
        if mass[index] > 0 and nearest[index] >= 0:
            here = nearest[index], sizes[index]
            if len(table) == 0 or table[here] == 0:
                terminals.anchor[used], terminals.size[used], terminals.mass[used] = here[0], here[1], mass[index]
                used += 1
            if len(table) > 0:
                table[here] += mass[index]
    if len(table) > 0:
        for which in range(used):
            here = terminals.anchor[which], terminals.size[which]
            terminals.mass[which] = table[here]
            table[here] = 0.0
    return used


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
def weigh(worth: DoubleArray, terminals: Terminals, count: int, weighed: DoubleArray) -> None:
    """Sum what one shared node is worth over the terminal nodes at, or folded into, each place."""
    weighed[:] = 0.0
    for which in range(count):
        weighed[terminals.anchor[which]] += terminals.mass[which] * worth[terminals.size[which]]


@kernel
def open_sizes(
    of_size: DoubleArray, squared: float, size: int, count: int, root: int, best: float, worth: DoubleArray
) -> int:
    """Return the largest size that may still have a better set."""
    while size < count and weigh_sizes(of_size, squared, size + 1, root, worth)[0] > best:
        size += 1
    return size


@kernel
def best_sets(
    links: Links, path_sizes: IntArray, beta: float, root: int, nothing: float, rows: ScoreRows
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
    most = longest_row(rows)
    highest = path_sizes.max() if len(path_sizes) else 0
    can_fold = links.is_tree and highest <= MOST_LEVELS
    position, heap = np.empty(len(path_sizes), np.int32), np.empty(most + 1, np.int32)
    selected, nearest = np.empty(most, np.int32), np.empty(most, np.int32)
    local = Links(np.zeros(most + 1, np.int64), np.empty(most * highest, np.int32), links.is_tree)
    terminals = Terminals(np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most))
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
        here, below, paths = nodes[low : low + count], whole[:count], path_sizes[nodes[low : low + count]]
        find_terminal_masses(links, position, here, values[low : low + count], mass, whole)
        longest = paths.max()
        lengths = of_size[: longest + 1]
        lengths[:] = 0.0
        for index in range(count):
            lengths[paths[index]] += mass[index]
        lengths[0] = max(0.0, 1.0 - lengths[1:].sum())
        best, best_size, largest_size, total, ends = -1.0 if root else nothing * lengths[0], 0, -1, 0, 0
        for size in range(0 if root else 1, count + 1):
            bound, shared = weigh_sizes(lengths, squared, size, root, worth)
            if bound <= best:
                break
            if size > largest_size:
                # At first there is next to nothing to compare with.
                first = min(count, 16) if can_fold else count
                largest_size = (
                    first if largest_size < 0 else open_sizes(lengths, squared, size, count, root, best, worth)
                )
                weigh_sizes(lengths, squared, size, root, worth)
                least = 0.0
                if largest_size < count:
                    largest(below, count, largest_size, heap)
                    least = below[heap[0]] * (worth[longest] / worth[1])
                total = select_likely(links, position, here, below >= least, selected, nearest, local)
                ends = gather_terminals(paths, mass, nearest, table, terminals)
            weigh(worth, terminals, ends, weighed[:total])
            gains(local, weighed[:total], gain)
            value = shared + largest(gain, total, size, heap)
            if value > best:
                best, best_size = value, size
                for index in range(size):
                    result[used + index] = here[selected[heap[index]]]
        sort_up(result, used, used + best_size)
        used += best_size
        sizes[row - start] = best_size
    return result[:used], sizes
