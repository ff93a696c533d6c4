"""Printing what came out of files: nothing in it can drive the terminal."""

import sys
from collections.abc import Iterable

import typer

from treelabel.core.errors import printable


def echo(text: str) -> None:
    r"""Print text or JSON, with control characters escaped as JSON does it; its lines and tabs stay.

    >>> echo("a\x1b[2J")
    a\u001b[2J
    """
    typer.echo(printable(text, keep="\n\t"))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of data as they are to a pipe or a file, and on a terminal as `echo` does."""
    if sys.stdout.isatty():
        for line in lines:
            echo(line)
        return
    for line in lines:
        sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()
