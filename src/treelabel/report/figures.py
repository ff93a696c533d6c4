"""The figures of a report, drawn with matplotlib; each knows its file name, title and description in words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.core.errors import printable
from treelabel.report.content import Content, Pair
from treelabel.report.reliability import Reliability
from treelabel.report.slices import Slice
from treelabel.report.style import DASHES, HATCHES, INK, MARKERS, PALETTE, PAPER, QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In inches; a page shows them side by side, a phone one below the other.
SIZE = (4.6, 3.2)
SQUARE = (3.7, 3.7)
SMALL = (2.7, 2.7)
LONGEST_NAME = 26
# Bins of fewer documents say nothing of calibration.
FEWEST_DRAWN = 5
# An improvement of more percent would flatten all others.
MOST_LINEAR = 200
# Documents that the smallest and the largest point of a scatter stand for differ more than their areas.
POINT_AREA = (7.0, 90.0)


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn when it is asked for. `group` names the section of the page that it stands in."""

    name: str
    group: str
    title: str
    alt: str
    draw: Callable[[], "Figure"]


def drawings(content: Content) -> list[Drawing]:
    """Return the figures of a report, in its order."""
    reference = content.reference
    found = [*_curve(content)]
    found.append(
        Drawing(
            "macro-f1-by-depth",
            "slices",
            "Macro-F1 by depth",
            _told("Macro-F1 of the labels at each depth", content, content.depth),
            lambda: _points(content, content.depth, "depth of the label (edges from the root)"),
        )
    )
    found.append(
        Drawing(
            "macro-f1-by-decile",
            "slices",
            "Macro-F1 by tenth of the labels",
            _told(
                f"Macro-F1 by tenth of the labels by frequency in {reference}, rarest first", content, content.deciles
            ),
            lambda: _points(content, content.deciles, f"tenth of the labels by frequency in {reference}", band=True),
        )
    )
    found.append(
        Drawing(
            "macro-f1-by-bin",
            "slices",
            "Macro-F1 by frequency",
            _told(f"Macro-F1 by frequency of the label in {reference}", content, content.bins),
            lambda: _bars(content, content.bins, f"documents with the label in {reference}"),
        )
    )
    if len(content.systems) > 1:
        found.append(_improvement(content))
    return [*found, *_calibration(content), *map(_scatter, content.pairs)]


def _told(what: str, content: Content, slices: Sequence[Slice]) -> str:
    """Tell the values of a figure of slices in words."""
    parts = []
    for at, system in enumerate(content.systems):
        values = ", ".join(f"{each.name}: {_number(each.values[at].value)}" for each in slices)
        parts.append(f"{system.name}: {values}" if len(content.systems) > 1 else values)
    return f"{what}. {'; '.join(parts)}."


def _number(value: float) -> str:
    return "n/a" if value != value else f"{value:.2f}"


# What all figures share


def figure(size: tuple[float, float]) -> "tuple[Figure, Axes]":
    """Make an empty figure, without any of matplotlib's global state."""
    from matplotlib.figure import Figure

    made = Figure(figsize=size, layout="constrained")
    return made, made.add_subplot()


def called(name: str) -> str:
    """Shorten a name for a legend; what would disturb a drawing is escaped, and a leading "_" would hide it."""
    text = printable(name)
    text = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


def _legend(axes: "Axes", count: int) -> None:
    """Put the legend above the axes, where it covers nothing."""
    if count:
        columns = 1 if count == 1 else 2
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2, columnspacing=1.2)


def _share_axis(axes: "Axes", label: str = "macro-F1 (0 to 1)") -> None:
    axes.set_ylim(0, 1)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylabel(label)


def _style(at: int) -> dict[str, Any]:
    return {
        "color": PALETTE[at % len(PALETTE)],
        "marker": MARKERS[at % len(MARKERS)],
        "linestyle": DASHES[at % len(DASHES)],
    }


# Precision and recall


def _curve(content: Content) -> list[Drawing]:
    with_scores = [at for at, details in enumerate(content.details) if details.curve is not None]
    if not with_scores:
        return []
    listed = []
    for at in with_scores:
        curve = content.details[at].curve
        assert curve is not None
        points = ", ".join(f"{p.rule} has precision {p.precision:.2f} and recall {p.recall:.2f}" for p in curve.points)
        listed.append(f"{content.systems[at].name}: {points}")
    alt = f"Hierarchical precision over recall at all thresholds. {'; '.join(listed)}."
    title = "Hierarchical precision and recall"
    found = [Drawing("precision-recall", "curve", title, alt, lambda: _draw_curve(content, with_scores))]
    window = _window(content, with_scores)
    if window is not None:
        found.append(
            Drawing(
                "precision-recall-closer",
                "curve",
                "The same, closer",
                f"The part of the curve in which the rules are. {'; '.join(listed)}.",
                lambda: _draw_curve(content, with_scores, window),
            )
        )
    return found


