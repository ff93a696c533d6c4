"""Which columns hold the text, the labels and the id, as named or guessed by their names; and what their values mean.

The name of a label may not have every character in a file. Control characters can drive a terminal, direction overrides
make a name look like another, and tabs and line breaks fit into no table; no name of a real label has them, and who
puts them there is careless or means harm. Line and paragraph separators (U+2028, U+2029) are let through: they come
with texts from the web, and do nothing. A hierarchy that was made in Python may have any names, and so may what stores
such hierarchies as they are: treelabel's own JSON, Parquet, models and scores. Wherever names are printed,
`errors.printable` or a quotation escapes them.
"""

import ast
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.registry import did_you_mean
from treelabel.core.strings import TEXT_NAMES, guess_column
from treelabel.data.column_content import ColumnContent, find_ids, find_labels, find_text, look_at_columns
from treelabel.hierarchy.label_ids import Label

LOG = logging.getLogger(__name__)
# Nothing else is called so; what has one of the other names may be a label.
CLEAR_TEXT_NAMES = ("text", "token", "doc_token", "sentence", "body")
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
# What people write where a label is missing; a taxonomy that has a label of such a name keeps it.
MISSING = frozenset({"n/a", "#n/a", "nan", "null", "-", "--", "?", "unknown", "<na>"})
# The field of Prodigy's annotations that says what became of a row, and its values where the label is not to be taken.
ANSWER = "answer"
NOT_ACCEPTED = ("reject", "ignore")
LEVEL_NAME = re.compile(r"(level|lvl|cat|category|l)[ _-]?(\d+)")
BETWEEN_NUMBERS = re.compile(r"\s*\d[\d.]*(?:e[+-]?\d+)?([^\w.+-]\D*)\d", re.ASCII)
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LONG_CELL = 1000
# Python's parser takes some hundred times the memory of what it parses.
LONGEST_PYTHON_LIST = 1_000_000

ListMeaning = Literal["labels", "path"]


class MissingColumnError(TreelabelError):
    """A column that was named is not in the file."""


@dataclass(frozen=True)
class Columns:
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

    def summary(self) -> dict[str, str]:
        """Return the columns that are read, for people."""
        summary = {
            "text": " + ".join(self.text) or "none",
            "labels": " > ".join(self.labels) or "none",
            "id": self.id or "row numbers",
        }
        return summary if self.group is None else summary | {"group": self.group}

    def reading(self) -> dict[str, list[str]]:
        """Return the columns that are read, as options of `read` for files of the same shape."""
        columns = {"text": self.text, "labels": self.labels, "id": () if self.id is None else (self.id,)}
        return {what: list(names) for what, names in columns.items() if names}

    def names(self) -> frozenset[str]:
        """Return the names of the columns that hold texts, labels and ids."""
        return frozenset({*self.text, *self.labels, *([self.id] if self.id is not None else [])})


