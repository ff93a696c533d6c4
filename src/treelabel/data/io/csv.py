"""CSV and TSV as Arrow tables: read in blocks by pyarrow, written column by column.

pyarrow reads more than is valid, such as text behind a closing quote. So the quotes and line ends of each block are
looked at first. A block that is not regular, or that pyarrow refuses, and all that follows is read by `csv_rows`,
which knows what is wrong in which line.
"""

from collections.abc import Generator, Iterator
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from treelabel.core.encodings import encoding_of, is_known
from treelabel.core.inputs import STANDARD, decompressing, open_input
from treelabel.core.json_lines import join_texts, text_bytes, text_scalar
from treelabel.core.types import LongArray
from treelabel.data.io.cells import text_cells
from treelabel.data.io.csv_rows import CsvRows
from treelabel.data.io.format import Part, ReadOptions, TableSource, WriteOptions, parts_of
from treelabel.data.io.formulas import FORMULA_PATTERN, MARKER, NUMBER, UNESCAPE_PATTERN, escape

BLOCK = 1 << 20
QUOTE, RETURN, NEWLINE = b'"\r\n'
MARK = "\ufeff".encode()


def read_csv(path: Path, options: ReadOptions) -> TableSource:
    """Read a file whose first line names the columns (or, without a header, columns "1", "2", ...)."""
    return TableSource(_parts(path, options))


def _parts(path: Path, options: ReadOptions) -> Iterator[Part]:
    with open_input(path, options.seen, options.limits) as stream:
        with decompressing(path):
            first = cast("BufferedReader", stream).peek(1)
        is_utf8 = is_known(options.encoding) and encoding_of(first, options.encoding) == "utf-8"
        rows = CsvRows(stream, path, options)
        rows.read_header()
        # Whether the delimiter is one byte decides, too.
        if is_utf8 and options.header and options.quotes and rows.is_at_line_start and ord(rows.delimiter) < 128:
            rest = yield from _regular_parts(stream, rows, path, options)
            if rest is None:
                return
            unread, line = rest
            again = CsvRows(cast("IO[bytes]", BufferedReader(_Rejoined(unread, stream))), path, options)
            again.continue_from(rows, line)
            rows = again
        yield from parts_of(rows.records(), path, options.limits)


def _regular_parts(
    stream: IO[bytes], rows: CsvRows, path: Path, options: ReadOptions
) -> Generator[Part, None, tuple[bytes, int] | None]:
    """Yield blocks as tables; return the bytes of the first irregular one and the number of its first line, if any."""
    line, unread, is_last = rows.next_line, b"", False
    convert: csv.ConvertOptions | None = None
    longest = options.limits.line or np.iinfo(np.int64).max
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
        block = measure_block(data, ord(rows.delimiter), is_last, longest)
        if block is None:
            return data, line
        if len(block.lines):
            convert = convert or _conversion(rows.columns, options)
            table = _table(data, block, rows, convert)
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
    quotes = quotes[: np.searchsorted(quotes, end)]
    starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
    is_too_long = len(raw) - end > longest or (len(ends) > 0 and int((ends - starts).max()) > longest)
    if len(quotes) % 2 or is_too_long or not _are_regular(raw, quotes, delimiter):
        return None
    first = raw[starts]
    is_blank = (first == NEWLINE) | ((first == RETURN) & (ends - starts <= 2))
    lines = np.searchsorted(breaks, starts[~is_blank])
    return Block(end, int(np.searchsorted(breaks, end)), lines.astype(np.int64))


def _are_regular(raw: npt.NDArray[np.uint8], quotes: LongArray, delimiter: int) -> bool:
    opening, closing = quotes[::2], quotes[1::2]
    before = raw[opening[opening > 0] - 1]
    after = raw[closing[closing < len(raw) - 1] + 1]
    is_before = (before == delimiter) | (before == NEWLINE) | (before == QUOTE)
    is_after = (after == delimiter) | (after == NEWLINE) | (after == RETURN) | (after == QUOTE)
    return bool(is_before.all() and is_after.all())


def _conversion(columns: list[str], options: ReadOptions) -> csv.ConvertOptions:
    """Read the columns that are asked for, all as text."""
    wanted = set(columns if options.select is None else options.select([name for name in columns if name != MARKER]))
    included = [name for name in columns if name in wanted or name == MARKER]
    # No names at all would mean all columns.
    return csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string()), include_columns=included or columns[:1])


