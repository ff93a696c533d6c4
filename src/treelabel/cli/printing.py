"""Printing what came out of files: nothing in it can drive the terminal."""

import json
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
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


def print_text(text: str) -> None:
    """Print lines for people, none wider than the terminal or COLUMNS; lines in a pipe or a file stay whole."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal():
        echo(fill(text, int(columns)))
    else:
        echo(fill(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)


def fill(text: str, width: int) -> str:
    """Break lines that are too wide, and indent what follows; a command at the end of a line stays in one piece.

    >>> print(fill("note: 3 labels have few texts: treelabel convert FILE OUT", 40))
    note: 3 labels have few texts:
      treelabel convert FILE OUT
    >>> print(fill("  spelled  1-9: 8 (13%), 10-99: 44 (72%)", 30))
      spelled  1-9: 8 (13%),
        10-99: 44 (72%)
    """
    return "\n".join(line if len(line) <= width else _fill_line(line, width) for line in text.split("\n"))


def _fill_line(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip(" "))]
    prose, *commands = re.split(r"(?<=[:,]) (?=treelabel )", line, maxsplit=1)
    return "\n".join([*_wrap(prose, width, indent + "  "), *(f"{indent}  {command}" for command in commands)])


def _wrap(line: str, width: int, indent: str, head: str = "") -> list[str]:
    """Break a line, behind commas if no piece between them is too wide."""
    wrapper = textwrap.TextWrapper(max(width, len(indent) + 20), head, indent)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    pieces = line.split(", ")
    if len(pieces) > 2 and max(map(len, pieces)) + len(indent) < width / 2:
        # What stands between commas is kept together by a mark that is no space and no printable character.
        line = ", ".join(piece.replace(" ", "\x1f") for piece in pieces)
    return [each.replace("\x1f", " ") for each in wrapper.wrap(line)]


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the cells of a table with a heading; columns that the terminal has no room for go below, as pandas does it.

    The first column, the names of the rows, is repeated there.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room, blocks, used = shutil.get_terminal_size().columns, [[0]], widths[0]
    for column, width in enumerate(widths[1:], 1):
        if used + 2 + width > room and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(column)
        used += 2 + width
    lines: list[str] = []
    for block in blocks:
        table = ["  ".join(f"{row[column]:<{widths[column]}}" for column in block).rstrip() for row in rows]
        table.insert(1, "-" * max(map(len, table)))
        lines += ([""] if lines else []) + table
    return lines


def print_json(value: Any) -> None:
    """Print JSON for a program to read."""
    echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_result(values: dict[str, Any], text: str, json: bool, next_command: str = "") -> None:
    """Print what a command did: JSON for a program, or lines for people and the command that may come next."""
    if json:
        print_json(values)
        return
    print_text(text)
    if next_command and not is_quiet():
        typer.echo(printable(f"next: {next_command}"), err=True)


def command_line(*words: str | Path) -> str:
    """Return a command of treelabel as a shell takes it, where names of files may have blanks or begin with a dash.

    >>> command_line("predict", Path("my model"), Path("-new.csv"), "-o", "OUT")
    "treelabel predict 'my model' ./-new.csv -o OUT"
    """

    def shown(word: str | Path) -> str:
        is_dashed = isinstance(word, Path) and str(word).startswith("-") and str(word) != "-"
        return f"./{word}" if is_dashed else str(word)

    return shlex.join(["treelabel", *map(shown, words)])


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
    lines = _wrap(text, shutil.get_terminal_size().columns, " " * indent, f"{head:<{indent}}")
    echo("\n".join(lines) or head)


def print_rows(values: dict[str, Any], rows: list[tuple[str, str]], as_json: bool) -> None:
    """Print facts, each with its name, or the values of them as JSON."""
    if as_json:
        print_json(values)
        return
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print_entry(name, printable(value), width + 2)


def print_findings(findings: "list[Finding]") -> None:
    """Print every finding about data with its examples and what mends it."""
    if not findings:
        echo("\nnothing looks wrong")
    for finding in findings:
        print_text(printable(f"\n{'serious' if finding.is_serious else 'note'}: {finding.message}", keep="\n"))
        for example in finding.examples:
            print_text(printable(f"  {example}"))
        print_text(printable(f"  -> {finding.remedy}"))


def print_serious(train: Path, data: "Dataset", valid: "Dataset | None") -> None:
    """Print in one line of standard error what is seriously wrong with training data."""
    from treelabel.data.checks.registry import find_problems

    findings = find_problems(data)
    if valid is not None:
        findings = [*(each for each in find_problems(valid, data) if each.kind == "shared_texts"), *findings]
    summary = "; ".join(finding.message for finding in findings if finding.is_serious)
    if summary:
        print_note(f"{summary}; treelabel inspect {train} says more")
