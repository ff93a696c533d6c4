"""How often the likeliest label is right, by the probability that it was given: of the leaves and of each level."""

from typing import TYPE_CHECKING

from treelabel.evaluation.reliability_bins import Reliability, reliability_of_bins
from treelabel.metrics.registry import find_metric

if TYPE_CHECKING:
    from treelabel.report.systems import ReportSystem


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
