"""Values from JSON and from users, validated against Python's own type hints: `Annotated[int, Between(1, 30)]`.

A TypedDict or a JsonRecord is a mapping with just these keys. JSON has no tuples, so lists do for them.
"""

import math
import reprlib
import types
from collections.abc import Iterator, Mapping, Sequence
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

    def accepts(self, value: Any) -> bool:
        """Return whether a number is within the limits."""
        return bool(self.low <= value <= self.high)

    def describe(self, base: str) -> str:
        """Describe such a number, for a message."""
        low, high = (str(limit) if isinstance(limit, int) else f"{limit:g}" for limit in (self.low, self.high))
        return f"{base} from {low} to {high}"


@dataclass(frozen=True)
class PowerOfTwo(Between):
    """Limits of a whole number that is a power of two, both included."""

    def accepts(self, value: Any) -> bool:
        """Return whether a whole number is one."""
        return super().accepts(value) and value & (value - 1) == 0

    def describe(self, base: str) -> str:
        """Describe such a number, for a message."""
        return super().describe("a power of two")


@dataclass(frozen=True)
class Rising:
    """A list of numbers, none smaller than the one before."""

    def accepts(self, value: Any) -> bool:
        """Return whether a list is one."""
        return all(one <= other for one, other in pairwise(value))

    def describe(self, base: str) -> str:
        """Describe such a list, for a message."""
        return f"{base}, none smaller than the one before"


@dataclass(frozen=True)
class Unlimited:
    """A number that is only shown: it may be NaN or infinite."""

    def accepts(self, value: Any) -> bool:
        """Return True."""
        return True

    def describe(self, base: str) -> str:
        """Describe such a number, for a message."""
        return base


class JsonRecord:
    """The base of dataclasses that JSON holds as mappings of their fields: `asdict` writes, `from_json` makes them."""


AnyFloat = Annotated[float, Unlimited()]
Share = Annotated[float, Between(0, 1)]

_NUMBERS: dict[Any, tuple[type, ...]] = {int: (int, np.integer), float: (int, float, np.integer, np.floating)}
_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


def validate(value: Any, hint: Any, where: str) -> None:
    """Raise TreelabelError where a value is not what a type hint says: which value, what it is, what was expected.

    Plain `float` takes whole numbers too, and is finite and at most 1e15 either way; plain `int` has 64 bits.

    Parameters
    ----------
    value
        The value: of JSON, or of a setting.
    hint
        Literals, unions, lists, tuples, mappings, TypedDicts, JsonRecords, other classes, and `Annotated` with a limit
        of this module.
    where
        The beginning of the message, such as the file and the name of the value.

    >>> validate({"words": 0}, Mapping[str, Annotated[int, Between(1, 9)]], "model.json: learned")
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: model.json: learned['words'] is 0, expected a whole number from 1 to 9
    """
    problem = _problem(value, hint)
    if problem is not None:
        raise TreelabelError(f"{where}{problem}")


def from_json(value: Any, hint: Any) -> Any:
    """Make what a type hint says of valid JSON: JsonRecords of mappings, and tuples of lists.

    Parameters
    ----------
    value
        What `json.loads` returned for `asdict` of such an object; it has been validated.
    hint
        As for `validate`.

    Returns
    -------
    object
        Of the type of the hint.

    >>> @dataclass
    ... class Point(JsonRecord):
    ...     x: int
    >>> from_json({"x": 0}, Point | None), from_json([[1, 2], [3]], tuple[list[int], ...])
    (Point(x=0), ([1, 2], [3]))
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return from_json(value, next(member for member in arguments if is_valid(value, member)))
    if _is_record(hint) and not is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{name: from_json(value[name], inside) for name, inside in hints.items()})
    if origin is Annotated:
        return from_json(value, arguments[0])
    items = _items(value, origin, arguments)
    if items is None or origin not in (tuple, list):
        return value
    return origin(from_json(item, inside) for _, item, inside in items)


def is_valid(value: Any, hint: Any) -> bool:
    """Return whether a value is what a type hint says.

    >>> is_valid(1, float), is_valid(True, int), is_valid([1, "a"], tuple[int, str])
    (True, False, True)
    """
    return _problem(value, hint) is None


def _problem(value: Any, hint: Any) -> str | None:
    """Describe how a value departs from a hint: the path to what is wrong, what it is, what was expected."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return _problem(value, arguments[0])
    if origin in (Union, types.UnionType):
        return _union_problem(value, hint)
    if _is_record(hint) and isinstance(value, Mapping):
        return _record_problem(value, hint)
    if origin is Annotated and arguments[0] not in _NUMBERS:
        inner = _problem(value, arguments[0])
        return inner if inner is not None or arguments[1].accepts(value) else _departure(value, hint)
    items = _items(value, origin, arguments)
    if items is not None:
        problems = ((key, _problem(item, inside)) for key, item, inside in items)
        return next((f"[{key!r}]{problem}" for key, problem in problems if problem is not None), None)
    return None if _is_single(value, hint) else _departure(value, hint)


