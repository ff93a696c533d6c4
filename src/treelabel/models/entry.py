"""A row of a table of classes, whose files are imported when one is made; and how a row is found by its name."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Generic, TypeVar

from treelabel.errors import TreelabelError

Made = TypeVar("Made")


@dataclass(frozen=True)
class Entry(Generic[Made]):
    """What a row is called, what it is, and where it is made: "module:Class" under treelabel.models."""

    name: str
    help: str
    place: str

    @property
    def maker(self) -> type[Made]:
        """The class."""
        module, _, name = self.place.partition(":")
        made: type[Made] = getattr(import_module(f"treelabel.models.{module}"), name)
        return made


def find_entry(table: Mapping[str, Entry[Made]], name: str, what: str) -> Entry[Made]:
    """Find a row by its name, or say which there are.

    >>> find_entry({"linear": Entry("linear", "", "linear:Linear")}, "liner", "model")
    Traceback (most recent call last):
    treelabel.errors.TreelabelError: unknown model 'liner'; did you mean linear?
    """
    if name not in table:
        close = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(table)}"
        raise TreelabelError(f"unknown {what} {name!r}; {hint}")
    return table[name]
