"""Which columns hold the text, the labels and the id, and how their values are understood."""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.registry import did_you_mean
from treelabel.hierarchy.label_ids import Label

TEXT_NAMES = (
    "text",
    "token",
    "doc_token",
    "content",
    "sentence",
    "document",
    "body",
    "abstract",
    "description",
    "title",
)
LABEL_NAMES = (
    "labels",
    "label",
    "doc_label",
    "category",
    "categories",
    "path",
    "class",
    "target",
    "topics",
    "topic",
    "predictions",
    "prediction",
    "predicted",
)
ID_NAMES = ("id", "_id", "uid", "guid", "doc_id", "docid", "document_id", "index")
# The field of Prodigy's annotations that says what became of a row, and its values where the label is not to be taken.
ANSWER = "answer"
NOT_ACCEPTED = ("reject", "ignore")
LEVEL_NAME = re.compile(r"(level|lvl|cat|category|l)[ _-]?(\d+)")

BETWEEN_NUMBERS = re.compile(r"\s*\d[\d.]*(?:e[+-]?\d+)?([^\w.+-]\D*)\d", re.ASCII)

ListMeaning = Literal["labels", "path"]

LONG_CELL = 1000
# Python's parser takes some hundred times the memory of what it parses.
LONGEST_PYTHON_LIST = 1_000_000


class MissingColumnError(TreelabelError):
    """A column that was named is not in the file."""


@dataclass(frozen=True)
class Fields:
    """The columns to read: texts are joined by line breaks, several label columns are the levels of one path.

    `numbers` is a column with one number for each label of a cell, if there is one: it has the same separator.
    """

    text: tuple[str, ...]
    labels: tuple[str, ...]
    id: str | None
    label_sep: str | None = None
    lists: ListMeaning = "labels"
    need_labels: bool = True
    group: str | None = None
    numbers: str | None = None

    def text_of(self, values: dict[str, Any]) -> str:
        """Read the text of a row."""
        if len(self.text) == 1:
            return _as_text(values[self.text[0]])
        return "\n".join(_as_text(values[name]) for name in self.text)

    def labels_of(self, values: dict[str, Any]) -> list[Label]:
        """Read the labels of a row: names, or tuples of names for paths; none if labels are not needed."""
        if not self.need_labels:
            return []
        if len(self.labels) > 1:
            return _levels([values[name] for name in self.labels])
        value = values[self.labels[0]] if self.labels else None
        value = decoded(value) if isinstance(value, bytes) else value
        if isinstance(value, str):
            sep = self.label_sep if self.numbers is None else between_numbers(values.get(self.numbers))
            return _labels_of_cell(value, sep, self.lists)
        return _labels_of_value(value, self.lists)

    def rejected(self, values: dict[str, Any]) -> str | None:
        """Return how an annotator of Prodigy turned the label of a row down, if labels are read and one did.

        The label of such a row is what was asked about, and not what the text is about.
        """
        answer = values.get(ANSWER)
        asked = self.need_labels and ANSWER not in self.labels
        return answer if asked and isinstance(answer, str) and answer in NOT_ACCEPTED else None

    def told(self) -> dict[str, str]:
        """Return the columns that are read, for people."""
        told = {
            "text": " + ".join(self.text) or "none",
            "labels": " > ".join(self.labels) or "none",
            "id": self.id or "row numbers",
        }
        return told if self.group is None else told | {"group": self.group}

    def used(self) -> frozenset[str]:
        """Return the names of the columns that are read."""
        return frozenset({*self.text, *self.labels, *([self.id] if self.id is not None else [])})


def between_numbers(cell: Any) -> str | None:
    """Find what stands between the numbers of a cell, as it does between the labels that they belong to.

    >>> between_numbers("0.75; 1e-05"), between_numbers("0.75"), between_numbers(None)
    ('; ', None, None)
    """
    found = BETWEEN_NUMBERS.match(cell) if isinstance(cell, str) else None
    return None if found is None else found[1]


def _labels_of_cell(text: str, label_sep: str | None, lists: ListMeaning) -> list[Label]:
    # The same few labels stand in row after row; cells that are long are rarely the same, and would fill the memory.
    parse = _remembered_labels if len(text) <= LONG_CELL else _remembered_labels.__wrapped__
    return parse(text, label_sep, lists)


@lru_cache(10_000)
def _remembered_labels(text: str, label_sep: str | None, lists: ListMeaning) -> list[Label]:
    return _labels_of_value(_cell(text, label_sep), lists)


def _labels_of_value(value: Any, lists: ListMeaning) -> list[Label]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        value = [value]
    if lists == "path":
        nested = [isinstance(item, list | tuple) for item in value]
        if any(nested) and not all(nested):
            raise ValueError(f"expected the steps of one path, or a list of paths, found both: {quote(value)}")
        return [path for steps in (value if any(nested) else [value]) for path in _levels(steps)]
    return [_label(item) for item in value]


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return " ".join(map(_as_text, value))
    if isinstance(value, dict):
        raise ValueError(f"expected text, found an object {quote(value)}")
    return decoded(value) if isinstance(value, bytes) else str(value)


