"""Compare systems on the same documents: values with intervals, differences with tests, the tail on its own."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.html_tables import html_box, html_sentence, html_table
from treelabel.core.types import DoubleArray
from treelabel.evaluation.alignment import common_hierarchy, judged_as
from treelabel.evaluation.evaluator import evaluate
from treelabel.evaluation.result import Result
from treelabel.evaluation.significance import (
    Comparison,
    binned_t_tests,
    exchange_test,
    holm,
    micro_sign_test,
    relative_improvement,
)
from treelabel.evaluation.statistics import Interval, resampled_interval
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.metrics.ranking import frequency_bins
from treelabel.metrics.shared_formulas import label_f1
from treelabel.rules.decisions import TunedRule

STAR_LEVEL = 0.01
# What stands in place of a rule where labels were given.
GIVEN = "labels as given"
# Of the column with the names of metrics, in characters.
NAME_WIDTH = 28
T_TEST_NOTE = (
    "Stars of frequencies are those of a t-test that takes labels for independent. They are not: equal systems get "
    "p < 0.05 in about 15% of samples where labels are frequent, and labels with few documents hardly show anything."
)


@dataclass(frozen=True)
class ComparisonRow:
    """One line of a comparison: a metric or a bin, and for each system its value, interval and p against the first.

    `differences` of a metric are those of the other systems to the first, each with its interval and its p before any
    correction.
    """

    name: str
    values: list[Interval]
    p_values: list[float]
    differences: list[Comparison] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class ComparisonTable:
    """Systems side by side. Stars mark differences to the first system with a corrected p below 0.01.

    `metrics` has a row per metric: p by exchanging the two systems' answers document by document (or group by group, if
    the truth has groups), intervals by resampling. `bins` has macro-F1 by training frequency of the labels (macro
    t-test over labels, in bins of more than 10), `sign_tests` the micro sign test over single decisions, exchanged by
    document. Within a row p-values are corrected for the number of systems by Holm's procedure. `rules` made the labels
    of each system; None where they were given. `remarks` are what a reader must know of the documents of each system.
    """

    systems: list[str]
    documents: int
    metrics: list[ComparisonRow]
    bins: list[ComparisonRow]
    bin_sizes: dict[str, int]
    sign_tests: list[float]
    reference: str = "training"
    rules: list[str | None] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.table()

    def table(self, width: int | None = None) -> str:
        """Return the comparison as text.

        Parameters
        ----------
        width : int, optional
            Systems that lines of so many characters have no room for go below the others.

        Returns
        -------
        str
        """
        rows = [("", self.systems), *self._metric_lines()]
        rows += [("", []), (self._bin_title, []), *self._bin_lines()] if self.bins else []
        rows += [("", []), self._sign_line()]
        cell = max(len(each) for _, cells in rows for each in cells) + 2
        count = len(self.systems) if width is None else max(1, (width + 2 - NAME_WIDTH) // cell)
        lines = [
            f"{name:<{NAME_WIDTH}}{''.join(f'{each:<{cell}}' for each in cells[first : first + count])}".rstrip()
            for first in range(0, len(self.systems), count)
            for name, cells in (*rows, ("", []))
        ]
        return "\n".join([*lines, self._legend, *self.notes])

    def _repr_html_(self) -> str:
        """Return what notebooks show: values with intervals, the sign test, and values by frequency of the labels."""
        rows = [(name, *cells) for name, cells in (*self._metric_lines(), self._sign_line())]
        bins = [(name, *cells) for name, cells in self._bin_lines()]
        tables = [html_table(rows, ("", *self.systems))]
        tables += [html_sentence(self._bin_title), html_table(bins, ("", *self.systems))] if bins else []
        return html_box(f"Comparison of {len(self.systems)} systems", *tables, notes=[f"{self._legend}.", *self.notes])

    def _metric_lines(self) -> list[tuple[str, list[str]]]:
        lines = [(row.name, [_cell(v, p) for v, p in _pairs(row)]) for row in self.metrics]
        has_rules = any(rule is not None for rule in self.rules)
        return [("rule", [rule or GIVEN for rule in self.rules]), *lines] if has_rules else lines

    def _bin_lines(self) -> list[tuple[str, list[str]]]:
        return [(f"{row.name} ({self.bin_sizes[row.name]:,} labels)", _bin_cells(row)) for row in self.bins]

    def _sign_line(self) -> tuple[str, list[str]]:
        return "micro sign test", ["", *(f"p = {p:.3g}{_star(p)}" for p in self.sign_tests)]

    @property
    def _bin_title(self) -> str:
        return f"macro-F1 by frequency in {self.reference}, and improvement over the first system in %"

    @property
    def _legend(self) -> str:
        return f"{self.documents:,} documents; [95% interval]; * differs from the first, p < {STAR_LEVEL}"

    @property
    def notes(self) -> list[str]:
        """Notes on the table: on the documents of each system, on intervals, on the t-test, on rules that differ."""
        reasons = {row.name: row.values[0].reason for row in self.metrics if row.values[0].reason}
        notes = [*self.remarks]
        notes += [f"No interval of {name}: {reason}." for name, reason in reasons.items()]
        notes += [T_TEST_NOTE] if any(_star(p) for row in self.bins for p in row.p_values) else []
        if len(set(self.rules)) > 1:
            summary = ", ".join(dict.fromkeys(rule or GIVEN for rule in self.rules))
            notes.append(f"Rules differ ({summary}): a difference may be one of the rules, not of the systems.")
        return notes

    def to_json(self) -> str:
        """Return everything as JSON text; undefined values are null."""

        def cell(result: Interval, p: float) -> dict[str, Any]:
            numbers = {"value": result.value, "low": result.low, "high": result.high, "p": p}
            reason = {"no_interval": result.reason} if result.reason else {}
            return {name: _number(each) for name, each in numbers.items()} | reason

        def rows(table: list[ComparisonRow]) -> dict[str, Any]:
            return {
                row.name: {system: cell(*pair) for system, pair in zip(self.systems, _pairs(row), strict=True)}
                for row in table
            }

        signs = dict(zip(self.systems[1:], map(_number, self.sign_tests), strict=True))
        stored = {
            "documents": self.documents,
            "rules": dict(zip(self.systems, self.rules, strict=True)),
            "metrics": rows(self.metrics),
            "bins": rows(self.bins),
            "sign_test_p": signs,
            "remarks": self.remarks,
        }
        return json.dumps(stored, indent=2)


def _pairs(row: ComparisonRow) -> list[tuple[Interval, float]]:
    return list(zip(row.values, [float("nan"), *row.p_values], strict=True))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _star(p: float) -> str:
    return "*" if p < STAR_LEVEL else ""


def _cell(result: Interval, p: float) -> str:
    return f"{result.value:.4f}{_star(p)} {'(no interval)' if result.reason else result.ends}"


def _bin_cells(row: ComparisonRow) -> list[str]:
    first = row.values[0].value
    cells = [f"{first:.4f}"]
    for result, p in _pairs(row)[1:]:
        change = relative_improvement(first, result.value)
        cells.append(f"{result.value:.4f}{_star(p)} ({'n/a' if math.isnan(change) else f'{change:+.1f}%'})")
    return cells


def compare(
    truth: Any,
    systems: Mapping[str, Any],
    hierarchy: Hierarchy | None = None,
    rule: str | TunedRule | None = None,
    metrics: Sequence[str] | str | None = None,
    train_frequencies: Any = None,
    train_documents: int | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> ComparisonTable:
    """Judge several systems on the same documents and test each against the first.

    Parameters
    ----------
    truth, hierarchy, train_documents
        As for `evaluate`.
    rule : str, Tuned or None
        What decides for all systems that are scores; None is the rule by which a model predicts that learned from
        labels like those of the truth. The table names the rule of each system.
    systems : mapping of str to Scores or decisions
        At least two, in the forms `evaluate` takes.
    metrics : sequence of str, str or None
        Names of METRICS; "all" are those that apply to every system.
    train_frequencies : Dataset or array of int, optional
        What labels are binned by; by default their frequency in the truth.
    resamples : int
        How often documents are drawn with replacement for intervals, and exchanged for p-values.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    ComparisonTable
    """
    if len(systems) < 2:
        raise TreelabelError("comparing needs at least two systems")
    # One for all systems, as macro averages are over all its labels.
    hierarchy = common_hierarchy(hierarchy, *systems.values(), truth, train=train_frequencies)
    names = ["hf1", "micro_f1", "macro_f1"] if metrics is None else metrics
    if names and names != "all":
        # Bins and the sign test look at counts of labels.
        names = list(dict.fromkeys([*([names] if isinstance(names, str) else names), "micro_f1"]))
    results = [
        evaluate(
            truth,
            **judged_as(system),
            hierarchy=hierarchy,
            rule=rule,
            metrics=names,
            train_frequencies=train_frequencies,
            train_documents=train_documents,
        )
        for system in systems.values()
    ]
    return compare_results(dict(zip(systems, results, strict=True)), resamples=resamples, seed=seed)


def compare_results(
    systems: Mapping[str, Result], metrics: Sequence[str] | None = None, resamples: int = 1000, seed: int = 0
) -> ComparisonTable:
    """Test each of several results on the same documents against the first.

    Parameters
    ----------
    systems : mapping of str to Result
        At least two, with documents kept, and with a metric that counts labels, such as micro_f1.
    metrics : sequence of str, optional
        The rows of the table; by default everything that all results have.
    resamples, seed
        As for `compare`.

    Returns
    -------
    ComparisonTable
    """
    results = list(systems.values())
    shared = [name for name in results[0].values if all(name in result.values for result in results)]
    names = shared if metrics is None else [name for name in metrics if name in shared]
    rows = [_metric_row(name, results, resamples, seed) for name in names]
    bins, sizes = _bin_rows(results)
    # The closed sets of all systems stand among the parts that counting labels left.
    (first, truth, *_), *others = (result.parts[result.label_key] for result in results)
    signs = [micro_sign_test(truth, first, other[0], results[0].groups, resamples, seed).p_value for other in others]
    reference = "the truth (no training data given)" if results[0].context.is_from_truth else "training"
    rules = [result.rule for result in results]
    remarks = [
        f"{name}: {note}" for name, result in systems.items() for note in result.remarks.notes(result.context.hierarchy)
    ]
    return ComparisonTable(
        list(systems), results[0].count, rows, bins, sizes, holm(signs).tolist(), reference, rules, remarks
    )


def _metric_row(name: str, results: list[Result], resamples: int, seed: int) -> ComparisonRow:
    drawn = [result.bootstrap_values(name, resamples, seed) for result in results]
    tests = [
        compare_metric(name, results[0], result, resamples, seed, (drawn[0], values))
        for result, values in zip(results[1:], drawn[1:], strict=True)
    ]
    intervals = [result.interval_of(name, values) for result, values in zip(results, drawn, strict=True)]
    return ComparisonRow(name, intervals, holm([test.p_value for test in tests]).tolist(), tests)


def compare_metric(
    name: str,
    first: Result,
    second: Result,
    resamples: int = 1000,
    seed: int = 0,
    resampled: tuple[DoubleArray, DoubleArray] | None = None,
) -> Comparison:
    """Compare a metric of two results on the same documents: second - first, its 95% interval, and its p-value.

    Parameters
    ----------
    name : str
        A metric of both, or a part of one.
    first, second : Result
        With documents kept.
    resamples, seed
        As for `compare`.
    resampled : pair of arrays, optional
        What `Result.resampled` returned for the two, if that is known already.

    Returns
    -------
    Comparison
        p is that of `exchange_test`. The ends are NaN where either of the two values has no interval.
    """
    metric, value = first.value_function(name)
    parts = first.resampling_parts(metric), second.resampling_parts(metric)
    tested = exchange_test(*parts, value, resamples, seed)
    if not math.isfinite(tested.difference):
        return tested
    drawn = resampled or tuple(each.bootstrap_values(name, resamples, seed) for each in (first, second))
    reason = first.why_no_interval(name) or second.why_no_interval(name)
    ends = resampled_interval(
        drawn[1] - drawn[0], tested.difference, parts[0][0].shape[0], reason=reason, is_difference=True
    )
    return replace(tested, low=ends.low, high=ends.high)


def _bin_rows(results: list[Result]) -> tuple[list[ComparisonRow], dict[str, int]]:
    """Macro-F1 of closed sets by training frequency, with the macro t-test against the first system."""
    per_label = [label_f1(result.sums[result.label_key]) for result in results]
    bins = {
        name: keep
        for name, keep in frequency_bins(results[0].context.frequencies, results[0].context.bin_edges).items()
        if keep.any()
    }
    tests = [binned_t_tests(per_label[0], values, bins) for values in per_label[1:]]
    rows = []
    for name, keep in bins.items():
        values = [Interval(float(f1[keep].mean()), float("nan"), float("nan")) for f1 in per_label]
        p_values = [test[name].p_value if name in test else float("nan") for test in tests]
        rows.append(ComparisonRow(name, values, holm(p_values).tolist()))
    return rows, {name: int(keep.sum()) for name, keep in bins.items()}
