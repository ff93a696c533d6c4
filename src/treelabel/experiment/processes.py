"""Processes that a run leaves behind: found by a mark in their environment, which all that they start inherit."""

import os
from contextlib import suppress
from pathlib import Path

import psutil

# Names the folder of temporary files of a run, or one in it.
MARK = "TREELABEL_RUN"
# A process may start others while processes are listed.
ROUNDS = 10


def end_marked(folder: Path) -> None:
    """End all processes, this one aside, that are marked with a folder or one in it.

    Unlike groups and parents of processes, the mark stays when a process begins a session of its own, or outlives the
    one that started it.
    """
    for _ in range(ROUNDS):
        found = [each for each in psutil.process_iter() if each.pid != os.getpid() and _is_marked(each, folder)]
        if not found:
            return
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=1)


def _is_marked(process: psutil.Process, folder: Path) -> bool:
    try:
        mark = process.environ().get(MARK) if process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.Error, OSError):
        # It has ended, or belongs to somebody else.
        return False
    return mark is not None and Path(mark).is_relative_to(folder)
