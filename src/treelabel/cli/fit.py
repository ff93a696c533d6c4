"""The command fit: learn a model, save it, and say how good it is."""

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.models import parse_settings, save, size_of
from treelabel.cli.printing import command_line, echo, print_result, print_serious
from treelabel.cli.process import INTERRUPTED
from treelabel.cli.report import print_written
from treelabel.core.errors import TreelabelError, printable
from treelabel.core.progress import is_quiet

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.models.base import Model

# With fewer documents fit says that it could not judge the model.
FEWEST_JUDGED = 30
# Shares of the training documents that fit --report holds out, and at most how many.
HELD_OUT_SHARE = 0.2
MOST_HELD_OUT = 10_000
FEWEST_HELD_OUT = 10
GOES_ON = "; the same command goes on from its checkpoint"


@o.with_read_options
def fit(
    train: o.TrainArgument,
    read: o.ReadArguments,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    model: Annotated[
        str | None, typer.Option(help="Model; treelabel models lists them.", show_default="linear")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="In place of a model: fast, balanced (the default) or best (with an encoder).")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Encoder of texts, for models that take one; treelabel encoders lists them.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="Loss, for models that take one; treelabel models lists them.")
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="METRIC",
            help="What predictions will be judged by: the rule, and n-grams and head, are chosen for it. treelabel "
            "metrics lists them.",
            show_default="leaf accuracy, or hF1",
        ),
    ] = None,
    set: o.SetOption = None,  # noqa: A002
    valid: Annotated[Path | None, typer.Option(help="Data file to calibrate or to stop early on.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop learning after this time, keeping the best.")] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Predict nodes that cover the true label with this probability, such as 0.9; up to a fifth of TRAIN, "
            "1,000 documents at most, is kept out of learning for it."
        ),
    ] = None,
    seed: o.SeedOption = 0,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an HTML report of held-out documents, too: a fifth of TRAIN, at most 10,000, whole groups. A "
            "second model learns from the others for it, which takes as long again.",
        ),
    ] = None,
    keep_unfinished: Annotated[
        bool, typer.Option("--keep-unfinished", help="At Ctrl-C, write the best so far, where there is no model yet.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Learn on the nodes of Ray: auto, or an address; the same bits as here."),
    ] = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
) -> None:
    """Learn a model from texts with labels, and print how good it is on held-out documents.

    Ctrl-C ends learning, and nothing is written. With --keep-unfinished, the best model so far is written, unless it
    would replace another. A second Ctrl-C ends at once. Several processes or machines can share the work of a neural
    model: torchrun --nproc-per-node 2 -m treelabel fit ... With --cluster, all nodes of Ray learn the outputs of linear
    and the label trees of extreme, and neural models by torchrun with one process on each node.

    \b
    Examples:
      treelabel fit train.csv -o model
      treelabel fit train.csv -o model --preset best
      treelabel fit train.csv -o model --coverage 0.9
      treelabel fit train.csv -o model --for micro_f1
      treelabel fit train.csv -o model --group customer --report report.html
      treelabel fit train.jsonl -o model --taxonomy tax.tsv --set C=1 \\
        --set min_df=2
      treelabel fit train.jsonl -o model --valid valid.jsonl --model bag \\
        --loss win_log
      treelabel fit train.jsonl -o model --model bag --loss champ \\
        --set "loss_params={'beta': 0.1}"
      treelabel fit train.jsonl -o model --model neural --encoder minilm \\
        --loss conditional_softmax_la
      treelabel fit train.jsonl -o model --model neural --encoder scratch \\
        --set checkpoint_dir=unfinished
      treelabel fit train.parquet -o model --model extreme --cluster auto
      treelabel fit corpus.annif.tsv -o model --model lexical \\
        --taxonomy vocab.ttl --set descriptions=vocab.ttl
    """
    from treelabel.core.inputs import suffixes
    from treelabel.data.taxonomy.skos import RDF_FORMATS, read_alternative_names
    from treelabel.models.persistence.store import require_replaceable
    from treelabel.operations.fit import choose_model

    settings = parse_settings(set)
    if isinstance(settings.get("descriptions"), str) and suffixes(Path(settings["descriptions"]))[0] in RDF_FORMATS:
        # Alternative labels of a vocabulary describe its concepts.
        settings["descriptions"] = read_alternative_names(settings["descriptions"], read.language, read.limits)
    asked = (("encoder", "encoder", encoder), ("loss", "loss", loss), ("for", "optimize", goal))
    twice = [(option, name) for option, name, value in asked if value is not None and name in settings]
    if twice:
        raise TreelabelError(f"{twice[0][1]} was given twice: as --{twice[0][0]} and as --set {twice[0][1]}=")
    named = {name: value for _, name, value in asked if value is not None}
    made = choose_model(model, preset, {"seed": seed, **named, **settings})
    # Hours of learning are not lost to a name that is taken.
    require_replaceable(output, force)
    if report is not None:
        from treelabel.report.writing import require_packages

        require_packages()
        o.check_output(report, force, train, valid)
    if cluster is not None and made.shares_training:
        from treelabel.cluster.torchrun import torchrun_on_ray

        echo(torchrun_on_ray(cluster, without_cluster(sys.argv[1:])))
        return
    # Of the processes that torchrun or accelerate started, one writes.
    is_first = os.environ.get("RANK", "0") == "0"
    data, checked = read.read_with(train, valid)
    if is_first:
        print_serious(train, data, checked)
    with _learning(cluster, output):
        made.fit(data, valid=checked, max_seconds=max_seconds, coverage=coverage)
    if is_first:
        if made.stopped_ == "interrupt":
            _require_kept(output, keep_unfinished, bool(settings.get("checkpoint_dir")))
        is_preset = model is None and preset in (None, "balanced")
        _store(made, data, output, force, bool(settings.get("checkpoint_dir")), json, is_preset)
    if made.stopped_ == "interrupt":
        raise typer.Exit(INTERRUPTED)
    if report is not None:
        held_out_report(report, made, data, checked, max_seconds, is_first, coverage)


