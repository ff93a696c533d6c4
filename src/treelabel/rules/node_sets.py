"""Nested sets of leaves by their probabilities, and the few nodes of a tree that hold them: compiled loops.

The probability of a node, less that of its children, is that of a path that ends there: its mass. Where paths end at
leaves, these have all of it; where some end inside, or only the largest scores are stored, inner nodes have some, too.
Nodes with mass are taken into the set by falling mass, equal ones by id: the first one always, and those with a
nonconformity score of at most a limit. That score is 1 - mass (LAC; Sadinle et al., 2019), or the mass of the nodes
before (APS; Romano et al., 2020) plus a share of its own where randomised, plus a penalty for each rank beyond the
k_reg-th (RAPS; Angelopoulos et al., 2021). It never falls from one node to the next, so that sets are nested.

A set is represented by at most so many nodes, at or above all of its own, with the fewest leaves below them, and of
these with the fewest nodes (Mortier et al., 2025). The root, which takes everything in, is the empty list.
"""

from typing import Final, NamedTuple

import numpy as np

from treelabel.core.compute import kernel, with_room
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelRows, sort_up
from treelabel.rules.score_rows import ScoreRows, TreeRow, load_tree_row, longest_row, make_tree_row

LAC: Final = 0
APS: Final = 1
# Inner nodes of exhaustive scores in single precision have no more mass than this.
LEAST_MASS: Final = 1e-5
# Nodes of all sets together that are looked at to find the least limit of a document.
MOST_SEARCHED: Final = 1 << 14
# Nodes with mass of a document that are searched through, though none of them is true.
MOST_UNTRUE: Final = 256
# Masses whose numbers have the same exponent and the same 5 bits behind the point are in one bucket; the last one has
# all below 2^-32, too.
BUCKETS: Final = 1024
KEY_SHIFT: Final = 47
LARGEST_KEY: Final = 1023 << 5
# Nodes of a bucket that are sorted by insertion.
MOST_INSERTED: Final = 64
# With one node in so many that is needed, sorting costs as much as looking at all.
DENSE: Final = 32
# Larger than any number of leaves times nodes.
_IMPOSSIBLE: Final = 1 << 60


class SetOptions(NamedTuple):
    """How nodes are scored: the kind, the random shares' seed (-1: none), the penalty; and how many nodes at most."""

    kind: int
    seed: int
    penalty: float
    k_reg: int
    most: int


class SetTree(NamedTuple):
    """The tree: parents, leaves, the leaves below each node, and those of all."""

    parent: IntArray
    is_leaf: BoolArray
    leaf_counts: IntArray
    leaves: int


class SetRow(NamedTuple):
    """Working memory for one row, by index in the row; the root stands behind the last one.

    `order` has the nodes with mass, sorted as far as they are wanted, and `ends` the ends of its buckets; `heap` is
    where one is sorted. `scores` are nonconformity scores; `needed` lists nodes at or above those taken. `cost`,
    `is_alone` and `split` are by node and number of nodes.
    """

    tree: TreeRow
    heap: IntArray
    order: IntArray
    ends: IntArray
    scores: DoubleArray
    needed: IntArray
    is_taken: BoolArray
    is_needed: BoolArray
    cost: LongArray
    is_alone: BoolArray
    split: IntArray
    budget: IntArray


@kernel
def make_set_row(nodes: int, longest: int, most: int) -> SetRow:
    """Make room for rows of at most `longest` nodes, represented by at most `most`."""
    shape = (longest + 1, most + 1)
    return SetRow(
        make_tree_row(nodes, longest),
        np.empty(longest, np.int32),
        np.empty(longest, np.int32),
        np.empty(BUCKETS, np.int32),
        np.empty(longest + 1),
        np.empty(longest, np.int32),
        np.zeros(longest, np.bool_),
        np.zeros(longest, np.bool_),
        np.empty(shape, np.int64),
        np.empty(shape, np.bool_),
        np.empty(shape, np.int32),
        np.empty(longest + 1, np.int32),
    )


