"""Running a study: processes for its cells, within limits of time and memory, as long as a budget lasts.

Finished runs are files, so a study that is killed goes on where it was. A run that fails, or takes too much, is marked
with the reason, and the others go on.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil

from treelabel.core.atomic_output import atomic_group, disk_is_full, make_folder, open_output
from treelabel.core.child_python import child_python
from treelabel.core.errors import TreelabelError
from treelabel.encoders.registry import spec_with
from treelabel.experiment.plan import Cell, Progress, StudyPlan, estimate, load_runs, make_plan, new_run, progress_of
from treelabel.experiment.process_tree import (
    MARK,
    describe_exit,
    end_marked,
    family_of,
    has_ended,
    kill_group,
    last_line,
    lock_folder,
    memory_of,
)
from treelabel.experiment.results import Results, Status, load_run, run_file, write_run
from treelabel.experiment.spec import Spec, SystemSpec
from treelabel.experiment.units import parse_bytes, parse_seconds, show_bytes, show_seconds
from treelabel.experiment.worker import UNWRITTEN, WorkerJob
from treelabel.models.registry import MODELS

FOLDERS = ("runs", "parts", "scores", "contexts", "choices")
# What to do where nothing can be written.
AGAIN = "run the study again when that is mended: what is done is kept"
# How often processes are looked at.
TICK = 0.1
# The share of a run's time that training may take, so that scoring and judging are within it too.
LEARNING_SHARE = 0.7
# Memory that is left to others before another process starts.
SPARE_MEMORY = 1e9


@dataclass(frozen=True)
class RunOptions:
    """How a study is run: processes at a time, seconds for all of it, what is kept and repeated.

    `launcher` begins the command line of each process: what follows are arguments of Python, which may run elsewhere,
    on a machine that sees the same files. Limits of memory hold for processes of this machine alone.
    """

    jobs: int | None = None
    budget: float | None = None
    keep_scores: bool = False
    retry: bool = False
    launcher: tuple[str, ...] = ()


@dataclass
class Task:
    """A job under way."""

    job: WorkerJob
    process: "subprocess.Popen[bytes]"
    cell: Cell | None
    begun: float
    time_limit: float
    memory_limit: float
    log: Path
    peak: float = 0.0


Watcher = Callable[["Study"], None]


@dataclass
class Study:
    """A study that is being run: what is done, what is under way, what waits."""

    plan: StudyPlan
    results: Path
    options: RunOptions
    progress: Progress
    begun: float = field(default_factory=time.monotonic)
    tasks: list[Task] = field(default_factory=list)
    embedded: set[tuple[str, str, bool]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    largest: float = 0.0

    @property
    def jobs(self) -> int:
        """How many processes run at a time: as many as there are cores, if the memory limit allows."""
        cores = os.cpu_count() or 1
        if self.options.jobs is not None:
            return self.options.jobs
        limit = self.plan.spec.memory_limit
        fitting = cores if limit is None else int(psutil.virtual_memory().total // parse_bytes(limit))
        return max(1, min(cores, fitting))

    @property
    def threads(self) -> int:
        """How many threads each process has."""
        return max(1, (os.cpu_count() or 1) // self.jobs)

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun


def run_study(plan: StudyPlan, results: Path, options: RunOptions, watch: Watcher = lambda study: None) -> Results:
    """Run what is not done yet of a study.

    Parameters
    ----------
    plan : StudyPlan
        The cells.
    results : Path
        The folder of results; made if need be.
    options : RunOptions
        How to run it.
    watch : callable
        Called with the study at every tick, to show how it goes.

    Returns
    -------
    Results
    """
    with lock_folder(results) as is_locked:
        if not is_locked:
            raise TreelabelError(f"{results}: another process is running a study there; wait, or give another -o")
        _prepare(plan, results)
        study = Study(plan, results, options, find_progress(plan, results, options))
        try:
            _run_rounds(study, watch)
        except (TreelabelError, OSError) as error:
            if not disk_is_full(error):
                raise
            raise TreelabelError(f"{error}; {AGAIN}") from error
        finally:
            for task in study.tasks:
                _kill(task)
                _close(task)
        result = Results(plan.spec, tuple(load_runs(plan, results).values()), results)
        result.write_index()
        return result


def find_progress(plan: StudyPlan, results: Path, options: RunOptions) -> Progress:
    """Find what a folder of results has of a plan, given how it is to be run.

    Parameters
    ----------
    plan : StudyPlan
        The cells.
    results : Path
        The folder; it need not be there.
    options : RunOptions
        Whether failures are repeated, and the budget, which may leave more time for training than before.

    Returns
    -------
    Progress
    """
    return progress_of(plan, results, options.retry, LEARNING_SHARE * _share(plan, options))


def _share(plan: StudyPlan, options: RunOptions) -> float:
    """Return how long each run of the first round may take within the budget: all rows have the same."""
    if options.budget is None or not plan.rounds:
        return math.inf
    jobs = options.jobs or os.cpu_count() or 1
    return options.budget * jobs / len(plan.rounds[0])


def _prepare(plan: StudyPlan, results: Path) -> None:
    known = {*FOLDERS, "spec.toml", "study.json", "index.parquet"}
    if not (results / "study.json").is_file():
        known -= {"spec.toml"}
        foreign = [entry.name for entry in results.iterdir() if entry.name not in known and entry.name[0] != "."]
        if foreign:
            raise TreelabelError(
                f"{results}: is not empty and no folder of results (it has {foreign[0]}); give another -o"
            )
    for name in FOLDERS:
        make_folder(results / name)
    keys = {cell.key: [cell.data, cell.system] for cell in make_plan(plan.spec).cells}
    about = {"path": str(plan.spec.path.resolve()), "keys": keys}
    with atomic_group():
        for name, text in (("study.json", json.dumps(about, indent=1)), ("spec.toml", plan.spec.text)):
            with open_output(results / name) as stream:
                stream.write(text.encode())


# Rounds


def _run_rounds(study: Study, watch: Watcher) -> None:
    """Run all cells of the first seed, then those of the second, and so on while the budget lasts."""
    budget = study.options.budget
    for number, cells in enumerate(study.plan.rounds):
        waiting = [cell for cell in cells if study.progress.states[cell] in ("todo", "judge")]
        if number and waiting and budget is not None:
            seconds, _ = estimate(waiting, study.progress.runs.values())
            if study.seconds + seconds / study.jobs > budget:
                study.notes.append(
                    f"the budget of {show_seconds(budget)} was enough for {number} of {len(study.plan.rounds)} seeds"
                )
                return
        _run_cells(study, waiting, watch)


def _run_cells(study: Study, cells: Sequence[Cell], watch: Watcher) -> None:
    waiting = list(cells)
    while waiting or study.tasks:
        for task in list(study.tasks):
            _look_at(study, task)
        while waiting and len(study.tasks) < study.jobs and _has_memory(study):
            if not _start_next(study, waiting):
                break
        watch(study)
        time.sleep(TICK)


def _start_next(study: Study, waiting: list[Cell]) -> bool:
    """Start a cell, or the embedding that it needs first; False while others have to end."""
    under_way = {_embedding(task.job) for task in study.tasks if task.job.work == "embed"}
    for cell in waiting:
        encoder = encoder_of(study.plan, cell)
        needed = (cell.data, *encoder) if encoder is not None else None
        if study.progress.states[cell] == "judge" or needed is None or needed in study.embedded:
            waiting.remove(cell)
            _start(study, _job_of(study, cell), cell)
            return True
        if needed not in under_way:
            path, folder = str(study.plan.spec.path), str(study.results)
            _start(study, WorkerJob("embed", path, folder, {}, *needed, threads=study.threads), None)
            return True
    return False


def _embedding(job: WorkerJob) -> tuple[str, str, bool]:
    return job.data, job.encoder, job.token_states


def encoder_of(plan: StudyPlan, cell: Cell) -> tuple[str, bool] | None:
    """Return the frozen encoder that a cell uses ("": the best that is installed), and whether its token states.

    Parameters
    ----------
    cell : Cell
        One of its cells.

    Returns
    -------
    tuple or None
        None where the encoder is trained, or there is none.
    """
    system = plan.spec.systems[cell.system]
    params = system.params_on(cell.data)
    if system.model is None or {params.get("train"), params.get("mode")} & {"all", "lora"}:
        return None
    maker = MODELS.find(system.model).maker
    encoder = params.get("encoder")
    if not isinstance(encoder, str):
        return ("", maker.takes_states) if maker.needs_encoder else None
    if encoder == "scratch":
        return None
    return spec_with(encoder, params.get("max_length"), params.get("pooling")), maker.takes_states


def _has_memory(study: Study) -> bool:
    """Whether another process may start: the first always, others where the largest so far would still fit."""
    return not study.tasks or psutil.virtual_memory().available > study.largest + SPARE_MEMORY


# Tasks


def _job_of(study: Study, cell: Cell) -> WorkerJob:
    spec, share = study.plan.spec, _share(study.plan, study.options)
    is_limited = math.isfinite(share) and spec.systems[cell.system].command is None
    return WorkerJob(
        "judge" if study.progress.states[cell] == "judge" else "run",
        str(spec.path),
        str(study.results),
        asdict(cell),
        threads=study.threads,
        max_seconds=LEARNING_SHARE * share if is_limited else None,
        keep_scores=study.options.keep_scores or spec.keep_scores,
    )


def _start(study: Study, job: WorkerJob, cell: Cell | None) -> None:
    """Start a worker; closing its standard input ends it."""
    folder = Path(tempfile.mkdtemp(prefix="treelabel-study-"))
    limits = ("TREELABEL_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    # What it keeps for a while is removed with the folder, however it ends.
    environment = {**os.environ, **dict.fromkeys(limits, str(job.threads)), "TMPDIR": str(folder), MARK: str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*(study.options.launcher or child_python()), "-m", "treelabel.experiment.worker", json.dumps(asdict(job))],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    seconds, memory = _limits(study, cell)
    study.tasks.append(Task(job, process, cell, time.monotonic(), seconds, memory, folder / "log"))


def _limits(study: Study, cell: Cell | None) -> tuple[float, float]:
    """Return how long a task may take, and how much memory; embeddings have no limit of time."""
    spec = study.plan.spec
    parts: list[Spec | SystemSpec] = [spec] if cell is None else [spec.systems[cell.system], spec]
    memory = next((parse_bytes(part.memory_limit) for part in parts if part.memory_limit is not None), math.inf)
    if cell is None:
        return math.inf, memory
    seconds = next((parse_seconds(part.time_limit) for part in parts if part.time_limit is not None), math.inf)
    return min(seconds, _share(study.plan, study.options)), memory


def _look_at(study: Study, task: Task) -> None:
    """Take in a task that has ended, and end one that takes too much."""
    problem: tuple[Status, str] | None = None
    last = ""
    if has_ended(task.process):
        code, last = task.process.returncode, last_line(task.log)
        if code:
            reason = f"{describe_exit(code)}: {last}" if last else describe_exit(code)
            problem = "memory" if code == -signal.SIGKILL else "failed", reason
    else:
        task.peak = max(task.peak, memory_of(task.process.pid))
        study.largest = max(study.largest, task.peak)
        if time.monotonic() - task.begun > task.time_limit:
            problem = "timeout", f"over {show_seconds(task.time_limit)}"
        elif task.peak > task.memory_limit:
            problem = "memory", f"over {show_bytes(task.memory_limit)}"
        else:
            return
        _kill(task)
    study.tasks.remove(task)
    _close(task)
    if task.cell is None:
        # Where embeddings cannot be had, every run that needs them says so itself.
        study.embedded.add(_embedding(task.job))
    elif task.process.returncode == UNWRITTEN:
        raise TreelabelError(f"{last or 'a result cannot be written'}; {AGAIN}")
    else:
        _take_in(study, task, task.cell, problem)


def _take_in(study: Study, task: Task, cell: Cell, problem: tuple[Status, str] | None) -> None:
    """Load the run that a worker wrote, or write why it did not."""
    if problem is None:
        run = load_run(run_file(study.results, cell.key))
    else:
        run = replace(new_run(study.plan.spec, cell), status=problem[0], reason=problem[1])
        run = replace(run, seconds=time.monotonic() - task.begun, peak_memory=task.peak)
        write_run(study.results, run)
    study.progress.runs[cell.key] = run
    study.progress.states[cell] = "done" if run.is_done else "failed"


def _kill(task: Task) -> None:
    # A command may have begun a session of its own, which is no part of the worker's group.
    family = family_of(task.process.pid)
    kill_group(task.process.pid)
    for process in family:
        with suppress(psutil.Error):
            process.kill()
    task.process.wait()


def _close(task: Task) -> None:
    assert task.process.stdin is not None
    with suppress(OSError):
        task.process.stdin.close()
    # What a command began may have left the worker's group, and have no parent any more.
    end_marked(task.log.parent)
    shutil.rmtree(task.log.parent, ignore_errors=True)
