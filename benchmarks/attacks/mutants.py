"""Damage everything that treelabel reads, and read it: a refusal in one sentence or a result, and nothing else."""

import io
import logging
import os
import re
import resource
import shutil
import sys
import time
import traceback
import warnings
from contextlib import redirect_stderr
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np
from benchmarks.attacks.counts import Counts, say
from benchmarks.attacks.processes import CONTEXT, run
from tests.corpus import Kind, Sample, load_corpus, make_corpus, use
from tests.mutants import mutated_file, mutated_model

from treelabel import TreelabelError

CRASHES, HANGS, EXCEPTIONS = "crashes", "hangs", "exceptions other than TreelabelError"
LONG, RAW, MEMORY = "messages over 2,000 characters", "messages with raw control characters", "memory above the limit"
ZEROS = (CRASHES, HANGS, EXCEPTIONS, LONG, RAW, MEMORY)
SHARES: dict[Kind, float] = {
    "data": 0.25,
    "taxonomy": 0.12,
    "predictions": 0.05,
    "scores": 0.18,
    "tuned": 0.08,
    "model": 0.32,
}
WORKERS = 2
# What reading takes: files are allowed to unpack to 64 MB whatever their size, and reading takes four times a file.
MOST_MEMORY = 4 * 64_000_000
MOST_ADDRESSES = 8 << 30
LONGEST = 60.0
TICK = 1.0
LONGEST_MESSAGE = 2000
# What speaks to the terminal, ends a line, or turns its direction.
RAW_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: read, refused, or what must not happen, with details."""

    seed: int
    what: str
    told: str = ""
    is_warned: bool = False


def attack(folder: Path, mutants: int, seed: int) -> Counts:
    """Read mutants in two processes, so that one that crashes is counted, and named by its seed.

    Parameters
    ----------
    folder
        A folder to make and to work in.
    mutants
        How many.
    seed
        The seed of the first; the others follow.
    """
    counts = Counts("mutants", ZEROS)
    corpus = prepare(folder)
    waiting = iter(range(seed, seed + mutants))
    workers = [_Worker(corpus, folder / f"work-{number}") for number in range(WORKERS)]
    busy = [worker for worker in workers if worker.give(next(waiting, None))]
    done = 0
    while busy:
        began = time.monotonic()
        ready = wait([worker.connection for worker in busy], timeout=TICK)
        # At most a tick, so that a pause of the whole machine is not taken for a worker that hangs.
        waited = min(TICK, time.monotonic() - began)
        for worker in list(busy):
            worker.waited += waited
            if worker.connection in ready or worker.is_late():
                _count(worker.result(), counts)
                done += 1
                if done % 500 == 0:
                    say(f"mutants: {done:,} of {mutants:,}")
                if not worker.give(next(waiting, None)):
                    busy.remove(worker)
    return counts


def prepare(folder: Path) -> Path:
    """Make good files of everything, in a process of its own: some models need packages that no attack should."""
    folder.mkdir()
    corpus = folder / "corpus"
    ended = run(_make, corpus, log=folder / "log")
    if ended.code != 0:
        raise RuntimeError(f"no good files to damage: {ended.written}")
    return corpus


def _make(corpus: Path) -> None:
    os.environ["TREELABEL_CACHE"] = str(corpus.parent / "cache")
    warnings.simplefilter("ignore")
    for sample in make_corpus(corpus):
        use(sample.kind, corpus / sample.name, corpus)


def _count(outcome: Outcome, counts: Counts) -> None:
    counts.more("mutants")
    counts.more("mutants with a warning of numpy", outcome.is_warned)
    if outcome.what in ("read", "refused"):
        counts.more(f"mutants {outcome.what}")
    else:
        counts.add(outcome.what, f"--replay {outcome.seed}: {outcome.told}")


class _Worker:
    """A process that reads mutants, and is replaced by another if one of them ends it."""

    def __init__(self, corpus: Path, folder: Path) -> None:
        self._corpus, self._folder = corpus, folder
        self.seed, self.waited = -1, 0.0
        self._start()

    def _start(self) -> None:
        self.connection, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_read_all, args=(theirs, self._corpus, self._folder), daemon=True)
        self._process.start()
        theirs.close()
        # It says so when it has loaded what all readers need; a mutant's time begins after that.
        self.connection.recv()

    def give(self, seed: int | None) -> bool:
        """Give it a mutant to read; without one it ends."""
        self.connection.send(seed)
        if seed is not None:
            self.seed, self.waited = seed, 0.0
        return seed is not None

    def is_late(self) -> bool:
        """Return whether it takes longer than any mutant may."""
        return self.waited > LONGEST

    def result(self) -> Outcome:
        """Return what became of the mutant; a worker that is late or gone is replaced."""
        if self.connection.poll():
            try:
                found: Outcome = self.connection.recv()
                return found
            except EOFError:
                self._process.join()
                told = f"ended by signal {-(self._process.exitcode or 0)}: {described(self._corpus, self.seed)}"
                found = Outcome(self.seed, CRASHES, told)
        else:
            self._process.kill()
            found = Outcome(self.seed, HANGS, f"over {LONGEST:g} s: {described(self._corpus, self.seed)}")
        self._start()
        return found


def _read_all(parent: Connection, corpus: Path, folder: Path) -> None:
    logging.disable()
    os.environ["TREELABEL_CACHE"] = str(folder / "cache")
    # A mutant that asks for everything gets a MemoryError here, and the machine stays alive.
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    sys.stderr = io.StringIO()
    # Packages and compiled code that a first reading loads are none of a mutant's memory.
    for sample in load_corpus(corpus):
        use(sample.kind, corpus / sample.name, corpus)
    parent.send(None)
    while (seed := parent.recv()) is not None:
        parent.send(read_mutant(corpus, folder, seed))


def mutant(corpus: Path, folder: Path, seed: int) -> tuple[Sample, Path, str]:
    """Make the mutant of a seed: what it was made of, where it is, and what was done to it."""
    samples = load_corpus(corpus)
    rng = np.random.default_rng(seed)
    kind = rng.choice(list(SHARES), p=list(SHARES.values()))
    choices = [sample for sample in samples if sample.kind == kind]
    sample = choices[rng.integers(len(choices))]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / sample.name
    mutate = mutated_model if sample.kind == "model" else mutated_file
    return sample, path, mutate(rng, corpus / sample.name, path)


def described(corpus: Path, seed: int) -> str:
    """Say what a mutant is."""
    sample, _, told = mutant(corpus, corpus.parent / "described", seed)
    return f"{sample.name}, {told}"


def read_mutant(corpus: Path, folder: Path, seed: int) -> Outcome:
    """Make a mutant, read and use it, and look at what is said and at how much memory it took."""
    sample, path, told = mutant(corpus, folder, seed)
    before = _reset_peak()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        what, detail = _outcome(sample, path, corpus)
    grown = _memory("VmHWM") - before
    if grown > MOST_MEMORY and what in ("read", "refused"):
        what, detail = MEMORY, f"{grown / 1e6:,.0f} MB, {what}"
    is_warned = any(issubclass(each.category, RuntimeWarning) for each in warned)
    return Outcome(seed, what, f"{sample.name}, {told}: {detail}", is_warned)


def _outcome(sample: Sample, path: Path, corpus: Path) -> tuple[str, str]:
    try:
        use(sample.kind, path, corpus)
    except TreelabelError as error:
        said = printed(error)
        if len(said) > LONGEST_MESSAGE:
            return LONG, f"{len(said):,} characters: {said[:200]!r}"
        if RAW_CHARACTERS.search(said):
            return RAW, repr(said)
        return "refused", said
    except Exception as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/treelabel/" in frame.filename]
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "nowhere"
        return EXCEPTIONS, f"{type(error).__name__} at {where}: {str(error)[:200]}"
    return "read", ""


def printed(error: TreelabelError) -> str:
    """Return what the command line prints of an error, behind its own name."""
    from treelabel.cli import _say, _sentence

    with redirect_stderr(io.StringIO()) as stream:
        _say(_sentence(error))
    return stream.getvalue().removesuffix("\n").removeprefix("treelabel: ")


def _memory(key: str) -> int:
    found = re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _reset_peak() -> int:
    """Let the peak of this process's memory begin anew; return what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def replay(folder: Path, seed: int) -> int:
    """Read one mutant in this process, and let errors show their traceback."""
    corpus = prepare(folder)
    sample, path, told = mutant(corpus, folder / "work", seed)
    kept = Path(os.environ.get("TMPDIR", "/tmp")) / f"mutant-{seed}" / path.name
    shutil.rmtree(kept.parent, ignore_errors=True)
    shutil.copytree(path.parent, kept.parent)
    print(f"{sample.kind}: {sample.name}, {told}\nkept as {kept}")
    before = _reset_peak()
    try:
        use(sample.kind, path, corpus)
        print("read")
    except TreelabelError as error:
        print(f"refused: {printed(error)!r}")
    print(f"memory grew by {(_memory('VmHWM') - before) / 1e6:,.0f} MB")
    return 0
