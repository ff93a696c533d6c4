"""Macro-F1 of slices of the labels, and how much further systems improve on the first."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.report.figures.drawing import (
    INK,
    QUIET,
    SIZE,
    Drawing,
    draw_bars,
    figure,
    format_share,
    put_legend,
    share_axis,
    short_name,
    style_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from treelabel.report.content import Content
    from treelabel.report.slices import Slice

# An improvement of more percent would flatten all others.
MOST_LINEAR = 200


def slice_figures(content: "Content") -> list[Drawing]:
    """Return the figures by depth, by tenth and by bin of frequency, and of improvements over the first system."""
    # In an axis label there is no room for more.
    reference = content.reference.partition(" (")[0]
    depth, tenth = "depth of the label (edges from the root)", f"tenth of the labels by frequency in {reference}"
    frequency = f"documents with the label in {reference}"
    by_depth = _describe("Macro-F1 of the labels at each depth", content, content.depth)
    by_decile = _describe(f"Macro-F1 by {tenth}, rarest first", content, content.deciles)
    by_bin = _describe(f"Macro-F1 by frequency of the label in {reference}", content, content.bins)

    def drawing(name: str, title: str, alt: str, draw: Callable[[], "Figure"]) -> Drawing:
        return Drawing(name, "slices", f"Macro-F1 by {title}", alt, draw)

    result = [
        drawing("macro-f1-by-depth", "depth", by_depth, lambda: _points(content, content.depth, depth)),
        drawing(
            "macro-f1-by-decile",
            "tenth of the labels",
            by_decile,
            lambda: _points(content, content.deciles, tenth, band=True),
        ),
        drawing("macro-f1-by-bin", "frequency", by_bin, lambda: _bars(content, frequency)),
    ]
    return result if len(content.systems) < 2 else [*result, _improvement(content, frequency)]


def _describe(what: str, content: "Content", slices: "Sequence[Slice]") -> str:
    """Tell the values of a figure of slices in words."""
    parts = []
    for index, system in enumerate(content.systems):
        values = ", ".join(f"{each.name}: {format_share(each.values[index].value)}" for each in slices)
        parts.append(f"{system.name}: {values}" if len(content.systems) > 1 else values)
    return f"{what}. {'; '.join(parts)}."


def _points(content: "Content", slices: "Sequence[Slice]", label: str, band: bool = False) -> "Figure":
    """Draw values with intervals, as bars of error or as a band."""
    made, axes = figure(SIZE)
    count = len(content.systems)
    for index, system in enumerate(content.systems):
        values, low, high = _ends(slices, index)
        x = np.arange(len(slices)) + (0 if band else (index - (count - 1) / 2) * min(0.12, 0.6 / count))
        style = style_of(index)
        axes.plot(x, values, label=short_name(system.name), zorder=3, **style)
        if band:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0, zorder=2)
        else:
            axes.vlines(x, low, high, color=style["color"], linewidth=1.4, zorder=2)
    axes.set_xlim(-0.5, len(slices) - 0.5)
    share_axis(axes)
    _finish(axes, [each.name for each in slices], label, count if count > 1 else 0)
    return made


def _finish(axes: "Axes", names: Sequence[str], label: str, count: int) -> None:
    """Name the slices and the level axis, and put the legend of so many systems."""
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="x")
    put_legend(axes, count)


def _ends(slices: "Sequence[Slice]", index: int) -> tuple[Any, Any, Any]:
    """The values of a system and the ends of their intervals; an end that is not known is the value itself."""
    intervals = [each.values[index] for each in slices]
    values, low, high = np.array([(each.value, each.low, each.high) for each in intervals]).reshape(-1, 3).T
    return values, np.where(np.isnan(low), values, low), np.where(np.isnan(high), values, high)


def _bars(content: "Content", label: str) -> "Figure":
    made, axes = figure(SIZE)
    count = len(content.systems)
    for index, system in enumerate(content.systems):
        values, low, high = _ends(content.bins, index)
        x, _ = draw_bars(axes, range(len(content.bins)), values, system.name, index, count, index)
        axes.vlines(x, low, high, color=INK, linewidth=1.1, zorder=3)
    share_axis(axes)
    _finish(axes, _bin_names(content), label, count if count > 1 else 0)
    return made


def _bin_names(content: "Content") -> list[str]:
    return [f"{each.name}\n{each.labels:,} labels" for each in content.bins]


def _improvement(content: "Content", label: str) -> Drawing:
    first = content.systems[0].name
    parts = [
        f"{system.name}: " + ", ".join(f"{each.name}: {_percent(each.improvements[index])}" for each in content.bins)
        for index, system in enumerate(content.systems[1:])
    ]
    alt = f"Relative improvement of macro-F1 over {first} by frequency of the label. {'; '.join(parts)}."
    title = f"Improvement over {first} by frequency"
    return Drawing("relative-improvement", "slices", title, alt, lambda: _draw_improvement(content, label))


def _percent(value: float) -> str:
    if value != value:
        return "n/a"
    return f"{value:+,.0f}%" if abs(value) >= 100 else f"{value:+.1f}%"


def _draw_improvement(content: "Content", label: str) -> "Figure":
    made, axes = figure(SIZE)
    others = content.systems[1:]
    for index, system in enumerate(others):
        values = [each.improvements[index] for each in content.bins]
        _, bars = draw_bars(axes, range(len(values)), values, system.name, index, len(others), index + 1)
        if len(others) == 1:
            texts = [_percent(value).replace("-", "\N{MINUS SIGN}") for value in values]
            axes.bar_label(bars, texts, padding=2, size=7.5)
    axes.axhline(0, color=QUIET, linewidth=0.9, zorder=3)
    axes.margins(y=0.16)
    if np.nanmax(np.abs([each.improvements for each in content.bins]), initial=0) > MOST_LINEAR:
        axes.set_yscale("symlog", linthresh=10)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace("-", "\N{MINUS SIGN}"))
    axes.set_ylabel("change of macro-F1 (%)")
    _finish(axes, _bin_names(content), label, len(others))
    return made
