"""CSV and TSV as Arrow tables: read in blocks by pyarrow, written column by column.

pyarrow reads more than is valid, such as text behind a closing quote. So the quotes and line ends of each block are
looked at first. A block that is not regular, or that pyarrow refuses, and all that follows is read row by row, which is
slow and tells the line and the reason of whatever is wrong.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from treelabel.core.encodings import encoding_of, is_known
from treelabel.core.errors import TreelabelError, quote, shorten
from treelabel.core.inputs import STANDARD, UndecodableLine, decompressing, open_input, suffixes, text_lines
from treelabel.core.json_lines import join_texts, text_bytes, text_scalar
from treelabel.core.types import LongArray
from treelabel.data.io.cells import MARKER, escape, escape_cells, restored_row, restored_table, text_cells, unescape
from treelabel.data.io.format import (
    Part,
    Problem,
    ReadOptions,
    Record,
    TableEncoder,
    TableSource,
    WriteOptions,
    parts_of,
)

BLOCK = 1 << 20
# A block grows until it has all of a row, and is then held several times. So a row that is longer, and all behind it,
# is left to the csv module, which is slower, but refuses a line for its length before it is held several times.
LONGEST_ROW = 1 << 23
QUOTE, RETURN, NEWLINE = b'"\r\n'
MARK = "\ufeff".encode()
DELIMITERS = (",", ";", "\t", "|")
TAB_ENDINGS = (".tsv", ".tab")
# A first line by which Excel is told the delimiter.
DELIMITER_LINE = re.compile(r"\"?sep=(.)\"?[\r\n]*", re.IGNORECASE)


def read_csv(path: Path, options: ReadOptions) -> TableSource:
    """Read a file whose first line names the columns (or, without a header, columns "1", "2", ...)."""
    return TableSource(_parts(path, options))


def _parts(path: Path, options: ReadOptions) -> Iterator[Part]:
    with open_input(path, options.seen, options.limits) as stream:
        with decompressing(path):
            first = cast("BufferedReader", stream).peek(1)
        is_utf8 = is_known(options.encoding) and encoding_of(first, options.encoding) == "utf-8"
        lines = CsvLines(stream, path, options)
        header = read_header(lines, path, options)
        # Whether the delimiter is one byte decides, too.
        if is_utf8 and options.header and options.quotes and lines.is_plain and ord(header.delimiter) < 128:
            rest = yield from _regular_parts(stream, lines.number + 1, header, path, options)
            if rest is None:
                return
            unread, line = rest
            rejoined = cast("IO[bytes]", BufferedReader(_Rejoined(unread, stream)))
            lines = CsvLines(rejoined, path, replace(options, encoding="utf-8"), line - 1)
        yield from parts_of(_records(lines, header, options), path, options.limits)


class CsvHeader(NamedTuple):
    """The delimiter of a file, and the names of its columns, if there are any."""

    delimiter: str
    columns: list[str]


# Regular blocks


def _regular_parts(
    stream: IO[bytes], line: int, header: CsvHeader, path: Path, options: ReadOptions
) -> Generator[Part, None, tuple[bytes, int] | None]:
    """Yield blocks as tables; return the bytes of the first irregular one and the number of its first line, if any."""
    unread, is_last = b"", False
    convert: arrow_csv.ConvertOptions | None = None
    longest = min(options.limits.line or LONGEST_ROW, LONGEST_ROW)
    # What a pipe has is read without waiting for more.
    read = cast("BufferedReader", stream).read1 if path == STANDARD else stream.read
    while not is_last:
        with decompressing(path):
            piece = read(max(BLOCK, len(unread)))
        is_last = not piece
        data = unread + piece
        if data.startswith(MARK):
            # At the beginning of a table it would be taken for a byte order mark.
            data, line = b"\n" + data, line - 1
        block = measure_block(data, ord(header.delimiter), is_last, longest)
        if block is None:
            return data, line
        if len(block.lines):
            convert = convert or _conversion(header.columns, options)
            table = _table(data, block, header, convert)
            if table is None:
                return data, line
            yield Part(table, line + block.lines)
        unread, line = data[block.end :], line + block.breaks
    return None


class Block(NamedTuple):
    """The whole rows of a block: where they end, how many line breaks they have, and the line of each, from 0 on."""

    end: int
    breaks: int
    lines: LongArray


def measure_block(data: bytes, delimiter: int, is_last: bool, longest: int) -> Block | None:
    r"""Find the whole rows of a block that begins with a row; None if its quotes are irregular or a row is too long.

    Quotes are regular if the first, third, ... stand behind a delimiter, a line break or a quote, and the second,
    fourth, ... before one: a doubled quote closes a field and opens it again.

    >>> measure_block(b'a,"b\nc"\n\nd,e\nf', ord(","), False, 100)
    Block(end=13, breaks=4, lines=array([0, 3]))
    >>> measure_block(b'a,"b" c\n', ord(","), True, 100) is None
    True
    """
    if not data:
        return Block(0, 0, np.zeros(0, np.int64))
    raw = np.frombuffer(data, np.uint8)
    quotes, breaks = np.flatnonzero(raw == QUOTE), np.flatnonzero(raw == NEWLINE)
    is_inside = np.searchsorted(quotes, breaks) % 2 == 1
    ends = breaks[~is_inside] + 1
    if is_last and (len(ends) == 0 or ends[-1] < len(raw)):
        ends = np.append(ends, len(raw))
    end = int(ends[-1]) if len(ends) else 0
    starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
    quotes = quotes[: np.searchsorted(quotes, end)]
    opening, closing = quotes[::2], quotes[1::2]
    before = raw[opening[opening > 0] - 1]
    after = raw[closing[closing < len(raw) - 1] + 1]
    are_regular = len(quotes) % 2 == 0 and bool(
        np.isin(before, [delimiter, NEWLINE, QUOTE]).all() and np.isin(after, [delimiter, NEWLINE, RETURN, QUOTE]).all()
    )
    is_too_long = len(raw) - end > longest or (len(ends) > 0 and int((ends - starts).max()) > longest)
    if is_too_long or not are_regular:
        return None
    first = raw[starts]
    is_blank = (first == NEWLINE) | ((first == RETURN) & (ends - starts <= 2))
    lines = np.searchsorted(breaks, starts[~is_blank])
    return Block(end, int(np.searchsorted(breaks, end)), lines.astype(np.int64))


def _conversion(columns: list[str], options: ReadOptions) -> arrow_csv.ConvertOptions:
    """Read the columns that are asked for, all as text."""
    wanted = set(columns if options.select is None else options.select([name for name in columns if name != MARKER]))
    # No names at all would mean all columns.
    included = [name for name in columns if name in wanted or name == MARKER] or columns[:1]
    return arrow_csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string()), include_columns=included)


def _table(data: bytes, block: Block, header: CsvHeader, convert: arrow_csv.ConvertOptions) -> pa.Table | None:
    """Make a table of the whole rows of a block; None where pyarrow sees other rows, or refuses them."""
    # A copy of Arrow's own: a thread of Arrow that releases bytes of Python while Python ends aborts the process.
    rows = pa.BufferOutputStream()
    rows.write(memoryview(data)[: block.end])
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(rows.getvalue()),
            arrow_csv.ReadOptions(column_names=header.columns, block_size=min(max(BLOCK, 2 * block.end), 2**31 - 1)),
            arrow_csv.ParseOptions(delimiter=header.delimiter, newlines_in_values=True),
            convert,
        )
    except pa.ArrowInvalid:
        return None
    if len(table) != len(block.lines):
        return None
    return restored_table(table) if MARKER in header.columns else table


class _Rejoined(RawIOBase):
    """A stream with bytes in front of it that were read already."""

    def __init__(self, data: bytes, stream: IO[bytes]) -> None:
        self._data, self._stream = memoryview(data), stream

    def readinto(self, buffer: Any) -> int:
        if not self._data:
            return int(cast("BufferedReader", self._stream).readinto1(buffer))
        count = min(len(buffer), len(self._data))
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def readable(self) -> bool:
        return True


# Row by row


class CsvLines:
    """Lines for the csv module, with a look at the first and the number of the last."""

    def __init__(self, stream: IO[bytes], path: Path, options: ReadOptions, number: int = 0) -> None:
        # The module's own limit is 128 kB a field; texts may well be longer. Ours also ends a quote never closed.
        csv.field_size_limit(options.limits.line or sys.maxsize)
        self._lines = text_lines(stream, path, options.encoding, options.limits, universal=True, continues=number > 0)
        self._next: list[str] = []
        self.number = number
        # Whether the lines so far ended in LF or CR LF, so that the stream stands where the next one begins.
        self.is_plain = True

    def peek(self) -> str | None:
        """Return the next line, None if there is none."""
        self._next = [line for line in [next(self._lines, None)] if line is not None]
        return self._next[0] if self._next else None

    def __iter__(self) -> "CsvLines":
        return self

    def __next__(self) -> str:
        line = self._next.pop() if self._next else next(self._lines)
        self.number += 1
        self.is_plain = self.is_plain and line.endswith("\n") and "\r" not in line[:-2]
        if isinstance(line, UndecodableLine):
            raise _BadLineError(line)
        return line


class _BadLineError(ValueError):
    """A line in another encoding, on its way through the csv module."""


def _reader(lines: CsvLines, delimiter: str, options: ReadOptions) -> Iterator[list[str]]:
    return csv.reader(
        lines,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if options.quotes else csv.QUOTE_NONE,
        strict=True,
    )


def read_header(lines: CsvLines, path: Path, options: ReadOptions) -> CsvHeader:
    """Find the delimiter, and read the line with the names of the columns, if there is one."""
    first = lines.peek()
    if first is None:
        raise TreelabelError(
            f"{path}: the file is empty; expected a line with column names, then one line per document"
        )
    stated = DELIMITER_LINE.fullmatch(first)
    if stated is not None:
        next(lines)
    usual = "\t" if suffixes(path)[0] in TAB_ENDINGS else ","
    guess = usual
    if usual not in first and not isinstance(first, UndecodableLine):
        guess = max(DELIMITERS, key=lambda mark: (first.count(mark), mark == usual))
    delimiter = options.delimiter or (stated[1] if stated else guess)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise TreelabelError(f"the delimiter is {quote(delimiter)}, expected one character that can separate")
    if not options.header:
        return CsvHeader(delimiter, [])
    try:
        columns = [name.strip() for name in next((row for row in _reader(lines, delimiter, options) if row), [])]
    except (csv.Error, _BadLineError) as error:
        raise TreelabelError(f"{path}:1: cannot read the column names: {error}") from error
    if options.limits.exceeds("columns", len(columns)):
        raise TreelabelError(f"{path}:1: the header has {len(columns):,} columns; {options.limits.hint('columns')}")
    twice = sorted(name for name, count in Counter(columns).items() if count > 1)
    if twice:
        raise TreelabelError(f"{path}:1: the column {quote(twice[0])} stands twice in the header; rename one")
    return CsvHeader(delimiter, [unescape(name) for name in columns] if MARKER in columns else columns)


def _records(lines: CsvLines, header: CsvHeader, options: ReadOptions) -> Iterator[Record | Problem]:
    columns, reader = header.columns, _reader(lines, header.delimiter, options)
    while True:
        begin = lines.number + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # A quote that is never closed takes all lines behind it with it.
            lost = f" up to line {lines.number:,}" if lines.number > begin else ""
            hint = f"; {options.limits.hint('line')}" if "field limit" in str(error) else ""
            why = f"not valid CSV{lost}: {error}; check the quotes, or read it with quotes off (--no-quotes){hint}"
            yield Problem(begin, why, lines.number - begin + 1)
            continue
        except _BadLineError as error:
            yield Problem(lines.number, str(error))
            continue
        columns = columns or [str(number + 1) for number in range(len(values))]
        if len(values) == len(columns):
            row = dict(zip(columns, values, strict=True))
            yield Record(begin, restored_row(row) if MARKER in header.columns else row)
        elif values:
            names = shorten(", ".join(shorten(name) for name in columns[:50]), 500)
            yield Problem(begin, f"{len(values)} fields, but the header has {len(columns)}: {names}")


# Writing


class CsvEncoder(TableEncoder):
    r"""Writes tables as lines: what is no text is JSON, nothing is an empty cell.

    >>> options = WriteOptions(escape=True, mark=True)
    >>> CsvEncoder(options).encode(pa.table({"a": ["x", "=1+1"], "b": [1, None]}))
    b"a,b,treelabel:escaped\nx,1,0\n'=1+1,,1\n"
    """

    def __init__(self, options: WriteOptions, delimiter: str = ",") -> None:
        super().__init__(options)
        self._delimiter = delimiter
        self._has_header, self._mark = options.resumed, options.mark

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table, the first time with the names of the columns."""
        cells = [
            text_cells(column, name in self.options.labels)
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        counts: LongArray = np.zeros(len(table), np.int64)
        if self.options.escape:
            cells = [escape_cells(column, counts) for column in cells]
        self.escaped += int(counts.sum())
        if self._mark is None:
            self._mark = self.escaped > 0
        lines = [self._quote(column) for column in cells]
        if self._mark:
            lines.append(pa.array(counts).cast(pa.large_string()))
        if len(lines) == 1:
            # A line of nothing would be no row.
            lines = [pc.if_else(pc.equal(lines[0], ""), text_scalar('""'), lines[0])]
        between = [part for column in lines for part in (self._delimiter, column)]
        header = b"" if self._has_header else self._header(table.column_names)
        self._has_header = True
        return header + text_bytes(join_texts([*between[1:], "\n"]))

    def _header(self, names: list[str]) -> bytes:
        names = [escape(name) for name in names] if self.options.escape else names
        cells = pa.array([*names, *([MARKER] if self._mark else [])], pa.large_string())
        return f"{self._delimiter.join(self._quote(cells).to_pylist())}\n".encode()

    def _quote(self, cells: pa.Array) -> pa.Array:
        """Put cells into quotes that need them."""
        must = pc.match_substring_regex(cells, f'[{self._delimiter}"\r\n]')
        if not pc.any(must).as_py():
            return cells
        return pc.if_else(must, join_texts(['"', pc.replace_substring(cells, '"', '""'), '"']), cells)
