"""The command report: what systems get right and wrong, as a page to look at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treelabel.cli.judge import JudgedRuleOption, TrainOption, read_judged
from treelabel.cli.options import (
    ForceOption,
    ReadArguments,
    require_file_name,
    require_new,
    require_other_file,
    with_read_options,
)
from treelabel.cli.printing import echo
from treelabel.cli.signals import INTERRUPTED

if TYPE_CHECKING:
    from treelabel.data.dataset import Dataset
    from treelabel.models.base import Model

# Shares of the training documents that fit --report holds out, and at most how many.
HELD_OUT_SHARE = 0.2
MOST_HELD_OUT = 10_000
FEWEST_HELD_OUT = 10


@with_read_options
def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")],
    read: ReadArguments,
    results: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RESULTS", help="A folder that bench --keep-scores wrote; or files of further systems."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Data file with the true labels, and the texts.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The data set of RESULTS, where there are several.")] = None,
    scores: Annotated[
        list[Path] | None, typer.Option(metavar="FILE ...", help="Scores (.npz, .parquet) of a system.")
    ] = None,
    predictions: Annotated[
        list[Path] | None, typer.Option(metavar="FILE ...", help="Predictions (.jsonl ...) of a system.")
    ] = None,
    train: TrainOption = None,
    rule: JudgedRuleOption = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    no_texts: Annotated[bool, typer.Option("--no-texts", help="Leave the texts of documents out.")] = False,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write every figure as SVG, PNG and PDF, too.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    force: ForceOption = False,
) -> None:
    """Write what systems get right and wrong to one HTML file, which opens without a network.

    For one system: metrics with intervals, precision and recall of several rules, macro-F1 by depth and frequency,
    calibration, the tree of labels, confusions, and the costliest mistakes. Several systems are compared with the
    first: the first of --scores if there is one. Documents are matched by id. Texts stand in the file unless --no-texts
    leaves them out. Of a study, the systems of the first seed are shown, if it was run with --keep-scores.

    \b
    Examples:
      treelabel report --truth test.jsonl --scores scores.npz --train train.jsonl -o report.html
      treelabel report --truth test.jsonl --scores svm.npz bert.npz -o report.html --figures figures
      treelabel report --truth test.jsonl --predictions predictions.jsonl -o report.html --no-texts
      treelabel report results/quick -o report.html
    """
    from treelabel.report.writing import require_packages, write_report

    require_packages()
    require_file_name(output)
    training: Dataset | None
    if truth is None:
        require_new(output, force)
        shown, training, systems, named = _systems_of_study(results or [], data)
        title = title or named
    else:
        chosen = _chosen_files(scores or [], results or [], predictions or [])
        require_other_file(output, truth, train, rule, *chosen)
        require_new(output, force)
        shown, training, systems = read_judged(truth, train, chosen, read)
    has_texts = not no_texts and any(shown.texts)
    write_report(
        output, shown, systems, train=training, rule=rule, texts=has_texts, title=title, figures=figures, seed=seed
    )
    _say_what_was_written(output, figures)


def _chosen_files(scores: list[Path], files: list[Path], predictions: list[Path]) -> list[Path]:
    """Put the files of systems in order; what is given as scores must be scores."""
    from treelabel.core.errors import TreelabelError
    from treelabel.scores.score_files import is_score_file

    chosen = [*scores, *files, *predictions]
    if not chosen:
        raise TreelabelError("nothing to report on: name the systems by --scores FILE or --predictions FILE")
    for path in chosen:
        if not path.exists():
            raise TreelabelError(f"{path}: no such file")
    wrong = next((path for path in scores if not is_score_file(path)), None)
    if wrong is not None:
        raise TreelabelError(f"{wrong}: is no file of scores (.npz or .parquet); predictions go to --predictions")
    return chosen


def _systems_of_study(results: list[Path], data: str | None) -> "tuple[Dataset, Dataset, dict[str, Any], str]":
    """Read the systems of a study that kept their scores: test documents, training documents, systems, a title."""
    from treelabel.core.errors import TreelabelError
    from treelabel.experiment.results import Results
    from treelabel.experiment.stored_scores import load_stored_scores

    if len(results) != 1:
        raise TreelabelError("expected the folder of a study, or --truth FILE with --scores or --predictions")
    kept = load_stored_scores(Results.load(results[0]), data)
    return kept.test, kept.train, dict(kept.systems), kept.title


def _say_what_was_written(output: Path, figures: Path | None = None) -> None:
    drawn = "" if figures is None else f"; figures in {figures}"
    echo(f"{output}: {output.stat().st_size / 1e6:.2f} MB, open it in a browser{drawn}")


# Reports of models that are being fitted


def require_report(output: Path, force: bool, *inputs: Path | str | None) -> None:
    """Refuse a report that could not be written, before hours of learning."""
    from treelabel.report.writing import require_packages

    require_packages()
    require_other_file(output, *inputs)
    require_file_name(output)
    require_new(output, force)


def held_out_report(
    output: Path, made: "Model", data: "Dataset", valid: "Dataset | None", max_seconds: float | None, write: bool = True
) -> None:
    """Write a report of documents that were held out: fit a second model like the first without them, and judge it.

    The rules are those by which models hold documents out: drawn at random, groups whole. What a model keeps of its own
    held-out documents is not enough, as it was calibrated on these.

    Parameters
    ----------
    output : Path
        The HTML file.
    made : Model
        The model that learned from all documents.
    data, valid : Dataset
        What it learned from.
    max_seconds : float, optional
        As for `Model.fit`.
    write : bool
        Whether this is the process that writes.
    """
    from treelabel.core.errors import TreelabelError
    from treelabel.models.registry import make_model
    from treelabel.report.writing import write_report

    held, rest = _held_out(data, int(getattr(made, "seed", 0)))
    if len(held) < FEWEST_HELD_OUT:
        raise TreelabelError(f"{len(data):,} documents are too few to hold any out for a report; the model was saved")
    settings = made.flat_settings()
    if "checkpoint_dir" in settings:
        # The checkpoints there are those of the model that learned from all documents.
        settings["checkpoint_dir"] = None
    second = make_model(made.name, **settings).fit(rest, valid=valid, max_seconds=max_seconds)
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
    _say_what_was_written(output)


def _held_out(data: "Dataset", seed: int) -> "tuple[Dataset, Dataset]":
    import numpy as np

    from treelabel.selection.held_out import hold_out

    groups = None if data.groups is None else np.unique(np.asarray(data.groups), return_inverse=True)[1]
    rows = hold_out(len(data), min(MOST_HELD_OUT, int(len(data) * HELD_OUT_SHARE)), seed, groups)
    return data[rows], data[np.setdiff1d(np.arange(len(data)), rows)]
