"""Prodigy's JSON Lines: tasks with a label, or with options of which some were accepted; and the answer."""

from pathlib import Path
from typing import Any

from treelabel.core.errors import quote
from treelabel.data.columns import ANSWER, NOT_ACCEPTED
from treelabel.data.io.format import Head, ReadOptions, TableSource
from treelabel.data.io.jsonlines import DocumentRow, ObjectEncoder, read_objects

ACCEPT = "accept"
# With more labels than these, a task has only the options that are accepted.
MOST_OPTIONS = 200


def is_prodigy(head: Head) -> bool:
    """Return whether a file begins with a task: an answer, or options to choose from, or hashes."""
    values = head.values or {}
    options = values.get("options")
    is_choice = isinstance(options, list) and bool(options) and all(isinstance(o, dict) and "id" in o for o in options)
    is_answered = values.get(ANSWER) in (ACCEPT, *NOT_ACCEPTED) and bool({ACCEPT, "label", "options"} & values.keys())
    return is_answered or is_choice or {"_input_hash", "_task_hash"} <= values.keys()


def read_prodigy(path: Path, options: ReadOptions) -> TableSource:
    """Read tasks; those that were rejected or ignored are left out where labels are read, and counted.

    Options that are accepted beforehand, in tasks that nobody answered, are no labels.
    """
    return read_objects(path, options, _task)


def _task(values: dict[str, Any]) -> dict[str, Any]:
    """Make a row of a task: what is in meta becomes columns."""
    meta = values.get("meta")
    row = dict(meta) if isinstance(meta, dict) else {}
    row |= {name: value for name, value in values.items() if name not in ("meta", "options", "label", "labels", ACCEPT)}
    if isinstance(values.get("options"), list) or ACCEPT in values:
        labels = _accepted(values) if ANSWER in values else []
    else:
        label = values.get("label", values.get("labels", []))
        labels = label if isinstance(label, list) else [label]
    return row | {"labels": labels}


def _accepted(values: dict[str, Any]) -> list[Any]:
    """Return the options that were accepted: their ids, or their texts where ids are numbers."""
    accepted = values.get(ACCEPT, [])
    if not isinstance(accepted, list):
        raise ValueError(f'expected "accept" as a list of ids of options, found {quote(accepted)}')
    options = values.get("options") or []
    if not isinstance(options, list) or not all(isinstance(each, dict) for each in options):
        raise ValueError(f'expected "options" as a list of objects with id and text, found {quote(options)}')
    text_of = {str(each.get("id")): each.get("text") for each in options}
    return [each if isinstance(each, str) else text_of.get(str(each)) or each for each in accepted]


class ProdigyEncoder(ObjectEncoder):
    """Writes tasks for the choice interface: answered, or with what is suggested accepted beforehand."""

    def make_object(self, document: DocumentRow) -> dict[str, Any]:
        """Return the task of a document."""
        labels = document.labels
        names = self.options.label_texts
        listed = names if 0 < len(names) <= MOST_OPTIONS else labels
        meta = document.extra | ({"score": document.scores[0]} if document.scores else {})
        task = {
            "id": document.id,
            "text": document.text,
            "options": [{"id": label, "text": label} for label in listed],
            ACCEPT: labels,
        }
        if self.options.agent is None:
            task[ANSWER] = ACCEPT
        return task | ({"meta": meta} if meta else {})
