"""The command that prints what a study found: tables, and what became of its claims."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treelabel.cli.options import ForceOption, require_file_name, require_new, require_other_file

if TYPE_CHECKING:
    from treelabel.experiment.results import Results


def tables(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Folders that bench wrote, or files that it exported.")
    ],
    style: Annotated[
        str, typer.Option(help="paper (aligned text), markdown, latex or csv (one row a cell).")
    ] = "paper",
    table: Annotated[list[str] | None, typer.Option(help="Only the table with this name (repeat).")] = None,
    claims: Annotated[bool, typer.Option(help="Whether to say what became of the claims (csv never does).")] = True,
    significance: Annotated[bool, typer.Option(help="Whether to test what differs from the best.")] = True,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw the figures of the studies as SVG, PNG and PDF.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: print).")] = None,
    force: ForceOption = False,
) -> None:
    """Print the tables of a study, and what became of its claims.

    Values are means over seeds, with half of the 95% interval over seeds behind ±, or over documents where there is one
    seed. The best of a column is marked, and with * what differs from it (p < 0.01 after Holm's correction, by the
    noise of documents and seeds). Published numbers stand under ours, with † at data that are not those of the paper.

    \b
    Examples:
      treelabel tables results/quick
      treelabel tables results/quick --style latex --table losses -o losses.tex
      treelabel tables results/quick --figures figures
    """
    from treelabel.core.atomic_output import atomic_group, open_output
    from treelabel.core.errors import TreelabelError, quote
    from treelabel.core.registry import suggestion
    from treelabel.experiment.results import Results
    from treelabel.experiment.table_styles import STYLES, summarize

    known = next((each for each in STYLES if each == style), None)
    if known is None:
        raise TreelabelError(f"--style is {quote(style)}; {suggestion(style, STYLES)}")
    require_other_file(output, *results)
    require_new(output, force)
    if output is not None:
        require_file_name(output)
    loaded = [Results.load(path) for path in results]
    bold = output is None and sys.stdout.isatty()
    texts = [
        summarize(study, known, table, claims, significance, bold, header=not index)[0]
        for index, study in enumerate(loaded)
    ]
    text = ("\n" if known == "csv" else "\n\n").join(each for each in texts if each)
    with atomic_group():
        drawn = None if figures is None else _draw(loaded, figures)
        if output is not None:
            with open_output(output) as stream:
                stream.write(f"{text}\n".encode())
    if drawn is not None:
        typer.echo(drawn, err=True)
    if output is None:
        # Everything in it is printable already, the codes for bold aside.
        typer.echo(text)
        return
    typer.echo(f"{output}: {len(loaded)} {'study' if len(loaded) == 1 else 'studies'}")


def _draw(studies: "list[Results]", folder: Path) -> str:
    """Draw the figures of studies into a folder, and return what to say of them."""
    from treelabel.core.errors import TreelabelError
    from treelabel.experiment.study_figures import make_figures
    from treelabel.report.figures.study_figures import study_figures
    from treelabel.report.pictures import write_figures
    from treelabel.report.writing import require_packages

    require_packages()
    drawings = study_figures([figure for study in studies for figure in make_figures(study)])
    if not drawings:
        raise TreelabelError("these studies have no [[figures]], or no results for them")
    written = write_figures(folder, drawings)
    return f"{folder}: {len(written)} files of {len(drawings)} figures"
