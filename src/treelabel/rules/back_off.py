"""Backing off: the deepest node of the best leaf's path that can be trusted."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy import LabelMatrix
from treelabel.rules.rows import over_scores, single_labels
from treelabel.scores import Scores

# The threshold of a level that is never predicted.
NEVER: Final = 2.0


def back_off(
    scores: Scores,
    t: float | Sequence[float] | ScoreArray | None = None,
    precision: float | None = None,
    confidence: float = 0.9,
) -> LabelMatrix:
    """Begin at the best leaf and go up until the score is at least t; predict that node, or nothing.

    t is one number, or one per level (depth), above 1 for a level that is never predicted. Those for a required
    precision are found on validation data by `tune(truth, scores, "back_off(precision=0.95)")`, which is also what
    `precision` and `confidence` are for. In a DAG the way up is that of the largest scores. Linear in the scores.

    Parameters
    ----------
    scores
        The scores.
    t
        The thresholds.
    precision
        The required precision; only for `tune`.
    confidence
        The confidence with which it must be reached; only for `tune`.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> s = Scores(h, [[0.6, 0.3, 0.4, 0.2], [0.9, 0.1, 0.9, 0.0]])
    >>> [[h.names[node] for node in back_off(s, t).indices] for t in (0.5, [0.5, 0.3])]
    [['A', 'B'], ['B', 'B']]
    """
    if t is not None and precision is not None:
        raise TreelabelError("t and precision are both given, but t is what a precision is found by; give one of them")
    if t is None:
        wanted = f"back_off(precision={0.95 if precision is None else precision:g})"
        raise TreelabelError(
            f"{wanted} has to be measured on validation data first: tune(truth, scores, {wanted!r}), or "
            f"treelabel tune VALID SCORES --rule '{wanted}'; back_off@0.8 takes a threshold as it is"
        )
    h = scores.hierarchy
    least = by_level(t, h.max_depth).astype(scores.dtype)
    nodes, values, sizes = ways_up(scores.coherent())
    entries = first_entries(np.repeat(np.arange(len(sizes)), sizes), values >= least[h.depth[nodes]], len(sizes))
    chosen = np.full(len(sizes), -1, np.int32)
    chosen[entries >= 0] = nodes[entries[entries >= 0]]
    return single_labels(h, chosen)


def by_level(t: float | Sequence[float] | ScoreArray, levels: int) -> DoubleArray:
    """Return the threshold of every depth, 0 included, refusing what is no threshold.

    Parameters
    ----------
    t
        One threshold, or one per level.
    levels
        The number of levels.

    Returns
    -------
    array of shape (levels + 1,)

    >>> by_level(0.5, 2).tolist(), by_level([0.5, 0.25], 2).tolist()
    ([0.5, 0.5, 0.5], [2.0, 0.5, 0.25])
    """
    given = np.asarray(t, np.float64)
    if given.ndim == 0:
        if not 0 <= given <= 1:
            raise TreelabelError(f"t = {given:g}, expected a score from 0 to 1")
        return np.full(levels + 1, given)
    if given.shape != (levels,):
        raise TreelabelError(f"{given.size:,} thresholds, expected one, or {levels} (one per level)")
    wrong = given[~((given >= 0) & np.isfinite(given))]
    if wrong.size:
        raise TreelabelError(
            f"t has {wrong[0]:g}, expected scores from 0 to 1, or {NEVER:g} for a level never predicted"
        )
    return np.concatenate([[NEVER], given])


def first_entries(rows: LongArray, reached: BoolArray, documents: int) -> LongArray:
    """Find the first entry of each document that reached its threshold, -1 where none did.

    Parameters
    ----------
    rows
        The document of each entry.
    reached
        Marks the entries that reached their threshold.
    documents
        The number of documents.

    Returns
    -------
    array of shape (documents,)
    """
    first = np.full(documents, -1, np.int64)
    # Of entries that are written to one place the last one stays.
    entries = np.flatnonzero(reached)[::-1]
    first[rows[entries]] = entries
    return first


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
