"""Commands that use a model on files of any size: predict, score."""

from pathlib import Path
from typing import Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import command_line, print_note, print_result
from treelabel.cli.sharding import ClusterOption, Sharding, ShardOption, SparkOption
from treelabel.core.errors import TreelabelError

ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with what an earlier run left when it was cut short, and leave what is done if this one is.",
    ),
]
STANDARD = Path("-")
SCORES: dict[str, tuple[str, ...]] = {"npz": (".npz",), "parquet": (".parquet",)}


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

    Texts are read and scored in batches, so memory does not depend on their number. With --top, the file grows with
    that many scores a text, not with the nodes. Until all is done, results are in OUTPUT.partial.

    \b
    Examples:
      treelabel score model test.csv -o scores.npz
      treelabel score model all.csv.gz -o scores.parquet --top 20 --resume
    """
    from treelabel.operations.batch_scorer import BatchScorer
    from treelabel.operations.bulk import FileJob, output_format, score_file

    where = Sharding.of(shard, cluster, spark)
    scorer = BatchScorer(model, require_signature=require_signature)
    if where is not None:
        name = output_format(STANDARD, to_format, {"parquet": SCORES["parquet"], **SCORES}, "scores")
        job = FileJob(scorer, texts, {}, output, name, top=top, verb="score")
        where.run(job, read, SCORES[name][0], json)
        return
    o.check_output(output, force or resume, texts)
    name = output_format(output, to_format, SCORES, "scores")
    options = read.like(scorer.model).batch_options(texts)
    job = FileJob(scorer, texts, options, output, name, resume, top, verb="score")
    job.check()
    written = score_file(job)
    also = f"; {_texts(written.empty)} scored by what labels are usual" if written.empty else ""
    if output == STANDARD:
        typer.echo(f"{output}: {written.summary}{also}", err=True)
        return
    values = {"written": str(output), "summary": written.summary, "empty_texts": written.empty, "top": top}
    # The rule by which predict decides, unless it is too long to be written out.
    rule = "optimal:hf1" if "<" in scorer.model.default_rule else scorer.model.default_rule
    print_result(values, f"{output}: {written.summary}{also}", json, command_line("decide", output, "--rule", rule))


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

    Without --rule, the model's own rule decides, which fit prints: the one that was best on held-out documents. Texts
    are read, decided and written in batches, so memory does not depend on their number. Until all is done, results are
    in OUTPUT.partial. An empty or blank text gets no label, and is counted.

    JSON Lines have one object per document: {"id": ..., "labels": [{"label": name, "path": "A > B", "p": 0.93}, ...]},
    likeliest first; "closed": true means that labels imply their ancestors.

    Tables (.csv, .tsv, .parquet, .xlsx) have one row per document: id (or with --keep-columns the columns of the input)
    and predicted, path, p, level1, level2, ..., alternative1, alternative1_p, ...; if the input has a column of such a
    name, it becomes predicted_path and so on. Several labels share a cell, likeliest first, with "; " between them (if
    a label contains that, a note names the separator used). p is the probability of the first, all_p has those of all.

    For tools in which people confirm labels (.label_studio.json, .prodigy.jsonl, .argilla.json), predictions are
    suggestions next to the texts.

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

    where = Sharding.of(shard, cluster, spark)
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
        where.run(FileJob(scorer, texts, {}, target, name), read, entry.endings[0], json)
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
        print_result(
            values, f"{output}: {'; '.join(notes)}", json, command_line("review", model, texts, "-o", "queue.csv")
        )
    elif written.empty or written.escaped:
        print_note("; ".join(notes))


def _texts(count: int) -> str:
    return "1 empty text was" if count == 1 else f"{count:,} empty texts were"
