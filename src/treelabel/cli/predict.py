"""Commands that use a model on files of any size: predict, score."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import print_note, print_result
from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from treelabel.cluster.shards import Engine, Verb
    from treelabel.operations.bulk import FileJob

ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with what an earlier run left when it was cut short, and leave what is done if this one is.",
    ),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N", help="Work on the I-th of N shares of the input files; OUTPUT is a folder with a part for each."
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Share the input files between the nodes of Ray: auto, or an address."),
]
SparkOption = Annotated[
    bool, typer.Option("--spark", help="Share the input files between the executors of Spark (spark-submit).")
]
STANDARD = Path("-")
SCORES: dict[str, tuple[str, ...]] = {"npz": (".npz",), "parquet": (".parquet",)}


class _Sharding(NamedTuple):
    """Where the files of an input are worked on, each a shard: here, by Ray or by Spark."""

    share: tuple[int, int] | None
    cluster: str | None
    spark: bool

    @classmethod
    def of(cls, shard: str | None, cluster: str | None, spark: bool) -> "_Sharding | None":
        """Read the options; None where there are none."""
        if sum((shard is not None, cluster is not None, spark)) > 1:
            raise TreelabelError("--shard, --cluster and --spark exclude each other: choose one")
        if shard is None and cluster is None and not spark:
            return None
        from treelabel.cluster.shards import parse_share

        return cls(None if shard is None else parse_share(shard), cluster, spark)

    def run(self, verb: "Verb", job: "FileJob", read: o.ReadArguments, ending: str, json: bool) -> None:
        """Work on all files, and report what has become of them."""
        from treelabel.cluster.shards import plan_shards, refuse_failures, run_shards
        from treelabel.core.progress import progress_bar
        from treelabel.data.io.tables import data_files, existing_data

        if STANDARD in (job.texts, job.output) or job.output.is_file():
            raise TreelabelError("shards are files, and their parts go to a folder: give a pattern, and -o FOLDER")
        job.scorer.check()
        if verb == "predict" and job.scorer.decides_on_all:
            raise TreelabelError(
                f"the rule {job.scorer.rule} decides on all documents together, and a shard has only some: write "
                "scores with treelabel score, and let treelabel decide take them all"
            )
        sources = data_files(existing_data(job.texts))
        # Read as the first one is: to look into each would take long.
        reading = read.like(job.model).batch_options(sources[0])
        jobs = {source: replace(job, texts=source.absolute(), reading=reading) for source in sources}
        shards = plan_shards(verb, jobs, job.output.absolute(), ending, self.share)
        if not shards:
            print_note(f"nothing to do: {len(sources):,} files have no share {self.share}")
            return
        with progress_bar("shards", len(shards)) as report, self._engine() as engine:
            summary = run_shards(shards, engine, report, self.share)
        print_result(summary.to_json(), f"{job.output}: {summary}", json)
        refuse_failures(summary, job.output)

    def _engine(self) -> "AbstractContextManager[Engine]":
        from treelabel.cluster.shards import run_here

        if self.cluster is not None:
            from treelabel.cluster.ray_engine import ray_engine

            return ray_engine(self.cluster)
        if self.spark:
            from treelabel.cluster.spark_engine import run_on_spark

            return nullcontext(run_on_spark)
        return nullcontext(run_here)


@o.with_read_options
def score(
    model: o.ModelArgument,
    texts: o.TextsArgument,
    read: o.ReadArguments,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Scores to write (.npz or .parquet); - for standard output.")
    ],
    top: Annotated[int | None, typer.Option(help="Keep only this many of the largest scores of each document.")] = None,
    to_format: o.ToFormatOption = None,
    resume: ResumeOption = False,
    shard: ShardOption = None,
    cluster: ClusterOption = None,
    spark: SparkOption = False,
    force: o.ForceOption = False,
    require_signature: o.SignatureOption = None,
    json: o.JsonOption = False,
) -> None:
    """Score texts: the probability of every node.

    Texts are read and scored a batch at a time, so that memory does not depend on how many there are; with --top, the
    file grows with that many scores, not with the nodes. What is done waits in OUTPUT.partial.

    \b
    Examples:
      treelabel score model test.csv -o scores.npz
      treelabel score model all.csv.gz -o scores.parquet --top 20 --resume
    """
    from treelabel.operations.batch_scorer import BatchScorer
    from treelabel.operations.bulk import FileJob, output_format, score_file

    where = _Sharding.of(shard, cluster, spark)
    scorer = BatchScorer(model, require_signature=require_signature)
    if where is not None:
        name = output_format(STANDARD, to_format, {"parquet": SCORES["parquet"], **SCORES}, "scores")
        job = FileJob(scorer, texts, {}, output, name, top=top)
        where.run("score", job, read, SCORES[name][0], json)
        return
    o.check_output(output, force or resume, texts)
    name = output_format(output, to_format, SCORES, "scores")
    job = FileJob(scorer, texts, read.like(scorer.model).batch_options(texts), output, name, resume, top)
    job.check()
    written = score_file(job)
    also = f"; {_texts(written.empty)} scored by what labels are usual" if written.empty else ""
    if output == STANDARD:
        typer.echo(f"{output}: {written.summary}{also}", err=True)
        return
    values = {"written": str(output), "summary": written.summary, "empty_texts": written.empty, "top": top}
    print_result(values, f"{output}: {written.summary}{also}", json, f"treelabel decide {output} --rule optimal:hf1")


@o.with_read_options
def predict(
    model: o.ModelArgument,
    texts: o.TextsArgument,
    read: o.ReadArguments,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write: .jsonl, .csv, .tsv, .parquet or .xlsx (default: print)."),
    ] = None,
    rule: Annotated[str | None, typer.Option(help=f"{o.RULE_HELP}.")] = None,
    unknown: o.UnknownOption = None,
    all_labels: o.AllLabelsOption = False,
    alternatives: Annotated[
        int, typer.Option(min=0, help="Add so many of the likeliest leaves that were not predicted.")
    ] = 0,
    keep_columns: Annotated[
        bool, typer.Option("--keep-columns", help="Write all columns of the input, too, before the predictions.")
    ] = False,
    uris: Annotated[
        bool, typer.Option("--uris", help="Write the URIs of labels, too, and notations where the vocabulary has any.")
    ] = False,
    to_format: o.ToFormatOption = None,
    raw: o.RawOption = False,
    resume: ResumeOption = False,
    shard: ShardOption = None,
    cluster: ClusterOption = None,
    spark: SparkOption = False,
    force: o.ForceOption = False,
    require_signature: o.SignatureOption = None,
    json: o.JsonOption = False,
) -> None:
    """Predict the labels of texts by a decision rule.

    Without --rule: by the rule that was best on held-out documents of the training data, which fit names. Texts are
    read, decided and written a batch at a time, so that memory does not depend on how many there are; what is done
    waits in OUTPUT.partial. A text that is empty or blank is left unknown, and counted.

    JSON Lines have one object per document: {"id": ..., "labels": [{"label": name, "path": "A > B", "p": 0.93}, ...]},
    surest first; "closed": true says that labels stand for their ancestors, too.

    Tables (.csv, .tsv, .parquet, .xlsx) have one row per document: id (or with --keep-columns the columns of the input)
    and predicted, path, p, level1, level2, ..., alternative1, alternative1_p, ...; predicted_path and so on where the
    input has a column of that name. Several labels share a cell, surest first, with "; " between them (or what is said
    in the end, where a label holds that); p is the probability of the first of them, and all_p then has those of all.

    For people who confirm them (.label_studio.json, .prodigy.jsonl, .argilla.json), predictions are suggestions beside
    the texts.

    \b
    Examples:
      treelabel predict model new.csv -o predictions.jsonl
      treelabel predict model new.csv -o predictions.csv --keep-columns \\
        --alternatives 3
      treelabel predict model new.csv.gz -o predictions.jsonl.gz --resume
      cat new.jsonl | treelabel predict model - --to-format csv | head
      treelabel predict model new.csv -o predictions.jsonl --rule optimal:hf1 \\
        --unknown 0.3
      treelabel predict model new.csv -o predictions.csv --uris
      treelabel predict model 'in/*.parquet' -o parts --shard 3/64
      treelabel predict model new.csv -o tasks.label_studio.json
      treelabel predict model new.csv -o predictions.jsonl \\
        --require-signature ours.pub.pem
    """
    from treelabel.data.io.registry import FORMATS
    from treelabel.operations.batch_scorer import BatchScorer, Form
    from treelabel.operations.bulk import FileJob, output_format, predict_file

    where = _Sharding.of(shard, cluster, spark)
    if where is None:
        o.check_output(output, force or resume, texts, rule)
    elif output is None:
        raise TreelabelError("parts need a folder: name it with -o")
    target = STANDARD if output is None else output
    tables = [entry for entry in FORMATS.values() if entry.holds & {"table", "suggestions"}]
    # Objects come first, as what is printed unless something else is asked for.
    tables.sort(key=lambda entry: "objects" not in entry.holds)
    ending_of = STANDARD if where is not None else target
    name = output_format(ending_of, to_format, {entry.name: entry.endings for entry in tables}, "predictions")
    entry = FORMATS[name]
    entry.require_extra()
    suggested = None if "suggestions" not in entry.holds else next(iter(entry.holds & {"paths", "path lists"}))
    form = Form(all_labels, alternatives, keep_columns, raw, uris, suggested)
    scorer = BatchScorer(model, rule, unknown=unknown, form=form, require_signature=require_signature)
    if where is not None:
        where.run("predict", FileJob(scorer, texts, {}, target, name), read, entry.endings[0], json)
        return
    job = FileJob(scorer, texts, read.like(scorer.model).batch_options(texts), target, name, resume)
    job.check()
    written = predict_file(job)
    notes = [f"{written.rows:,} documents by {written.rule}"]
    if written.empty:
        notes.append(f"{_texts(written.empty)} left unknown")
    if written.sep is not None:
        notes.append(f"several labels of a document are separated by {written.sep!r}")
    if written.escaped:
        notes.append(
            f"{written.escaped:,} cells that a spreadsheet would run begin with an apostrophe now (--raw: not)"
        )
    if output is not None and output != STANDARD:
        values = {"written": str(output), "documents": written.rows, "rule": written.rule}
        values |= {"empty_texts": written.empty, "separator": written.sep, "escaped_cells": written.escaped}
        print_result(values, f"{output}: {'; '.join(notes)}", json, f"treelabel review {model} {texts} -o queue.csv")
    elif written.empty or written.escaped:
        print_note("; ".join(notes))


def _texts(count: int) -> str:
    return "1 empty text was" if count == 1 else f"{count:,} empty texts were"
