"""Figures of a study as numbers: named series over labels of an axis, for whoever draws them."""

import math
from dataclasses import dataclass

import numpy as np

from treelabel.experiment.estimates import Resampled, Term, estimate
from treelabel.experiment.metric_names import spelled_metric
from treelabel.experiment.results import Results
from treelabel.experiment.spec import Column, FigureSpec
from treelabel.experiment.table_cells import summarise
from treelabel.metrics.ranking import frequency_bins

LABELS, OCCURRENCES = "labels", "training labels"


@dataclass(frozen=True)
class Series:
    """A line, or bars of one colour: a value with the ends of its 95% interval at each label of the axis."""

    name: str
    title: str
    x: tuple[str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Panel:
    """The part of a figure about one data set; `notes` tell what is missing and why."""

    data: str
    title: str
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure: a panel for each data set, and what stands at the axes."""

    name: str
    title: str
    kind: str
    x: str
    y: str
    panels: tuple[Panel, ...]
    baseline: str = ""


def make_figures(results: Results, resampled: Resampled | None = None) -> list[Figure]:
    """Compute the figures of a study.

    Parameters
    ----------
    results : Results
        The study.
    resampled : Resampled, optional
        Values on resampled documents, if others need them too.

    Returns
    -------
    list of Figure
    """
    shared = Resampled(results) if resampled is None else resampled
    return [make_figure(spec, shared) for spec in results.spec.figures]


def make_figure(spec: FigureSpec, resampled: Resampled) -> Figure:
    """Compute one figure.

    - parts: a series a system, over the parts of a metric (depths, deciles, bins of training frequency);
    - relative_parts: the improvement over the baseline in %, over the parts of a metric;
    - metrics: a series a system, over metrics;
    - label_distribution: the share of labels, and of the labels of training documents, in bins of training frequency.

    Parameters
    ----------
    spec : FigureSpec
        What it shows.
    resampled : Resampled
        The results, with values on resampled documents.

    Returns
    -------
    Figure
    """
    results = resampled.results
    panels = tuple(_panel(spec, resampled, name) for name in spec.data or tuple(results.spec.data))
    x, y = _axes(spec)
    baseline = "" if spec.baseline is None else results.spec.system_title(spec.baseline)
    return Figure(spec.name, spec.title or spec.name, spec.kind, spec.x or x, spec.y or y, panels, baseline)


def _axes(spec: FigureSpec) -> tuple[str, str]:
    metric = str(spec.metric)
    if spec.kind == "label_distribution":
        return "training documents of the label", "share (%)"
    if spec.kind == "metrics":
        return "metric", "value"
    base = metric.partition("@")[0]
    known = {
        "_by_depth": "depth",
        "_by_decile": "tenth of labels by training frequency",
        "binned": "training frequency",
    }
    x = next((title for part, title in known.items() if part in base), "part")
    return x, f"improvement of {metric} (%)" if spec.kind == "relative_parts" else metric


def _panel(spec: FigureSpec, resampled: Resampled, data: str) -> Panel:
    results = resampled.results
    title = results.spec.data_title(data)
    if spec.kind == "label_distribution":
        series, notes = _label_distribution(results, data)
        return Panel(data, title, series, notes)
    systems = list(spec.systems or results.spec.systems)
    if spec.kind == "relative_parts":
        systems = [name for name in systems if name != spec.baseline]
    made, missing = [], []
    for system in systems:
        if not results.of(data, system):
            reason = results.problem(data, system) or "has not run"
            missing.append(f"{results.spec.system_title(system)}: {reason}")
            continue
        made.append(_series(spec, resampled, data, system))
    return Panel(data, title, tuple(each for each in made if each.x), tuple(missing))


def _series(spec: FigureSpec, resampled: Resampled, data: str, system: str) -> Series:
    """The values of a system in each part or metric; where a baseline is asked for, the improvement over it in %."""
    results = resampled.results
    names = list(spec.metrics) if spec.kind == "metrics" else _parts(spec, results, data, system)
    labels = names if spec.kind == "metrics" else [_part(name) for name in names]
    values = []
    for name in names:
        if spec.kind == "relative_parts":
            terms = [Term(data, each, name, spec.rule) for each in (system, str(spec.baseline))]
            made = estimate(resampled, terms, lambda pair: 100 * (pair[0] / pair[1] - 1))
            unknown = (math.nan,) * 3
            values.append((made.value, *made.interval) if math.isfinite(made.value) else unknown)
        else:
            mean = summarise(results.of(data, system), Column(metric=name, rule=spec.rule))
            values.append((mean.mean, mean.low, mean.high))
    y, low, high = zip(*values, strict=True) if values else ((), (), ())
    return Series(system, results.spec.system_title(system), tuple(labels), y, low, high)


def _parts(spec: FigureSpec, results: Results, data: str, system: str) -> list[str]:
    """The names of the parts of the figure's metric that any run of a system has, in their order."""
    start = f"{spelled_metric(str(spec.metric))}["
    result: dict[str, None] = {}
    for run in results.of(data, system):
        judged = run.judged_by(str(spec.metric), spec.rule)
        result |= dict.fromkeys(name for name in (() if judged is None else judged.values) if name.startswith(start))
    return list(result)


def _part(name: str) -> str:
    """Return what stands in brackets.

    >>> _part("macro_f1_by_depth[2]")
    '2'
    """
    return name.partition("[")[2].removesuffix("]")


def _label_distribution(results: Results, data: str) -> tuple[tuple[Series, ...], tuple[str, ...]]:
    """The shares of labels, and of their occurrences in training, in bins of training frequency; both in %."""
    runs = [run for run in results.runs if run.data == data and run.is_done and run.context]
    if results.folder is None or not runs:
        why = "an exported file has no training frequencies" if results.folder is None else "nothing has run"
        return (), (why,)
    context = results.context(min(runs, key=lambda run: run.seed).context)
    frequencies = context.frequencies
    bins = {name: keep for name, keep in frequency_bins(frequencies, context.bin_edges).items() if keep.any()}
    names = tuple(bins)
    unknown = (math.nan,) * len(names)
    labels = tuple(100 * float(np.mean(keep)) for keep in bins.values())
    total = max(1, int(frequencies.sum()))
    occurrences = tuple(100 * float(frequencies[keep].sum()) / total for keep in bins.values())
    return (
        Series("labels", LABELS, names, labels, unknown, unknown),
        Series("occurrences", OCCURRENCES, names, occurrences, unknown, unknown),
    ), ()
