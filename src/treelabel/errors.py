"""The one kind of error that is the user's to mend."""

from collections.abc import Iterator
from contextlib import contextmanager


class TreelabelError(ValueError):
    """Bad input: the message says what was found, what was expected, where, and what to do.

    The command line prints it as one sentence and exits with code 2.

    >>> raise TreelabelError("tax.tsv:3: duplicate edge 'A' -> 'B'; remove one of the two lines")
    Traceback (most recent call last):
    ...
    treelabel.errors.TreelabelError: tax.tsv:3: duplicate edge 'A' -> 'B'; remove one of the two lines
    """


def some(values: list[str] | tuple[str, ...], limit: int = 5) -> str:
    """Quote the first few of many values for a message.

    >>> some(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(value) for value in values[:limit])
    left = len(values) - limit
    return f"{shown} and {left:,} more" if left > 0 else shown


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Say which extra to install where a package is missing.

    >>> with needing("neural", "the model neural"):
    ...     import no_such_package
    Traceback (most recent call last):
    treelabel.errors.TreelabelError: the model neural needs no_such_package: pip install "treelabel[neural]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "treelabel":
            raise
        raise TreelabelError(f'{what} needs {package}: pip install "treelabel[{extra}]"') from error
