"""Commands about models and encoders: models, encoders, explain, export, sign."""

import ast
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli.options import ForceOption, JsonOption, ModelArgument, SignatureOption
from treelabel.cli.printing import command_line, echo, print_entry, print_json, print_result
from treelabel.cli.process import Terminated
from treelabel.core.errors import TreelabelError, printable

if TYPE_CHECKING:
    from treelabel.models.base import Model


def save(model: "Model", output: Path, force: bool) -> None:
    """Save a model; a signal that comes when it is in place already is too late, and the command ends as usual."""
    before = output.stat().st_ino if output.exists() else None
    try:
        model.save(output, overwrite=force)
    except (KeyboardInterrupt, Terminated):
        if (output.stat().st_ino if output.exists() else None) == before:
            raise


def size_of(folder: Path) -> float:
    """The megabytes of a model folder."""
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def parse_settings(texts: list[str] | None) -> dict[str, Any]:
    """Read name=value; values are Python's numbers, lists and words, and none, true and false in any case."""
    words: dict[str, Any] = {"none": None, "null": None, "true": True, "false": False}
    settings = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise TreelabelError(f"--set {text}: expected name=value, such as C=1")
        try:
            settings[name.strip()] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name.strip()] = words.get(value.strip().lower(), value)
    return settings


def models(
    name: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="A model; its settings only.")] = None,
    json: JsonOption = False,
) -> None:
    """List the models and their settings, and the losses and heads that some of them take.

    The settings of models that need torch to be loaded are listed for one model, or with --json.

    \b
    Examples:
      treelabel models
      treelabel models hgclr
    """
    from treelabel.models.linear.heads import HEADS
    from treelabel.models.registry import MODELS
    from treelabel.neural.losses.registry import LOSSES

    listed = dict(MODELS.items()) if name is None else {name: MODELS.find(name)}
    if json:
        rows = {key: {"help": row.help, "settings": _settings(row)[0]} for key, row in listed.items()}
        losses = {key: row.help for key, row in LOSSES.items()}
        heads = {key: row.help for key, row in HEADS.items()}
        params = {loss: {key: asdict(each) for key, each in row.parameters.items()} for loss, row in LOSSES.items()}
        print_json({"models": rows, "losses": losses, "loss_params": params, "heads": heads})
        return
    for key, row in listed.items():
        print_entry(key, row.help, 20)
        waits = name is None and getattr(row, "extra", "") != "" and _has_torch()
        settings, missing = ({}, f"settings: treelabel models {key}") if waits else _settings(row)
        if settings or missing:
            print_entry("", missing or ", ".join(f"{key}={value}" for key, value in settings.items()), 20)
    if name is None:
        _print_parts(HEADS.values(), LOSSES.values())


def _has_torch() -> bool:
    """Return whether torch is installed, without loading it."""
    try:
        return find_spec("torch") is not None
    except ValueError:
        return False


def _settings(row: Any) -> tuple[dict[str, Any], str]:
    """Return the settings of a model, or why there are none."""
    try:
        every = row.maker().flat_settings()
    except TreelabelError as error:
        return {}, str(error)
    return {key: value for key, value in every.items() if key not in ("hierarchy", "seed")}, ""


def _print_parts(heads: Iterable[Any], losses: Iterable[Any]) -> None:
    typer.echo("\nhead= of linear")
    for head in heads:
        print_entry(f"  {head.name}", head.help, 30)
    typer.echo("\nloss= of neural and bag, with its loss_params=")
    for loss in losses:
        print_entry(f"  {loss.name}", loss.help, 30)
        for key, parameter in loss.parameters.items():
            print_entry("", f"{key}={parameter.default:g}: {parameter.help}", 30)


def encoders(json: JsonOption = False) -> None:
    """List the encoders of texts that work offline on this machine, and say how to get more.

    An encoder is given by its name, as name(max_length=128, pooling=cls), or by its folder.

    \b
    Examples:
      treelabel encoders
      treelabel fit train.jsonl -o model --model prototype \\
        --encoder "minilm(runtime=int8)"
    """
    from treelabel.encoders.files import PACKAGES, USUAL_LENGTH, encoder_folders, missing_packages, usable_files
    from treelabel.encoders.registry import source_of

    result = [
        {
            "name": files.name,
            "kind": files.kind,
            "width": files.width,
            "max_length": source_of(files, {}).max_length if files.kind == "transformer" else USUAL_LENGTH,
            "megabytes": round(files.megabytes, 1),
            "folder": str(files.folder),
            "missing": missing_packages(files.kind),
        }
        for files in usable_files()
    ]
    names = {row["name"] for row in result}
    more = [
        {"name": row.name, "help": row.help, "commands": row.commands}
        for row in PACKAGES.values()
        if row.name not in names
    ]
    folders = [str(folder) for folder in encoder_folders()]
    if json:
        print_json({"usable": result, "more": more, "folders": folders})
        return
    _print_usable(result)
    for row in more:
        typer.echo("")
        print_entry("", f"{row['name']}: {row['help']}; get it with", 0)
        for command in row["commands"]:
            typer.echo(f"  {command}")
    typer.echo("")
    print_entry(
        "",
        "Any Hugging Face encoder or model2vec model works, too, by the path of its folder (config.json, "
        "model.safetensors, tokenizer.json), or by the folder's name if it is in one of these:",
        0,
    )
    for folder in folders:
        typer.echo(f"  {folder}")
    print_entry(
        "",
        "TREELABEL_ENCODERS names more folders. Nothing is downloaded unasked: where there is a network, 'hf download "
        "bert-base-uncased' does it, and then that name works, too.",
        0,
    )


