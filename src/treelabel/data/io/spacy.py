"""spaCy's text categories: JSON Lines with {"text": ..., "cats": {label: 1.0}}, and DocBin files (.spacy)."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.atomic_output import atomic_file, open_output
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import suffixes
from treelabel.data.io.format import Head, ReadOptions, Record, TableSource, WriteOptions, converted_records, parts_of
from treelabel.data.io.jsonlines import DocumentRow, ObjectEncoder, document_rows, read_objects
from treelabel.data.io.prodigy import MOST_OPTIONS

BINARY = ".spacy"
# A category counts from this value on, as in spaCy's own evaluation.
THRESHOLD = 0.5


def is_spacy(head: Head) -> bool:
    """Return whether a file begins with an object that has categories."""
    values = head.values or {}
    return isinstance(values.get("cats"), dict) and "text" in values


def read_spacy(path: Path, options: ReadOptions) -> TableSource:
    """Read texts whose labels are the categories of at least 0.5."""
    if suffixes(path)[0] != BINARY:
        return read_objects(path, options, _row)
    records = converted_records(_documents(path), _row)
    return TableSource(parts_of(records, path, options.limits))


def _row(values: dict[str, Any]) -> dict[str, Any]:
    cats, meta = values.get("cats", {}), values.get("meta")
    is_right = isinstance(cats, dict) and all(isinstance(each, int | float) for each in cats.values())
    if not is_right:
        raise ValueError(f'expected "cats" as an object with a number for each label, found {quote(cats)}')
    row = {
        **(meta if isinstance(meta, dict) else {}),
        **values,
        "labels": [n for n, p in cats.items() if p >= THRESHOLD],
    }
    return {name: value for name, value in row.items() if name not in ("cats", "meta")}


def _library(what: str) -> tuple[Any, Any]:
    """Return spaCy and its DocBin, or say what to install."""
    try:
        return import_module("spacy"), import_module("spacy.tokens").DocBin
    except ImportError:
        raise TreelabelError(
            f"{what} needs spaCy: pip install spacy; .spacy.jsonl (text and cats) needs nothing"
        ) from None


def _documents(path: Path) -> Iterator[Record]:
    spacy, doc_bin = _library("reading .spacy")
    try:
        documents = list(doc_bin().from_disk(path).get_docs(spacy.blank("xx").vocab))
    except Exception as error:  # there is no end to what is raised on foreign bytes
        raise TreelabelError(f"{path}: not a DocBin of spaCy: {error}") from error
    for number, document in enumerate(documents, 1):
        meta = document.user_data.get("meta", {})
        yield Record(number, {"text": document.text, "cats": dict(document.cats), "meta": meta})


class SpacyEncoder(ObjectEncoder):
    """Writes a text and its categories: all labels where they are few, else those that it has."""

    def make_object(self, document: DocumentRow) -> dict[str, Any]:
        """Return the object of a document."""
        names = self.options.label_texts
        cats = dict.fromkeys(names if len(names) <= MOST_OPTIONS else (), 0.0)
        cats |= dict.fromkeys(document.labels, 1.0)
        return {"text": document.text, "cats": cats, "meta": {"id": document.id, **document.extra}}


def write_spacy(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write JSON Lines, or a DocBin where the file is called .spacy."""
    encoder = SpacyEncoder(options)
    if suffixes(path)[0] != BINARY:
        with open_output(path) as stream:
            stream.writelines(map(encoder.encode, tables))
        return
    spacy, doc_bin = _library("writing .spacy")
    pipeline, collected = spacy.blank("xx"), doc_bin(attrs=["ORTH"], store_user_data=True)
    for table in tables:
        for row in document_rows(table, options):
            values = encoder.make_object(row)
            document = pipeline.make_doc(values["text"])
            document.cats, document.user_data["meta"] = values["cats"], values["meta"]
            collected.add(document)
    with atomic_file(path) as temporary:
        temporary.write_bytes(collected.to_bytes())
