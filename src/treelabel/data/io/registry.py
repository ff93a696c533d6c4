"""FORMATS: the file formats; adding one is its file and a row."""

from functools import partial

from treelabel.core.registry import Registry
from treelabel.data.io.csv import TAB_ENDINGS, CsvEncoder, read_csv
from treelabel.data.io.excel import read_excel, write_excel
from treelabel.data.io.fasttext import PREFIX, FastTextEncoder, read_fasttext
from treelabel.data.io.format import Format
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
            begins=r"[^\n]*\t",
        ),
        Format(
            "jsonl",
            (".jsonl", ".ndjson", ".json"),
            read_json_lines,
            "one JSON object per line",
            DOCUMENTS | {"stream", "objects"},
            JsonLinesEncoder,
            begins=r"[\[{]",
        ),
        Format(
            "parquet",
            (".parquet", ".pq"),
            read_parquet,
            "Parquet, hierarchy included",
            DOCUMENTS | {"hierarchy", "types"},
            write=write_parquet,
            begins="PAR1",
        ),
        Format(
            "fasttext",
            (".ft", ".fasttext", ".fasttext.txt"),
            read_fasttext,
            "__label__A __label__B text",
            frozenset({"texts", "paths", "stream"}),
            FastTextEncoder,
            begins=PREFIX,
        ),
        Format(
            "xmc",
            (".xmc", ".svm"),
            read_xmc,
            "labels and sparse features, numbered",
            frozenset({"empty documents", "features"}),
            write=write_xmc,
            begins=r"\d+ \d+ \d+$",
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
            begins="PK\x03\x04",
        ),
    ),
)
