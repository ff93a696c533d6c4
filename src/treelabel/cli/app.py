"""The table of commands. Each loads what it needs when it runs, so that --help is quick."""

from typing import Annotated

import typer

import treelabel
from treelabel.cli.audit import audit
from treelabel.cli.bench import bench
from treelabel.cli.data import convert, inspect, sample, split
from treelabel.cli.decide import decide, rules, tune
from treelabel.cli.demo import demo
from treelabel.cli.drift import drift
from treelabel.cli.encoders import encoders
from treelabel.cli.evaluate import evaluate
from treelabel.cli.judge import compare, metrics
from treelabel.cli.models import explain, export, fit, models
from treelabel.cli.predict import predict, score
from treelabel.cli.report import report
from treelabel.cli.review import review
from treelabel.cli.sign import sign
from treelabel.cli.sweep import sweep
from treelabel.cli.tables import tables
from treelabel.cli.update import update

app = typer.Typer(
    name="treelabel",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"treelabel {treelabel.__version__}")
        raise typer.Exit


@app.callback()
def treelabel_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (anywhere in the line).")
    ] = False,
) -> None:
    """Put texts into a hierarchy of labels, and say honestly how good it is at it."""


for command in (
    inspect,
    convert,
    split,
    sample,
    audit,
    fit,
    score,
    predict,
    update,
    explain,
    export,
    sign,
    decide,
    tune,
    evaluate,
    compare,
    review,
    drift,
    report,
    metrics,
    rules,
    models,
    encoders,
    bench,
    sweep,
    tables,
    demo,
):
    app.command()(command)
