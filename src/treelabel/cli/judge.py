"""Commands that judge: compare, metrics; and what they share with evaluate."""

import re
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import echo, print_json, print_note
from treelabel.core.errors import TreelabelError, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from treelabel.data.data_file import PredictionFile
    from treelabel.data.dataset import Dataset
    from treelabel.evaluation.streaming import Predicted
    from treelabel.hierarchy.hierarchy import Hierarchy
    from treelabel.hierarchy.label_ids import Label
    from treelabel.metrics.metric import Metric


def metric_names(metrics: str | None) -> list[str] | str | None:
    """Split the names of metrics at commas; "all" and None stay."""
    if metrics is None or metrics == "all":
        return metrics
    # Settings in brackets have commas of their own.
    return [name.strip() for name in re.split(r",(?![^(]*\))", metrics) if name.strip()]


def prediction_file(path: Path, read: o.ReadArguments) -> "PredictionFile":
    """Return what reads a file of predictions."""
    from treelabel.data.data_file import PredictionFile

    return PredictionFile.of(path, read.label_sep, read.options()["on_error"], read.limits)


def hierarchy_with_systems(
    hierarchy: "Hierarchy", is_of_labels: bool, paths: list[Path], read: o.ReadArguments
) -> "Hierarchy":
    """Extend the hierarchy of the truth by the labels of systems: scores know theirs, predictions have paths.

    Under a taxonomy, scores must have the same one, and reading predictions for good refuses labels that it does not
    have.
    """
    from treelabel.hierarchy.union import join_hierarchies, with_paths
    from treelabel.scores.score_files import is_score_file
    from treelabel.scores.stream import ScoreFile

    scored = {path: ScoreFile(path).hierarchy for path in paths if is_score_file(path)}
    if not is_of_labels:
        for path, known_by_scores in scored.items():
            hierarchy.require_same(known_by_scores.fingerprint, str(path))
        return hierarchy
    known, *others = [*scored.values(), hierarchy]
    # The nodes of the first scores keep their order, by which equal scores are ranked.
    for what, known_by_scores in zip([*list(scored)[1:], "the truth"], others, strict=False):
        known = join_hierarchies(known, known_by_scores, str(what))
    for path in (path for path in paths if path not in scored):
        new = unknown_paths(known, prediction_file(path, read).file.labels(), read.sep)
        if new:
            what = "1 predicted label is" if len(new) == 1 else f"{len(new):,} predicted labels are"
            print_note(f"{path}: {what} not among those of the truth: {some([' > '.join(names) for names in new])}")
            known = with_paths(known, new)
    return known


def unknown_paths(hierarchy: "Hierarchy", labels: "Iterable[Label]", sep: str | None) -> list[tuple[str, ...]]:
    """Return the paths of labels that a tree does not have, but for bare names and several labels taken for one."""
    from treelabel.hierarchy.hierarchy import SEPARATOR, split_path
    from treelabel.hierarchy.label_ids import UnknownLabelError, find_label, mark_between

    new = []
    for label in labels:
        try:
            find_label(hierarchy, label)
        except UnknownLabelError:
            mark = SEPARATOR if sep is None or (isinstance(label, str) and SEPARATOR in label) else sep
            names = tuple(split_path(label, mark) if isinstance(label, str) else label)
            is_one = not isinstance(label, str) or mark_between(hierarchy, label) is None
            if is_one and all(names) and (len(names) > 1 or hierarchy.max_depth == 1):
                new.append(names)
    return new


def opened_predictions(path: Path, hierarchy: "Hierarchy", read: o.ReadArguments) -> "Iterator[Predicted]":
    """Read predictions in batches."""
    from treelabel.evaluation.alignment import closed_where
    from treelabel.evaluation.streaming import Predicted

    for data, is_closed, p in prediction_file(path, read).batches(hierarchy):
        yield Predicted(closed_where(hierarchy, data.labels, is_closed), data.ids, p)


def read_judged(
    truth: Path, train: Path | None, systems: list[Path], read: o.ReadArguments
) -> "tuple[Dataset, Dataset | None, dict[str, Any]]":
    """Read the truth, training data and systems by name, all documents in the order of the truth.

    Scores keep their own hierarchy, which that of the truth has all nodes of.
    """
    from treelabel.data.transforms import under

    data, training = read.read_with(truth, train, need_text=False)
    h = hierarchy_with_systems(data.hierarchy, data.is_hierarchy_of_labels, systems, read)
    data, training = under(data, h), None if training is None else under(training, h)
    return data, training, {name: _read_system(path, data, read) for name, path in system_names(systems).items()}


