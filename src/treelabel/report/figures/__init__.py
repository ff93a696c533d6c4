"""The figures of a report, drawn with matplotlib when they are asked for."""

from dataclasses import replace
from itertools import chain, count

from treelabel.report.content import Content
from treelabel.report.figures.base import Drawing
from treelabel.report.figures.curve import curve_figures
from treelabel.report.figures.panels import calibration_figures, scatter_figure
from treelabel.report.figures.slices import slice_figures

__all__ = ["Drawing", "drawings"]


def drawings(content: Content) -> list[Drawing]:
    """Return the figures of a report, in its order, each with a name of its own."""
    pairs = [scatter_figure(pair) for pair in content.pairs]
    found: dict[str, Drawing] = {}
    for drawing in (*curve_figures(content), *slice_figures(content), *calibration_figures(content), *pairs):
        # Names of systems lose what is no letter or digit, and may then be the same.
        names = chain([drawing.name], (f"{drawing.name}-{number}" for number in count(2)))
        name = next(name for name in names if name not in found)
        found[name] = replace(drawing, name=name)
    return list(found.values())