@kernel
def comes_first(mass: DoubleArray, one: int, two: int) -> bool:
    """Order by falling mass, equal ones by index."""
    return mass[one] > mass[two] or (mass[one] == mass[two] and one < two)


@kernel
def sink(mass: DoubleArray, heap: IntArray, hole: int, size: int) -> None:
    """Move an entry of a heap, the first in order on top, down to its position."""
    entry = heap[hole]
    while 2 * hole + 1 < size:
        below = 2 * hole + 1
        if below + 1 < size and comes_first(mass, heap[below + 1], heap[below]):
            below += 1
        if comes_first(mass, entry, heap[below]):
            break
        heap[hole] = heap[below]
        hole = below
    heap[hole] = entry


@kernel
def bucket_of(bits: int) -> int:
    """Return the bucket of a mass by the bits of its number: the larger the mass, the lower the bucket."""
    key = LARGEST_KEY - (bits >> KEY_SHIFT)
    if key < 0:
        return 0
    return key if key < BUCKETS else BUCKETS - 1


@kernel
def load_masses(tree: SetTree, nodes: IntArray, values: ScoreArray, work: SetRow) -> int:
    """Put the nodes of a row that have mass into `order`, bucket by bucket, by index in each; return how many.

    Few of many nodes are taken mostly, so that a bucket is sorted when the first of its nodes is wanted. A short row is
    one bucket.
    """
    load_tree_row(tree.parent, nodes, values, work.tree)
    mass, heap, ends, count = work.tree.mass, work.heap, work.ends, 0
    for index in range(len(nodes)):
        if mass[index] > 0 and (tree.is_leaf[nodes[index]] or mass[index] > LEAST_MASS):
            heap[count] = index
            count += 1
    if count <= MOST_INSERTED:
        work.order[:count] = heap[:count]
        return count
    bits = mass.view(np.int64)
    ends[:] = 0
    for place in range(count):
        ends[bucket_of(bits[heap[place]])] += 1
    total = 0
    for bucket in range(BUCKETS):
        size = ends[bucket]
        # While nodes are put in, this is where the next one of the bucket belongs; in the end, where the bucket ends.
        ends[bucket] = total
        total += size
    for place in range(count):
        bucket = bucket_of(bits[heap[place]])
        work.order[ends[bucket]] = heap[place]
        ends[bucket] += 1
    return count


@kernel
def sort_bucket(work: SetRow, start: int, count: int) -> int:
    """Sort the bucket of `order` that begins at `start`, of so many nodes with mass; return its end."""
    mass, order, heap = work.tree.mass, work.order, work.heap
    stop = count if count <= MOST_INSERTED else work.ends[bucket_of(mass.view(np.int64)[order[start]])]
    size = stop - start
    if size <= MOST_INSERTED:
        for place in range(start + 1, stop):
            index, hole = order[place], place
            while hole > start and comes_first(mass, index, order[hole - 1]):
                order[hole] = order[hole - 1]
                hole -= 1
            order[hole] = index
        return stop
    heap[:size] = order[start:stop]
    for hole in range(size // 2 - 1, -1, -1):
        sink(mass, heap, hole, size)
    for place in range(size):
        order[start + place] = heap[0]
        heap[0] = heap[size - 1 - place]
        sink(mass, heap, 0, size - 1 - place)
    return stop


@kernel
def random_share(nodes: IntArray, values: ScoreArray, seed: int) -> float:
    """Draw a number from 0 to 1 that depends on the scores alone, so that batches and order make no difference."""
    state = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15)
    for index in range(len(nodes)):
        bits = np.uint64(np.int64(values[index] * 4503599627370496.0)) + np.uint64(nodes[index]) * np.uint64(0x2545F491)
        state = (state ^ bits) * np.uint64(0xBF58476D1CE4E5B9)
        state = state ^ (state >> np.uint64(31))
    state = state * np.uint64(0x94D049BB133111EB)
    return float((state ^ (state >> np.uint64(30))) >> np.uint64(11)) / 9007199254740992.0