def _window(content: Content, with_scores: Sequence[int]) -> tuple[float, float, float, float] | None:
    """The part of the axes around all points, None where that is most of them: recall and precision from, to."""
    curves = [content.details[at].curve for at in with_scores]
    points = [(point.recall, point.precision) for curve in curves if curve is not None for point in curve.points]
    x, y = np.array(points).T
    middle = (x.min() + x.max()) / 2, (y.min() + y.max()) / 2
    reach = max(np.ptp(x), np.ptp(y), 0.02) * 0.75
    if not np.isfinite(reach) or reach > 0.3:
        return None
    return middle[0] - reach, middle[0] + reach, middle[1] - reach, middle[1] + reach


def _draw_curve(
    content: Content, with_scores: Sequence[int], window: tuple[float, float, float, float] | None = None
) -> "Figure":
    made, axes = figure((4.6, 4.2))
    is_one = len(with_scores) == 1
    for at in with_scores:
        curve = content.details[at].curve
        assert curve is not None
        axes.plot(curve.recall, curve.precision, zorder=2, **(_style(at) | {"marker": ""}))
        for place, point in enumerate(curve.points):
            colour = PALETTE[(place + 1) % len(PALETTE)] if is_one else PALETTE[at % len(PALETTE)]
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


def _curve_legend(content: Content, with_scores: Sequence[int]) -> tuple[list[Any], list[str]]:
    """A line for each system and a mark for each rule; marks are grey where they have the colours of systems."""
    from matplotlib.lines import Line2D

    is_one = len(with_scores) == 1
    handles = [Line2D([], [], **(_style(at) | {"marker": ""})) for at in with_scores]
    names = [called(content.systems[at].name) for at in with_scores]
    curve = content.details[with_scores[0]].curve
    assert curve is not None
    for place, point in enumerate(curve.points):
        colour = PALETTE[(place + 1) % len(PALETTE)] if is_one else QUIET
        handles.append(Line2D([], [], **_mark(place, colour, point.is_chosen)))
        names.append(called(point.rule))
    return handles, names


# Slices of the labels


def _points(content: Content, slices: Sequence[Slice], label: str, band: bool = False) -> "Figure":
    """Draw values with intervals, as bars of error or as a band."""
    made, axes = figure(SIZE)
    count = len(content.systems)
    for at, system in enumerate(content.systems):
        values, low, high = _ends(slices, at)
        x = np.arange(len(slices)) + (0 if band else (at - (count - 1) / 2) * min(0.12, 0.6 / count))
        style = _style(at)
        axes.plot(x, values, label=called(system.name), zorder=3, **style)
        if band:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0, zorder=2)
        else:
            axes.vlines(x, low, high, color=style["color"], linewidth=1.4, zorder=2)
    axes.set_xticks(range(len(slices)), [each.name for each in slices])
    axes.set_xlim(-0.5, len(slices) - 0.5)
    _share_axis(axes)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="x")
    _legend(axes, count if count > 1 else 0)
    return made


def _ends(slices: Sequence[Slice], at: int) -> tuple[Any, Any, Any]:
    """The values of a system and the ends of their intervals; an end that is not known is the value itself."""
    values = np.array([each.values[at].value for each in slices])
    low = np.array([each.values[at].low for each in slices])
    high = np.array([each.values[at].high for each in slices])
    return values, np.where(np.isnan(low), values, low), np.where(np.isnan(high), values, high)


def _bars(content: Content, slices: Sequence[Slice], label: str) -> "Figure":
    made, axes = figure(SIZE)
    count = len(content.systems)
    width = 0.8 / count
    for at, system in enumerate(content.systems):
        values, low, high = _ends(slices, at)
        x = np.arange(len(slices)) + (at - (count - 1) / 2) * width
        colour = PALETTE[at % len(PALETTE)]
        axes.bar(
            x,
            np.nan_to_num(values),
            width * 0.92,
            color=colour,
            edgecolor=PAPER,
            hatch=HATCHES[at % len(HATCHES)],
            linewidth=0,
            label=called(system.name),
            zorder=2,
        )
        axes.vlines(x, low, high, color=INK, linewidth=1.1, zorder=3)
    axes.set_xticks(range(len(slices)), [f"{each.name}\n{each.labels:,} labels" for each in slices])
    _share_axis(axes)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="x")
    _legend(axes, count if count > 1 else 0)
    return made


