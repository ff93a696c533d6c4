"""LCA precision, recall and F (Kosmopoulos et al. 2015): label sets extended up to where they meet, and no further.

Adding all ancestors, as hierarchical precision does, counts an error near a deep label as nearly right, and one near
the top as quite wrong. Here every label is followed up only to the lowest common ancestor with the nearest label of the
other set.
"""

import numpy as np

from treelabel.core.compute import join_rows, kernel
from treelabel.core.types import BoolArray, DoubleArray, IntArray
from treelabel.metrics.batch import Batch
from treelabel.metrics.label_pairs import LabelPairs, label_pairs
from treelabel.metrics.shared_formulas import f_beta, precision, recall


def _meeting_sets(batch: Batch) -> DoubleArray:
    """Compute (a, b, c) of the extended sets, once for all metrics here; needs a tree."""
    if meeting_sets not in batch._tables:
        h = batch.hierarchy
        parent, depth, pairs = h.parent, h.depth, label_pairs(batch)
        batch._tables[meeting_sets] = join_rows(
            lambda start, stop: meeting_sets(pairs, parent, depth, start, stop), len(batch)
        )
    table: DoubleArray = batch._tables[meeting_sets]
    return table


def lca_precision(batch: Batch) -> DoubleArray:
    """LCA precision of each document: c / a of the extended sets.

    Each of the most specific labels brings the path to its lowest common ancestor with the nearest label of the other
    set (of equally near ones, that with the deepest ancestor). An ancestor that only one side reaches is joined to the
    other set by the shortest path to a label of it. The root counts where sets meet there. Needs a tree: in a DAG the
    paper chooses among several ancestors and paths by a search whose result depends on order.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> lca_precision(example()).round(3).tolist()
    [1.0, 0.5, 0.5, 1.0]
    """
    return precision(_meeting_sets(batch))


def lca_recall(batch: Batch) -> DoubleArray:
    """LCA recall of each document: c / b of the extended sets, as in `lca_precision`.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> lca_recall(example()).round(3).tolist()
    [0.5, 0.5, 0.5, 1.0]
    """
    return recall(_meeting_sets(batch))


def lca_f1(batch: Batch) -> DoubleArray:
    """LCA F1 of each document: 2c / (a + b) of the extended sets, as in `lca_precision`.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> lca_f1(example()).round(3).tolist()
    [0.667, 0.5, 0.5, 1.0]
    """
    return f_beta(_meeting_sets(batch))


@kernel
def climb_to(parent: IntArray, depth: IntArray, node: int, level: int) -> int:
    """Return the ancestor of a node at a depth; -1, the root, at depth 0."""
    while node >= 0 and depth[node] > level:
        node = parent[node]
    return node


@kernel
def mark_path(parent: IntArray, marks: BoolArray, node: int, end: int) -> None:
    """Mark the nodes from one up to its ancestor `end`; the root, -1, is marked at the end of the array."""
    while node != end:
        marks[node] = True
        node = parent[node]
    marks[end] = True


@kernel
def meet_nearest(
    pairs: LabelPairs, parent: IntArray, depth: IntArray, row: int, side: int, marks: BoolArray, met: IntArray
) -> None:
    """Mark the path of every label of one side to its lowest common ancestor with its nearest label, kept in `met`."""
    true = pairs.true[pairs.true_ptr[row] : pairs.true_ptr[row + 1]]
    predicted = pairs.predicted[pairs.predicted_ptr[row] : pairs.predicted_ptr[row + 1]]
    table = pairs.distance[pairs.ptr[row] : pairs.ptr[row + 1]].reshape(len(true), len(predicted))
    labels, others = (true, predicted) if side == 0 else (predicted, true)
    for one in range(len(labels)):
        nearest, level = np.inf, 0
        for other in range(len(others)):
            distance = table[one, other] if side == 0 else table[other, one]
            # Up from one label and down to the other: the depth where they meet follows.
            shared = (depth[labels[one]] + depth[others[other]] - int(distance)) // 2
            if distance < nearest or (distance == nearest and shared > level):
                nearest, level = distance, shared
        met[one] = climb_to(parent, depth, labels[one], level)
        mark_path(parent, marks, labels[one], met[one])


@kernel
def join_missing(
    parent: IntArray, depth: IntArray, labels: IntArray, met: IntArray, marks: BoolArray, added: BoolArray
) -> None:
    """Mark in `added` the shortest path to a label (of equals the lowest id) from each ancestor without a mark."""
    for end in met:
        if marks[end]:
            continue
        best = -1
        for label in labels:
            level = depth[end] if end >= 0 else 0
            if climb_to(parent, depth, label, level) == end and (best < 0 or depth[label] < depth[best]):
                best = label
        mark_path(parent, added, best, end)


@kernel
def meeting_sets(pairs: LabelPairs, parent: IntArray, depth: IntArray, start: int, stop: int) -> DoubleArray:
    """Weigh the extended prediction, the extended truth, and what they share: rows (a, b, c)."""
    result = np.zeros((stop - start, 3))
    nodes = len(parent) + 1
    marks, added = np.zeros((2, nodes), np.bool_), np.zeros((2, nodes), np.bool_)
    for row in range(start, stop):
        true = pairs.true[pairs.true_ptr[row] : pairs.true_ptr[row + 1]]
        predicted = pairs.predicted[pairs.predicted_ptr[row] : pairs.predicted_ptr[row + 1]]
        if len(true) == 0 or len(predicted) == 0:
            result[row - start, 0], result[row - start, 1] = len(predicted), len(true)
            continue
        met, met_other = np.zeros(len(true), np.int32), np.zeros(len(predicted), np.int32)
        meet_nearest(pairs, parent, depth, row, 0, marks[0], met)
        meet_nearest(pairs, parent, depth, row, 1, marks[1], met_other)
        join_missing(parent, depth, predicted, met, marks[1], added[1])
        join_missing(parent, depth, true, met_other, marks[0], added[0])
        # All marks lie on the paths of labels to the root.
        for labels in (true, predicted):
            for label in labels:
                node = label
                while True:
                    in_truth = marks[0, node] or added[0, node]
                    in_prediction = marks[1, node] or added[1, node]
                    result[row - start, 0] += in_prediction
                    result[row - start, 1] += in_truth
                    result[row - start, 2] += in_truth and in_prediction
                    marks[:, node] = False
                    added[:, node] = False
                    if node < 0:
                        break
                    node = parent[node]
    return result
