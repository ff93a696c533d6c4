"""Checks of single values in the spec of a study: names, numbers, seeds and limits."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from treelabel.core.errors import UNPRINTABLE, TreelabelError, quoted
from treelabel.core.registry import suggestion
from treelabel.experiment.units import parse_bytes, parse_seconds

# Signs that have a meaning beside names: grid[C=1], --systems a,b.
NOT_IN_NAMES = "[],"


def check_names(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse names that are not known, and suggest the nearest.

    Parameters
    ----------
    given, known : iterable of str
        The names that were found, and those that mean something.
    where : str
        The place in the spec, for the message.
    """
    names = list(known)
    for name in given:
        if name not in names:
            shown = [each for each in names if each not in ("path", "text")]
            raise TreelabelError(
                f"{where or 'the spec'} has {quoted(name)}, which means nothing here; {suggestion(name, shown)}"
            )


def check_name(name: str, where: str) -> None:
    """Refuse the name of a data set or system that no command line and no table could show.

    Parameters
    ----------
    name : str
        The name.
    where : str
        The place in the spec, for the message.
    """
    if not name.strip() or UNPRINTABLE.search(name) or any(sign in name for sign in NOT_IN_NAMES):
        raise TreelabelError(
            f"{where} has the name {quoted(name)}; expected letters, digits and signs, but no brackets and commas"
        )


def check_plain(value: Any, where: str) -> None:
    """Refuse values that TOML has and JSON has not: dates and times, and numbers that are not finite.

    Parameters
    ----------
    value : Any
        A value of the spec.
    where : str
        The place in the spec, for the message.
    """
    if isinstance(value, Mapping):
        for name, each in value.items():
            check_plain(each, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for at, each in enumerate(value):
            check_plain(each, f"{where}[{at}]")
    elif not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise TreelabelError(f"{where} is {value}, expected text, a finite number, true or false")


def check_published(numbers: Any, count: int, where: str) -> None:
    """Refuse published numbers that are no list, or more than there are columns.

    Parameters
    ----------
    numbers : Any
        What the spec has.
    count : int
        The number of columns.
    where : str
        The place in the spec, for the message.
    """
    if not isinstance(numbers, list | tuple) or len(numbers) > count:
        raise TreelabelError(f"{where} is {quoted(numbers)}, expected at most {count} numbers, one for each column")


def check_seeds(seeds: int | tuple[int, ...] | None) -> None:
    """Refuse a list of seeds that is empty, or has one twice."""
    if isinstance(seeds, tuple) and (not seeds or len(set(seeds)) < len(seeds)):
        raise TreelabelError(f"seeds is {list(seeds)}, expected at least one, and none twice")


def check_limits(time_limit: str | float | None, memory_limit: str | float | None) -> None:
    """Refuse limits that are no amounts.

    Parameters
    ----------
    time_limit : str, float or None
        A time, such as "10m".
    memory_limit : str, float or None
        An amount of memory, such as "8GB".
    """
    if time_limit is not None:
        parse_seconds(time_limit, "time_limit")
    if memory_limit is not None:
        parse_bytes(memory_limit, "memory_limit")
