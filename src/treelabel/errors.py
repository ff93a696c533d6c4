"""The one kind of error that is the user's to mend."""


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
