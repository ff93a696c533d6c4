"""The one road of data: which format a file has, and files of every format to Arrow tables and back."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import MAGIC, STANDARD, existing_file, open_input, standard_input, suffixes, text_lines
from treelabel.core.progress import progress_bar
from treelabel.core.registry import did_you_mean
from treelabel.core.strings import TEXT_NAMES
from treelabel.data.columns import ID_NAMES, LABEL_NAMES
from treelabel.data.io.format import Format, ReadOptions, TableSource, WriteOptions
from treelabel.data.io.registry import FORMATS, OTHER_SHEETS


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
    # A format may jump about in a file, or begin twice.
    with (
        nullcontext(file) if "stream" in entry.holds else repeatable(file, entry.name) as readable,
        progress_bar(title or f"reading {file.name}", size, progress) as seen,
    ):
        yield entry.read(readable, replace(options, seen=seen))


@contextmanager
def repeatable(path: Path, format: str | None = None) -> Iterator[Path]:  # noqa: A002  what users call it
    """Return a file as it is; standard input (-) is copied to one, to be read more than once within the block."""
    if path != STANDARD:
        yield path
        return
    entry = format_to_read(path, format, ReadOptions())
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
) -> int:
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

    Returns
    -------
    int
        How many cells were escaped.
    """
    target = Path(path)
    options = WriteOptions() if options is None else options
    entry = format_of(target, format)
    if entry.encoder is None:
        if entry.write is None:
            raise AssertionError(f"the format {entry.name} can be written in no way")
        entry.write(target, tables, options)
        return 0
    encoder = entry.encoder(options)
    with open_output(target) as stream:
        for table in tables:
            stream.write(encoder.encode(table))
    return encoder.escaped


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table for people and programs; lists of labels become cells as `read` reads them.

    Cells of CSV and TSV that a spreadsheet would run as formulas are escaped (see `cells`).

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
    write_tables([table], path, WriteOptions(labels=lists, escape=True, mark=None, sheet="table"), entry.name)


# Which format a file has


def format_to_read(path: Path, name: str | None, options: ReadOptions) -> Format:
    """Find the format of a file that exists: by name, by its ending, or a .txt file by its first line.

    Excel saves "Unicode text" as .txt, with tabs; fastText's files and JSON Lines are often called so, too. Standard
    input has the format of its first bytes.

    Parameters
    ----------
    path : Path
        The file, or -.
    name : str, optional
        A name of FORMATS.
    options : ReadOptions
        The encoding and the limits count.

    Returns
    -------
    Format
    """
    if name is not None:
        return FORMATS.find(name)
    if path == STANDARD:
        return guess_format(_first_bytes())
    try:
        return format_of(path)
    except TreelabelError:
        if suffixes(path)[0] != ".txt":
            raise
        with open_input(path, limits=options.limits) as stream:
            first = next(text_lines(stream, path, options.encoding, options.limits, universal=True), "").lstrip()
        entry = _beginning_with(first, [entry for entry in FORMATS.values() if "stream" in entry.holds])
        if entry is None:
            raise
        return entry


def format_of(path: Path, name: str | None = None) -> Format:
    """Find the format by name, or by the ending of the file.

    Parameters
    ----------
    path : Path
        The file, which need not exist; the ending of a compression is ignored.
    name : str, optional
        A name of FORMATS.

    Returns
    -------
    Format

    >>> format_of(Path("train.jsonl.gz")).name
    'jsonl'
    """
    if name is not None:
        return FORMATS.find(name)
    ending, compression = suffixes(path)
    name = path.name.lower() if compression is None else path.stem.lower()
    if ending in OTHER_SHEETS:
        raise TreelabelError(
            f"{path}: {OTHER_SHEETS[ending]} cannot be read or written; save it as .xlsx or as CSV (UTF-8) instead"
        )
    for entry in FORMATS.values():
        if name.endswith(entry.endings):
            return entry
    known = ", ".join(ending for entry in FORMATS.values() for ending in entry.endings)
    raise TreelabelError(
        f"{path}: cannot tell the format by the ending {quote(ending)}; known are {known}; or name the format"
    )


def require_table_format(path: Path) -> Format:
    """Find the format of a file for a table of any columns; refuse others."""
    tables = [entry for entry in FORMATS.values() if "table" in entry.holds]
    ending = suffixes(path)[0]
    for entry in tables:
        if ending in entry.endings:
            return entry
    endings = ", ".join(ending for entry in tables for ending in entry.endings)
    raise TreelabelError(f"{path}: a table is written as {endings}; give the file one of these endings")


def _first_bytes() -> bytes:
    start = standard_input().peek(1)
    compression = next((known for magic, known in MAGIC.items() if start.startswith(magic)), None)
    if compression is None:
        return start
    try:
        return bytes(pa.CompressedInputStream(pa.BufferReader(start), compression).read(1 << 12))
    except OSError:
        return b""


def guess_format(start: bytes) -> Format:
    r"""Tell the format by the first bytes of the data.

    >>> [guess_format(each).name for each in (b'{"text": "a"}\n', b"id,text\n1,a\n", b"__label__x a")]
    ['jsonl', 'csv', 'fasttext']
    """
    text = start.decode("utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", errors="replace")
    line = text.lstrip("\ufeff \t\r\n").partition("\n")[0].rstrip("\r")
    entry = _beginning_with(line, FORMATS.values())
    if entry is not None:
        return entry
    cells = [cell.strip().strip('"').lower() for cell in re.split("[,;|]", line)]
    if {*TEXT_NAMES, *LABEL_NAMES, *ID_NAMES}.intersection(cells):
        return FORMATS["csv"]
    if not start.strip():
        raise TreelabelError("-: there is nothing on standard input; pipe a file into it")
    hint = did_you_mean(cells[0], TEXT_NAMES)
    raise TreelabelError(
        f"-: cannot tell the format of standard input by its first line {quote(line, 60)}; name it, as in --format "
        f"csv (formats: {', '.join(FORMATS)}); a table needs a line with the names of its columns, such as text"
        f"{hint and f'; {hint}'}"
    )


def _beginning_with(line: str, formats: Iterable[Format]) -> Format | None:
    """Find the format of a first line; the special ones stand last, and are tried first."""
    return next((entry for entry in reversed([*formats]) if entry.begins and re.match(entry.begins, line)), None)
