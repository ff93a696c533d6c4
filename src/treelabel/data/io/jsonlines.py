"""JSON Lines, a JSON array of objects, and the benchmark form with `token` and `label`."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import first_mark, open_input, suffixes, text_lines, whole_lines
from treelabel.core.json_lines import json_lines, json_text
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import Limits
from treelabel.data.io.format import (
    Problem,
    ReadOptions,
    Record,
    TableEncoder,
    TableSource,
    WriteOptions,
    converted_records,
    parsed_lines,
    parts_of,
)


def read_json_lines(path: Path, options: ReadOptions) -> TableSource:
    """Read one JSON object per line; a file that starts with "[" is read whole as an array.

    Python's parser reads the lines: pyarrow's takes texts that look like dates for dates, does not tell a missing field
    from null, and has no limit on nesting.
    """
    return TableSource(parts_of(_records(path, options), path, options.limits))


def read_objects(path: Path, options: ReadOptions, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> TableSource:
    """Read JSON Lines, or an array, whose objects are converted to rows of a table.

    Parameters
    ----------
    path, options
        As for `read_json_lines`.
    convert : callable
        Gets an object and returns the columns of its row; raises ValueError for what it cannot use.

    Returns
    -------
    TableSource
    """
    return TableSource(parts_of(converted_records(_records(path, options), convert), path, options.limits))


def _records(path: Path, options: ReadOptions) -> Iterator[Record | Problem]:
    with open_input(path, options.seen, options.limits) as stream:
        if first_mark(stream, path, options.encoding) == b"[":
            yield from _array(path, whole_lines(stream, path, options.encoding, options.limits), options.limits)
            return
        lines = text_lines(stream, path, options.encoding, options.limits)
        yield from parsed_lines(lines, lambda number, line: _parse(number, line, options.limits))


def _parse(number: int, line: str, limits: Limits) -> Record | Problem:
    try:
        values = parse_json(line, limits)
    except json.JSONDecodeError as error:
        return Problem(number, f"not valid JSON: {error.msg} at character {error.pos + 1}")
    except JsonLimitError as error:
        return Problem(number, str(error))
    return _record(number, values, "\\ud" in line.lower())


def _record(number: int, values: Any, has_surrogates: bool) -> Record | Problem:
    if has_surrogates:
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            return Problem(number, f"{half!r} is half of a character (a lone surrogate), which no text can hold")
    if not isinstance(values, dict):
        return Problem(
            number, f"expected a JSON object with fields, found {type(values).__name__} {quote(str(values), 60)}"
        )
    return Record(number, values)


def _array(path: Path, lines: list[str], limits: Limits) -> Iterator[Record | Problem]:
    text = "".join(lines)
    try:
        values = parse_json(text, limits)
    except json.JSONDecodeError as error:
        raise TreelabelError(
            f"{path}:{error.lineno}: not valid JSON: {error.msg} at character {error.colno}"
        ) from error
    except JsonLimitError as error:
        raise TreelabelError(f"{path}: JSON that cannot be read: {error}") from error
    has_surrogates = "\\ud" in text.lower()
    for number, value in enumerate(values, 1):
        yield _record(number, value, has_surrogates)


class JsonLinesEncoder(TableEncoder):
    """Writes tables as one object per line."""

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table."""
        return json_lines(dict(zip(table.column_names, table.columns, strict=True)))


class DocumentRow(NamedTuple):
    """A document on its way to an object: its id, text, labels, their scores if they are predictions, and columns."""

    id: str
    text: str
    labels: list[Any]
    scores: list[float]
    extra: dict[str, Any]


def document_rows(table: pa.Table, options: WriteOptions) -> Iterator[DocumentRow]:
    """Yield the documents of a table."""
    label_column = options.labels[0]
    for row in table.to_pylist():
        text, labels, scores = row.pop(options.text), row.pop(label_column), row.pop("scores", None)
        yield DocumentRow(row.pop("id", ""), text, labels, scores if options.agent is not None else [], row)


class ObjectEncoder(TableEncoder):
    """Writes one object per line, which a subclass makes of each document."""

    def make_object(self, document: DocumentRow) -> dict[str, Any]:
        """Return the object of a document."""
        raise NotImplementedError

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table."""
        objects = map(self.make_object, document_rows(table, self.options))
        return "".join(f"{json_text(each)}\n" for each in objects).encode()


def write_array(path: Path, tables: Iterable[pa.Table], encoder: ObjectEncoder) -> None:
    """Write the objects of an encoder as one JSON array, a line each; or as lines, where the file's ending says so.

    Parameters
    ----------
    path : Path
        The file.
    tables : iterable of pyarrow.Table
        The documents.
    encoder : ObjectEncoder
        What makes objects of them.
    """
    with open_output(path) as stream:
        if suffixes(path)[0] in (".jsonl", ".ndjson"):
            stream.writelines(map(encoder.encode, tables))
            return
        before = "[\n"
        for table in tables:
            for document in document_rows(table, encoder.options):
                stream.write(f"{before}{json_text(encoder.make_object(document))}".encode())
                before = ",\n"
        stream.write(b"[]\n" if before == "[\n" else b"\n]\n")


class HtcEncoder(TableEncoder):
    """Writes the form that benchmarks of hierarchical text classification share: `token` and `label`."""

    def encode(self, table: pa.Table) -> bytes:
        """Return the lines of a table."""
        return json_lines({"token": table.column(self.options.text), "label": table.column(self.options.labels[0])})
