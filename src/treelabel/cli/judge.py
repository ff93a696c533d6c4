"""Commands that judge: compare, metrics; and what they share with evaluate."""

import re
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import echo, print_entry, print_json, print_note, print_text
from treelabel.core.errors import TreelabelError, quote, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from treelabel.data.data_file import DataFile, PredictionFile
    from treelabel.data.dataset import Dataset
    from treelabel.evaluation.alignment import Answered
    from treelabel.evaluation.streaming import Predicted
    from treelabel.hierarchy.hierarchy import Hierarchy
    from treelabel.hierarchy.label_ids import Label
    from treelabel.metrics.metric import Metric
    from treelabel.models.base import Model


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


def is_model_folder(path: Path) -> bool:
    """Return whether a path is a folder that fit wrote."""
    return (path / "model.json").is_file()


def with_unseen_labels(hierarchy: "Hierarchy", data: "DataFile", sep: str | None) -> "Hierarchy":
    """Extend the hierarchy of a model by the paths of a data file that it has never seen."""
    from treelabel.hierarchy.union import with_paths

    new = unseen_paths(hierarchy, data.labels(), sep, data.path)
    return with_paths(hierarchy, new) if new else hierarchy


def unseen_paths(
    hierarchy: "Hierarchy", every: "Iterable[Label]", sep: str | None, where: Path
) -> list[tuple[str, ...]]:
    """Return the paths among labels that a model has never seen; labels of which it knows none are refused."""
    from treelabel.data.columns import without_missing

    # As `find_nodes` has it: what stands where a label is missing is one only where the hierarchy has it.
    labels = [label for label in every if without_missing(label) or label in hierarchy.ids_by_name]
    new = unknown_paths(hierarchy, labels, sep)
    if labels and len(new) == len(labels):
        raise TreelabelError(
            f"{where}: the model knows none of the {len(labels):,} labels, such as {quote(labels[0])}; it "
            f"knows labels such as {quote(hierarchy.paths([hierarchy.leaves[0]])[0])}; name the column of the labels "
            "(--labels), and what separates the names of a path (--sep)"
        )
    return new


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


def answers(model: "Model", name: str, batches: "Iterable[Dataset]", rule: str | None) -> "Iterator[Answered]":
    """Let a model answer documents, batch by batch, by a rule or by its own; say how many it learned from."""
    from treelabel.evaluation.alignment import Answered
    from treelabel.models.streaming import decided_batches

    count = learned = 0
    for decided in decided_batches(model, ((batch, batch) for batch in batches), rule):
        batch = decided.carried
        count, learned = count + len(batch), learned + model.profile_.count_learned(batch.texts)
        yield Answered(decided.scores, decided.decisions, batch.ids, True)
    if learned:
        print_note(
            f"{name} learned from {learned:,} of these {count:,} texts, so that new ones will be labelled less well"
        )


class SystemsOnFile(NamedTuple):
    """The truth and systems on the same documents, and the frequencies of labels in training, as far as known."""

    truth: "Dataset"
    training: "Dataset | None"
    systems: dict[str, Any]
    train_frequencies: Any
    train_documents: int | None


def read_judged(
    truth: Path,
    train: Path | None,
    systems: list[Path],
    read: o.ReadArguments,
    rule: str | None = None,
    require_signature: Path | None = None,
) -> SystemsOnFile:
    """Read the truth, training data and systems by name, all documents in the order of the truth.

    Scores keep their own hierarchy, which that of the truth has all nodes of. A model answers the texts of the truth.
    Without training data, the frequencies are those that the first model counted.
    """
    from treelabel.data.transforms import under
    from treelabel.evaluation.streaming import require_labels
    from treelabel.hierarchy.union import spread_counts
    from treelabel.models.persistence.load import load_model

    models = {path: load_model(path, require_signature) for path in systems if is_model_folder(path)}
    files = [path for path in systems if path not in models]
    if models:
        data = _read_for_models(truth, models, read)
        training = None if train is None else read.like(next(iter(models.values()))).read(train)
        h = hierarchy_with_systems(data.hierarchy, True, files, read)
    else:
        data, training = read.read_with(truth, train, need_text=False)
        h = hierarchy_with_systems(data.hierarchy, data.is_hierarchy_of_labels, files, read)
    require_labels(len(data), data.labels.nnz, str(truth))
    data, training = under(data, h), None if training is None else under(training, h)
    judged = {}
    for name, path in system_names(systems).items():
        if path in models:
            (judged[name],) = answers(models[path], name, [data], rule)
        else:
            judged[name] = _read_system(path, data, read)
    if training is not None or not models:
        return SystemsOnFile(data, training, judged, training, None)
    first, *_ = models.values()
    if len(first.profile_.frequencies) != len(first.hierarchy_):
        return SystemsOnFile(data, None, judged, None, None)
    return SystemsOnFile(
        data, None, judged, spread_counts(first.profile_.frequencies, first.hierarchy_, h), first.profile_.documents
    )


