"""The one error that users are meant to see, and how values of unknown size and content are quoted in messages."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# A message is read by a person, and terminals and logs choke on megabytes.
LONGEST_MESSAGE = 2000
# Control characters can drive a terminal, direction overrides can make a name look like another, and the line and
# paragraph separators break a line. Marks that only join or separate letters (as in Persian, or in emoji) are kept.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class TreelabelError(ValueError):
    """Bad input. The message says what was found, what was expected, where, and what to do.

    The command line prints it as one sentence and exits with code 2. A message that is too long loses its middle.

    >>> raise TreelabelError("tax.tsv:3: duplicate edge 'A' -> 'B'; remove one of the two lines")
    Traceback (most recent call last):
    ...
    treelabel.core.errors.TreelabelError: tax.tsv:3: duplicate edge 'A' -> 'B'; remove one of the two lines
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shorten(message, LONGEST_MESSAGE))


def shorten(text: str, limit: int = 80) -> str:
    """Cut the middle out of a text that is too long for a message, and tell how long it was.

    Parameters
    ----------
    limit
        Its largest length, in characters.

    Returns
    -------
    str

    >>> shorten("short"), shorten("0123456789" * 10, limit=40)
    ('short', '0123456 ... (100 characters) ... 3456789')
    """
    if len(text) <= limit:
        return text
    cut = f" ... ({len(text):,} characters) ... "
    left = max(2, limit - len(cut))
    return f"{text[: (left + 1) // 2]}{cut}{text[-(left // 2) :]}"


def quote(text: object, limit: int = 80) -> str:
    r"""Quote a value for a message: shortened, and with what would disturb a terminal escaped.

    Parameters
    ----------
    text
        The value.
    limit
        The largest length, in characters.

    Returns
    -------
    str

    >>> quote("say \x1b[31m"), quote(["a", 1])
    ("'say \\x1b[31m'", "['a', 1]")
    """
    return repr(shorten(text, limit)) if isinstance(text, str) else shorten(repr(text), limit)


def printable(text: str, keep: str = "") -> str:
    r"""Escape what would disturb a terminal, as JSON does it; `keep` lists characters that may stay.

    Parameters
    ----------
    keep
        Characters that are not escaped, such as line breaks.

    Returns
    -------
    str

    >>> printable("A\x1b[2J\tB", keep="\t")
    'A\\u001b[2J\tB'
    """
    return UNPRINTABLE.sub(lambda match: match[0] if match[0] in keep else f"\\u{ord(match[0]):04x}", text)


def some(values: Sequence[str], limit: int = 5) -> str:
    """Quote the first few of many values for a message.

    Parameters
    ----------
    limit
        How many to quote.

    Returns
    -------
    str

    >>> some(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(quote(value) for value in values[:limit])
    left = len(values) - limit
    return f"{shown} and {left:,} more" if left > 0 else shown


@contextmanager
def locate_errors(where: object, note: str = "") -> Iterator[None]:
    """Begin the message of an error with the place that it is about, unless it names the place already.

    Parameters
    ----------
    where : str or Path
        The file or folder.
    note : str
        What to say between the place and the message.

    >>> with locate_errors("tax.tsv"):
    ...     raise TreelabelError("a cycle: A > B > A")
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: tax.tsv: a cycle: A > B > A
    """
    try:
        yield
    except TreelabelError as error:
        if str(where) in str(error):
            raise
        raise type(error)(f"{where}: {note}{error}") from error


@contextmanager
def require_extra(extra: str, what: str) -> Iterator[None]:
    """Turn a missing package into an error that names the extra to install.

    Parameters
    ----------
    extra : str
        The extra of treelabel that brings the package.
    what : str
        What needs it, for the message.

    >>> with require_extra("neural", "the model neural"):
    ...     import no_such_package
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: the model neural needs no_such_package: pip install "treelabel[neural]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "treelabel":
            raise
        raise TreelabelError(f'{what} needs {package}: pip install "treelabel[{extra}]"') from error
