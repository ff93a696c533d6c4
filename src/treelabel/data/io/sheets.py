"""Sheets of Excel files (.xlsx): their cells as the texts that a person sees, a row at a time.

An .xlsx file is a zip archive of XML files. What it would unpack to, and whether it declares entities, is checked
before openpyxl opens it. Formulas give the values that Excel saved with them.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from itertools import islice
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile

from treelabel.core.errors import TreelabelError, quote, require_extra, some
from treelabel.core.inputs import suffixes
from treelabel.core.limits import DEFAULT_LIMITS, Limits

# Excel's own limit.
MOST_ROWS = 1_048_576
ERRORS = {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A"}
# A character that XML cannot hold, or would change, by its number.
ENCODED = re.compile(r"_x([0-9A-Fa-f]{4})_")
MERGED = re.compile(rb'<mergeCell\b[^>]*?\bref="([A-Z]{1,3}\d{1,7}:[A-Z]{1,3}\d{1,7})"')
FORMULA = re.compile(rb"<f[\s/>]")
PIECE, FIRST_PIECE, LONGEST_TAG = 1 << 20, 1 << 14, 200
# How the files of old Excel begin, and files of new Excel with a password.
OLD_EXCEL = bytes.fromhex("d0cf11e0a1b11ae1")
CHUNK = 512


class SheetWarning(UserWarning):
    """Says which cells of a sheet have no value to read."""


@dataclass
class Sheet:
    """A sheet that is open: its rows, which sheets there are, and what was found on the way."""

    path: Path
    name: str
    others: list[str]
    rows: Iterator[tuple[int, list[str]]]
    last_row: int | None
    without_value: list[str] = field(default_factory=list)
    with_error: list[str] = field(default_factory=list)
    merged: int = 0

    def summary(self) -> str:
        """Return which sheet is read, for people."""
        return f"{self.name}{f' (the first of {len(self.others) + 1})' if self.others else ''}"

    def warn(self) -> None:
        """Say what could not be read, once all rows were."""
        kinds = (
            (self.without_value, "formulas whose values were not saved; open the file in Excel and save it"),
            (self.with_error, "errors of a formula, such as #N/A"),
        )
        for cells, what in kinds:
            if cells:
                message = f"{self.path}: taken as empty are {len(cells):,} cells ({some(cells, 3)}) with {what}"
                warnings.warn(SheetWarning(message), stacklevel=3)


@contextmanager
def open_sheet(path: Path, sheet: str | None = None, limits: Limits = DEFAULT_LIMITS) -> Iterator[Sheet]:
    """Open a sheet to read it row by row; rows without any value are passed over.

    A cell that was merged over several rows has its value in each of them. Dates are written as 2024-01-31, whole
    numbers without a point, TRUE and FALSE as Excel shows them.

    Parameters
    ----------
    path : Path
        An .xlsx file.
    sheet : str, optional
        The name of a sheet, or its number from 1 on; by default the first that is not hidden.
    limits : Limits
        What the file may unpack to, and how long a cell may be.

    Yields
    ------
    Sheet
    """
    if suffixes(path)[1] is not None:
        raise TreelabelError(f"{path}: an .xlsx file is compressed already; unpack it first")
    check_archive(path, limits)
    with _open_book(path, data_only=True) as book:
        chosen = _choose_sheet(path, book, sheet)
        others = [] if sheet is not None else [each.title for each in book.worksheets if each is not chosen]
        opened = Sheet(path, chosen.title, others, iter(()), chosen.max_row)
        opened.rows = _rows(opened, chosen, limits)
        yield opened


@contextmanager
def _open_book(path: Path, data_only: bool) -> Iterator[Any]:
    with require_extra("excel", "reading .xlsx"):
        from openpyxl import load_workbook
    with path.open("rb") as raw:
        with locate_damage(path), _quiet():
            book = load_workbook(raw, read_only=True, data_only=data_only, keep_links=False)
        yield book


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep openpyxl from telling about parts of a file that hold no values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _choose_sheet(path: Path, book: Any, sheet: str | None) -> Any:
    sheets = book.worksheets
    if not sheets:
        raise TreelabelError(f"{path}: has no sheet with cells")
    if sheet is None:
        return next((each for each in sheets if each.sheet_state == "visible"), sheets[0])
    by_name = {each.title.strip().lower(): each for each in reversed(sheets)}
    if sheet.strip().lower() in by_name:
        return by_name[sheet.strip().lower()]
    if sheet.isdecimal() and 1 <= int(sheet[:9]) <= len(sheets):
        return sheets[int(sheet[:9]) - 1]
    names = some([each.title for each in sheets], 10)
    raise TreelabelError(f"{path}: has no sheet {quote(sheet)}; there are {names}; give a name, or a number from 1 on")


def _rows(sheet: Sheet, source: Any, limits: Limits) -> Iterator[tuple[int, list[str]]]:
    path = sheet.path
    with locate_damage(path):
        merged, has_formulas = _scan(path, source)
    sheet.merged = sum(map(len, merged.values()))
    formulas = _formulas(path, sheet.name) if has_formulas else iter(())
    open_merges: dict[int, tuple[int, str]] = {}
    for number, values in enumerate(_values(path, source), 1):
        if number > MOST_ROWS:
            raise TreelabelError(f"{path}:{number:,}: more rows than the {MOST_ROWS:,} that a sheet can have")
        if limits.exceeds("columns", len(values)):
            raise TreelabelError(f"{path}:{number}: {len(values):,} columns; {limits.hint('columns')}")
        cells = [cell_text(value) for value in values]
        _note_missing(sheet, number, cells, values, next(formulas, ()))
        is_empty = not any(map(str.strip, cells))
        _fill_merged(number, cells, merged, open_merges)
        if any(limits.exceeds("line", len(cell)) for cell in cells):
            raise TreelabelError(f"{path}:{number}: a cell is too long; {limits.hint('line')}")
        if not is_empty:
            yield number, cells


def _values(path: Path, source: Any) -> Iterator[tuple[Any, ...]]:
    """Read the values of all rows; the size that a sheet claims to have may be wrong, and is not looked at."""
    source.reset_dimensions()
    rows = source.iter_rows(values_only=True)
    while True:
        with locate_damage(path), _quiet():
            chunk = list(islice(rows, CHUNK))
        if not chunk:
            return
        yield from chunk


def _formulas(path: Path, name: str) -> Iterator[tuple[Any, ...]]:
    """Read a sheet a second time, with formulas in place of their values."""
    with _open_book(path, data_only=False) as book:
        yield from _values(path, book[name])


def _scan(path: Path, source: Any) -> tuple[dict[int, list[tuple[int, int]]], bool]:
    """Look through the XML of a sheet for merged cells, which come behind all rows, and for formulas.

    Returns the column and the last row of cells that were merged over several rows, by their first row.
    """
    from openpyxl.utils.cell import range_boundaries

    merged: dict[int, list[tuple[int, int]]] = {}
    has_formulas = False
    # openpyxl knows the place of a sheet, but gives no merged cells to who reads row by row.
    with ZipFile(path) as archive, archive.open(source._worksheet_path) as stream:
        held = b""
        while piece := stream.read(PIECE):
            held += piece
            has_formulas = has_formulas or FORMULA.search(held) is not None
            end = 0
            for match in MERGED.finditer(held):
                end = match.end()
                column, top, _, bottom = range_boundaries(match[1].decode())
                if top < bottom:
                    merged.setdefault(top, []).append((column - 1, min(bottom, MOST_ROWS)))
            held = held[max(end, len(held) - LONGEST_TAG) :]
    return merged, has_formulas


def _fill_merged(
    number: int, cells: list[str], merged: dict[int, list[tuple[int, int]]], is_open: dict[int, tuple[int, str]]
) -> None:
    """Fill the cells that a merged one covers in the rows below with its value; `is_open` has these by column."""
    for column, (last, value) in list(is_open.items()):
        if number > last:
            del is_open[column]
        else:
            cells.extend([""] * (column + 1 - len(cells)))
            cells[column] = cells[column] or value
    for column, last in merged.get(number, ()):
        if column < len(cells) and cells[column]:
            is_open[column] = last, cells[column]


def _note_missing(
    sheet: Sheet, number: int, cells: list[str], values: tuple[Any, ...], formulas: tuple[Any, ...]
) -> None:
    """Note formulas without a value, and errors, which become empty cells; a text that reads like one is encoded."""
    for column, cell in enumerate(cells):
        formula = formulas[column] if column < len(formulas) else None
        is_formula = not isinstance(formula, str) or formula.startswith("=")
        if not cell and formula is not None and is_formula:
            sheet.without_value.append(f"{column_letters(column)}{number}")
        elif values[column] in ERRORS:
            sheet.with_error.append(f"{column_letters(column)}{number}")
            cells[column] = ""


def column_letters(column: int) -> str:
    """Return what Excel calls a column, counted from 0: A, B, ..., Z, AA."""
    from openpyxl.utils.cell import get_column_letter

    return str(get_column_letter(column + 1))


def cell_text(value: Any) -> str:
    """Write a value as a person sees it in its cell.

    >>> cell_text(12.0), cell_text(0.25), cell_text(datetime(2024, 1, 31)), cell_text(True), cell_text(None)
    ('12', '0.25', '2024-01-31', 'TRUE', '')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return ENCODED.sub(lambda match: chr(int(match[1], 16)), value) if "_x" in value else value
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "seconds")
    return value.isoformat() if isinstance(value, date | time) else str(value)


