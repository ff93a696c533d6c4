"""Several files of a folder that take their names together: a journal says which, and is finished by whoever finds it.

A rename is atomic, two are not. So the new files are written under working names first; then a journal in the folder
lists which of them takes which name. From then on the change is decided: a process that is killed half-way leaves the
journal behind, and the next one that reads or writes there makes the renames that are missing before it does anything.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.locking import NO_FOLLOW, is_same_file, is_working_name, lock

JOURNAL = ".treelabel-commit"
VERSION = 1
# More than any journal of ours has; what is longer is not read.
LARGEST = 1 << 20


def commit(folder: Path, renames: Mapping[str, str], removals: Sequence[str] = ()) -> None:
    """Let files of a folder take their names, and others go, as one change.

    Parameters
    ----------
    folder
        Where all of it happens.
    renames
        Working name to real name, both without a folder.
    removals
        Real names that are no longer wanted.
    """
    journal = folder / JOURNAL
    handle = _own_journal(folder)
    try:
        stored = {"version": VERSION, "inode": os.fstat(handle).st_ino}
        os.write(handle, json.dumps({**stored, "renames": dict(renames), "removals": list(removals)}).encode())
        if any((folder / name).exists() for name in (*renames.values(), *removals)):
            os.fsync(handle)
        try:
            _carry_out(folder, renames, removals)
        except BaseException:
            # Ctrl-C in the middle: what is decided is finished first.
            _carry_out(folder, renames, removals)
            raise
        finally:
            journal.unlink(missing_ok=True)
    finally:
        os.close(handle)


def finish_commit(folder: Path) -> None:
    """Finish a change of several files that was cut short, or wait for one that is under way.

    Without one, which is nearly always, it costs one look.
    """
    while True:
        try:
            handle = os.open(folder / JOURNAL, os.O_RDONLY | NO_FOLLOW)
        except (OSError, ValueError):
            # None there; what is no file of ours, or may not be read, is left alone.
            return
        try:
            lock(handle, wait=True)
            if is_same_file(handle, folder / JOURNAL):
                _finish(folder, os.read(handle, LARGEST), os.fstat(handle).st_ino)
        finally:
            os.close(handle)


def _own_journal(folder: Path) -> int:
    """Make an empty journal that this process has locked; one that is there already is finished first."""
    while True:
        finish_commit(folder)
        with suppress(FileExistsError):
            handle = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            if lock(handle) and is_same_file(handle, folder / JOURNAL):
                return handle
            os.close(handle)


def _finish(folder: Path, text: bytes, inode: int) -> None:
    journal = folder / JOURNAL
    stored = _parsed(text, inode)
    try:
        if stored is not None:
            _carry_out(folder, stored["renames"], stored["removals"])
        journal.unlink(missing_ok=True)
    except OSError as error:
        raise TreelabelError(
            f"{folder}: writing there was cut short, and finishing it fails: {error.strerror}; "
            f"make the folder writable, or remove {journal.name} in it to give the change up"
        ) from error


def _parsed(text: bytes, inode: int) -> dict[str, Any] | None:
    """Return what a journal says, or None if it was never written to its end: then nothing was renamed yet.

    A journal that came with an archive or a copy is none, either: it knows the inode that it was written to.
    """
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        return None
    renames, removals = (stored.get(name) for name in ("renames", "removals")) if isinstance(stored, dict) else (0, 0)
    if not isinstance(renames, dict) or not isinstance(removals, list):
        return None
    if stored.get("version") != VERSION or stored.get("inode") != inode:
        return None
    plain = all(isinstance(name, str) and name == Path(name).name for name in (*renames.values(), *removals))
    return stored if plain and all(map(is_working_name, renames)) else None


def _carry_out(folder: Path, renames: Mapping[str, str], removals: Sequence[str]) -> None:
    for name in removals:
        (folder / name).unlink(missing_ok=True)
    for working, name in renames.items():
        with suppress(FileNotFoundError):
            os.replace(folder / working, folder / name)


def sync(file: Path) -> None:
    """Bring a file to disk before it takes the place of another: after a power cut, one of the two is there.

    A file that replaces nothing is left to the system, as waiting for a disk takes longer than most writing.
    """
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
