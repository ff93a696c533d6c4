"""The commands of studies: bench runs one, tables prints what it found."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from treelabel.cli.options import ForceOption, JsonOption, check_output
from treelabel.cli.printing import print_json
from treelabel.core.errors import TreelabelError, printable, quote

if TYPE_CHECKING:
    from treelabel.experiment.plan import Progress, StudyPlan
    from treelabel.experiment.results import Results, Run
    from treelabel.experiment.running import Study

Style = Literal["paper", "markdown", "latex", "csv"]
OUTPUTS = ("-o", "--output", "--export")
# How often the table is drawn anew.
FRAMES = 4


def bench(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The study: a TOML file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of results (default: results/NAME of the spec).")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for all runs, such as 60m: every row gets the same, then further seeds.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes at a time (default: what memory allows).")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="So many seeds instead of the spec's.")] = None,
    data: Annotated[str | None, typer.Option(help="Only these data sets, comma-separated.")] = None,
    systems: Annotated[str | None, typer.Option(help="Only these systems, comma-separated.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Check the spec and show the plan, and run nothing.")] = False,
    keep_scores: Annotated[bool, typer.Option("--keep-scores", help="Keep the scores of each run.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat runs that failed.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write all values and verdicts into one JSON file.")] = None,
    style: Annotated[Style, typer.Option(help="How tables are written.")] = "paper",
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on the nodes of Ray, which see the same files: auto, or an address."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a study: data sets x systems x rules x metrics x seeds, from one small file to finished tables.

    The spec is checked first, then the plan is shown, then it runs. Every run is kept in the folder of results, by what
    it depends on (data, model, parameters, code), and is not repeated; a study that was killed goes on where it was. A
    run that fails or exceeds its limits is skipped with the reason. The tables and the verdicts on the spec's claims
    are printed at the end, and again by `treelabel tables RESULTS`.

    \b
    Examples:
      treelabel bench specs/quick.toml
      treelabel bench specs/peers.toml --budget 60m --export peers.json
      treelabel bench study.toml --plan
    """
    from treelabel.experiment.plan import make_plan
    from treelabel.experiment.running import RunOptions, find_progress, run_study
    from treelabel.experiment.spec_reader import read_spec
    from treelabel.experiment.units import parse_seconds

    check_output(export, True, spec)
    study = read_spec(spec)
    if seeds is not None:
        study = replace(study, seeds=seeds)
    seconds = None if budget is None else parse_seconds(budget, "--budget")
    folder = Path("results", study.name) if output is None else output
    planned = make_plan(study, _listed(data), _listed(systems))
    options = RunOptions(jobs, seconds, keep_scores, retry)
    if cluster is not None:
        from treelabel.cluster.remote_command import cluster_cpus, launcher

        most = cluster_cpus(cluster) if jobs is None else jobs
        options = replace(options, jobs=most, launcher=tuple(launcher(cluster)))
    _print_plan(planned, find_progress(planned, folder, options), seconds)
    if plan:
        if json:
            print_json([{"data": cell.data, "system": cell.system, "seed": cell.seed} for cell in planned.cells])
        return
    if not planned.cells:
        raise TreelabelError(f"{spec}: nothing to run: {'; '.join(planned.missing.values()) or 'no system has data'}")
    with _shown() as watch:
        results = run_study(planned, folder, options, watch)
    _print_results(results, folder, style, export, json)


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


# The plan


def _say(line: str) -> None:
    """Report progress, on standard error."""

    typer.echo(printable(line), err=True)