@dataclass(frozen=True)
class ColumnChoice:
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

    # Columns that are taken where nobody asks for others and a file has them: those of the data a model learned from.
    usual: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def is_clear(self, columns: Sequence[str]) -> bool:
        """Return whether names alone say which columns to read, so that none of the others has to be looked at."""
        text, labels, ids = (self._by_name(what, columns) for what in ("text", "labels", "id"))
        is_known = (bool(text) or not self.need_text) and (bool(labels) or not self.need_labels)
        return is_known and (bool(ids) or {*columns} <= {*text, *labels})

    def _by_name(self, what: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of what was asked for, or was usual, or has a name that leaves no doubt."""
        asked = getattr(self, what)
        if asked is not None:
            return (asked,) if isinstance(asked, str) else tuple(asked)
        usual = tuple(self.usual.get(what, ()))
        if usual and all(name in columns for name in usual):
            return usual
        if what == "labels":
            return _guess_labels(columns)
        return _guess(CLEAR_TEXT_NAMES if what == "text" else ID_NAMES, columns)

    def among(self, columns: Sequence[str], where: str, table: pa.Table | None = None) -> Columns:
        """Choose the columns that were asked for, and guess the others by their names, or by what they hold.

        Parameters
        ----------
        columns
            The names of the columns that there are.
        where
            How messages call the file.
        table
            The first rows of these columns, if they are to be looked at.

        Returns
        -------
        Columns
        """
        contents = [] if table is None or self.is_clear(columns) else look_at_columns(table)
        text = self._text(columns, where, contents)
        labels = self._labels(columns, where, [each for each in contents if each.name not in text])
        name = _requested(self.id, columns, where, "id") or self._usual("id", columns)
        if name is None:
            others = [column for column in columns if column not in (*text, *labels)]
            name = _guess(ID_NAMES, others)
            ids = find_ids([each for each in contents if each.name in others])
            name = name or (() if ids is None else (ids,))
        group = _requested(self.group, columns, where, "groups")
        if group is not None and group[0] in (*text, *labels, *name):
            raise TreelabelError(
                f"{where}: the column {quote(group[0])} is read as text, labels or id, so that it cannot tell the "
                "groups; name another one, or other columns for these"
            )
        how = self.label_sep, self.lists, self.need_labels, self.group, self.numbers
        return Columns(text, labels, name[0] if name else None, *how)

    def _usual(self, what: str, columns: Sequence[str]) -> tuple[str, ...] | None:
        usual = tuple(self.usual.get(what, ()))
        missing = [name for name in usual if name not in columns]
        if missing and getattr(self, what) is None:
            LOG.info("no column %s, which held the %s when the model was trained", quote(missing[0]), what)
        return usual if usual and not missing else None

    def _text(self, columns: Sequence[str], where: str, contents: Sequence[ColumnContent]) -> tuple[str, ...]:
        text = _requested(self.text, columns, where, "text") or self._usual("text", columns)
        if text is not None:
            return text
        named, longest = _guess(TEXT_NAMES, columns), find_text(contents)
        by_content = {each.name: each for each in contents}
        # A column that is called like a text, but has few values, is none where another one is.
        if named and (longest is None or named[0] not in by_content or not by_content[named[0]].is_labels):
            return named
        candidates = [each.name for each in contents if each.is_text]
        if self.usual.get("text") and len(candidates) > 1:
            # A wrong one would make plausible predictions.
            raise TreelabelError(
                f"{where}: has no column {_list(self.usual['text'])}, which the model learned from, and several that "
                f"may hold the text: {_list(candidates)}; say which: text= (--text)"
            )
        if longest is not None:
            LOG.info("%s: the text is taken from the column %s, by what it holds (--text)", where, quote(longest))
            return (longest,)
        if not self.need_text or named:
            return named
        if len(columns) == 1:
            return tuple(columns)
        listed = ", ".join(each.describe() for each in contents[:20]) or _list(columns)
        raise TreelabelError(f"{where}: no column looks like the text; columns are {listed}; say which: text= (--text)")

    def _labels(self, columns: Sequence[str], where: str, contents: Sequence[ColumnContent]) -> tuple[str, ...]:
        labels = _requested(self.labels, columns, where, "labels") if self.need_labels else None
        usual = self._usual("labels", columns) if self.need_labels else None
        labels = labels or usual or _guess_labels(columns)
        if labels:
            return labels
        candidates = find_labels(contents) if self.need_labels else []
        if len(candidates) == 1:
            LOG.info("%s: the labels are taken from %s, by what it holds (--labels)", where, quote(candidates[0]))
            return tuple(candidates)
        if candidates:
            shown = ", ".join(each.describe() for each in contents if each.name in candidates)
            raise TreelabelError(
                f"{where}: several columns may hold the labels: {shown}; say which (--labels NAME), or that they are "
                f"the levels of one path (--labels {','.join(candidates[:3])})"
            )
        if not self.need_text:
            raise TreelabelError(
                f"{where}: no column looks like the labels; columns are {_list(columns)}; call it labels"
            )
        return ()


def _requested(
    names: str | Sequence[str] | None, columns: Sequence[str], where: str, what: str
) -> tuple[str, ...] | None:
    """Return the columns of these names; "dept,class" is two columns, unless there is one of that name."""
    if names is None:
        return None
    wanted: list[str] = []
    for name in (names,) if isinstance(names, str) else names:
        parts = [part.strip() for part in name.split(",")]
        # With one of them right, the others are misspelt; else it is one column that is not there.
        is_list = what in ("text", "labels") and name not in columns and any(part in columns for part in parts)
        wanted += parts if is_list else [name]
    missing = [name for name in wanted if name not in columns]
    if missing:
        hint = did_you_mean(missing[0], columns)
        raise MissingColumnError(
            f"{where}: no column {quote(missing[0])} for the {what}; columns are {_list(columns)}{hint and f'; {hint}'}"
        )
    return tuple(wanted)


def _guess(names: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    guessed = guess_column(columns, names)
    return () if guessed is None else (guessed,)


def _guess_labels(columns: Sequence[str]) -> tuple[str, ...]:
    """Guess the columns of labels: by name, or levels, or what was chosen in Prodigy where there is no label."""
    levels = [(int(match[2]), column) for column in columns if (match := LEVEL_NAME.fullmatch(column.lower()))]
    chosen = ("accept",) if "accept" in columns and ANSWER in columns else ()
    return _guess(LABEL_NAMES, columns) or tuple(column for _, column in sorted(levels)) or chosen


def _list(columns: Sequence[str]) -> str:
    return ", ".join(quote(name, 40) for name in columns[:20]) + (" ..." if len(columns) > 20 else "")


# Values


def between_numbers(cell: Any) -> str | None:
    """Find what stands between the numbers of a cell, as it does between the labels that they belong to.

    >>> between_numbers("0.75; 1e-05"), between_numbers("0.75"), between_numbers(None)
    ('; ', None, None)
    """
    match = BETWEEN_NUMBERS.match(cell) if isinstance(cell, str) else None
    return None if match is None else match[1]


def labels_of_cell(text: str, label_sep: str | None, lists: ListMeaning) -> list[Label]:
    """Read the labels of a cell."""
    # The same few labels stand in row after row; cells that are long are rarely the same, and would fill the memory.
    parse = _remembered_labels if len(text) <= LONG_CELL else _remembered_labels.__wrapped__
    return parse(text, label_sep, lists)


@lru_cache(10_000)
def _remembered_labels(text: str, label_sep: str | None, lists: ListMeaning) -> list[Label]:
    return labels_of_value(_cell(text, label_sep), lists)


def labels_of_value(value: Any, lists: ListMeaning) -> list[Label]:
    """Read the labels of a value: names, or tuples of names for paths."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        value = [value]
    if lists == "path":
        nested = [isinstance(item, list | tuple) for item in value]
        if any(nested) and not all(nested):
            raise ValueError(f"expected the steps of one path, or a list of paths, found both: {quote(value)}")
        return [path for steps in (value if any(nested) else [value]) for path in path_of_levels(steps)]
    return [_label(item) for item in value]


def as_text(value: Any) -> str:
    """Read a text; the items of a list are joined by blanks."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return " ".join(map(as_text, value))
    if isinstance(value, dict):
        raise ValueError(f"expected text, found an object {quote(value)}")
    return decode_text(value) if isinstance(value, bytes) else str(value)


def decode_text(value: bytes) -> str:
    """Decode text that a file holds as bytes, as Parquet files of some programs do.

    >>> decode_text("é".encode())
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
        value = decode_text(value)
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
    return as_text(value).strip()


def path_of_levels(values: Sequence[Any]) -> list[Label]:
    """Read the names of levels, from the top on, as one path; none if all are empty."""
    names = [_step(value) for value in values]
    while names and not names[-1]:
        names.pop()
    if "" in names:
        raise ValueError(f"level {names.index('') + 1} is empty, but deeper levels are not: {quote(names)}")
    return [tuple(names)] if names else []


def without_missing(label: Label) -> Label:
    """Return a label without what people write where there is none: "" or (), or the levels above it.

    >>> without_missing("N/A"), without_missing(("Food", "-")), without_missing("Food")
    ('', ('Food',), 'Food')
    """
    if isinstance(label, str):
        return "" if label.strip().casefold() in MISSING else label
    names = list(label)
    while names and names[-1].strip().casefold() in MISSING:
        names.pop()
    return tuple(names)


def unprintable(names: Iterable[str]) -> str | None:
    r"""Describe the first name that has a character it may not have; None if all are fine.

    >>> unprintable(["A", "B\x1b[2J"])
    "the label 'B\\x1b[2J' has the control character U+001B, which no name in a file may have; remove it"
    """
    for name in names:
        match = UNPRINTABLE.search(name)
        if match is not None:
            kind = "direction override" if match[0] > "\x9f" else "control character"
            mark = f"the {kind} U+{ord(match[0]):04X}"
            return f"the label {quote(name)} has {mark}, which no name in a file may have; remove it"
    return None


def require_printable(names: Iterable[str], where: object) -> None:
    """Refuse names with characters that no name in a file may have; `where` they stand goes before the message."""
    problem = unprintable(names)
    if problem is not None:
        raise TreelabelError(f"{where}: {problem}")
