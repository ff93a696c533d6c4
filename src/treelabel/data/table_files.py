"""Write a table for people and programs: CSV, TSV, JSON, JSON Lines, Parquet or xlsx, by the ending of the file."""

import json
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from treelabel.core.atomic_output import atomic_file, open_output
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import suffixes
from treelabel.data.io.csv import label_cell
from treelabel.data.io.sheets import write_sheet
from treelabel.data.tables import csv_header, csv_lines

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
        with atomic_file(target) as working:
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
            stream.write(_delimited(table, "\t" if ending == ".tsv" else ","))
        elif ending == ".json":
            stream.write(json.dumps(table.to_pylist(), ensure_ascii=False, indent=2).encode() + b"\n")
        else:
            for row in table.to_pylist():
                stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _delimited(table: pa.Table, delimiter: str) -> bytes:
    columns = [_label_cells(column) if pa.types.is_list(column.type) else column for column in table.columns]
    cells = pa.Table.from_arrays(columns, names=table.column_names)
    lines, escaped = csv_lines(cells, delimiter, escape_formulas=True, marked=False)
    if escaped:
        lines, _ = csv_lines(cells, delimiter, escape_formulas=True, marked=True)
    return csv_header(table.column_names, delimiter, escape_formulas=True, marked=escaped > 0) + lines


def _label_cells(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([label_cell(labels or []) for labels in column.to_pylist()], pa.large_string())
