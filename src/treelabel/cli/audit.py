"""The command audit: labels of training data that look wrong."""

from pathlib import Path
from typing import Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.models import parse_settings
from treelabel.cli.printing import print_json, print_text
from treelabel.core.errors import TreelabelError, printable, shorten

# Suspects that are printed where no file is asked for.
SHOWN = 20


@o.with_read_options
def audit(
    train: o.TrainArgument,
    read: o.ReadArguments,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; its ending says the format (default: print).")
    ] = None,
    model: o.ModelOption = "linear",
    set: o.SetOption = None,  # noqa: A002
    cv: Annotated[int, typer.Option(min=2, help="How often a model learns; each time, one fold is held out.")] = 5,
    top: Annotated[
        int | None, typer.Option(min=1, help="List this many (default: all that are as likely wrong as right).")
    ] = None,
    seed: o.SeedOption = 0,
    force: o.ForceOption = False,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """List the labels of training data that look wrong, the most doubtful first.

    Every document is judged by a model that did not learn from it, nor from its duplicates or its group. The list has
    the probability that the label is wrong, the label that the model suggests, both probabilities, and the reason: the
    suggested label is a sibling, near (in the same branch), far, deeper or higher; a label is extra or missing; or a
    document with the same or nearly the same text has other labels.

    \b
    Examples:
      treelabel audit train.csv -o suspects.csv
      treelabel audit train.jsonl -o suspects.jsonl --top 200
      treelabel audit train.csv --group customer --model bag --cv 10
    """
    from treelabel.data.io.tables import format_of
    from treelabel.data.write import write
    from treelabel.operations.audit import audit as find

    o.check_output(output, force, train)
    if output is not None and not {"texts", "columns"} <= (entry := format_of(output)).holds:
        raise TreelabelError(f"{output}: the format {entry.name} has no place for what is found; choose .csv or .jsonl")
    result = find(read.read(train), model, parse_settings(set), cv, seed)
    rows = result.rows(top)
    if output is not None:
        write(result.table(top), output, taxonomy=False, escape_formulas=not raw)
    if json:
        about = {"model": model, "folds": result.folds, "documents": len(result.data), "doubted": result.doubts}
        print_json(about | ({"suspects": rows} if output is None else {"written": str(output), "listed": len(rows)}))
        return
    counts = f"{result.doubts:,} labels of {len(result.data):,} documents look wrong to {model} ({result.folds} folds)"
    if output is not None:
        print_text(f"{output}: the {len(rows):,} most doubtful; {counts}")
        return
    for row in rows[:SHOWN]:
        where = f"id {row['id']}" if row["line"] is None else f"line {row['line']}"
        labels = (f"{row[name]} ({row[f'p_{name}']:.2f})" if row[name] else "none" for name in ("given", "suggested"))
        copy = f", id {row['duplicate']}" if row["duplicate"] else ""
        print_text(printable(f"{row['score']:.2f}  {where}: {' -> '.join(labels)} [{row['reason']}{copy}]"))
        print_text(printable(f"      {shorten(' '.join(row['text'].split()), 90)}"))
    more = f"; {len(rows) - SHOWN:,} more with -o suspects.csv" if len(rows) > SHOWN else ""
    print_text(f"{counts}{more}")
