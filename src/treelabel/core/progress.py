"""A progress bar on a terminal, and nothing in a pipe, or where quiet is asked for."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

# Set by --quiet, for child processes too.
QUIET = "TREELABEL_QUIET"


def is_quiet() -> bool:
    """Return whether only results and errors are wanted: no notes, and no progress bar that nobody asked for."""
    return bool(os.environ.get(QUIET))


class Done(Protocol):
    """Told how much is done so far, and what to show beside the bar, such as the loss."""

    def __call__(self, done: int, note: str = "", /) -> None:
        """Show it."""


@contextmanager
def progress_bar(title: str, total: int | None, show: bool | None = None) -> Iterator[Done]:
    """Show how much of a total is done; the block gets a function to call with the amount done so far, and a note.

    `show=None` shows the bar only where standard error is a terminal.

    Parameters
    ----------
    title
        What is being done.
    total
        The amount to do; None where nobody knows.
    show
        Whether to show the bar; None asks whether standard error is a terminal.

    Yields
    ------
    callable
        Takes the amount done so far, and a note.

    >>> with progress_bar("reading", 100, show=False) as done:
    ...     done(50)
    ...     done(80, "loss 0.25")
    """
    if not (sys.stderr.isatty() and not is_quiet() if show is None else show):
        yield lambda done, note="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note="": bar.update(task, completed=done, note=note)
