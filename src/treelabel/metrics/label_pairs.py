"""Distances between the labels of two sets, every predicted one to every true one: the edges up and down again."""

import numpy as np

from treelabel.core.compute import join_rows, kernel, with_room
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelRows, rows_of
from treelabel.metrics.batch import Batch, Context, Parts, Sums

# The ancestors of some labels, the label and the root included, and the fewest edges up to each: the entries of label i
# are ptr[i]:ptr[i + 1]. The root is one more than the last node.
WaysUp = tuple[LongArray, IntArray, IntArray]


def shortest_path_sum(batch: Batch) -> DoubleArray:
    """Sum of the distances between all true and all predicted labels (the submission's footnote 8); lower is better.

    Both sets are taken at their most specific labels, since ancestors are said with them; the way leads through the
    root if need be. It is `shortest_path` for one label each. The root stands for an empty set; two empty ones have 0.
    Equal sets of several labels have a sum above 0. In a tree a document costs as much as its closed sets, in a DAG as
    the ancestors of both labels of every pair.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> shortest_path_sum(example()).round(3).tolist()
    [1.0, 2.0, 2.0, 0.0]
    """
    h = batch.hierarchy
    sums: DoubleArray
    if h.is_tree:
        closed = h.parent, rows_of(batch.closed_truth), rows_of(batch.closed_decisions)
        sums = join_rows(lambda start, stop: tree_path_sums(*closed, start, stop), len(batch))
        return sums
    ways, true, predicted = terminal_ways(batch)
    sums = join_rows(lambda start, stop: dag_path_sums(ways, len(h), true, predicted, start, stop), len(batch))
    return sums


def distance_contributions(batch: Batch, acceptable: float = 2.0) -> Parts:
    """Count hits, false and missed labels of each document, and what wrong ones contribute, as Sun and Lim do.

    A wrong label c contributes sum over the labels c' of the other set of 1 - distance(c, c') / acceptable, cut to
    [-1, 1]; the distance is in edges. A document costs as much as the ancestors of both labels of every pair.

    Parameters
    ----------
    batch
        Documents with truth and decisions.
    acceptable
        The distance at which a contribution is 0.

    Returns
    -------
    one matrix of shape (documents, 6): hits, false, missed, contributions of false and of missed labels, 1
    """
    if acceptable <= 0:
        raise TreelabelError(f"acceptable = {acceptable:g}: expected a distance above 0")
    ways, true, predicted = terminal_ways(batch)
    nodes = len(batch.hierarchy)
    parts: DoubleArray = join_rows(
        lambda start, stop: contributions(ways, nodes, true, predicted, acceptable, start, stop), len(batch)
    )
    return (parts,)


def distance_precision(sums: Sums, _: Context) -> float:
    """Distance-based precision (Sun and Lim 2001), micro: max(0, TP + FpCon + FnCon) / (TP + FP + FnCon).

    FpCon and FnCon sum what false and missed labels contribute. A denominator of 0 or less gives 0, and so do sets that
    are all empty, as in flat metrics.

    Takes the column sums of what `distance_contributions` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> parts = lambda batch: distance_contributions(batch, 4.0)
    >>> round(distance_precision(example_sums(parts), example_context()), 3)
    0.737
    """
    hits, false, _missed, false_part, missed_part, documents = sums[0]
    return _share(hits + false_part + missed_part, hits + false + missed_part, documents)


def distance_recall(sums: Sums, _: Context) -> float:
    """Distance-based recall (Sun and Lim 2001), micro: max(0, TP + FpCon + FnCon) / (TP + FN + FpCon).

    As `distance_precision`.

    Takes the column sums of what `distance_contributions` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> parts = lambda batch: distance_contributions(batch, 4.0)
    >>> round(distance_recall(example_sums(parts), example_context()), 3)
    0.737
    """
    hits, _false, missed, false_part, missed_part, documents = sums[0]
    return _share(hits + false_part + missed_part, hits + missed + false_part, documents)


def _share(part: float, whole: float, documents: float) -> float:
    if not documents:
        return float("nan")
    return float(max(0.0, part) / whole) if whole > 0 else 0.0


def terminal_ways(batch: Batch) -> tuple[WaysUp, LabelRows, LabelRows]:
    """List the ways up from the root, first, and from all most specific labels.

    Returns
    -------
    (ways, true labels, predicted labels)
        Labels of documents as positions in the ways.
    """
    h = batch.hierarchy
    sets = [rows_of(h.most_specific(labels)) for labels in (batch.truth, batch.decisions)]
    position = np.zeros(len(h), np.int32)
    for _, ids in sets:
        position[ids] = 1
    labels = np.flatnonzero(position).astype(np.int32)
    position[labels] = np.arange(1, len(labels) + 1)
    ways = ways_up(*h.parent_graph, np.append(np.int32(-1), labels))
    true, predicted = ((ptr, position[ids]) for ptr, ids in sets)
    return ways, true, predicted


@kernel
def count_below(parent: IntArray, closed: IntArray, counts: LongArray) -> tuple[int, int]:
    """Count, for each node of a closed set, the most specific labels at or below it; their number and sum.

    Children have larger ids, so a node without a count is reached before its own descendants were, and has none.
    """
    labels, total = 0, 0
    for index in range(len(closed) - 1, -1, -1):
        node = closed[index]
        if counts[node] == 0:
            counts[node] = 1
            labels += 1
        total += counts[node]
        if parent[node] >= 0:
            counts[parent[node]] += counts[node]
    return labels, total


