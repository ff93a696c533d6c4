"""The registry of file formats, and which one a file name means."""

from pathlib import Path

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import open_input, suffixes, text_lines
from treelabel.core.registry import Registry
from treelabel.data.io.csv import read_delimited, write_delimited
from treelabel.data.io.excel import read_excel, write_excel
from treelabel.data.io.fasttext import PREFIX, read_fasttext, write_fasttext
from treelabel.data.io.jsonlines import read_json_lines, write_htc, write_json_lines
from treelabel.data.io.parquet import read_parquet, write_parquet
from treelabel.data.io.records import Format, ReadOptions
from treelabel.data.io.xmc import read_xmc, write_xmc

# Paths: a label may be written as a full path; benchmarks read the names in .htc as they are.
EVERYTHING = frozenset({"ids", "texts", "line breaks", "empty documents", "columns", "hierarchy", "paths"})
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
        Format(
            "csv",
            (".csv",),
            read_delimited,
            write_delimited,
            "comma-separated, a header line",
            EVERYTHING - {"hierarchy"},
        ),
        Format(
            "tsv",
            (".tsv", ".tab"),
            read_delimited,
            write_delimited,
            "tab-separated, a header line",
            EVERYTHING - {"hierarchy"},
        ),
        Format(
            "jsonl",
            (".jsonl", ".ndjson", ".json"),
            read_json_lines,
            write_json_lines,
            "one JSON object per line",
            EVERYTHING - {"hierarchy"},
        ),
        Format("parquet", (".parquet", ".pq"), read_parquet, write_parquet, "Parquet, hierarchy included", EVERYTHING),
        Format(
            "fasttext",
            (".ft", ".fasttext", ".fasttext.txt"),
            read_fasttext,
            write_fasttext,
            "__label__A __label__B text",
            frozenset({"texts", "paths"}),
        ),
        Format(
            "xmc",
            (".xmc", ".svm"),
            read_xmc,
            write_xmc,
            "labels and sparse features, numbered",
            frozenset({"empty documents", "features"}),
        ),
        Format(
            "htc",
            (".htc",),
            read_json_lines,
            write_htc,
            "one JSON object per line with token and label",
            frozenset({"texts", "line breaks", "empty documents"}),
        ),
        Format(
            "xlsx",
            (".xlsx",),
            read_excel,
            write_excel,
            "a sheet of Excel, a row of names",
            EVERYTHING - {"hierarchy"},
        ),
    ),
)


def format_to_read(path: Path, name: str | None, options: ReadOptions) -> Format:
    """Find the format of a file that is there: by name, by its ending, or a .txt file by its first line.

    Excel saves "Unicode text" as .txt, with tabs; fastText's files and JSON Lines are often called so, too.

    Parameters
    ----------
    path : Path
        The file.
    name : str, optional
        A name of FORMATS.
    options : ReadOptions
        The encoding and the limits are looked at.

    Returns
    -------
    Format
    """
    try:
        return format_of(path, name)
    except TreelabelError:
        if name is not None or suffixes(path)[0] != ".txt":
            raise
        with open_input(path, limits=options.limits) as stream:
            first = next(text_lines(stream, path, options.encoding, options.limits, universal=True), "").lstrip()
        by_line = "fasttext" if first.startswith(PREFIX) else "jsonl" if first[:1] in ("{", "[") else "tsv"
        if by_line == "tsv" and "\t" not in first:
            raise
        return FORMATS.find(by_line)


def format_of(path: Path, name: str | None = None) -> Format:
    """Find the format by name, or by the ending of the file.

    Parameters
    ----------
    path : Path
        The file, which need not exist; a compression behind the ending is looked through.
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
    found = next((entry for entry in FORMATS.values() if name.endswith(entry.endings)), None)
    if ending in OTHER_SHEETS:
        raise TreelabelError(
            f"{path}: {OTHER_SHEETS[ending]} cannot be read or written; save it as .xlsx or as CSV (UTF-8) instead"
        )
    if found is None:
        known = ", ".join(ending for entry in FORMATS.values() for ending in entry.endings)
        raise TreelabelError(
            f"{path}: cannot tell the format by the ending {quote(ending)}; known are {known}; or name the format"
        )
    return found
