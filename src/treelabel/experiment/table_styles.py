"""Tables and verdicts as text: aligned for a terminal, Markdown, LaTeX with booktabs, and CSV with one row a cell."""

import csv
import io
import math
import unicodedata
from collections.abc import Sequence
from typing import Literal, get_args

from treelabel.core.errors import printable
from treelabel.data.io.cells import escape
from treelabel.experiment.claims import Standing, Verdict, judge_claims
from treelabel.experiment.estimates import Resampled
from treelabel.experiment.results import Results
from treelabel.experiment.study_tables import ColumnHead, Table, TableRow, make_tables
from treelabel.experiment.table_cells import MISSING, TableCell

Style = Literal["paper", "markdown", "latex", "csv"]
STYLES: tuple[Style, ...] = get_args(Style)

BEST = "•"
STAR = "*"
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
_TEXTS = ("study", "table", "data", "system", "column", "rule", "text")
CSV_HEADER = (*_TEXTS, "mean", "low", "high", "n", "best", "differs", "published")


def summarize(
    results: Results,
    style: Style = "paper",
    names: Sequence[str] | None = None,
    claims: bool = True,
    significance: bool = True,
    bold: bool = False,
    header: bool = True,
) -> tuple[str, list[Verdict]]:
    """Write the tables of a study and the verdicts on its claims.

    Parameters
    ----------
    results : Results
        The runs of the study.
    style : "paper", "markdown", "latex" or "csv"
        How tables are written.
    names : sequence of str, optional
        Only these tables; by default all.
    claims, significance : bool
        Whether to judge claims (CSV has no place for them), and to test what differs from the best of a column.
    bold, header : bool
        Whether the text may have a terminal's codes for bold, and CSV the names of its columns.

    Returns
    -------
    text : str
    verdicts : list of Verdict
    """
    resampled = Resampled(results)
    tables = make_tables(results, names or None, resampled, significance)
    study = results.spec.name if results.folder is None else results.folder.resolve().name
    texts = [write_heading(results.spec.title, style), write_tables(tables, style, study, bold, header)]
    verdicts = judge_claims(results, resampled) if claims else []
    if style != "csv":
        texts.append(write_verdicts(verdicts, style))
    return "\n\n".join(text for text in texts if text), verdicts


def write_tables(
    tables: Sequence[Table], style: Style = "paper", study: str = "", bold: bool = False, header: bool = True
) -> str:
    """Write tables in a style.

    Parameters
    ----------
    tables : sequence of Table
        What to write.
    style : "paper", "markdown", "latex" or "csv"
        Paper is aligned text.
    study : str
        The name of the study, in a column of CSV.
    bold : bool
        Whether paper may have the codes by which a terminal writes in bold.
    header : bool
        Whether CSV begins with the names of its columns.

    Returns
    -------
    str
    """
    if style == "csv":
        return _csv(tables, study, header)
    if style == "paper":
        return "\n\n".join(_paper(table, bold) for table in tables)
    return "\n\n".join((_markdown if style == "markdown" else _latex)(table) for table in tables)


def write_heading(text: str, style: Style = "paper") -> str:
    """Write the title of a study above its tables; CSV has no place for it.

    Parameters
    ----------
    text : str
        The title.
    style : "paper", "markdown", "latex" or "csv"
        In LaTeX it is a comment.

    Returns
    -------
    str

    >>> write_heading("Losses_2", "markdown")
    '## Losses\\\\_2'
    """
    line = printable(text)
    return {"paper": line, "markdown": f"## {_markdown_text(text)}", "latex": f"% {line}", "csv": ""}[style]


def write_verdicts(verdicts: Sequence[Verdict], style: Style = "paper") -> str:
    """Write what became of claims, one line each; CSV has no place for them.

    Parameters
    ----------
    verdicts : sequence of Verdict
        What to write.
    style : "paper", "markdown", "latex" or "csv"
        In LaTeX they are comments.

    Returns
    -------
    str
    """
    if style == "csv" or not verdicts:
        return ""
    counts = [(status, sum(verdict.status == status for verdict in verdicts)) for status in get_args(Standing)]
    told = ", ".join(f"{count} {status}" for status, count in counts)
    each = "by its own 95% interval, not corrected for their number"
    lines = [f"Claims: {told}; each {each}", *(printable(verdict.describe()) for verdict in verdicts)]
    if style == "paper":
        return "\n".join(lines)
    start = "- " if style == "markdown" else "% "
    return "\n".join(start + (_markdown_text(line) if style == "markdown" else line) for line in lines)


# Aligned text


