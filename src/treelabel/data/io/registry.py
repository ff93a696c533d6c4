"""The registry of file formats, and which one a file or standard input is of."""

import re
from functools import partial
from pathlib import Path

import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import MAGIC, STANDARD, open_input, standard_input, suffixes, text_lines
from treelabel.core.registry import Registry, did_you_mean
from treelabel.data.columns import ID_NAMES, LABEL_NAMES, TEXT_NAMES
from treelabel.data.io.csv import CsvEncoder, read_csv
from treelabel.data.io.csv_rows import TAB_ENDINGS
from treelabel.data.io.excel import read_excel, write_excel
from treelabel.data.io.fasttext import PREFIX, FastTextEncoder, read_fasttext
from treelabel.data.io.format import Format, ReadOptions
from treelabel.data.io.jsonlines import HtcEncoder, JsonLinesEncoder, read_json_lines
from treelabel.data.io.parquet import read_parquet, write_parquet
from treelabel.data.io.xmc import read_xmc, write_xmc

# What a format may hold: "table" is any columns at all, "types" the types of their values, "paths" full paths as
# labels (benchmarks read the names in .htc as they are), "objects" values within values; "stream" says that it is read
# from beginning to end, once.
DOCUMENTS = frozenset({"ids", "texts", "line breaks", "empty documents", "columns", "paths", "table"})
# Spreadsheets that are not read, and what to save them as.
OTHER_SHEETS = {
    ".xls": "the old format of Excel",
    ".xlsb": "a binary format of Excel",
    ".xlsm": "a format of Excel with macros",
    ".ods": "a format of LibreOffice",
    ".numbers": "a format of Numbers",
}

FORMATS: Registry[Format] = Registry(
    "format",
    (
        Format("csv", (".csv",), read_csv, "comma-separated, a header line", DOCUMENTS | {"stream"}, CsvEncoder),
        Format(
            "tsv",
            TAB_ENDINGS,
            read_csv,
            "tab-separated, a header line",
            DOCUMENTS | {"stream"},
            partial(CsvEncoder, delimiter="\t"),
        ),
        Format(
            "jsonl",
            (".jsonl", ".ndjson", ".json"),
            read_json_lines,
            "one JSON object per line",
            DOCUMENTS | {"stream", "objects"},
            JsonLinesEncoder,
        ),
        Format(
            "parquet",
            (".parquet", ".pq"),
            read_parquet,
            "Parquet, hierarchy included",
            DOCUMENTS | {"hierarchy", "types"},
            write=write_parquet,
        ),
        Format(
            "fasttext",
            (".ft", ".fasttext", ".fasttext.txt"),
            read_fasttext,
            "__label__A __label__B text",
            frozenset({"texts", "paths", "stream"}),
            FastTextEncoder,
        ),
        Format(
            "xmc",
            (".xmc", ".svm"),
            read_xmc,
            "labels and sparse features, numbered",
            frozenset({"empty documents", "features"}),
            write=write_xmc,
        ),
        Format(
            "htc",
            (".htc",),
            read_json_lines,
            "one JSON object per line with token and label",
            frozenset({"texts", "line breaks", "empty documents", "stream"}),
            HtcEncoder,
        ),
        Format(
            "xlsx",
            (".xlsx",),
            read_excel,
            "a sheet of Excel, a row of names",
            DOCUMENTS,
            write=write_excel,
            extra=("excel", "openpyxl"),
        ),
    ),
)


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
    if path == STANDARD:
        return FORMATS.find(name if name is not None else guess_format(_first_bytes()))
    try:
        return format_of(path, name)
    except TreelabelError:
        if name is not None or suffixes(path)[0] != ".txt":
            raise
        with open_input(path, limits=options.limits) as stream:
            first = next(text_lines(stream, path, options.encoding, options.limits, universal=True), "").lstrip()
        by_line = _format_of_line(first)
        if by_line is None:
            raise
        return FORMATS.find(by_line)


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


def guess_format(start: bytes) -> str:
    r"""Tell the format by the first bytes of the data.

    >>> guess_format(b'{"text": "a"}\n'), guess_format(b"id,text\n1,a\n"), guess_format(b"__label__x a")
    ('jsonl', 'csv', 'fasttext')
    """
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"PK\x03\x04"):
        return "xlsx"
    text = start.decode("utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", errors="replace")
    line = text.lstrip("\ufeff \t\r\n").partition("\n")[0].rstrip("\r")
    if re.fullmatch(r"\d+ \d+ \d+", line):
        return "xmc"
    by_line = _format_of_line(line)
    if by_line is not None:
        return by_line
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


def _format_of_line(line: str) -> str | None:
    if line.startswith(PREFIX):
        return "fasttext"
    if line.startswith(("{", "[")):
        return "jsonl"
    return "tsv" if "\t" in line else None
