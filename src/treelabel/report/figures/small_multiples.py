"""Small figures, many of a kind: calibration of each level, and the F1 of labels under each pair of systems."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from treelabel.report.figures.drawing import (
    PALETTE,
    PAPER,
    QUIET,
    Drawing,
    figure,
    format_share,
    share_axis,
    short_name,
    style_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from treelabel.evaluation.reliability_bins import Reliability
    from treelabel.report.content import Content, Pair

SQUARE = (3.7, 3.7)
SMALL = (2.7, 2.7)
# Bins of fewer documents say nothing of calibration.
FEWEST_DRAWN = 5
# The areas of the points of labels with fewest and with most documents.
POINT_AREA = (7.0, 90.0)


# Calibration


def calibration_figures(content: "Content") -> list[Drawing]:
    """Return a figure for the leaves and for each level; none without scores."""
    groups = next((details.reliability for details in content.details if details.reliability), [])
    result = []
    for index, group in enumerate(groups):
        panels = [(system, d.reliability[index]) for system, d in enumerate(content.details) if d.reliability]
        errors = "; ".join(f"{content.systems[system].name}: {format_share(each.error)}" for system, each in panels)
        alt = f"{group.title}: how often the likeliest label is right over its probability. Calibration error {errors}."
        name = f"calibration-{group.group}" if group.group == "leaves" else f"calibration-depth-{group.group}"
        result.append(Drawing(name, "calibration", group.title, alt, partial(_draw_calibration, panels)))
    return result


def _draw_calibration(panels: "Sequence[tuple[int, Reliability]]") -> "Figure":
    made, axes = figure(SMALL)
    draw_reliability(axes, panels)
    return made


def draw_reliability(axes: "Axes", panels: "Sequence[tuple[int, Reliability]]") -> None:
    """Draw how often labels are right over their probability.

    Parameters
    ----------
    axes
        Where to draw.
    panels
        The number of each system, which chooses its colour, and its reliability.
    """
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=":", zorder=1)
    for system, each in panels:
        style, some = style_of(system), each.counts >= FEWEST_DRAWN
        x, y, low, high, counts = (a[some] for a in (each.confidence, each.accuracy, each.low, each.high, each.counts))
        axes.plot(x, y, color=style["color"], linewidth=0.9, alpha=0.55, zorder=2)
        axes.vlines(x, low, high, color=style["color"], linewidth=0.9, alpha=0.55, zorder=2)
        area = 16 + 84 * counts / max(counts.max(initial=0), 1)
        look = {"color": style["color"], "marker": style["marker"], "edgecolors": PAPER, "linewidths": 0.6}
        axes.scatter(x, y, area, zorder=3, clip_on=False, **look)
    axes.set_xlim(0, 1)
    share_axis(axes, "share that is right")
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_xlabel("probability")
    axes.set_aspect("equal")


# Label by label


def scatter_figure(pair: "Pair") -> Drawing:
    """Return the figure of a pair of systems."""
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


def _draw_scatter(pair: "Pair") -> "Figure":
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
    axes.set_xlabel(f"F1 of {short_name(pair.first)} (0 to 1)")
    axes.set_ylabel(f"F1 of {short_name(pair.second)} (0 to 1)")
    axes.set_aspect("equal")
    return made
