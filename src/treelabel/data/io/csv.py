"""CSV and TSV, with the line of every error."""

import csv
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, quote, shorten
from treelabel.core.inputs import UndecodableLine, open_input, suffixes, text_lines
from treelabel.core.limits import Limits
from treelabel.data.io.formulas import (
    MARKER,
    EscapedFormulasWarning,
    escape,
    escaped_row,
    may_hold_formulas,
    restored_row,
    unescape,
)
from treelabel.data.io.records import Output, Problem, ReadOptions, Record, RowSource

DELIMITERS = (",", ";", "\t", "|")
# A first line by which Excel is told the delimiter.
TOLD_DELIMITER = re.compile(r"\"?sep=(.)\"?[\r\n]*", re.IGNORECASE)


def read_delimited(path: Path, options: ReadOptions) -> RowSource:
    """Read a file whose first line names the columns (or, without a header, columns "1", "2", ...).

    Parameters
    ----------
    path
        The file.
    options
        How to read it.

    Returns
    -------
    RowSource
    """
    return RowSource(_rows(path, options))


def _rows(path: Path, options: ReadOptions) -> Iterator[Record | Problem]:
    # The module's own limit is 128 kB a field; texts may well be longer. Ours also ends a quote that is never closed.
    csv.field_size_limit(options.limits.line or sys.maxsize)
    with open_input(path, options.seen, options.limits) as stream:
        lines = _Lines(text_lines(stream, path, options.encoding, options.limits, universal=True))
        first = lines.peek()
        if first is None:
            raise TreelabelError(
                f"{path}: the file is empty; expected a line with column names, then one line per document"
            )
        told = TOLD_DELIMITER.fullmatch(first)
        if told is not None:
            next(lines)
        delimiter = options.delimiter or (told[1] if told is not None else _guess_delimiter(path, first))
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise TreelabelError(f"the delimiter is {quote(delimiter)}, expected one character that can separate")
        reader = csv.reader(
            lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if options.quotes else csv.QUOTE_NONE, strict=True
        )
        columns = _header(path, reader, options.limits) if options.header else []
        is_marked = MARKER in columns
        while True:
            begin = lines.number + 1
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield _bad_row(error, begin, lines.number, options.limits)
                continue
            except _BadLineError as error:
                yield Problem(lines.number, str(error))
                continue
            columns = columns or [str(number + 1) for number in range(len(values))]
            if len(values) == len(columns):
                row = dict(zip(columns, values, strict=True))
                yield Record(begin, restored_row(row) if is_marked else row)
            elif values:
                yield Problem(begin, f"{len(values)} fields, but the header has {len(columns)}: {_listed(columns)}")


def _bad_row(error: csv.Error, begin: int, end: int, limits: Limits) -> Problem:
    """Say what is wrong with a row; a quote that is never closed takes all lines behind it with it."""
    lost = f" up to line {end:,}" if end > begin else ""
    why = f"not valid CSV{lost}: {error}; check the quotes, or read it with quotes off (--no-quotes)"
    if "field limit" in str(error):
        why += f"; {limits.hint('line')}"
    return Problem(begin, why, end - begin + 1)


class _BadLineError(ValueError):
    """A line in another encoding, on its way through the csv module."""


class _Lines:
    """Lines for the csv module, with a look at the first and the number of the last."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._held: list[str] = []
        self.number = 0

    def peek(self) -> str | None:
        self._held = [line for line in [next(self._lines, None)] if line is not None]
        return self._held[0] if self._held else None

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._held.pop() if self._held else next(self._lines)
        self.number += 1
        if isinstance(line, UndecodableLine):
            raise _BadLineError(line)
        return line


def _guess_delimiter(path: Path, first: str) -> str:
    usual = "\t" if suffixes(path)[0] in (".tsv", ".tab") else ","
    if usual in first or isinstance(first, UndecodableLine):
        return usual
    return max(DELIMITERS, key=lambda mark: (first.count(mark), mark == usual))


def _listed(columns: list[str]) -> str:
    return shorten(", ".join(shorten(name) for name in columns[:50]), 500)


def _header(path: Path, reader: Iterator[list[str]], limits: Limits) -> list[str]:
    try:
        columns = [name.strip() for name in next((row for row in reader if row), [])]
    except (csv.Error, _BadLineError) as error:
        raise TreelabelError(f"{path}:1: cannot read the column names: {error}") from error
    if limits.exceeds("columns", len(columns)):
        raise TreelabelError(f"{path}:1: the header has {len(columns):,} columns; {limits.hint('columns')}")
    twice = sorted(name for name, count in Counter(columns).items() if count > 1)
    if twice:
        raise TreelabelError(f"{path}:1: the column {quote(twice[0])} stands twice in the header; rename one")
    return [unescape(name) for name in columns] if MARKER in columns else columns


def label_cell(labels: list[str]) -> str:
    """Write labels into one cell: a single name as it is, several as a JSON list.

    >>> label_cell(["A"]), label_cell(["A", "B"]), label_cell([])
    ('A', '["A", "B"]', '')
    """
    if len(labels) == 1 and labels[0][:1] != "[" and labels[0] == labels[0].strip():
        return labels[0]
    return json.dumps(labels, ensure_ascii=False) if labels else ""


def write_delimited(output: Output) -> None:
    """Write a header and one row per document; values that are not text are written as JSON.

    Cells that a spreadsheet would run are escaped if that is asked for (see `formulas`).
    """
    delimiter = output.delimiter or ("\t" if suffixes(output.path)[0] in (".tsv", ".tab") else ",")
    columns = list(output.data.extra)
    is_marked = output.escape_formulas and may_hold_formulas(output.data)
    escaped = 0
    with open_output(output.path) as stream:
        buffer = StringIO()
        plain = csv.writer(buffer, delimiter=delimiter, lineterminator="\n")
        # Readers take a lone carriage return for a line's end, and this writer does not know to quote it.
        careful = csv.writer(buffer, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
        header = [output.id, output.text, output.labels, *columns]
        plain.writerow([*map(escape, header), MARKER] if is_marked else header)
        for document in output.documents():
            extra = [value_cell(document.extra[name]) for name in columns]
            row = [document.id, document.text, label_cell(document.labels), *extra]
            if is_marked:
                row, count = escaped_row(row)
                escaped += count
            (careful if any("\r" in cell for cell in row) else plain).writerow(row)
            if buffer.tell() > 1 << 18:
                stream.write(buffer.getvalue().encode())
                buffer.seek(0)
                buffer.truncate()
        stream.write(buffer.getvalue().encode())
    if escaped:
        warnings.warn(
            EscapedFormulasWarning(
                f"{output.path}: {escaped:,} cells that a spreadsheet would run as formulas begin with an apostrophe "
                f"now, and the column {MARKER} counts them; treelabel reads them as they were (--raw leaves them so)"
            ),
            stacklevel=2,
        )


def value_cell(value: object) -> str:
    """Write a value of a further column into a cell: a text as it is, anything else as JSON.

    >>> value_cell("a"), value_cell(None), value_cell([1, "é"])
    ('a', '', '[1, "é"]')
    """
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)
