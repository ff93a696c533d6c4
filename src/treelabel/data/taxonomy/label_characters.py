"""Which characters the name of a label may not have in a file.

Control characters can drive a terminal, direction overrides make a name look like another, and tabs and line breaks
fit into no table; no name of a real label has them, and who puts them there is careless or means harm. Line and
paragraph separators (U+2028, U+2029) are let through: they come with texts from the web, and do nothing.

A hierarchy that was made in Python may have any names, and so may what stores such hierarchies as they are: treelabel's
own JSON, Parquet, models and scores. Wherever names are printed, `errors.printable` or a quotation escapes them.
"""

import re
from collections.abc import Iterable

from treelabel.core.errors import TreelabelError, quote

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def unprintable(names: Iterable[str]) -> str | None:
    r"""Describe the first name that has a character it may not have; None if all are fine.

    >>> unprintable(["A", "B\x1b[2J"])
    "the label 'B\\x1b[2J' has the control character U+001B, which no name in a file may have; remove it"
    """
    for name in names:
        match = UNPRINTABLE.search(name)
        if match is not None:
            kind = "direction override" if match[0] > "\x9f" else "control character"
            mark = f"the {kind} U+{ord(match[0]):04X}"
            return f"the label {quote(name)} has {mark}, which no name in a file may have; remove it"
    return None


def require_printable(names: Iterable[str], where: object) -> None:
    """Refuse names with characters that no name in a file may have; `where` they stand goes before the message."""
    problem = unprintable(names)
    if problem is not None:
        raise TreelabelError(f"{where}: {problem}")
