"""CSV and TSV row by row: the names of the columns, and the line and the reason of whatever is wrong.

This reader is slow and tells all; `csv` reads what is regular, and hands over to this one where something is not.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from treelabel.core.errors import TreelabelError, quote, shorten
from treelabel.core.inputs import UndecodableLine, suffixes, text_lines
from treelabel.core.limits import Limits
from treelabel.data.io.format import Problem, ReadOptions, Record
from treelabel.data.io.formulas import MARKER, restored_row, unescape

DELIMITERS = (",", ";", "\t", "|")
TAB_ENDINGS = (".tsv", ".tab")
# A first line by which Excel is told the delimiter.
DELIMITER_LINE = re.compile(r"\"?sep=(.)\"?[\r\n]*", re.IGNORECASE)


class CsvRows:
    """Rows of a stream, from `number` lines behind its beginning on."""

    def __init__(self, stream: IO[bytes], path: Path, options: ReadOptions) -> None:
        # The module's own limit is 128 kB a field; texts may well be longer. Ours also ends a quote never closed.
        csv.field_size_limit(options.limits.line or sys.maxsize)
        self.path, self.options = path, options
        self.columns: list[str] = []
        self.delimiter = options.delimiter or ","
        self._lines = _Lines(text_lines(stream, path, options.encoding, options.limits, universal=True))
        self._reader = iter(list[list[str]]())

    @property
    def next_line(self) -> int:
        """The number of the line that comes next."""
        return self._lines.number + 1

    @property
    def is_at_line_start(self) -> bool:
        """Whether the lines so far ended in LF or CR LF, so that the stream stands where the next one begins."""
        return self._lines.is_plain

    def read_header(self) -> None:
        """Find the delimiter, and read the line with the names of the columns, if there is one."""
        first = self._lines.peek()
        if first is None:
            raise TreelabelError(
                f"{self.path}: the file is empty; expected a line with column names, then one line per document"
            )
        stated = DELIMITER_LINE.fullmatch(first)
        if stated is not None:
            next(self._lines)
        self.delimiter = self.options.delimiter or (stated[1] if stated else _guess_delimiter(self.path, first))
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise TreelabelError(f"the delimiter is {quote(self.delimiter)}, expected one character that can separate")
        self._start()
        if self.options.header:
            self.columns = _header(self.path, self._reader, self.options.limits)

    def continue_from(self, other: "CsvRows", line: int) -> None:
        """Go on where another reader of the same file stopped, at the line that the stream begins with."""
        self.delimiter, self.columns = other.delimiter, other.columns
        self._lines.number = line - 1
        self._start()

    def _start(self) -> None:
        self._reader = csv.reader(
            self._lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.options.quotes else csv.QUOTE_NONE,
            strict=True,
        )

    def records(self) -> Iterator[Record | Problem]:
        """Yield all further rows."""
        columns = self.columns
        is_marked = MARKER in columns
        while True:
            begin = self.next_line
            try:
                values = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield _bad_row(error, begin, self._lines.number, self.options.limits)
                continue
            except _BadLineError as error:
                yield Problem(self._lines.number, str(error))
                continue
            columns = columns or [str(number + 1) for number in range(len(values))]
            if len(values) == len(columns):
                row = dict(zip(columns, values, strict=True))
                yield Record(begin, restored_row(row) if is_marked else row)
            elif values:
                yield Problem(begin, f"{len(values)} fields, but the header has {len(columns)}: {_listing(columns)}")


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
        self._next: list[str] = []
        self.number = 0
        self.is_plain = True

    def peek(self) -> str | None:
        self._next = [line for line in [next(self._lines, None)] if line is not None]
        return self._next[0] if self._next else None

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._next.pop() if self._next else next(self._lines)
        self.number += 1
        self.is_plain = self.is_plain and line.endswith("\n") and "\r" not in line[:-2]
        if isinstance(line, UndecodableLine):
            raise _BadLineError(line)
        return line


def usual_delimiter(path: Path) -> str:
    """Return the delimiter that the ending of a file stands for."""
    return "\t" if suffixes(path)[0] in TAB_ENDINGS else ","


def _guess_delimiter(path: Path, first: str) -> str:
    usual = usual_delimiter(path)
    if usual in first or isinstance(first, UndecodableLine):
        return usual
    return max(DELIMITERS, key=lambda mark: (first.count(mark), mark == usual))


def _listing(columns: list[str]) -> str:
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
