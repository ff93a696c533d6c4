"""Hierarchical precision over recall, with what decision rules make of the same scores."""

from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.report.figures.drawing import (
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    QUIET,
    Drawing,
    figure,
    format_share,
    short_name,
    style_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from treelabel.report.content import Content
    from treelabel.report.operating_curve import Curve

    # Curves by the index of the system.
    _Curves = dict[int, Curve]

SIZE = (4.6, 4.2)


def curve_figures(content: "Content") -> list[Drawing]:
    """Return the whole curve and, where the rules are near each other, the part around them; none without scores."""
    curves = {i: details.curve for i, details in enumerate(content.details) if details.curve is not None}
    if not curves:
        return []
    descriptions = []
    for index, curve in curves.items():
        points = ", ".join(
            f"{each.rule} has precision {format_share(each.precision)} and recall {format_share(each.recall)}"
            for each in curve.points
        )
        descriptions.append(f"{content.systems[index].name}: {points}")
    alt = f"Hierarchical precision over recall at all thresholds. {'; '.join(descriptions)}."
    title = "Hierarchical precision and recall"
    result = [Drawing("precision-recall", "curve", title, alt, lambda: _draw_curve(content, curves))]
    window = _window(curves)
    if window is not None:
        alt = f"The part of the curve in which the rules are. {'; '.join(descriptions)}."
        name, title = "precision-recall-closer", "The same, closer"
        result.append(Drawing(name, "curve", title, alt, lambda: _draw_curve(content, curves, window)))
    return result


def _window(curves: "_Curves") -> tuple[float, float, float, float] | None:
    """The part of the axes around all points, None where that is most of them: recall and precision from, to."""
    x, y = np.array([(point.recall, point.precision) for curve in curves.values() for point in curve.points]).T
    middle = (x.min() + x.max()) / 2, (y.min() + y.max()) / 2
    reach = max(np.ptp(x), np.ptp(y), 0.02) * 0.75
    if not np.isfinite(reach) or reach > 0.3:
        return None
    return middle[0] - reach, middle[0] + reach, middle[1] - reach, middle[1] + reach


def _draw_curve(
    content: "Content", curves: "_Curves", window: tuple[float, float, float, float] | None = None
) -> "Figure":
    from matplotlib.lines import Line2D

    made, axes = figure(SIZE)
    handles, names = [], []
    for index, curve in curves.items():
        line = style_of(index) | {"marker": ""}
        axes.plot(curve.recall, curve.precision, zorder=2, **line)
        handles.append(Line2D([], [], **line))
        names.append(short_name(content.systems[index].name))
        for rank, point in enumerate(curve.points):
            colour = PALETTE[(rank + 1 if len(curves) == 1 else index) % len(PALETTE)]
            mark, order = _mark(rank, colour, point.is_chosen), 4 if point.is_chosen else 3
            # At the edge of the whole curve marks are drawn in full; in a part of it, those outside are not.
            axes.plot(point.recall, point.precision, zorder=order, clip_on=window is not None, **mark)
    low_x, high_x, low_y, high_y = (0.0, 1.0, 0.0, 1.0) if window is None else window
    axes.set_xlim(low_x, high_x)
    axes.set_ylim(low_y, high_y)
    axes.set_ylabel("mean hierarchical precision (0 to 1)")
    axes.set_xlabel("mean hierarchical recall (0 to 1)")
    for rank, point in enumerate(next(iter(curves.values())).points):
        # Marks are grey in the legend where they have the colours of systems.
        colour = PALETTE[(rank + 1) % len(PALETTE)] if len(curves) == 1 else QUIET
        handles.append(Line2D([], [], **_mark(rank, colour, point.is_chosen)))
        names.append(short_name(point.rule))
    axes.legend(handles, names, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)
    return made


def _mark(rank: int, colour: str, is_chosen: bool) -> dict[str, Any]:
    """How the mark of a rule looks: its own shape, and a rim if it is the rule of the report."""
    return {
        "marker": MARKERS[rank % len(MARKERS)],
        "linestyle": "",
        "color": colour,
        "markersize": 9.5 if is_chosen else 7.5,
        "markeredgecolor": INK if is_chosen else PAPER,
        "markeredgewidth": 1.5 if is_chosen else 0.7,
    }
