"""Which characters the name of a label may not have in a file.

Control characters can drive a terminal, direction overrides make a name look like another, and tabs and line breaks
fit into no table; no name of a real label has them, and who puts them there is careless or means harm. Line and
paragraph separators (U+2028, U+2029) are let through: they come with texts from the web, and do nothing.

A hierarchy that was made in Python may have any names, and so may what stores such hierarchies as they are: treelabel's
own JSON, Parquet, models and scores. Wherever names are printed, `errors.printable` or a quotation escapes them.
"""

import re
from collections.abc import Iterable

from treelabel.core.errors import quote

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def unprintable(names: Iterable[str]) -> str | None:
    r"""Describe the first name that has a character it may not have; None if all are fine.

    >>> unprintable(["A", "B\x1b[2J"])
    "the label 'B\\x1b[2J' has the control character U+001B, which no name in a file may have; remove it"
    """
    for name in names:
        found = UNPRINTABLE.search(name)
        if found is not None:
            kind = "direction override" if found[0] > "\x9f" else "control character"
            mark = f"the {kind} U+{ord(found[0]):04X}"
            return f"the label {quote(name)} has {mark}, which no name in a file may have; remove it"
    return None
