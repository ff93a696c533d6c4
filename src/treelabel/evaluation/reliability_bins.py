"""How often predictions are right, by the probability that they were given."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from treelabel.core.types import BoolArray, DoubleArray, FloatArray
from treelabel.evaluation.statistics import binomial_interval
from treelabel.metrics.probabilities import CALIBRATION_BINS


@dataclass(frozen=True, eq=False)
class Reliability:
    """Documents in bins by the probability of their likeliest label of a group ("leaves", a depth, "held out").

    `confidence` is the mean probability in each bin, `accuracy` how often the label was right, `low` and `high` its 95%
    interval, `counts` the documents; bins without documents are left out. `error` is the expected calibration error.
    """

    group: str
    confidence: DoubleArray
    accuracy: DoubleArray
    low: DoubleArray
    high: DoubleArray
    counts: DoubleArray
    error: float

    @property
    def title(self) -> str:
        """The group for people."""
        return f"Depth {self.group}" if self.group.isdigit() else self.group.capitalize()


def reliability_of_bins(group: str, bins: Any) -> Reliability:
    """Compute the reliability of documents that were counted in bins.

    Parameters
    ----------
    group
        What the documents are judged by.
    bins
        Of each bin the number of documents, the sum of their probabilities, and how many are right.

    Returns
    -------
    Reliability

    >>> result = reliability_of_bins("leaves", [[0, 0, 0], [4, 3.0, 2]])
    >>> result.confidence.tolist(), result.accuracy.tolist(), result.error
    ([0.75], [0.5], 0.25)
    """
    count, confidence, right = np.asarray(bins, np.float64).reshape(-1, 3).T
    some = count > 0
    error = float(np.abs(confidence - right).sum() / count.sum()) if some.any() else float("nan")
    pairs = zip(right[some].tolist(), count[some].tolist(), strict=True)
    ends = [binomial_interval(int(hits), int(tries)) for hits, tries in pairs]
    low, high = np.array([end.low for end in ends]), np.array([end.high for end in ends])
    return Reliability(group, confidence[some] / count[some], right[some] / count[some], low, high, count[some], error)


def reliability_of_predictions(confidences: FloatArray, correct: BoolArray) -> Reliability:
    """Compute the reliability of held-out documents; those without a label, of confidence 0, say nothing.

    Parameters
    ----------
    confidences : array of shape (documents,)
        The probabilities of predictions.
    correct : array of shape (documents,)
        Whether each is right.

    Returns
    -------
    Reliability
        Without bins where no document has a label.

    >>> reliability_of_predictions(np.float32([0.75, 0.75, 0]), np.array([True, False, False])).accuracy.tolist()
    [0.5]
    """
    some = confidences > 0
    confidence = confidences[some].astype(np.float64)
    which = np.minimum((confidence * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    weights = (None, confidence, correct[some].astype(np.float64))
    bins = [np.bincount(which, weight, CALIBRATION_BINS) for weight in weights]
    return reliability_of_bins("held out", np.stack(bins, axis=1))
