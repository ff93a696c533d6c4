"""The figures of a study: a panel for each data set, lines or bars for each system."""

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from treelabel.report.figures.drawing import (
    INK,
    QUIET,
    SIZE,
    Drawing,
    draw_bars,
    format_share,
    short_name,
    style_of,
    with_own_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In inches: one panel, and a row of the legend.
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_ROW = 3.6, 2.9, 0.2
HANDLE_WIDTH, LETTER_WIDTH = 0.6, 0.085
# In letters, each of up to four bytes: file systems allow 255 bytes.
LONGEST_FILE_NAME = 50
BARS = ("relative_parts", "label_distribution")


class SeriesLike(Protocol):
    """A line, or bars of one colour."""

    @property
    def title(self) -> str:
        """Its name in the legend."""

    @property
    def x(self) -> Sequence[str]:
        """The labels of the axis."""

    @property
    def y(self) -> Sequence[float]:
        """The values."""

    @property
    def low(self) -> Sequence[float]:
        """The lower ends of intervals, NaN where there is none."""

    @property
    def high(self) -> Sequence[float]:
        """The upper ends."""


class PanelLike(Protocol):
    """The part of a figure about one data set."""

    @property
    def title(self) -> str:
        """The data set."""

    @property
    def series(self) -> Sequence[SeriesLike]:
        """The lines or bars."""


class FigureLike(Protocol):
    """A figure of a study, as numbers."""

    @property
    def name(self) -> str:
        """The name of its files."""

    @property
    def title(self) -> str:
        """The title."""

    @property
    def kind(self) -> str:
        """Which kind of figure of a spec it is."""

    @property
    def x(self) -> str:
        """The label of the level axis."""

    @property
    def y(self) -> str:
        """The label of the upright axis."""

    @property
    def panels(self) -> Sequence[PanelLike]:
        """One for each data set."""


def study_figures(figures: Sequence[FigureLike]) -> list[Drawing]:
    """Return the figures of a study as drawings; those without any number are left out."""
    return with_own_names(
        Drawing(_file_name(figure.name), "study", figure.title, _describe(figure), partial(_draw, figure))
        for figure in figures
        if any(panel.series for panel in figure.panels)
    )


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)[:LONGEST_FILE_NAME].strip("-.") or "figure"


def _describe(figure: FigureLike) -> str:
    """Tell the values in words."""
    parts = [
        f"{panel.title}, {series.title}: "
        + ", ".join(f"{x}: {format_share(y)}" for x, y in zip(series.x, series.y, strict=True))
        for panel in figure.panels
        for series in panel.series
    ]
    return f"{figure.title}. {'; '.join(parts)}."


def _draw(figure: FigureLike) -> "Figure":
    from matplotlib.figure import Figure as Canvas

    panels = [panel for panel in figure.panels if panel.series]
    titles = list(dict.fromkeys(series.title for panel in panels for series in panel.series))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    width = max(columns * PANEL_WIDTH, SIZE[0])
    listed = _legend_columns(titles, width)
    height = rows * PANEL_HEIGHT + LEGEND_ROW * -(-len(titles) // listed)
    made = Canvas(figsize=(width, height), layout="constrained")
    grid = np.ravel(made.subplots(rows, columns, squeeze=False))
    for axes, panel in zip(grid, panels, strict=False):
        draw = _draw_bars if figure.kind in BARS else _draw_lines
        draw(axes, panel, titles)
        axes.set_title(short_name(panel.title), loc="left")
        axes.set_xlabel(figure.x)
        axes.set_ylabel(figure.y)
        axes.grid(visible=False, axis="x")
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    handles = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(titles) > 1:
        names = [short_name(title) for title in titles if short_name(title) in handles]
        made.legend([handles[each] for each in names], names, loc="outside upper left", ncols=listed)
    return made


def _legend_columns(titles: Sequence[str], width: float) -> int:
    """Return how many names fit beside each other in so many inches."""
    longest = max(len(short_name(title)) for title in titles)
    return max(1, min(len(titles), int(width / (HANDLE_WIDTH + LETTER_WIDTH * longest))))


def _draw_lines(axes: "Axes", panel: PanelLike, titles: Sequence[str]) -> None:
    ticks = _label_ticks(axes, panel)
    for series in panel.series:
        position = titles.index(series.title)
        x = np.array([ticks[each] for each in series.x]) + 0.05 * (position - (len(titles) - 1) / 2)
        style = style_of(position)
        axes.plot(x, series.y, label=short_name(series.title), zorder=3, **style)
        axes.vlines(x, series.low, series.high, color=style["color"], linewidth=1.1, zorder=2)
    values = [y for series in panel.series for y in series.y if y == y]
    if values and min(values) >= 0:
        # An interval of few seeds may leave the range of a metric; the axis does not follow it.
        axes.set_ylim(0, 1 if 0.5 < max(values) <= 1 else max(values) * 1.15 or 1)


def _draw_bars(axes: "Axes", panel: PanelLike, titles: Sequence[str]) -> None:
    ticks = _label_ticks(axes, panel)
    for number, series in enumerate(panel.series):
        style, positions = titles.index(series.title), [ticks[each] for each in series.x]
        x, _ = draw_bars(axes, positions, series.y, series.title, number, len(panel.series), style)
        axes.vlines(x, series.low, series.high, color=INK, linewidth=1.0, zorder=3)
    axes.axhline(0, color=QUIET, linewidth=0.9, zorder=3)


def _label_ticks(axes: "Axes", panel: PanelLike) -> dict[str, int]:
    """Label the level axis with what all series have, in their order; return where each label stands."""
    labels = list(dict.fromkeys(x for series in panel.series for x in series.x))
    is_long = sum(map(len, labels)) > 40
    turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_long else {}
    axes.set_xticks(range(len(labels)), [short_name(each) for each in labels], **turned)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    return {label: index for index, label in enumerate(labels)}
