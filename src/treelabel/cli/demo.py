"""The main job on the embedded sample, from beginning to end."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.scores.score_matrix import Scores

OUTPUT = Path("demo-output")
FORMATS = ("nouns.csv", "nouns.jsonl.zst", "nouns.parquet")


def demo() -> None:
    """Run the main job on the embedded sample.

    Load it, describe it, split it, write it in three formats and read it back; learn a model, judge it, and write a
    report to demo-output.

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
    _report(parts, _learn(parts))
    typer.echo("\nWritten and read back")
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            path = Path(folder, name)
            d.write(sample, path)
            verdict = "the same" if same(sample, d.read(path, progress=False)) else "DIFFERENT"
            typer.echo(f"  {name:<16} {path.stat().st_size / 1e6:>5.2f} MB  {verdict}")
            if verdict != "the same":
                raise typer.Exit(1)


def _learn(parts: "dict[str, Dataset]") -> "Scores":
    """Learn from the training part, and judge what decision rules make of the test part's scores."""
    from treelabel.evaluation.evaluator import evaluate
    from treelabel.models.registry import make_model

    metrics = ["leaf_accuracy", "hf1", "micro_f1", "macro_f1", "shortest_path"]
    scores = make_model("linear").fit(parts["train"]).score(parts["test"])
    typer.echo("\nA linear model of the training part, on the test part; one set of scores, by decision rule")
    typer.echo(f"  {'':<18}" + "".join(f"{metric:>15}" for metric in metrics))
    for rule in ("threshold@0.5", "best_leaf", "optimal:hf1", "optimal:macro_f1"):
        can_be_single = rule in ("threshold@0.5", "best_leaf")
        judged = metrics if can_be_single else metrics[1:]
        result = evaluate(parts["test"], scores=scores, rule=rule, metrics=judged)
        cells = [f"{result[name]:>15.4f}" if name in judged else f"{'-':>15}" for name in metrics]
        typer.echo(f"  {rule:<18}" + "".join(cells))
    sure = evaluate(parts["test"], scores=scores, metrics=["hf1_auc", "ece"])
    typer.echo(f"  area under all thresholds {sure['hf1_auc']:.4f}, calibration error {sure['ece']:.4f}")
    return scores


def _report(parts: "dict[str, Dataset]", scores: "Scores") -> None:
    """Write a report of the test part; where its packages are missing, say how to get them."""
    from treelabel.report.writing import write_report

    path = OUTPUT / "report.html"
    OUTPUT.mkdir(exist_ok=True)
    try:
        write_report(path, parts["test"], {"linear": scores}, train=parts["train"], title="Nouns: a linear model")
    except TreelabelError as error:
        typer.echo(f"\nNo report: {error}")
        return
    typer.echo(f"\nA report of the test part, to open in a browser\n  {path.resolve()}")


def same(one: "Dataset", two: "Dataset") -> bool:
    """Return whether two datasets have the same hierarchy, ids, texts and labels."""
    return (
        one.hierarchy == two.hierarchy
        and one.ids == two.ids
        and one.texts == two.texts
        and one.labels.shape == two.labels.shape
        and (one.labels != two.labels).nnz == 0
    )
