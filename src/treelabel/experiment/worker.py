"""One run in a process of its own: read the data, learn, score, judge, and write the result.

`python -m treelabel.experiment.worker JOB`: JOB is the JSON text of a `WorkerJob`. The process ends with the one that
started it: it watches its standard input, which closes when that process is gone, however it ended.
"""

import json
import math
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NoReturn

from treelabel.core.atomic_output import disk_is_full, open_output
from treelabel.core.compute import run_in_thread
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import file_sha256
from treelabel.core.json_text import read_json
from treelabel.experiment.code_version import loaded_code
from treelabel.experiment.command_systems import run_command
from treelabel.experiment.contributions import context_to_json, save_parts
from treelabel.experiment.data_sets import Splits, load_parts, with_files
from treelabel.experiment.judging import SystemOutput, judge_output
from treelabel.experiment.plan import Cell, new_run
from treelabel.experiment.process_tree import MARK, end_marked, peak_of
from treelabel.experiment.results import Judgement, Run, load_run, run_file, write_run
from treelabel.experiment.spec import Judge, Selection, Spec, SystemSpec
from treelabel.experiment.spec_reader import parse_spec
from treelabel.experiment.sweep import saved_bytes
from treelabel.metrics.registry import find_metric
from treelabel.models.base import Model
from treelabel.models.registry import make_model
from treelabel.scores.score_matrix import Scores

# The exit status of a process whose result cannot be written.
UNWRITTEN = 75
PACKAGES = ("treelabel", "numpy", "scipy", "scikit-learn", "numba", "torch", "transformers")


@dataclass(frozen=True)
class WorkerJob:
    """The work of one process.

    `work` is "run", "judge" (scores of an earlier run are there) or "embed" (compute and keep the embeddings of all
    texts of a data set by `encoder`, or with `token_states` those of all their tokens). `cell` has the fields of the
    run's `Cell`.
    """

    work: Literal["run", "judge", "embed"]
    spec_path: str
    results: str
    cell: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    encoder: str = ""
    token_states: bool = False
    threads: int = 1
    max_seconds: float | None = None
    keep_scores: bool = False


def main() -> None:
    """Do the job that the command line names."""
    _end_with_parent()
    job = WorkerJob(**json.loads(sys.argv[1]))
    # A model takes Ctrl-C for "that is enough"; whoever runs the study decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec = parse_spec(Path(job.results, "spec.toml").read_text(encoding="utf-8"), Path(job.spec_path))
    if job.work == "embed":
        embed(spec, job)
        return
    run = replace(new_run(spec, Cell(**job.cell)), threads=job.threads)
    begun = time.monotonic()
    try:
        run = judge_again(spec, job, run) if job.work == "judge" else do_run(spec, job, run)
    except MemoryError:
        run = replace(run, status="memory", reason="out of memory")
    except Exception as error:
        if disk_is_full(error):
            _give_up(error)
        reason = str(error) if isinstance(error, TreelabelError) else f"{type(error).__name__}: {error}"
        run = replace(run, status="failed", reason=" ".join(reason.split()))
    try:
        # That of a command is known; the worker's own memory is not that of the system.
        peak = peak_of(os.getpid()) if math.isnan(run.peak_memory) else run.peak_memory
        write_run(Path(job.results), replace(run, seconds=time.monotonic() - begun, peak_memory=peak, **surroundings()))
    except TreelabelError as error:
        _give_up(error)


def _give_up(error: Exception) -> NoReturn:
    """End without a result where it cannot be written, which is no fault of the run."""
    sys.stderr.write(f"{' '.join(str(error).split())}\n")
    sys.exit(UNWRITTEN)


