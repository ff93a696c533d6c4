"""The plan of a study: its cells (a data set, a system, a seed), what identifies each, and which are done already."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from treelabel.core.errors import TreelabelError, quote, shorten
from treelabel.core.registry import suggestion
from treelabel.experiment.code_version import is_current
from treelabel.experiment.command_systems import files_hash
from treelabel.experiment.data_sets import content_hash, params_hash
from treelabel.experiment.results import Results, Run, load_run
from treelabel.experiment.spec import Spec, SystemSpec

State = Literal["done", "judge", "todo", "failed"]


@dataclass(frozen=True)
class Cell:
    """One system on one data set with one seed. `key` identifies everything that its result depends on but the code."""

    data: str
    system: str
    seed: int
    key: str
    data_hash: str


@dataclass(frozen=True)
class StudyPlan:
    """The cells of a study, all of the first seed before any of the second; `missing` tells why some data are not."""

    spec: Spec
    cells: tuple[Cell, ...]
    missing: Mapping[str, str]

    @cached_property
    def rounds(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells of the first seed of every system, of the second, and so on."""
        result: dict[int, list[Cell]] = {}
        for cell in self.cells:
            seeds = self.spec.seeds_of(self.spec.systems[cell.system])
            result.setdefault(seeds.index(cell.seed), []).append(cell)
        return tuple(tuple(result[number]) for number in sorted(result))


def make_plan(spec: Spec, data: Iterable[str] | None = None, systems: Iterable[str] | None = None) -> StudyPlan:
    """List the cells of a study.

    Parameters
    ----------
    spec : Spec
        The study.
    data, systems : iterable of str, optional
        Only these data sets and systems; by default all. A system with a grid stands for all its combinations.

    Returns
    -------
    Plan
    """
    sets = _chosen(data, spec.data, "data set")
    chosen = _chosen(systems, spec.systems, "system")
    missing, hashes = {}, {}
    for name in sets:
        try:
            hashes[name] = content_hash(spec.data[name], spec.folder)
        except (TreelabelError, OSError) as error:
            missing[name] = shorten(str(error), 500)
    cells = [
        Cell(name, system, seed, _key(spec, spec.systems[system], name, hashes[name], seed), hashes[name])
        for number in range(max(len(spec.seeds_of(each)) for each in spec.systems.values()))
        for name in hashes
        for system in chosen
        if spec.systems[system].data is None or name in (spec.systems[system].data or ())
        for seed in spec.seeds_of(spec.systems[system])[number : number + 1]
    ]
    return StudyPlan(spec, tuple(cells), missing)


def _chosen(wanted: Iterable[str] | None, known: Iterable[str], what: str) -> list[str]:
    names = list(known)
    if wanted is None:
        return names
    result: list[str] = []
    for name in wanted:
        fitting = [each for each in names if each == name or each.startswith(f"{name}[")]
        if not fitting:
            raise TreelabelError(f"unknown {what} {quote(name)}; {suggestion(name, names)}")
        result += fitting
    return result


def _key(spec: Spec, system: SystemSpec, data: str, data_hash: str, seed: int) -> str:
    """Hash what a result depends on; which rules and metrics judge it is kept beside it."""
    given = {
        "data": data_hash,
        "model": system.model,
        "params": system.params_on(data),
        "grid": {name: list(values) for name, values in system.grid.items()},
        "select": None if system.select is None else [system.select.metric, system.select.rule],
        "seed": seed,
    }
    if files := params_hash(system.params_on(data), spec.folder):
        given["files"] = files
    if system.command is not None:
        given["command"] = [*system.command, *system.requirements, system.writes, system.combine]
        given["program"] = files_hash(system, spec.folder)
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).hexdigest()[:20]


# What is done


@dataclass(frozen=True)
class Progress:
    """The part of a plan that is done: the runs that count, and the state of every cell."""

    runs: Mapping[str, Run]
    states: Mapping[Cell, State]

    def cells(self, *states: State) -> list[Cell]:
        """Return the cells in some states."""
        return [cell for cell, state in self.states.items() if state in states]


def progress_of(plan: StudyPlan, results: Path, retry: bool = False, max_seconds: float | None = None) -> Progress:
    """Find what is done.

    A run counts while the code that it used is what it was. If only what judges has changed, or other metrics are asked
    for, kept scores are judged again. A run that failed, or took too long, is not repeated unless `retry` is set; one
    whose training a budget cut short is repeated where there is more time now.

    Parameters
    ----------
    plan : Plan
        The cells.
    results : Path
        The folder of results.
    retry : bool
        Whether to repeat runs that failed.
    max_seconds : float, optional
        How long training may take now.

    Returns
    -------
    Progress
    """
    runs: dict[str, Run] = {}
    states: dict[Cell, State] = {}
    for cell in plan.cells:
        file = results / "runs" / f"{cell.key}.json"
        run = _loaded(file)
        states[cell] = "todo" if run is None else _state(plan, cell, run, results, retry, max_seconds)
        if run is not None:
            runs[cell.key] = run
    return Progress(runs, states)


def _loaded(file: Path) -> Run | None:
    try:
        return load_run(file) if file.is_file() else None
    except TreelabelError:
        # It is damaged, or of another version: it is done again.
        return None


def _state(plan: StudyPlan, cell: Cell, run: Run, results: Path, retry: bool, max_seconds: float | None) -> State:
    if not is_current(run.code, judging=False):
        return "todo"
    if not run.is_done:
        return "todo" if retry else "failed"
    longer = math.inf if max_seconds is None else max_seconds
    if run.stopped and longer > 1.1 * run.max_seconds:
        return "todo"
    system = plan.spec.systems[cell.system]
    if system.command is not None and system.writes == "values":
        return "done"
    wanted = {f"{judge.rule} {metric}" for judge in plan.spec.judges_of(cell.data) for metric in judge.metrics}
    result = Results(plan.spec, (run,), results)
    if is_current(run.code) and wanted <= set(run.asked):
        return "done" if _has_parts(result, run) else "todo"
    return "judge" if result.scores_file(run) is not None else "todo"


def _has_parts(result: Results, run: Run) -> bool:
    """Whether the values of a run are those of its documents; if not, a file was cut short or altered."""
    try:
        result.require_parts(run)
    except (TreelabelError, OSError):
        return False
    return True


def estimate(cells: Iterable[Cell], runs: Iterable[Run]) -> tuple[float, int]:
    """Estimate how long cells will take, by earlier runs of the same system on the same data, of any seed.

    Parameters
    ----------
    cells : iterable of Cell
        What is to be done.
    runs : iterable of Run
        Earlier runs.

    Returns
    -------
    seconds : float
        The sum over cells of which something is known.
    unknown : int
        The number of the others.
    """
    known: dict[tuple[str, str], float] = {}
    for run in runs:
        if math.isfinite(run.seconds):
            known[run.data, run.system] = max(run.seconds, known.get((run.data, run.system), 0.0))
    wanted = [known.get((cell.data, cell.system)) for cell in cells]
    return sum(each for each in wanted if each is not None), sum(each is None for each in wanted)


def started(plan: StudyPlan, cell: Cell) -> Run:
    """Return the run of a cell, before anything of it is known.

    Parameters
    ----------
    cell : Cell
        One of its cells.

    Returns
    -------
    Run
    """
    system = plan.spec.systems[cell.system]
    title = system.title or system.name
    run = Run(cell.key, cell.data, cell.system, cell.seed, title=title, data_hash=cell.data_hash)
    return replace(run, model=system.model, params=system.params_on(cell.data))
