"""Work on many files, each a shard: one part per shard, with a marker that says it is whole.

A part is written under a name of its own attempt, renamed, and only then marked. So processes may be killed at any
moment, and a shard may be worked on twice: a later run computes the shards without a marker, and what is there is what
one process would have written, byte for byte.
"""

import json
import resource
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from treelabel.core.atomic_output import atomic_file, disk_is_full, make_folder, remove_file, sync
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import file_sha256, suffixes
from treelabel.core.json_text import read_json
from treelabel.core.locking import remove_tree
from treelabel.core.machine_code import run_stored_code

# Beside the parts, folders that begin with "_" hold markers, reasons of failures, and parts that are not whole yet.
DONE, FAILED, ATTEMPTS = "_done", "_failed", "_attempts"
SUMMARY = "_summary.json"
LOST = "the engine gave it up: its workers died each time"


class DoneWork(Protocol):
    """The report of a job: how many documents there were, and how many of these are empty."""

    @property
    def rows(self) -> int:
        """The number of documents."""

    @property
    def empty(self) -> int:
        """The number of empty texts."""


class PartJob(Protocol):
    """A job that makes a part of a file; a copy for another process is small."""

    @property
    def texts(self) -> Path:
        """The file that is read."""

    @property
    def output(self) -> Path:
        """The file that is written."""

    @property
    def model_folder(self) -> Path | None:
        """The model that it needs, if it needs one."""

    def about(self) -> dict[str, Any]:
        """Tell what the part is made of, to recognize the same job again."""

    def to(self, output: Path) -> Self:
        """Return the same job with another output."""

    def run(self) -> DoneWork:
        """Write the output."""


@dataclass(frozen=True)
class ShardJob:
    """A shard to work on: what to do with it, and the part that it becomes."""

    job: PartJob
    part: Path

    @property
    def marker(self) -> Path:
        """The file that says that the part is whole, and what it was made of."""
        return self.part.parent / DONE / f"{self.part.name}.json"

    @property
    def failure(self) -> Path:
        """The file that says why there is no part."""
        return self.part.parent / FAILED / f"{self.part.name}.json"


@dataclass(frozen=True)
class ShardResult:
    """The outcome of a shard: how many documents its part has, or why it has none."""

    part: str
    source: str
    rows: int = 0
    empty: int = 0
    size: int = 0
    peak_memory: int = 0
    # "" where all is well.
    problem: str = ""
    # Whether another try, or another machine, may do better: the disk was full, or a file could not be reached.
    may_pass: bool = False


@dataclass(frozen=True)
class RunSummary:
    """The outcome of a run: shards that were there already, that are new, and that could not be worked on."""

    shards: int
    skipped: int
    results: tuple[ShardResult, ...]

    @property
    def failed(self) -> list[ShardResult]:
        """The shards without a part."""
        return [each for each in self.results if each.problem]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        new = [each for each in self.results if not each.problem]
        return {
            "shards": self.shards,
            "there_already": self.skipped,
            "new": len(new),
            "failed": [{"source": each.source, "problem": each.problem} for each in self.failed],
            "rows": sum(each.rows for each in new),
            "empty_texts": sum(each.empty for each in new),
            "bytes": sum(each.size for each in new),
            "peak_memory_of_a_worker": max((each.peak_memory for each in new), default=0),
        }

    def __str__(self) -> str:
        numbers = self.to_json()
        words = f"{self.shards:,} shards: {numbers['new']:,} new with {numbers['rows']:,} documents"
        words += f", {self.skipped:,} there already" if self.skipped else ""
        words += f", {len(self.failed):,} FAILED" if self.failed else ""
        peak = numbers["peak_memory_of_a_worker"]
        return words + (f"; a worker took {peak / 2**20:,.0f} MB at most" if peak else "")


def plan_shards(
    jobs: Mapping[Path, PartJob], folder: Path, ending: str, chosen: tuple[int, int] | None = None
) -> list[ShardJob]:
    """Name the part of every shard: the name of its file with another ending.

    Parameters
    ----------
    jobs
        The files, in order, with what is to be done with each; their outputs are replaced.
    folder
        Where parts go.
    ending
        That of parts, such as ".jsonl".
    chosen
        Which of how many equal shares of the shards to take, such as (3, 64), counted from 1; all by default.

    Returns
    -------
    list of ShardJob
    """
    names = [_stem(source) + ending for source in jobs]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise TreelabelError(
            f"several files would become the part {quote(twice[0])} ({len(twice):,} such names): parts are named by "
            "their files, so give these different names, or write folders one at a time"
        )
    every = [ShardJob(job.to(folder / name), folder / name) for name, job in zip(names, jobs.values(), strict=True)]
    if chosen is None:
        return every
    number, count = chosen
    return every[number - 1 :: count]


def _stem(source: Path) -> str:
    """Return the name of a file without its endings, compression included."""
    name = source.name if suffixes(source)[1] is None else source.stem
    return Path(name).stem


def parse_share(text: str) -> tuple[int, int]:
    """Read which share of the shards to work on.

    >>> parse_share("3/64")
    (3, 64)
    """
    first, slash, second = text.partition("/")
    if slash and first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second):
        return int(first), int(second)
    raise TreelabelError(f"--shard is {quote(text)}, expected a share such as 3/64: the third of 64, counted from 1")