def _print_usable(result: list[dict[str, Any]]) -> None:
    if not result:
        typer.echo("no encoder is usable on this machine yet")
        return
    widest = max(8, *(len(row["name"]) for row in result)) + 2
    typer.echo(f"{'name':<{widest}}{'kind':<13}{'width':>6}{'tokens':>8}{'MB':>6}  folder")
    for row in result:
        numbers = f"{row['width'] or '-':>6}{row['max_length']:>8}{row['megabytes']:>6.0f}"
        line = f"{row['name']:<{widest}}{row['kind']:<13}{numbers}  "
        is_wide = len(line) + len(row["folder"]) > shutil.get_terminal_size().columns
        echo(f"{line.rstrip()}\n  {row['folder']}" if is_wide else f"{line}{row['folder']}")
    missing = sorted({package for row in result for package in row["missing"]})
    if missing:
        typer.echo(f'\nsome need {", ".join(missing)}: pip install "treelabel[neural]"')


def explain(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A text.")],
    json: JsonOption = False,
    require_signature: SignatureOption = None,
) -> None:
    """Show the words that support or oppose each step of every predicted path.

    If the model predicts no label, the path to the likeliest leaf is explained.

    \b
    Example:
      treelabel explain model "chocolate cookie with white cream filling"
    """
    from treelabel.models.persistence.load import load_model

    steps = _explained_steps(load_model(model, require_signature), text)
    if json:
        print_json([asdict(step) for step in steps])
        return
    for step in steps:
        echo(f"{printable(step.label)}  p {step.p:.3f}")
        for what, listed in (("supporting", step.supporting_terms), ("opposing", step.opposing_terms)):
            words = ", ".join(f"{name} {value:+.2f}" for name, value in listed)
            echo(f"  {what:<10} {printable(words) or '-'}")


def _explained_steps(model: "Model", text: str) -> list[Any]:
    """Explain the steps of every path that a model predicts for a text, each step once."""
    from treelabel.rules.decisions import decide

    scores = model.score([text])
    nodes = decide(scores, model.default_rule).most_specific.indices
    nodes = nodes[(-scores.dense()[0, nodes]).argsort(kind="stable")]
    steps: list[Any] = []
    for node in nodes.tolist() or [None]:
        steps += [step for step in model.explain(text, node) if step not in steps]
    return steps


def export(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    int8: Annotated[bool, typer.Option("--int8", help="Weights of eight bits: faster, a little less exact.")] = False,
    force: ForceOption = False,
    require_signature: SignatureOption = None,
    json: JsonOption = False,
) -> None:
    """Write a neural model, or the tuned encoder of a stack, as an ONNX graph, which scores faster on a CPU.

    \b
    Examples:
      treelabel export model -o model-onnx
      treelabel export model -o model-int8 --int8
    """
    from treelabel.models.persistence.load import load_model
    from treelabel.models.persistence.store import require_replaceable

    loaded: Any = load_model(model, require_signature)
    if not hasattr(loaded, "export"):
        raise TreelabelError(
            f"{model}: a model of the kind {loaded.name} is no network; only neural, and a stack over a tuned encoder, "
            "can be exported"
        )
    require_replaceable(output, force)
    save(loaded.export("int8" if int8 else "onnx"), output, force)
    megabytes = size_of(output)
    values = {"written": str(output), "megabytes": round(megabytes, 1)}
    print_result(values, f"{output}: {megabytes:.1f} MB", json, command_line("predict", output, "NEW"))


def sign(
    model: Annotated[Path | None, typer.Argument(metavar="[MODEL]", help="Model folder that fit wrote.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key (PEM) to sign the model with.")] = None,
    new_key: Annotated[
        Path | None, typer.Option(metavar="NAME", help="Make a pair of keys: NAME.pem and NAME.pub.pem.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Sign a model, so that others can tell who made it; or make the keys for that.

    Keep NAME.pem to yourself (TREELABEL_KEY_PASSPHRASE encrypts it), and give NAME.pub.pem to those who use your
    models: score, predict, explain and export take it as --require-signature, and TREELABEL_REQUIRE_SIGNATURE
    requires a signature of every model.

    \b
    Examples:
      treelabel sign --new-key ours
      treelabel sign model --key ours.pem
      treelabel predict model new.csv --require-signature ours.pub.pem
    """
    from treelabel.models.persistence import signing

    if new_key is not None and model is None and key is None:
        private, public = signing.new_key(new_key)
        text = f"{private}: keep it to yourself; it signs models\n{public}: give it to those who use them"
        print_result(
            {"private": str(private), "public": str(public)},
            text,
            json,
            command_line("sign", "MODEL", "--key", private),
        )
    elif new_key is None and model is not None and key is not None:
        fingerprint = signing.sign_model(model, key)
        text = f"{model}: signed with the key {fingerprint}"
        print_result({"signed": str(model), "key": fingerprint}, text, json)
    else:
        raise TreelabelError("expected either MODEL and --key FILE, to sign a model, or --new-key NAME, to make keys")
