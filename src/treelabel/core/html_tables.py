"""HTML that notebooks show of objects: a heading, tables and notes.

Colours are those of the page around it, dark or light; nothing is loaded from anywhere, and whatever stands in a cell
is text. Styles stand in the tags, since notebooks that are not trusted lose style sheets.
"""

from collections.abc import Iterable, Sequence
from html import escape

from treelabel.core.errors import printable, shorten

MOST_ROWS = 40
LONGEST_CELL = 300

_BOX = "max-width:60em;margin:.4em 0;padding:.5em .8em;border:1px solid rgba(128,128,128,.4);border-radius:6px"
_TABLE = "border-collapse:collapse;margin:.5em 0;font-size:90%;font-variant-numeric:tabular-nums"
_CELL = "text-align:left;vertical-align:top;padding:.15em .9em .15em 0;border-top:1px solid rgba(128,128,128,.25)"
_QUIET = "opacity:.75;font-size:90%"


def html_text(text: object, limit: int = LONGEST_CELL) -> str:
    r"""Escape a value for HTML, shortened to one line of at most `limit` characters.

    Parameters
    ----------
    text
        The value; what would drive a terminal or turn the direction of text is written as an escape.
    limit
        Its largest length, in characters.

    Returns
    -------
    str

    >>> html_text("<b>\u202e & co"), html_text("a\nb")
    ('&lt;b&gt;\\u202e &amp; co', 'a b')
    """
    return escape(printable(shorten(" ".join(str(text).split()), limit)))


def html_table(rows: Sequence[Sequence[object]], header: Sequence[object] = (), total: int | None = None) -> str:
    """Make a table of cells, and say how many rows it leaves out.

    Parameters
    ----------
    rows
        The cells of each row; at most `MOST_ROWS` are shown.
    header
        What stands above the columns, if anything.
    total
        How many rows there are, where `rows` are only the first of them.

    Returns
    -------
    str
        "" where there is nothing to show.

    >>> html_table([]), html_table([("a", 1)], total=3).count("2 more")
    ('', 1)
    """
    if not rows:
        return ""
    shown = rows[:MOST_ROWS]
    lines = [_row(header, "th")] if header else []
    lines += [_row(row, "td") for row in shown]
    more = (len(rows) if total is None else total) - len(shown)
    if more > 0:
        cell = f'<td style="{_CELL};{_QUIET}" colspan="{len(shown[0])}">{more:,} more</td>'
        lines.append(f'<tr style="background:none">{cell}</tr>')
    return f'<table style="{_TABLE}"><tbody>{"".join(lines)}</tbody></table>'


def _row(cells: Iterable[object], tag: str) -> str:
    inner = "".join(f'<{tag} style="{_CELL}">{html_text(cell)}</{tag}>' for cell in cells)
    return f'<tr style="background:none">{inner}</tr>'


def html_box(title: str, *parts: str, notes: Iterable[object] = ()) -> str:
    """Put tables under a heading, and notes under these.

    Parameters
    ----------
    title
        What the object is, as text.
    parts
        HTML, such as that of `html_table`.
    notes
        Sentences, as text.

    Returns
    -------
    str

    >>> "<b>A &amp; B</b>" in html_box("A & B")
    True
    """
    lines = [f'<p style="margin:.3em 0;{_QUIET}">{html_text(note, 600)}</p>' for note in notes]
    return f'<div style="{_BOX}"><b>{html_text(title)}</b>{"".join(parts)}{"".join(lines)}</div>'


def html_sentence(text: str) -> str:
    """Make a paragraph of a sentence that readers see first.

    >>> html_sentence("8 of 10 right")
    '<p style="margin:.3em 0">8 of 10 right</p>'
    """
    return f'<p style="margin:.3em 0">{html_text(text, 600)}</p>'
