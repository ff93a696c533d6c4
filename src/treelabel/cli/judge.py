"""Commands that judge: compare, metrics; and what they share with evaluate."""

import json as jsonlib
import re
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli.options import JsonOption, ReadArguments, with_read_options
from treelabel.cli.printing import echo

if TYPE_CHECKING:
    from treelabel.data import Dataset
    from treelabel.metrics import Metric

MetricsOption = Annotated[
    str | None, typer.Option(help="Metrics, comma-separated; 'all' for all that apply (see treelabel metrics).")
]
JudgedRuleOption = Annotated[
    str | None,
    typer.Option(
        help="Decision rule for scores, such as optimal:hf1 or threshold@0.5, or a file that tune wrote (default: as "
        "predict decides for labels like those of the truth)."
    ),
]
TrainOption = Annotated[Path | None, typer.Option(help="Training file, for the frequencies of labels.")]


def metric_names(metrics: str | None) -> list[str] | str | None:
    """Split the names of metrics at commas; "all" and None stay."""
    if metrics is None or metrics == "all":
        return metrics
    # Settings in brackets have commas of their own.
    return [name.strip() for name in re.split(r",(?![^(]*\))", metrics) if name.strip()]


def read_system(path: Path, truth: "Dataset", read: ReadArguments) -> Any:
    """Read predictions or scores, in the order of the truth."""
    from treelabel.data import read as read_data
    from treelabel.data.stream import closed_rows, predicted_column
    from treelabel.evaluation.alignment import closed_where, rows_by_id
    from treelabel.scores import Scores, is_score_file

    if is_score_file(path):
        found: Any = Scores.load(path, truth.hierarchy)
    else:
        found = read_data(
            path,
            labels=predicted_column(path, read.limits),
            taxonomy=truth.hierarchy,
            need_text=False,
            on_error=read.on_error,  # type: ignore[arg-type]
            limits=read.limits,
        )
        if found.labels.nnz == 0:
            warnings.warn(f"{path}: no document has a label", stacklevel=2)
    rows = rows_by_id(truth, found.ids, str(path))
    found = found if rows is None else found[rows]
    if len(found) != len(truth):
        from treelabel.core.errors import TreelabelError

        raise TreelabelError(f"{path}: {len(found):,} rows without ids for {len(truth):,} documents of the truth")
    return found if isinstance(found, Scores) else closed_where(truth.hierarchy, found.labels, closed_rows(found))


def system_names(paths: list[Path]) -> list[str]:
    """Call systems by their files, with folders where files are called the same."""
    from treelabel.core.errors import TreelabelError

    for names in ([path.name for path in paths], [str(path) for path in paths]):
        if len(set(names)) == len(paths):
            return names
    raise TreelabelError("the same file stands twice among the systems")


@with_read_options
def compare(
    truth: Annotated[Path, typer.Argument(metavar="TRUTH", help="Data file with the true labels.")],
    systems: Annotated[list[Path], typer.Argument(metavar="A B ...", help="Predictions or scores of each system.")],
    read: ReadArguments,
    metrics: MetricsOption = None,
    train: TrainOption = None,
    rule: JudgedRuleOption = None,
    resamples: Annotated[int, typer.Option(help="Resamples for intervals, and exchanges for p-values.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    json: JsonOption = False,
) -> None:
    """Compare systems on the same documents.

    Every system is tested against the first: stars by exchanging the two systems' answers document by document,
    intervals by resampling documents, single decisions with the micro sign test, which exchanges documents, too;
    p-values are corrected by Holm's procedure. The tail by training frequency has the macro t-test of the literature:
    it takes labels for independent, so read its stars with care (definitions, section 7). Means over labels have no
    interval where more than a fifth of the labels have fewer than five documents. Scores are all decided by one rule,
    --rule or the one that predict takes for labels like those of the truth; the table names the rule of each system.

    \b
    Example:
      treelabel compare test.jsonl svm.jsonl bert.npz --train train.jsonl --metrics hf1,macro_f1
    """
    from treelabel.evaluation.comparison import compare as judge

    data, training = read.read_with(truth, train, need_text=False)
    table = judge(
        data,
        {name: read_system(path, data, read) for name, path in zip(system_names(systems), systems, strict=True)},
        rule=rule,
        metrics=metric_names(metrics),
        train_frequencies=training,
        resamples=resamples,
        seed=seed,
    )
    echo(table.to_json() if json else str(table))


def metrics(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Tell all about one metric.")] = None,
    json: JsonOption = False,
) -> None:
    """List the metrics and what they need, or tell all about one: its conventions, and how to change them.

    \b
    Examples:
      treelabel metrics
      treelabel metrics recall@k
    """
    from treelabel.metrics import METRICS, find_metric

    chosen = list(METRICS.values()) if name is None else [METRICS[name] if name in METRICS else find_metric(name)]
    if json:
        typer.echo(jsonlib.dumps({row.name: _about(row) for row in chosen}, indent=2))
        return
    if name is not None:
        echo("\n".join(_told(chosen[0])))
        return
    papers = list(dict.fromkeys(row.paper for row in METRICS.values()))
    width = max(map(len, METRICS)) + 2
    typer.echo(f"{'metric':<{width}}{'better':<8}{'what it is':<56}{'from':<6}needs")
    for row in METRICS.values():
        better = "higher" if row.higher_is_better else "lower"
        source = f"[{papers.index(row.paper) + 1}]"
        typer.echo(f"{row.name:<{width}}{better:<8}{row.help:<56}{source:<6}{', '.join(sorted(row.needs))}")
    typer.echo("")
    for number, paper in enumerate(papers, 1):
        typer.echo(f"[{number}] {paper}")
    typer.echo("\ntreelabel metrics NAME tells the conventions of one, and how to change them.")


def _about(row: "Metric") -> dict[str, Any]:
    return {
        "help": row.help,
        "needs": sorted(row.needs),
        "higher_is_better": row.higher_is_better,
        "paper": row.paper,
        "note": row.note,
        "settings": {switch.name: [switch.default, switch.other] for switch in row.switches},
    }


def _told(row: "Metric") -> list[str]:
    """Tell all about a metric, in lines."""
    lines = [
        f"{row.name}: {row.help}",
        f"  {'higher' if row.higher_is_better else 'lower'} is better; needs {', '.join(sorted(row.needs))}",
        f"  from: {row.paper}",
    ]
    if row.note:
        lines += ["", *textwrap.wrap(row.note, 100, initial_indent="  ", subsequent_indent="  ")]
    if row.switches:
        lines += [
            "",
            f"  settings, written {row.name}({row.switches[0].name}={row.switches[0].other}), the default first:",
        ]
        lines += [f"    {switch.name}={switch.default} or {switch.other}: {switch.help}" for switch in row.switches]
    return lines
