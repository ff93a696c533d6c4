"""Data from standard input: which format it is, by its first bytes, and a file of it where a format needs one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import MAGIC, STANDARD, standard_input
from treelabel.core.registry import did_you_mean
from treelabel.core.standard import as_input
from treelabel.data.fields import ID_NAMES, LABEL_NAMES, TEXT_NAMES
from treelabel.data.io.formats import FORMATS, format_to_read
from treelabel.data.io.records import Format, ReadOptions

# Formats that are read from beginning to end; the others jump about in the file, or begin twice.
STREAMED = frozenset({"csv", "tsv", "jsonl", "htc", "fasttext"})


@contextmanager
def settled(file: Path, name: str | None, options: ReadOptions) -> Iterator[tuple[Path, Format]]:
    """Find the format of a file or of standard input, which is copied to a file where the format needs one.

    Parameters
    ----------
    file : Path
        From `existing_file`.
    name : str, optional
        A name of FORMATS.
    options : ReadOptions
        The encoding and the limits are looked at.

    Yields
    ------
    (Path, Format)
        What to read, and how.
    """
    if file != STANDARD:
        yield file, format_to_read(file, name, options)
        return
    entry = FORMATS.find(name if name is not None else guess_format(_first_bytes()))
    if entry.name in STREAMED:
        yield file, entry
        return
    with as_input(file, entry.endings[0]) as copy:
        yield copy, entry


@contextmanager
def as_file(path: Path, name: str | None = None) -> Iterator[Path]:
    """Return a file as it is; standard input (-) is copied to one, to be read more than once within the block.

    Parameters
    ----------
    path : Path
        The file, or -.
    name : str, optional
        A name of FORMATS; by default that of the first bytes.
    """
    if path != STANDARD:
        yield path
        return
    entry = FORMATS.find(name if name is not None else guess_format(_first_bytes()))
    with as_input(path, entry.endings[0]) as copy:
        yield copy


def _first_bytes() -> bytes:
    start = standard_input().peek(1)
    compression = next((known for magic, known in MAGIC.items() if start.startswith(magic)), None)
    if compression is None:
        return start
    try:
        return bytes(pa.CompressedInputStream(pa.BufferReader(start), compression).read(1 << 12))
    except OSError:
        return b""


def guess_format(start: bytes) -> str:
    r"""Tell the format by the first bytes of the data.

    >>> guess_format(b'{"text": "a"}\n'), guess_format(b"id,text\n1,a\n"), guess_format(b"__label__x a")
    ('jsonl', 'csv', 'fasttext')
    """
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"PK\x03\x04") and "xlsx" in FORMATS:
        return "xlsx"
    text = start.decode("utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", errors="replace")
    line = text.lstrip("\ufeff \t\r\n").partition("\n")[0].rstrip("\r")
    if line.startswith(("{", "[")):
        return "jsonl"
    if line.startswith("__label__"):
        return "fasttext"
    if re.fullmatch(r"\d+ \d+ \d+", line):
        return "xmc"
    if "\t" in line:
        return "tsv"
    known = {*TEXT_NAMES, *LABEL_NAMES, *ID_NAMES}
    cells = [cell.strip().strip('"').lower() for cell in re.split("[,;|]", line)]
    if known.intersection(cells):
        return "csv"
    if not start.strip():
        raise TreelabelError("-: there is nothing on standard input; pipe a file into it")
    hint = did_you_mean(cells[0], TEXT_NAMES)
    raise TreelabelError(
        f"-: cannot tell the format of standard input by its first line {quote(line, 60)}; name it, as in --format "
        f"csv (formats: {', '.join(FORMATS)}); a table needs a line with the names of its columns, such as text"
        f"{hint and f'; {hint}'}"
    )
