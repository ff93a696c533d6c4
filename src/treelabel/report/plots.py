"""Plots of single objects for notebooks and scripts, in the style of reports: results, calibration, hierarchies."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from treelabel.core.errors import TreelabelError
from treelabel.evaluation.evaluator import evaluate
from treelabel.evaluation.reliability_bins import Reliability, reliability_of_predictions
from treelabel.evaluation.result import Result
from treelabel.evaluation.statistics import Interval
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model
from treelabel.models.profile import Profile
from treelabel.models.true_labels import true_labels
from treelabel.report.figures.drawing import PALETTE, PAPER, QUIET, share_axis, short_name, style_of
from treelabel.report.figures.icicle import draw_icicle
from treelabel.report.figures.small_multiples import draw_reliability
from treelabel.report.pictures import report_style
from treelabel.report.reliability import reliability
from treelabel.report.slices import macro_f1_intervals
from treelabel.report.systems import ReportSystem

MOST_METRICS = 25
MOST_PANELS = 6
DOTS_PER_INCH = 110


class NotebookFigure(Figure):
    """A figure that notebooks show without pyplot, whose state is global and keeps figures in memory."""

    def _repr_png_(self) -> bytes:
        stream = BytesIO()
        with report_style():
            self.savefig(stream, format="png", dpi=DOTS_PER_INCH)
        return stream.getvalue()


def _make_figure(width: float, height: float) -> NotebookFigure:
    # White, as nobody knows whether the page around it is dark.
    return NotebookFigure(figsize=(width, height), layout="constrained", facecolor=PAPER)


# Results


def plot_result(result: Result) -> Figure:
    """Draw the metrics of a result with their intervals, and macro-F1 by depth where labels were counted."""
    metrics, others = _drawn_metrics(result)
    slices = _by_depth(result)
    with report_style():
        made = _make_figure(8.6 if slices else 4.8, max(2.6, 0.8 + 0.26 * len(metrics)))
        axes = made.subplots(1, 2 if slices else 1, squeeze=False)[0]
        _draw_metrics(axes[0], metrics)
        if slices:
            _draw_slices(axes[1], slices)
        made.suptitle(result.headline or f"{result.count:,} documents", fontsize=10, wrap=True)
        if others:
            made.supxlabel(f"Not drawn: {', '.join(others)}", fontsize=8, color=QUIET, wrap=True)
        made.draw_without_rendering()
    return made


def _drawn_metrics(result: Result) -> tuple[dict[str, Interval], list[str]]:
    """Return the values to draw, which are shares of which more is better, and a word on each of the others."""
    known = result.intervals() if result.parts else {}
    higher = {metric.name for metric in result.metrics if metric.higher_is_better}
    drawn: dict[str, Interval] = {}
    others: list[str] = []
    for name, value in result.values.items():
        if name in higher and 0 <= value <= 1 and len(drawn) < MOST_METRICS:
            drawn[name] = known.get(name, Interval(value, float("nan"), float("nan")))
        elif "[" not in name:
            others.append(f"{short_name(name)} {value:.4f}")
    more = len(others) - MOST_METRICS
    return drawn, [*others[:MOST_METRICS], f"and {more:,} more"] if more > 0 else others


def _by_depth(result: Result) -> dict[str, Interval]:
    """Return macro-F1 by depth; nothing where no metric counts labels."""
    h = result.context.hierarchy
    if result.label_key not in result.sums or not len(h):
        return {}
    if result.parts:
        return macro_f1_intervals(result, {str(depth): h.depth == depth for depth in range(1, h.max_depth + 1)})
    values = result.levels.column("macro_f1").to_pylist()
    return {str(depth): Interval(value, float("nan"), float("nan")) for depth, value in enumerate(values, 1)}


def _draw_metrics(axes: Axes, metrics: dict[str, Interval]) -> None:
    y = np.arange(len(metrics))
    values, low, high = _ends(list(metrics.values()))
    axes.hlines(y, low, high, color=PALETTE[0], linewidth=1.6)
    axes.plot(values, y, "o", color=PALETTE[0])
    for row, value in enumerate(values):
        axes.annotate(f"{value:.3f}", (value, row), xytext=(0, 5), textcoords="offset points", ha="center", size=7.5)
    axes.set_yticks(y, [short_name(name) for name in metrics])
    axes.set_ylim(len(metrics) - 0.4, -0.8)
    axes.set_xlim(0, 1)
    axes.set_xlabel("value (0 to 1), 95% interval")
    axes.grid(visible=False, axis="y")


def _draw_slices(axes: Axes, slices: dict[str, Interval]) -> None:
    x = np.arange(len(slices))
    values, low, high = _ends(list(slices.values()))
    axes.plot(x, values, **style_of(0))
    axes.vlines(x, low, high, color=PALETTE[0], linewidth=1.4)
    axes.set_xticks(x, list(slices))
    axes.set_xlim(-0.5, len(slices) - 0.5)
    axes.set_xlabel("depth of the label (edges from the root)")
    axes.grid(visible=False, axis="x")
    share_axis(axes)


def _ends(intervals: Sequence[Interval]) -> tuple[Any, Any, Any]:
    """Return values and ends; an end that is not known is the value itself."""
    values, low, high = np.array([(each.value, each.low, each.high) for each in intervals]).reshape(-1, 3).T
    return values, np.where(np.isnan(low), values, low), np.where(np.isnan(high), values, high)


# Calibration


def plot_calibration(model: Model, texts: Any = None, labels: Any = None) -> Figure:
    """Draw how often a model is right over its probability.

    Parameters
    ----------
    model
        A model that has been fitted.
    texts, labels
        Documents and their true labels, or a Dataset; None takes what is stored of documents held out of training.

    Returns
    -------
    Figure
    """
    if texts is None:
        groups = [_held_out(model.profile_ if hasattr(model, "profile_") else None)]
    else:
        groups = reliability(_judge(model, texts, labels))
    shown = groups[:MOST_PANELS]
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    with report_style():
        made = _make_figure(3.1 * columns, 3.3 * rows + 0.3)
        panels = made.subplots(rows, columns, squeeze=False).ravel()
        for axes, group in zip(panels, shown, strict=False):
            draw_reliability(axes, [(0, group)])
            axes.set_title(
                f"{group.title}: {int(group.counts.sum()):,} documents,\ncalibration error {group.error:.3f}"
            )
        for axes in panels[len(shown) :]:
            axes.set_axis_off()
        if len(groups) > len(shown):
            made.supxlabel(f"{len(groups) - len(shown)} deeper levels are not drawn", fontsize=8, color=QUIET)
        made.draw_without_rendering()
    return made


def _held_out(profile: Profile | None) -> Reliability:
    """Count the held-out documents that a model remembers in bins."""
    if profile is None or not (profile.confidences > 0).any():
        raise TreelabelError(
            "the model has no held-out documents to draw: it is not fitted, or held none out; pass texts and labels"
        )
    return reliability_of_predictions(profile.confidences, profile.correct)


def _judge(model: Model, texts: Any, labels: Any) -> ReportSystem:
    scores = model.score(texts)
    if labels is None and not hasattr(texts, "labels"):
        raise TreelabelError("texts without labels cannot be judged; pass labels=, or a Dataset")
    truth = texts if labels is None else true_labels(labels, model.hierarchy_, model.form_)[0]
    result = evaluate(truth, scores=scores, hierarchy=None if labels is None else model.hierarchy_, metrics=["ece"])
    return ReportSystem(model.name, result, scores)


# Hierarchies


def plot_hierarchy(hierarchy: Hierarchy, frequencies: Any = None) -> Figure:
    """Draw the levels of a hierarchy as rows of boxes; see `Hierarchy.plot`.

    Parameters
    ----------
    hierarchy
        What to draw.
    frequencies
        Documents of each label, or a Dataset; None makes boxes as wide as the leaves under them.

    Returns
    -------
    Figure
    """
    if not len(hierarchy):
        raise TreelabelError("the hierarchy has no labels to draw")
    if hasattr(frequencies, "frequencies"):
        hierarchy.require_same(frequencies.hierarchy.fingerprint, "the data")
        frequencies = frequencies.frequencies
    if frequencies is not None and np.shape(frequencies) != (len(hierarchy),):
        raise TreelabelError(
            f"frequencies of shape {np.shape(frequencies)}, expected a count for each of {len(hierarchy):,} labels"
        )
    with report_style():
        made = _make_figure(9.0, 0.9 + 0.5 * min(hierarchy.max_depth, 14))
        draw_icicle(made.subplots(), hierarchy, None if frequencies is None else np.asarray(frequencies, np.float64))
        made.draw_without_rendering()
    return made
