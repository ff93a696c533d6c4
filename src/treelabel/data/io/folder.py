"""Folders of text files: a sub-folder for each label, as scikit-learn's `load_files` has them; deeper ones are paths.

A file at the top has no label. Names of labels and ids that no file can have are percent-encoded.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote as quote_name
from urllib.parse import unquote

import pyarrow as pa

from treelabel.core.atomic_output import atomic_folder
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import open_input, whole_lines
from treelabel.data.io.format import Problem, ReadOptions, Record, TableSource, WriteOptions, parts_of
from treelabel.data.io.jsonlines import document_rows

# What names of files may have besides letters and digits, whatever their alphabet.
SAFE = " !#$&'()+,-.;=@[]^_`{}~"
LONGEST_NAME = 120
# Files that are no texts, whatever folder they stand in.
TABLES = frozenset({".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx", ".arrow", ".npz", ".db", ".gz", ".zst"})


@dataclass
class FolderRecords:
    """Records of files, one each; `files` has the number of the record before each file, for messages."""

    records: Iterator[Record | Problem]
    files: list[tuple[int, Path]] = field(default_factory=list)


def folder_records(
    folder: Path,
    files: Sequence[Path],
    read: Callable[[Path, ReadOptions], dict[str, Any]],
    options: ReadOptions,
) -> FolderRecords:
    """Read files as one record each, numbered from 1 on.

    Parameters
    ----------
    folder
        For messages.
    files
        The files, at least one.
    read
        Returns the values of a file, or raises ValueError.
    options
        Options of reading.

    Returns
    -------
    FolderRecords
    """
    if not files:
        raise TreelabelError(
            f"{folder}: is a folder, expected a file, or a folder of texts: .txt, or a sub-folder of files for each "
            "label; several data files are a pattern such as 'folder/*.csv', and a model is a folder with a model.json"
        )
    listed = list(enumerate(files))

    def records() -> Iterator[Record | Problem]:
        for index, file in listed:
            try:
                yield Record(index + 1, read(file, options))
            except ValueError as error:
                yield Problem(index + 1, str(error))

    return FolderRecords(records(), listed)


def read_whole_text(file: Path, options: ReadOptions) -> str:
    """Read a file that is one text."""
    with open_input(file, limits=options.limits) as stream:
        return "".join(whole_lines(stream, file, options.encoding, options.limits))


def read_folder(path: Path, options: ReadOptions) -> TableSource:
    """Read every file below a folder; the folders on the way to it are its label.

    Hidden files and tables are passed over, and at the top, where there is no label, all but .txt.
    """
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and _is_text(file.relative_to(path))]

    def read(file: Path, options: ReadOptions) -> dict[str, Any]:
        inside = file.relative_to(path)
        names = [unquote(part) for part in inside.parts[:-1]]
        name = unquote(file.stem)
        return {"id": name, "text": read_whole_text(file, options), "labels": [names] if names else []}

    found = folder_records(path, files, read, options)
    return TableSource(parts_of(found.records, path, options.limits), files=found.files)


def _is_text(inside: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in inside.parts)
    suffix = inside.suffix.lower()
    return not is_hidden and (suffix == ".txt" if len(inside.parts) == 1 else suffix not in TABLES)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Write a folder that appears in one step; one that is there and holds anything is never replaced."""

    def check(target: Path) -> None:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise TreelabelError(f"{target}: is there already; a folder of documents is not replaced, choose another")

    with atomic_folder(path, check) as working:
        yield working


def file_name(text: str, taken: set[str]) -> str:
    """Make the name of a file of an id, another one for each, whatever case counts for.

    >>> taken = set()
    >>> file_name("a/b", taken), file_name("A/B", taken), file_name("", taken)
    ('a%2Fb', 'A%2FB.2', '_')
    """
    plain = encode_name(text)[:LONGEST_NAME] or "_"
    name, number = plain, 2
    while name.lower() in taken:
        name, number = f"{plain}.{number}", number + 1
    taken.add(name.lower())
    return name


def encode_name(text: str) -> str:
    """Percent-encode what no file's name may have, and a dot at the beginning.

    >>> encode_name("B/C: 100%"), encode_name(".x"), encode_name("été")
    ('B%2FC%3A 100%25', '%2Ex', 'été')
    """
    marks = [mark if mark.isalnum() or mark in SAFE else quote_name(mark, safe="") for mark in text]
    if marks and marks[0] == ".":
        marks[0] = "%2E"
    return "".join(marks)


def write_folder(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write a file for each document into the folder of its first label."""
    with new_folder(path) as working:
        taken: dict[Path, set[str]] = {}
        for table in tables:
            for row in document_rows(table, options):
                steps = row.labels[0] if row.labels else []
                folder = working.joinpath(*map(encode_name, steps))
                folder.mkdir(parents=True, exist_ok=True)
                name = file_name(row.id, taken.setdefault(folder, set()))
                (folder / f"{name}.txt").write_bytes(row.text.encode())
