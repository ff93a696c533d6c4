"""JSON of unknown origin: parsed within limits on nesting and on the digits of integers."""

import json
import sys
from collections.abc import Callable
from typing import Any

from treelabel.core.limits import Limits


class JsonLimitError(ValueError):
    """JSON that is beyond a limit; the message says which."""


def parse_json(text: str, limits: Limits) -> Any:
    """Parse JSON; what is malformed is a `json.JSONDecodeError`, what is beyond a limit a `JsonLimitError`.

    >>> parse_json("[[]]", Limits(nesting=1))
    Traceback (most recent call last):
    ...
    treelabel.data.json_text.JsonLimitError: JSON nested too deeply; the limit nesting is 1; if the file can be trusted,
    raise it: --limit nesting=...
    """
    try:
        value = json.loads(text, parse_int=_integer_parser(limits))
    except (json.JSONDecodeError, JsonLimitError):
        raise
    except RecursionError:
        raise JsonLimitError("JSON nested too deeply to read") from None
    except ValueError:
        # The one other thing that Python refuses.
        raise JsonLimitError(_too_many_digits(limits)) from None
    # Counting brackets is quick, and only what has many of them may be deep.
    if limits.exceeded("nesting", text.count("[") + text.count("{")) and _is_deeper(value, limits.nesting or 0):
        raise JsonLimitError(f"JSON nested too deeply; {limits.hint('nesting')}")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested in more than so many levels."""
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(levels):
        below = (each.values() if isinstance(each, dict) else each for each in level)
        level = [child for children in below for child in children if isinstance(child, list | dict)]
        if not level:
            return False
    return True


def _integer_parser(limits: Limits) -> Callable[[str], int | str] | None:
    """Choose how to parse integers: as Python does it if its own limit is the one asked for."""
    own = sys.get_int_max_str_digits() or sys.maxsize
    if limits.digits == own:
        return None

    def parse(text: str) -> int | str:
        if limits.exceeded("digits", len(text)):
            raise JsonLimitError(_too_many_digits(limits))
        return int(text) if len(text) <= own else text

    return parse


def _too_many_digits(limits: Limits) -> str:
    return f"not a value that can be read: Exceeds the digits that an integer may have; {limits.hint('digits')}"
