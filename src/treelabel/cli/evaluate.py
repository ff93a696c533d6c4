"""The command evaluate: judge predictions or scores, by metrics, by label, and document by document."""

import json as jsonlib
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from treelabel.cli import options as o
from treelabel.cli.judge import (
    answers,
    hierarchy_with_systems,
    is_model_folder,
    metric_names,
    opened_predictions,
    unseen_paths,
    with_unseen_labels,
)
from treelabel.cli.printing import command_line, print_json, print_note, print_result
from treelabel.cli.sharding import ClusterOption, Sharding, ShardOption
from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from treelabel.core.types import LongArray
    from treelabel.data.data_file import DataFile
    from treelabel.data.documents import Extra
    from treelabel.evaluation.agreement import Agreement
    from treelabel.evaluation.document_slices import SliceTable
    from treelabel.evaluation.streaming import Judged, Opened
    from treelabel.hierarchy.hierarchy import Hierarchy
    from treelabel.hierarchy.label_matrices import LabelMatrix

    Further: TypeAlias = dict[str, SliceTable | Agreement]


class JudgedColumns(NamedTuple):
    """Columns of a test file that are looked at besides: that of parts, and that of a second annotator's labels."""

    by: str | None
    second_labels: str | None


@o.with_read_options
def evaluate(
    truth: Annotated[Path, typer.Argument(metavar="TRUTH", help="Data file with the true labels; or a model folder.")],
    predictions: Annotated[
        Path,
        typer.Argument(
            metavar="PREDICTIONS",
            help="Predictions (.jsonl ...) or scores (.npz, .parquet); with a model: the test file.",
        ),
    ],
    read: o.ReadArguments,
    metrics: o.MetricsOption = None,
    train: o.FrequenciesOption = None,
    rule: o.JudgedRuleOption = None,
    intervals: Annotated[bool, typer.Option("--intervals", help="Add 95% bootstrap intervals.")] = False,
    by_label: Annotated[
        bool, typer.Option("--by-label", help="Add a table of the labels, worst first (with --json: all of them).")
    ] = False,
    by_label_output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the table of all labels (.csv, .tsv, .json, .jsonl, .parquet, .xlsx)."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Add a table of parts of the documents, worst first: by a column; by true label ('label'); by the "
            "labels of a level ('level:1').",
        ),
    ] = None,
    second_labels: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of a second annotator's labels: add how far the two agree."),
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the wrong documents, worst first (the same formats)."),
    ] = None,
    shard: ShardOption = None,
    cluster: ClusterOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for what is found of each file, with --shard or --cluster."),
    ] = None,
    force: o.ForceOption = False,
    require_signature: o.SignatureOption = None,
    json: o.JsonOption = False,
) -> None:
    """Judge a model on a test file (evaluate MODEL TEST), or predictions or scores against the truth.

    A model reads the test file as it read its training data, and decides by its own rule unless --rule names another.
    Labels that it has never seen count as wrong, and are listed.

    Documents are matched by id. A prediction is {"id": ..., "labels": [...]}; labels are names, paths, or objects with
    "label" or "path". With "closed": true, labels imply their ancestors. Scores are turned into labels by --rule; the
    default is the rule that predict uses for labels like those of the truth, and the output names it. If some documents
    got no label, the output counts them and adds the values of the others. Metrics that do not apply are skipped with
    the reason.

    --by judges parts of the documents by the first metric, with intervals, and tells which of them differ from all
    other documents (p < 0.05 after Holm's correction).

    Both files are read in batches. If their ids are in the same order, memory does not grow with the number of
    documents, except for a few bytes per document and metric with --intervals and --by, and for the texts of at most
    100,000 documents with --errors.

    With --cluster or --shard, each test file is judged apart; what is found of it is stored in OUTPUT, and merged to
    the result of one pass. The last share prints it; so does any share that is run again.

    \b
    Examples:
      treelabel evaluate model test.csv
      treelabel evaluate test.jsonl predictions.jsonl --taxonomy tax.tsv
      treelabel evaluate test.jsonl scores.npz \\
        --metrics hf1,hf1_auc,precision@5 --intervals --json
      treelabel evaluate test.csv predictions.jsonl --train train.csv \\
        --by-label --errors errors.csv
      treelabel evaluate model test.csv --by language --metrics hf1
      treelabel predict model test.csv -o - | treelabel evaluate test.csv -
      treelabel evaluate model 'test/*.parquet' --cluster auto -o states
    """
    from treelabel.core.inputs import STANDARD
    from treelabel.data.io.tables import require_table_format

    if is_model_folder(predictions):
        raise TreelabelError(f"{predictions} is a model, which stands first: treelabel evaluate {predictions} TEST")
    if truth == predictions == STANDARD:
        raise TreelabelError("only one of the two files can be standard input (-)")
    for table in (by_label_output, errors):
        if table is not None:
            require_table_format(table)
            o.check_output(table, force, truth, predictions, train)
    if errors is not None and errors == by_label_output:
        raise TreelabelError(f"{errors}: --errors and --by-label-output name the same file; give each its own")
    asked = {
        "metrics": metric_names(metrics),
        "keep_documents": intervals or by is not None,
        "by_label": by_label or by_label_output is not None,
        "errors": errors is not None,
    }
    where = Sharding.of(shard, cluster)
    judged: Judged | None
    further: Further = {}
    if where is not None and (by is not None or second_labels is not None):
        raise TreelabelError("--by and --second-labels go with one file, without --shard and --cluster")
    columns = JudgedColumns(by, second_labels)
    if where is None:
        judged, further = _judge_files(truth, predictions, read, train, rule, require_signature, columns, asked)
    else:
        judged = _judge_shards(where, truth, predictions, output, read, train, rule, require_signature, asked)
    if judged is not None:
        written = _write_tables(judged, by_label_output, errors)
        systems = (truth, predictions) if is_model_folder(truth) else ("--truth", truth, "--predictions", predictions)
        by_rule = () if rule is None else ("--rule", rule)
        further_command = command_line("report", *systems, *by_rule, "-o", "report.html")
        # What came from a pipe is gone.
        report = "" if STANDARD in (truth, predictions) else further_command
        _print_judged(judged, further, intervals, by_label, written, json, report)