def _read_system(path: Path, truth: "Dataset", read: o.ReadArguments) -> Any:
    """Read predictions or scores, in the order of the truth."""
    from treelabel.evaluation.alignment import rows_by_id
    from treelabel.evaluation.streaming import Predicted
    from treelabel.scores.score_files import is_score_file
    from treelabel.scores.score_matrix import Scores

    if is_score_file(path):
        result: Any = Scores.load(path)
    else:
        result = Predicted.concat(list(opened_predictions(path, truth.hierarchy, read)))
        if result.labels.nnz == 0:
            warnings.warn(f"{path}: no document has a label", stacklevel=2)
    rows = rows_by_id(truth, result.ids, str(path))
    result = result if rows is None else result[rows]
    if len(result) != len(truth):
        raise TreelabelError(f"{path}: {len(result):,} rows without ids for {len(truth):,} documents of the truth")
    return result if isinstance(result, Scores) else result.labels


def system_names(paths: list[Path]) -> dict[str, Path]:
    """Call systems by their files, with folders where files are called the same."""

    for names in ([path.name for path in paths], [str(path) for path in paths]):
        if len(set(names)) == len(paths):
            return dict(zip(names, paths, strict=True))
    raise TreelabelError("the same file stands twice among the systems")


@o.with_read_options
def compare(
    truth: o.TruthArgument,
    systems: Annotated[list[Path], typer.Argument(metavar="A B ...", help="Predictions or scores of each system.")],
    read: o.ReadArguments,
    metrics: o.MetricsOption = None,
    train: o.FrequenciesOption = None,
    rule: o.JudgedRuleOption = None,
    resamples: Annotated[int, typer.Option(help="Resamples for intervals, and exchanges for p-values.")] = 1000,
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """Compare systems on the same documents.

    Every system is tested against the first. Stars come from a permutation test, which exchanges the two systems'
    answers document by document. Intervals come from resampling documents. Single decisions are compared by the micro
    sign test, which exchanges documents, too. Holm's procedure corrects the p-values. The tail by training frequency
    has the macro t-test of the literature; it treats labels as independent, so read its stars with care (definitions,
    section 7). Means over labels have no interval if more than a fifth of the labels have fewer than five documents.
    One rule decides for all scores: --rule, or the one that predict uses for labels like those of the truth. The table
    names the rule of each system.

    \b
    Example:
      treelabel compare test.jsonl svm.jsonl bert.npz --train train.jsonl --metrics hf1,macro_f1
    """
    from treelabel.evaluation.comparison import compare as judge

    data, training, judged = read_judged(truth, train, systems, read)
    table = judge(
        data,
        judged,
        rule=rule,
        metrics=metric_names(metrics),
        train_frequencies=training,
        resamples=resamples,
        seed=seed,
    )
    echo(table.to_json() if json else str(table))


def metrics(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A metric to describe.")] = None,
    json: o.JsonOption = False,
) -> None:
    """List the metrics and what they need, or describe one: its conventions, and how to change them.

    \b
    Examples:
      treelabel metrics
      treelabel metrics recall@k
    """
    from treelabel.metrics.registry import METRICS, find_metric

    chosen = list(METRICS.values()) if name is None else [METRICS[name] if name in METRICS else find_metric(name)]
    if json:
        print_json({row.name: _about(row) for row in chosen})
        return
    if name is not None:
        echo("\n".join(_description(chosen[0])))
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
    typer.echo("\ntreelabel metrics NAME describes the conventions of one, and how to change them.")


def _about(row: "Metric") -> dict[str, Any]:
    return {
        "help": row.help,
        "needs": sorted(row.needs),
        "higher_is_better": row.higher_is_better,
        "paper": row.paper,
        "note": row.note,
        "settings": {switch.name: [switch.default, switch.other] for switch in row.switches}
        | {name: [default] for name, default in row.numbers},
    }


def _description(row: "Metric") -> list[str]:
    """Describe a metric in lines."""
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
    if row.numbers:
        name, default = row.numbers[-1]
        lines += ["", f"  numbers, written {row.name}({name}={default:g}), these being the defaults:"]
        lines += [f"    {name}={default:g}" for name, default in row.numbers]
    return lines
