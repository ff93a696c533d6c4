"""Work in a process of its own that can be killed: at a time, or right before it changes a file.

Processes are forked from a server that has imported treelabel and loaded its compiled code. So they start in
milliseconds, and what a random moment hits is the work and not its preparation.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
# What no work takes, not even where nothing has been compiled yet; what does hangs.
LONGEST = 900.0
HUNG = 1000

PRELOAD = ["benchmarks.attacks.mutants", "benchmarks.attacks.scenes", "benchmarks.attacks.warm", "treelabel.cli.app"]


def preload() -> None:
    """Let the server import everything before it forks; call it once, first."""
    root = str(Path(__file__).resolve().parents[2])
    # The server looks for modules where a new interpreter would.
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    CONTEXT.set_forkserver_preload(PRELOAD)


@dataclass(frozen=True)
class Stop:
    """A signal, and when it comes: so many seconds after the work began, or before its n-th change of a folder."""

    number: int = signal.SIGKILL
    after: float | None = None
    step: int | None = None
    folder: Path | None = None

    def __str__(self) -> str:
        when = f"after {self.after:.4f} s" if self.after is not None else f"before change {self.step} of the folder"
        return f"{signal.Signals(self.number).name} {when}"


@dataclass(frozen=True)
class Ended:
    """How work ended: exit code (or minus the signal), what it wrote, how long it took, how often it changed files."""

    code: int
    written: str
    seconds: float
    steps: int | None


def run(work: Callable[..., None], *arguments: Any, log: Path, stop: Stop | None = None) -> Ended:
    """Do work in a process of its own, and perhaps stop it.

    Parameters
    ----------
    work
        A function that can be imported.
    *arguments
        Its arguments.
    log
        A file for what the process writes to stdout and stderr.
    stop
        When to send it which signal; never by default.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    stop = stop or Stop()
    process = CONTEXT.Process(target=_work, args=(theirs, log, stop, work, arguments))
    process.start()
    theirs.close()
    assert process.pid is not None
    steps: int | None = None
    ours.recv()
    started = time.perf_counter()
    if stop.after is not None:
        process.join(stop.after)
        with suppress(ProcessLookupError):
            if process.is_alive():
                os.kill(process.pid, stop.number)
    process.join(LONGEST)
    took = time.perf_counter() - started
    if process.is_alive():
        process.kill()
        process.join()
        return Ended(HUNG, log.read_text(errors="replace"), took, None)
    with suppress(EOFError):
        steps = ours.recv()
    ours.close()
    assert process.exitcode is not None
    return Ended(process.exitcode, log.read_text(errors="replace"), took, steps)


def _work(parent: Connection, log: Path, stop: Stop, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(handle, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    steps = Steps(stop)
    sys.addaudithook(steps.see)
    parent.send(None)
    try:
        work(*arguments)
    finally:
        # The work has ended, and a signal that comes now is not for it.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        sys.stdout.flush()
        parent.send(steps.count)


class Steps:
    """Counts the changes that this process makes in a folder, and sends it a signal before one of them."""

    EVENTS = frozenset(f"os.{name}" for name in ("rename", "remove", "rmdir", "mkdir", "chmod", "symlink", "link"))
    WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def __init__(self, stop: Stop) -> None:
        self.count, self._stop = 0, stop
        self._folder = str(stop.folder) if stop.folder is not None else None

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Be told of what the interpreter is about to do: an audit hook."""
        if self._folder is None or not self._is_change(event, arguments):
            return
        self.count += 1
        if self.count == self._stop.step:
            os.kill(os.getpid(), self._stop.number)

    def _is_change(self, event: str, arguments: tuple[Any, ...]) -> bool:
        # Two names are exchanged by a function of the C library.
        if event == "ctypes.dlsym":
            return arguments[1] in ("renameat2", "renamex_np")
        if event == "open":
            return isinstance(arguments[2], int) and bool(arguments[2] & self.WRITING) and self._is_inside(arguments[0])
        if event not in self.EVENTS:
            return False
        # Removing a tree goes by the handles of its folders.
        by_handle = event in ("os.remove", "os.rmdir") and arguments[1] != -1
        return by_handle or any(map(self._is_inside, arguments))

    def _is_inside(self, path: Any) -> bool:
        assert self._folder is not None
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folder)
