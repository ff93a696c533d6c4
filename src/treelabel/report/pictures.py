"""Figures as SVG inside a page, in the page's own colours, and as files for papers."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from treelabel.core.atomic_output import atomic_file, atomic_group, make_folder
from treelabel.report.figures.drawing import SETTINGS, VARIABLES, Drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE_KINDS: Final = ("svg", "png", "pdf")
DOTS_PER_INCH: Final = 200

_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
_SIZE = re.compile(r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"', re.DOTALL)
_OPENING = re.compile(r"<svg[^>]*>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_GROUP_ID = re.compile(r'<g id="[^"]*">')
_LONG_NUMBER = re.compile(r"\d+\.\d{3,}")
_FONT = re.compile(r"font: ([\d.]+)px [^;\"]*")


@contextmanager
def report_style(**more: Any) -> Iterator[None]:
    """Draw in the style of reports; a sign that the font lacks is drawn as a box, and is nobody's mistake."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {**SETTINGS, **more}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph.*missing from.*")
        yield


def inline_svg(drawing: Drawing) -> str:
    """Draw a figure as an SVG element for a page.

    Text stays text, in the page's font; colours become the page's variables, so that a dark page has light lines. Ids
    begin with the figure's name, as a page has several figures.
    """
    stream = StringIO()
    with report_style(**{"svg.fonttype": "none"}):
        drawing.draw().savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, dpi=144)
    text = _METADATA.sub("", _PROLOGUE.sub("", stream.getvalue()))
    text = _SIZE.sub(r"<svg \1\2", text)
    text = _GROUP_ID.sub("<g>", text)
    for mark in ('id="', 'href="#', "url(#"):
        text = text.replace(mark, f"{mark}{drawing.name}-")
    # Only inside tags: between them stand numbers and names for people to read.
    text = _TAG.sub(lambda result: _in_page_style(result[0]), text)
    told = f'role="img" aria-label="{escape(drawing.alt, quote=True)}"'
    opening = _OPENING.search(text)
    assert opening is not None
    start = re.sub(r'\s(xmlns(:xlink)?|version)="[^"]*"', "", opening[0])
    return f"{start[:-1]} {told}>{text[opening.end() :]}".strip()


def _in_page_style(tag: str) -> str:
    """Shorten the numbers of a tag and replace its colours and fonts; an embedded picture, which is base64, stays."""
    if "base64," in tag:
        return tag
    tag = _LONG_NUMBER.sub(lambda result: f"{float(result[0]):.2f}".rstrip("0").rstrip("."), tag)
    tag = _FONT.sub(r"font: \1px var(--font)", tag)
    for colour, variable in VARIABLES.items():
        tag = re.sub(re.escape(colour), variable, tag, flags=re.IGNORECASE)
    return tag


def write_figures(folder: Path, figures: Sequence[Drawing]) -> list[Path]:
    """Write every figure as SVG, PNG and PDF.

    Parameters
    ----------
    folder : Path
        Made if it is not there; other files in it stay.
    figures : sequence of Drawing
        What to draw.

    Returns
    -------
    list of Path
        The files.
    """
    make_folder(folder)
    written = []
    # All of the new ones, or all of the old.
    with atomic_group():
        for drawing in figures:
            with report_style():
                made = drawing.draw()
                made.set_facecolor("white")
                for kind in FILE_KINDS:
                    path = folder / f"{drawing.name}.{kind}"
                    with atomic_file(path) as working:
                        _save(made, working, kind)
                    written.append(path)
    return written


def _save(made: "Figure", path: Path, kind: str) -> None:
    # No date, so that the same numbers give the same file.
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    made.savefig(path, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
