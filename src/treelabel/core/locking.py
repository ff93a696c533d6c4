"""Locks that end with the process that holds them, and hidden working names that are told from leftovers by them."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no flock: nothing is locked there, and leftovers stay.
    fcntl = None  # type: ignore[assignment]

# How to open what may not be a file of ours: without following links, or waiting for the other end of a pipe.
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
PREFIX, SUFFIX = ".treelabel-", ".tmp"


def is_working_name(name: str) -> bool:
    """Return whether a name, without a folder, is one of those that `WorkingPath` makes."""
    return name.startswith(PREFIX) and name.endswith(SUFFIX) and "/" not in name


def lock(handle: int, wait: bool = False) -> bool:
    """Lock an open file or folder against other processes until it is closed; return False if it is taken.

    The system releases the lock when the process ends, however it ends. File systems that cannot lock grant everything.

    Parameters
    ----------
    handle
        The descriptor of an open file or folder.
    wait
        Whether to wait until it is free.

    Returns
    -------
    bool
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def is_same_file(handle: int, path: Path) -> bool:
    """Return whether a path still leads to the file or folder that was opened.

    Parameters
    ----------
    handle
        The descriptor of what was opened.

    Returns
    -------
    bool
    """
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def is_own_file(path: Path) -> bool:
    """Return whether a path is a regular file, and no link, of the user that this process acts for."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and _belongs_to_user(status)


def _belongs_to_user(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


@dataclass
class WorkingPath:
    """A file or folder under a working name, locked by the process that writes it."""

    path: Path
    handle: int

    @classmethod
    def file(cls, folder: Path) -> "WorkingPath":
        """Make an empty file in a folder."""

        def make() -> Path:
            handle, name = tempfile.mkstemp(SUFFIX, PREFIX, folder)
            os.close(handle)
            return Path(name)

        return cls._make_locked(make)

    @classmethod
    def folder(cls, folder: Path) -> "WorkingPath":
        """Make an empty folder in a folder."""
        return cls._make_locked(lambda: Path(tempfile.mkdtemp(SUFFIX, PREFIX, folder)))

    @classmethod
    def _make_locked(cls, make: Callable[[], Path]) -> "WorkingPath":
        if fcntl is None:
            return cls(make(), -1)
        # Between making and locking it looks like a leftover, and another process may have removed it.
        while True:
            path = make()
            with suppress(FileNotFoundError):
                handle = os.open(path, os.O_RDONLY)
                if lock(handle) and is_same_file(handle, path):
                    return cls(path, handle)
                os.close(handle)

    def release(self) -> None:
        """Release the lock, once the real name has been taken."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def remove(self) -> None:
        """Remove whatever stands under the working name now, and release the lock."""
        remove_tree(self.path)
        self.release()


def remove_tree(path: Path) -> None:
    """Remove a file, link or folder as far as that is allowed; what is not there is no error."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed have left under working names in a folder.

    A leftover is one of this user that nobody has locked and no link in the folder points to (see
    `atomic_output.atomic_folder`). Costs a listing of the folder.
    """
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        leftovers, linked = [], set()
        for entry in entries:
            if is_working_name(entry.name):
                leftovers += [entry] if _belongs_to_user(entry.stat(follow_symlinks=False)) else []
            elif entry.is_symlink():
                linked.add(os.readlink(entry.path))
        # Links first: one that was never put in place points to a folder that was not, either.
        for entry in sorted(leftovers, key=lambda entry: not entry.is_symlink()):
            if entry.name not in linked:
                _remove_unless_locked(Path(entry.path))


def _remove_unless_locked(path: Path) -> None:
    """Remove a working file, folder or link if its writer is gone."""
    try:
        # A link stands or falls with the folder that it points to.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        remove_tree(path)
        return
    except OSError:
        return
    try:
        kind = os.fstat(handle).st_mode
        if (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) and lock(handle):
            remove_tree(path)
    finally:
        os.close(handle)
