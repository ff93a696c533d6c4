"""The parts that all figures share: names, fonts, lines, axes, legends, and colours that everybody can tell apart."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from treelabel.core.errors import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, the most different first.
PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
# Lines and bars differ in more than their colour.
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: Final = ("-", "--", "-.", ":")
HATCHES: Final = ("", "///", "...", "\\\\\\", "xxx", "---", "+++", "ooo")
INK: Final = "#1b1f24"
QUIET: Final = "#5b6570"
GRID: Final = "#d9dee3"
PAPER: Final = "#ffffff"

# Colours that the page replaces by its own, which depend on whether it is dark.
VARIABLES: Final = {
    INK: "var(--ink)",
    QUIET: "var(--quiet)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--s{number})" for number, colour in enumerate(PALETTE, 1)},
}

SETTINGS: Final[dict[Any, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "pdf.fonttype": 42,
    "svg.hashsalt": "treelabel",
}

# In inches; a page shows them side by side, a phone one below the other.
SIZE = (4.6, 3.2)
LONGEST_NAME = 26


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn when it is asked for. `group` names the section of the page that it stands in."""

    name: str
    group: str
    title: str
    alt: str
    draw: Callable[[], "Figure"]


def with_own_names(drawings: Iterable[Drawing]) -> list[Drawing]:
    """Number the drawings whose name an earlier one has: names lose what no file can be called by, and may be the same.

    Capital letters make no difference, as they make none to files on many machines.
    """
    result: dict[str, Drawing] = {}
    for drawing in drawings:
        names = chain([drawing.name], (f"{drawing.name}-{number}" for number in count(2)))
        name = next(name for name in names if name.casefold() not in result)
        result[name.casefold()] = replace(drawing, name=name)
    return list(result.values())


def figure(size: tuple[float, float]) -> "tuple[Figure, Axes]":
    """Make an empty figure, without any of matplotlib's global state."""
    from matplotlib.figure import Figure

    made = Figure(figsize=size, layout="constrained")
    return made, made.add_subplot()


def short_name(name: str) -> str:
    """Shorten a name for a legend; what would disturb a drawing is escaped, and a leading "_" would hide it."""
    text = printable(name)
    text = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
    return f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text


def put_legend(axes: "Axes", count: int) -> None:
    """Put the legend above the axes, where it covers nothing.

    Parameters
    ----------
    axes : Axes
        Where to put it.
    count : int
        The number of names in it; none for 0.
    """
    if count:
        columns = 1 if count == 1 else 2
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2, columnspacing=1.2)


def share_axis(axes: "Axes", label: str = "macro-F1 (0 to 1)") -> None:
    """Let the upright axis go from 0 to 1.

    Parameters
    ----------
    label : str
        What stands at the axis.
    """
    axes.set_ylim(0, 1)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylabel(label)


def style_of(index: int) -> dict[str, Any]:
    """Return the colour, marker and dashes of a system by its index; when colours come again, with other markers."""
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": MARKERS[(index + index // len(PALETTE)) % len(MARKERS)],
        "linestyle": DASHES[(index + index // len(PALETTE)) % len(DASHES)],
    }


def bar_style(index: int) -> dict[str, Any]:
    """Return the colour and hatching of a system by its index; when colours come again, with other hatchings.

    >>> bar_style(0)["color"] == bar_style(8)["color"], bar_style(0)["hatch"] == bar_style(8)["hatch"]
    (True, False)
    """
    return {"color": PALETTE[index % len(PALETTE)], "hatch": HATCHES[(index + index // len(PALETTE)) % len(HATCHES)]}


def draw_bars(axes: "Axes", ticks: Any, values: Any, name: str, number: int, count: int, style: int) -> tuple[Any, Any]:
    """Draw the bars of one of several systems, those of all side by side at each tick.

    Parameters
    ----------
    axes : Axes
        Where to draw.
    ticks, values : arrays of the same length
        Where bars stand, and how high they are; NaN is drawn as 0.
    name : str
        What the legend calls them.
    number, count : int
        Which of how many systems it is.
    style : int
        The index of its colour.

    Returns
    -------
    x : array
        The middle of each bar.
    bars : BarContainer
    """
    width = 0.8 / count
    x = np.asarray(ticks) + (number - (count - 1) / 2) * width
    look = {"edgecolor": PAPER, "linewidth": 0, "zorder": 2, **bar_style(style)}
    return x, axes.bar(x, np.nan_to_num(np.array(values)), width * 0.92, label=short_name(name), **look)


def format_share(value: float) -> str:
    """Write a share for the description of a figure.

    >>> format_share(0.123), format_share(float("nan"))
    ('0.12', 'n/a')
    """
    return "n/a" if value != value else f"{value:.2f}"
