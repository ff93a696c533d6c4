"""Reading JSON, of treelabel's own and of unknown origin, within limits on nesting and on the digits of integers.

What the values mean is for `validation.validate` or the caller.
"""

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from treelabel.core.errors import TreelabelError
from treelabel.core.limits import Limits

MOST_BYTES = 1 << 30
# What treelabel writes is far from these.
DEEPEST = 100
OUR_LIMITS = Limits(nesting=DEEPEST)


class JsonLimitError(ValueError):
    """JSON that is beyond a limit, "nesting" or "digits"; the message says which."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


def parse_json(text: str, limits: Limits, allow_nan: bool = True) -> Any:
    """Parse JSON.

    Parameters
    ----------
    text : str
        What is malformed raises `json.JSONDecodeError`.
    limits : Limits
        What is nested deeper, or has longer integers, raises `JsonLimitError`.
    allow_nan : bool
        Whether to accept NaN and Infinity, which are not JSON; otherwise they raise ValueError.

    Returns
    -------
    Any
        Dicts, lists, strings, numbers, booleans and None. Of two equal keys the last counts.

    >>> parse_json("[[]]", Limits(nesting=1))
    Traceback (most recent call last):
    ...
    treelabel.core.json_text.JsonLimitError: JSON nested too deeply; the limit nesting is 1; if the file can be trusted,
    raise it: --limit nesting=...
    """
    constant = None if allow_nan else _refuse_constant
    try:
        value = json.loads(text, parse_int=_integer_parser(limits), parse_constant=constant)
    except RecursionError:
        raise JsonLimitError("nesting", "JSON nested too deeply to read") from None
    except ValueError as error:
        if "digits" not in str(error) or isinstance(error, json.JSONDecodeError | JsonLimitError):
            raise
        # Python's own limit: it does not convert an integer of thousands of digits.
        raise JsonLimitError("digits", _too_many_digits(limits)) from None
    # Counting brackets is quick, and only what has many of them may be deep.
    if limits.exceeds("nesting", text.count("[") + text.count("{")) and _is_deeper(value, limits.nesting or 0):
        raise JsonLimitError("nesting", f"JSON nested too deeply; {limits.hint('nesting')}")
    return value


def read_json(source: str | bytes | Path, where: str, what: str = "JSON", allow_nan: bool = False) -> Any:
    """Read JSON that treelabel itself wrote; whatever is wrong with it is one sentence.

    Parameters
    ----------
    source : str, bytes or Path
        The text, its UTF-8, or an ordinary file that holds it.
    where : str
        The name of the file, which begins the message.
    what : str
        What the text should be, for the message.
    allow_nan : bool
        Whether to accept NaN and Infinity, which are not JSON.

    Returns
    -------
    Any
        Dicts, lists, strings, numbers, booleans and None, nested at most 100 deep. Of two equal keys the last counts.

    >>> read_json(b'["\\xff"]', "rule.json", "tuned rule")
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: rule.json: damaged: no tuned rule, for it is no JSON: byte 3 is not UTF-8
    """
    raw = read_ordinary(source, where) if isinstance(source, Path) else source
    if len(raw) > MOST_BYTES:
        _refuse(where, what, f"it has {len(raw):,} bytes, the limit is {MOST_BYTES:,}")
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        return parse_json(text, OUR_LIMITS, allow_nan)
    except UnicodeDecodeError as error:
        _refuse(where, what, f"it is no JSON: byte {error.start + 1} is not UTF-8")
    except json.JSONDecodeError as error:
        _refuse(where, what, f"it is no JSON: {error}")
    except JsonLimitError as error:
        deep = f"it is nested more than {OUR_LIMITS.nesting} levels deep"
        _refuse(where, what, deep if error.limit == "nesting" else "a number is too long")
    except ValueError as error:
        _refuse(where, what, str(error))


def read_ordinary(file: Path, where: str, most: int = MOST_BYTES) -> bytes:
    """Read an ordinary file as a whole; folders, pipes and devices are refused, and so is what is too large.

    Parameters
    ----------
    where
        How messages call it.
    most
        The largest size, in bytes.

    Returns
    -------
    bytes
    """
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise TreelabelError(f"{where}: is no ordinary file, expected one that treelabel wrote")
        if status.st_size > most:
            raise TreelabelError(f"{where}: has {status.st_size:,} bytes, the limit is {most:,}")
        return file.read_bytes()
    except OSError as error:
        raise TreelabelError(f"{where}: cannot be read: {error.strerror}") from error


def _refuse(where: str, what: str, why: str) -> NoReturn:
    raise TreelabelError(f"{where}: damaged: no {what}, for {why}") from None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"it has {word}, which is no number in JSON")


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested deeper; level by level, as a level may hold a million names."""
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(levels):
        below = (each.values() if isinstance(each, dict) else each for each in level)
        level = [child for children in below for child in children if isinstance(child, list | dict)]
        if not level:
            return False
    return True


def _integer_parser(limits: Limits) -> Callable[[str], int | str] | None:
    """Choose how to parse integers: as Python does it if its own limit is the one asked for."""
    python_limit = sys.get_int_max_str_digits() or sys.maxsize
    if limits.digits == python_limit:
        return None

    def parse(text: str) -> int | str:
        if limits.exceeds("digits", len(text)):
            raise JsonLimitError("digits", _too_many_digits(limits))
        return int(text) if len(text) <= python_limit else text

    return parse


def _too_many_digits(limits: Limits) -> str:
    return f"not a value that can be read: Exceeds the digits that an integer may have; {limits.hint('digits')}"


def number_of(value: Any) -> float | None:
    """Return a number as JSON or a cell of a table has it; None where there is none.

    >>> number_of("0.5"), number_of(1), number_of(None), number_of(True), number_of("x")
    (0.5, 1.0, None, None, None)
    """
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