def decoded(value: bytes) -> str:
    """Decode text that a file holds as bytes, as Parquet files of some programs do.

    >>> decoded("é".encode())
    'é'
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"expected text, found bytes that are not UTF-8: {quote(value, 40)}") from None


def _cell(text: str, label_sep: str | None) -> list[Any]:
    """Read the labels in a cell: none, a list in JSON or Python spelling, several with a separator, or one."""
    stripped = text.strip()
    if not stripped:
        return []
    if stripped.startswith("[") and stripped.endswith("]"):
        parsers = (json.loads, ast.literal_eval) if len(stripped) <= LONGEST_PYTHON_LIST else (json.loads,)
        for parse in parsers:
            try:
                parsed = parse(stripped)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(parsed, list):
                return parsed
    if label_sep is not None:
        return [part.strip() for part in stripped.split(label_sep) if part.strip()]
    return [stripped]


def _label(value: Any) -> Label:
    """Read one label: a name, a number, a list of names (a path), or an object as prediction files have it."""
    if isinstance(value, dict):
        value = value.get("path") or value.get("label")
    if isinstance(value, bytes):
        value = decoded(value)
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("empty label")
        return value
    if isinstance(value, list | tuple) and value:
        return tuple(_step(part) for part in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"expected a label name, found {quote(value)}")


def _step(value: Any) -> str:
    """Read the name of one step of a path."""
    if isinstance(value, list | tuple):
        raise ValueError(f"expected the name of a label, found a list {quote(value)}")
    return _as_text(value).strip()


def _levels(values: Sequence[Any]) -> list[Label]:
    names = [_step(value) for value in values]
    while names and not names[-1]:
        names.pop()
    if "" in names:
        raise ValueError(f"level {names.index('') + 1} is empty, but deeper levels are not: {quote(names)}")
    return [tuple(names)] if names else []


@dataclass(frozen=True)
class FieldChoice:
    """The columns a user asked for; None means: guess."""

    text: str | Sequence[str] | None = None
    labels: str | Sequence[str] | None = None
    id: str | None = None
    label_sep: str | None = None
    lists: ListMeaning = "labels"
    need_text: bool = True
    need_labels: bool = True
    group: str | None = None
    numbers: str | None = None

    def among(self, columns: Sequence[str], where: str) -> Fields:
        """Choose the columns that were asked for, and guess the others by their names.

        Parameters
        ----------
        columns
            The names of the columns that there are.
        where
            How messages call the file.

        Returns
        -------
        Fields
        """
        text = _asked(self.text, columns, where, "text")
        if text is None:
            text = _guess(TEXT_NAMES, columns)
            if not text and self.need_text:
                raise TreelabelError(
                    f"{where}: no column looks like the text; columns are {_list(columns)}; say which (--text)"
                )
        labels = _asked(self.labels, columns, where, "labels") if self.need_labels else None
        if labels is None:
            labels = _guess(LABEL_NAMES, columns) or _level_columns(columns) or _choices(columns)
            if not labels and not self.need_text:
                raise TreelabelError(
                    f"{where}: no column looks like the labels; columns are {_list(columns)}; call it labels"
                )
        name = _asked(self.id, columns, where, "id")
        if name is None:
            name = _guess(ID_NAMES, [column for column in columns if column not in (*text, *labels)])
        fields = Fields(text, labels, name[0] if name else None, self.label_sep, self.lists, self.need_labels)
        together = _asked(self.group, columns, where, "groups")
        if together is not None and together[0] in fields.used():
            raise TreelabelError(
                f"{where}: the column {quote(together[0])} is read as text, labels or id, so that it cannot tell the "
                "groups; name another one, or other columns for these"
            )
        return replace(fields, group=self.group, numbers=self.numbers)


def _asked(names: str | Sequence[str] | None, columns: Sequence[str], where: str, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    listed = (names,) if isinstance(names, str) else tuple(names)
    several = what in ("text", "labels")
    wanted = tuple(part for name in listed for part in (_named_together(name, columns) if several else (name,)))
    missing = [name for name in wanted if name not in columns]
    if missing:
        hint = did_you_mean(missing[0], columns)
        told = f"no column {quote(missing[0])} for the {what}; columns are {_list(columns)}"
        raise MissingColumnError(f"{where}: {told}{hint and f'; {hint}'}")
    return wanted


def _named_together(name: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Take "dept,class" for two columns, unless there is one column of that name."""
    parts = tuple(part.strip() for part in name.split(","))
    # With one of them right, the others are misspelt; else it is one column that is not there.
    return (name,) if name in columns or not any(part in columns for part in parts) else parts


def _guess(names: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    by_lower = {column.lower(): column for column in reversed(columns)}
    return next(((by_lower[name],) for name in names if name in by_lower), ())


def _level_columns(columns: Sequence[str]) -> tuple[str, ...]:
    found = [(int(match[2]), column) for column in columns if (match := LEVEL_NAME.fullmatch(column.lower()))]
    return tuple(column for _, column in sorted(found))


def _choices(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the column of the options that were chosen in Prodigy, where its annotations have no label."""
    return ("accept",) if "accept" in columns and ANSWER in columns else ()


def _list(columns: Sequence[str]) -> str:
    return ", ".join(quote(name, 40) for name in columns[:20]) + (" ..." if len(columns) > 20 else "")
