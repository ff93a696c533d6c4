"""Tables and verdicts as text: aligned for a terminal, Markdown, LaTeX with booktabs, and CSV with one row a cell."""

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, get_args

from rich.cells import cell_len, set_cell_size

from treelabel.core.errors import printable
from treelabel.data.io.cells import escape
from treelabel.experiment.claims import Standing, Verdict, judge_claims
from treelabel.experiment.estimates import Resampled
from treelabel.experiment.results import Results
from treelabel.experiment.study_tables import Table, make_tables
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
    title = results.spec.title
    heading = {"paper": printable(title), "markdown": f"## {_markdown_text(title)}", "latex": f"% {printable(title)}"}
    verdicts = judge_claims(results, resampled) if claims else []
    texts = [heading.get(style, ""), write_tables(tables, style, study, bold, header), _verdicts(verdicts, style)]
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


def _verdicts(verdicts: Sequence[Verdict], style: Style) -> str:
    """Write what became of claims, one line each: in LaTeX comments, in CSV nothing."""
    if style == "csv" or not verdicts:
        return ""
    counts = Counter(verdict.status for verdict in verdicts)
    summary = ", ".join(f"{counts[status]} {status}" for status in get_args(Standing))
    lines = [f"Claims: {summary}; each by its own 95% interval, not corrected for their number"]
    lines += [printable(verdict.describe()) for verdict in verdicts]
    start = {"paper": "", "markdown": "- ", "latex": "% "}[style]
    return "\n".join(start + (_markdown_text(line) if style == "markdown" else line) for line in lines)


def _groups(table: Table) -> list[tuple[str, int, int]]:
    """List equal neighbours among the groups of columns: the name, the first column, and the one after the last."""
    result, first = [], 1
    for name, heads in groupby(table.heads, key=lambda head: head.group):
        result.append((name, first, first := first + len(list(heads))))
    return result if any(name for name, _, _ in result) else []


# Aligned text


def _paper(table: Table, bold: bool) -> str:
    lines = [[table.corner, *(head.title for head in table.heads)]]
    lines += [["  " * row.is_published + row.title, *map(_paper_cell, row.cells)] for row in table.rows]
    lines = [[printable(each) for each in line] for line in lines]
    # Wide letters take two columns of a terminal, marks above others none.
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    groups = [" " * widths[0]]
    for group, first, end in _groups(table):
        name, width = printable(group), sum(widths[first:end]) + 2 * (end - first - 1)
        # A group whose name is longer than its columns widens the last.
        widths[end - 1] += max(0, cell_len(name) - width)
        groups.append(set_cell_size(name, max(width, cell_len(name))))
    text = [printable(table.title), *(["  ".join(groups)] if len(groups) > 1 else [])]
    for number, line in enumerate(lines):
        cells = [set_cell_size(each, width) for each, width in zip(line, widths, strict=True)]
        for index, cell in enumerate(table.rows[number - 1].cells if number and bold else (), 1):
            cells[index] = f"{BOLD}{cells[index]}{PLAIN}" if cell.is_best else cells[index]
        text += ["  ".join(cells), *([] if number else ["-" * (sum(widths) + 2 * len(table.heads))])]
    return "\n".join(line.rstrip() for line in [*text, *map(printable, table.notes)])


def _paper_cell(cell: TableCell) -> str:
    return (BEST if cell.is_best else "") + cell.show() + (STAR if cell.differs else "")


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
    text = _markdown_text(cell.show())
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
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex_text(table.title)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(table.heads)}}}", r"\toprule"]
    if groups := _groups(table):
        cells = [rf"\multicolumn{{{end - first}}}{{c}}{{{_latex_text(name)}}}" for name, first, end in groups]
        rules = [rf"\cmidrule(lr){{{first + 1}-{end}}}" for _, first, end in groups]
        lines += [" & ".join(["", *cells]) + r" \\", " ".join(rules)]
    titles = [table.corner, *(head.title for head in table.heads)]
    lines += [" & ".join(map(_latex_text, titles)) + r" \\", r"\midrule"]
    for row in table.rows:
        title = (r"\quad " if row.is_published else "") + _latex_text(row.title)
        lines.append(" & ".join([title, *map(_latex_cell, row.cells)]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {_latex_text(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"])


def _latex_cell(cell: TableCell) -> str:
    text = _latex_text(cell.show())
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
        for cell in (cell for row in table.rows for cell in row.cells):
            numbers = [cell.summary.mean, cell.summary.low, cell.summary.high]
            if cell.text in ("", MISSING) and math.isnan(numbers[0]):
                continue
            texts = [study, table.name, cell.data, cell.system, cell.column, cell.rule, cell.text]
            marks = [int(each) for each in (cell.is_best, cell.differs, cell.is_published)]
            known = ["" if math.isnan(value) else repr(float(value)) for value in numbers]
            writer.writerow([*(escape(printable(text)) for text in texts), *known, cell.summary.count, *marks])
    return stream.getvalue().rstrip("\n")