def _write_tables(judged: "Judged", by_label: Path | None, errors: Path | None) -> list[str]:
    """Write the tables that were asked for; return a line about each."""
    from treelabel.data.io.tables import write_table

    written = []
    if judged.labels is not None and by_label is not None:
        write_table(judged.labels.to_arrow(), by_label)
        written.append(f"{by_label}: {len(judged.labels.rows()):,} labels, worst first")
    if judged.wrong is not None and errors is not None:
        write_table(judged.wrong.to_arrow(), errors)
        written.append(f"{errors}: {judged.wrong}")
    return written


def _print_judged(
    judged: "Judged",
    further: "Further",
    intervals: bool,
    by_label: bool,
    written: list[str],
    json: bool,
    next_command: str,
) -> None:
    if json:
        tables = {name: each.to_json() for name, each in further.items()}
        print_json(_stored(judged, intervals, by_label) | tables)
        return
    parts = [each for each in (judged.result.headline, judged.result.table(intervals)) if each]
    parts += [str(judged.labels)] if by_label and judged.labels is not None else []
    parts += map(str, further.values())
    parts += ["\n".join(written)] if written else []
    print_result({}, "\n\n".join(parts), False, next_command)


def _judge_files(
    truth: Path,
    predictions: Path,
    read: o.ReadArguments,
    train: Path | None,
    rule: str | None,
    require_signature: Path | None,
    columns: "JudgedColumns",
    asked: dict[str, Any],
) -> "tuple[Judged, Further]":
    """Judge a model, or predictions, in one pass."""
    from treelabel.data.io.tables import repeatable

    # Files are read more than once.
    if is_model_folder(truth):
        with repeatable(predictions, read.format) as test:
            return _judge_model(truth, test, read, train, rule, require_signature, columns, asked)
    with repeatable(truth, read.format) as true, repeatable(predictions) as system:
        return _judge(true, system, read, train, columns, rule=rule, **asked)


def _parts(data: "DataFile", hierarchy: "Hierarchy", by: str | None) -> "Mapping[str, LongArray]":
    """Find the documents of each part that was asked for; the file is read in the order in which it will be judged."""
    from scipy import sparse

    from treelabel.core.registry import did_you_mean
    from treelabel.evaluation.document_slices import rows_by_label, rows_by_value

    if by is None:
        return {}
    batches = list(data.batches(hierarchy, extra="others"))
    columns = list(dict.fromkeys(name for batch in batches for name in batch.extra))
    kind, _, level = by.partition(":")
    if by in columns:
        # A column of JSON Lines may begin late.
        rows = [batch.extra[by].to_pylist() if by in batch.extra else [None] * len(batch) for batch in batches]
        return rows_by_value([value for values in rows for value in values])
    if by == "label" or (kind == "level" and level.isdigit()):
        labels = sparse.vstack([batch.labels for batch in batches], format="csr")
        return rows_by_label(hierarchy, labels, None if by == "label" else int(level))
    known = [*columns, "label", "level:1"]
    hint = did_you_mean(by, known)
    raise TreelabelError(
        f"--by {by}: not a further column of {data.path}; expected one of: {', '.join(known)}{hint and f'; {hint}'}"
    )


