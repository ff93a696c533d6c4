"""A progress bar on a terminal or in a notebook, and nothing in a pipe, or where quiet is asked for."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

from treelabel.core.errors import printable

# Set by --quiet, for child processes too.
QUIET = "TREELABEL_QUIET"
# Seconds between two changes of a bar in a notebook, each of which is a message to the browser.
PAUSE = 0.2


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

    `show=None` shows the bar only where standard error is a terminal, or in a notebook. It goes away at the end.

    Parameters
    ----------
    title
        What is being done.
    total
        The amount to do; None where nobody knows.
    show
        Whether to show the bar; None asks whether anybody looks: a terminal or a notebook, and nobody wants quiet.

    Yields
    ------
    callable
        Takes the amount done so far, and a note.

    >>> with progress_bar("reading", 100, show=False) as done:
    ...     done(50)
    ...     done(80, "loss 0.25")
    """
    notebook = _notebook_display()
    watched = notebook is not None or sys.stderr.isatty()
    if not (watched and not is_quiet() if show is None else show):
        yield lambda done, note="": None
        return
    if notebook is not None:
        with _notebook_bar(notebook, title, total) as done:
            yield done
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


def _notebook_display() -> Any:
    """Return IPython's `display` in the kernel of a notebook; None elsewhere. Nothing is imported to find out."""
    package = sys.modules.get("IPython")
    shell = None if package is None else package.get_ipython()
    return None if getattr(shell, "kernel", None) is None else sys.modules["IPython.display"].display


@contextmanager
def _notebook_bar(display: Any, title: str, total: int | None) -> Iterator[Done]:
    """Show one bar under a cell, change it in place, and leave nothing."""
    handle = display(_bar(title, 0, total, ""), raw=True, display_id=True)
    last = time.monotonic()

    def show(done: int, note: str = "") -> None:
        nonlocal last
        if time.monotonic() - last >= PAUSE:
            handle.update(_bar(title, done, total, note), raw=True)
            last = time.monotonic()

    try:
        yield show
    finally:
        handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _bar(title: str, done: int, total: int | None, note: str) -> dict[str, str]:
    """Return a bar as notebooks take it, in HTML and as text.

    >>> _bar("reading", 50, 200, "")["text/plain"], _bar("reading", 50, None, "a note")["text/plain"]
    ('reading 25%', 'reading 50 a note')
    """
    share = min(1.0, done / total) if total else None
    amount = f"{done:,}" if share is None else f"{share:.0%}"
    text = printable(" ".join(filter(None, (title, amount, note))))
    value = "" if share is None else f' value="{share:.4f}"'
    return {"text/html": f"<progress{value}></progress> {escape(text)}", "text/plain": text}
