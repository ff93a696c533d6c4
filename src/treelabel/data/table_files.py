"""Write a table for people and programs: CSV, TSV, JSON, JSON Lines, Parquet or xlsx, by the ending of the file."""

import csv
import json
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import suffixes
from treelabel.core.outputs import open_output, whole_file
from treelabel.data.formats.delimited import label_cell
from treelabel.data.formulas import FORMULA, MARKER, escape, escaped_row
from treelabel.data.sheets import write_sheet

ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".xlsx")


def require_table_name(path: Path) -> None:
    """Refuse a name whose ending says no format that tables are written in."""
    if suffixes(path)[0] not in ENDINGS:
        raise TreelabelError(f"{path}: a table is written as {', '.join(ENDINGS)}; give the file one of these endings")


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table; the file appears whole or not at all.

    In CSV and TSV, lists of labels are written as `read` reads them, one label as it is, and cells that a spreadsheet
    would run as formulas are escaped (see `formulas`).

    Parameters
    ----------
    table : pyarrow.Table
        Columns of texts, numbers and lists of texts.
    path : str or Path
        The file, compressed if its name ends in .gz, .zst or .bz2.
    """
    target = Path(path)
    require_table_name(target)
    ending = suffixes(target)[0]
    if ending == ".parquet":
        with whole_file(target) as working:
            pq.write_table(table, working, compression="zstd")
        return
    if ending == ".xlsx":
        rows = (
            [label_cell(value) if isinstance(value, list) else value for value in row.values()]
            for row in table.to_pylist()
        )
        write_sheet(target, chain([table.column_names], rows), "table")
        return
    with open_output(target) as stream:
        if ending in (".csv", ".tsv"):
            stream.write(_delimited(table, "\t" if ending == ".tsv" else ",").encode())
        elif ending == ".json":
            stream.write(json.dumps(table.to_pylist(), ensure_ascii=False, indent=2).encode() + b"\n")
        else:
            for row in table.to_pylist():
                stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _delimited(table: pa.Table, delimiter: str) -> str:
    rows = [[_cell(value) for value in row.values()] for row in table.to_pylist()]
    is_marked = any(FORMULA.match(cell) and escape(cell) != cell for row in rows for cell in row)
    buffer = StringIO()
    plain = csv.writer(buffer, delimiter=delimiter, lineterminator="\n")
    # Readers take a lone carriage return for a line's end, and this writer does not know to quote it.
    careful = csv.writer(buffer, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow([*table.column_names, MARKER] if is_marked else table.column_names)
    for row in rows:
        cells = escaped_row(row)[0] if is_marked else row
        (careful if any("\r" in cell for cell in cells) else plain).writerow(cells)
    return buffer.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return label_cell(value)
    return "" if value is None else str(value)
