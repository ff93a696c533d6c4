"""The one reader of JSON that treelabel itself wrote: model folders, hierarchies, tuned rules, score files.

Whatever is wrong with such a text is one sentence; what its values mean is for `kinds.check_kind` or the caller.
"""

import json
import stat
from pathlib import Path
from typing import Any, NoReturn

from treelabel.core.errors import TreelabelError

DEEPEST = 100
MOST_BYTES = 1 << 30


def read_json(source: str | bytes | Path, where: str, what: str = "JSON", allow_nan: bool = False) -> Any:
    """Parse JSON of treelabel's own.

    Parameters
    ----------
    source : str, bytes or Path
        The text, its UTF-8, or an ordinary file that holds it.
    where : str
        What the message begins with: the name of the file.
    what : str
        What the text should be, for the message.
    allow_nan : bool
        Whether the words NaN and Infinity are numbers here; they are no JSON.

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
        found = json.loads(text, parse_constant=None if allow_nan else _no_constant)
    except UnicodeDecodeError as error:
        _refuse(where, what, f"it is no JSON: byte {error.start + 1} is not UTF-8")
    except json.JSONDecodeError as error:
        _refuse(where, what, f"it is no JSON: {error}")
    except RecursionError:
        _refuse(where, what, f"it is nested more than {DEEPEST} levels deep")
    except ValueError as error:
        # A constant that is no JSON, or an integer of thousands of digits, which Python does not convert.
        _refuse(where, what, "a number is too long" if "digits" in str(error) else str(error))
    if _is_deeper(found, DEEPEST):
        _refuse(where, what, f"it is nested more than {DEEPEST} levels deep")
    return found


def read_ordinary(file: Path, where: str, most: int = MOST_BYTES) -> bytes:
    """Read an ordinary file as a whole; folders, pipes and devices are refused, and so is what is too large."""
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


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"it has {word}, which is no number in JSON")


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and dicts are nested deeper; level by level, as a million names stand on one."""
    inner = [value] if isinstance(value, list | dict) else []
    for _ in range(levels):
        inner = [
            each
            for holder in inner
            for each in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(each, list | dict)
        ]
        if not inner:
            return False
    return True
