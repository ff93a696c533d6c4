"""Annif's corpora, whose labels are URIs of a vocabulary: TSV, CSV, JSON Lines, and folders of full texts.

TSV has `text<TAB><uri> <uri>`, CSV the columns text, subject_uris and document_id, JSON Lines objects with text and
subjects; a folder has a file .txt for each document and beside it .tsv (`<uri><TAB>label`) or .key (a label a line).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import quote
from treelabel.core.inputs import STANDARD, numbered_lines, open_input, standard_input, suffixes, text_lines
from treelabel.core.json_lines import json_text
from treelabel.data.io.csv import CsvEncoder, read_csv
from treelabel.data.io.folder import file_name, folder_records, new_folder, read_whole_text
from treelabel.data.io.format import (
    Head,
    Part,
    ReadOptions,
    Record,
    TableSource,
    WriteOptions,
    parsed_lines,
    parts_of,
)
from treelabel.data.io.jsonlines import DocumentRow, ObjectEncoder, document_rows, read_objects
from treelabel.hierarchy.identifiers import URI, label_of_uri


def is_annif(head: Head) -> bool:
    """Return whether a file begins like a corpus: URIs behind a tab, a column of them, or subjects of an object."""
    text, tab, uris = head.line.partition("\t")
    if head.values is not None:
        subjects = head.values.get("subjects")
        return isinstance(subjects, list) and all(isinstance(each, dict) for each in subjects)
    if tab:
        return bool(uris.strip()) and all(URI.fullmatch(each) for each in uris.split()) and not URI.fullmatch(text)
    return "subject_uris" in [cell.strip().strip('"') for cell in head.line.split(",")]


def read_annif(path: Path, options: ReadOptions) -> TableSource:
    """Read a corpus; its ending says which form it has."""
    if path.is_dir():
        records = folder_records(path, sorted([*path.glob("*.txt"), *path.glob("*.json")]), _read_document, options)
        return TableSource(parts_of(records.records, path, options.limits), files=records.files)
    ending = suffixes(path)[0]
    if ending == ".csv":
        # Columns are chosen among those that this makes of them.
        source = read_csv(path, replace(options, select=None))
        return TableSource(map(_with_uris, source.parts))
    if ending in (".jsonl", ".ndjson", ".json") or (path == STANDARD and standard_input().peek(1)[:1] == b"{"):
        return read_objects(path, options, _document)
    return TableSource(parts_of(_tsv_records(path, options), path, options.limits))


def _tsv_records(path: Path, options: ReadOptions) -> Iterator[Any]:
    with open_input(path, options.seen, options.limits) as stream:
        yield from parsed_lines(text_lines(stream, path, options.encoding, options.limits), split_line)


def split_line(number: int, line: str) -> Record:
    r"""Split the URIs off a line.

    >>> split_line(1, "cats purr\t<http://example.org/1> <http://example.org/2>\n").values
    {'text': 'cats purr', 'labels': ['http://example.org/1', 'http://example.org/2']}
    """
    text, _, uris = line.rstrip("\r\n").partition("\t")
    return Record(number, {"text": text, "labels": [label_of_uri(uri) for uri in uris.split()]})


def _with_uris(part: Part) -> Part:
    """Call columns as other formats do, and split the cells with URIs."""
    table = part.table
    if "subject_uris" in table.column_names:
        cells = table.column("subject_uris").to_pylist()
        lists = pa.array([[label_of_uri(uri) for uri in (cell or "").split()] for cell in cells], pa.list_(pa.string()))
        table = table.set_column(table.column_names.index("subject_uris"), "labels", lists)
    names = ["id" if name == "document_id" else name for name in table.column_names]
    return replace(part, table=table.rename_columns(names))


def _document(values: dict[str, Any]) -> dict[str, Any]:
    """Make a row of a JSON document."""
    subjects, metadata = values.get("subjects", []), values.get("metadata", {})
    if not isinstance(subjects, list) or not all(isinstance(each, dict) for each in subjects):
        raise ValueError(f'expected "subjects" as a list of objects with uri or label, found {quote(subjects)}')
    if not isinstance(metadata, dict):
        raise ValueError(f'expected "metadata" as an object, found {quote(metadata)}')
    labels = [each.get("uri") or each.get("label") for each in subjects]
    wrong = next((each for each, label in zip(subjects, labels, strict=True) if not isinstance(label, str)), None)
    if wrong is not None:
        raise ValueError(f"a subject has neither uri nor label: {quote(wrong)}")
    row = {**metadata, "text": values.get("text", ""), "labels": [label_of_uri(label) for label in labels]}
    return row if "document_id" not in values else {"id": values["document_id"], **row}


def _read_document(file: Path, options: ReadOptions) -> dict[str, Any]:
    """Read a full text with the subjects beside it, or a JSON document; the file's name is its id."""
    if file.suffix == ".json":
        with open_input(file, limits=options.limits, whole=True) as stream:
            text = stream.read().decode("utf-8", "replace")
        values = Head.of(text).values
        if values is None:
            raise ValueError("expected a JSON object with text and subjects")
        return {"id": file.stem} | _document(values)
    labels: list[str] = []
    beside = next((each for each in (file.with_suffix(".tsv"), file.with_suffix(".key")) if each.exists()), None)
    if beside is not None:
        for _, line in numbered_lines(beside, options.encoding, options.limits):
            cells = [cell.strip() for cell in line.split("\t")]
            uri = next((cell for cell in cells if URI.fullmatch(cell)), None)
            labels.append(cells[0] if uri is None else label_of_uri(uri))
    return {"id": file.stem, "text": read_whole_text(file, options), "labels": labels}


