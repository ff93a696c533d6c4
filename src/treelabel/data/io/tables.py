"""The one road of data: which format a file has, and files of every format to Arrow tables and back."""

import glob
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from treelabel.core.atomic_output import open_output
from treelabel.core.encodings import encoding_of
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import (
    MAGIC,
    STANDARD,
    decompressing,
    existing_file,
    open_input,
    standard_input,
    suffixes,
    text_lines,
)
from treelabel.core.progress import progress_bar
from treelabel.core.registry import did_you_mean
from treelabel.core.strings import TEXT_NAMES
from treelabel.data.columns import ID_NAMES, LABEL_NAMES
from treelabel.data.io.format import Format, Head, Part, ReadOptions, TableSource, WriteOptions
from treelabel.data.io.registry import FORMATS, OTHER_SHEETS
from treelabel.data.io.sqlite import SqliteAddress, file_behind

LOG = logging.getLogger(__name__)
# So many bytes of a file tell its format.
HEAD = 1 << 18
IS_TAXONOMY = re.compile(r"(^|\.)taxonomy\.")


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
    file = existing_data(path)
    options = ReadOptions() if options is None else options
    if is_pattern(file):
        yield _joined_source(file, options, format)
        return
    entry = format_to_read(file, format, options)
    size = None if file == STANDARD else file_behind(file).stat().st_size
    # A format may jump about in a file, or begin twice.
    with (
        nullcontext(file) if "stream" in entry.holds else repeatable(file, entry.name) as readable,
        progress_bar(title or f"reading {file.name}", size, progress) as seen,
    ):
        yield entry.read(readable, replace(options, seen=seen))


def existing_data(path: str | Path) -> Path:
    """Check that data is there: a regular file, a folder, a table of SQLite, or the files of a pattern (in/*.csv)."""
    if isinstance(path, str | os.PathLike):
        file = Path(path)
        if SqliteAddress.of(file) is not None:
            existing_file(file_behind(file))
            return file
        if os.path.isdir(file):
            return file
        if is_pattern(file):
            if not data_files(file):
                raise TreelabelError(f"{file}: no file is called so; a pattern has * or ? for what may differ")
            return file
    return existing_file(path)


def is_pattern(path: Path) -> bool:
    """Return whether a path stands for several files; a file of that very name goes first."""
    return glob.has_magic(str(path)) and not os.path.lexists(path)


def data_files(path: Path) -> list[Path]:
    """List the files that data is in, in order; taxonomies in the same folder are none."""
    if not is_pattern(path):
        return [file_behind(path)]
    files = map(Path, glob.glob(str(path), recursive=True))
    return sorted(file for file in files if file.is_file() and not IS_TAXONOMY.search(file.name.lower()))


def _joined_source(pattern: Path, options: ReadOptions, format: str | None) -> TableSource:  # noqa: A002
    """Read several files one behind the other; their lines are numbered through."""
    files = data_files(pattern)
    positions: list[tuple[int, Path]] = []
    with open_tables(files[0], options, format) as first:
        hierarchy, features = first.hierarchy, first.features

    def parts() -> Iterator[Part]:
        last = 0
        for file in files:
            before = last
            positions.append((before, file))
            with open_tables(file, options, format) as source:
                if source.features != features:
                    raise TreelabelError(f"{file}: {source.features} features, but {files[0]} has {features}")
                for part in source.parts:
                    problems = [replace(each, line=each.line + before) for each in part.problems]
                    yield replace(part, lines=part.lines + before, problems=problems)
                    last = max([last, *(part.lines + before).tolist()[-1:], *(each.line for each in problems)])

    return TableSource(parts(), hierarchy, features, files=positions)


@contextmanager
def repeatable(path: Path, format: str | None = None) -> Iterator[Path]:  # noqa: A002  what users call it
    """Return a file as it is; standard input (-) is copied to one, to be read more than once within the block."""
    if path != STANDARD:
        yield path
        return
    entry = format_to_read(path, format, ReadOptions())
    with tempfile.TemporaryDirectory(prefix="treelabel-") as folder:
        copy = Path(folder, f"standard_input{entry.ending}")
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
    """Find the format of data that exists: by name, by its ending, or by its beginning where formats share an ending.

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
        start = _first_bytes()
        entry = guess_format(start)
        return _recognized(start, entry.endings[:1], path) or entry
    if is_pattern(path):
        return format_to_read(data_files(path)[0], name, options)
    if path.is_dir():
        is_corpus = any(path.glob("*.txt")) and not any(each.is_dir() for each in path.iterdir())
        return FORMATS["annif" if is_corpus else "folder"]
    ending = suffixes(path)[0]
    try:
        entry = format_of(path)
    except TreelabelError:
        if ending != ".txt":
            raise
        recognized = _recognized(_head(path, options), (ending,), path)
        if recognized is not None:
            return recognized
        with open_input(path, limits=options.limits) as stream:
            first = next(text_lines(stream, path, options.encoding, options.limits, universal=True), "").lstrip()
        by_line = _beginning_with(first, [entry for entry in FORMATS.values() if "stream" in entry.holds])
        if by_line is None:
            raise
        return by_line
    if ending not in entry.endings:
        # The ending has two parts, of which the first names the format.
        return entry
    has_rivals = any(ending in other.shared for other in FORMATS.values())
    return (_recognized(_head(path, options), (ending,), path) or entry) if has_rivals else entry


def _head(path: Path, options: ReadOptions) -> bytes:
    with open_input(path, limits=options.limits) as stream, decompressing(path):
        return stream.read(HEAD)


def _recognized(start: bytes, endings: Sequence[str], path: Path) -> Format | None:
    """Find the format of a file by its content, among those that share its ending; say which it is."""
    head = Head.of(start.decode(encoding_of(start, "utf-8"), "ignore"))
    rivals = [entry for entry in FORMATS.values() if set(endings) & set(entry.shared) and entry.recognizes is not None]
    entry = next((rival for rival in rivals if rival.recognizes is not None and rival.recognizes(head)), None)
    if entry is not None:
        LOG.info("%s: read as %s (%s), by its content; --format says otherwise", path, entry.name, entry.help)
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
    if SqliteAddress.of(path) is not None:
        return FORMATS["sqlite"]
    matching = [(len(ending), entry) for entry in FORMATS.values() for ending in entry.endings if name.endswith(ending)]
    if matching:
        return max(matching, key=lambda pair: pair[0])[1]
    known = ", ".join(ending for entry in FORMATS.values() for ending in entry.endings)
    raise TreelabelError(
        f"{path}: cannot tell the format by the ending {quote(ending)}; known are {known}; or name the format "
        f"({', '.join(FORMATS)}), such as txt for a text on each line"
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
