"""Checking values from JSON against Python's own type hints, with limits: `Annotated[int, Between(1, 30)]`.

A TypedDict is a mapping with just these keys. JSON has no tuples, so lists do for them.
"""

import math
import reprlib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from treelabel.core.errors import TreelabelError

# Beyond this, sums of products of three numbers leave single precision.
LARGEST = 1e15


@dataclass(frozen=True)
class Between:
    """Limits of a number, both included; NaN is in none."""

    low: float
    high: float


@dataclass(frozen=True)
class PowerOfTwo:
    """Limits of a whole number that is a power of two, both included."""

    low: int
    high: int

    def accepts(self, value: Any) -> bool:
        """Return whether a whole number is one."""
        return bool(self.low <= value <= self.high and value & (value - 1) == 0)

    def words(self, base: str) -> str:
        """Describe it."""
        return f"a power of two from {self.low} to {self.high}"


@dataclass(frozen=True)
class Rising:
    """Says of a list of numbers that none is smaller than the one before."""

    def accepts(self, value: Any) -> bool:
        """Return whether a list is one."""
        return all(one <= other for one, other in pairwise(value))

    def words(self, base: str) -> str:
        """Describe it."""
        return f"{base}, none smaller than the one before"


# Numbers that are only shown: they may be NaN or infinite.
AnyFloat = Annotated[float, "any"]


def validate(value: Any, kind: Any, where: str) -> None:
    """Refuse a value that is not what a type hint says; `where` begins the message, and says which value it is.

    Plain `float` takes whole numbers too, and is finite and at most 1e15 either way; plain `int` has 64 bits.

    Parameters
    ----------
    value
        The value.
    kind
        A type hint.
    where
        The beginning of the message.

    >>> validate({"words": 0}, Mapping[str, Annotated[int, Between(1, 9)]], "model.json: learned")
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: model.json: learned['words'] is 0, expected a whole number from 1 to 9
    """
    wrong = _mismatch(value, kind)
    if wrong is not None:
        raise TreelabelError(f"{where}{wrong}")


def is_valid(value: Any, kind: Any) -> bool:
    """Return whether a value is what a type hint says.

    Parameters
    ----------
    value
        The value.
    kind
        A type hint.

    Returns
    -------
    bool

    >>> is_valid(1, float), is_valid(True, int), is_valid([1, "a"], tuple[int, str])
    (True, False, True)
    """
    return _mismatch(value, kind) is None


def _mismatch(value: Any, kind: Any) -> str | None:
    """Describe where a value departs from a hint: the place, what is there, and what was expected; None if it fits."""
    origin = get_origin(kind)
    if is_typeddict(kind):
        return _typed_dict(value, kind)
    if origin in (Union, types.UnionType):
        return _union(value, get_args(kind))
    if origin is NotRequired:
        return _mismatch(value, get_args(kind)[0])
    if origin is Annotated and isinstance(get_args(kind)[1], PowerOfTwo | Rising):
        base, limits = get_args(kind)
        wrong = _mismatch(value, base)
        return wrong if wrong is not None or limits.accepts(value) else _departure(value, kind)
    inner = _inner(value, kind, origin)
    if inner is None:
        return _departure(value, kind)
    found = ((place, _mismatch(each, hint)) for place, each, hint in inner)
    return next((f"[{place!r}]{what}" for place, what in found if what is not None), None)


def _departure(value: Any, kind: Any) -> str:
    return f" is {reprlib.repr(value)}, expected {words(kind)}"


def _inner(value: Any, kind: Any, origin: Any) -> list[tuple[Any, Any, Any]] | None:
    """List what is inside a value with the hint of each; None, if the value itself is not of this kind."""
    given = get_args(kind)
    if origin is tuple and isinstance(value, list | tuple):
        if len(given) == 2 and given[1] is Ellipsis:
            return [(at, each, given[0]) for at, each in enumerate(value)]
        return [(at, *pair) for at, pair in enumerate(zip(value, given, strict=True))] if _same(value, given) else None
    if origin in (list, Sequence) and isinstance(value, list | tuple):
        return [(at, each, given[0]) for at, each in enumerate(value)]
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        is_text = all(isinstance(key, str) for key in value)
        return [(key, each, given[1]) for key, each in value.items()] if is_text else None
    return [] if _is_single(value, kind, origin) else None


