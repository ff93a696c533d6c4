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
    found: Summary = Summary(math.nan)
    text: str = ""
    is_published: bool = False
    is_best: bool = False
    differs: bool = False
    scale: float = 1.0
    digits: int | None = SIGNIFICANT_DIGITS

    def shown(self, plus_minus: str = " ± ") -> str:
        """Write the value with half of its interval, or the text in its place.

        >>> TableCell(found=Summary(0.81234, 0.80234, 0.82234, 3), scale=100, digits=2).shown()
        '81.23 ± 1.00'
        """
        if self.text or math.isnan(self.found.mean):
            return self.text
        half = (self.found.high - self.found.low) / 2
        numbers = [self.found.mean] if math.isnan(half) else [self.found.mean, half]
        return plus_minus.join(self._number(each) for each in numbers)

    def _number(self, value: float) -> str:
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
    ends = None if column.metric is None else _stored_interval(runs[values.index(known[0])], column)
    return Summary(known[0], *(ends or (math.nan, math.nan)), 1, "none" if ends is None else "documents")


def _stored_interval(run: Run, column: Column) -> tuple[float, float] | None:
    judged = run.judged_by(str(column.metric), column.rule)
    if judged is None:
        return None
    ends = judged.intervals.get(spelled_metric(str(column.metric)))
    return None if ends is None or math.isnan(ends[0]) else ends


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
    rules: list[str] = []
    for run in runs:
        judged = None if column.metric is None else run.judged_by(column.metric, column.rule)
        rules += [] if judged is None else [judged.used_rule]
    text = ""
    if math.isnan(result.mean):
        text = results.problem(data, system).partition(":")[0] or MISSING
    rule = ", ".join(dict.fromkeys(rules))
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
    shown = [index for index, cell in enumerate(cells) if not math.isnan(cell.found.mean)]
    if len(shown) < 2:
        return list(cells)
    sign = 1 if is_higher_better(column.field or str(column.metric)) else -1
    best = max(shown, key=lambda index: sign * cells[index].found.mean)
    alike = replace(cells[best], found=Summary(cells[best].found.mean)).shown()
    p_values = dict.fromkeys(shown, math.nan)
    if resampled is not None and column.metric is not None:
        others = [index for index in shown if index != best]
        tested = [_p_value(resampled, cells[best], cells[index], column) for index in others]
        p_values |= dict(zip(others, holm(tested).tolist(), strict=True))
    marked = list(cells)
    for index in shown:
        is_best = replace(cells[index], found=Summary(cells[index].found.mean)).shown() == alike
        marked[index] = replace(cells[index], is_best=is_best, differs=not is_best and p_values[index] < STAR_LEVEL)
    return marked


def _p_value(resampled: Resampled, best: TableCell, other: TableCell, column: Column) -> float:
    terms = [Term(cell.data, cell.system, str(column.metric), column.rule) for cell in (best, other)]
    result = estimate(resampled, terms, lambda values: values[0] - values[1])
    return math.nan if result.seeds == FEW_SEEDS else result.p_value
