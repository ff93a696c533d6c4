"""The command evaluate: judge predictions or scores, by metrics, by label, and document by document."""

import json as jsonlib
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from treelabel.cli.printing import print_json, print_note, print_result
from treelabel.cli.sharding import ClusterOption, Sharding, ShardOption
from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from treelabel.data.data_file import DataFile
    from treelabel.evaluation.agreement import Agreement
    from treelabel.evaluation.document_slices import SliceTable
    from treelabel.evaluation.streaming import Judged, Opened
    from treelabel.hierarchy.hierarchy import Hierarchy


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
    slices: SliceTable | None = None
    if where is None:
        judged, slices = _judge_files(truth, predictions, read, train, rule, require_signature, by, asked)
    elif by is not None or second_labels is not None:
        raise TreelabelError("--by and --second-labels go with one file, without --shard and --cluster")
    else:
        judged = _judge_shards(where, truth, predictions, output, read, train, rule, require_signature, asked)
    if judged is not None:
        test = predictions if is_model_folder(truth) else truth
        ceiling = None if second_labels is None else _agreement(test, second_labels, read)
        further = {name: each for name, each in (("slices", slices), ("agreement", ceiling)) if each is not None}
        written = _write_tables(judged, by_label_output, errors)
        systems = f"{truth} {predictions}" if is_model_folder(truth) else f"--truth {truth} --predictions {predictions}"
        _print_judged(judged, further, intervals, by_label, written, json, f"treelabel report {systems} -o report.html")


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
    further: "Mapping[str, SliceTable | Agreement]",
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
    by: str | None,
    asked: dict[str, Any],
) -> "tuple[Judged, SliceTable | None]":
    """Judge a model, or predictions, in one pass."""
    from treelabel.data.io.tables import repeatable

    # Files are read more than once.
    if is_model_folder(truth):
        with repeatable(predictions, read.format) as test:
            return _judge_model(truth, test, read, train, rule, require_signature, by, asked)
    with repeatable(truth, read.format) as true, repeatable(predictions) as system:
        return _judge(true, system, read, train, by, rule=rule, **asked)


def _slices(judged: "Judged", data: "DataFile", hierarchy: "Hierarchy", by: str | None) -> "SliceTable | None":
    """Judge the parts of the documents that were asked for; the file is read once more, in the same order."""
    from scipy import sparse

    from treelabel.evaluation.document_slices import rows_by_label, rows_by_value, slice_table

    if by is None:
        return None
    batches = list(data.batches(hierarchy, extra="others"))
    columns = list(dict.fromkeys(name for batch in batches for name in batch.extra))
    kind, _, level = by.partition(":")
    if by in columns:
        values = [value for batch in batches for value in batch.extra[by].to_pylist()]
        return slice_table(judged.result, rows_by_value(values), by=by)
    if by == "label" or (kind == "level" and level.isdigit()):
        labels = sparse.vstack([batch.labels for batch in batches], format="csr")
        depth = None if by == "label" else int(level)
        return slice_table(judged.result, rows_by_label(hierarchy, labels, depth), by=by)
    known = ", ".join([*columns, "label", "level:1"])
    raise TreelabelError(f"--by {by}: {data.path} has no such column; expected one of: {known}")


def _agreement(file: Path, second_labels: str, read: o.ReadArguments) -> "Agreement":
    """Read the labels of two annotators, and say how far they agree."""
    from scipy import sparse

    from treelabel.core.inputs import STANDARD
    from treelabel.data.data_file import DataFile, with_hierarchy
    from treelabel.evaluation.agreement import agreement

    if file == STANDARD:
        raise TreelabelError("--second-labels reads the file again, which standard input (-) cannot be; name a file")
    options = read.for_files(file).options(need_text=False)
    taxonomy = options.pop("taxonomy")
    columns = [options, {**options, "labels": [second_labels]}]
    files, h, _ = with_hierarchy([DataFile.of(file, **each) for each in columns], taxonomy)
    read_labels = [[batch.labels for batch in each.batches(h)] for each in files]
    one, two = (sparse.vstack(batches, format="csr") for batches in read_labels)
    if one.shape != two.shape:
        raise TreelabelError(
            f"{file}: {one.shape[0]:,} documents have labels that can be used, and {two.shape[0]:,} those of column "
            f"{second_labels}; repair the rows that were skipped"
        )
    return agreement(h, one, two)


def _judge(
    truth: Path, predictions: Path, read: o.ReadArguments, train: Path | None, by: str | None, **asked: Any
) -> "tuple[Judged, SliceTable | None]":
    """Wire files to what judges them."""
    from treelabel.data.data_file import DataFile, with_hierarchy
    from treelabel.evaluation.streaming import Question, Survey, judge_files
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
    judged = judge_files(h, lambda: data.batches(h), system, Question(**asked), counted, str(predictions))
    return judged, _slices(judged, data, h, by)


def _judge_model(
    folder: Path,
    test: Path,
    read: o.ReadArguments,
    train: Path | None,
    rule: str | None,
    require_signature: Path | None,
    by: str | None,
    asked: dict[str, Any],
) -> "tuple[Judged, SliceTable | None]":
    """Wire a model and a test file to what judges them."""
    from treelabel.data.data_file import DataFile
    from treelabel.evaluation.streaming import Question, Survey, judge_files
    from treelabel.models.persistence.load import load_model

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
    system: Opened = lambda: answers(model, str(folder), data.batches(h), rule)  # noqa: E731  a name for the type checker
    judged = judge_files(h, lambda: data.batches(h), system, question, counted, str(folder))
    return judged, _slices(judged, data, h, by)


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
