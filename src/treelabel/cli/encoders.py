"""The command encoders: which encoders of texts this machine has, and how to get others."""

from typing import TYPE_CHECKING, Any

import typer

from treelabel.cli.options import JsonOption

if TYPE_CHECKING:
    from treelabel.encoders.files import Files


def encoders(json: JsonOption = False) -> None:
    """List the encoders of texts that work offline on this machine, and say how to get more.

    An encoder is given by its name, as name(max_length=128, pooling=cls), or by its folder.

    \b
    Examples:
      treelabel encoders
      treelabel fit train.jsonl -o model --model prototype --encoder "minilm(runtime=int8)"
    """
    import json as jsonlib

    from treelabel.encoders.files import PACKAGES, encoder_folders, usable_files

    result = [_described(files) for files in usable_files()]
    names = {row["name"] for row in result}
    more = [
        {"name": row.name, "help": row.help, "commands": row.commands}
        for row in PACKAGES.values()
        if row.name not in names
    ]
    folders = [str(folder) for folder in encoder_folders()]
    if json:
        typer.echo(jsonlib.dumps({"usable": result, "more": more, "folders": folders}, indent=2))
        return
    _print_usable(result)
    for row in more:
        typer.echo(f"\n{row['name']}: {row['help']}; get it with")
        for command in row["commands"]:
            typer.echo(f"  {command}")
    typer.echo("\nAny Hugging Face encoder or model2vec model works, too, by the path of its folder (config.json,")
    typer.echo("model.safetensors, tokenizer.json), or by the folder's name if it is in one of these:")
    for folder in folders:
        typer.echo(f"  {folder}")
    typer.echo("TREELABEL_ENCODERS names more folders. Nothing is downloaded unasked: where there is a network, 'hf")
    typer.echo("download bert-base-uncased' does it, and then that name works, too.")


def _print_usable(result: list[dict[str, Any]]) -> None:
    if not result:
        typer.echo("no encoder is usable on this machine yet")
        return
    widest = max(8, *(len(row["name"]) for row in result)) + 2
    typer.echo(f"{'name':<{widest}}{'kind':<13}{'width':>6}{'tokens':>8}{'MB':>6}  folder")
    for row in result:
        numbers = f"{row['width'] or '-':>6}{row['max_length']:>8}{row['megabytes']:>6.0f}"
        typer.echo(f"{row['name']:<{widest}}{row['kind']:<13}{numbers}  {row['folder']}")
    missing = sorted({package for row in result for package in row["missing"]})
    if missing:
        typer.echo(f'\nsome need {", ".join(missing)}: pip install "treelabel[neural]"')


def _described(files: "Files") -> dict[str, Any]:
    """Return what a program wants to know of an encoder."""
    from treelabel.encoders.files import USUAL_LENGTH, missing_packages
    from treelabel.encoders.registry import source_of

    length = source_of(files, {}).max_length if files.kind == "transformer" else USUAL_LENGTH
    return {
        "name": files.name,
        "kind": files.kind,
        "width": files.width,
        "max_length": length,
        "megabytes": round(files.megabytes, 1),
        "folder": str(files.folder),
        "missing": missing_packages(files.kind),
    }
