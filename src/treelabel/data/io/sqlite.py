"""Tables of SQLite, called by an address: sqlite:///folder/file.db#table (a fourth slash begins at the root).

The part behind # may be left out where a file has one table. Cells are as in CSV: several labels are a JSON list.
"""

import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.registry import did_you_mean
from treelabel.data.io.cells import text_cells
from treelabel.data.io.format import Problem, ReadOptions, Record, TableSource, WriteOptions, parts_of

# As a Path has it, which joins slashes.
ADDRESS = re.compile(r"sqlite:/+([^#]+)(?:#(.*))?")


class SqliteAddress(NamedTuple):
    """A file, and the name of a table in it if one was given."""

    file: Path
    table: str | None

    @classmethod
    def of(cls, path: Path) -> "SqliteAddress | None":
        """Read an address; None if it is none.

        >>> SqliteAddress.of(Path("sqlite:///notes.db#notes"))
        SqliteAddress(file=PosixPath('notes.db'), table='notes')
        """
        match = ADDRESS.fullmatch(str(path))
        if match is None:
            return None
        here, top = Path(match[1]), Path("/", match[1])
        # A path has no two slashes in a row, so that sqlite:/// and sqlite://// look the same.
        is_here = here.exists() or (not top.exists() and here.parent.exists())
        return cls(here if is_here else top, match[2] or None)


def file_behind(path: Path) -> Path:
    """Return the file of an address, and any other path as it is."""
    address = SqliteAddress.of(path)
    return path if address is None else address.file


def read_sqlite(path: Path, options: ReadOptions) -> TableSource:
    """Read a table; lines are row numbers, from 1 on."""
    address = SqliteAddress.of(path)
    if address is None:
        raise TreelabelError(f"{path}: expected an address such as sqlite:///file.db#table")
    try:
        # Nothing is written, and a file that is not there is not made.
        connection = sqlite3.connect(f"{address.file.absolute().as_uri()}?mode=ro", uri=True)
        # A view of a file that somebody else made calls no functions with side effects.
        connection.execute("PRAGMA trusted_schema = OFF")
        name = _table_name(connection, address)
        cursor = connection.execute(f"SELECT * FROM {_quoted(name)}")
    except sqlite3.Error as error:
        raise TreelabelError(f"{address.file}: cannot be read as SQLite: {error}") from error
    return TableSource(parts_of(_records(connection, cursor, address), path, options.limits), choices={"table": name})


def _records(connection: Any, cursor: Any, address: SqliteAddress) -> Iterator[Record | Problem]:
    with closing(connection):
        names = [column[0] for column in cursor.description]
        number = 0
        try:
            for number, row in enumerate(cursor, 1):
                values = (cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell for cell in row)
                yield Record(number, dict(zip(names, values, strict=True)))
        except sqlite3.Error as error:
            raise TreelabelError(f"{address.file}: row {number + 1}: cannot be read: {error}") from error


def _table_name(connection: Any, address: SqliteAddress) -> str:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
    names = [name for (name,) in rows if not name.startswith("sqlite_")]
    if address.table is None and len(names) == 1:
        return str(names[0])
    if address.table in names:
        return str(address.table)
    listed = some(names) if names else "none"
    if address.table is None:
        raise TreelabelError(f"{address.file}: which table? name it behind #; there are: {listed}")
    hint = did_you_mean(address.table, names)
    raise TreelabelError(f"{address.file}: no table {quote(address.table)}; there are: {listed}{hint and f'; {hint}'}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write_sqlite(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write a new table, into a file that is there or a new one; other tables of it stay as they are."""
    address = SqliteAddress.of(path)
    if address is None:
        raise TreelabelError(f"{path}: expected an address such as sqlite:///file.db#table")
    name = address.table or "documents"
    with atomic_file(address.file) as temporary:
        if address.file.exists():
            shutil.copyfile(address.file, temporary)
        try:
            with closing(sqlite3.connect(temporary)) as connection, connection:
                _fill(connection, name, tables, options)
        except sqlite3.Error as error:
            hint = "; choose another name behind #" if "already exists" in str(error) else ""
            raise TreelabelError(f"{address.file}: cannot be written: {error}{hint}") from error


def _fill(connection: Any, name: str, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    for number, table in enumerate(tables):
        if number == 0:
            columns = ", ".join(
                f"{_quoted(column)} {_kind(table.schema.field(column))}" for column in table.column_names
            )
            connection.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
            marks = ", ".join("?" * table.num_columns)
        cells = [_cells(table, column, options) for column in table.column_names]
        connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", zip(*cells, strict=True))


def _kind(field: Any) -> str:
    return "INTEGER" if pa.types.is_integer(field.type) else "REAL" if pa.types.is_floating(field.type) else "TEXT"


def _cells(table: pa.Table, column: str, options: WriteOptions) -> list[Any]:
    values = table.column(column)
    if _kind(table.schema.field(column)) != "TEXT":
        return list(values.to_pylist())
    return list(text_cells(values, column in options.labels).to_pylist())