def is_done(shard: ShardJob) -> bool:
    """Return whether the part of a shard is whole; one that was made otherwise is refused."""
    if not shard.marker.is_file():
        return False
    try:
        stored = read_json(shard.marker.read_bytes(), str(shard.marker))
        about, size = stored["about"], stored["size"]
    except (TreelabelError, KeyError, TypeError):
        return False
    asked = json.loads(json.dumps(shard.job.about()))
    for name in {**about, **asked}:
        if about.get(name) != asked.get(name):
            raise TreelabelError(
                f"{shard.part}: was made with another {name}: {quote(str(about.get(name)))}, now "
                f"{quote(str(asked.get(name)))}; write to another folder, or remove what is there"
            )
    return shard.part.is_file() and shard.part.stat().st_size == size


def run_shard(shard: ShardJob) -> ShardResult:
    """Work on a shard in this process, and mark its part; a shard that cannot be read is reported, not raised.

    Parameters
    ----------
    shard
        What to do with which file; a part that is there already is left alone.

    Returns
    -------
    ShardResult
    """
    source = str(shard.job.texts)
    attempt = shard.part.parent / ATTEMPTS / uuid.uuid4().hex
    try:
        if is_done(shard):
            return ShardResult(shard.part.name, source)
        attempt.mkdir(parents=True)
        job = shard.job.to(attempt / shard.part.name)
        written = job.run()
        sync(job.output)
        about: dict[str, Any] = {"about": shard.job.about(), "rows": written.rows, "empty": written.empty}
        about |= {"size": job.output.stat().st_size, "sha256": file_sha256(job.output)}
        job.output.replace(shard.part)
        _write_json(shard.marker, about)
        remove_file(shard.failure)
        return ShardResult(shard.part.name, source, written.rows, written.empty, about["size"], _peak_memory())
    except (TreelabelError, OSError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        may_pass = not isinstance(error, TreelabelError) or disk_is_full(error)
        _report_failure(shard, reason)
        return ShardResult(shard.part.name, source, problem=reason, may_pass=may_pass)
    finally:
        remove_tree(attempt)


def run_shard_in_worker(shard: ShardJob) -> ShardResult:
    """Work on a shard in a process of an engine, which begins with stored machine code, as a command does."""
    run_stored_code()
    return run_shard(shard)


def _report_failure(shard: ShardJob, reason: str) -> None:
    """Write down why a shard has no part, if there is room for that."""
    with suppress(TreelabelError, OSError):
        _write_json(shard.failure, {"source": str(shard.job.texts), "problem": reason})


def _write_json(file: Path, values: Mapping[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    with atomic_file(file) as working:
        working.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _peak_memory() -> int:
    """Return the bytes that this process had in memory at most."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# Runs the shards that are missing, and yields what becomes of each, in any order.
Engine = Callable[[Sequence[ShardJob]], Iterator[ShardResult]]


def run_here(shards: Sequence[ShardJob]) -> Iterator[ShardResult]:
    """Work on shards one after another in this process."""
    return map(run_shard, shards)


def run_shards(
    shards: Sequence[ShardJob],
    engine: Engine,
    report: Callable[[int], None] = lambda done: None,
    share: tuple[int, int] | None = None,
) -> RunSummary:
    """Work on all shards whose parts are not there yet; those that may pass a second time are tried once more.

    Parameters
    ----------
    shards
        All shards of the run; their parts go to one folder.
    engine
        What runs them: `run_here`, or a function of a cluster.
    report
        Called with the number of shards that are done.
    share
        Which share of all shards these are, for the name of the summary.

    Returns
    -------
    RunSummary
        Also written to `_summary.json` (of a share: `_summary-3-of-64.json`) beside the parts.
    """
    folder = shards[0].part.parent
    make_folder(folder)
    waiting = [shard for shard in shards if not is_done(shard)]
    skipped = len(shards) - len(waiting)
    results: dict[str, ShardResult] = {}
    for _ in range(2):
        for result in engine(waiting):
            results[result.part] = result
            report(skipped + sum(not each.problem for each in results.values()))
        waiting = [shard for shard in waiting if (last := results.get(shard.part.name)) is None or last.may_pass]
        if not waiting:
            break
    lost = [shard for shard in waiting if shard.part.name not in results]
    results |= {each.part.name: ShardResult(each.part.name, str(each.job.texts), problem=LOST) for each in lost}
    summary = RunSummary(len(shards), skipped, tuple(results[name] for name in sorted(results)))
    name = SUMMARY if share is None else f"_summary-{share[0]}-of-{share[1]}.json"
    _write_json(folder / name, summary.to_json())
    with suppress(OSError):
        (folder / ATTEMPTS).rmdir()
    return summary


def refuse_failures(summary: RunSummary, folder: Path) -> None:
    """Raise TreelabelError where shards have no part: what is wrong with the first ones, and what to do."""
    if summary.failed:
        first, count = summary.failed[0], len(summary.failed)
        # What is wrong with a file begins with its name already.
        reason = first.problem if first.source in first.problem else f"{first.source}: {first.problem}"
        raise TreelabelError(
            f"{count:,} of {summary.shards:,} shards have no part; the first: {reason}. All are in {folder / FAILED}, "
            "the parts of the others are whole. Mend the files, or read them with --on-error skip, and run the same "
            "command again"
        )
