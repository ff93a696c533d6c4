"""Macro-F1 of slices of the labels: by depth, by tenth of training frequency, by bin of training frequency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.core.types import BoolArray, LongArray
from treelabel.evaluation.result import Result
from treelabel.evaluation.significance import relative_improvement
from treelabel.evaluation.statistics import Interval, bootstrap_intervals, thin_labels
from treelabel.metrics.ranking import frequency_bins
from treelabel.metrics.shared_formulas import label_f1

if TYPE_CHECKING:
    from treelabel.report.systems import ReportSystem


@dataclass(frozen=True)
class Slice:
    """Some of the labels: how they are called, how many they are, and the macro-F1 of each system on them."""

    name: str
    labels: int
    values: tuple[Interval, ...]
    detail: str = ""

    @property
    def improvements(self) -> tuple[float, ...]:
        """The improvement of each further system over the first, in percent; NaN where the first has 0."""
        first = self.values[0].value
        return tuple(relative_improvement(first, result.value) for result in self.values[1:])


def by_depth(systems: "Sequence[ReportSystem]") -> list[Slice]:
    """Return macro-F1 by depth of the label (figure 3 of "Revisiting hierarchical text classification")."""
    h = systems[0].hierarchy
    return [
        Slice(
            str(depth),
            h.level_sizes[depth - 1],
            tuple(system.intervals[f"macro_f1_by_depth[{depth}]"] for system in systems),
        )
        for depth in range(1, h.max_depth + 1)
    ]


def by_decile(systems: "Sequence[ReportSystem]") -> list[Slice]:
    """Return macro-F1 by tenth of the labels, the rarest in training first (figure 4 of the same paper)."""
    slices = []
    for tenth, part in enumerate(tenths(systems[0].result.context.frequencies), 1):
        if not len(part):
            continue
        values = tuple(system.intervals[f"macro_f1_by_decile[{tenth}]"] for system in systems)
        counts = systems[0].result.context.frequencies[part]
        slices.append(Slice(str(tenth), len(part), values, _range(int(counts.min()), int(counts.max()))))
    return slices


def tenths(frequencies: LongArray) -> list[LongArray]:
    """Divide labels into ten parts by their frequency, rarest first, as the metric macro_f1_by_decile does.

    >>> [part.tolist() for part in tenths(np.array([5, 1, 3]))][:3]
    [[1], [2], [0]]
    """
    return np.array_split(np.argsort(frequencies, kind="stable"), 10)


def by_bin(systems: "Sequence[ReportSystem]") -> list[Slice]:
    """Return macro-F1 by bin of training frequency: 0, 1-9, 10-99, 100-999, 1000 and more."""
    context = systems[0].result.context
    bins = {name: keep for name, keep in frequency_bins(context.frequencies, context.bin_edges).items() if keep.any()}
    drawn = [macro_f1_intervals(system.result, bins, system.resamples, system.seed) for system in systems]
    return [Slice(name, int(keep.sum()), tuple(results[name] for results in drawn)) for name, keep in bins.items()]


def macro_f1_intervals(
    result: Result, slices: Mapping[str, BoolArray], resamples: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """Compute macro-F1 over slices of the labels, with its intervals.

    Parameters
    ----------
    result : Result
        With documents kept, and with a metric that counts labels.
    slices : mapping of str to array of shape (nodes,)
        The labels of each slice.
    resamples, seed
        As for `Result.interval`.

    Returns
    -------
    dict of Interval
    """
    metric = next(metric for metric in result.metrics if metric.key == result.label_key)

    def values(sums: tuple[Any, ...]) -> dict[str, float]:
        f1 = label_f1(sums)
        return {name: float(f1[keep].mean()) for name, keep in slices.items()}

    parts = result.resampling_parts(metric)
    reasons = thin_labels(parts, values, result.unit)
    return bootstrap_intervals(parts, values, resamples, seed=seed, reasons=reasons)


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}\N{EN DASH}{high:,}"
