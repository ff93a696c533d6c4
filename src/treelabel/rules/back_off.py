"""Backing off: the deepest node of the best leaf's path that can be trusted."""

import numpy as np

from treelabel.core.compute import BoolArray, IntArray, LongArray, ScoreArray, kernel
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import LabelMatrix
from treelabel.rules.rows import over_scores, single_labels
from treelabel.scores import Scores


def back_off(scores: Scores, t: float | None = None, precision: float | None = None) -> LabelMatrix:
    """Begin at the best leaf and go up until the score is at least t; predict that node, or nothing.

    The t for a required precision is found on validation data by `tune(truth, scores, "back_off(precision=0.95)")`. In
    a DAG the way up is that of the largest scores. Linear in the scores.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> s = Scores(h, [[0.6, 0.3, 0.4, 0.2], [0.9, 0.1, 0.9, 0.0]])
    >>> [h.names[node] for node in back_off(s, 0.5).indices]
    ['A', 'B']
    """
    if t is not None and precision is not None:
        raise TreelabelError("t and precision are both given, but t is what a precision is found by; give one of them")
    if t is None:
        wanted = f"back_off(precision={0.95 if precision is None else precision:g})"
        raise TreelabelError(
            f"{wanted} has to be measured on validation data first: tune(truth, scores, {wanted!r}), or "
            f"treelabel tune VALID SCORES --rule '{wanted}'; back_off@0.8 takes a threshold as it is"
        )
    if not 0 <= t <= 1:
        raise TreelabelError(f"t = {t:g}, expected a score from 0 to 1")
    nodes, values, sizes = ways_up(scores.coherent())
    if len(nodes) == 0:
        return single_labels(scores.hierarchy, np.full(len(scores), -1, np.int32))
    first = np.cumsum(sizes) - sizes
    # Scores rise on the way up, so the first to reach t comes after all that do not.
    below = np.add.reduceat(np.append(values < scores.dtype.type(t), False).astype(np.int64), first) * (sizes > 0)
    chosen = np.where(below < sizes, nodes[np.minimum(first + below, len(nodes) - 1)], -1)
    return single_labels(scores.hierarchy, chosen.astype(np.int32))


def ways_up(scores: Scores) -> tuple[IntArray, ScoreArray, LongArray]:
    """List, for each document, the nodes from its best leaf up to the root and their scores; and how many they are."""
    h = scores.hierarchy
    parts = over_scores(scores, lambda *rows: climb(h.parent_ptr, h.parent_idx, h.is_leaf, h.max_depth, *rows))
    nodes, values, sizes = (np.concatenate([part[which] for part in parts]) for which in range(3))
    return nodes, values, sizes


@kernel
def climb(
    parent_ptr: IntArray,
    parent_idx: IntArray,
    is_leaf: BoolArray,
    max_depth: int,
    ptr: LongArray,
    nodes: IntArray,
    values: ScoreArray,
    start: int,
    stop: int,
) -> tuple[IntArray, ScoreArray, LongArray]:
    """Go from the best leaf of each row to the parent with the largest score, and on up."""
    place = np.empty(len(is_leaf), np.int64)
    way = np.empty((stop - start) * max_depth, np.int32)
    scores = np.empty((stop - start) * max_depth, values.dtype)
    sizes = np.zeros(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        at = -1
        for where in range(ptr[row], ptr[row + 1]):
            place[nodes[where]] = where
            if is_leaf[nodes[where]] and (at < 0 or values[where] > values[at]):
                at = where
        while at >= 0:
            way[used], scores[used] = nodes[at], values[at]
            used += 1
            sizes[row - start] += 1
            above = -1
            for edge in range(parent_ptr[nodes[at]], parent_ptr[nodes[at] + 1]):
                if parent_idx[edge] >= 0:
                    where = place[parent_idx[edge]]
                    if above < 0 or values[where] > values[above]:
                        above = where
            at = above
    return way[:used], scores[:used], sizes
