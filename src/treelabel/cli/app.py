"""The table of commands. Each loads what it needs when it runs, so that --help is quick."""

from copy import copy
from typing import Annotated

import typer

import treelabel
from treelabel.cli.audit import audit
from treelabel.cli.bench import bench, tables
from treelabel.cli.check_metric import check_metric
from treelabel.cli.command import Command
from treelabel.cli.convert import convert
from treelabel.cli.curve import curve
from treelabel.cli.data import sample, split
from treelabel.cli.decide import decide, rules, tune
from treelabel.cli.demo import demo
from treelabel.cli.drift import drift
from treelabel.cli.evaluate import evaluate
from treelabel.cli.fit import fit
from treelabel.cli.inspect_file import inspect
from treelabel.cli.judge import compare, metrics
from treelabel.cli.models import encoders, explain, export, models, sign
from treelabel.cli.predict import predict, score
from treelabel.cli.report import report
from treelabel.cli.review import review
from treelabel.cli.serve import serve
from treelabel.cli.sweep import sweep
from treelabel.cli.update import update

app = typer.Typer(
    name="treelabel",
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
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (anywhere in the line).")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print results and errors only, no notes (anywhere in the line).")
    ] = False,
) -> None:
    """Put texts into a hierarchy of labels, and say honestly how good it is at it."""


_DATA = (inspect, convert, split, sample, audit)
_MODELS = (fit, score, predict, update, explain, export, sign, serve)
_DECISIONS = (decide, tune, evaluate, compare, review, drift, report)
_REGISTRIES = (metrics, check_metric, rules, models, encoders)
_STUDIES = (bench, sweep, curve, tables, demo)
for command in (*_DATA, *_MODELS, *_DECISIONS, *_REGISTRIES, *_STUDIES):
    app.command(cls=Command)(command)


def app_of(word: str) -> typer.Typer:
    """Return the table with the command of this name only, or the whole one: typer makes all commands of a table."""
    one = copy(app)
    one.registered_commands = [
        info for info in app.registered_commands if getattr(info.callback, "__name__", "") == word.replace("-", "_")
    ]
    return one if one.registered_commands else app
