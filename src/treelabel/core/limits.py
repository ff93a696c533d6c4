"""Limits on what is read, so that a file made to fill the memory is refused before it does."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from treelabel.core.errors import TreelabelError, quote

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
NO_LIMIT = "none"


@dataclass(frozen=True)
class Limits:
    """Limits on the resources that reading a file may take; None lifts a limit.

    Parameters
    ----------
    line : bytes of one line, or characters of one CSV cell. Real texts are below 10 MB, and JSON may spend six bytes on
        a letter.
    nesting : how deep lists and objects in JSON, or elements in RDF/XML, may be nested. Python itself stops at about
        900.

    >>> Limits(line=200_000_000).line, Limits(ratio=None).ratio
    (200000000, None)
    """

    line: int | None = 64_000_000
    ratio: float | None = 100
    floor: int | None = 32_000_000
    whole: int | None = 1_000_000_000
    nesting: int | None = 500
    digits: int | None = 4300
    labels: int | None = 10_000_000
    columns: int | None = 10_000
    literal: int | None = 100_000

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise TreelabelError(f"the limit {entry.name} is {value!r}, expected a number above 0 or None")

    def exceeds(self, name: str, amount: float) -> bool:
        """Return whether an amount is beyond a limit.

        Parameters
        ----------
        name
            The name of the limit.
        amount
            What is compared with it.

        Returns
        -------
        bool
            False where the limit is None.
        """
        most: float | None = getattr(self, name)
        return most is not None and amount > most

    def hint(self, name: str) -> str:
        """Return the end of a message: the limit, its value, and how to raise it."""
        return f"the limit {name} is {getattr(self, name):,}; if the file can be trusted, raise it: --limit {name}=..."


DEFAULT_LIMITS = Limits()


def parse_limits(texts: Sequence[str]) -> Limits:
    """Read limits as the command line has them: name=number, with a unit if need be; "none" lifts one, or all.

    >>> parse_limits(["line=200MB", "ratio=none"])
    Limits(line=200000000, ratio=None, floor=32000000, whole=1000000000, nesting=500, digits=4300, labels=10000000,
           columns=10000, literal=100000)
    """
    names = [entry.name for entry in fields(Limits)]
    limits = DEFAULT_LIMITS
    for text in texts:
        name, _, value = text.partition("=")
        if text == NO_LIMIT:
            limits = Limits(**dict.fromkeys(names))
        elif name in names:
            limits = replace(limits, **{name: _number(name, value)})
        else:
            raise TreelabelError(
                f"--limit is {quote(text)}, expected none or name=number; the names are {', '.join(names)}"
            )
    return limits


def _number(name: str, text: str) -> int | None:
    if text == NO_LIMIT:
        return None
    digits = text.rstrip("BbGgIiKkMm ")
    unit = text[len(digits) :].strip().lower()
    if not digits.isdecimal() or len(digits) > 18 or unit not in UNITS or int(digits) == 0:
        raise TreelabelError(
            f"--limit {name} is {quote(text)}, expected a number above 0 such as 500 or 200MB, or none"
        )
    return int(digits) * UNITS[unit]