@kernel
def score_of_rank(options: SetOptions, share: float, before: float, mass: float, rank: int) -> float:
    """Compute the nonconformity score of the node that comes after others, at a rank from 0 on."""
    if options.kind == LAC:
        return max(0.0, 1.0 - mass)
    return before + share * mass + options.penalty * max(0, rank + 1 - options.k_reg)


@kernel
def list_needed(work: SetRow, taken: int, nodes: int) -> int:
    """List the nodes at or above the first ones in order, by rising index; mark them and those taken.

    `nodes` is the length of the row; where many are needed, looking at all costs less than sorting.
    """
    above, count = work.tree.above, 0
    for rank in range(taken):
        index = work.order[rank]
        work.is_taken[index] = True
        while index >= 0 and not work.is_needed[index]:
            work.is_needed[index] = True
            work.needed[count] = index
            count += 1
            index = above[index]
    if count * DENSE < nodes:
        sort_up(work.needed, 0, count)
        return count
    count = 0
    for index in range(nodes):
        work.needed[count] = index
        count += work.is_needed[index]
    return count


@kernel
def represent(tree: SetTree, nodes: IntArray, taken: int, most: int, work: SetRow, result: IntArray, start: int) -> int:
    """Write the nodes that represent the first ones in order, by rising id; return how many there are, 0: the root.

    The cost of k nodes below a node is leaves x (most + 1) + nodes: the least of what its children cost together, and
    of itself. Costs, from the deepest node up, the nodes at or above those taken x most^2.
    """
    cost, root, most = work.cost, len(nodes), min(most, taken)
    count = list_needed(work, taken, len(nodes))
    cost[root, : most + 1] = 0
    for place in range(count):
        cost[work.needed[place], : most + 1] = 0
    for place in range(count - 1, -1, -1):
        index = work.needed[place]
        parent = work.tree.above[index] if work.tree.above[index] >= 0 else root
        alone = np.int64(tree.leaf_counts[nodes[index]]) * (most + 1) + 1
        for size in range(1, most + 1):
            # Of equal costs, the deeper nodes.
            work.is_alone[index, size] = work.is_taken[index] or alone < cost[index, size]
            cost[index, size] = alone if work.is_alone[index, size] else cost[index, size]
        for size in range(most, -1, -1):
            best, part = np.int64(_IMPOSSIBLE), 0
            for share in range(1, size + 1):
                together = cost[parent, size - share] + cost[index, share]
                if together < best:
                    best, part = together, share
            cost[parent, size], work.split[index, size] = best, part
    size = 0
    if cost[root, most] <= np.int64(tree.leaves) * (most + 1) + 1:
        size = trace_back(nodes, count, most, work, result, start)
    for place in range(count):
        work.is_taken[work.needed[place]] = work.is_needed[work.needed[place]] = False
    return size


@kernel
def trace_back(nodes: IntArray, count: int, most: int, work: SetRow, result: IntArray, start: int) -> int:
    """Go down along the choices that `represent` made, and write the nodes that stand for themselves."""
    budget, root, used = work.budget, len(nodes), start
    budget[root] = most
    for place in range(count):
        index = work.needed[place]
        parent = work.tree.above[index] if work.tree.above[index] >= 0 else root
        budget[index] = 0
        if budget[parent] == 0:
            continue
        # Siblings were joined from the last to the first, so that the share of the first is known first.
        size = work.split[index, budget[parent]]
        budget[parent] -= size
        if work.is_alone[index, size]:
            result[used] = nodes[index]
            used += 1
        else:
            budget[index] = size
    return used - start


