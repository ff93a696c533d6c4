"""Hierarchical precision over recall, with what decision rules make of the same scores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.report.figures.drawing import (
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    QUIET,
    Drawing,
    called,
    figure,
    style_of,
    written,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from treelabel.report.content import Content

SIZE = (4.6, 4.2)


def curve_figures(content: "Content") -> list[Drawing]:
    """Return the whole curve and, where the rules are near each other, the part around them; none without scores."""
    with_scores = [index for index, details in enumerate(content.details) if details.curve is not None]
    if not with_scores:
        return []
    listed = []
    for index in with_scores:
        curve = content.details[index].curve
        assert curve is not None
        points = ", ".join(
            f"{each.rule} has precision {written(each.precision)} and recall {written(each.recall)}"
            for each in curve.points
        )
        listed.append(f"{content.systems[index].name}: {points}")
    alt = f"Hierarchical precision over recall at all thresholds. {'; '.join(listed)}."
    title = "Hierarchical precision and recall"
    result = [Drawing("precision-recall", "curve", title, alt, lambda: _draw_curve(content, with_scores))]
    window = _window(content, with_scores)
    if window is not None:
        result.append(
            Drawing(
                "precision-recall-closer",
                "curve",
                "The same, closer",
                f"The part of the curve in which the rules are. {'; '.join(listed)}.",
                lambda: _draw_curve(content, with_scores, window),
            )
        )
    return result


def _window(content: "Content", with_scores: Sequence[int]) -> tuple[float, float, float, float] | None:
    """The part of the axes around all points, None where that is most of them: recall and precision from, to."""
    curves = [content.details[index].curve for index in with_scores]
    points = [(point.recall, point.precision) for curve in curves if curve is not None for point in curve.points]
    x, y = np.array(points).T
    middle = (x.min() + x.max()) / 2, (y.min() + y.max()) / 2
    reach = max(np.ptp(x), np.ptp(y), 0.02) * 0.75
    if not np.isfinite(reach) or reach > 0.3:
        return None
    return middle[0] - reach, middle[0] + reach, middle[1] - reach, middle[1] + reach


def _draw_curve(
    content: "Content", with_scores: Sequence[int], window: tuple[float, float, float, float] | None = None
) -> "Figure":
    made, axes = figure(SIZE)
    is_one = len(with_scores) == 1
    for index in with_scores:
        curve = content.details[index].curve
        assert curve is not None
        axes.plot(curve.recall, curve.precision, zorder=2, **(style_of(index) | {"marker": ""}))
        for place, point in enumerate(curve.points):
            colour = PALETTE[(place + 1) % len(PALETTE)] if is_one else PALETTE[index % len(PALETTE)]
            # At the edge of the whole curve marks are drawn in full; in a part of it, those outside are not.
            axes.plot(
                point.recall,
                point.precision,
                zorder=4 if point.is_chosen else 3,
                clip_on=window is not None,
                **_mark(place, colour, point.is_chosen),
            )
    low_x, high_x, low_y, high_y = (0.0, 1.0, 0.0, 1.0) if window is None else window
    axes.set_xlim(low_x, high_x)
    axes.set_ylim(low_y, high_y)
    axes.set_ylabel("mean hierarchical precision (0 to 1)")
    axes.set_xlabel("mean hierarchical recall (0 to 1)")
    handles, names = _curve_legend(content, with_scores)
    axes.legend(handles, names, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2)
    return made


def _mark(place: int, colour: str, is_chosen: bool) -> dict[str, Any]:
    """How the mark of a rule looks: its own shape, and a rim if it is the rule of the report."""
    return {
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": "",
        "color": colour,
        "markersize": 9.5 if is_chosen else 7.5,
        "markeredgecolor": INK if is_chosen else PAPER,
        "markeredgewidth": 1.5 if is_chosen else 0.7,
    }


def _curve_legend(content: "Content", with_scores: Sequence[int]) -> tuple[list[Any], list[str]]:
    """A line for each system and a mark for each rule; marks are grey where they have the colours of systems."""
    from matplotlib.lines import Line2D

    is_one = len(with_scores) == 1
    handles = [Line2D([], [], **(style_of(index) | {"marker": ""})) for index in with_scores]
    names = [called(content.systems[index].name) for index in with_scores]
    curve = content.details[with_scores[0]].curve
    assert curve is not None
    for place, point in enumerate(curve.points):
        colour = PALETTE[(place + 1) % len(PALETTE)] if is_one else QUIET
        handles.append(Line2D([], [], **_mark(place, colour, point.is_chosen)))
        names.append(called(point.rule))
    return handles, names
