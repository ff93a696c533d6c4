"""Registries: tables of named things (metrics, rules, losses, models), and how one is found by its name."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Generic, Protocol, TypeVar

from treelabel.core.errors import TreelabelError


class Named(Protocol):
    """What every row of a registry has."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def help(self) -> str:
        """What it is, in one line."""


Row = TypeVar("Row", bound=Named)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Lazy(Generic[Made]):
    """A row whose class is imported when it is asked for: `place` is "module:Class" under treelabel."""

    name: str
    help: str
    place: str

    @property
    def maker(self) -> type[Made]:
        """The class."""
        module, _, name = self.place.partition(":")
        made: type[Made] = getattr(import_module(f"treelabel.{module}"), name)
        return made


class Registry(Mapping[str, Row]):
    """Rows by name, in the order in which they were given.

    Parameters
    ----------
    what
        What a row is, in the singular, for messages: "model".
    rows
        The rows.

    >>> models = Registry("model", [Lazy("linear", "the default", "models.linear.model:Linear")])
    >>> models.find("liner")
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: unknown model 'liner'; did you mean linear?
    """

    def __init__(self, what: str, rows: Iterable[Row]) -> None:
        self.what = what
        self._rows = {row.name: row for row in rows}

    def __getitem__(self, name: str) -> Row:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Registry({self.what}: {', '.join(self)})"

    def find(self, name: str) -> Row:
        """Return the row of a name; an unknown one is refused with the nearest that there is."""
        if name not in self._rows:
            raise TreelabelError(f"unknown {self.what} {name!r}; {suggestion(name, self)}")
        return self._rows[name]


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.6, most: int = 1) -> str:
    """Return the end of a message about an unknown name: the names nearest to it, or all that there are.

    >>> suggestion("liner", ["linear", "bag"]), suggestion("xyz", ["linear", "bag"])
    ('did you mean linear?', 'there are: linear, bag')
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=most, cutoff=cutoff)
    return f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(names)}"
