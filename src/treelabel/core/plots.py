"""Plots of objects, by name. The top of the package adds what draws them, which rooms below reports cannot import."""

from typing import Any

from treelabel.core.errors import require_extra
from treelabel.core.registry import Lazy, Registry

# Functions that return a matplotlib Figure.
PLOTS: Registry[Lazy[Any]] = Registry("plot", [])


def draw(name: str, *arguments: Any) -> Any:
    """Draw a plot of an object.

    Parameters
    ----------
    name
        A row of PLOTS.
    arguments
        What its function takes.

    Returns
    -------
    matplotlib.figure.Figure
        An error that names the extra to install, where matplotlib is missing.
    """
    with require_extra("report", f"a plot of {name}"):
        return PLOTS.find(name).maker(*arguments)