# Writing


class AnnifEncoder(ObjectEncoder):
    """Writes JSON Lines as Annif's schema has them: metadata are texts."""

    def make_object(self, document: DocumentRow) -> dict[str, Any]:
        """Return the object of a document."""
        extra = {name: value for name, value in document.extra.items() if value is not None}
        metadata = {name: value if isinstance(value, str) else json_text(value) for name, value in extra.items()}
        subjects = [{"uri": uri} for uri in document.labels]
        written = {"document_id": document.id, "text": document.text, "subjects": subjects}
        return written | ({"metadata": metadata} if metadata else {})


def write_annif(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write a corpus in the form of the file's ending; a name without an ending is a folder."""
    ending = suffixes(path)[0]
    if ending == "":
        _write_folder(path, tables, options)
        return
    encoders: dict[str, Callable[[pa.Table], bytes]] = {
        ".csv": _csv_encoder(options),
        ".jsonl": AnnifEncoder(options).encode,
    }
    encode = encoders.get(ending, lambda table: _tsv_lines(table, options))
    with open_output(path) as stream:
        stream.writelines(map(encode, tables))


def _csv_encoder(options: WriteOptions) -> Callable[[pa.Table], bytes]:
    encoder = CsvEncoder(replace(options, labels=()))

    def encode(table: pa.Table) -> bytes:
        column = options.labels[0]
        lists = table.column(column).to_pylist()
        cells = pa.array([" ".join(f"<{uri}>" for uri in uris) for uris in lists], pa.string())
        plain = table.set_column(table.column_names.index(column), "subject_uris", cells)
        names = ["document_id" if name == "id" else name for name in plain.column_names]
        return encoder.encode(plain.rename_columns(names))

    return encode


def _tsv_lines(table: pa.Table, options: WriteOptions) -> bytes:
    rows = document_rows(table, options)
    lines = (f"{' '.join(row.text.split())}\t{' '.join(f'<{uri}>' for uri in row.labels)}\n" for row in rows)
    return "".join(lines).encode()


def _write_folder(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    with new_folder(path) as folder:
        taken: set[str] = set()
        for table in tables:
            for row in document_rows(table, options):
                name = file_name(row.id, taken)
                (folder / f"{name}.txt").write_bytes(row.text.encode())
                (folder / f"{name}.tsv").write_text("".join(f"<{uri}>\n" for uri in row.labels), encoding="utf-8")