def _read_for_models(truth: Path, models: "dict[Path, Model]", read: o.ReadArguments) -> "Dataset":
    """Read the truth under the hierarchy of the first model, extended by what the others and the truth have."""
    from dataclasses import replace

    from treelabel.data.data_file import DataFile
    from treelabel.data.dataset import MADE_OF_LABELS
    from treelabel.hierarchy.union import join_hierarchies

    first, *_ = models.values()
    read = read.like(first).for_files(truth)
    h = first.hierarchy_
    for path, model in models.items():
        h = join_hierarchies(h, model.hierarchy_, str(path))
    options = read.options()
    del options["taxonomy"]
    h = with_unseen_labels(h, DataFile.of(truth, **options), read.sep)
    data = read.read(truth, taxonomy=h)
    # Models need not know all labels of the truth.
    return replace(data, choices={**data.choices, "hierarchy": MADE_OF_LABELS})


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


def truth_and_systems(paths: list[Path]) -> tuple[Path, list[Path]]:
    """Tell the data file from the systems: it stands first or, where a model stands first, last."""
    if is_model_folder(paths[0]):
        *systems, truth = paths
        if is_model_folder(truth):
            raise TreelabelError("expected a data file with the true labels last: MODEL_A MODEL_B TEST")
        return truth, systems
    return paths[0], paths[1:]


def system_names(paths: list[Path]) -> dict[str, Path]:
    """Call systems by their files, with folders where files are called the same."""

    for names in ([path.name for path in paths], [str(path) for path in paths]):
        if len(set(names)) == len(paths):
            return dict(zip(names, paths, strict=True))
    raise TreelabelError("the same file stands twice among the systems")


@o.with_read_options
def compare(
    truth: Annotated[Path, typer.Argument(metavar="TRUTH", help="Data file with the true labels; may stand last.")],
    systems: Annotated[
        list[Path], typer.Argument(metavar="A B ...", help="Model folders, predictions or scores: one per system.")
    ],
    read: o.ReadArguments,
    metrics: o.MetricsOption = None,
    train: o.FrequenciesOption = None,
    rule: o.JudgedRuleOption = None,
    resamples: Annotated[int, typer.Option(help="Resamples for intervals, and exchanges for p-values.")] = 1000,
    seed: o.SeedOption = 0,
    require_signature: o.SignatureOption = None,
    json: o.JsonOption = False,
) -> None:
    """Compare models on a test file (compare MODEL_A MODEL_B TEST), or predictions and scores on the same documents.

    Every system is tested against the first. Stars come from a permutation test, which exchanges the two systems'
    answers document by document. Intervals come from resampling documents. Single decisions are compared by the micro
    sign test, which exchanges documents, too. Holm's procedure corrects the p-values. The tail by training frequency
    has the macro t-test of the literature; it treats labels as independent, so read its stars with care (definitions,
    section 7). Means over labels have no interval if more than a fifth of the labels have fewer than five documents.
    One rule decides for all scores: --rule, or the one that predict uses for labels like those of the truth. The table
    names the rule of each system. A model reads the test file as it read its training data, and decides by its own
    rule.

    \b
    Examples:
      treelabel compare old-model new-model test.csv
      treelabel compare test.jsonl svm.jsonl bert.npz --train train.jsonl \\
        --metrics hf1,macro_f1
    """
    from treelabel.evaluation.comparison import compare as judge

    truth, systems = truth_and_systems([truth, *systems])
    judged = read_judged(truth, train, systems, read, rule, require_signature)
    table = judge(
        judged.truth,
        judged.systems,
        rule=rule,
        metrics=metric_names(metrics),
        train_frequencies=judged.train_frequencies,
        train_documents=judged.train_documents,
        resamples=resamples,
        seed=seed,
    )
    if json:
        echo(table.to_json())
    else:
        print_text(table.table(shutil.get_terminal_size().columns))


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
        _print_metric(chosen[0])
        return
    papers = list(dict.fromkeys(row.paper for row in METRICS.values()))
    width = max(map(len, METRICS)) + 2
    needed = "what it is [where it is from]; needs decisions only, unless more is said"
    print_entry(f"{'metric':<{width}}better", needed, width + 8)
    for row in METRICS.values():
        better = "higher" if row.higher_is_better else "lower"
        needs = "" if row.needs == {"decisions"} else f"; needs {', '.join(sorted(row.needs))}"
        text = f"{row.help} [{papers.index(row.paper) + 1}]{needs}"
        print_entry(f"{row.name:<{width}}{better}", text, width + 8)
    typer.echo("")
    for number, paper in enumerate(papers, 1):
        print_entry(f"[{number}]", paper, 5)
    typer.echo("")
    print_entry("", "treelabel metrics NAME describes the conventions of one, and how to change them.", 0)


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


def _print_metric(row: "Metric") -> None:
    """Describe a metric."""
    print_entry(f"{row.name}: ", row.help, 2)
    echo(f"  {'higher' if row.higher_is_better else 'lower'} is better; needs {', '.join(sorted(row.needs))}")
    print_entry("", f"from: {row.paper}", 2)
    if row.note:
        typer.echo("")
        print_entry("", row.note, 2)
    if row.switches:
        first = row.switches[0]
        typer.echo("")
        print_entry("", f"settings, written {row.name}({first.name}={first.other}), the default first:", 2)
        for switch in row.switches:
            print_entry("", f"{switch.name}={switch.default} or {switch.other}: {switch.help}", 4)
    if row.numbers:
        name, default = row.numbers[-1]
        typer.echo("")
        print_entry("", f"numbers, written {row.name}({name}={default:g}), these being the defaults:", 2)
        for name, default in row.numbers:
            echo(f"    {name}={default:g}")
