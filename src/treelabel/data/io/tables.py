"""The one road of data: files of every format to Arrow tables, and back."""

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from treelabel.core.atomic_output import open_output
from treelabel.core.inputs import STANDARD, existing_file, standard_input, suffixes
from treelabel.core.progress import progress_bar
from treelabel.data.io.format import Format, ReadOptions, TableSource, WriteOptions
from treelabel.data.io.formulas import MARKER, EscapedFormulasWarning
from treelabel.data.io.registry import format_of, format_to_read, require_table_format


@contextmanager
def open_tables(
    path: str | Path,
    options: ReadOptions | None = None,
    format: str | None = None,  # noqa: A002  what users call it
    title: str | None = None,
    progress: bool | None = False,
) -> Iterator[TableSource]:
    """Open a file of any format, compressed or not, or - for standard input, to read it as Arrow tables.

    Parameters
    ----------
    path : str or Path
        The file.
    options : ReadOptions, optional
        How to read it.
    format : str, optional
        A name of FORMATS; by default by the ending of the file.
    title : str, optional
        What the progress bar says.
    progress : bool, optional
        Whether to show a progress bar; None shows it on a terminal.

    Yields
    ------
    TableSource

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "pets.csv")
    ...     _ = file.write_text("text,label\\nwoof,dog\\nmeow,cat\\n")
    ...     with open_tables(file) as source:
    ...         [(part.table.to_pydict(), part.lines.tolist()) for part in source.parts]
    [({'text': ['woof', 'meow'], 'label': ['dog', 'cat']}, [2, 3])]
    """
    file = existing_file(path)
    options = ReadOptions() if options is None else options
    entry = format_to_read(file, format, options)
    size = None if file == STANDARD else file.stat().st_size
    with (
        _readable(file, entry) as readable,
        progress_bar(title or f"reading {file.name}", size, progress) as seen,
    ):
        yield entry.read(readable, replace(options, seen=seen))


@contextmanager
def repeatable(path: Path, format: str | None = None) -> Iterator[Path]:  # noqa: A002  what users call it
    """Return a file as it is; standard input (-) is copied to one, to be read more than once within the block."""
    if path != STANDARD:
        yield path
        return
    with _copy_of_input(format_to_read(path, format, ReadOptions())) as copy:
        yield copy


@contextmanager
def _readable(file: Path, entry: Format) -> Iterator[Path]:
    """Return what to read: a copy of standard input where a format jumps about in a file, or begins twice."""
    if file != STANDARD or "stream" in entry.holds:
        yield file
        return
    with _copy_of_input(entry) as copy:
        yield copy


@contextmanager
def _copy_of_input(entry: Format) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="treelabel-") as folder:
        copy = Path(folder, f"standard_input{entry.endings[0]}")
        with copy.open("wb") as stream:
            shutil.copyfileobj(standard_input(), stream)
        yield copy


def write_tables(
    tables: Iterable[pa.Table],
    path: str | Path,
    options: WriteOptions | None = None,
    format: str | None = None,  # noqa: A002  what users call it
) -> None:
    """Write tables of one schema to a file of any format, which appears whole or not at all.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
        The rows, some at a time.
    path : str or Path
        The file, compressed if its name ends in .gz, .zst or .bz2.
    options : WriteOptions, optional
        How to write it.
    format : str, optional
        A name of FORMATS; by default by the ending of the file.
    """
    target = Path(path)
    options = WriteOptions() if options is None else options
    entry = format_of(target, format)
    if entry.encoder is None:
        if entry.write is None:
            raise AssertionError(f"the format {entry.name} can be written in no way")
        entry.write(target, tables, options)
        return
    encoder = entry.encoder(options)
    with open_output(target) as stream:
        for table in tables:
            stream.write(encoder.encode(table))
    if encoder.escaped:
        warnings.warn(
            EscapedFormulasWarning(
                f"{target}: {encoder.escaped:,} cells that a spreadsheet would run as formulas begin with an "
                f"apostrophe now, and the column {MARKER} counts them; treelabel reads them as they "
                "were (--raw leaves them so)"
            ),
            stacklevel=3,
        )


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table for people and programs; lists of labels become cells as `read` reads them.

    Cells of CSV and TSV that a spreadsheet would run as formulas are escaped (see `formulas`).

    Parameters
    ----------
    table : pyarrow.Table
        Columns of texts, numbers and lists of texts.
    path : str or Path
        A file of a format that holds tables of any columns, compressed if its name ends in .gz, .zst or .bz2.
    """
    entry = require_table_format(Path(path))
    if suffixes(Path(path))[0] == ".json":
        # One array, as programs expect of a file of this name.
        with open_output(path) as stream:
            stream.write(json.dumps(table.to_pylist(), ensure_ascii=False, indent=2).encode() + b"\n")
        return
    lists = [field.name for field in table.schema if pa.types.is_list(field.type)]
    options = WriteOptions(labels=lists, escape=True, sheet="table")
    if entry.encoder is not None:
        trial = entry.encoder(options)
        trial.encode(table)
        options = replace(options, mark=trial.escaped > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EscapedFormulasWarning)
        write_tables([table], path, options, entry.name)
