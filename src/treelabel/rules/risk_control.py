"""Risk control: the threshold at which sets of labels, on any paths, have a required recall or precision.

Sets are {n : q(n) >= t}, q(n) being the largest score of n and its descendants; the smaller t, the larger the set. What
is promised of a new document, exchangeable with the validation documents:

- recall without a confidence: the expected share of its true nodes that are predicted is at least that much, over the
  draw of the validation documents and of the new one (conformal risk control: Angelopoulos et al., 2024);
- recall with a confidence: the validation documents were such that this expectation, given them, is at least that much,
  but for a probability of 1 - confidence (learn then test);
- precision: in the same sense, with a confidence, the expected share of predicted nodes that are true, of the documents
  that get a label;
- correct: in the same sense, the share of documents all of whose nodes are true, of those that get a label.

A document without true labels has nothing to miss. Precision and recall of documents are shares, for which no exact
test is known: they are tested by the bounds of Hoeffding and Bentkus, and `correct` by exact binomial tests.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.types import DoubleArray, LongArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelMatrix, keep_entries, matches, row_numbers, row_sizes
from treelabel.rules.risk_bounds import GRID, last_precise, require_share
from treelabel.rules.threshold import threshold
from treelabel.scores.score_matrix import Scores

METRICS_TO_CONTROL: Final = ("recall", "info_recall", "precision", "correct")
USUAL_SHARE: Final = 0.9
# The confidence of what has to have one.
USUAL_CONFIDENCE: Final = 0.95
# Documents whose sets at all thresholds are in memory at once.
STEP: Final = 4096


def risk_control(
    scores: Scores,
    t: float | None = None,
    metric: str = "recall",
    at_least: float = USUAL_SHARE,
    confidence: float | None = None,
) -> LabelMatrix:
    """Predict {n : q(n) >= t}, q(n) being the largest score of n and its descendants. Linear in the scores.

    t is found on validation data by `tune(truth, scores, "risk_control(metric=recall, at_least=0.9)")`, which is what
    the other settings are for.

    Parameters
    ----------
    t
        The threshold, above 0.
    metric
        What is controlled: "recall" of true nodes, "info_recall" (weighted by the information that nodes add),
        "precision" of predicted nodes, or "correct": no false node among them.
    at_least
        The share that is required.
    confidence
        The confidence of the promise; without one, recall is controlled in expectation, and others have 0.95.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> [h.names[node] for node in risk_control(Scores(h, [[0.2, 0.3, 0.4, 0.1]]), 0.25).indices]
    ['A', 'D', 'B']
    """
    RiskControl(metric, at_least, confidence)
    if t is None:
        wanted = f"risk_control(metric={metric}, at_least={at_least:g})"
        raise TreelabelError(
            f"{wanted} has to be calibrated on validation data first: tune(truth, scores, {wanted!r}), or "
            f"treelabel tune VALID SCORES --rule '{wanted}'"
        )
    return threshold(scores.coherent(), t)


@dataclass(frozen=True)
class RiskControl:
    """The quantity to control; the settings of `risk_control`."""

    metric: str = "recall"
    at_least: float = USUAL_SHARE
    confidence: float | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS_TO_CONTROL:
            raise TreelabelError(f"metric = {quote(self.metric)}, expected one of {', '.join(METRICS_TO_CONTROL)}")
        require_share(self.at_least, "at_least")
        if self.confidence is not None:
            require_share(self.confidence, "confidence")

    @classmethod
    def of(cls, settings: Any) -> "RiskControl":
        """Make it of the settings of a rule; others are passed over."""
        names = ("metric", "at_least", "confidence")
        return cls(**{name: settings[name] for name in names if name in settings})

    @property
    def is_recall(self) -> bool:
        """Whether more labels can only help."""
        return self.metric in ("recall", "info_recall")

    @property
    def promise(self) -> str:
        """The promise in words."""
        what = {
            "recall": "of a document's true labels are predicted",
            "info_recall": "of the information of a document's true labels is predicted",
            "precision": "of the predicted labels of a document are true",
            "correct": "of the documents with a label have no false one",
        }[self.metric]
        if self.is_recall and self.confidence is None:
            return f"in expectation, at least {self.at_least:g} {what}"
        sure = USUAL_CONFIDENCE if self.confidence is None else self.confidence
        mean = "" if self.metric == "correct" else ", on average,"
        return f"with a confidence of {sure:g}, at least {self.at_least:g} {what}{mean}".removesuffix(",")

    def find_threshold(self, scores: Scores, truth: LabelMatrix, weights: DoubleArray | None = None) -> float:
        """Find the threshold by validation documents.

        The largest one for recall, the smallest one for precision. Costs sorting the scores of true nodes; for what is
        tested, the scores times the logarithm of the thresholds.

        Parameters
        ----------
        truth : LabelMatrix, documents x nodes
            Closed.
        weights : array of shape (nodes,), optional
            The information that each node adds, for info_recall.

        Returns
        -------
        float
        """
        if (weights is None) == (self.metric == "info_recall"):
            raise TreelabelError(
                "info_recall needs to know how rare labels are in training; pass train_frequencies= (a training "
                "Dataset), or --train FILE"
            )
        raised, most = scores.coherent(), ""
        if self.is_recall and self.confidence is None:
            values, shares = _shares(raised, truth, weights)
            t = _threshold_in_expectation(values, shares, len(scores), 1 - self.at_least)
            least = (shares[values <= 0].sum() + 1) / (len(scores) + 1)
            most = f" (the most that any threshold could promise is {max(0, 1 - least):.3f})"
        else:
            t = self._tested_threshold(raised, truth, weights)
        if t is None:
            sure = "" if self.is_recall and self.confidence is None else f" with a confidence of {self._sure:g}"
            raise TreelabelError(
                f"no threshold has a {self.metric} of {self.at_least:g}{sure} on {len(scores):,} validation documents"
                f"{most}; ask for less, or give more documents"
            )
        return t

    def predict(self, scores: Scores, t: float) -> LabelMatrix:
        """Return the set of each document at a threshold."""
        return risk_control(scores, t)

    def measure(
        self, scores: Scores, truth: LabelMatrix, t: float, weights: DoubleArray | None = None
    ) -> tuple[DoubleArray, LongArray]:
        """Measure what is controlled for each document, NaN where it says nothing; and count predicted nodes."""
        predicted = self.predict(scores, t)
        sizes, hits = row_sizes(predicted), row_sizes(keep_entries(predicted, matches(truth, predicted)))
        if not self.is_recall:
            precision = np.divide(hits, sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
            return np.where(sizes > 0, hits == sizes, np.nan) if self.metric == "correct" else precision, sizes
        values, shares = _shares(scores.coherent(), truth, weights)
        shares *= values >= values.dtype.type(t)
        reached = np.bincount(row_numbers(truth), weights=shares, minlength=len(sizes))
        return np.where(row_sizes(truth) > 0, reached, 1.0), sizes

    @property
    def _sure(self) -> float:
        return USUAL_CONFIDENCE if self.confidence is None else self.confidence

    def _tested_threshold(self, scores: Scores, truth: LabelMatrix, weights: DoubleArray | None) -> float | None:
        """Test a fixed grid of thresholds, from the safest on; None if none passes."""
        if self.is_recall:
            values, shares = _shares(scores, truth, weights)
            reached = np.bincount(_count_passed(values), weights=shares, minlength=len(GRID) + 1)[::-1].cumsum()[::-1]
            without = len(scores) - float(shares.sum())
            # GRID falls: the number of thresholds that a score reaches counts from its end.
            sums, tries = reached[1:] + without, np.full(len(GRID), len(scores))
            last = last_precise(sums, tries, self.at_least, self._sure, are_shares=True)
            return None if last < 0 else float(GRID[::-1][last])
        sums, tries = _precision_sums(scores, truth, self.metric == "correct")
        last = last_precise(sums, tries, self.at_least, self._sure, are_shares=self.metric == "precision")
        return None if last < 0 else float(GRID[last])


def _shares(scores: Scores, truth: LabelMatrix, weights: DoubleArray | None) -> tuple[ScoreArray, DoubleArray]:
    """Return the score of each true node, and its share of its document's (weight of) true nodes."""
    each = np.ones(truth.nnz) if weights is None else weights[truth.indices]
    rows = row_numbers(truth)
    whole = np.bincount(rows, weights=each, minlength=truth.shape[0])[rows]
    return scores.look_up(truth), np.divide(each, whole, out=np.zeros_like(each), where=whole > 0)


