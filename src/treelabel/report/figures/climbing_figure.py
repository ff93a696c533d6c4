"""Risk over information kept: what climbing from the best leaf costs, and what it saves."""

from typing import TYPE_CHECKING

import numpy as np

from treelabel.report.figures.drawing import Drawing, figure, format_share, put_legend, short_name, style_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from treelabel.report.content import Content

SIZE = (4.6, 4.2)


def climbing_figures(content: "Content") -> list[Drawing]:
    """Return the curve of the systems that have scores over a tree, where documents have single paths."""
    shown = {index: system for index, system in enumerate(content.systems) if "climbing" in system.result.curves}
    if not shown:
        return []
    areas = "; ".join(
        f"{system.name}: area {format_share(system.result['haurc'])}, risk of the best leaf "
        f"{format_share(float(system.result.curves['climbing']['risk'][0]))}"
        for system in shown.values()
    )
    alt = f"The share of documents whose node is wrong over the information kept, climbing from the best leaf. {areas}."
    title = "Risk when climbing to an ancestor"
    return [Drawing("risk-by-climbing", "climbing", title, alt, lambda: _draw(content, list(shown)))]


def _draw(content: "Content", shown: list[int]) -> "Figure":
    made, axes = figure(SIZE)
    for index in shown:
        system = content.systems[index]
        curve = system.result.curves["climbing"]
        kept, risk = (np.append(curve[each], 0.0) for each in ("coverage", "risk"))
        axes.plot(kept, risk, label=short_name(system.name), **(style_of(index) | {"marker": ""}))
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("information kept (0: the root, 1: a leaf)")
    axes.set_ylabel("share of wrong nodes")
    put_legend(axes, len(shown))
    return made
