"""Values against type hints: what is accepted, and messages that name the value, what it is, and what was expected."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import pytest

from treelabel.core.errors import TreelabelError
from treelabel.core.validation import AnyFloat, Between, PowerOfTwo, Rising, is_valid, validate


class Shape(TypedDict):
    words: Annotated[int, Between(1, 9)]
    kind: Literal["a", "b"] | None


class Line(TypedDict):
    ends: tuple[float, float]
    name: NotRequired[str]


Range = Annotated[tuple[Annotated[int, Between(0, 9)], int], Rising()]
NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int),
        (np.int32(1), int),
        (1, float),
        (0.5, float),
        (np.float32(0.5), float),
        ("x", str | None),
        (None, str | None),
        (None, None),
        (object(), Any),
        ([1, 2], tuple[int, int]),
        ([], tuple[int, ...]),
        ((1, 2), list[int]),
        ([3, 3], Range),
        (8, Annotated[int, PowerOfTwo(2, 16)]),
        (NAN, AnyFloat),
        (float("inf"), Annotated[float, Between(0, float("inf"))]),
        ({"words": 2, "kind": None}, Shape),
        ({"ends": [0, 1]}, Shape | Line),
        ({"a": [1.5]}, dict[str, list[float]]),
    ],
)
def test_what_a_hint_says_is_accepted(value: Any, hint: Any) -> None:
    assert is_valid(value, hint)
    validate(value, hint, "x")


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (True, int, "x is True, expected a whole number"),
        (1.0, int, "x is 1.0, expected a whole number"),
        (2**63, int, "x is 9223372036854775808, expected a whole number"),
        (NAN, float, "x is nan, expected a number"),
        (1e300, float, "x is 1e+300, expected a number"),
        ("1", float | None, "x is '1', expected a number or null"),
        (NAN, Annotated[float, Between(0, 0.5)], "x is nan, expected a number from 0 to 0.5"),
        (6, Annotated[int, PowerOfTwo(2, 16)], "x is 6, expected a power of two from 2 to 16"),
        ("a", Annotated[int, PowerOfTwo(2, 16)], "x is 'a', expected a power of two from 2 to 16"),
        ("a", AnyFloat, "x is 'a', expected a number"),
        ([3, 2], Range, "x is [3, 2], expected a list of 2, none smaller than the one before"),
        ([10, 20], Range, "x[0] is 10, expected a whole number from 0 to 9"),
        ([1], tuple[int, int], "x is [1], expected a list of 2, each a whole number"),
        ([1, "a"], tuple[int, ...], "x[1] is 'a', expected a whole number"),
        ("ab", list[str], "x is 'ab', expected a list"),
        ({1: 2}, dict[str, int], "x is {1: 2}, expected a mapping"),
        ({"words": 0, "kind": None}, Shape, "x['words'] is 0, expected a whole number from 1 to 9"),
        ({"words": 1}, Shape, "x lacks 'kind'"),
        ({"words": 1, "kind": "c"}, Shape, "x['kind'] is 'c', expected 'a' or 'b' or null"),
        ({"words": 1, "kind": "a", "more": 1}, Shape, "x has 'more', which does not belong there"),
        ([], Shape, "x is [], expected a mapping"),
        ({"ends": [0, "q"]}, Shape | Line, "x['ends'][1] is 'q', expected a number"),
        ({"ends": [0, 1], "name": 1}, Line | None, "x['name'] is 1, expected text"),
        ({"a": {"ends": [NAN, 1]}}, Mapping[str, Line], "x['a']['ends'][0] is nan, expected a number"),
        ([1, "q"], str | list[int], "x[1] is 'q', expected a whole number"),
        ("a" * 99, int, "x is 'aaaaaaaaaaaa...aaaaaaaaaaaaa', expected a whole number"),
    ],
)
def test_a_message_says_which_value_is_wrong_and_what_was_expected(value: Any, hint: Any, message: str) -> None:
    assert not is_valid(value, hint)
    with pytest.raises(TreelabelError) as error:
        validate(value, hint, "x")
    assert str(error.value) == message
