"""Back off: predict the deepest node of the best leaf's path that can be trusted.

The thresholds by level at which this has a required precision are found on validation data. Precision is the share of
the predicted nodes, one per document, that are true. It is required of every level: a leaf that is predicted is to be
trusted as much as a node of the first level.

What is promised with a confidence is promised of the thresholds that were chosen, not of each that might have been:
`last_precise` tests a sequence of candidates, which must not depend on what is right in the documents they are tested
on (learn then test: Angelopoulos et al., 2021).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelMatrix, from_sizes, matches, row_numbers
from treelabel.rules.risk_bounds import last_precise
from treelabel.rules.score_rows import ScoreRows, over_scores, single_labels
from treelabel.scores.score_matrix import Scores

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
    nodes, values, sizes = list_leaf_paths(scores.coherent())
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
    thresholds = np.asarray(t, np.float64)
    if thresholds.ndim == 0:
        if not 0 <= thresholds <= 1:
            raise TreelabelError(f"t = {thresholds:g}, expected a score from 0 to 1")
        return np.full(levels + 1, thresholds)
    if thresholds.shape != (levels,):
        raise TreelabelError(f"{thresholds.size:,} thresholds, expected one, or {levels} (one per level)")
    wrong = thresholds[~((thresholds >= 0) & np.isfinite(thresholds))]
    if wrong.size:
        raise TreelabelError(
            f"t has {wrong[0]:g}, expected scores from 0 to 1, or {NEVER:g} for a level never predicted"
        )
    return np.concatenate([[NEVER], thresholds])


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


def list_leaf_paths(scores: Scores) -> tuple[IntArray, ScoreArray, LongArray]:
    """List, for each document, the nodes from its best leaf up to the root and their scores; and how many they are."""
    h = scores.hierarchy
    parts = over_scores(scores, lambda rows: climb(*h.parent_graph, h.is_leaf, h.max_depth, rows))
    nodes, values, sizes = map(np.concatenate, zip(*parts, strict=True))
    return nodes, values, sizes


@kernel
def climb(
    parent_ptr: IntArray, parent_idx: IntArray, is_leaf: BoolArray, max_depth: int, rows: ScoreRows
) -> tuple[IntArray, ScoreArray, LongArray]:
    """Go from the best leaf of each row to the parent with the largest score, and on up."""
    ptr, nodes, values, start, stop = rows
    position = np.empty(len(is_leaf), np.int64)
    way = np.empty((stop - start) * max_depth, np.int32)
    scores = np.empty((stop - start) * max_depth, values.dtype)
    sizes = np.zeros(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        index = -1
        for where in range(ptr[row], ptr[row + 1]):
            position[nodes[where]] = where
            if is_leaf[nodes[where]] and (index < 0 or values[where] > values[index]):
                index = where
        while index >= 0:
            way[used], scores[used] = nodes[index], values[index]
            used += 1
            sizes[row - start] += 1
            above = -1
            for edge in range(parent_ptr[nodes[index]], parent_ptr[nodes[index] + 1]):
                if parent_idx[edge] >= 0:
                    where = position[parent_idx[edge]]
                    if above < 0 or values[where] > values[above]:
                        above = where
            index = above
    return way[:used], scores[:used], sizes


# Precisions, from 1 to the required one, that are tried on every level.
STEPS: Final = 41


@dataclass(frozen=True, eq=False)
class LeafPaths:
    """The ways up of some documents, one entry per node, each from the best leaf to the top.

    `rows`, `depth`, `is_leaf` and `values` (scores) are those of the entries; `is_right` says whether the node is true.
    """

    documents: int
    levels: int
    rows: LongArray
    depth: IntArray
    is_leaf: BoolArray
    values: ScoreArray
    is_right: BoolArray

    @classmethod
    def of(cls, scores: Scores, truth: LabelMatrix) -> "LeafPaths":
        """Make the ways of scores, judged by closed truth.

        Returns
        -------
        Ways
        """
        h = scores.hierarchy
        nodes, values, sizes = list_leaf_paths(scores.coherent())
        ways = from_sizes(nodes, sizes, truth.shape[1])
        rows = row_numbers(ways).astype(np.int64)
        return cls(len(scores), h.max_depth, rows, h.depth[nodes], h.is_leaf[nodes], values, matches(truth, ways))

    def among(self, documents: BoolArray) -> "LeafPaths":
        """Keep the entries of some documents; the number of all documents stays."""
        selected = documents[self.rows]
        entries: Any = ("rows", "depth", "is_leaf", "values", "is_right")
        return replace(self, **{name: getattr(self, name)[selected] for name in entries})

    def predictions(self, t: DoubleArray) -> LongArray:
        """Return the entries that `back_off` predicts with thresholds by level, at most one per document."""
        first = first_entries(self.rows, self.values >= t[self.depth - 1], self.documents)
        return first[first >= 0]

    def outcomes(self, t: DoubleArray) -> tuple[BoolArray, BoolArray, IntArray]:
        """Return whether what `back_off` predicts is right, whether it is a leaf, and its depth."""
        entries = self.predictions(t)
        return self.is_right[entries], self.is_leaf[entries], self.depth[entries]


def precise_thresholds(ways: LeafPaths, precision: float, confidence: float = 0.9) -> DoubleArray:
    """Find thresholds by level so that what `back_off` predicts is true with at least the required precision.

    From the deepest level up, a level has the smallest threshold at which the documents that are not predicted deeper
    have the precision there: as many leaves as possible, then as many of their parents. With a confidence above 0, half
    of the documents, drawn at random, find such thresholds for precisions from 1 down to the required one, and the
    other half tests what each predicts (see `last_precise`): the last thresholds that pass have the required precision
    on other documents, but for a probability of 1 - confidence. Costs sorting documents x depth scores, and STEPS
    passes over them. Precisions of levels with few documents are shrunk.

    Parameters
    ----------
    ways : Ways
        Validation documents.
    precision : float
        Above 0 and at most 1.
    confidence : float
        Of the bound, from 0 to below 1; 0 takes the precision on validation data for the true one.

    Returns
    -------
    array of float, shape (levels,)
        `NEVER` for levels at which nothing can be predicted.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> s = Scores(h, [[0.75, 0.5, 0.25], [0.75, 0.25, 0.5]])
    >>> precise_thresholds(LeafPaths.of(s, h.closure([[0, 1, 0], [0, 1, 0]])), 0.9, confidence=0).tolist()
    [0.75, 2.0]
    """
    if not 0 < precision <= 1:
        raise TreelabelError(f"precision = {precision:g}, expected a share above 0 and at most 1")
    if not 0 <= confidence < 1:
        raise TreelabelError(f"confidence = {confidence:g}, expected a share from 0 to below 1")
    if not len(ways.rows):
        raise TreelabelError("no leaf has a score above 0 in the validation data, so there is no threshold")
    if confidence == 0:
        (t,) = _candidates(ways, [precision], is_shrunk=False)
        if not len(ways.predictions(t)):
            raise TreelabelError(_not_reached(ways, precision, ""))
        return t
    # Documents often come sorted by their labels. Those that `among` left out have no ways.
    is_first = np.zeros(ways.documents, np.bool_)
    drawn = np.random.default_rng(0).permutation(np.unique(ways.rows))
    is_first[drawn[: len(drawn) // 2]] = True
    tried = _candidates(ways.among(is_first), 1 - (1 - precision) * np.linspace(0, 1, STEPS), is_shrunk=True)
    others = ways.among(~is_first)
    outcomes = [others.is_right[others.predictions(t)] for t in tried]
    last = last_precise([int(each.sum()) for each in outcomes], [len(each) for each in outcomes], precision, confidence)
    if last < 0:
        raise TreelabelError(_not_reached(ways, precision, f" with a confidence of {confidence:g}"))
    return tried[last]


def _not_reached(ways: LeafPaths, precision: float, confidence: str) -> str:
    return (
        f"no thresholds reach a precision of {precision:g}{confidence} on {ways.documents:,} validation documents; ask "
        "for less, or give more documents"
    )


def _candidates(ways: LeafPaths, precisions: npt.ArrayLike, is_shrunk: bool) -> list[DoubleArray]:
    """Find the thresholds of all levels for each of some precisions."""
    order = np.argsort(-ways.values, kind="stable")
    levels = [order[ways.depth[order] == depth] for depth in range(1, ways.levels + 1)]
    return [_by_level(ways, levels, each, is_shrunk) for each in np.asarray(precisions, np.float64).tolist()]


def _by_level(ways: LeafPaths, levels: list[LongArray], precision: float, is_shrunk: bool) -> DoubleArray:
    """Find the smallest threshold of each level, the deepest first, that has the precision among documents left.

    A precision that is shrunk is the median of its Clopper-Pearson bound, near (hits - 1/3) / (tries + 1/3): three of
    three documents are no reason to trust a level.
    """
    third = 1 / 3 if is_shrunk else 0.0
    t = np.full(ways.levels, NEVER)
    is_left = np.ones(ways.documents, np.bool_)
    for depth in range(ways.levels, 0, -1):
        entries = levels[depth - 1]
        entries = entries[is_left[ways.rows[entries]]]
        values = ways.values[entries]
        reached = (np.cumsum(ways.is_right[entries]) - third) / (np.arange(1, len(entries) + 1) + third)
        is_last = np.append(values[1:] < values[:-1], True)[: len(entries)]
        # Sums of whole numbers: 9 of 10 are to be 0.9.
        enough = np.flatnonzero(is_last & (reached >= precision * (1 - 1e-12)))
        if len(enough):
            t[depth - 1] = values[enough[-1]]
            is_left[ways.rows[entries[: enough[-1] + 1]]] = False
    return t
