"""Argilla's records as `records.to_json` writes them: fields, suggestions and responses by the name of the question.

Argilla has no hierarchical question, so that labels are paths as texts. A response needs the id of a user of its
server, so that labels are written as suggestions, whose agent tells given labels from predicted ones.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from treelabel.core.errors import quote
from treelabel.data.io.format import Head, ReadOptions, TableSource, WriteOptions
from treelabel.data.io.jsonlines import DocumentRow, ObjectEncoder, read_objects, write_array

QUESTION = "labels"
# Who suggests labels that are no predictions.
GIVEN = "given labels"


def is_argilla(head: Head) -> bool:
    """Return whether a file begins with a record: fields, and suggestions or responses."""
    values = head.values or {}
    return isinstance(values.get("fields"), dict) and bool({"suggestions", "responses"} & values.keys())


def read_argilla(path: Path, options: ReadOptions) -> TableSource:
    """Read records; a column for each field, metadata value and question, and `labels` for the first question.

    Labels are the last response, or the labels that were written here; suggestions of models are passed over.
    """
    return read_objects(path, options, _record)


def _record(values: dict[str, Any]) -> dict[str, Any]:
    parts = {name: values.get(name) or {} for name in ("fields", "metadata", "suggestions", "responses")}
    wrong = next((name for name, part in parts.items() if not isinstance(part, dict)), None)
    if wrong is not None:
        raise ValueError(f"expected {wrong!r} as an object, found {quote(parts[wrong])}")
    answers: dict[str, list[Any]] = {}
    for question, suggestion in parts["suggestions"].items():
        if isinstance(suggestion, dict) and suggestion.get("agent") == GIVEN:
            answers[question] = _listed(suggestion.get("value"))
    for question, responses in parts["responses"].items():
        if not isinstance(responses, list) or not all(isinstance(each, dict) for each in responses):
            raise ValueError(f"expected the responses to {quote(question)} as a list of objects")
        if responses:
            answers[question] = _listed(responses[-1].get("value"))
    row = {**parts["metadata"], **parts["fields"]}
    if values.get("id") is not None:
        row = {"id": values["id"], **row}
    first = answers.get(QUESTION, next(iter(answers.values()), []))
    return row | {name: value for name, value in answers.items() if name != QUESTION} | {"labels": first}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


class ArgillaEncoder(ObjectEncoder):
    """Writes records whose labels are suggestions to the question `labels`."""

    def make_object(self, document: DocumentRow) -> dict[str, Any]:
        """Return the record of a document."""
        suggestion: dict[str, Any] = {"value": document.labels, "score": document.scores or None}
        suggestion["agent"] = GIVEN if self.options.agent is None else self.options.agent
        return {
            "id": document.id,
            "fields": {"text": document.text},
            "metadata": document.extra,
            "suggestions": {QUESTION: suggestion} if document.labels else {},
            "responses": {},
            "vectors": {},
        }


def write_argilla(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write an array of records."""
    write_array(path, tables, ArgillaEncoder(options))