def _further(
    judged: "Judged", parts: "Mapping[str, LongArray]", by: str | None, ceiling: "Agreement | None"
) -> "Further":
    """Judge the parts of the documents that were asked for, and add what is known of a second annotator."""
    from treelabel.evaluation.document_slices import slice_table

    found: Further = {}
    if by is not None:
        found["slices"] = slice_table(judged.result, parts, by=by, progress=None)
    return found if ceiling is None else {**found, "agreement": ceiling}


def _agreement(first: "DataFile", second: "DataFile", hierarchy: "Hierarchy", column: str) -> "Agreement":
    """Read the labels of two annotators from two columns of a file, and say how far they agree."""
    import numpy as np

    from treelabel.evaluation.agreement import agreement

    one, two = (_lines_and_labels(each, hierarchy) for each in (first, second))
    # Either column may have rows that were skipped.
    _, left, right = np.intersect1d(one[0], two[0], return_indices=True)
    sets = one[1][left], two[1][right]
    used = [hierarchy.closure(labels).sum(axis=0) > 0 for labels in sets]
    if not (used[0] & used[1]).any():
        print_note(
            f"{first.path}: the labels of column {column} are all others than the true ones; is it the right one?"
        )
    return agreement(hierarchy, *sets)


def _lines_and_labels(file: "DataFile", hierarchy: "Hierarchy") -> "tuple[Any, LabelMatrix]":
    """Read the labels of a file, and the lines on which documents begin, or their ids where there are no lines."""
    import numpy as np
    from scipy import sparse

    batches = [(batch.lines, batch.ids, batch.labels) for batch in file.batches(hierarchy)]
    lines = [ids if line is None else line for line, ids, _ in batches]
    return np.concatenate(lines), sparse.vstack([labels for *_, labels in batches], format="csr")


def _judge(
    truth: Path, predictions: Path, read: o.ReadArguments, train: Path | None, columns: "JudgedColumns", **asked: Any
) -> "tuple[Judged, Further]":
    """Wire files to what judges them."""
    from treelabel.data.data_file import DataFile, with_hierarchy
    from treelabel.evaluation.streaming import Question, Survey, judge_files
    from treelabel.rules.tuned_rule import column_of
    from treelabel.scores.score_files import is_score_file
    from treelabel.scores.stream import ScoreFile

    options = read.for_files(truth, train).options(need_text=False)
    taxonomy = options.pop("taxonomy")
    files = [DataFile.of(file, **options) for file in (truth, train) if file is not None]
    (data, *learned), hierarchy, is_of_labels = with_hierarchy(files, taxonomy)
    h = hierarchy_with_systems(hierarchy, is_of_labels, [predictions], read)
    counted = Survey.of(h, lambda: learned[0].batches(h)) if learned else None
    is_scored = is_score_file(predictions)
    system: Opened = ScoreFile(predictions).batches if is_scored else lambda: opened_predictions(predictions, h, read)
    # What is quick, and may be misspelt, comes before what takes long.
    parts, ceiling = _parts(data, h, columns.by), None
    if columns.second_labels is not None:
        second = DataFile.of(truth, **{**options, "labels": [columns.second_labels]})
        (first, second), of_both, _ = with_hierarchy([files[0], second], taxonomy)
        ceiling = _agreement(first, second, of_both, columns.second_labels)
    extra: Extra = "none" if column_of(asked["rule"]) is None else "others"
    opened = partial(data.batches, h, extra=extra)
    judged = judge_files(h, opened, system, Question(**asked), counted, str(predictions))
    return judged, _further(judged, parts, columns.by, ceiling)


