"""The meaning of the values of a row: texts, labels and paths, as cells of a table or as JSON has them."""

import ast
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from treelabel.core.errors import quote
from treelabel.hierarchy.label_ids import Label

BETWEEN_NUMBERS = re.compile(r"\s*\d[\d.]*(?:e[+-]?\d+)?([^\w.+-]\D*)\d", re.ASCII)

ListMeaning = Literal["labels", "path"]

LONG_CELL = 1000
# Python's parser takes some hundred times the memory of what it parses.
LONGEST_PYTHON_LIST = 1_000_000


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
