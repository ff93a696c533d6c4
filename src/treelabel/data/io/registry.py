"""FORMATS: the file formats; adding one is its file and a row."""

from functools import partial

from treelabel.core.registry import Registry
from treelabel.data.io.annif import is_annif, read_annif, write_annif
from treelabel.data.io.argilla import is_argilla, read_argilla, write_argilla
from treelabel.data.io.arrow import read_arrow, write_arrow
from treelabel.data.io.csv import TAB_ENDINGS, CsvEncoder, read_csv
from treelabel.data.io.excel import read_excel, write_excel
from treelabel.data.io.fasttext import PREFIX, FastTextEncoder, read_fasttext
from treelabel.data.io.folder import read_folder, write_folder
from treelabel.data.io.format import Format
from treelabel.data.io.jsonlines import HtcEncoder, JsonLinesEncoder, read_json_lines
from treelabel.data.io.label_studio import is_label_studio, read_label_studio, write_label_studio
from treelabel.data.io.libmultilabel import LibMultiLabelEncoder, is_libmultilabel, read_libmultilabel
from treelabel.data.io.libsvm import is_libsvm, read_libsvm, write_libsvm
from treelabel.data.io.parquet import read_parquet, write_parquet
from treelabel.data.io.plain_text import PlainTextEncoder, read_plain_text
from treelabel.data.io.prodigy import ProdigyEncoder, is_prodigy, read_prodigy
from treelabel.data.io.spacy import is_spacy, read_spacy, write_spacy
from treelabel.data.io.sqlite import read_sqlite, write_sqlite
from treelabel.data.io.xmc import read_xmc, write_xmc

# What a format may hold: "table" is any columns at all, "types" the types of their values, "paths" full paths as
# labels (benchmarks read the names in .htc as they are), "path lists" paths as lists of names, "uris" labels by their
# URIs, "objects" values within values, "suggestions" predictions for people to confirm; "stream" says that it is read
# from beginning to end, once; "one label" and "no labels" say what becomes of labels.
DOCUMENTS = frozenset({"ids", "texts", "line breaks", "empty documents", "columns", "paths", "table"})
# What tools for annotators hold.
RECORDS = DOCUMENTS - {"paths", "table"} | {"stream"}
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
        Format("csv", (".csv",), read_csv, "comma-separated, with a header line", DOCUMENTS | {"stream"}, CsvEncoder),
        Format(
            "tsv",
            TAB_ENDINGS,
            read_csv,
            "tab-separated, with a header line",
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
            "a sheet of Excel, with a header row",
            DOCUMENTS,
            write=write_excel,
            extra=("excel", "openpyxl"),
            begins="PK\x03\x04",
        ),
        Format(
            "arrow",
            (".arrow", ".feather"),
            read_arrow,
            "Arrow IPC and Feather, hierarchy included",
            DOCUMENTS | {"hierarchy", "types"},
            write=write_arrow,
            begins="ARROW1",
        ),
        Format(
            "annif",
            (".annif.tsv", ".annif.csv", ".annif.jsonl"),
            read_annif,
            "a corpus of Annif: TSV, CSV, JSON Lines or a folder, labels by URI",
            RECORDS | {"uris"},
            write=write_annif,
            shared=(".tsv", ".csv", ".jsonl"),
            recognizes=is_annif,
            lacks={
                ".tsv": frozenset({"ids", "line breaks", "columns", "empty documents"}),
                "": frozenset({"columns"}),
            },
        ),
        Format(
            "label_studio",
            (".label_studio.json",),
            read_label_studio,
            "tasks of Label Studio with annotations or predictions",
            RECORDS | {"path lists", "suggestions"},
            write=write_label_studio,
            shared=(".json", ".jsonl"),
            recognizes=is_label_studio,
        ),
        Format(
            "prodigy",
            (".prodigy.jsonl",),
            read_prodigy,
            "tasks of Prodigy, answered or to choose from",
            RECORDS | {"paths", "suggestions"},
            ProdigyEncoder,
            shared=(".jsonl", ".json"),
            recognizes=is_prodigy,
        ),
        Format(
            "argilla",
            (".argilla.json", ".argilla.jsonl"),
            read_argilla,
            "records of Argilla with responses or suggestions",
            RECORDS | {"paths", "suggestions"},
            write=write_argilla,
            shared=(".json", ".jsonl"),
            recognizes=is_argilla,
        ),
        Format(
            "spacy",
            (".spacy.jsonl", ".spacy"),
            read_spacy,
            "text and cats of spaCy, as JSON Lines or DocBin",
            RECORDS | {"paths"},
            write=write_spacy,
            shared=(".jsonl", ".json"),
            recognizes=is_spacy,
        ),
        Format(
            "libmultilabel",
            (".libmultilabel.txt", ".lml"),
            read_libmultilabel,
            "id, labels and text of LibMultiLabel, between tabs",
            frozenset({"ids", "texts", "empty documents", "paths", "stream"}),
            LibMultiLabelEncoder,
            shared=(".txt",),
            recognizes=is_libmultilabel,
        ),
        Format(
            "libsvm",
            (".libsvm", ".svmlight"),
            read_libsvm,
            "numbered labels and features of LibSVM and SVMlight",
            frozenset({"empty documents", "features"}),
            write=write_libsvm,
            shared=(".svm",),
            recognizes=is_libsvm,
        ),
        Format(
            "txt",
            (".lines.txt",),
            read_plain_text,
            "a text on each line, no labels",
            frozenset({"texts", "no labels", "stream"}),
            PlainTextEncoder,
        ),
        Format(
            "folder",
            (),
            read_folder,
            "a folder with a sub-folder of text files for each label",
            frozenset({"ids", "texts", "line breaks", "empty documents", "path lists", "one label"}),
            write=write_folder,
        ),
        Format(
            "sqlite",
            (),
            read_sqlite,
            "a table of SQLite: sqlite:///file.db#table",
            DOCUMENTS - {"table"},
            write=write_sqlite,
        ),
    ),
)
