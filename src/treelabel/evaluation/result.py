"""Result: the values of metrics, with everything needed to say how sure they are."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from treelabel.core.errors import TreelabelError
from treelabel.core.html_tables import html_box, html_sentence, html_table
from treelabel.core.plots import draw
from treelabel.core.types import DoubleArray
from treelabel.evaluation.statistics import (
    Interval,
    bootstrap_intervals,
    bootstrap_sums,
    resampled_interval,
    sum_by_group,
    thin_labels,
)
from treelabel.evaluation.sums import Coverage, Remarks
from treelabel.metrics.batch import Context
from treelabel.metrics.curves import curve as operating_curve
from treelabel.metrics.curves import hierarchical_points, information_points
from treelabel.metrics.label_counts import label_counts
from treelabel.metrics.metric import Metric
from treelabel.metrics.probabilities import coverage_bins, coverage_curve
from treelabel.metrics.ranking import frequency_bins
from treelabel.metrics.registry import find_metric
from treelabel.metrics.sets import climbing_curve, climbing_points
from treelabel.metrics.shared_formulas import by_label, f_beta, precision, recall


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Values by metric: `result["hf1"]`; parts of a metric as `result["level_accuracy[2]"]`.

    `interval` returns bootstrap confidence intervals over documents; `documents` the value of each document; `labels`,
    `levels` and `bins` (of training frequency) are tables; `curves` what can be plotted. `str(result)` is a table.
    `rule` made the decisions of scores; `is_default_rule` says that nobody asked for it. `coverage` tells how many
    documents got a label and a leaf, and the values of those alone. Where `groups` of documents are known, intervals
    draw whole groups: documents of one customer are not so many independent ones. `skipped` tells which metrics that
    were asked for do not apply, and why; `remarks` what else a reader must know of the documents.
    """

    metrics: Sequence[Metric]
    sums: Mapping[Any, tuple[Any, ...]]
    context: Context
    count: int
    rule: str | None
    parts: Mapping[Any, tuple[Any, ...]] = field(default_factory=dict)
    is_default_rule: bool = False
    coverage: Coverage | None = None
    groups: tuple[str, ...] | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    remarks: Remarks = field(default_factory=Remarks)
    # What the levels of the hierarchy are called, from the top on, where data have a column for each.
    level_names: tuple[str, ...] = ()

    @cached_property
    def values(self) -> dict[str, float]:
        """The value of every metric, and of its parts in brackets."""
        values: dict[str, float] = {}
        for metric in self.metrics:
            values |= self._named_values(metric, self.sums[metric.key]) if self.sums else {metric.name: float("nan")}
        return values

    def _named_values(self, metric: Metric, sums: tuple[Any, ...]) -> dict[str, float]:
        """A metric's value of some sums under its name, and those of its parts in brackets."""
        value = metric.value_of(sums, self.context)
        if not isinstance(value, dict):
            return {metric.name: value}
        return {metric.name if part == "mean" else f"{metric.name}[{part}]": result for part, result in value.items()}

    def __getitem__(self, name: str) -> float:
        known = name if name in self.values else _canonical_name(name)
        if known not in self.values:
            raise TreelabelError(f"metric {name!r} was not asked for; there are: {', '.join(self.values)}")
        return self.values[known]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the hierarchy."""
        return self.context.hierarchy.fingerprint

    @cached_property
    def documents(self) -> dict[str, DoubleArray]:
        """The value of each document, for metrics that are a mean over documents (NaN: it does not count)."""
        result = {}
        for metric in self.metrics:
            if metric.documents is not None and metric.key in self.parts:
                value, known = self.parts[metric.key][0].T
                result[metric.name] = np.where(known > 0, value, np.nan)
        return result

    def interval(self, name: str, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> Interval:
        """Compute a bootstrap confidence interval over documents.

        A mean over labels has none where more than a fifth of its labels have fewer than five documents.

        Parameters
        ----------
        name : str
            A metric, or a part of one: "level_accuracy[2]".
        level : float
            The confidence level.
        resamples : int
            How often documents are drawn with replacement.
        seed : int
            Seed of the random numbers.

        Returns
        -------
        Interval
            Its `reason` says why there are no ends, if there are none.
        """
        return self.interval_of(name, self.bootstrap_values(name, resamples, seed), level)

    def interval_of(self, name: str, bootstrap_values: DoubleArray, level: float = 0.95) -> Interval:
        """Compute the interval of a metric from its values on resampled documents.

        Parameters
        ----------
        name : str
            A metric, or a part of one.
        resampled : array of shape (resamples,)
            As the method `bootstrap_values` returns it.
        level : float
            The confidence level.

        Returns
        -------
        Interval
        """
        metric, value = self.value_function(name)
        parts = self.resampling_parts(metric)
        point = value(tuple(np.asarray(part.sum(axis=0)).ravel() for part in parts))
        reason, shares = self.why_no_interval(name), share_documents(metric, parts)
        count = shares.get(name if name in self.values else _canonical_name(name), 0)
        return resampled_interval(bootstrap_values, point, parts[0].shape[0], level, reason, share_of=count)

    def why_no_interval(self, name: str) -> str:
        """Tell why a metric, or a part of one, has no interval: a mean over labels with few documents; "" if it has."""
        metric, value = self.value_function(name)
        if metric.over_labels is None:
            return ""
        parts = self.resampling_parts(metric)
        return thin_labels(parts, lambda sums: {"": value(sums)}, self.unit, metric.over_labels).get("", "")

    def bootstrap_values(self, name: str, resamples: int = 1000, seed: int = 0) -> DoubleArray:
        """Compute a metric on resampled documents, the same draws for all results on as many documents.

        Parameters
        ----------
        name : str
            A metric, or a part of one.
        resamples : int
            How often documents are drawn with replacement.
        seed : int
            Seed of the random numbers.

        Returns
        -------
        array of shape (resamples,)
        """
        metric, value = self.value_function(name)
        return np.array([value(sums) for sums in bootstrap_sums(self.resampling_parts(metric), resamples, seed)])

    @property
    def unit(self) -> str:
        """Name the rows that are drawn for intervals: "documents" or "groups"."""
        return "documents" if self.groups is None else "groups"

    def intervals(self, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> dict[str, Interval]:
        """Compute the intervals of all values, by name; metrics that share their parts share the resampling.

        Parameters are those of `interval`.

        Parameters
        ----------
        level
            The probability that an interval covers the value.
        resamples
            How many resamples to draw.
        seed
            Draws the same resamples again.

        Returns
        -------
        dict of Interval
        """
        self._require_documents()
        result: dict[str, Interval] = {}
        for key in {metric.key: None for metric in self.metrics}:
            rows = [metric for metric in self.metrics if metric.key == key]

            means = [metric for metric in rows if metric.over_labels is not None]
            parts = self.resampling_parts(rows[0])

            def values(sums: tuple[Any, ...], rows: list[Metric] = rows) -> dict[str, float]:
                return {name: value for metric in rows for name, value in self._named_values(metric, sums).items()}

            reasons = {}
            if means and means[0].over_labels is not None:
                reasons = thin_labels(parts, partial(values, rows=means), self.unit, means[0].over_labels)
            shares = {name: count for metric in rows for name, count in share_documents(metric, parts).items()}
            result |= bootstrap_intervals(parts, values, resamples, level, seed, reasons, shares)
        return {name: result[name] for name in self.values}

    def value_function(self, name: str) -> tuple[Metric, Callable[[tuple[Any, ...]], float]]:
        """Find the metric behind a name, and how its value (or the part in brackets) comes from sums."""
        base, bracket, part = name.removesuffix("]").partition("[")
        metric = next((row for row in self.metrics if row.name in (base, _canonical_name(base))), None)
        full = f"{metric.name}[{part}]" if metric is not None and bracket else metric and metric.name
        if metric is None or (bracket and full not in self.values):
            raise TreelabelError(f"metric {name!r} was not asked for; there are: {', '.join(self.values)}")
        self._require_documents()
        return metric, lambda sums: self._named_values(metric, sums).get(str(full), float("nan"))

    def resampling_parts(self, metric: Metric) -> tuple[Any, ...]:
        """Return the additive parts of a metric, a row for each document, or for each group if there are groups."""
        parts = self.parts[metric.key]
        return parts if self.groups is None else sum_by_group(parts, self.groups)

    def _require_documents(self) -> None:
        if not self.parts:
            raise TreelabelError("intervals need the documents: evaluate with keep_documents=True")

    # Tables

    @cached_property
    def label_key(self) -> Any:
        """The key of the sums and parts that count labels; None where no metric does."""
        return next((metric.key for metric in self.metrics if metric.parts is label_counts), None)

    @cached_property
    def labels(self) -> pa.Table:
        """Precision, recall, F1, true and predicted documents of every label (needs a metric that counts labels)."""
        if self.label_key not in self.sums:
            raise TreelabelError("the table of labels needs a metric that counts labels, such as micro_f1")
        abc, h = by_label(self.sums[self.label_key]), self.context.hierarchy
        return pa.table(
            {
                "label": h.name_array,
                "depth": h.depth,
                "precision": precision(abc, if_empty=0.0),
                "recall": recall(abc, if_empty=0.0),
                "f1": f_beta(abc, if_empty=0.0),
                "true": abc[:, 1].astype(np.int64),
                "predicted": abc[:, 0].astype(np.int64),
            }
        )

    @cached_property
    def levels(self) -> pa.Table:
        """Micro and macro F1 of each level."""
        table, h = self.labels, self.context.hierarchy
        f1 = table.column("f1").to_numpy()
        abc = by_label(self.sums[self.label_key])
        depths = range(1, h.max_depth + 1)
        return pa.table(
            {
                "depth": list(depths),
                "nodes": h.level_sizes,
                "micro_f1": [
                    float(f_beta(abc[h.level(d)].sum(axis=0, keepdims=True), if_empty=0.0)[0]) for d in depths
                ],
                "macro_f1": [float(f1[h.level(d)].mean()) for d in depths],
            }
        )

    @cached_property
    def bins(self) -> pa.Table:
        """Macro F1 of the labels by training frequency."""
        f1 = self.labels.column("f1").to_numpy()
        result = {
            name: keep
            for name, keep in frequency_bins(self.context.frequencies, self.context.bin_edges).items()
            if keep.any()
        }
        return pa.table(
            {
                "frequency": list(result),
                "labels": [int(keep.sum()) for keep in result.values()],
                "macro_f1": [float(f1[keep].mean()) for keep in result.values()],
            }
        )

    @cached_property
    def curves(self) -> dict[str, dict[str, DoubleArray]]:
        """Return what can be plotted, of the metrics asked for: arrays by name.

        `selective_accuracy` adds "coverage" (accuracy of the documents above each threshold), `best_hf1` and
        `best_info_hf1` add "hierarchical" and "information" (mean precision and recall at each threshold), `haurc` adds
        "climbing" (risk over information kept, climbing from the best leaf at each threshold).
        """
        known = {
            coverage_bins: ("coverage", coverage_curve),
            hierarchical_points: ("hierarchical", operating_curve),
            information_points: ("information", operating_curve),
            climbing_points: ("climbing", climbing_curve),
        }
        result = {}
        for metric in self.metrics:
            # A convention that is switched is a function around the metric's own.
            parts = getattr(metric.parts, "of", metric.parts)
            if parts in known:
                name, make = known[parts]
                _, bracket, settings = metric.name.partition("(")
                result[name + bracket + settings] = make(self.sums[metric.key])
        return result

    def rows(self, intervals: bool = False) -> list[tuple[str, str]]:
        """Return (metric, value) pairs for people to read."""
        result = self.intervals() if intervals and self.parts else {}
        rows = []
        for name, value in self.values.items():
            shown = "inf" if math.isinf(value) else f"{value:.4f}"
            if name in result:
                shown += f"  {result[name].ends}"
            rows.append((name, shown))
        return rows

    @cached_property
    def notes(self) -> list[str]:
        """Notes on the values: what was left out or unknown, who got no label, and which rule nobody asked for."""
        notes = [f"Skipped {name}: {reason}." for name, reason in self.skipped.items()]
        notes += self.remarks.notes(self.context.hierarchy)
        notes += [] if self.coverage is None else self.coverage.notes()
        if self.is_default_rule:
            notes.append(f"Scores were decided by {self.rule}, as predict decides for labels like these.")
        return notes

    @property
    def headline(self) -> str:
        """How many documents are right, exactly and by level, in a sentence; "" without decisions."""
        return "" if self.coverage is None else self.coverage.headline(self.level_names)

    def table(self, intervals: bool = False) -> str:
        """Return the values as an aligned table, and the notes under it."""
        rows = self.rows(intervals)
        width = max((len(name) for name, _ in rows), default=0)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        return "\n".join([*lines, "", *self.notes] if self.notes else lines)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"Result({self.count:,} documents, {len(self.values)} values)"

    @cached_property
    def _html(self) -> str:
        intervals = self.intervals() if self.parts else {}
        rows = [
            (name, "inf" if math.isinf(value) else f"{value:.4f}", intervals[name].ends if name in intervals else "")
            for name, value in self.values.items()
        ]
        header = ("metric", "value", "95% interval") if intervals else ("metric", "value", "")
        headline = html_sentence(self.headline) if self.headline else ""
        return html_box(repr(self), headline, html_table(rows, header), notes=self.notes)

    def _repr_html_(self) -> str:
        """Return what notebooks show: how many documents are right, then the values, with intervals if there are any.

        Resampling for the intervals takes a moment, the first time.
        """
        return self._html

    def plot(self) -> Any:
        """Draw the metrics with their intervals, and macro-F1 by depth, as a matplotlib Figure."""
        return draw("a result", self)

    def to_json(self) -> str:
        """Return everything that is a number as JSON text; infinite and undefined values are null."""
        values = {name: value if math.isfinite(value) else None for name, value in self.values.items()}
        stored = {
            "documents": self.count,
            "rule": self.rule,
            "is_default_rule": self.is_default_rule,
            "fingerprint": self.fingerprint,
            "values": values,
            "coverage": None if self.coverage is None else self.coverage.to_json(),
            "skipped": dict(self.skipped),
            "remarks": self.remarks.notes(self.context.hierarchy),
        }
        return json.dumps(stored, indent=2)

    def to_markdown(self, intervals: bool = False) -> str:
        """Return the values as a Markdown table."""
        lines = [f"| {name} | {value} |" for name, value in self.rows(intervals)]
        return "\n".join(["| metric | value |", "|---|---|", *lines])

    def to_arrow(self) -> pa.Table:
        """Return the values as an Arrow table."""
        return pa.table({"metric": list(self.values), "value": list(self.values.values())})

    def to_pandas(self) -> Any:
        """Return the values as a pandas DataFrame (pandas must be installed)."""
        try:
            return self.to_arrow().to_pandas()
        except ImportError:
            raise TreelabelError(
                "this needs pandas: pip install pandas (to_arrow() and to_json() do without)"
            ) from None


def share_documents(metric: Metric, parts: tuple[Any, ...]) -> dict[str, int]:
    """Count the documents (or groups) of which a metric, or a level of it, is the mean, where values are shares."""
    if not metric.is_share:
        return {}
    if metric.documents is not None:
        return {metric.name: int(np.count_nonzero(parts[0][:, 1]))}
    counts = np.count_nonzero(parts[0], axis=0).tolist()
    return {f"{metric.name}[{depth}]": count for depth, count in enumerate(counts, 1)}


def _canonical_name(name: str) -> str:
    """Spell a metric's name as results do: "precision@k" and "precision@5.0" are "precision@5"."""
    try:
        return find_metric(name).name
    except TreelabelError:
        return name
