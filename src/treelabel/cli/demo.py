"""The main job on the embedded sample, from beginning to end."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from treelabel.data import Dataset

FORMATS = ("nouns.csv", "nouns.jsonl.zst", "nouns.parquet")


def demo() -> None:
    """Run the main job on the embedded sample.

    Load it, describe it, split it, write it in three formats and read it back.

    \b
    Example:
      treelabel demo
    """
    from treelabel import data as d

    sample = d.load_sample()
    typer.echo("The embedded sample: definitions of nouns, to be put into a tree of nouns\n")
    typer.echo(sample.describe())
    typer.echo("\nThree of its documents")
    for row in (0, len(sample) // 2, len(sample) - 1):
        typer.echo(f"  {sample.paths()[row][0]}\n    {sample.texts[row][:90]}")
    parts = d.split(sample, {"train": 0.8, "valid": 0.1, "test": 0.1})
    typer.echo("\nSplit by leaf, rare leaves to training first")
    for name, part in parts.items():
        unseen = part.describe(parts["train"]).documents_with_unseen_labels
        typer.echo(f"  {name:<6} {len(part):>6,} documents, {unseen} with a label that training never saw")
    typer.echo("\nWritten and read back")
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            path = Path(folder, name)
            d.write(sample, path)
            verdict = "the same" if same(sample, d.read(path, progress=False)) else "DIFFERENT"
            typer.echo(f"  {name:<16} {path.stat().st_size / 1e6:>5.2f} MB  {verdict}")
            if verdict != "the same":
                raise typer.Exit(1)


def same(one: "Dataset", two: "Dataset") -> bool:
    """Whether two datasets have the same hierarchy, ids, texts and labels."""
    return (
        one.hierarchy == two.hierarchy
        and one.ids == two.ids
        and one.texts == two.texts
        and one.labels.shape == two.labels.shape
        and (one.labels != two.labels).nnz == 0
    )
