"""Printing what came out of files: nothing in it can drive the terminal."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from treelabel.core.errors import printable
from treelabel.core.progress import is_quiet

if TYPE_CHECKING:
    from treelabel.data.checks.finding import Finding
    from treelabel.data.dataset import Dataset


def echo(text: str) -> None:
    r"""Print text or JSON, with control characters escaped as JSON does it; its lines and tabs stay.

    >>> echo("a\x1b[2J")
    a\u001b[2J
    """
    typer.echo(printable(text, keep="\n\t"))


def print_json(value: Any) -> None:
    """Print JSON for a program to read."""
    echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_result(values: dict[str, Any], text: str, json: bool, next_command: str = "") -> None:
    """Print what a command did: JSON for a program, or lines for people and the command that may come next."""
    if json:
        print_json(values)
        return
    echo(text)
    if next_command and not is_quiet():
        typer.echo(printable(f"next: {next_command}"), err=True)


def print_note(message: str) -> None:
    """Print what a user should know, in one line of standard error."""
    if not is_quiet():
        typer.echo(printable(f"treelabel: note: {message}"), err=True)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of data as they are to a pipe or a file, and on a terminal as `echo` does."""
    if sys.stdout.isatty():
        for line in lines:
            echo(line)
        return
    for line in lines:
        sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()


def print_entry(head: str, text: str, indent: int) -> None:
    """Print a name and what is said of it, in lines as wide as the terminal, all but the first indented.

    Standard output that is no terminal has the columns that COLUMNS says, or 80.
    """
    width = max(shutil.get_terminal_size().columns, indent + 20)
    wrapper = textwrap.TextWrapper(width, f"{head:<{indent}}", " " * indent)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    echo("\n".join(wrapper.wrap(text)) or head)


def print_findings(findings: "list[Finding]") -> None:
    """Print every finding about data with its examples and what mends it."""
    if not findings:
        echo("\nnothing looks wrong")
    for finding in findings:
        echo(printable(f"\n{'serious' if finding.is_serious else 'note'}: {finding.message}", keep="\n"))
        for example in finding.examples:
            echo(printable(f"  {example}"))
        echo(printable(f"  -> {finding.remedy}"))


def print_serious(train: Path, data: "Dataset", valid: "Dataset | None") -> None:
    """Print in one line of standard error what is seriously wrong with training data."""
    from treelabel.data.checks.registry import find_problems

    findings = find_problems(data)
    if valid is not None:
        findings = [*(each for each in find_problems(valid, data) if each.kind == "shared_texts"), *findings]
    summary = "; ".join(finding.message for finding in findings if finding.is_serious)
    if summary:
        print_note(f"{summary}; treelabel inspect {train} says more")