def _print_plan(plan: "StudyPlan", progress: "Progress", budget: float | None) -> None:
    from treelabel.experiment.plan import estimate
    from treelabel.experiment.units import show_seconds

    spec = plan.spec
    sets = dict.fromkeys(cell.data for cell in plan.cells)
    systems = dict.fromkeys(cell.system for cell in plan.cells)
    _say(f"{spec.title}: {len(sets)} data sets, {len(systems)} systems, {len(plan.cells)} runs")
    for name, reason in plan.missing.items():
        _say(f"  {name} is left out: {reason}")
    waiting = progress.cells("todo", "judge")
    done, failed = len(progress.cells("done")), progress.cells("failed")
    if done:
        _say(f"  {done} runs are there already")
    for cell in failed:
        run = progress.runs[cell.key]
        _say(
            f"  {cell.system} on {cell.data}, seed {cell.seed}: {run.status} before: {run.reason} (--retry repeats it)"
        )
    if not waiting:
        return
    known, unknown = estimate(waiting, progress.runs.values())
    parts = [f"about {show_seconds(known)} of work for {len(waiting) - unknown} of them"] if known else []
    if unknown:
        limit = f", at most {spec.time_limit} each" if spec.time_limit is not None else ""
        parts.append(f"nothing is known yet of how long {unknown} take{limit}")
    _say(f"  {len(waiting)} runs to do: {'; '.join(parts)}")
    if budget is not None:
        _say(f"  the budget is {show_seconds(budget)}")


# While it runs


@contextmanager
def _shown() -> "Iterator[Callable[[Study], None]]":
    """Show a live table on a terminal, and a line for each run that ends elsewhere."""
    if not sys.stderr.isatty():
        seen: set[str] = set()
        yield lambda study: _tell_ended(study, seen)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=FRAMES, transient=True) as live:
        yield lambda study: live.update(_live_table(study))


def _tell_ended(study: "Study", seen: set[str]) -> None:
    from treelabel.experiment.units import show_seconds

    if not seen:
        # What was there before is not told again.
        seen.update({"", *(cell.key for cell in study.progress.cells("done", "failed"))})
    for cell in study.progress.cells("done", "failed"):
        if cell.key not in seen:
            seen.add(cell.key)
            run = study.progress.runs[cell.key]
            told = first_value(run) if run.is_done else f"{run.status}: {run.reason}"
            _say(f"  {cell.data}: {cell.system}, seed {cell.seed}: {told}, {show_seconds(run.seconds)}")


def first_value(run: "Run") -> str:
    """Return the first value of a run, as progress shows it."""
    values = [(name, value) for judged in run.judged for name, value in judged.values.items()]
    return f"{values[0][0]} {values[0][1]:.4f}" if values else "no value"


def _live_table(study: "Study") -> Any:
    """Draw systems in rows and data sets in columns: the mean so far, what runs, what waits, what failed."""
    from rich.markup import escape
    from rich.table import Table

    from treelabel.experiment.units import show_seconds

    plan = study.plan
    sets = list(dict.fromkeys(cell.data for cell in plan.cells))
    left = len(study.progress.cells("todo", "judge"))
    under_way = ", ".join(f"embedding {task.job.data}" for task in study.tasks if task.cell is None)
    metric = next((judge.metrics[0] for judge in plan.spec.judge), "value")
    caption = f"{metric}; {show_seconds(study.seconds)}, {left} runs left{'; ' + under_way if under_way else ''}"
    table = Table(title=escape(plan.spec.title), caption=escape(caption), title_justify="left", caption_justify="left")
    table.add_column("")
    for name in sets:
        table.add_column(escape(name), justify="right")
    for system in dict.fromkeys(cell.system for cell in plan.cells):
        table.add_row(escape(system), *(escape(_live_cell(study, name, system)) for name in sets))
    return table


def _live_cell(study: "Study", data: str, system: str) -> str:
    from treelabel.experiment.units import show_seconds

    cells = [cell for cell in study.plan.cells if (cell.data, cell.system) == (data, system)]
    if not cells:
        return ""
    runs = [study.progress.runs[cell.key] for cell in cells if study.progress.states[cell] in ("done", "failed")]
    done = [run for run in runs if run.is_done]
    parts = []
    if done:
        values = [value for run in done for value in list(run.judged[0].values.values())[:1]]
        parts.append(f"{sum(values) / len(values):.4f} ({len(done)}/{len(cells)})" if values else "done")
    elif runs:
        parts.append(runs[0].status)
    now = study.begun + study.seconds
    parts += [f"running {show_seconds(now - task.begun)}" for task in study.tasks if task.cell in cells]
    return " ".join(parts) or "waiting"