def _table(data: bytes, block: Block, rows: CsvRows, convert: csv.ConvertOptions) -> pa.Table | None:
    """Make a table of the whole rows of a block; None where pyarrow sees other rows, or refuses them."""
    try:
        table = csv.read_csv(
            pa.BufferReader(pa.py_buffer(data).slice(0, block.end)),
            csv.ReadOptions(column_names=rows.columns, block_size=min(max(BLOCK, 2 * block.end), 2**31 - 1)),
            csv.ParseOptions(delimiter=rows.delimiter, newlines_in_values=True),
            convert,
        )
    except pa.ArrowInvalid:
        return None
    if len(table) != len(block.lines):
        return None
    return _without_marker(table) if MARKER in rows.columns else table


def _without_marker(table: pa.Table) -> pa.Table:
    """Take one apostrophe off the cells that were escaped (see `formulas`)."""
    counts = table.column(MARKER)
    is_escaped = pc.invert(pc.is_in(counts, pa.array(["", "0"], counts.type)))
    plain = table.drop_columns(MARKER)
    columns = [
        pc.if_else(is_escaped, pc.replace_substring_regex(column, UNESCAPE_PATTERN, r"\1"), column)
        for column in plain.columns
    ]
    return pa.table(columns, names=plain.column_names) if columns else plain


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


class CsvEncoder:
    r"""Writes tables as lines: what is no text is JSON, nothing is an empty cell.

    >>> options = WriteOptions(escape=True, mark=True)
    >>> CsvEncoder(options).encode(pa.table({"a": ["x", "=1+1"], "b": [1, None]}))
    b"a,b,treelabel:escaped\nx,1,0\n'=1+1,,1\n"
    """

    def __init__(self, options: WriteOptions, delimiter: str = ",") -> None:
        self.options = options
        self.escaped = 0
        self._delimiter = delimiter
        self._has_header = options.resumed

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table, the first time with the names of the columns."""
        header = b"" if self._has_header else self._header(table.column_names)
        self._has_header = True
        return header + self._lines(table)

    def _header(self, names: list[str]) -> bytes:
        names = [escape(name) for name in names] if self.options.escape else names
        cells = pa.array([*names, *([MARKER] if self.options.mark else [])], pa.large_string())
        return f"{self._delimiter.join(_quote(cells, self._delimiter).to_pylist())}\n".encode()

    def _lines(self, table: pa.Table) -> bytes:
        cells = [
            text_cells(column, name in self.options.labels)
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        counts: LongArray = np.zeros(len(table), np.int64)
        if self.options.escape:
            cells = [self._escape(column, counts) for column in cells]
        parts = [_quote(column, self._delimiter) for column in cells]
        if self.options.mark:
            parts.append(pa.array(counts).cast(pa.large_string()))
        if len(parts) == 1:
            # A line of nothing would be no row.
            parts = [pc.if_else(pc.equal(parts[0], ""), text_scalar('""'), parts[0])]
        self.escaped += int(counts.sum())
        between = [part for column in parts for part in (self._delimiter, column)]
        return text_bytes(join_texts([*between[1:], "\n"]))

    def _escape(self, cells: pa.Array, counts: LongArray) -> pa.Array:
        """Put an apostrophe in front of cells that a spreadsheet would run, and count them."""
        is_formula = pc.match_substring_regex(cells, FORMULA_PATTERN)
        if not pc.any(is_formula).as_py():
            return cells
        is_number = pc.match_substring_regex(cells, f"^(?:{NUMBER.pattern})$")
        is_formula = pc.and_(is_formula, pc.invert(is_number))
        counts += is_formula.to_numpy(zero_copy_only=False)
        return pc.if_else(is_formula, join_texts(["'", cells]), cells)


def _quote(cells: pa.Array, delimiter: str) -> pa.Array:
    """Put cells into quotes that need them."""
    must = pc.match_substring_regex(cells, f'[{delimiter}"\r\n]')
    if not pc.any(must).as_py():
        return cells
    return pc.if_else(must, join_texts(['"', pc.replace_substring(cells, '"', '""'), '"']), cells)
