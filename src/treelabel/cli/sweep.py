"""The command that compares models and settings on one file, by cross-validation."""

import math
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli import options as o
from treelabel.cli.judge import metric_names
from treelabel.cli.models import parse_settings
from treelabel.cli.printing import format_table, print_json, print_text
from treelabel.core.errors import TreelabelError, quote

if TYPE_CHECKING:
    from treelabel.experiment.sweep import Candidate, Sweep, SweepTrial

DEFAULT_MODELS = "linear,prototype"


@o.with_read_options
def sweep(
    train: o.TrainArgument,
    read: o.ReadArguments,
    models: Annotated[str, typer.Option(help="Models, comma-separated; treelabel models lists them.")] = DEFAULT_MODELS,
    set: Annotated[  # noqa: A002
        list[str] | None,
        typer.Option(help="Values of a setting, as linear.C=0.1,1,10, or C=1,10 of all models that have it (repeat)."),
    ] = None,
    rule: Annotated[str | None, typer.Option(help="Decision rule (default: each model's own).")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Metrics, comma-separated, of which the first sorts (default: by the labels).")
    ] = None,
    cv: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 3,
    max_seconds: Annotated[
        float | None, typer.Option(help="Stop learning a fold after this time, keeping the best.")
    ] = None,
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """Compare models and settings by cross-validation, and say how to fit the winner.

    Every document is judged once, by a model that did not learn from it; documents of a group (--group) are held out
    together. After ± stands half of the 95% interval over folds. Ctrl-C prints what is done so far.

    \b
    Examples:
      treelabel sweep train.csv
      treelabel sweep train.csv --models linear,bag,most_frequent \\
        --set linear.C=0.1,1,10 --metrics macro_f1
      treelabel sweep train.csv --models linear --set "ngram_range=(1,1),(1,2)" \\
        --cv 5 --json
    """
    from treelabel.experiment.sweep import sweep as compare
    from treelabel.metrics.registry import find_metric
    from treelabel.rules.registry import find_rule

    names = metric_names(metrics)
    if isinstance(names, str):
        raise TreelabelError("--metrics all cannot be sorted by; name the metrics")
    candidates = _candidates([name.strip() for name in models.split(",") if name.strip()], set or [])
    # Before anything is read.
    for name in names or ():
        find_metric(name)
    if rule is not None:
        find_rule(rule)
    result = compare(read.read(train), candidates, names or None, rule, cv, seed, max_seconds)
    if not result.trials:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in result.skipped.items())
        if result.left:
            raise KeyboardInterrupt
        raise TreelabelError(f"no model could be judged: {reasons}")
    command = _fit_command(train, read, result.trials[0].candidate, seed)
    if json:
        print_json(result.to_json() | {"command": command})
    else:
        print_text("\n".join(_lines(result, command, rule)))


# Settings


def _candidates(models: list[str], texts: list[str]) -> "list[Candidate]":
    """Make the candidates, with their settings as they were written."""
    from treelabel.core.registry import suggestion
    from treelabel.experiment.sweep import grid
    from treelabel.models.registry import MODELS

    if not models:
        raise TreelabelError("--models names no model")
    known = {name: MODELS.find(name).maker.setting_names() for name in models}
    values: dict[str, dict[str, list[Any]]] = {name: {} for name in models}
    for text in texts:
        setting, equals, listed = text.partition("=")
        model, dot, name = setting.strip().rpartition(".")
        if not equals or not listed.strip() or (dot and not model):
            raise TreelabelError(f"--set {text}: expected name=value,value, such as linear.C=0.1,1")
        if dot and model not in models:
            raise TreelabelError(f"--set {text}: {quote(model)} is not among --models; {suggestion(model, models)}")
        owners = [model] if dot else [each for each in models if name in known[each]]
        if not owners:
            every = sorted({each for names in known.values() for each in names})
            raise TreelabelError(f"--set {text}: no model has the setting {quote(name)}; {suggestion(name, every)}")
        for owner in owners:
            values[owner][name] = _split(listed)
    made = grid(models, values)
    return [
        replace(
            each,
            settings=parse_settings([f"{name}={text}" for name, text in each.settings.items()]),
            written=each.settings,
        )
        for each in made
    ]


