"""Distances between the labels of two sets, every predicted one to every true one: the edges up and down again."""

import numpy as np

from treelabel.core.compute import join_rows, kernel, with_room
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelRows, rows_of
from treelabel.metrics.batch import Batch

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
    sets = [rows_of(h.most_specific(labels)) for labels in (batch.truth, batch.decisions)]
    position = np.zeros(len(h), np.int32)
    for _, ids in sets:
        position[ids] = 1
    labels = np.flatnonzero(position).astype(np.int32)
    position[labels] = np.arange(1, len(labels) + 1)
    ways = ways_up(*h.parent_graph, np.append(np.int32(-1), labels))
    true, predicted = ((ptr, position[ids]) for ptr, ids in sets)
    sums = join_rows(lambda start, stop: dag_path_sums(ways, len(h), true, predicted, start, stop), len(batch))
    return sums


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
def dag_path_sums(
    ways: WaysUp, nodes: int, true: LabelRows, predicted: LabelRows, start: int, stop: int
) -> DoubleArray:
    """Sum the edges between all labels of two sets, given as positions in `ways`, where the root is the first."""
    (true_ptr, true_idx), (ptr, idx), (ends, above, steps) = true, predicted, ways
    up = np.full(nodes + 1, -1, np.int32)
    sums = np.empty(stop - start)
    for row in range(start, stop):
        total, (low, high), (first, last) = 0, true_ptr[row : row + 2], ptr[row : row + 2]
        for index in range(max(1, high - low)):
            one = true_idx[low + index] if high > low else 0
            for entry in range(ends[one], ends[one + 1]):
                up[above[entry]] = steps[entry]
            for position in range(max(1, last - first)):
                two = idx[first + position] if last > first else 0
                best = 2 * nodes + 2
                for entry in range(ends[two], ends[two + 1]):
                    if up[above[entry]] >= 0:
                        best = min(best, up[above[entry]] + steps[entry])
                total += best
            for entry in range(ends[one], ends[one + 1]):
                up[above[entry]] = -1
        sums[row - start] = total
    return sums