def _same(value: Any, given: tuple[Any, ...]) -> bool:
    return len(value) == len(given)


def _is_single(value: Any, kind: Any, origin: Any) -> bool:
    """Return whether a value that holds no others is of a kind."""
    if kind is Any:
        return True
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in get_args(kind))
    if origin is Annotated:
        base, limits = get_args(kind)
        if not isinstance(limits, Between):
            return _is_number(value, base)
        return _is_number(value, base) and limits.low <= value <= limits.high
    if kind is float:
        return _is_number(value, float) and math.fabs(value) <= LARGEST
    if kind is int:
        return _is_number(value, int) and -(2**63) <= value < 2**63
    if kind is None or kind is type(None):
        return value is None
    return isinstance(kind, type) and isinstance(value, kind)


def _is_number(value: Any, base: Any) -> bool:
    numbers = (int, float, np.integer, np.floating) if base is float else (int, np.integer)
    return isinstance(value, numbers) and not isinstance(value, bool)


def _union(value: Any, kinds: tuple[Any, ...]) -> str | None:
    """Compare with each; of several mappings, tell how the value departs from the one with most of its keys.

    Where it is of one kind, and only something inside it is not, that is told.
    """
    found = {at: _mismatch(value, kind) for at, kind in enumerate(kinds)}
    if None in found.values():
        return None
    mappings = [at for at, kind in enumerate(kinds) if is_typeddict(kind) and isinstance(value, Mapping)]
    if mappings:
        return found[max(mappings, key=lambda at: len(kinds[at].__annotations__.keys() & value.keys()))]
    inside = [what for what in found.values() if what is not None and what.startswith("[")]
    if len(inside) == 1:
        return inside[0]
    return f" is {reprlib.repr(value)}, expected {' or '.join(words(kind) for kind in kinds)}"


def _typed_dict(value: Any, kind: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f" is {reprlib.repr(value)}, expected {words(kind)}"
    missing = sorted(kind.__required_keys__ - value.keys())
    if missing:
        return f" lacks {missing[0]!r}"
    hints = get_type_hints(kind, include_extras=True)
    unknown = [key for key in value if key not in hints]
    if unknown:
        return f" has {reprlib.repr(unknown[0])}, which does not belong there"
    wrong = ((key, _mismatch(each, hints[key])) for key, each in value.items())
    return next((f"[{key!r}]{what}" for key, what in wrong if what is not None), None)


def words(kind: Any) -> str:
    """Describe a kind for a message.

    >>> words(Literal["a", "b"]), words(tuple[int, ...]), words(float | None)
    ("'a' or 'b'", 'a list', 'a number or null')
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(words(each) for each in get_args(kind))
    if origin is Literal:
        return " or ".join(repr(each) for each in get_args(kind))
    if origin is Annotated:
        base, limits = get_args(kind)
        if isinstance(limits, PowerOfTwo | Rising):
            return limits.words(words(base))
        return (
            f"{words(base)} from {_shown(limits.low)} to {_shown(limits.high)}"
            if isinstance(limits, Between)
            else words(base)
        )
    if origin is tuple and get_args(kind)[-1] is not Ellipsis:
        each = dict.fromkeys(map(words, get_args(kind)))
        return f"a list of {len(get_args(kind))}" + (f", each {next(iter(each))}" if len(each) == 1 else "")
    if origin in (tuple, list, Sequence):
        return "a list"
    if origin in (dict, Mapping) or is_typeddict(kind):
        return "a mapping"
    simple = {int: "a whole number", float: "a number", str: "text", bool: "true or false", None: "null"}
    return simple.get(None if kind is type(None) else kind) or str(getattr(kind, "__name__", kind))


def _shown(limit: float) -> str:
    """Write a limit: whole numbers in full."""
    return str(limit) if isinstance(limit, int) else f"{limit:g}"
