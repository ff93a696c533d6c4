"""The command audit: labels of training data that look wrong."""

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from treelabel.cli.data import RawOption
from treelabel.cli.models import parse_setting
from treelabel.cli.options import (
    ForceOption,
    JsonOption,
    ReadArguments,
    require_file_name,
    require_new,
    require_other_file,
    with_read_options,
)
from treelabel.cli.printing import echo

# Suspects that are printed where no file is asked for.
SHOWN = 20


@with_read_options
def audit(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Data file with texts and labels.")],
    read: ReadArguments,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; its ending says the format (default: print).")
    ] = None,
    model: Annotated[str, typer.Option(help="Model; treelabel models lists them.")] = "linear",
    set: Annotated[list[str] | None, typer.Option(help="A setting of the model, as C=1 (repeat).")] = None,  # noqa: A002
    folds: Annotated[int, typer.Option(min=2, help="How often a model learns; each time, one fold is held out.")] = 5,
    top: Annotated[
        int | None, typer.Option(min=1, help="List this many (default: all that are as likely wrong as right).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    force: ForceOption = False,
    raw: RawOption = False,
    json: JsonOption = False,
) -> None:
    """List the labels of training data that look wrong, the most doubtful first.

    Every document is judged by a model that had not learned from it, nor from its duplicates or its group. The score is
    the probability that the label is wrong; beside it stand the label that the model would give, both probabilities,
    and why: the suggested label is a sibling, near (in the same branch), far, deeper or higher; a label is extra or
    missing; or a document with the same or nearly the same text has other labels.

    \b
    Examples:
      treelabel audit train.csv -o suspects.csv
      treelabel audit train.jsonl -o suspects.jsonl --top 200
      treelabel audit train.csv --group customer --model bag --folds 10
    """
    from treelabel.data.write import write
    from treelabel.operations.audit import audit as find

    if output is not None:
        require_other_file(output, train)
        require_file_name(output)
        require_new(output, force)
        _require_format(output)
    settings = dict(parse_setting(text) for text in set or [])
    result = find(read.read(train), model, settings, folds, seed)
    rows = result.rows(top)
    if output is not None:
        write(result.table(top), output, taxonomy=False, escape_formulas=not raw)
    if json:
        about = {"model": model, "folds": result.folds, "documents": len(result.data), "doubted": result.doubted}
        listed = {"suspects": rows} if output is None else {"written": str(output), "listed": len(rows)}
        echo(jsonlib.dumps(about | listed, ensure_ascii=False, indent=2))
        return
    if output is None:
        _print(rows[:SHOWN])
    counts = f"{result.doubted:,} labels of {len(result.data):,} documents look wrong to {model} ({result.folds} folds)"
    if output is not None:
        echo(f"{output}: the {len(rows):,} most doubtful; {counts}")
    else:
        more = f"; {len(rows) - SHOWN:,} more with -o suspects.csv" if len(rows) > SHOWN else ""
        echo(f"{counts}{more}")


def _require_format(output: Path) -> None:
    """Refuse an ending that has no place for texts, before minutes of learning."""
    from treelabel.core.errors import TreelabelError
    from treelabel.data.io.tables import format_of

    entry = format_of(output)
    if not {"texts", "columns"} <= entry.holds:
        raise TreelabelError(f"{output}: the format {entry.name} has no place for what is found; choose .csv or .jsonl")


def _print(rows: list[dict[str, Any]]) -> None:
    from treelabel.core.errors import printable, shorten

    for row in rows:
        where = f"id {row['id']}" if row["line"] is None else f"line {row['line']}"
        given, suggested = (f"{row[name]} ({row[f'p_{name}']:.2f})" if row[name] else "none" for name in _BOTH)
        copy = f", id {row['duplicate']}" if row["duplicate"] else ""
        echo(printable(f"{row['score']:.2f}  {where}: {given} -> {suggested} [{row['reason']}{copy}]"))
        echo(printable(f"      {shorten(' '.join(row['text'].split()), 90)}"))


_BOTH = ("given", "suggested")