@kernel
def choose_node_sets(
    tree: SetTree, options: SetOptions, limits: DoubleArray, everything: float, first: int, rows: ScoreRows
) -> tuple[IntArray, LongArray]:
    """Choose the nodes of each row for its limit; the first row stands at limits[first]."""
    ptr, nodes, values, start, stop = rows
    work = make_set_row(len(tree.parent), longest_row(rows), options.most)
    result = np.empty(max(16, 2 * (stop - start)), np.int32)
    sizes = np.zeros(stop - start, np.int64)
    used: int = np.int64(0)  # type: ignore[assignment]
    for row in range(start, stop):
        limit = limits[first + row - start]
        low, high = ptr[row], ptr[row + 1]
        count = load_masses(tree, nodes[low:high], values[low:high], work) if limit < everything else 0
        share = random_share(nodes[low:high], values[low:high], options.seed) if options.seed >= 0 else 0.0
        taken, ordered, before = 0, 0, 0.0
        while taken < count:
            ordered = sort_bucket(work, taken, count) if taken == ordered else ordered
            mass = work.tree.mass[work.order[taken]]
            if taken > 0 and score_of_rank(options, share, before, mass, taken) > limit:
                break
            taken += 1
            before += mass
        if used + options.most > len(result):
            result = with_room(result, used, options.most)
        if taken > 0:
            sizes[row - start] = represent(tree, nodes[low:high], taken, options.most, work, result, used)
        used += sizes[row - start]
    return result[:used], sizes


@kernel
def cover_limits(
    tree: SetTree, options: SetOptions, truth: LabelRows, everything: float, first: int, rows: ScoreRows
) -> DoubleArray:
    """Find the least limit from which on each row's nodes cover its truth: one of them is true, or it is the root.

    Beyond the score of the first true node, all sets cover. Below it, some do that have fewer nodes, as these are
    represented by nodes above them; the first smaller set that does not ends the search, as does MOST_SEARCHED: a limit
    that is too large covers more.
    Where no node with mass is true, as for a truth inside whose children have all the mass, the search begins with all.
    """
    ptr, nodes, values, start, stop = rows
    true_ptr, true_idx = truth
    work = make_set_row(len(tree.parent), longest_row(rows), options.most)
    stamp = np.full(len(tree.parent), -1, np.int64)
    result = np.empty(options.most, np.int32)
    limits = np.full(stop - start, everything)
    for row in range(start, stop):
        for entry in range(true_ptr[first + row - start], true_ptr[first + row - start + 1]):
            stamp[true_idx[entry]] = row
        low, high = ptr[row], ptr[row + 1]
        count = load_masses(tree, nodes[low:high], values[low:high], work)
        is_known = count <= MOST_UNTRUE
        for place in range(count):
            is_known = is_known or stamp[nodes[low + work.order[place]]] == row
        if not is_known:
            continue
        share = random_share(nodes[low:high], values[low:high], options.seed) if options.seed >= 0 else 0.0
        taken, ordered, before = 0, 0, 0.0
        while taken < count:
            ordered = sort_bucket(work, taken, count) if taken == ordered else ordered
            index = work.order[taken]
            mass = work.tree.mass[index]
            work.scores[taken] = score_of_rank(options, share, before, mass, taken)
            if stamp[nodes[low + index]] == row:
                break
            taken += 1
            before += mass
        work.scores[taken] = everything if taken == count else work.scores[taken]
        limits[row - start] = least_limit(tree, options, nodes[low:high], taken, work, stamp, row, result)
    return limits


@kernel
def least_limit(
    tree: SetTree,
    options: SetOptions,
    nodes: IntArray,
    rank: int,
    work: SetRow,
    stamp: LongArray,
    row: int,
    result: IntArray,
) -> float:
    """Go back from the rank of the first true node while the nodes of smaller sets cover the truth."""
    limit = work.scores[rank]
    for _ in range(MOST_SEARCHED // rank if rank > 0 else 0):
        # Nodes with equal scores are taken together.
        while rank > 0 and work.scores[rank - 1] >= limit:
            rank -= 1
        # Below all scores, the set still has the first node.
        size = represent(tree, nodes, max(1, rank), options.most, work, result, 0)
        covers = size == 0
        for place in range(size):
            covers = covers or stamp[result[place]] == row
        if not covers or rank == 0:
            return 0.0 if covers else limit
        limit = work.scores[rank - 1]
    return limit if rank > 0 else 0.0