# The end


def _print_results(results: "Results", folder: Path, style: Style, export: Path | None, as_json: bool) -> None:
    """Print the tables and the verdicts on claims, or all values as JSON; write them into one file if asked for."""
    from treelabel.experiment.table_styles import summarize

    failed = [run for run in results.runs if not run.is_done]
    for run in failed:
        _say(f"{run.system} on {run.data}, seed {run.seed}: {run.status}: {run.reason}")
    text, verdicts = summarize(results, style, bold=sys.stdout.isatty())
    told = [verdict.to_json() for verdict in verdicts]
    if as_json:
        print_json(results.for_export(_command_line(), told))
    else:
        typer.echo(text)
    if export is not None:
        results.export(export, _command_line(), told)
        _say(f"{export}: all values and verdicts")
    _say(f"{folder}: {len(results.runs) - len(failed)} runs; show them again with: treelabel tables {folder}")


def _command_line() -> str:
    """Return the command that was given, without the names of its outputs, which are of this machine."""
    words, left = iter(sys.argv[1:]), []
    for word in words:
        if word in OUTPUTS:
            next(words, None)
        elif not word.startswith(tuple(f"{name}=" for name in OUTPUTS)):
            left.append(word)
    return shlex.join(["treelabel", *left])


# Tables


def tables(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Folders that bench wrote, or files that it exported.")
    ],
    style: Annotated[
        str, typer.Option(help="paper (aligned text), markdown, latex or csv (a row for each cell).")
    ] = "paper",
    table: Annotated[list[str] | None, typer.Option(help="Only the table with this name (repeat).")] = None,
    claims: Annotated[bool, typer.Option(help="Whether to print the verdicts on the claims (csv never does).")] = True,
    significance: Annotated[bool, typer.Option(help="Whether to test which values differ from the best.")] = True,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw the figures of the studies as SVG, PNG and PDF.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: print).")] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Print the tables of a study, and the verdicts on its claims.

    Values are means over seeds; after ± stands half of the 95% interval over seeds, or over documents if there is one
    seed. The best value of a column is marked, and * marks those that differ from it (p < 0.01 after Holm's correction,
    with the noise of documents and seeds). Published numbers are printed below, with † if the data are not those of the
    paper. With --json, all values and verdicts are printed instead of the tables, as bench --export writes them.

    \b
    Examples:
      treelabel tables results/quick
      treelabel tables results/quick --style latex --table losses -o losses.tex
      treelabel tables results/quick --figures figures
    """
    from treelabel.core.atomic_output import atomic_group, open_output
    from treelabel.core.registry import suggestion
    from treelabel.experiment.results import Results
    from treelabel.experiment.table_styles import STYLES, summarize

    known = next((each for each in STYLES if each == style), None)
    if known is None:
        raise TreelabelError(f"--style is {quote(style)}; {suggestion(style, STYLES)}")
    check_output(output, force, *results)
    loaded = [Results.load(path) for path in results]
    bold = output is None and sys.stdout.isatty()
    told = [
        summarize(study, known, table, claims, significance, bold, header=not index)
        for index, study in enumerate(loaded)
    ]
    texts = [each for each, _ in told]
    text = ("\n" if known == "csv" else "\n\n").join(each for each in texts if each)
    with atomic_group():
        drawn = None if figures is None else _draw(loaded, figures)
        if output is not None:
            with open_output(output) as stream:
                stream.write(f"{text}\n".encode())
    if drawn is not None:
        typer.echo(drawn, err=True)
    if json:
        pairs = zip(loaded, told, strict=True)
        print_json([study.for_export("", [each.to_json() for each in verdicts]) for study, (_, verdicts) in pairs])
        return
    if output is None:
        # Everything in it is printable already, the codes for bold aside.
        typer.echo(text)
        return
    typer.echo(f"{output}: {len(loaded)} {'study' if len(loaded) == 1 else 'studies'}")


def _draw(studies: "list[Results]", folder: Path) -> str:
    """Draw the figures of studies into a folder, and return what to say of them."""
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
