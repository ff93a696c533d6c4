"""Registries: tables of named things (metrics, rules, losses, models), looked up by name with "did you mean".

A name may have settings behind it: "name(key=value, ...)", with Python's numbers and lists, and bare words.
"""

import ast
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

from treelabel.core.errors import TreelabelError, quote, require_extra


class Named(Protocol):
    """The fields that every row of a registry has."""

    @property
    def name(self) -> str:
        """The name it is looked up by."""

    @property
    def help(self) -> str:
        """One line that says what it is."""


Row = TypeVar("Row", bound=Named)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Lazy(Generic[Made]):
    """A row whose class is imported when it is first needed: `location` is "module:Class" under treelabel.

    `extra` is the extra of treelabel that the module needs to be imported, if it needs any.
    """

    name: str
    help: str
    location: str
    extra: str = ""

    @property
    def maker(self) -> type[Made]:
        """The class."""
        module, _, name = self.location.partition(":")
        with require_extra(self.extra, self.name) if self.extra else nullcontext():
            made: type[Made] = getattr(import_module(f"treelabel.{module}"), name)
        return made


class Registry(Mapping[str, Row]):
    """Rows by name, in the order in which they were given.

    Parameters
    ----------
    what : str
        What a row is, in the singular, for messages: "model".
    rows : iterable of rows
        Anything that has a `name` and a `help`.

    >>> models = Registry("model", [Lazy("linear", "the default", "models.linear.model:Linear")])
    >>> models
    Registry(model, 1 rows)
      linear  the default
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
        return "\n".join([f"Registry({self.what}, {len(self)} rows)", *self.listing(indent=2)])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all rows."""
        return tuple(self._rows)

    def find(self, name: str) -> Row:
        """Return the row of a name, or raise an error that suggests the nearest name."""
        if name not in self._rows:
            raise TreelabelError(f"unknown {self.what} {quote(name)}; {suggestion(name, self)}")
        return self._rows[name]

    def add(self, row: Row) -> None:
        """Add a row for as long as the process lives; a name that is taken is refused.

        >>> models = Registry("model", [Lazy("linear", "the default", "models.linear.model:Linear")])
        >>> models.add(Lazy("bag", "sums of word vectors", "neural.bag.model:Bag"))
        >>> models.names
        ('linear', 'bag')
        >>> models.add(models["bag"])
        Traceback (most recent call last):
        treelabel.core.errors.TreelabelError: there is already a model 'bag'; choose another name
        """
        if row.name in self._rows:
            raise TreelabelError(f"there is already a {self.what} {quote(row.name)}; choose another name")
        self._rows[row.name] = row

    @contextmanager
    def adding(self, row: Row) -> Iterator[None]:
        """Add a row for the duration of a `with` block.

        >>> models: Registry[Lazy[object]] = Registry("model", [])
        >>> with models.adding(Lazy("bag", "sums of word vectors", "neural.bag.model:Bag")):
        ...     print(models.names)
        ('bag',)
        >>> models.names
        ()
        """
        self.add(row)
        try:
            yield
        finally:
            del self._rows[row.name]

    def help(self) -> dict[str, str]:
        """Return the help of every row by name."""
        return {name: row.help for name, row in self.items()}

    def listing(self, indent: int = 0, width: int | None = None) -> list[str]:
        """Return one line per row, name and help, for people to read.

        Parameters
        ----------
        indent : int
            Spaces before each name.
        width : int, optional
            Characters for the name; by default as many as the longest one needs.

        Returns
        -------
        list of str
        """
        column = max(map(len, self), default=0) + 2 if width is None else width
        return [f"{'':{indent}}{name:<{column}}{row.help}" for name, row in self.items()]


def suggestion(name: str, known: Iterable[str], cutoff: float = 0.6, most: int = 1) -> str:
    """Return the end of a message about an unknown name: the names nearest to it, or all names if none is near.

    Parameters
    ----------
    name : str
        The name that is not known.
    known : iterable of str
        The names that are.
    cutoff : float
        How similar a name must be, from 0 to 1.
    most : int
        How many names to suggest at most.

    Returns
    -------
    str

    >>> suggestion("liner", ["linear", "bag"]), suggestion("xyz", ["linear", "bag"])
    ('did you mean linear?', 'there are: linear, bag')
    """
    names = list(known)
    return did_you_mean(name, names, cutoff, most) or f"there are: {', '.join(names)}"


def did_you_mean(
    name: str, known: Iterable[str], cutoff: float = 0.6, most: int = 1, shown: Callable[[str], str] = str
) -> str:
    """Return "did you mean ...?" with the names nearest to an unknown one, or "" if none is near.

    Parameters
    ----------
    name, known, cutoff, most
        As for `suggestion`.
    shown : callable
        How a name stands in the message; names from outside are quoted.

    Returns
    -------
    str

    >>> did_you_mean("liner", ["linear", "bag"]), did_you_mean("xyz", ["linear", "bag"])
    ('did you mean linear?', '')
    """
    names = list(known)
    same = [each for each in names if each.lower() == name.lower()]
    close = same[:most] or difflib.get_close_matches(name, names, n=most, cutoff=cutoff)
    return f"did you mean {' or '.join(map(shown, close))}?" if close else ""


def read_settings(inside: str) -> dict[str, Any]:
    """Read "key=value, key=value"; nothing is run, values are literals or words. What is neither is a ValueError.

    >>> read_settings("t=[0.5, 0.4], closed=false, pooling=cls")
    {'t': [0.5, 0.4], 'closed': False, 'pooling': 'cls'}
    """
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(each.arg is None for each in call.keywords):
            raise ValueError(inside)
        return {str(each.arg): _literal(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, TypeError, AssertionError) as error:
        raise ValueError(inside) from error


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        words = {"true": True, "false": False, "none": None}
        return words.get(node.id.lower(), node.id)
    return ast.literal_eval(node)


def split_settings(text: str) -> tuple[str, str | None]:
    """Split a name from the settings behind it, if there are any.

    >>> split_settings("minilm(max_length=128)"), split_settings("minilm")
    (('minilm', 'max_length=128'), ('minilm', None))
    """
    match = re.fullmatch(r"(.+?)\s*\(([^()]*)\)\s*", text, re.DOTALL)
    return (text.strip(), None) if match is None else (match[1].strip(), match[2])


def with_settings(name: str, settings: Mapping[str, Any]) -> str:
    """Write a name with settings so that they can be read back.

    Parameters
    ----------
    name
        What has the settings, such as an encoder.
    settings
        Values by name.

    Returns
    -------
    str

    >>> with_settings("minilm", {"max_length": 128, "pooling": "cls"}), with_settings("minilm", {})
    ('minilm(max_length=128, pooling=cls)', 'minilm')
    """
    listed = ", ".join(f"{key}={value}" for key, value in settings.items())
    return f"{name}({listed})" if listed else name
