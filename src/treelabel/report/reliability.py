"""How often the likeliest label is right, by the probability that it was given: of the leaves and of each level."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.core.types import DoubleArray
from treelabel.evaluation.statistics import binomial_interval
from treelabel.metrics.registry import find_metric

if TYPE_CHECKING:
    from treelabel.report.systems import ReportSystem


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


def reliability(system: "ReportSystem") -> list[Reliability]:
    """Return the bins of the leaves and of each level, none for a system without scores.

    In a flat hierarchy the leaves are the only level, which is not repeated.
    """
    if system.scores is None:
        return []
    depths = [] if system.hierarchy.max_depth == 1 else list(map(str, range(1, system.hierarchy.max_depth + 1)))
    sums = system.result.sums[find_metric("ece").key]
    # There may be one group more in the sums than is shown.
    return [reliability_of_bins(group, part) for group, part in zip(["leaves", *depths], sums, strict=False)]


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
