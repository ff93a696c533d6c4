"""Macro-F1 of slices of the labels, and how much further systems improve on the first."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.report.figures.drawing import (
    INK,
    PAPER,
    QUIET,
    SIZE,
    Drawing,
    bar_style,
    called,
    figure,
    put_legend,
    share_axis,
    style_of,
    written,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from treelabel.report.content import Content
    from treelabel.report.slices import Slice

# An improvement of more percent would flatten all others.
MOST_LINEAR = 200


def slice_figures(content: "Content") -> list[Drawing]:
    """Return the figures by depth, by tenth and by bin of frequency, and of improvements over the first system."""
    # In an axis label there is no room for more.
    reference = content.reference.partition(" (")[0]
    rarest = f"Macro-F1 by tenth of the labels by frequency in {reference}, rarest first"
    result = [
        Drawing(
            "macro-f1-by-depth",
            "slices",
            "Macro-F1 by depth",
            _told("Macro-F1 of the labels at each depth", content, content.depth),
            lambda: _points(content, content.depth, "depth of the label (edges from the root)"),
        ),
        Drawing(
            "macro-f1-by-decile",
            "slices",
            "Macro-F1 by tenth of the labels",
            _told(rarest, content, content.deciles),
            lambda: _points(content, content.deciles, f"tenth of the labels by frequency in {reference}", band=True),
        ),
        Drawing(
            "macro-f1-by-bin",
            "slices",
            "Macro-F1 by frequency",
            _told(f"Macro-F1 by frequency of the label in {reference}", content, content.bins),
            lambda: _bars(content, content.bins, f"documents with the label in {reference}"),
        ),
    ]
    if len(content.systems) > 1:
        result.append(_improvement(content))
    return result


def _told(what: str, content: "Content", slices: "Sequence[Slice]") -> str:
    """Tell the values of a figure of slices in words."""
    parts = []
    for index, system in enumerate(content.systems):
        values = ", ".join(f"{each.name}: {written(each.values[index].value)}" for each in slices)
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
        axes.plot(x, values, label=called(system.name), zorder=3, **style)
        if band:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0, zorder=2)
        else:
            axes.vlines(x, low, high, color=style["color"], linewidth=1.4, zorder=2)
    axes.set_xticks(range(len(slices)), [each.name for each in slices])
    axes.set_xlim(-0.5, len(slices) - 0.5)
    share_axis(axes)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="x")
    put_legend(axes, count if count > 1 else 0)
    return made


def _ends(slices: "Sequence[Slice]", index: int) -> tuple[Any, Any, Any]:
    """The values of a system and the ends of their intervals; an end that is not known is the value itself."""
    values = np.array([each.values[index].value for each in slices])
    low = np.array([each.values[index].low for each in slices])
    high = np.array([each.values[index].high for each in slices])
    return values, np.where(np.isnan(low), values, low), np.where(np.isnan(high), values, high)


def _bars(content: "Content", slices: "Sequence[Slice]", label: str) -> "Figure":
    made, axes = figure(SIZE)
    count = len(content.systems)
    width = 0.8 / count
    for index, system in enumerate(content.systems):
        values, low, high = _ends(slices, index)
        x = np.arange(len(slices)) + (index - (count - 1) / 2) * width
        axes.bar(
            x,
            np.nan_to_num(values),
            width * 0.92,
            edgecolor=PAPER,
            **bar_style(index),
            linewidth=0,
            label=called(system.name),
            zorder=2,
        )
        axes.vlines(x, low, high, color=INK, linewidth=1.1, zorder=3)
    axes.set_xticks(range(len(slices)), [f"{each.name}\n{each.labels:,} labels" for each in slices])
    share_axis(axes)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="x")
    put_legend(axes, count if count > 1 else 0)
    return made


def _improvement(content: "Content") -> Drawing:
    first = content.systems[0].name
    told = [
        f"{system.name}: " + ", ".join(f"{each.name}: {_percent(each.improvements[index])}" for each in content.bins)
        for index, system in enumerate(content.systems[1:])
    ]
    return Drawing(
        "relative-improvement",
        "slices",
        f"Improvement over {first} by frequency",
        f"Relative improvement of macro-F1 over {first} by frequency of the label. {'; '.join(told)}.",
        lambda: _draw_improvement(content),
    )


def _percent(value: float) -> str:
    if value != value:
        return "n/a"
    return f"{value:+,.0f}%" if abs(value) >= 100 else f"{value:+.1f}%"


def _draw_improvement(content: "Content") -> "Figure":
    made, axes = figure(SIZE)
    others = content.systems[1:]
    width = 0.8 / len(others)
    for index, system in enumerate(others):
        values = np.array([each.improvements[index] for each in content.bins])
        x = np.arange(len(content.bins)) + (index - (len(others) - 1) / 2) * width
        style = bar_style(index + 1)
        bars = axes.bar(
            x,
            np.nan_to_num(values),
            width * 0.92,
            edgecolor=PAPER,
            linewidth=0,
            label=called(system.name),
            zorder=2,
            **style,
        )
        if len(others) == 1:
            axes.bar_label(
                bars, [_percent(value).replace("-", "\N{MINUS SIGN}") for value in values], padding=2, size=7.5
            )
    axes.axhline(0, color=QUIET, linewidth=0.9, zorder=3)
    axes.margins(y=0.16)
    if np.nanmax(np.abs([each.improvements for each in content.bins]), initial=0) > MOST_LINEAR:
        axes.set_yscale("symlog", linthresh=10)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace("-", "\N{MINUS SIGN}"))
    axes.set_xticks(range(len(content.bins)), [f"{each.name}\n{each.labels:,} labels" for each in content.bins])
    axes.set_ylabel("change of macro-F1 (%)")
    axes.set_xlabel(f"documents with the label in {content.reference.partition(' (')[0]}")
    axes.grid(visible=False, axis="x")
    put_legend(axes, len(others))
    return made