def _departure(value: Any, hint: Any) -> str:
    return f" is {reprlib.repr(value)}, expected {describe_hint(hint)}"


def _items(value: Any, origin: Any, arguments: tuple[Any, ...]) -> Iterator[tuple[Any, Any, Any]] | None:
    """Return key, value and hint of what is inside a list or mapping; None where the value is not as the hint says."""
    if origin in (dict, Mapping) and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return ((key, item, arguments[1]) for key, item in value.items())
    if origin not in (tuple, list, Sequence) or not isinstance(value, list | tuple):
        return None
    if origin is not tuple or arguments[-1] is Ellipsis:
        return ((index, item, arguments[0]) for index, item in enumerate(value))
    if len(value) != len(arguments):
        return None
    return ((index, *pair) for index, pair in enumerate(zip(value, arguments, strict=True)))


def _is_single(value: Any, hint: Any) -> bool:
    """Return whether a value that holds no others is what a hint says."""
    if get_origin(hint) is Literal:
        return any(value == each and type(value) is type(each) for each in get_args(hint))
    if get_origin(hint) is Annotated:
        base, limits = get_args(hint)
        return _is_number(value, base) and bool(limits.accepts(value))
    if hint is float:
        return _is_number(value, float) and math.fabs(value) <= LARGEST
    if hint is int:
        return _is_number(value, int) and -(2**63) <= value < 2**63
    if hint is None or hint is Any:
        return hint is Any or value is None
    return isinstance(hint, type) and not is_typeddict(hint) and isinstance(value, hint)


def _is_record(hint: Any) -> bool:
    return is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, JsonRecord))


def _is_number(value: Any, base: Any) -> bool:
    return isinstance(value, _NUMBERS[base]) and not isinstance(value, bool)


def _union_problem(value: Any, hint: Any) -> str | None:
    """Compare with each member; where the value is of one kind and only something inside is wrong, report that.

    Of several records, the one that shares most keys with the value is meant.
    """
    members = get_args(hint)
    problems = [_problem(value, member) for member in members]
    if None in problems:
        return None
    mappings = [index for index, member in enumerate(members) if _is_record(member) and isinstance(value, Mapping)]
    if mappings:
        return problems[max(mappings, key=lambda index: len(members[index].__annotations__.keys() & value.keys()))]
    inside = [problem for problem in problems if problem is not None and problem.startswith("[")]
    return inside[0] if len(inside) == 1 else _departure(value, hint)


def _record_problem(value: Mapping[Any, Any], hint: Any) -> str | None:
    hints = get_type_hints(hint, include_extras=True)
    missing = sorted(getattr(hint, "__required_keys__", hints.keys()) - value.keys())
    if missing:
        return f" lacks {missing[0]!r}"
    unknown = [key for key in value if key not in hints]
    if unknown:
        return f" has {reprlib.repr(unknown[0])}, which does not belong there"
    problems = ((key, _problem(item, hints[key])) for key, item in value.items())
    return next((f"[{key!r}]{problem}" for key, problem in problems if problem is not None), None)


def describe_hint(hint: Any) -> str:
    """Describe what a hint asks for, for a message.

    >>> describe_hint(Literal["a", "b"]), describe_hint(tuple[int, ...]), describe_hint(float | None)
    ("'a' or 'b'", 'a list', 'a number or null')
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(describe_hint, arguments))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is Annotated:
        return str(arguments[1].describe(describe_hint(arguments[0])))
    if origin is tuple and arguments[-1] is not Ellipsis:
        each = set(map(describe_hint, arguments))
        return f"a list of {len(arguments)}" + (f", each {each.pop()}" if len(each) == 1 else "")
    if origin in (tuple, list, Sequence):
        return "a list"
    if origin in (dict, Mapping) or _is_record(hint):
        return "a mapping"
    return _NAMES.get(hint) or str(getattr(hint, "__name__", hint))
