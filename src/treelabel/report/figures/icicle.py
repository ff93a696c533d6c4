"""A hierarchy as an icicle: levels as rows, each label a box under its parent, as wide as what is under it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from treelabel.core.errors import printable
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.report.figures.drawing import INK, PALETTE, PAPER, QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A box that is narrower than this share of the figure is no more than a line.
NARROWEST = 1 / 2000
MOST_BOXES = 4000
MOST_LEVELS = 14
# The width of a letter as a share of the figure, on average, and of the space around a name.
LETTER, MARGIN = 0.0069, 0.006
FONT_SIZE = 7.5


@dataclass(frozen=True, eq=False)
class Boxes:
    """Where each node stands: its row from 0, its left end and its width, both as shares of the figure."""

    row: LongArray
    left: DoubleArray
    width: DoubleArray


def place_boxes(hierarchy: Hierarchy, frequencies: DoubleArray | None = None) -> Boxes:
    """Compute where the boxes of nodes stand.

    Parameters
    ----------
    hierarchy
        What to draw; a node with several parents stands under the one of its path.
    frequencies : array of shape (nodes,), optional
        Documents of each node. A node is as wide as its documents, or as its children, if these have more together.

    Returns
    -------
    Boxes

    >>> boxes = place_boxes(Hierarchy.from_paths(["A > B", "A > C", "D"]))
    >>> boxes.row.tolist(), boxes.left.round(2).tolist(), boxes.width.round(2).tolist()
    ([0, 0, 1, 1], [0.0, 0.67, 0.0, 0.33], [0.67, 0.33, 0.33, 0.33])
    """
    parent: IntArray = hierarchy.parent_idx[hierarchy.parent_ptr[1:] - 1]
    levels = [np.arange(len(hierarchy))[hierarchy.level(depth)] for depth in range(1, hierarchy.max_depth + 1)]
    size = (hierarchy.is_leaf if frequencies is None else frequencies).astype(np.float64)
    # The last entry stands for the root, which is written -1.
    below, row, left = (np.zeros(len(hierarchy) + 1) for _ in range(3))
    for nodes in reversed(levels):
        size[nodes] = np.maximum(size[nodes], below[nodes])
        np.add.at(below, parent[nodes], size[nodes])
    width = size / max(below[-1], 1)
    row[-1], left[-1] = -1, 0.0
    free = left.copy()
    for nodes in levels:
        above = parent[nodes]
        row[nodes] = row[above] + 1
        order = np.argsort(above, kind="stable")
        ends = np.cumsum(width[nodes][order])
        starts = ends - width[nodes][order]
        _, first, group = np.unique(above[order], return_index=True, return_inverse=True)
        left[nodes[order]] = free[above[order]] + starts - starts[first][group]
        np.add.at(free, above, width[nodes])
        free[nodes] = left[nodes]
    return Boxes(row[:-1].astype(np.int64), left[:-1], width)


def draw_icicle(axes: "Axes", hierarchy: Hierarchy, frequencies: DoubleArray | None = None) -> None:
    """Draw a hierarchy, and say under it how many labels are too narrow, or too deep, to be drawn.

    Parameters
    ----------
    axes
        Where to draw.
    hierarchy, frequencies
        As for `place_boxes`.
    """
    boxes = place_boxes(hierarchy, frequencies)
    drawn = np.flatnonzero((boxes.width >= NARROWEST) & (boxes.row < MOST_LEVELS))
    if len(drawn) > MOST_BOXES:
        drawn = np.sort(drawn[np.argsort(-boxes.width[drawn], kind="stable")[:MOST_BOXES]])
    tops = np.searchsorted(np.sort(boxes.left[boxes.row == 0]), boxes.left[drawn] + 1e-12, side="right") - 1
    # Black boxes would hide the names in them.
    colours = [PALETTE[top % (len(PALETTE) - 1)] for top in tops.tolist()]
    bottom, left, width = -boxes.row[drawn] - 1.0, boxes.left[drawn], boxes.width[drawn]
    axes.bar(left, 1, width, bottom, align="edge", color=colours, alpha=0.45, edgecolor=PAPER, linewidth=0.6)
    for node, x, y, share in zip(drawn.tolist(), left.tolist(), bottom.tolist(), width.tolist(), strict=True):
        name = printable(hierarchy.name_array[node].as_py())
        if len(name) * LETTER + MARGIN <= share:
            axes.text(x + share / 2, y + 0.5, name, ha="center", va="center", size=FONT_SIZE, color=INK, clip_on=True)
    rows = int(boxes.row[drawn].max(initial=0)) + 1
    axes.set_xlim(0, 1)
    axes.set_ylim(-rows, 0)
    axes.set_xticks([])
    axes.set_yticks(-np.arange(rows) - 0.5, [str(row + 1) for row in range(rows)])
    axes.set_ylabel("level")
    axes.grid(visible=False)
    axes.set_xlabel(_caption(hierarchy, len(hierarchy) - len(drawn), frequencies is not None), color=QUIET, size=8.5)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _caption(hierarchy: Hierarchy, left_out: int, by_documents: bool) -> str:
    """Say what widths mean, and what is not drawn."""
    what = f"{len(hierarchy):,} labels, as wide as {'their documents' if by_documents else 'the leaves under them'}"
    what += f"; {left_out:,} are too narrow or too deep to be drawn" if left_out else ""
    return what if hierarchy.is_tree else f"{what}; a label with several parents stands under one of them"
