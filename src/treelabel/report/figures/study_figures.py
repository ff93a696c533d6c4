"""The figures of a study: a panel for each data set, lines or bars for each system."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from treelabel.report.figures.drawing import (
    INK,
    PAPER,
    QUIET,
    SIZE,
    Drawing,
    bar_style,
    called,
    style_of,
    with_own_names,
    written,
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
        Drawing(_file_name(figure.name), "study", figure.title, _told(figure), lambda figure=figure: _draw(figure))  # type: ignore[misc]
        for figure in figures
        if any(panel.series for panel in figure.panels)
    )


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)[:LONGEST_FILE_NAME].strip("-.") or "figure"


def _told(figure: FigureLike) -> str:
    """Tell the values in words."""
    parts = [
        f"{panel.title}, {series.title}: "
        + ", ".join(f"{x}: {written(y)}" for x, y in zip(series.x, series.y, strict=True))
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
        axes.set_title(called(panel.title), loc="left")
        axes.set_xlabel(figure.x)
        axes.set_ylabel(figure.y)
        axes.grid(visible=False, axis="x")
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    handles = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(titles) > 1:
        names = [called(title) for title in titles if called(title) in handles]
        made.legend([handles[each] for each in names], names, loc="outside upper left", ncols=listed)
    return made


def _legend_columns(titles: Sequence[str], width: float) -> int:
    """Return how many names fit beside each other in so many inches."""
    longest = max(len(called(title)) for title in titles)
    return max(1, min(len(titles), int(width / (HANDLE_WIDTH + LETTER_WIDTH * longest))))


def _places(panel: PanelLike) -> list[str]:
    """The labels of the axis, of all series in their order."""
    return list(dict.fromkeys(x for series in panel.series for x in series.x))


def _draw_lines(axes: "Axes", panel: PanelLike, titles: Sequence[str]) -> None:
    places = _places(panel)
    for series in panel.series:
        position = titles.index(series.title)
        x = np.array([places.index(each) for each in series.x]) + 0.05 * (position - (len(titles) - 1) / 2)
        style = style_of(position)
        axes.plot(x, series.y, label=called(series.title), zorder=3, **style)
        axes.vlines(x, series.low, series.high, color=style["color"], linewidth=1.1, zorder=2)
    _label_places(axes, places)
    values = [y for series in panel.series for y in series.y if y == y]
    if values and min(values) >= 0:
        # An interval of few seeds may leave the range of a metric; the axis does not follow it.
        axes.set_ylim(0, 1 if 0.5 < max(values) <= 1 else max(values) * 1.15 or 1)


def _draw_bars(axes: "Axes", panel: PanelLike, titles: Sequence[str]) -> None:
    places = _places(panel)
    width = 0.8 / max(1, len(panel.series))
    for number, series in enumerate(panel.series):
        position = titles.index(series.title)
        x = np.array([places.index(each) for each in series.x]) + (number - (len(panel.series) - 1) / 2) * width
        axes.bar(
            x,
            np.nan_to_num(np.array(series.y)),
            width * 0.92,
            edgecolor=PAPER,
            linewidth=0,
            label=called(series.title),
            zorder=2,
            **bar_style(position),
        )
        axes.vlines(x, series.low, series.high, color=INK, linewidth=1.0, zorder=3)
    axes.axhline(0, color=QUIET, linewidth=0.9, zorder=3)
    _label_places(axes, places)


def _label_places(axes: "Axes", places: Sequence[str]) -> None:
    slanted = sum(map(len, places)) > 40
    turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axes.set_xticks(range(len(places)), [called(each) for each in places], **turned)  # type: ignore[arg-type]
    axes.set_xlim(-0.6, len(places) - 0.4)