@kernel
def tree_path_sums(parent: IntArray, true: LabelRows, predicted: LabelRows, start: int, stop: int) -> DoubleArray:
    """Sum the edges between all most specific labels of closed sets over a tree.

    An edge lies between two labels if just one of them is below it. With t and p labels below it, of `labels` and
    `others`, that are t (others - p) + p (labels - t) pairs.
    """
    (true_ptr, true_idx), (ptr, idx) = true, predicted
    below = np.zeros((2, len(parent)), np.int64)
    sums = np.empty(stop - start)
    for row in range(start, stop):
        truth, chosen = true_idx[true_ptr[row] : true_ptr[row + 1]], idx[ptr[row] : ptr[row + 1]]
        labels, total = count_below(parent, truth, below[0])
        others, other_total = count_below(parent, chosen, below[1])
        both = 0
        for node in truth:
            both += below[0, node] * below[1, node]
            below[0, node] = 0
        for node in chosen:
            below[1, node] = 0
        # The root stands for an empty set.
        sums[row - start] = total * max(1, others) + other_total * max(1, labels) - 2 * both
    return sums


@kernel
def ways_up(ptr: IntArray, idx: IntArray, labels: IntArray) -> WaysUp:
    """List the ancestors of labels (-1: the root) with the fewest edges up to each, nearest first."""
    nodes = len(ptr) - 1
    stamp = np.full(nodes + 1, -1, np.int32)
    above, steps = np.empty(nodes + 1, np.int32), np.empty(nodes + 1, np.int32)
    ends = np.zeros(len(labels) + 1, np.int64)
    # Of a literal, numba would compile the loops that get it once more.
    used: int = np.int64(0)  # type: ignore[assignment]
    for label in range(len(labels)):
        if used + nodes + 1 > len(above):
            above, steps = with_room(above, used, nodes + 1), with_room(steps, used, nodes + 1)
        taken = used
        above[used] = labels[label] if labels[label] >= 0 else nodes
        steps[used] = 0
        used += 1
        while taken < used:
            node = above[taken]
            for near in idx[ptr[node] : ptr[node + 1]] if node < nodes else idx[:0]:
                up = near if near >= 0 else nodes
                if stamp[up] != label:
                    stamp[up] = label
                    above[used] = up
                    steps[used] = steps[taken] + 1
                    used += 1
            taken += 1
        ends[label + 1] = used
    return ends, above[:used], steps[:used]


@kernel
def mark_ways(ways: WaysUp, up: IntArray, label: int, is_marked: bool) -> None:
    """Set `up` to the edges from a label to all that is above it, or back to -1."""
    ends, above, steps = ways
    for entry in range(ends[label], ends[label + 1]):
        up[above[entry]] = steps[entry] if is_marked else -1


@kernel
def edges_between(ways: WaysUp, up: IntArray, label: int) -> int:
    """Count the edges of the shortest way to a label from one whose edges to all that is above it are `up`, else -1."""
    ends, above, steps = ways
    best = 2 * len(up)
    for entry in range(ends[label], ends[label + 1]):
        if up[above[entry]] >= 0:
            best = min(best, up[above[entry]] + steps[entry])
    return best


@kernel
def dag_path_sums(
    ways: WaysUp, nodes: int, true: LabelRows, predicted: LabelRows, start: int, stop: int
) -> DoubleArray:
    """Sum the edges between all labels of two sets, given as positions in `ways`, where the root is the first."""
    (true_ptr, true_idx), (ptr, idx) = true, predicted
    up = np.full(nodes + 1, -1, np.int32)
    sums = np.empty(stop - start)
    for row in range(start, stop):
        total, (low, high), (first, last) = 0, true_ptr[row : row + 2], ptr[row : row + 2]
        for index in range(max(1, high - low)):
            one = true_idx[low + index] if high > low else 0
            mark_ways(ways, up, one, True)
            for position in range(max(1, last - first)):
                two = idx[first + position] if last > first else 0
                total += edges_between(ways, up, two)
            mark_ways(ways, up, one, False)
        sums[row - start] = total
    return sums


@kernel
def contributions(
    ways: WaysUp, nodes: int, true: LabelRows, predicted: LabelRows, acceptable: float, start: int, stop: int
) -> DoubleArray:
    """Count hits, false and missed labels, what the latter two contribute, and the document."""
    (true_ptr, true_idx), (ptr, idx) = true, predicted
    up = np.full(nodes + 1, -1, np.int32)
    result = np.zeros((stop - start, 6))
    for row in range(start, stop):
        truth, chosen = true_idx[true_ptr[row] : true_ptr[row + 1]], idx[ptr[row] : ptr[row + 1]]
        missed, false = np.zeros(len(truth)), np.zeros(len(chosen))
        for index in range(len(truth)):
            mark_ways(ways, up, truth[index], True)
            for position in range(len(chosen)):
                # A hit is counted, and contributes nothing, whatever else is near.
                is_hit = chosen[position] == truth[index]
                gain = np.inf if is_hit else 1.0 - edges_between(ways, up, chosen[position]) / acceptable
                missed[index] += gain
                false[position] += gain
            mark_ways(ways, up, truth[index], False)
        values = result[row - start]
        values[1], values[3] = sum_contributions(false)
        values[2], values[4] = sum_contributions(missed)
        values[0], values[5] = len(chosen) - values[1], 1.0
    return result


@kernel
def sum_contributions(gains: DoubleArray) -> tuple[float, float]:
    """Count the wrong labels, which are those with a finite contribution, and sum these, each within [-1, 1]."""
    count, total = 0.0, 0.0
    for gain in gains:
        if gain < np.inf:
            count += 1.0
            total += min(1.0, max(-1.0, gain))
    return count, total
