"""Excel files (.xlsx): a sheet whose columns have names, found where the table begins."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.data.io.cells import label_cell, value_cell
from treelabel.data.io.format import Problem, ReadOptions, Record, TableSource, WriteOptions, parts_of
from treelabel.data.io.sheets import column_letters, open_sheet, write_sheet

LOG = logging.getLogger(__name__)
# Titles and notes may stand above a table; this many rows are looked at to find where it begins.
LOOKED_AT = 20
# The names of its columns fill at least this share of the widest of these rows.
SHARE = 0.6
# Excel keeps fifteen digits of a number.
LARGEST_NUMBER = 10**15

SheetRow = tuple[int, list[str]]


def read_excel(path: Path, options: ReadOptions) -> TableSource:
    """Read a sheet row by row; lines are row numbers as Excel shows them, and values are texts.

    Rows above the names of the columns are passed over, as are empty rows; a column without a name has that of its
    letter.
    """
    choices: dict[str, str] = {}
    return TableSource(parts_of(_records(path, options, choices), path, options.limits), choices=choices)


def _records(path: Path, options: ReadOptions, choices: dict[str, str]) -> Iterator[Record | Problem]:
    size = path.stat().st_size
    with open_sheet(path, options.sheet, options.limits) as sheet:
        choices["sheet"] = sheet.summary()
        if sheet.others:
            LOG.info("%s: the sheet %s is read, not %s (--sheet)", path, quote(sheet.name), some(sheet.others))
        first = list(islice(sheet.rows, LOOKED_AT))
        if not first:
            raise TreelabelError(
                f"{path}: the sheet {quote(sheet.name)} is empty; expected a row with column names, then one row per "
                f"document{'; choose another sheet (--sheet)' if sheet.others else ''}"
            )
        columns: dict[int, str] = {}
        if options.header:
            index = header_index(first)
            columns = _columns(path, first[index])
            choices["sheet"] += f", columns named in row {first[index][0]}"
            if index > 0:
                LOG.info(
                    "%s: took the names of the columns from row %d (%s)",
                    path,
                    first[index][0],
                    some(list(columns.values())),
                )
            first = first[index + 1 :]
        for number, cells in chain(first, sheet.rows):
            yield Record(number, _values_by_column(cells, columns, options.header))
            if options.seen is not None and sheet.last_row:
                options.seen(min(size, size * number // sheet.last_row))
        if sheet.merged:
            choices["sheet"] += f", {sheet.merged:,} cells merged over rows, with their value in each"
        sheet.warn()


def header_index(rows: list[SheetRow]) -> int:
    """Find the row with the names of columns: the first that is wide and has no number or date.

    Parameters
    ----------
    rows
        The first rows that are not empty.

    Returns
    -------
    int
        Its place; 0 if no row looks like it.

    >>> header_index([(1, ["Products 2024", "", ""]), (3, ["id", "text", "label"]), (4, ["1", "woof", "dog"])])
    1
    """
    filled = [[cell.strip() for cell in cells if cell.strip()] for _, cells in rows]
    enough = ceil(SHARE * max(map(len, filled)))

    def is_header(cells: list[str]) -> bool:
        return len(cells) >= enough and not any(map(_is_number, cells))

    return next((index for index, cells in enumerate(filled) if is_header(cells)), 0)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        try:
            datetime.fromisoformat(cell)
        except ValueError:
            return False
    return True


def _columns(path: Path, header: SheetRow) -> dict[int, str]:
    number, cells = header
    columns = {index: name.strip() for index, name in enumerate(cells) if name.strip()}
    twice = sorted(name for name, count in Counter(columns.values()).items() if count > 1)
    if twice:
        raise TreelabelError(f"{path}:{number}: the column {quote(twice[0])} stands twice in the header; rename one")
    return columns


def _values_by_column(cells: list[str], columns: dict[int, str], is_named: bool) -> dict[str, Any]:
    """Return the values of a row by column; those of columns without a name only where there are any."""
    if not is_named:
        return {str(index + 1): cell for index, cell in enumerate(cells)}
    values: dict[str, Any] = {name: cells[index] if index < len(cells) else "" for index, name in columns.items()}
    for index, cell in enumerate(cells):
        if cell and index not in columns:
            values.setdefault(f"column {column_letters(index)}", cell)
    return values


def write_excel(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write a sheet with a row of names and one row per document; numbers and dates stay what they are."""
    write_sheet(path, _sheet_rows(tables, options), options.sheet)


def _sheet_rows(tables: Iterable[pa.Table], options: WriteOptions) -> Iterator[list[Any]]:
    is_first = True
    for table in tables:
        if is_first:
            yield list(table.column_names)
        is_first = False
        columns = [
            [label_cell(value) if name in options.labels else _cell(value) for value in column.to_pylist()]
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        yield from map(list, zip(*columns, strict=True))


def _cell(value: Any) -> Any:
    """Return a value as Excel has it, where it has such values; others as CSV would have them."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float) and abs(value) < LARGEST_NUMBER:
        return value
    is_date = isinstance(value, date) and value.year > 1900
    if is_date and not (isinstance(value, datetime) and (value.tzinfo is not None or value.microsecond)):
        return value
    return value_cell(value)
