"""Find the thresholds by level at which `back_off` has a required precision, on validation data.

Precision is the share of the predicted nodes, one per document, that are true. It is required of every level: a leaf
that is predicted is to be trusted as much as a node of the first level.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy import special

from treelabel.core.compute import BoolArray, DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import LabelMatrix, from_sizes, matches, row_numbers
from treelabel.rules.back_off import NEVER, first_entries, ways_up
from treelabel.scores import Scores

# Precisions, from the required one to 1, that are tried on every level until the margin is kept.
STEPS: Final = 41


@dataclass(frozen=True, eq=False)
class Ways:
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
    def of(cls, scores: Scores, truth: LabelMatrix) -> "Ways":
        """Make the ways of scores, judged by closed truth.

        Parameters
        ----------
        scores
            The scores.
        truth : label matrix of shape (documents, nodes)

        Returns
        -------
        Ways
        """
        h = scores.hierarchy
        nodes, values, sizes = ways_up(scores.coherent())
        ways = from_sizes(nodes, sizes, truth.shape[1])
        rows = row_numbers(ways).astype(np.int64)
        return cls(len(scores), h.max_depth, rows, h.depth[nodes], h.is_leaf[nodes], values, matches(truth, ways))

    def among(self, documents: BoolArray) -> "Ways":
        """Keep the entries of some documents; the number of all documents stays."""
        kept = documents[self.rows]
        return replace(
            self,
            rows=self.rows[kept],
            depth=self.depth[kept],
            is_leaf=self.is_leaf[kept],
            values=self.values[kept],
            is_right=self.is_right[kept],
        )

    def predicted(self, t: DoubleArray) -> LongArray:
        """Return the entries that `back_off` predicts with thresholds by level, at most one per document."""
        first = first_entries(self.rows, self.values >= t[self.depth - 1], self.documents)
        return first[first >= 0]

    def judged(self, t: DoubleArray) -> tuple[BoolArray, BoolArray, IntArray]:
        """Return whether what `back_off` predicts is right, whether it is a leaf, and its depth."""
        entries = self.predicted(t)
        return self.is_right[entries], self.is_leaf[entries], self.depth[entries]


def precise_thresholds(ways: Ways, precision: float, confidence: float = 0.9) -> DoubleArray:
    """Find thresholds by level so that what `back_off` predicts is true with at least the required precision.

    From the deepest level up, a level has the smallest threshold at which the documents that are not predicted deeper
    have the precision there: as many leaves as possible, then as many of their parents. The precision that levels must
    have begins at the required one and rises until the lower Clopper-Pearson bound of all predicted nodes together is
    at least what is required, so that the promise holds on other documents, too. Costs sorting documents x depth
    scores, and at most STEPS passes over them. Precisions of levels with few documents are shrunk.

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
    >>> precise_thresholds(Ways.of(s, h.closure([[0, 1, 0], [0, 1, 0]])), 0.9, confidence=0).tolist()
    [0.75, 2.0]
    """
    if not 0 < precision <= 1:
        raise TreelabelError(f"precision = {precision:g}, expected a share above 0 and at most 1")
    if not 0 <= confidence < 1:
        raise TreelabelError(f"confidence = {confidence:g}, expected a share from 0 to below 1")
    if not len(ways.rows):
        raise TreelabelError("no leaf has a score above 0 in the validation data, so there is no threshold")
    order = np.argsort(-ways.values, kind="stable")
    levels = [order[ways.depth[order] == depth] for depth in range(1, ways.levels + 1)]
    best = 0.0
    for each in 1 - (1 - precision) * np.linspace(1, 0, STEPS):
        t = _by_level(ways, levels, float(each), is_shrunk=confidence > 0)
        predicted = ways.predicted(t)
        bound = lower_bound(int(ways.is_right[predicted].sum()), len(predicted), confidence)
        if len(predicted) and bound >= precision:
            return t
        best = max(best, bound)
    sure = f" with a confidence of {confidence:g}" if confidence else ""
    raise TreelabelError(
        f"no thresholds reach a precision of {precision:g}{sure} on {ways.documents:,} validation documents; the best "
        f"reach {best:.4f}: ask for less, or give more documents"
    )


def _by_level(ways: Ways, levels: list[LongArray], precision: float, is_shrunk: bool) -> DoubleArray:
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


def lower_bound(hits: int, tries: int, confidence: float) -> float:
    """Compute the lower end of the one-sided Clopper-Pearson interval of a share; of confidence 0 it is the share.

    Parameters
    ----------
    hits
        How many of the tries succeeded.
    tries
        How many there were.
    confidence
        The probability that the true share is not below the bound.

    Returns
    -------
    float

    >>> round(lower_bound(95, 100, 0.9), 4), lower_bound(95, 100, 0), lower_bound(0, 0, 0.9)
    (0.9092, 0.95, 0.0)
    """
    if hits == 0:
        return 0.0
    return hits / tries if confidence == 0 else float(special.betaincinv(hits, tries - hits + 1, 1 - confidence))
