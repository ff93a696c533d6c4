"""The plan of a study: its cells (a data set, a system, a seed), what identifies each, and which are done already."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from treelabel.core.errors import TreelabelError, shorten
from treelabel.experiment.code_version import is_current
from treelabel.experiment.command_systems import files_hash
from treelabel.experiment.data_sets import content_hash, params_hash
from treelabel.experiment.results import Results, Run, load_run, run_file
from treelabel.experiment.spec import Spec, SystemSpec, check_known

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
    StudyPlan
    """
    missing, hashes = {}, {}
    for name in _select(data, spec.data, "data set"):
        try:
            hashes[name] = content_hash(spec.data[name], spec.folder)
        except (TreelabelError, OSError) as error:
            missing[name] = shorten(str(error), 500)
    chosen = [spec.systems[name] for name in _select(systems, spec.systems, "system")]
    cells = [
        Cell(name, system.name, seed, _key(spec, system, name, hashes[name], seed), hashes[name])
        for number in range(max(len(spec.seeds_of(each)) for each in spec.systems.values()))
        for name in hashes
        for system in chosen
        if system.data is None or name in system.data
        for seed in spec.seeds_of(system)[number : number + 1]
    ]
    return StudyPlan(spec, tuple(cells), missing)


def _select(wanted: Iterable[str] | None, known: Iterable[str], what: str) -> list[str]:
    """Return the names that are wanted, by default all; the name of a grid stands for all its combinations."""
    names = list(known)
    if wanted is None:
        return names
    result: list[str] = []
    for name in wanted:
        matches = [each for each in names if each == name or each.startswith(f"{name}[")]
        if not matches:
            check_known([name], names, what)
        result += matches
    return result


def _key(spec: Spec, system: SystemSpec, data: str, data_hash: str, seed: int) -> str:
    """Hash what a result depends on; which rules and metrics judge it is kept beside it."""
    identity = {
        "data": data_hash,
        "model": system.model,
        "params": system.params_on(data),
        "grid": {name: list(values) for name, values in system.grid.items()},
        "select": None if system.select is None else [system.select.metric, system.select.rule],
        "seed": seed,
    }
    if files := params_hash(system.params_on(data), spec.folder):
        identity["files"] = files
    if system.command is not None:
        identity["command"] = [*system.command, *system.requirements, system.writes, system.combine]
        identity["program"] = files_hash(system, spec.folder)
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:20]


# What is done


@dataclass(frozen=True)
class Progress:
    """The part of a plan that is done: runs by key, and the state of every cell."""

    runs: dict[str, Run]
    states: dict[Cell, State]

    def cells(self, *states: State) -> list[Cell]:
        """Return the cells in some states."""
        return [cell for cell, state in self.states.items() if state in states]


def load_runs(plan: StudyPlan, results: Path) -> dict[Cell, Run]:
    """Load the runs of a plan that a folder has; what is damaged, or of another version, is not there.

    Parameters
    ----------
    plan : StudyPlan
        The cells.
    results : Path
        The folder of results, which may have runs of other plans too.

    Returns
    -------
    dict of Cell to Run
        Systems that are the same but for their names share a run.
    """
    runs = {}
    for cell in plan.cells:
        with suppress(TreelabelError):
            run = load_run(run_file(results, cell.key))
            # A system may be called otherwise than when it was run.
            runs[cell] = replace(run, data=cell.data, system=cell.system)
    return runs


def progress_of(plan: StudyPlan, results: Path, retry: bool = False, max_seconds: float = math.inf) -> Progress:
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
    max_seconds : float
        How long training may take now.

    Returns
    -------
    Progress
    """
    runs = load_runs(plan, results)
    states = {cell: _state(plan, cell, runs.get(cell), results, retry, max_seconds) for cell in plan.cells}
    return Progress({cell.key: run for cell, run in runs.items()}, states)


def _state(plan: StudyPlan, cell: Cell, run: Run | None, results: Path, retry: bool, max_seconds: float) -> State:
    if run is None or not is_current(run.code, judging=False):
        return "todo"
    if not run.is_done:
        return "todo" if retry else "failed"
    if run.stopped and max_seconds > 1.1 * run.max_seconds:
        return "todo"
    if plan.spec.systems[cell.system].writes_values:
        return "done"
    wanted = {f"{judge.rule} {metric}" for judge in plan.spec.judges_of(cell.data) for metric in judge.metrics}
    result = Results(plan.spec, (run,), results)
    if not is_current(run.code) or not wanted <= set(run.asked):
        return "judge" if result.scores_file(run) is not None else "todo"
    try:
        result.require_parts(run)
    except (TreelabelError, OSError):
        # A file was cut short or altered.
        return "todo"
    return "done"


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
    return sum(each for each in wanted if each is not None), wanted.count(None)


def new_run(spec: Spec, cell: Cell) -> Run:
    """Return the run of a cell, before anything of it is known.

    Parameters
    ----------
    spec : Spec
        The study.
    cell : Cell
        One of its cells.

    Returns
    -------
    Run
    """
    system = spec.systems[cell.system]
    title, params = system.title or system.name, system.params_on(cell.data)
    return Run(**asdict(cell), title=title, model=system.model, params=params)
