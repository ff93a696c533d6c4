"""The command report: what systems get right and wrong, as a page to look at."""

from pathlib import Path
from typing import Annotated, Any

import typer

from treelabel.cli import options as o
from treelabel.cli.judge import is_model_folder, read_judged, truth_and_systems
from treelabel.cli.printing import print_result
from treelabel.core.errors import TreelabelError


@o.with_read_options
def report(
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")],
    read: o.ReadArguments,
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MODEL ... TEST",
            help="Models and a test file; or a folder that bench --keep-scores wrote; or files of further systems.",
        ),
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
    train: o.FrequenciesOption = None,
    rule: o.JudgedRuleOption = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    no_texts: Annotated[bool, typer.Option("--no-texts", help="Leave the texts of documents out.")] = False,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write every figure as SVG, PNG and PDF, too.")
    ] = None,
    seed: o.SeedOption = 0,
    force: o.ForceOption = False,
    require_signature: o.SignatureOption = None,
    json: o.JsonOption = False,
) -> None:
    """Write what systems get right and wrong to one HTML file, which opens without a network.

    For one system: metrics with intervals, precision and recall of several rules, macro-F1 by depth and frequency,
    calibration, the tree of labels, confusions, and the costliest mistakes. Several systems are compared with the
    first: the first of --scores if there is one. Documents are matched by id. Texts stand in the file unless --no-texts
    leaves them out. Of a study, the systems of the first seed are shown, if it was run with --keep-scores.

    \b
    Examples:
      treelabel report model test.csv -o report.html
      treelabel report --truth test.jsonl --scores scores.npz \\
        --train train.jsonl -o report.html
      treelabel report --truth test.jsonl --scores svm.npz bert.npz \\
        -o report.html --figures figures
      treelabel report --truth test.jsonl --predictions predictions.jsonl \\
        -o report.html --no-texts
      treelabel report results/quick -o report.html
    """
    from treelabel.report.writing import require_packages, write_report

    require_packages()
    files = results or []
    systems: dict[str, Any]
    if truth is None and files and is_model_folder(files[0]):
        truth, files = truth_and_systems(files)
    if truth is None:
        from treelabel.experiment.results import Results
        from treelabel.experiment.stored_scores import load_stored_scores

        o.check_output(output, force)
        if len(files) > 1:
            raise TreelabelError(f"{files[0]}: no model folder; expected models that fit wrote, then the test file")
        if len(files) != 1:
            raise TreelabelError("expected the folder of a study, or --truth FILE with --scores or --predictions")
        stored = load_stored_scores(Results.load(files[0]), data)
        shown, training, systems, title = stored.test, stored.train, dict(stored.systems), title or stored.title
    else:
        chosen = _chosen_files(scores or [], files, predictions or [])
        o.check_output(output, force, truth, train, rule, *chosen)
        shown, training, systems, *_ = read_judged(truth, train, chosen, read, rule, require_signature)  # type: ignore[assignment]
    has_texts = not no_texts and any(shown.texts)
    about: dict[str, Any] = {
        "title": title,
        "figures": figures,
        "seed": seed,
        "data": "" if truth is None else truth.name,
    }
    write_report(output, shown, systems, train=training, rule=rule, texts=has_texts, **about)
    print_written(output, figures, json)


def _chosen_files(scores: list[Path], files: list[Path], predictions: list[Path]) -> list[Path]:
    """Put the files of systems in order; what is given as scores must be scores."""
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


def print_written(output: Path, figures: Path | None = None, json: bool = False) -> None:
    """Say where a report is, and its figures."""
    drawn = "" if figures is None else f"; figures in {figures}"
    values = {"written": str(output), "figures": None if figures is None else str(figures)}
    print_result(values, f"{output}: {output.stat().st_size / 1e6:.2f} MB, open it in a browser{drawn}", json)