def _improvement(content: Content) -> Drawing:
    first = content.systems[0].name
    told = [
        f"{system.name}: " + ", ".join(f"{each.name}: {_percent(each.improvements[at])}" for each in content.bins)
        for at, system in enumerate(content.systems[1:])
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


def _draw_improvement(content: Content) -> "Figure":
    made, axes = figure(SIZE)
    others = content.systems[1:]
    width = 0.8 / len(others)
    for at, system in enumerate(others):
        values = np.array([each.improvements[at] for each in content.bins])
        x = np.arange(len(content.bins)) + (at - (len(others) - 1) / 2) * width
        style: dict[str, Any] = {"color": PALETTE[(at + 1) % len(PALETTE)], "hatch": HATCHES[(at + 1) % len(HATCHES)]}
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
    axes.set_xlabel(f"documents with the label in {content.reference}")
    axes.grid(visible=False, axis="x")
    _legend(axes, len(others))
    return made


# Calibration


def _calibration(content: Content) -> list[Drawing]:
    groups = next((details.reliability for details in content.details if details.reliability), [])
    found = []
    for at, group in enumerate(groups):
        panels = [(place, d.reliability[at]) for place, d in enumerate(content.details) if d.reliability]
        errors = "; ".join(f"{content.systems[place].name}: {_number(each.error)}" for place, each in panels)
        alt = f"{group.title}: how often the likeliest label is right over its probability. Calibration error {errors}."
        found.append(
            Drawing(
                f"calibration-{group.group}" if group.group == "leaves" else f"calibration-depth-{group.group}",
                "calibration",
                group.title,
                alt,
                lambda panels=panels: _draw_calibration(panels),  # type: ignore[misc]
            )
        )
    return found


def _draw_calibration(panels: Sequence[tuple[int, Reliability]]) -> "Figure":
    made, axes = figure(SMALL)
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=":", zorder=1)
    for place, each in panels:
        style, some = _style(place), each.counts >= FEWEST_DRAWN
        x, y, low, high, counts = (a[some] for a in (each.confidence, each.accuracy, each.low, each.high, each.counts))
        axes.plot(x, y, color=style["color"], linewidth=0.9, alpha=0.55, zorder=2)
        axes.vlines(x, low, high, color=style["color"], linewidth=0.9, alpha=0.55, zorder=2)
        area = 16 + 84 * counts / max(counts.max(initial=0), 1)
        axes.scatter(
            x,
            y,
            area,
            color=style["color"],
            marker=style["marker"],
            edgecolors=PAPER,
            linewidths=0.6,
            zorder=3,
            clip_on=False,
        )
    axes.set_xlim(0, 1)
    _share_axis(axes, "share that is right")
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_xlabel("probability")
    axes.set_aspect("equal")
    return made


# Label by label


def _scatter(pair: Pair) -> Drawing:
    alt = (
        f"F1 of each label, {pair.first} against {pair.second}: {pair.second} is better on {pair.second_better:,} of "
        f"{len(pair.documents):,} labels, {pair.first} on {pair.first_better:,}."
    )
    name = "-".join(["scatter", *(_file_name(each) for each in (pair.first, pair.second))])
    return Drawing(name, "scatter", f"{pair.second} against {pair.first}", alt, lambda: _draw_scatter(pair))


def _file_name(name: str) -> str:
    """Keep letters and digits of a name for a file.

    >>> _file_name("../bert base.npz")
    'bert_base_npz'
    """
    words = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in name).split()
    return "_".join(words)[:40] or "system"


def _draw_scatter(pair: Pair) -> "Figure":
    made, axes = figure(SQUARE)
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=":", zorder=1)
    root = np.sqrt(pair.documents)
    low, high = POINT_AREA
    area = low + (high - low) * root / max(root.max(initial=0), 1)
    # Thousands of shapes would make the page slow; a picture of them does not.
    axes.scatter(
        pair.first_f1, pair.second_f1, area, color=PALETTE[0], alpha=0.35, linewidths=0, rasterized=True, zorder=2
    )
    for side in ("x", "y"):
        getattr(axes, f"set_{side}lim")(-0.03, 1.03)
        getattr(axes, f"set_{side}ticks")(np.linspace(0, 1, 6))
    axes.set_xlabel(f"F1 of {called(pair.first)} (0 to 1)")
    axes.set_ylabel(f"F1 of {called(pair.second)} (0 to 1)")
    axes.set_aspect("equal")
    return made