def _split(text: str) -> list[str]:
    """Split values at commas that stand in no brackets and no quotes.

    >>> _split("(1, 2), auto,'a,b'")
    ['(1, 2)', 'auto', "'a,b'"]
    """
    result, depth, mark = [""], 0, ""
    for letter in text:
        if mark:
            mark = "" if letter == mark else mark
        elif letter in "'\"":
            mark = letter
        depth += 0 if mark else (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth and not mark:
            result.append("")
        else:
            result[-1] += letter
    return [each.strip() for each in result if each.strip()]


# Printing


def _fit_command(train: Path, read: o.ReadArguments, best: "Candidate", seed: int) -> str:
    """Write the command that fits the winner to the same data."""
    words = ["treelabel", "fit", str(train), "-o", "model", "--model", best.model]
    for name, text in best.written.items():
        words += ["--set", f"{name}={text}"]
    words += [] if seed == 0 else ["--seed", str(seed)]
    for entry in fields(o.ReadArguments):
        value = getattr(read, entry.name)
        option = f"--{entry.name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [] if value == entry.default else [option if value else f"--no-{option[2:]}"]
        elif value not in (entry.default, None):
            for each in value if isinstance(value, list) else [value]:
                words += [option, str(each)]
    return shlex.join(words)


def _lines(result: "Sweep", command: str, rule: str | None) -> list[str]:
    """Write the table, whether the best is best beyond noise, what was skipped, and the command."""
    heads = ["model", *result.metrics, "fit (s)", "documents/s", "MB", "rule"]
    table = format_table([heads, *(_row(result, trial) for trial in result.trials)])
    notes = [
        f"{result.documents:,} documents, {result.folds} folds; ± half of the 95% interval over folds; "
        "= not told apart from the best"
    ]
    notes += _difference(result)
    notes += [f"skipped {name}: {reason}" for name, reason in result.skipped.items()]
    if result.left:
        notes.append(
            f"interrupted: {result.left} of {result.left + len(result.trials) + len(result.skipped)} not judged"
        )
    used = "" if rule is None else f"\n  treelabel predict model NEW --rule {shlex.quote(rule)}"
    return [*table, "", *notes, "", "Fit the best to all documents:", f"  {command}{used}"]


def _row(results: "Sweep", trial: "SweepTrial") -> list[str]:
    from treelabel.experiment.sweep import LEVEL

    values = [f"{trial.result[name]:.4f} ± {trial.half_width(name):.4f}" for name in results.metrics]
    values[0] += " =" if trial.p_value >= LEVEL else ""
    seconds = f"{trial.fit_seconds:.2f}" + (" (stopped)" if trial.stopped else "")
    size = "unknown" if math.isnan(trial.megabytes) else f"{trial.megabytes:.1f}"
    return [str(trial.candidate), *values, seconds, f"{trial.documents_per_second:,.0f}", size, ", ".join(trial.rules)]


def _difference(result: "Sweep") -> list[str]:
    """Say whether the best differs from the next beyond noise."""
    from treelabel.experiment.sweep import LEVEL

    if result.difference is None:
        return []
    best, following, test = *result.trials[:2], result.difference
    ends = "" if math.isnan(test.low) else f" [{test.low:+.4f}, {test.high:+.4f}]"
    numbers = f"{test.difference:+.4f}{ends}, p = {following.p_value:.3g}"
    if following.p_value < LEVEL:
        reported = f"{best.candidate} is better than {following.candidate} beyond noise"
    else:
        reported = f"{best.candidate} and {following.candidate} cannot be told apart"
    return [f"{reported}: {result.metrics[0]} {numbers} (paired test over documents)"]
