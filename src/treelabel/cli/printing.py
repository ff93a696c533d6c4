"""Printing what came out of files: nothing in it can drive the terminal."""

import typer

from treelabel.core.errors import printable


def echo(text: str) -> None:
    r"""Print text or JSON, with control characters escaped as JSON does it; its lines and tabs stay.

    >>> echo("a\x1b[2J")
    a\u001b[2J
    """
    typer.echo(printable(text, keep="\n\t"))