def _end_with_parent() -> None:
    """End the whole group of processes, and all that left it, when standard input closes."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        if MARK in os.environ:
            end_marked(Path(os.environ[MARK]))
        os.killpg(0, signal.SIGKILL)

    if os.getpgid(0) == os.getpid():
        run_in_thread(watch)


def surroundings() -> dict[str, Any]:
    """Return what a result depends on beside the spec: code, versions, machine."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    machine = {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()}
    return {
        "code": loaded_code(),
        "versions": versions,
        "machine": machine,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


# The three kinds of work


def embed(spec: Spec, job: WorkerJob) -> None:
    """Compute the embeddings of a data set, which are kept on disk for all runs.

    Parameters
    ----------
    spec : Spec
        The study.
    job : Job
        The data set and the encoder.
    """
    from treelabel.encoders.cached_encoder import CachedEncoder
    from treelabel.encoders.registry import default_encoder, find_encoder
    from treelabel.encoders.token_states import StateEncoder

    parts = load_parts(spec.data[job.data], spec.folder, 0)
    encoder = find_encoder(job.encoder) if job.encoder else default_encoder()
    transform: Any = (StateEncoder if job.token_states else CachedEncoder)(encoder).transform
    for part in (parts.train, parts.test, parts.valid, parts.spare):
        if part is not None:
            transform(list(part.texts), progress=False)


def do_run(spec: Spec, job: WorkerJob, run: Run) -> Run:
    """Learn, score and judge.

    Parameters
    ----------
    spec : Spec
        The study.
    job : Job
        Where results go, and the time for training.
    run : Run
        The identity of the run.

    Returns
    -------
    Run
    """
    system = spec.systems[run.system]
    parts = load_parts(spec.data[run.data], spec.folder, run.seed)
    h = parts.train.hierarchy
    documents = {"train": len(parts.train), "test": len(parts.test)}
    run = replace(run, documents=documents, nodes=len(h), leaves=len(h.leaves))
    if system.command is not None:
        run, output = _run_command(spec, system, parts, run)
    else:
        run, output = _fit_and_score(spec, system, parts, run, job)
    return run if output is None else _judge(spec, job, run, parts, output)


def judge_again(spec: Spec, job: WorkerJob, run: Run) -> Run:
    """Judge the scores of an earlier run, which are kept.

    Parameters
    ----------
    spec : Spec
        The study.
    job : Job
        Where results are.
    run : Run
        The identity of the run.

    Returns
    -------
    Run
    """
    earlier = load_run(run_file(Path(job.results), run.key))
    parts = load_parts(spec.data[run.data], spec.folder, run.seed)
    scores = Scores.load(Path(job.results, "scores", f"{run.key}.npz"), parts.test.hierarchy)
    rule = next((each.used_rule for each in earlier.judged if each.rule == "default"), None)
    return _judge(spec, job, replace(earlier, title=run.title), parts, SystemOutput(scores, None, rule))


def _judge(spec: Spec, job: WorkerJob, run: Run, parts: Splits, output: SystemOutput) -> Run:
    data, results = spec.data[run.data], Path(job.results)
    judges = spec.judges_of(run.data)
    judged, evaluated, notes = judge_output(output, judges, data, parts.train, parts.test)
    if output.scores is not None and job.keep_scores:
        file = results / "scores" / f"{run.key}.npz"
        output.scores.save(file)
        run = replace(run, scores_sha256=file_sha256(file))
    context = replace(evaluated[0].context, propensity=data.propensity, bin_edges=data.bin_edges)
    stored = context_to_json(context).encode()
    key = sha256(stored).hexdigest()[:20]
    with open_output(results / "contexts" / f"{key}.json") as stream:
        stream.write(stored)
    save_parts(results / "parts" / f"{run.key}.npz", evaluated)
    asked = tuple(f"{judge.rule} {metric}" for judge in judges for metric in judge.metrics)
    notes = [*dict.fromkeys([*run.notes, *notes])]
    return replace(run, judged=tuple(judged), asked=asked, context=key, notes=tuple(notes), status="done", reason="")


# Systems


def _fit_and_score(
    spec: Spec, system: SystemSpec, parts: Splits, run: Run, job: WorkerJob
) -> tuple[Run, SystemOutput | None]:
    """Fit a model and score the test documents."""
    params = system.params_on(run.data)
    chosen, notes = None, list(run.notes)
    if system.select is not None:
        chosen, tried = _choose(system, system.select, spec, parts, run, Path(job.results))
        params, notes = {**params, **chosen}, [*notes, *tried]
    begun = time.perf_counter()
    model = _make_model(system, params, spec, run.seed)
    model.fit(parts.train, valid=parts.valid, progress=False, max_seconds=job.max_seconds)
    fitted = time.perf_counter()
    scores = model.score(parts.test)
    scored = time.perf_counter()
    if model.stopped_ is not None:
        far = "".join(f"; {stage}" for stage in model.evidence_.stages)
        notes.append(f"training was stopped by the budget after {fitted - begun:.0f} s{far}")
    size = math.nan
    with suppress(TreelabelError):
        size = saved_bytes(model)
    run = replace(
        run,
        params=params,
        chosen=chosen,
        notes=tuple(notes),
        fit_seconds=fitted - begun,
        score_seconds=scored - fitted,
        model_bytes=size,
        max_seconds=math.nan if job.max_seconds is None else job.max_seconds,
        stopped=model.stopped_ is not None,
    )
    return run, SystemOutput(scores, None, model.default_rule)


def _make_model(system: SystemSpec, params: Mapping[str, Any], spec: Spec, seed: int) -> Model:
    """Make a model; settings within a model ("linear__C") are set after it is made."""
    assert system.model is not None
    settings = with_files(params, spec.folder)
    model = make_model(system.model, seed=seed, **{name: settings[name] for name in settings if "__" not in name})
    return model.set_params(**{name: settings[name] for name in settings if "__" in name})


def _choose(
    system: SystemSpec, select: Selection, spec: Spec, parts: Splits, run: Run, results: Path
) -> tuple[Mapping[str, Any], list[str]]:
    """Choose the combination of a grid that is best on held-out training documents; the choice is stored."""
    # All seeds of a system on a data set share it.
    settings = [run.data, system.model, dict(system.grid), system.params_on(run.data), asdict(select)]
    identity = json.dumps([*settings, run.data_hash, loaded_code()], sort_keys=True, default=str)
    file = results / "choices" / f"{sha256(identity.encode()).hexdigest()[:20]}.json"
    with suppress(TreelabelError, KeyError, TypeError):
        stored = read_json(file, str(file), "choice")
        if stored["checksum"] == _choice_checksum(stored["chosen"], stored["notes"]):
            return stored["chosen"], stored["notes"]
    learn, held = parts.for_choosing()
    judge = Judge((select.metric,), select.rule)
    sign = 1 if find_metric(select.metric).higher_is_better else -1
    values: dict[str, float] = {}
    notes: list[str] = []
    for name, combination in system.combinations.items():
        try:
            model = _make_model(system, {**system.params_on(run.data), **combination}, spec, 0)
            scores = model.fit(learn, progress=False).score(held)
            output = SystemOutput(scores, None, model.default_rule)
            _, (evaluated,), _ = judge_output(output, [judge], spec.data[run.data], learn, held)
            values[name] = sign * evaluated[select.metric]
        except TreelabelError as error:
            notes.append(f"{name} failed: {error}")
    if not values:
        raise TreelabelError(f"no combination of the grid could learn: {'; '.join(notes)}")
    best = max(values, key=lambda name: values[name])
    notes.append(f"{best}: the best of {len(values)} by {select.metric} on {len(held):,} held-out documents")
    chosen = system.combinations[best]
    with open_output(file) as stream:
        stored = {"chosen": chosen, "notes": notes, "checksum": _choice_checksum(chosen, notes)}
        stream.write(json.dumps(stored).encode())
    return chosen, notes


def _choice_checksum(chosen: Mapping[str, Any], notes: Sequence[str]) -> str:
    """Hash a choice: one that was altered or cut short is made again."""
    return sha256(json.dumps([chosen, notes], sort_keys=True).encode()).hexdigest()


def _run_command(spec: Spec, system: SystemSpec, parts: Splits, run: Run) -> tuple[Run, SystemOutput | None]:
    """Run a command; one that writes values has no output to judge."""
    with tempfile.TemporaryDirectory(prefix="treelabel-command-") as folder:
        output = run_command(system, parts, spec.folder, Path(folder), run.seed, run.threads)
    times = {"fit_seconds": output.seconds, **output.times}
    run = replace(run, command=system.command, peak_memory=output.peak_memory, **times)
    if output.values is not None:
        return replace(run, judged=(Judgement("values", "values", output.values),)), None
    return run, SystemOutput(output.scores, output.decisions)


if __name__ == "__main__":
    main()
