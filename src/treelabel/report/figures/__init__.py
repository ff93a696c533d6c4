"""The figures of a report, drawn with matplotlib when they are asked for."""

from typing import TYPE_CHECKING

from treelabel.report.figures.climbing_figure import climbing_figures
from treelabel.report.figures.curve_figure import curve_figures
from treelabel.report.figures.drawing import Drawing, with_own_names
from treelabel.report.figures.slice_figures import slice_figures
from treelabel.report.figures.small_multiples import calibration_figures, scatter_figure

if TYPE_CHECKING:
    from treelabel.report.content import Content

__all__ = ["Drawing", "drawings"]


def drawings(content: "Content") -> list[Drawing]:
    """Return the figures of a report, in its order, each with a name of its own."""
    pairs = [scatter_figure(pair) for pair in content.pairs]
    curves = *curve_figures(content), *climbing_figures(content)
    return with_own_names((*curves, *slice_figures(content), *calibration_figures(content), *pairs))
