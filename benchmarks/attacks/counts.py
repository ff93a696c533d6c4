"""What an attack counts: how much was tried, and how often each thing happened that must never happen."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

# So many examples of each finding are printed below the table.
EXAMPLES = 5


@dataclass
class Counts:
    """The counts of one attack.

    Parameters
    ----------
    name
        The attack.
    zeros
        What must not happen, and the table shows even when it did not.
    """

    name: str
    zeros: Iterable[str] = ()
    tried: dict[str, int | str] = field(default_factory=dict)
    found: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.found = {what: [] for what in self.zeros}

    def add(self, what: str, example: str) -> None:
        """Count something that must not happen, with what is needed to see it again."""
        self.found.setdefault(what, []).append(example)

    def more(self, what: str, count: int = 1) -> None:
        """Count something that was tried, or that is good to know."""
        before = self.tried.get(what, 0)
        assert isinstance(before, int)
        self.tried[what] = before + count

    @property
    def is_clean(self) -> bool:
        """Whether all required zeros are zero."""
        return not any(self.found.values())


def say(message: str) -> None:
    """Report progress on stderr."""
    print(message, file=sys.stderr, flush=True)


def report(attacks: list[Counts]) -> bool:
    """Print all counts as one table, then examples of what was found; return whether all required zeros are zero."""
    table = Table(title="Torture", title_justify="left")
    for column in ("attack", "what", "count", "required", ""):
        table.add_column(column, justify="right" if column in ("count", "required") else "left")
    for attack in attacks:
        table.add_section()
        label = f"{attack.name} ({attack.seconds:,.0f} s)"
        for what, count in attack.tried.items():
            table.add_row(label, what, f"{count:,}" if isinstance(count, int) else count, "", "")
            label = ""
        for what, examples in attack.found.items():
            table.add_row(label, what, f"{len(examples):,}", "0", "FOUND" if examples else "ok")
            label = ""
    console = Console(width=120 if not sys.stdout.isatty() else None, highlight=False)
    console.print(table)
    for attack in attacks:
        for what, examples in attack.found.items():
            for example in examples[:EXAMPLES]:
                console.print(f"{attack.name}: {what}: {example}", markup=False, soft_wrap=True)
            if len(examples) > EXAMPLES:
                console.print(f"{attack.name}: {what}: and {len(examples) - EXAMPLES:,} more")
    return all(attack.is_clean for attack in attacks)
