"""Commands of models: fit, explain, export, models."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli.ahead import compiling_ahead
from treelabel.cli.findings import print_serious
from treelabel.cli.options import ForceOption, JsonOption, ReadArguments, SignatureOption, with_read_options
from treelabel.cli.printing import echo
from treelabel.cli.report import held_out_report, require_report
from treelabel.cli.signals import Terminated

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.models.base import Model

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder that fit wrote.")]
# What shells say of a command that ended by Ctrl-C.
INTERRUPTED = 130
# With fewer documents fit says that it could not judge the model.
FEWEST_HELD_OUT = 30


@with_read_options
def fit(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Data file with texts and labels.")],
    read: ReadArguments,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    model: Annotated[str, typer.Option(help="Model; treelabel models lists them.")] = "linear",
    encoder: Annotated[
        str | None, typer.Option(help="Encoder of texts, for models that take one; treelabel encoders lists them.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="Loss, for models that take one; treelabel models lists them.")
    ] = None,
    set: Annotated[list[str] | None, typer.Option(help="A setting of the model, as C=1 (repeat).")] = None,  # noqa: A002
    valid: Annotated[Path | None, typer.Option(help="Data file to calibrate or to stop early on.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop learning after this time, keeping the best.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an HTML report of held-out documents, too: a fifth of TRAIN, at most 10,000, whole groups. A "
            "second model learns from the others for it, which takes as long again.",
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Learn a model from texts with labels, and say how good it is on documents that it had not learned.

    The first Ctrl-C ends learning early and keeps the unfinished model, unless there is one to replace, which then
    stays; a second one gives up. Several processes or machines share the work of a neural model:
    torchrun --nproc-per-node 2 -m treelabel fit ...

    \b
    Examples:
      treelabel fit train.csv -o model
      treelabel fit train.csv -o model --group customer --report report.html
      treelabel fit train.jsonl -o model --taxonomy tax.tsv --set C=1 --set min_df=2
      treelabel fit train.jsonl -o model --valid valid.jsonl --model bag --loss win_log
      treelabel fit train.jsonl -o model --model bag --loss champ --set "loss_params={'beta': 0.1}"
      treelabel fit train.jsonl -o model --model neural --encoder minilm --loss conditional_softmax_la
      treelabel fit train.jsonl -o model --model neural --encoder scratch --set checkpoint_dir=unfinished
    """
    from treelabel.core.errors import TreelabelError
    from treelabel.models.persistence.store import require_replaceable
    from treelabel.models.registry import make_model

    settings = dict(parse_setting(text) for text in set or [])
    named = {name: value for name, value in (("encoder", encoder), ("loss", loss)) if value is not None}
    twice = [name for name in named if name in settings]
    if twice:
        raise TreelabelError(f"{twice[0]} was given twice: as --{twice[0]} and as --set {twice[0]}=")
    made = make_model(model, **{"seed": seed, **named, **settings})
    # Hours of learning are not lost to a name that is taken.
    require_replaceable(output, force)
    if report is not None:
        require_report(report, force, train, valid)
    with compiling_ahead(model):
        data, checked = read.read_with(train, valid)
        if is_first_process():
            print_serious(train, data, checked)
        made.fit(data, valid=checked, max_seconds=max_seconds)
    if is_first_process():
        _keep(made, data, output, force, bool(settings.get("checkpoint_dir")))
    if report is not None and made.stopped_ != "interrupt":
        held_out_report(report, made, data, checked, max_seconds, write=is_first_process())


def _keep(made: "Model", data: "Dataset", output: Path, force: bool, has_checkpoint: bool) -> None:
    """Save a model that has learned, and tell what was found out about it."""
    more = "; the same command goes on from its checkpoint" if has_checkpoint else ""
    if made.stopped_ == "interrupt" and output.exists() and any(output.iterdir()):
        typer.echo(f"treelabel: learning was interrupted; the model in {output} stays as it is{more}", err=True)
        raise typer.Exit(INTERRUPTED)
    save(made, output, force)
    described = f"{made.name}, {len(data):,} documents, {len(data.hierarchy):,} nodes, {size_of(output):.1f} MB"
    typer.echo(f"{output}: {described}")
    result = made.evidence_.describe(made.default_rule, made.regime_)
    if made.evidence_.documents == 0 and len(data) < FEWEST_HELD_OUT:
        result = f"{len(data):,} documents are too few to hold any out: nothing is known of how good the model is"
    for line in (result, made.irregular_documents_):
        if line:
            echo(line)
    if made.stopped_ is not None:
        typer.echo(f"learning was stopped before its end, and the best so far was kept{more}")
        for stage in made.evidence_.stages:
            echo(f"  {stage}")


