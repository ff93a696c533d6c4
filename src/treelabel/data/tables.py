"""Tables of any columns as files, made in parts: CSV as text, Parquet and Excel of a stream that holds all rows."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from treelabel.core.atomic_output import atomic_file
from treelabel.core.spool import joined_batches, read_schema, read_spool
from treelabel.core.types import LongArray
from treelabel.data.io.formulas import FORMULA_PATTERN, MARKER, NUMBER, escape
from treelabel.data.io.sheets import write_sheet

DELIMITERS = {"csv": ",", "tsv": "\t"}
ROW_GROUP = 1 << 24


def csv_header(names: Sequence[str], delimiter: str, escape_formulas: bool, marked: bool) -> bytes:
    """Write the line with the names of the columns.

    Parameters
    ----------
    names, delimiter, escape_formulas, marked
        As for `csv_lines`.

    Returns
    -------
    bytes
    """
    cells = [*(escape(name) if escape_formulas else name for name in names), *([MARKER] if marked else [])]
    quoted = [_quoted(pa.array([cell], pa.large_string()), delimiter)[0].as_py() for cell in cells]
    return f"{delimiter.join(quoted)}\n".encode()


def csv_lines(table: pa.Table, delimiter: str, escape_formulas: bool, marked: bool) -> tuple[bytes, int]:
    """Write the rows of a table; what is no text is JSON, and nothing is an empty cell.

    Parameters
    ----------
    table : pa.Table
        Any columns.
    delimiter : str
        What stands between cells.
    escape_formulas : bool
        Whether cells that a spreadsheet would run begin with an apostrophe (see `formulas`).
    marked : bool
        Whether a last column counts these in each row, so that treelabel reads what was there.

    Returns
    -------
    (bytes, int)
        The lines, and how many cells were escaped.

    >>> csv_lines(pa.table({"a": ["x", "=1+1"], "b": [1, None]}), ",", True, True)
    (b"x,1,0\\n'=1+1,,1\\n", 1)
    """
    cells = [_texts(column) for column in table.columns]
    counts: LongArray = np.zeros(len(table), np.int64)
    if escape_formulas:
        for at, column in enumerate(cells):
            is_formula = pc.match_substring_regex(column, FORMULA_PATTERN)
            if pc.any(is_formula).as_py():
                is_number = pc.match_substring_regex(column, f"^(?:{NUMBER.pattern})$")
                is_formula = pc.and_(is_formula, pc.invert(is_number))
                cells[at] = pc.if_else(is_formula, _joined("'", column), column)
                counts += is_formula.to_numpy(zero_copy_only=False)
    parts = [_quoted(column, delimiter) for column in cells]
    if marked:
        parts.append(pa.array(counts).cast(pa.large_string()))
    if len(parts) == 1:
        # A line of nothing would be no row.
        parts = [pc.if_else(pc.equal(parts[0], _text("")), _text('""'), parts[0])]
    lines = _joined(pc.binary_join_element_wise(*parts, _text(delimiter)), "\n")
    return _bytes(lines), int(counts.sum())


def _bytes(lines: pa.Array) -> bytes:
    """Return the texts of a column, one behind the other."""
    _, offsets, data = lines.buffers()
    if data is None:
        return b""
    ends = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(data)[int(ends[0]) : int(ends[-1])])


def text_lines(lines: pa.Array) -> bytes:
    """Return texts as lines."""
    return _bytes(_joined(lines, "\n"))


def _quoted(cells: pa.Array, delimiter: str) -> pa.Array:
    must = pc.match_substring_regex(cells, f'[{delimiter}"\r\n]')
    if not pc.any(must).as_py():
        return cells
    return pc.if_else(must, _joined('"', pc.replace_substring(cells, '"', '""'), '"'), cells)


def _texts(column: Any) -> pa.Array:
    """Return a column as text."""
    kind = column.type
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(kind):
        return _texts(whole.cast(kind.value_type))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind):
        texts = whole.cast(pa.large_string())
    else:
        texts = pa.array([_written(value) for value in whole.to_pylist()], pa.large_string())
    return pc.fill_null(texts, _text(""))


def _written(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    is_json = isinstance(value, dict | list | bool | float)
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str) if is_json else str(value)


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*(_text(part) if isinstance(part, str) else part for part in parts), _text(""))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


# Of a stream


def finish_table(spool: Path, target: Path, name: str) -> None:
    """Make a Parquet or Excel file of a stream of rows; it appears whole or not at all.

    Parameters
    ----------
    spool
        The stream (see `core.spool`).
    target
        The file.
    name : "parquet" or "xlsx"
    """
    if name == "xlsx":
        write_sheet(target, _sheet_rows(spool), "predictions")
        return
    with atomic_file(target) as working, pq.ParquetWriter(working, read_schema(spool), compression="zstd") as writer:
        for table in joined_batches(read_spool(spool), ROW_GROUP):
            writer.write_table(table)


def _sheet_rows(spool: Path) -> Iterator[list[Any]]:
    """Yield the names of the columns and all rows, with what a cell can hold."""
    yield list(read_schema(spool).names)
    for batch in read_spool(spool):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield [value if value is None or isinstance(value, str | int | float) else str(value) for value in values]
