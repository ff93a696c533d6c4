"""Which columns hold the text, the labels and the id: as named, or guessed by their names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.registry import did_you_mean
from treelabel.data.cell_values import ListMeaning

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

    def among(self, columns: Sequence[str], where: str) -> Columns:
        """Choose the columns that were asked for, and guess the others by their names.

        Parameters
        ----------
        columns
            The names of the columns that there are.
        where
            How messages call the file.

        Returns
        -------
        Columns
        """
        text = _requested(self.text, columns, where, "text")
        if text is None:
            text = _guess(TEXT_NAMES, columns)
            if not text and self.need_text:
                raise TreelabelError(
                    f"{where}: no column looks like the text; columns are {_list(columns)}; say which (--text)"
                )
        labels = _requested(self.labels, columns, where, "labels") if self.need_labels else None
        if labels is None:
            labels = _guess(LABEL_NAMES, columns) or _level_columns(columns) or _choices(columns)
            if not labels and not self.need_text:
                raise TreelabelError(
                    f"{where}: no column looks like the labels; columns are {_list(columns)}; call it labels"
                )
        name = _requested(self.id, columns, where, "id")
        if name is None:
            name = _guess(ID_NAMES, [column for column in columns if column not in (*text, *labels)])
        chosen = Columns(text, labels, name[0] if name else None, self.label_sep, self.lists, self.need_labels)
        group = _requested(self.group, columns, where, "groups")
        if group is not None and group[0] in chosen.names():
            raise TreelabelError(
                f"{where}: the column {quote(group[0])} is read as text, labels or id, so that it cannot tell the "
                "groups; name another one, or other columns for these"
            )
        return replace(chosen, group=self.group, numbers=self.numbers)


def _requested(
    names: str | Sequence[str] | None, columns: Sequence[str], where: str, what: str
) -> tuple[str, ...] | None:
    if names is None:
        return None
    listed = (names,) if isinstance(names, str) else tuple(names)
    several = what in ("text", "labels")
    wanted = tuple(part for name in listed for part in (_named_together(name, columns) if several else (name,)))
    missing = [name for name in wanted if name not in columns]
    if missing:
        hint = did_you_mean(missing[0], columns)
        raise MissingColumnError(
            f"{where}: no column {quote(missing[0])} for the {what}; columns are {_list(columns)}{hint and f'; {hint}'}"
        )
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
    levels = [(int(match[2]), column) for column in columns if (match := LEVEL_NAME.fullmatch(column.lower()))]
    return tuple(column for _, column in sorted(levels))


def _choices(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the column of the options that were chosen in Prodigy, where its annotations have no label."""
    return ("accept",) if "accept" in columns and ANSWER in columns else ()


def _list(columns: Sequence[str]) -> str:
    return ", ".join(quote(name, 40) for name in columns[:20]) + (" ..." if len(columns) > 20 else "")