def save(model: "Model", output: Path, force: bool) -> None:
    """Save a model; a signal that comes when it is in place already is too late, and the command ends as usual."""
    before = output.stat().st_ino if output.exists() else None
    try:
        model.save(output, overwrite=force)
    except (KeyboardInterrupt, Terminated):
        if (output.stat().st_ino if output.exists() else None) == before:
            raise


def is_first_process() -> bool:
    """Return whether this is the first of the processes that torchrun or accelerate started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def size_of(folder: Path) -> float:
    """The megabytes of a model folder."""
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def parse_setting(text: str) -> tuple[str, Any]:
    """Read name=value; values are Python's numbers, lists and words, and none, true and false in any case."""
    import ast

    from treelabel.core.errors import TreelabelError

    name, equals, value = text.partition("=")
    if not equals:
        raise TreelabelError(f"--set {text}: expected name=value, such as C=1")
    try:
        return name.strip(), ast.literal_eval(value)
    except (ValueError, SyntaxError):
        words: dict[str, Any] = {"none": None, "null": None, "true": True, "false": False}
        return name.strip(), words.get(value.strip().lower(), value)


def explain(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text.")],
    json: JsonOption = False,
    require_signature: SignatureOption = None,
) -> None:
    """Explain which words support and which oppose each step of the predicted path.

    \b
    Example:
      treelabel explain model "chocolate cookie with white cream filling"
    """
    import json as jsonlib
    from dataclasses import asdict

    from treelabel.core.errors import printable
    from treelabel.models.persistence.load import load_model

    steps = load_model(model, require_signature).explain(text)
    if json:
        echo(jsonlib.dumps([asdict(step) for step in steps], indent=2, ensure_ascii=False))
        return
    for step in steps:
        echo(f"{printable(step.label)}  p {step.p:.3f}")
        for what, listed in (("supporting", step.supporting_terms), ("opposing", step.opposing_terms)):
            words = ", ".join(f"{name} {value:+.2f}" for name, value in listed)
            echo(f"  {what:<10} {printable(words) or '-'}")


def models(json: JsonOption = False) -> None:
    """List the models and their settings, and the losses and heads that some of them take.

    \b
    Example:
      treelabel models
    """
    import json as jsonlib
    from dataclasses import asdict

    from treelabel.core.errors import TreelabelError
    from treelabel.models.linear.heads import HEADS
    from treelabel.models.registry import MODELS
    from treelabel.neural.losses.registry import LOSSES

    settings: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for name, row in MODELS.items():
        try:
            every = row.maker().flat_settings()
        except TreelabelError as error:
            every, missing[name] = {}, str(error)
        settings[name] = {key: value for key, value in every.items() if key not in ("hierarchy", "seed")}
    if json:
        rows = {name: {"help": row.help, "settings": settings[name]} for name, row in MODELS.items()}
        losses, heads = (
            {name: row.help for name, row in LOSSES.items()},
            {name: row.help for name, row in HEADS.items()},
        )
        params = {name: {key: asdict(own) for key, own in row.parameters.items()} for name, row in LOSSES.items()}
        result = {"models": rows, "losses": losses, "loss_params": params, "heads": heads}
        typer.echo(jsonlib.dumps(result, indent=2))
        return
    for name, row in MODELS.items():
        typer.echo(f"{name:<20}{row.help}")
        if settings[name] or name in missing:
            listed = ", ".join(f"{key}={value}" for key, value in settings[name].items())
            typer.echo(f"{'':<20}{missing.get(name, listed)}")
    typer.echo("\nhead= of linear")
    for head in HEADS.values():
        typer.echo(f"  {head.name:<28}{head.help}")
    typer.echo("\nloss= of neural and bag, with its loss_params=")
    for loss in LOSSES.values():
        typer.echo(f"  {loss.name:<28}{loss.help}")
        for key, parameter in loss.parameters.items():
            typer.echo(f"  {'':<28}{key}={parameter.default:g}: {parameter.help}")


def export(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    int8: Annotated[bool, typer.Option("--int8", help="Weights of eight bits: faster, a little less exact.")] = False,
    force: ForceOption = False,
    require_signature: SignatureOption = None,
) -> None:
    """Write a neural model as an ONNX graph, which scores faster on a CPU and without torch.

    \b
    Examples:
      treelabel export model -o model-onnx
      treelabel export model -o model-int8 --int8
    """
    from treelabel.core.errors import TreelabelError
    from treelabel.models.persistence.load import load_model
    from treelabel.models.persistence.store import require_replaceable

    loaded: Any = load_model(model, require_signature)
    if not hasattr(loaded, "exported"):
        raise TreelabelError(f"{model}: a model of the kind {loaded.name} is no network; only neural can be exported")
    require_replaceable(output, force)
    save(loaded.exported("int8" if int8 else "onnx"), output, force)
    typer.echo(f"{output}: {size_of(output):.1f} MB")
