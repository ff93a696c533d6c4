"""Metrics of sets of nodes that are to cover the truth, and of climbing from the best leaf where it is uncertain.

A set is the most specific labels that were predicted; none is the root, below which everything is. It covers a document
if one of its nodes is true, or it is the root. Documents without true labels do not count.
"""

import numpy as np

from treelabel.core.types import DoubleArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, from_sizes, keep_entries, matches, row_numbers, row_sizes
from treelabel.metrics.batch import Batch, Context, Parts, Sums, sum_rows
from treelabel.metrics.curves import THRESHOLDS, weight_reached


def _sets(batch: Batch) -> LabelMatrix:
    """The most specific predicted labels, computed once."""
    if _sets not in batch._tables:
        batch._tables[_sets] = batch.hierarchy.most_specific(batch.decisions)
    sets: LabelMatrix = batch._tables[_sets]
    return sets


def _of_labelled(batch: Batch, values: DoubleArray) -> DoubleArray:
    return np.where(row_sizes(batch.truth) > 0, values, np.nan)


def set_coverage(batch: Batch) -> DoubleArray:
    """Whether one of the most specific predicted nodes is true, or nothing is predicted, which is the root.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> set_coverage(example()).tolist()
    [1.0, 0.0, 0.0, nan]
    """
    sets = _sets(batch)
    hits = row_sizes(keep_entries(sets, matches(batch.closed_truth, sets)))
    return _of_labelled(batch, ((hits > 0) | (row_sizes(sets) == 0)).astype(np.float64))


def set_size(batch: Batch) -> DoubleArray:
    """The number of distinct leaves at or below the predicted nodes; all leaves where nothing is predicted.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> set_size(example()).tolist()
    [2.0, 1.0, 2.0, nan]
    """
    sets, h = _sets(batch), batch.hierarchy
    leaves = np.where(row_sizes(sets) > 0, h.count_leaves(sets), len(h.leaves))
    return _of_labelled(batch, leaves.astype(np.float64))


def set_nodes(batch: Batch) -> DoubleArray:
    """The representation complexity: the number of most specific predicted nodes, 1 for the root.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> set_nodes(example()).tolist()
    [1.0, 1.0, 1.0, nan]
    """
    return _of_labelled(batch, np.maximum(1, row_sizes(_sets(batch))).astype(np.float64))


def set_depth(batch: Batch) -> DoubleArray:
    """The mean depth of the most specific predicted nodes, 0 for the root.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> set_depth(example()).tolist()
    [1.0, 2.0, 1.0, nan]
    """
    sets = _sets(batch)
    total = sum_rows(sets, batch.hierarchy.depth[sets.indices])
    return _of_labelled(batch, total / np.maximum(1, row_sizes(sets)))


# Risk and coverage by climbing


def information_kept(hierarchy: Hierarchy) -> DoubleArray:
    """1 - log(leaves at or below) / log(leaves) of every node; the root has 0. With a single leaf all nodes have 1.

    >>> information_kept(Hierarchy.from_paths(["A > B", "A > C", "D > E", "D > F"])).tolist()
    [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]
    """
    counts, leaves = hierarchy.leaf_counts, len(hierarchy.leaves)
    return np.ones(len(counts)) if leaves < 2 else 1 - np.log(counts) / np.log(leaves)


def climbing_points(batch: Batch) -> Parts:
    """Information kept and whether the node is wrong, at each threshold, and whether the document has truth at all.

    At a threshold the node is the deepest one on the path of the best leaf whose score reaches it, as for `back_off`
    with one threshold: at 0.01, 0.02, ..., 1, and last at 0, which is the best leaf itself. Needs a tree.
    """
    h, known = batch.hierarchy, row_sizes(batch.truth) > 0
    scores = batch.coherent_scores
    best = scores.best(h.is_leaf)
    some = best >= 0
    paths = h.closure(from_sizes(best[some], some.astype(np.int64), len(h)))
    above, wrong = h.parent[paths.indices], ~matches(batch.closed_truth, paths)
    kept = information_kept(h)
    # A step down adds what the node has more than its parent; of a path, what is below a wrong node is wrong.
    more = kept[paths.indices] - np.where(above >= 0, kept[above], 0.0)
    first = np.append(True, row_numbers(paths)[1:] != row_numbers(paths)[:-1])[: len(above)]
    more_wrong = wrong & (first | ~np.append(False, wrong[:-1])[: len(above)])
    points = []
    for weights in (more, more_wrong.astype(np.float64)):
        reached = weight_reached(row_numbers(paths), scores.look_up(paths), weights, len(batch))
        points.append(np.hstack([reached, sum_rows(paths, weights)[:, None]]) * known[:, None])
    return points[0], points[1], known[:, None].astype(np.float64)


def climbing_curve(sums: Sums) -> dict[str, DoubleArray]:
    """Return thresholds, mean information kept and the share of wrong nodes, from 0 up; for plots.

    >>> kept = np.append(np.zeros(len(THRESHOLDS)), 1)
    >>> curve = climbing_curve((kept, np.zeros(len(kept)), np.ones(1)))
    >>> curve["threshold"][:2].tolist(), curve["coverage"][:2].tolist()
    ([0.0, 0.01], [1.0, 0.0])
    """
    kept, wrong, known = (np.asarray(part, np.float64) for part in sums)
    documents = known[0] if known[0] > 0 else np.nan
    # The point of threshold 0 stands last in the sums.
    coverage, risk = (np.append(each[-1], each[:-1]) / documents for each in (kept, wrong))
    return {"threshold": np.append(0.0, THRESHOLDS), "coverage": coverage, "risk": risk}


def haurc(sums: Sums, _: Context) -> float:
    """Area under the share of wrong nodes over the mean information kept, climbing at thresholds from 1 down to 0.

    From the root, which is never wrong and keeps nothing, to the best leaf; divided by what that one keeps, which is 1
    where all documents have one. Takes the column sums of what `climbing_points` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> round(haurc(example_sums(climbing_points), example_context()), 3)
    0.167
    """
    curve = climbing_curve(sums)
    coverage, risk = np.append(0.0, curve["coverage"][::-1]), np.append(0.0, curve["risk"][::-1])
    if not coverage[-1] > 0:
        return float("nan")
    return float(np.trapezoid(risk, coverage) / coverage[-1])
