"""Commands on data: split, sample."""

from pathlib import Path
from typing import Annotated

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import print_json, print_note, print_rows
from treelabel.core.errors import TreelabelError


def _parts(text: str) -> dict[str, float]:

    parts: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            parts[name] = float(share)
        except ValueError:
            name = ""
        # Names become names of files in one folder.
        if not name or Path(name).name != name:
            raise TreelabelError(f"--parts is {text!r}, expected name=share,... such as train=0.8,test=0.2")
    return parts


@o.with_read_options
def split(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to divide.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the parts go.")],
    read: o.ReadArguments,
    parts: Annotated[str, typer.Option(help="Names and shares of the parts.")] = "train=0.8,valid=0.1,test=0.1",
    by: Annotated[str, typer.Option(help="random, stratified (by leaf), group, time.")] = "stratified",
    column: Annotated[str | None, typer.Option(help="Column with the group or the time.")] = None,
    per_class: Annotated[int | None, typer.Option(help="Instead: this many documents per class in train.")] = None,
    keep_duplicates: Annotated[
        bool, typer.Option(help="Whether documents with the same text come into one part (not by time or per class).")
    ] = True,
    seed: o.SeedOption = 0,
    to_format: Annotated[str, typer.Option(help="Format of the parts.")] = "jsonl",
    force: o.ForceOption = False,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """Divide a file for training and testing.

    Documents with the same text (ignoring case and spacing) go into one part, and with --group so do documents of the
    same group, so that no model is tested on what it learned from. The hierarchy is written next to the parts: once for
    the folder, or for each part if the folder has other data files without a hierarchy.

    \b
    Examples:
      treelabel split all.jsonl.gz parts --parts train=0.8,test=0.2 --seed 1
      treelabel split tickets.csv parts --group customer
      treelabel split tickets.csv parts --by time --column created
      treelabel split all.csv parts --per-class 1
    """
    from treelabel import data as d
    from treelabel.core.atomic_output import atomic_group
    from treelabel.data.taxonomy.sibling_taxonomy import taxonomy_ending, write_sibling_taxonomy
    from treelabel.data.write import lacking_taxonomy

    dataset = read.read(file)
    if per_class is not None:
        divided = dict(zip(("train", "test"), d.per_class(dataset, per_class, seed), strict=True))
    else:
        divided = d.split(dataset, _parts(parts), by, column, seed, keep_duplicates=keep_duplicates)  # type: ignore[arg-type]
    ending = d.FORMATS.find(to_format).ending
    if to_format == "sqlite":
        raise TreelabelError("parts are files of their own; choose another --to-format than sqlite")
    targets = {name: folder / f"{name}{ending}" for name in divided}
    there = [path for path in targets.values() if path.exists()]
    if there and not force:
        raise TreelabelError(f"{there[0]} is there already; choose another folder, or replace it with --force")
    folder.mkdir(parents=True, exist_ok=True)
    taxonomy = folder / f"taxonomy{taxonomy_ending(dataset.hierarchy)}"
    # Data files that stand there already would be read with a taxonomy of the whole folder.
    is_alone = not lacking_taxonomy(folder, [file, *targets.values()])
    with atomic_group():
        if is_alone:
            write_sibling_taxonomy([*targets.values()], dataset.hierarchy, taxonomy, overwrite=force)
        for name, part in divided.items():
            d.write(part, targets[name], to_format, "auto", None, not is_alone, not raw, overwrite=force)
    others = sorted(path.name for path in folder.glob(f"*{ending}") if path not in targets.values())
    if others:
        print_note(f"{folder} also holds {', '.join(others)}, not of this split")
    counts = {name: len(part) for name, part in divided.items()}
    for name in (name for name, count in counts.items() if count == 0):
        print_note(f"{targets[name]} has no documents")
    print_rows(counts, [(str(targets[name]), f"{count:,} documents") for name, count in counts.items()], json)


def sample(
    target: Annotated[
        Path | None, typer.Argument(metavar="[OUT]", help="Where to write the sample; any format.")
    ] = None,
    force: o.ForceOption = False,
    raw: o.RawOption = False,
    json: o.JsonOption = False,
) -> None:
    """Describe the embedded sample, or write it.

    It holds WordNet's definitions of several thousand nouns, in a tree of a few hundred.

    \b
    Examples:
      treelabel sample
      treelabel sample nouns.csv
    """
    from treelabel import data as d

    dataset = d.load_sample()
    if target is None:
        described = dataset.describe()
        print_rows(described.to_json(), [("file", "the embedded sample"), *described.rows()], json)
        return
    o.check_output(target, force)
    written = [str(path) for path in d.write(dataset, target, escape_formulas=not raw, overwrite=force)]
    if json:
        print_json({"written": written})
    else:
        typer.echo("\n".join(f"wrote {path}" for path in written))