def _threshold_in_expectation(values: ScoreArray, shares: DoubleArray, documents: int, most: float) -> float | None:
    """Find the largest t with (missed shares at t + 1) / (documents + 1) of at most `most`; None if there is none."""
    order = np.argsort(values, kind="stable")
    ordered, missed = values[order], np.concatenate([[0.0], np.cumsum(shares[order])])
    # At t = ordered[k], what comes before the first of equal ones is missed.
    before = missed[np.searchsorted(ordered, ordered)]
    allowed = np.flatnonzero((ordered > 0) & (before + 1 <= most * (documents + 1) + 1e-9))
    return float(ordered[allowed[-1]]) if len(allowed) else None


def _count_passed(values: ScoreArray) -> LongArray:
    """Count the thresholds of GRID, from the smallest on, that each score reaches in its own precision."""
    counts: LongArray = np.searchsorted(GRID[::-1].astype(values.dtype), values, side="right")
    return counts


def _precision_sums(scores: Scores, truth: LabelMatrix, is_exact: bool) -> tuple[DoubleArray, LongArray]:
    """Sum over documents with a label, at each threshold of GRID, their precision, or whether it is 1; and count them.

    A document costs its scores and the thresholds.
    """
    csr = scores.csr()
    passed, right = _count_passed(csr.data), matches(truth, csr).astype(np.float64)
    columns = len(GRID) + 1
    sums, tries = np.zeros(len(GRID)), np.zeros(len(GRID), np.int64)
    for low in range(0, len(scores), STEP):
        size = min(STEP, len(scores) - low)
        inside = slice(csr.indptr[low], csr.indptr[low + size])
        rows = np.repeat(np.arange(size), np.diff(csr.indptr[low : low + size + 1]))
        cell = rows * columns + passed[inside]
        # From the highest threshold down; the last column is what reaches none.
        count, hits = (
            # Without any cell, numpy counts in whole numbers.
            np.bincount(cell, each, size * columns).astype(np.float64).reshape(size, columns)[:, ::-1].cumsum(1)[:, :-1]
            for each in (np.ones(len(cell)), right[inside])
        )
        precision = np.divide(hits, count, out=np.zeros_like(hits), where=count > 0)
        sums += ((precision == 1) if is_exact else precision).sum(axis=0)
        tries += (count > 0).sum(axis=0)
    return sums, tries
