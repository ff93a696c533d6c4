"""Processes of runs: their memory, whether they have ended, and how all that they started is found and ended."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from treelabel.core.atomic_output import make_folder
from treelabel.core.errors import shorten
from treelabel.core.locking import lock

# Names the folder of temporary files of a run, or one in it; all that a process starts inherit it.
MARK = "TREELABEL_RUN"
# A process may start others while processes are listed.
ROUNDS = 10
# Seconds between two looks at the memory of a process: what it takes and gives back in between may be missed.
WATCH_INTERVAL = 0.2


def end_marked(folder: Path) -> None:
    """End all processes, this one aside, that are marked with a folder or one in it.

    Unlike groups and parents of processes, the mark stays when a process begins a session of its own, or outlives the
    one that started it.
    """
    for _ in range(ROUNDS):
        result = [each for each in psutil.process_iter() if each.pid != os.getpid() and _is_marked(each, folder)]
        if not result:
            return
        for process in result:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(result, timeout=1)


def _is_marked(process: psutil.Process, folder: Path) -> bool:
    try:
        mark = process.environ().get(MARK) if process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, OSError):
        # It has ended, or belongs to somebody else.
        return False
    return mark is not None and Path(mark).is_relative_to(folder)


def memory_of(pid: int) -> float:
    """Return the memory of a process and all that it started; 0 once they have ended."""
    total = 0.0
    for process in family_of(pid):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def peak_of(pid: int) -> float:
    """Return the most memory that a process has had since it began; elsewhere than on Linux, what it has now.

    The kernel's ru_maxrss would not do: a process begins with that of the one that started it.
    """
    with suppress(OSError):
        result = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return float(result[1]) * 1024 if result else 0.0
    with suppress(psutil.Error):
        return float(psutil.Process(pid).memory_info().rss)
    return 0.0


def run_watched(command: Sequence[str], **options: Any) -> tuple[int, float]:
    """Run a command to its end, and watch its memory.

    Parameters
    ----------
    **options
        Those of `subprocess.Popen`.

    Returns
    -------
    tuple of (int, float)
        Its exit status, and the most memory of it and all that it started, in bytes.
    """
    peak = 0.0
    with subprocess.Popen(command, **options) as process:
        try:
            while process.poll() is None:
                peak = max(peak, peak_of(process.pid), memory_of(process.pid))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(WATCH_INTERVAL)
        except BaseException:
            process.kill()
            raise
    return process.returncode, peak


def family_of(pid: int) -> list[psutil.Process]:
    """Return a process and all that it started and are still below it."""
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def describe_exit(code: int) -> str:
    """Say how a process ended.

    >>> describe_exit(3), describe_exit(-9)
    ('exit 3', 'ended by SIGKILL')
    """
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"


def last_line(log: Path) -> str:
    """Return the last line that a process wrote, shortened; "" where there is none."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return shorten(lines[-1], 300) if lines else ""


@contextmanager
def lock_folder(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Make a folder and hold its lock: True, or where another process holds it, False or a wait.

    Parameters
    ----------
    folder : Path
        Made if it is not there; its own lock is held, no file is written.
    wait : bool
        Whether to wait for the other process.
    """
    make_folder(folder)
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield lock(handle, wait=wait)
    finally:
        os.close(handle)


def kill_group(leader: int) -> None:
    """End a group of processes, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a worker has ended; what it left running ends with it.

    The group is ended before the worker's exit is taken in: until then nobody else can get its number.
    """
    if process.returncode is None and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        kill_group(process.pid)
        process.wait()
    return process.returncode is not None