def _learning(cluster: str | None, output: Path) -> AbstractContextManager[None]:
    """Have what can be divided learned by a cluster, if there is one."""
    if cluster is None:
        return nullcontext()
    from treelabel.cluster.distributed_fit import learning_on_ray

    return learning_on_ray(cluster, output.absolute().with_name(f".{output.name}.tasks"))


def without_cluster(arguments: list[str]) -> list[str]:
    """Return the arguments of the command without the option of the cluster.

    >>> without_cluster(["fit", "--cluster", "auto", "a.csv", "--cluster=auto"])
    ['fit', 'a.csv']
    """
    kept, skips = list[str](), False
    for argument in arguments:
        if not skips and not argument.startswith("--cluster="):
            skips = argument == "--cluster"
            kept += [] if skips else [argument]
        else:
            skips = False
    return kept


def _require_kept(output: Path, keep_unfinished: bool, has_checkpoint: bool) -> None:
    """End the command after an interrupt, unless the unfinished model is asked for and replaces none."""
    more = GOES_ON if has_checkpoint else ""
    if output.exists() and any(output.iterdir()):
        what = f"the model in {output} stays as it is"
    elif keep_unfinished:
        return
    else:
        what = "nothing was written (--keep-unfinished writes the best so far)"
    typer.echo(printable(f"treelabel: learning was interrupted; {what}{more}"), err=True)
    raise typer.Exit(INTERRUPTED)


def _store(
    made: "Model", data: "Dataset", output: Path, force: bool, has_checkpoint: bool, json: bool, is_preset: bool
) -> None:
    """Save a model that has learned, and tell what was found out about it."""
    from treelabel.data.checks.finding import plural
    from treelabel.operations.fit import describe_presets

    more = GOES_ON if has_checkpoint else ""
    save(made, output, force)
    size = f"{plural(len(data), 'document', 'documents')}, {plural(len(data.hierarchy), 'node', 'nodes')}"
    described = f"{made.name}, {size}, {size_of(output):.1f} MB"
    lines = [f"{output}: {described}"]
    result = made.evidence_.describe(made.default_rule, made.regime_)
    if made.evidence_.documents == 0 and len(data) < FEWEST_JUDGED:
        few = plural(len(data), "document is", "documents are")
        result = f"{few} too few to hold some out, so the quality of the model is unknown"
    if made.evidence_.tuning is not None:
        result += f", {getattr(made, 'tuning_seconds_', 0.0):.0f} s"
    presets = describe_presets(made) if is_preset and not is_quiet() else ""
    lines += [line for line in (result, presets, made.irregular_documents_) if line]
    if made.stopped_ is not None:
        lines.append(f"learning was stopped before its end, and the best so far was kept{more}")
        lines += [f"  {stage}" for stage in made.evidence_.stages]
    values = {
        "written": str(output),
        "model": made.name,
        "documents": len(data),
        "nodes": len(data.hierarchy),
        "megabytes": round(size_of(output), 1),
        "rule": made.default_rule,
        "stopped": made.stopped_,
        "evidence": asdict(made.evidence_),
    }
    further = ", or ".join((command_line("evaluate", output, "TEST"), command_line("predict", output, "NEW")))
    print_result(values, "\n".join(lines), json, further)


def held_out_report(
    output: Path,
    made: "Model",
    data: "Dataset",
    valid: "Dataset | None",
    max_seconds: float | None,
    write: bool,
    coverage: float | None = None,
) -> None:
    """Fit a second model like the first without documents that are held out, and write a report of these.

    The rules are those by which models hold documents out: drawn at random, groups whole. What a model keeps of its own
    held-out documents is not enough, as it was calibrated on these.
    """
    import numpy as np

    from treelabel.models.registry import make_model
    from treelabel.report.writing import write_report
    from treelabel.selection.training import hold_out

    groups = None if data.groups is None else np.unique(np.asarray(data.groups), return_inverse=True)[1]
    most = min(MOST_HELD_OUT, int(len(data) * HELD_OUT_SHARE))
    rows = hold_out(len(data), most, int(getattr(made, "seed", 0)), groups)
    held, rest = data[rows], data[np.setdiff1d(np.arange(len(data)), rows)]
    if len(held) < FEWEST_HELD_OUT:
        raise TreelabelError(f"{len(data):,} documents are too few to hold any out for a report; the model was saved")
    settings = made.flat_settings()
    if "checkpoint_dir" in settings:
        # The checkpoints there are those of the model that learned from all documents.
        settings["checkpoint_dir"] = None
    second = make_model(made.name, **settings).fit(rest, valid=valid, max_seconds=max_seconds, coverage=coverage)
    if not write:
        return
    if second.stopped_ == "interrupt":
        typer.echo("treelabel: learning was interrupted; no report was written, but the model was saved", err=True)
        raise typer.Exit(INTERRUPTED)
    grouped = ", whole groups of them," if data.group is not None else ""
    note = (
        f"These {len(held):,} documents were drawn at random{grouped} from the {len(data):,} training documents. The "
        f"model that was judged has the same settings as the saved one, but learned from the other {len(rest):,}; the "
        "saved one learned from all."
    )
    if second.stopped_ is not None:
        note += " Its learning was stopped before its end."
    title = f"Held-out documents of the model {made.name}"
    rule = second.default_rule
    write_report(output, held, {made.name: second.score(held)}, train=rest, rule=rule, title=title, note=note)
    print_written(output)
