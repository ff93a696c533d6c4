"""Regular CSV at the speed of compiled loops: blocks of a file to columns of text, without a Python object per row.

It reads what every reader agrees on: UTF-8, a header, as many fields in each row as the header has, lines that end in
LF or CR LF, fields in quotes whose quotes are doubled. At anything else it stops, and the reader of `delimited`, which
knows what is wrong in which line, takes over from that row on.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treelabel.core.compute import kernel
from treelabel.core.inputs import open_input, suffixes
from treelabel.core.types import BoolArray, LongArray
from treelabel.data.io.formulas import MARKER
from treelabel.data.io.records import ReadOptions

ByteArray = npt.NDArray[np.uint8]

BLOCK = 1 << 20
# A file that is smaller is read before the loops are loaded.
WORTH_IT = 1 << 20
LONGEST_HEADER = 1 << 16
QUOTE, RETURN, NEWLINE = 34, 13, 10
# Why a block ended: with its last whole row, before one that only the other reader understands, or in a row.
WHOLE, ODD, CUT = 0, 1, 2


def regular_columns(path: Path, options: ReadOptions) -> tuple[list[str], str] | None:
    """Look at the header of a file: its columns and its delimiter, or None if another reader has to read it.

    Parameters
    ----------
    path
        The file.
    options
        How to read it.

    Returns
    -------
    (list of str, str) or None
    """
    if path.stat().st_size < WORTH_IT or not options.header or not options.quotes:
        return None
    if options.encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "utf-8-sig"):
        return None
    with open_input(path, None, options.limits) as stream:
        try:
            first = stream.readline(LONGEST_HEADER).decode()
        except (UnicodeDecodeError, OSError):
            return None
    line = first.removeprefix("\ufeff").rstrip("\r\n")
    usual = "\t" if suffixes(path)[0] in (".tsv", ".tab") else ","
    delimiter = options.delimiter or usual
    if not first.endswith("\n") or "\r" in line or delimiter not in line or len(delimiter) != 1 or ord(delimiter) > 127:
        return None
    try:
        columns = [name.strip() for name in next(csv.reader([line], delimiter=delimiter, strict=True))]
    except csv.Error:
        return None
    if len(set(columns)) < len(columns) or MARKER in columns or options.limits.exceeds("columns", len(columns)):
        return None
    return (columns, delimiter) if delimiter not in '"\r\n' else None


def read_blocks(
    path: Path, options: ReadOptions, columns: list[str], delimiter: str, wanted: list[str]
) -> Iterator[pa.Table | None]:
    """Read some columns of a file in blocks.

    Parameters
    ----------
    path, options
        As for the other readers.
    columns, delimiter
        From `regular_columns`.
    wanted
        The columns to return.

    Yields
    ------
    pa.Table or None
        Columns of text, in the order of `wanted`; None as the last item says that there is more, which another reader
        has to read.
    """
    places = [columns.index(name) for name in wanted]
    most = options.limits.line or np.iinfo(np.int64).max
    mark = ord(delimiter)
    with open_input(path, options.seen, options.limits) as stream:
        stream.readline(LONGEST_HEADER)
        held = b""
        is_last = False
        while not is_last:
            piece = stream.read(BLOCK)
            is_last = not piece
            data = np.frombuffer(held + piece, np.uint8)
            if len(data) == 0:
                return
            starts, ends, doubled, used, why = split_rows(data, mark, len(columns), most, is_last)
            table = _table(data, starts, ends, doubled, places, wanted)
            if table is None:
                yield None
                return
            yield table
            if why == ODD:
                yield None
                return
            held = data[used:].tobytes()


def _table(data: ByteArray, starts: Any, ends: Any, doubled: Any, places: list[int], names: list[str]) -> Any:
    """Make columns of the fields; None if they are not UTF-8."""
    made = []
    for place in places:
        offsets, held = gather(data, starts[:, place], ends[:, place], doubled[:, place])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(held)]
        column = pa.LargeStringArray.from_buffers(len(starts), buffers[1], buffers[2])
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return None
        made.append(column)
    return pa.table(made, names=names)


@kernel
def split_rows(
    data: ByteArray, delimiter: int, columns: int, most: int, is_last: bool
) -> tuple[LongArray, LongArray, BoolArray, int, int]:
    """Find the fields of all whole rows of a block.

    Returns where they begin and end, whether they hold doubled quotes (rows x columns each), the bytes used, and why it
    ended.
    """
    size, room = len(data), 1024
    starts, ends = np.empty((room, columns), np.int64), np.empty((room, columns), np.int64)
    doubled = np.empty((room, columns), np.bool_)
    rows, used, why = 0, 0, WHOLE
    while used < size:
        if data[used] == NEWLINE:
            # Blank lines are passed over.
            used += 1
            continue
        if data[used] == RETURN and used + 1 < size and data[used + 1] == NEWLINE:
            used += 2
            continue
        if rows == room:
            room *= 2
            starts, ends, doubled = with_rows(starts, room), with_rows(ends, room), with_rows(doubled, room)
        at, why = split_row(data, used, delimiter, is_last, starts[rows], ends[rows], doubled[rows])
        # An unclosed quote makes all the rest one row.
        if why == CUT and (is_last or size - used > most):
            why = ODD
        if why == WHOLE and at - used > most:
            why = ODD
        if why != WHOLE:
            break
        rows += 1
        used = at
    return starts[:rows], ends[:rows], doubled[:rows], used, why


@kernel
def with_rows(values: Any, rows: int) -> Any:
    """Return a larger array that begins with these rows."""
    larger = np.empty((rows, values.shape[1]), values.dtype)
    larger[: len(values)] = values
    return larger


@kernel
def split_row(
    data: ByteArray,
    at: int,
    delimiter: int,
    is_last: bool,
    starts: LongArray,
    ends: LongArray,
    doubled: BoolArray,
) -> tuple[int, int]:
    """Find the fields of the row that begins at a place; return where the next one begins, and if it was whole."""
    size = len(data)
    for field in range(len(starts)):
        begin, has_doubled = at, False
        if at < size and data[at] == QUOTE:
            begin = at + 1
            at, has_doubled, why = closing_quote(data, begin, is_last)
            if why != WHOLE:
                return at, why
            ends[field] = at
            at += 1
        else:
            while at < size and data[at] != delimiter and data[at] != NEWLINE and data[at] != RETURN:
                at += 1
            ends[field] = at
        starts[field], doubled[field] = begin, has_doubled
        is_end = field == len(starts) - 1
        if at >= size:
            return at, CUT if not is_last else WHOLE if is_end else ODD
        if data[at] == delimiter and not is_end:
            at += 1
            continue
        if data[at] == NEWLINE and is_end:
            return at + 1, WHOLE
        if data[at] == RETURN and is_end:
            if at + 1 >= size:
                return at, ODD if is_last else CUT
            return at + 2, WHOLE if data[at + 1] == NEWLINE else ODD
        break
    # Too few fields or too many, or something behind a closing quote.
    return at, ODD


@kernel
def closing_quote(data: ByteArray, at: int, is_last: bool) -> tuple[int, bool, int]:
    """Find the quote that closes a field; also whether quotes are doubled in it, and if it was there."""
    size, has_doubled = len(data), False
    while True:
        while at < size and data[at] != QUOTE and data[at] != RETURN:
            at += 1
        if at >= size:
            return at, has_doubled, CUT
        if at + 1 == size:
            # The next block may begin with the second of two quotes.
            return at, has_doubled, WHOLE if is_last and data[at] == QUOTE else CUT
        if data[at] == RETURN:
            if data[at + 1] != NEWLINE:
                return at, has_doubled, ODD
        elif data[at + 1] != QUOTE:
            return at, has_doubled, WHOLE
        else:
            has_doubled = True
        at += 2


@kernel
def gather(data: ByteArray, starts: LongArray, ends: LongArray, doubled: BoolArray) -> tuple[LongArray, ByteArray]:
    """Copy fields side by side, of two quotes one; return where each begins, and the bytes."""
    total = 0
    for row in range(len(starts)):
        total += ends[row] - starts[row]
    offsets, held = np.empty(len(starts) + 1, np.int64), np.empty(total, np.uint8)
    used = 0
    for row in range(len(starts)):
        offsets[row] = used
        at = starts[row]
        if not doubled[row]:
            for place in range(at, ends[row]):
                held[used] = data[place]
                used += 1
            continue
        while at < ends[row]:
            held[used] = data[at]
            used += 1
            at += 2 if data[at] == QUOTE else 1
    offsets[len(starts)] = used
    return offsets, held[:used]
