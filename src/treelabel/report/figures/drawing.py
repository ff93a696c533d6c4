"""Parts that all figures share: name and words, size, axes and legend, and how systems are told apart."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.core.errors import printable
from treelabel.report.figures.style import DASHES, HATCHES, MARKERS, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    found: dict[str, Drawing] = {}
    for drawing in drawings:
        names = chain([drawing.name], (f"{drawing.name}-{number}" for number in count(2)))
        name = next(name for name in names if name.casefold() not in found)
        found[name.casefold()] = replace(drawing, name=name)
    return list(found.values())


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
    axes : Axes
        The axes.
    label : str
        What stands at the axis.
    """
    axes.set_ylim(0, 1)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylabel(label)


def style_of(at: int) -> dict[str, Any]:
    """Return the colour, marker and dashes of a system by its place; when colours come again, with other markers."""
    return {
        "color": PALETTE[at % len(PALETTE)],
        "marker": MARKERS[(at + at // len(PALETTE)) % len(MARKERS)],
        "linestyle": DASHES[(at + at // len(PALETTE)) % len(DASHES)],
    }


def bar_style(at: int) -> dict[str, Any]:
    """Return the colour and hatching of a system by its place; when colours come again, with other hatchings.

    >>> bar_style(0)["color"] == bar_style(8)["color"], bar_style(0)["hatch"] == bar_style(8)["hatch"]
    (True, False)
    """
    return {"color": PALETTE[at % len(PALETTE)], "hatch": HATCHES[(at + at // len(PALETTE)) % len(HATCHES)]}


def written(value: float) -> str:
    """Write a share for the description of a figure.

    >>> written(0.123), written(float("nan"))
    ('0.12', 'n/a')
    """
    return "n/a" if value != value else f"{value:.2f}"
