"""Cells of tables: a mean over seeds with its interval, a published number, or why there is none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from treelabel.evaluation.significance import holm
from treelabel.evaluation.statistics import seed_interval
from treelabel.experiment.estimates import Resampled, Term, estimate
from treelabel.experiment.metric_names import is_higher_better, spelled_metric
from treelabel.experiment.results import Results, Run
from treelabel.experiment.spec import Column

# A row differs from the best if the corrected p-value is below.
STAR_LEVEL = 0.01
# So many seeds have a spread that is hardly known, and often far too small by chance.
FEW_SEEDS = 2
# Digits of values that no column says anything about.
SIGNIFICANT_DIGITS = 4

# In the place of a value that was not asked for, or has not been computed yet.
MISSING = "-"

# Where an interval comes from.
Source = Literal["seeds", "documents", "none"]


@dataclass(frozen=True)
class Summary:
    """A mean over seeds with the ends of its 95% interval, of how many seeds, and what the interval is over."""

    mean: float
    low: float = math.nan
    high: float = math.nan
    count: int = 0
    source: Source = "none"


@dataclass(frozen=True)
class TableCell:
    """A value in a table, in the units of its metric; `text` stands in its place if it is not empty.

    `scale` and `digits` tell how it is printed; digits of None are as many as are significant.
    """

    data: str = ""
    system: str = ""
    column: str = ""
    rule: str = ""
    summary: Summary = Summary(math.nan)
    text: str = ""
    is_published: bool = False
    is_best: bool = False
    differs: bool = False
    scale: float = 1.0
    digits: int | None = SIGNIFICANT_DIGITS

    def show(self) -> str:
        """Write the value with half of its interval, or the text in its place.

        >>> TableCell(summary=Summary(0.81234, 0.80234, 0.82234, 3), scale=100, digits=2).show()
        '81.23 ± 1.00'
        """
        if self.text or math.isnan(self.summary.mean):
            return self.text
        half = (self.summary.high - self.summary.low) / 2
        return self.number(self.summary.mean) + ("" if math.isnan(half) else f" ± {self.number(half)}")

    def number(self, value: float) -> str:
        """Write a number in the units of the column."""
        scaled = value * self.scale
        return f"{scaled:.{SIGNIFICANT_DIGITS}g}" if self.digits is None else f"{scaled:.{self.digits}f}"


def summarise(runs: Sequence[Run], column: Column) -> Summary:
    """Average a column over the seeds of a system; a single one has the interval over documents that its run stored.

    Parameters
    ----------
    runs : sequence of Run
        Runs that differ in their seeds.
    column : Column
        A metric under a rule, or a field.

    Returns
    -------
    Summary
    """
    if column.field is not None:
        values = [run.field_value(column.field) for run in runs]
    else:
        values = [run.value(str(column.metric), column.rule) for run in runs]
    known = [value for value in values if not math.isnan(value)]
    if len(known) > 1:
        result = seed_interval(known)
        return Summary(result.value, result.low, result.high, len(known), "seeds")
    if not known:
        return Summary(math.nan)
    run = runs[values.index(known[0])]
    judged = None if column.metric is None else run.judged_by(column.metric, column.rule)
    ends = {} if judged is None else judged.intervals
    low, high = ends.get(spelled_metric(str(column.metric)), (math.nan, math.nan))
    return Summary(known[0], low, high, 1, "none" if math.isnan(low) else "documents")


def make_cell(results: Results, data: str, system: str, column: Column, title: str) -> TableCell:
    """Make the cell of a system on a data set.

    Parameters
    ----------
    results : Results
        The study.
    data, system : str
        Their names.
    column : Column
        What to show.
    title : str
        What the column is called.

    Returns
    -------
    Cell
    """
    runs = results.of(data, system)
    result = summarise(runs, column)
    judged = [run.judged_by(column.metric, column.rule) for run in runs if column.metric is not None]
    rule = ", ".join(dict.fromkeys(each.used_rule for each in judged if each is not None))
    text = ""
    if math.isnan(result.mean):
        text = results.problem(data, system).partition(":")[0] or MISSING
    return TableCell(data, system, title, rule, result, text, scale=column.scale, digits=column.digits)


def mark(cells: Sequence[TableCell], column: Column, resampled: Resampled | None) -> list[TableCell]:
    """Mark the best of the cells that compare systems on one data set, and those that differ from it.

    Means that print alike are best together. A cell differs if p < 0.01 after Holm's correction over the other cells,
    by the noise of documents and seeds where both are known, else by that of seeds. Nothing is said with two seeds,
    whose spread is hardly known.

    Parameters
    ----------
    cells : sequence of Cell
        One for each system.
    column : Column
        What they show.
    resampled : Resampled or None
        None tests nothing.

    Returns
    -------
    list of Cell
    """
    known = [cell for cell in cells if not math.isnan(cell.summary.mean)]
    if len(known) < 2:
        return list(cells)
    sign = 1 if is_higher_better(column.field or str(column.metric)) else -1
    best = max(known, key=lambda cell: sign * cell.summary.mean)
    p_values: dict[str, float] = {}
    if resampled is not None and column.metric is not None:
        others = [cell for cell in known if cell is not best]
        corrected = holm([_p_value(resampled, best, cell, column) for cell in others]).tolist()
        p_values = {cell.system: p for cell, p in zip(others, corrected, strict=True)}
    marked = []
    for cell in cells:
        is_best = cell.number(cell.summary.mean) == best.number(best.summary.mean)
        differs = not is_best and p_values.get(cell.system, math.nan) < STAR_LEVEL
        marked.append(replace(cell, is_best=is_best, differs=differs))
    return marked


def _p_value(resampled: Resampled, best: TableCell, other: TableCell, column: Column) -> float:
    terms = [Term(cell.data, cell.system, str(column.metric), column.rule) for cell in (best, other)]
    result = estimate(resampled, terms, lambda values: values[0] - values[1])
    return math.nan if result.seeds == FEW_SEEDS else result.p_value
