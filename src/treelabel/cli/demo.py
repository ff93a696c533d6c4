"""The main job on the embedded sample, from beginning to end."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from treelabel.cli.options import JsonOption
from treelabel.cli.printing import print_json
from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.scores.score_matrix import Scores

OUTPUT = Path("demo-output")
Say = Callable[[str], None]
FORMATS = ("nouns.csv", "nouns.jsonl.zst", "nouns.parquet")


def demo(json: JsonOption = False) -> None:
    """Run the main job on the embedded sample.

    Load it, describe it, split it, write it in three formats and read it back; learn a model, judge it, and write a
    report to demo-output.

    \b
    Examples:
      treelabel demo
      treelabel demo --json
    """
    from treelabel import data as d

    say = _say_nothing if json else typer.echo
    sample = d.load_sample()
    say("The embedded sample: definitions of nouns, to be put into a tree of nouns\n")
    say(str(sample.describe()))
    say("\nThree of its documents")
    for row in (0, len(sample) // 2, len(sample) - 1):
        say(f"  {sample.paths()[row][0]}\n    {sample.texts[row][:76]}")
    parts = d.split(sample, {"train": 0.8, "valid": 0.1, "test": 0.1})
    say("\nSplit by leaf, rare leaves to training first")
    for name, part in parts.items():
        unseen = part.describe(parts["train"]).documents_with_unseen_labels
        say(f"  {name:<6} {len(part):>6,} documents, {unseen} with a label that training never saw")
    scores, judged = _learn(parts, say)
    report = _report(parts, scores, say)
    written = _write_formats(sample, say)
    if json:
        counts = {name: len(part) for name, part in parts.items()}
        sections = {"parts": counts, "rules": judged, "report": report, "read_back": written}
        print_json({"sample": sample.describe().to_json(), **sections})
    if not all(written.values()):
        raise typer.Exit(1)


def _say_nothing(text: str) -> None:
    """Print nothing: what --json prints comes at the end."""


def _learn(parts: "dict[str, Dataset]", say: Say) -> "tuple[Scores, dict[str, dict[str, float]]]":
    """Learn from the training part, and judge what decision rules make of the test part's scores."""
    from treelabel.evaluation.evaluator import evaluate
    from treelabel.models.registry import make_model

    metrics = ["leaf_accuracy", "hf1", "micro_f1", "macro_f1", "shortest_path"]
    scores = make_model("linear").fit(parts["train"]).score(parts["test"])
    say("\nA linear model of the training part on the test part, by decision rule")
    say(f"  {'':<16}" + "".join(f"  {metric:>8}" for metric in metrics))
    values: dict[str, dict[str, float]] = {}
    for rule in ("threshold@0.5", "best_leaf", "optimal:hf1", "optimal:macro_f1"):
        can_be_single = rule in ("threshold@0.5", "best_leaf")
        judged = metrics if can_be_single else metrics[1:]
        result = evaluate(parts["test"], scores=scores, rule=rule, metrics=judged)
        values[rule] = {name: result[name] for name in judged}
        cells = [f"{result[name]:.4f}" if name in judged else "-" for name in metrics]
        shown = (f"  {cell:>{max(8, len(name))}}" for name, cell in zip(metrics, cells, strict=True))
        say(f"  {rule:<16}" + "".join(shown))
    sure = evaluate(parts["test"], scores=scores, metrics=["hf1_auc", "ece"])
    say(f"  area under all thresholds {sure['hf1_auc']:.4f}, calibration error {sure['ece']:.4f}")
    return scores, values | {"none": {name: sure[name] for name in ("hf1_auc", "ece")}}


def _report(parts: "dict[str, Dataset]", scores: "Scores", say: Say) -> str | None:
    """Write a report of the test part, and return its file; where its packages are missing, say how to get them."""
    from treelabel.report.writing import write_report

    path = OUTPUT / "report.html"
    OUTPUT.mkdir(exist_ok=True)
    try:
        write_report(path, parts["test"], {"linear": scores}, train=parts["train"], title="Nouns: a linear model")
    except TreelabelError as error:
        say(f"\nNo report: {error}")
        return None
    say(f"\nA report of the test part, to open in a browser\n  {path.resolve()}")
    return str(path.resolve())


def _write_formats(sample: "Dataset", say: Say) -> dict[str, bool]:
    """Write the sample in several formats, and return whether what is read back is the same."""
    from treelabel import data as d

    say("\nWritten and read back")
    written: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            path = Path(folder, name)
            d.write(sample, path)
            written[name] = same(sample, d.read(path, progress=False))
            verdict = "the same" if written[name] else "DIFFERENT"
            say(f"  {name:<16} {path.stat().st_size / 1e6:>5.2f} MB  {verdict}")
    return written


def same(one: "Dataset", two: "Dataset") -> bool:
    """Return whether two datasets have the same hierarchy, ids, texts and labels."""
    return (
        one.hierarchy == two.hierarchy
        and one.ids == two.ids
        and one.texts == two.texts
        and one.labels.shape == two.labels.shape
        and (one.labels != two.labels).nnz == 0
    )