def _judge_model(
    folder: Path,
    test: Path,
    read: o.ReadArguments,
    train: Path | None,
    rule: str | None,
    require_signature: Path | None,
    columns: "JudgedColumns",
    asked: dict[str, Any],
) -> "tuple[Judged, Further]":
    """Wire a model and a test file to what judges them."""
    from treelabel.data.data_file import DataFile
    from treelabel.evaluation.streaming import Question, Survey, judge_files
    from treelabel.models.persistence.load import load_model
    from treelabel.rules.tuned_rule import column_of

    model = load_model(folder, require_signature)
    if read.taxonomy is not None:
        raise TreelabelError("--taxonomy cannot be given here: the model knows its hierarchy")
    read = read.like(model)
    options = read.for_files(test).options()
    del options["taxonomy"]
    data = DataFile.of(test, **options)
    h = with_unseen_labels(model.hierarchy_, data, read.sep)
    counted = Survey.of_counts(h, model.profile_.frequencies, model.hierarchy_, model.profile_.documents)
    if train is not None:
        of_train = read.for_files(train).options()
        del of_train["taxonomy"]
        counted = Survey.of(h, lambda: DataFile.of(train, **of_train).batches(h))
    question = Question(rule=model.default_rule if rule is None else rule, **asked)
    parts, ceiling = _parts(data, h, columns.by), None
    if columns.second_labels is not None:
        second = DataFile.of(test, **{**options, "labels": [columns.second_labels]})
        ceiling = _agreement(data, second, with_unseen_labels(h, second, read.sep), columns.second_labels)
    extra: Extra = "none" if column_of(rule) is None else "others"
    opened = partial(data.batches, h, extra=extra)
    system: Opened = lambda: answers(model, str(folder), opened(), rule)  # noqa: E731  a name for the type checker
    judged = judge_files(h, lambda: data.batches(h), system, question, counted, str(folder))
    return judged, _further(judged, parts, columns.by, ceiling)


def _judge_shards(
    where: Sharding,
    folder: Path,
    tests: Path,
    output: Path | None,
    read: o.ReadArguments,
    train: Path | None,
    rule: str | None,
    require_signature: Path | None,
    asked: dict[str, Any],
) -> "Judged | None":
    """Judge a model on files that are shared between processes; None while other shares are missing."""
    from treelabel.cluster.sharded_evaluation import JudgeJob, judge_shards
    from treelabel.core.progress import progress_bar
    from treelabel.data.io.tables import data_files, existing_data
    from treelabel.evaluation.streaming import Question
    from treelabel.operations.batch_scorer import BatchScorer

    if not is_model_folder(folder) or train is not None or asked["errors"] or output is None:
        raise TreelabelError(
            "--shard and --cluster judge a model on test files (evaluate MODEL 'TEST*' -o FOLDER), without --train and "
            "--errors: predictions that are there already are judged in one pass"
        )
    scorer = BatchScorer(folder, rule, require_signature=require_signature)
    if scorer.decides_on_all:
        raise TreelabelError(f"the rule {scorer.rule} decides on all documents together, and a shard has only some")
    model = scorer.model
    sources = [source.absolute() for source in data_files(existing_data(tests))]
    reading = read.like(model).for_files(sources[0])
    options = reading.options()
    if options.pop("taxonomy") is not None:
        raise TreelabelError("--taxonomy cannot be given here: the model knows its hierarchy")
    job = JudgeJob(scorer, sources[0], options, output.absolute(), Question(rule=rule, **asked))
    with progress_bar("files", len(sources)) as report, where.engine() as engine:
        judged = judge_shards(
            job,
            sources,
            lambda labels: unseen_paths(model.hierarchy_, labels, reading.sep, tests),
            engine,
            where.share,
            report,
        )
    if isinstance(judged, int):
        print_note(f"{output}: {judged:,} of {len(sources):,} files are judged by other shares; the last prints values")
        return None
    return judged


def _stored(judged: "Judged", intervals: bool, by_label: bool) -> dict[str, Any]:
    """Return all that was found as JSON values."""
    result = judged.result
    stored: dict[str, Any] = jsonlib.loads(result.to_json())
    if intervals:
        known = result.intervals()
        ends = {name: [each.low, each.high] for name, each in known.items()}
        # JSON has no way to write that an end is not known.
        stored["intervals"] = {name: [None if isnan(end) else end for end in pair] for name, pair in ends.items()}
        stored["no_interval"] = {name: each.reason for name, each in known.items() if each.reason}
    if by_label and judged.labels is not None:
        stored["labels"] = judged.labels.rows()
    if judged.wrong is not None:
        stored["errors"] = {"documents": judged.wrong.count, "kinds": judged.wrong.kinds}
    return stored
