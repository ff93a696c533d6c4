"""Amounts of time and memory as people write them: "90s", "10m", "8GB"."""

import math
import re

from treelabel.core.errors import TreelabelError, quote

SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_seconds(text: str | float, where: str = "the time") -> float:
    """Read a time: a number of seconds, or a number with s, m or h.

    Parameters
    ----------
    text : str or float
        What was written.
    where : str
        What it is, for the message.

    Returns
    -------
    float
        Seconds.

    >>> parse_seconds("10m"), parse_seconds(90)
    (600.0, 90.0)
    """
    return _parse(text, SECONDS, where, "such as 90, 90s, 10m or 2h")


def parse_bytes(text: str | float, where: str = "the memory") -> int:
    """Read an amount of memory: a number with MB or GB.

    Parameters
    ----------
    text : str or float
        What was written.
    where : str
        What it is, for the message.

    Returns
    -------
    int
        Bytes.

    >>> parse_bytes("8GB"), parse_bytes("1.5 MB")
    (8000000000, 1500000)
    """
    return int(_parse(text, BYTES, where, "such as 500MB or 8GB"))


def _parse(text: str | float, units: dict[str, float] | dict[str, int], where: str, expected: str) -> float:
    result = _AMOUNT.fullmatch(str(text)) if not isinstance(text, bool) else None
    unit = "" if result is None else result[2].lower()
    if result is None or unit not in units or not 0 < float(result[1]) * units[unit] < math.inf:
        raise TreelabelError(f"{where} is {quote(text)}, expected {expected}")
    return float(result[1]) * units[unit]


def show_seconds(seconds: float) -> str:
    """Write a time for people to read.

    >>> show_seconds(4.21), show_seconds(75), show_seconds(7330)
    ('4.2 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def show_bytes(count: float) -> str:
    """Write an amount of memory for people to read.

    >>> show_bytes(8e9), show_bytes(3.2e5)
    ('8.0 GB', '0.3 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