# Checks before anything is read


def check_archive(path: Path, limits: Limits) -> None:
    """Refuse a file that is no .xlsx file, would unpack to too much, or has XML with declarations of its own.

    Sizes are those that the archive promises; no more than these is ever unpacked. All but the sheets is read at once.
    """
    try:
        with ZipFile(path) as archive:
            parts = archive.infolist()
            packed, unpacked = path.stat().st_size, sum(part.file_size for part in parts)
            if limits.exceeds("floor", unpacked) and limits.exceeds("ratio", unpacked / max(1, packed)):
                raise TreelabelError(f"{path}: its {packed:,} bytes unpack to {unpacked:,}; {limits.hint('ratio')}")
            at_once = max((part.file_size for part in parts if "worksheets/" not in part.filename), default=0)
            if limits.exceeds("whole", at_once):
                raise TreelabelError(f"{path}: holds more than can be read at once; {limits.hint('whole')}")
            if "[Content_Types].xml" not in archive.namelist():
                raise BadZipFile("a zip archive without [Content_Types].xml")
            for part in parts:
                if part.filename.lower().endswith((".xml", ".rels")):
                    with locate_damage(path), archive.open(part) as stream:
                        _refuse_declarations(path, stream)
    except (BadZipFile, NotImplementedError) as error:
        with path.open("rb") as stream:
            is_old = stream.read(len(OLD_EXCEL)) == OLD_EXCEL
        why = f"not an .xlsx file: {error}; the file may be damaged, or of another format"
        if is_old:
            why = "is an old Excel file (.xls) or has a password; open it in Excel and save it as .xlsx without one"
        raise TreelabelError(f"{path}: {why}") from error


def _refuse_declarations(path: Path, stream: IO[bytes]) -> None:
    """Refuse XML with a document type, in which entities could grow without end; Excel writes none."""

    def refuse(*_: Any) -> None:
        raise TreelabelError(f"{path}: its XML declares a document type, which no file of Excel does; it is not read")

    begun: list[str] = []
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda name, _: begun.append(name)
    # Declarations are over where the first element begins. What is not XML is for the reader proper to say.
    with suppress(expat.ExpatError):
        while not begun and (piece := stream.read(FIRST_PIECE)):
            parser.Parse(piece, False)


@contextmanager
def locate_damage(path: Path) -> Iterator[None]:
    """Say what is wrong with a file where its reader raises any of its many errors."""
    try:
        yield
    except (TreelabelError, MemoryError):
        raise
    except Exception as error:  # zip, XML and openpyxl raise errors that share no base
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise TreelabelError(f"{path}: not an .xlsx file that can be read: {why}; the file may be damaged") from error
