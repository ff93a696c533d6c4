"""Excel files (.xlsx): a sheet whose columns have names, found where the table begins; and how one is written."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError, quote, require_extra, some
from treelabel.core.inputs import suffixes
from treelabel.data.io.cells import label_cell, value_cell
from treelabel.data.io.format import Problem, ReadOptions, Record, TableSource, WriteOptions, parts_of
from treelabel.data.io.sheets import ERRORS, MOST_ROWS, column_letters, open_sheet

LOG = logging.getLogger(__name__)
# Titles and notes may stand above a table; this many rows are looked at to find where it begins.
LOOKED_AT = 20
# The names of its columns fill at least this share of the widest of these rows.
SHARE = 0.6
# Excel keeps fifteen digits of a number, and has limits of its own.
LARGEST_NUMBER = 10**15
MOST_COLUMNS, MOST_CHARACTERS = 16_384, 32_767
# Characters that XML cannot hold, or would change, are written by their number, as Excel does it.
LOOKS_ENCODED = re.compile(r"_(?=x[0-9A-Fa-f]{4})")
NOT_IN_XML = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")

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
                names = some(list(columns.values()))
                LOG.info("%s: took the names of the columns from row %d (%s)", path, first[index][0], names)
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


def write_sheet(path: Path, rows: Iterable[list[Any]], title: str = "data") -> None:
    """Write rows to a file with one sheet, its first row fixed at the top; the file appears whole or not at all.

    Texts are stored as texts, so that none is run as a formula.

    Parameters
    ----------
    path : Path
        An .xlsx file.
    rows : iterable of lists
        Texts, numbers, dates and None.
    title : str
        The name of the sheet.
    """
    if suffixes(path)[1] is not None:
        raise TreelabelError(f"{path}: an .xlsx file is compressed already; leave the ending {path.suffix} out")
    with require_extra("excel", "writing .xlsx"):
        from openpyxl import Workbook
    book = Workbook(write_only=True)
    sheet = book.create_sheet(title)
    sheet.freeze_panes = "A2"
    with atomic_file(path) as working:
        try:
            for number, row in enumerate(rows, 1):
                if number > MOST_ROWS or len(row) > MOST_COLUMNS:
                    raise TreelabelError(
                        f"{path}: a sheet of Excel holds {MOST_ROWS:,} rows and {MOST_COLUMNS:,} columns, and this is "
                        "more; write .csv or .parquet, or split the data"
                    )
                sheet.append([_storable(sheet, value, path, number) for value in row])
        except BaseException:
            sheet.close()
            raise
        book.save(working)


def _storable(sheet: Any, value: Any, path: Path, number: int) -> Any:
    """Return a value as openpyxl takes it; texts that it would take for something else are said to be texts."""
    from openpyxl.cell import WriteOnlyCell

    if not isinstance(value, str):
        return value
    text = encoded_text(value)
    if len(text) > MOST_CHARACTERS // 2 and len(text.encode("utf-16-le")) // 2 > MOST_CHARACTERS:
        raise TreelabelError(
            f"{path}: row {number:,} has a text of {len(value):,} characters, and a cell of Excel holds "
            f"{MOST_CHARACTERS:,}; write .csv, .jsonl or .parquet"
        )
    if text in ERRORS:
        # Not the error of a formula: its first character by its number.
        text = f"_x0023_{text[1:]}"
    if text[:1] not in ("=", "#", "+", "-", "@", "\t"):
        return text
    cell = WriteOnlyCell(sheet, text)
    # Excel keeps such a cell as text even when somebody edits it.
    cell.data_type, cell.quotePrefix = "s", True
    return cell


def encoded_text(text: str) -> str:
    r"""Write a text as Excel stores it: characters that XML has no place for by their number.

    >>> encoded_text("a\r\nb"), encoded_text("_x000D_"), encoded_text("_x0041\x0b")
    ('a_x000D_\nb', '_x005F_x000D_', '_x005F_x0041_x000B_')
    """
    if LOOKS_ENCODED.search(text):
        text = LOOKS_ENCODED.sub("_x005F_", text)
    return NOT_IN_XML.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
