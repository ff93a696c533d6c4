"""The page: numbers and figures put into a template, all text of users escaped, nothing loaded from anywhere."""

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Final

import jinja2
from markupsafe import Markup

import treelabel
from treelabel.core.errors import shorten
from treelabel.evaluation.comparison import STAR_LEVEL
from treelabel.evaluation.significance import Comparison
from treelabel.report.content import Content
from treelabel.report.figures.drawing import Drawing
from treelabel.report.pictures import inline_svg
from treelabel.report.sentences import Meaning, meaning
from treelabel.report.tree import tree_json

MOST_BYTES: Final = 5_000_000
# The tree takes what the rest of the page leaves, up to this.
MOST_TREE_BYTES: Final = 3_000_000
LONGEST_LABEL: Final = 200
_TREE_PLACE: Final = "\x00tree\x00"


@dataclass(frozen=True)
class MetricCell:
    """A value of a system in the table of metrics, its interval, and the difference to the first system."""

    value: str
    interval: str
    ends: str = ""
    difference: str = ""
    is_better: bool | None = None
    reason: str = ""


@dataclass(frozen=True)
class MetricRow:
    """A metric in the table: what it means, and a cell for each system."""

    name: str
    meaning: Meaning
    cells: tuple[MetricCell, ...]


def render(content: Content, figures: Sequence[Drawing], most_bytes: int = MOST_BYTES) -> str:
    """Return the page as text.

    Parameters
    ----------
    content : Content
        The numbers.
    figures : sequence of Drawing
        The figures, which are drawn here.
    most_bytes : int
        How long the page may be; labels of the tree are left out where it would be longer.

    Returns
    -------
    str
    """
    shared = files("treelabel.core").joinpath("page_style.css").read_text(encoding="utf-8")
    style, script = shared + _part("report.css"), _part("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            content=content,
            hierarchy=content.systems[0].hierarchy,
            rows=metric_rows(content),
            figures=[(drawing, Markup(inline_svg(drawing))) for drawing in figures],
            style=Markup(style),
            script=Markup(script),
            script_hash=digest,
            tree=Markup(_TREE_PLACE),
            version=treelabel.__version__,
            star_level=STAR_LEVEL,
        )
    )
    left = most_bytes - len(page.encode(errors="replace"))
    # What users wrote cannot hold the mark: escaping leaves no control characters in names.
    return page.replace(_TREE_PLACE, tree_json(content.systems, min(MOST_TREE_BYTES, left)))


def metric_rows(content: Content) -> list[MetricRow]:
    """Return the table of metrics: a row for each, a cell for each system."""
    compared = _differences(content)
    rows = []
    for name in content.headlines:
        told = meaning(name)
        cells = []
        for system in content.systems:
            result = system.intervals.get(name)
            if result is None:
                cells.append(MetricCell("\N{EM DASH}", ""))
                continue
            interval = _interval(told, result.low, result.high)
            ends = f"{told.written(result.low)} to {told.written(result.high)}" if interval else ""
            cell = MetricCell(told.written(result.value), interval or result.no_ends, ends, reason=result.no_ends)
            if (name, system.name) in compared:
                cell = _compared(told, cell, *compared[name, system.name])
            cells.append(cell)
        rows.append(MetricRow(name, told, tuple(cells)))
    return rows


def _differences(content: Content) -> dict[tuple[str, str], tuple[Comparison, float]]:
    """The difference to the first system and its corrected p, by metric and system."""
    result = {}
    for table in filter(None, (content.comparison, content.score_comparison)):
        for row in table.metrics:
            for system, difference, p in zip(table.systems[1:], row.differences, row.p_values, strict=True):
                result[row.name, system] = difference, p
    return result


def _compared(told: Meaning, cell: MetricCell, result: Comparison, p: float) -> MetricCell:
    """Add the difference to the first system; a star where it is more than chance."""
    star = "*" if p < STAR_LEVEL else ""
    ends = _interval(told, result.low, result.high, signed=True)
    difference = f"{told.written(result.difference, signed=True)}{star} {ends}".strip()
    is_better = (result.difference > 0) == told.higher_is_better if star else None
    return replace(cell, difference=difference, is_better=is_better)


def _interval(told: Meaning, low: float, high: float, signed: bool = False) -> str:
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{told.written(low, signed)}, {told.written(high, signed)}]"


# The template


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("treelabel.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"count": _count, "share": _share, "percent": _percent, "label": _label}
    return made


def _part(name: str) -> str:
    return files("treelabel.report").joinpath("templates", name).read_text(encoding="utf-8")


def _count(value: float) -> str:
    return f"{int(value):,}"


def _share(value: float) -> str:
    return "n/a" if value != value else f"{value:.3f}"


def _percent(value: float) -> str:
    return "n/a" if value != value else f"{value:+.1f}%".replace("-", "\N{MINUS SIGN}")


def _label(text: str) -> str:
    """Shorten a label or a path for a table, and drop what is not a character of a page."""
    return shorten(text, LONGEST_LABEL)