def _paper(table: Table, bold: bool) -> str:
    groups = [printable(head.group) for head in table.heads]
    lines = [[printable(table.corner), *(printable(head.title) for head in table.heads)]]
    lines += [[_indented(row), *(_paper_cell(cell) for cell in row.cells)] for row in table.rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    widths = _widened(groups, widths)
    text = [printable(table.title)]
    if any(groups):
        spans = _spans(groups)
        text.append(
            _joined([" " * widths[0], *(_padded(group, _span(widths, index, count)) for group, index, count in spans)])
        )
    for number, line in enumerate(lines):
        cells = [_padded(each, width) for each, width in zip(line, widths, strict=True)]
        if number and bold:
            best = [False, *(cell.is_best for cell in table.rows[number - 1].cells)]
            cells = [f"{BOLD}{each}{PLAIN}" if is_best else each for each, is_best in zip(cells, best, strict=True)]
        text.append(_joined(cells))
        if not number:
            text.append("-" * len(_joined([" " * width for width in widths])))
    return "\n".join(line.rstrip() for line in [*text, *(printable(note) for note in table.notes)])


def _indented(row: TableRow) -> str:
    return ("  " if row.is_published else "") + printable(row.title)


def _paper_cell(cell: TableCell) -> str:
    return (BEST if cell.is_best else "") + printable(cell.shown()) + (STAR if cell.differs else "")


def _joined(cells: Sequence[str]) -> str:
    return "  ".join(cells)


def _width(text: str) -> int:
    """The columns of a terminal that a text takes: wide letters two, marks above others none."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(bool(unicodedata.combining(letter)) for letter in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _spans(groups: Sequence[str]) -> list[tuple[str, int, int]]:
    """Group equal neighbours: (group, the first column, how many)."""
    result: list[tuple[str, int, int]] = []
    for index, group in enumerate(groups):
        if result and result[-1][0] == group:
            result[-1] = (group, result[-1][1], result[-1][2] + 1)
        else:
            result.append((group, index, 1))
    return result


def _span(widths: Sequence[int], index: int, count: int) -> int:
    return sum(widths[1 + index : 1 + index + count]) + 2 * (count - 1)


def _widened(groups: Sequence[str], widths: list[int]) -> list[int]:
    """Widen the last column of groups whose names are longer than their columns."""
    for group, index, count in _spans(groups):
        widths[index + count] += max(0, _width(group) - _span(widths, index, count))
    return widths


# Markdown


def _markdown(table: Table) -> str:
    heads = [f"{head.group}: {head.title}" if head.group else head.title for head in table.heads]
    top = "| " + " | ".join(map(_markdown_text, [table.corner, *heads])) + " |"
    lines = [top, "|---" + "|---:" * len(heads) + "|"]
    lines += [
        "| " + " | ".join([_markdown_text(row.title), *map(_markdown_cell, row.cells)]) + " |" for row in table.rows
    ]
    notes = [_markdown_text(note) + "  " for note in table.notes]
    return "\n".join([f"**{_markdown_text(table.title)}**", "", *lines, "", *notes]).rstrip()


def _markdown_cell(cell: TableCell) -> str:
    text = _markdown_text(cell.shown())
    return (f"**{text}**" if cell.is_best else text) + ("\\*" if cell.differs else "")


def _markdown_text(text: str) -> str:
    for letter in "\\`*_|<>[]":
        text = text.replace(letter, f"\\{letter}")
    return printable(text)


# LaTeX

_LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def _latex(table: Table) -> str:
    """Write a table that needs the package booktabs."""
    columns = len(table.heads)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex_text(table.title)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * columns}}}", r"\toprule", *_latex_groups(table.heads)]
    titles = [table.corner, *(head.title for head in table.heads)]
    lines += [" & ".join(map(_latex_text, titles)) + r" \\", r"\midrule"]
    for row in table.rows:
        title = (r"\quad " if row.is_published else "") + _latex_text(row.title)
        lines.append(" & ".join([title, *map(_latex_cell, row.cells)]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {_latex_text(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"])


def _latex_groups(heads: Sequence[ColumnHead]) -> list[str]:
    groups = [head.group for head in heads]
    if not any(groups):
        return []
    cells = [rf"\multicolumn{{{count}}}{{c}}{{{_latex_text(group)}}}" for group, _, count in _spans(groups)]
    rules = [rf"\cmidrule(lr){{{index + 2}-{index + count + 1}}}" for _, index, count in _spans(groups)]
    return [" & ".join(["", *cells]) + r" \\", " ".join(rules)]


def _latex_cell(cell: TableCell) -> str:
    text = _latex_text(cell.shown())
    return (rf"\textbf{{{text}}}" if cell.is_best else text) + (r"$^{*}$" if cell.differs else "")


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in printable(text))


# CSV


def _csv(tables: Sequence[Table], study: str, header: bool) -> str:
    """Write one row a cell, in the units of its metric; published numbers and reasons stand as they are."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if header:
        writer.writerow(CSV_HEADER)
    for table in tables:
        for row in table.rows:
            shown = [cell for cell in row.cells if cell.text not in ("", MISSING) or not math.isnan(cell.found.mean)]
            writer.writerows(_csv_row(study, table, cell) for cell in shown)
    return stream.getvalue().rstrip("\n")


def _csv_row(study: str, table: Table, cell: TableCell) -> list[str]:
    result = cell.found
    texts = [study, table.name, cell.data, cell.system, cell.column, cell.rule, cell.text]
    numbers = [_number(result.mean), _number(result.low), _number(result.high), str(result.count)]
    marks = [str(int(each)) for each in (cell.is_best, cell.differs, cell.is_published)]
    return [*(escape(printable(text)) for text in texts), *numbers, *marks]


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(float(value))
