"""Output that appears whole or not at all, however the process ends: a file, a folder, or several files at once."""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from io import BufferedWriter
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import suffixes
from treelabel.core.locking import WorkingPath, is_same_file, is_working_name, lock, remove_leftovers, remove_tree

# Flags of renameat2 (Linux) and renamex_np (macOS) that exchange two names.
EXCHANGE = 2
# As many links as Linux follows.
MOST_LINKS = 40
# The disk is full, or a quota.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


# Files


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Write a file under a working name beside it; it takes the real name when the block ends well.

    If the block fails, or the process is killed, what was there before stays. A symbolic link is followed, and stays.
    """
    target = file_target(path, "write to a file and copy it there")
    with errors_of(target):
        working = WorkingPath.file(target.parent)
    try:
        with errors_of(target):
            yield working.path
            working.path.chmod(mode_of(target, 0o666))
            if target.exists():
                sync(working.path)
            transaction = _open_transaction.get()
            if transaction is None:
                working.path.replace(target)
            else:
                transaction.renames.append((working, target))
    except BaseException:
        working.remove()
        raise
    if transaction is None:
        working.release()


@contextmanager
def open_output(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for writing bytes, compressed by its ending; it appears whole or not at all."""
    _, compression = suffixes(Path(path))
    with atomic_file(path) as working, pa.OSFile(str(working), "wb") as raw:
        stream = raw if compression is None else pa.CompressedOutputStream(raw, compression)
        buffered = BufferedWriter(stream, 1 << 18)
        yield cast("IO[bytes]", buffered)
        buffered.flush()
        stream.close()


def remove_file(path: Path) -> None:
    """Remove a file if it is there; within `atomic_group`, at the end of it."""
    transaction = _open_transaction.get()
    if transaction is None:
        path.unlink(missing_ok=True)
    elif path.exists():
        transaction.removals.append(path)


def require_writable(path: Path, folder: Path) -> None:
    """Refuse an output in a folder that this user can write nothing in, before hours of work for it.

    Parameters
    ----------
    path
        The output, for the message.
    folder
        A folder that is there.
    """
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise TreelabelError(f"{path}: nothing can be written in the folder {folder}; give another name")


def sync(file: Path) -> None:
    """Bring a file to disk before it takes the place of another: after a power cut, one of the two is there.

    A file that replaces nothing is left to the system, as waiting for a disk takes longer than most writing.
    """
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it; one that is there stays."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        taken = next((each for each in (path, *path.parents) if each.exists() and not each.is_dir()), path)
        raise TreelabelError(f"{path}: cannot be made, for {taken} is no folder; give another name") from None
    except PermissionError:
        raise TreelabelError(f"{path}: no permission to make this folder; give another name") from None
    except OSError as error:
        raise TreelabelError(f"{path}: cannot be made: {error.strerror}; give another name") from error


def disk_is_full(error: BaseException | None) -> bool:
    """Return whether an error, or what led to it, is that there is no room, which will pass.

    >>> disk_is_full(OSError(28, "No space left on device")), disk_is_full(OSError(13, "Permission denied"))
    (True, False)
    """
    while error is not None:
        # numpy says so in its own words.
        if isinstance(error, OSError) and (error.errno in NO_ROOM or " requested and " in str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


# Several files


class _Transaction:
    """Files that wait for their names, and files that wait to be removed."""

    def __init__(self) -> None:
        self.renames: list[tuple[WorkingPath, Path]] = []
        self.removals: list[Path] = []

    def carry_out(self) -> None:
        try:
            self._move()
        except BaseException:
            # Ctrl-C in the middle: what is begun is finished first.
            self._move()
            raise

    def _move(self) -> None:
        waiting = [(working, target) for working, target in self.renames if working.path.exists()]
        # One file takes the place of another in one step.
        replaced = [target for _, target in waiting] if len(self.renames) > 1 or self.removals else []
        for path in [*reversed(replaced), *self.removals]:
            with errors_of(path):
                path.unlink(missing_ok=True)
        for working, target in waiting:
            with errors_of(target):
                working.path.replace(target)

    def close(self) -> None:
        for working, _ in self.renames:
            working.remove()


_open_transaction: ContextVar[_Transaction | None] = ContextVar("open_transaction", default=None)


@contextmanager
def atomic_group() -> Iterator[None]:
    """Let all files that are written in the block take their names at its end, so that nobody sees old ones beside new.

    If the block fails, what was there before stays. At its end the files that are replaced are removed, the last one
    first, and then the new ones take their names in the order in which they were written: a process that is killed in
    that moment leaves files missing, but never a mixture. So what a file cannot be read without is written before it.
    A block within a block is part of it.
    """
    if _open_transaction.get() is not None:
        yield
        return
    transaction = _Transaction()
    token = _open_transaction.set(transaction)
    try:
        yield
        transaction.carry_out()
    finally:
        _open_transaction.reset(token)
        transaction.close()


# Folders


@contextmanager
def atomic_folder(path: str | Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """Write a folder under a working name; it takes the real name when the block ends well.

    A folder that is there is replaced in one step: whoever looks sees the old one or the new one. Where the system
    cannot exchange two names (network drives), the real name is a link to the folder, and the link is replaced.

    Parameters
    ----------
    path
        The folder to write. A symbolic link is followed, and stays.
    check
        Raises an error if what stands there must not be replaced; asked before writing and again right before the end.

    Yields
    ------
    Path
        Where to write.
    """
    requested = Path(path)
    with suppress(OSError):
        requested.parent.mkdir(parents=True, exist_ok=True)
    target = target_of(requested)
    check(target)
    with errors_of(target), _only_writer(target) as is_there:
        working = WorkingPath.folder(target.parent)
        try:
            yield working.path
            _finish_folder(working.path, target)
            check(target)
            if is_there:
                _replace_folder(working.path, target)
            else:
                _take_free_name(working.path, target)
        finally:
            if _leads_to(target, working.path):
                working.release()
            else:
                working.remove()


@contextmanager
def _only_writer(target: Path) -> Iterator[bool]:
    """Let one process at a time replace a folder; others are told. Yields whether there is something to replace."""
    while True:
        try:
            handle = os.open(target, os.O_RDONLY)
        except FileNotFoundError:
            # Taking a name that somebody has taken meanwhile fails by itself.
            yield False
            return
        try:
            if not lock(handle):
                raise _lost_to_another(target)
            if is_same_file(handle, target):
                yield target.is_symlink() or any(target.iterdir())
                return
        finally:
            os.close(handle)


def _lost_to_another(target: Path) -> TreelabelError:
    return TreelabelError(
        f"{target}: another process is writing this folder, or has just written it; what is there is whole and was not "
        "touched; write to another name, or try again"
    )


def _finish_folder(folder: Path, target: Path) -> None:
    """Set the permissions of a finished folder, and flush it to disk before it takes its name."""
    for entry in folder.rglob("*"):
        entry.chmod(mode_of(target / entry.relative_to(folder), 0o777 if entry.is_dir() else 0o666))
        if target.exists() and entry.is_file():
            sync(entry)
    folder.chmod(mode_of(target, 0o777))


def _replace_folder(working: Path, target: Path) -> None:
    """Let a finished folder take the name of another, and remove that one."""
    if target.is_symlink():
        # A link of ours, which stands for a folder with a working name.
        before = target.resolve()
        _point(target, working)
        remove_tree(before)
    elif _exchange(working, target):
        remove_tree(working)
    else:
        raise TreelabelError(
            f"{target}: this file system cannot replace a folder in one step; write to another name, then remove the "
            "old folder"
        )


def _take_free_name(working: Path, target: Path) -> None:
    """Let a finished folder take a name that nobody has, or that an empty folder has."""
    try:
        if not can_exchange(target.parent):
            with suppress(FileNotFoundError):
                target.rmdir()
            with suppress(NotImplementedError, PermissionError):
                target.symlink_to(working.name, target_is_directory=True)
                return
        working.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _lost_to_another(target) from None
        raise


def _point(link: Path, folder: Path) -> None:
    """Replace, in one step, the link that stands for a folder beside it."""
    waiting = WorkingPath.file(link.parent)
    try:
        waiting.path.unlink()
        waiting.path.symlink_to(folder.name, target_is_directory=True)
        waiting.path.replace(link)
    finally:
        waiting.remove()


def _leads_to(link: Path, folder: Path) -> bool:
    """Return whether a link of ours stands for a folder."""
    return link.is_symlink() and os.readlink(link) == folder.name


@cache
def can_exchange(folder: Path) -> bool:
    """Return whether two names in a folder can be exchanged in one step."""
    one, two = WorkingPath.folder(folder), WorkingPath.folder(folder)
    try:
        return _exchange(one.path, two.path)
    finally:
        one.remove()
        two.remove()


def _exchange(one: Path, two: Path) -> bool:
    """Exchange two names in one step; return False where the system or the file system cannot."""
    if os.name == "nt":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(two)
    if sys.platform == "darwin":
        failed = library.renamex_np(first, second, EXCHANGE)
    elif hasattr(library, "renameat2"):
        here = -100
        failed = library.renameat2(here, first, here, second, EXCHANGE)
    else:
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(two))


# What all of them need


def target_of(path: Path) -> Path:
    """Return where output really goes, after a look whether it can; leftovers that stand there are removed."""
    target = path
    if not target.is_absolute() and not Path().is_dir():
        raise TreelabelError(f"{path}: cannot be written, as the working folder is gone; change to one that is there")
    for _ in range(MOST_LINKS):
        parent = target.parent.resolve()
        target = target.resolve() if target.name in ("", "..") else parent / target.name
        if not target.is_symlink() or is_working_name(os.readlink(target)):
            break
        target = parent / os.readlink(target)
    else:
        raise TreelabelError(f"{path}: is a symbolic link that leads back to itself; remove it, or write elsewhere")
    if target.parent.exists() and not target.parent.is_dir():
        raise TreelabelError(f"{path}: {path.parent} is a file, expected a folder")
    if not target.parent.is_dir():
        raise TreelabelError(f"{path}: the folder {path.parent} does not exist; make it first")
    remove_leftovers(target.parent)
    return target


def file_target(path: str | Path, instead: str) -> Path:
    """Return where a file really goes, refusing a folder, and a device or pipe: a file would take its name."""
    target = target_of(Path(path))
    if target.is_dir():
        raise TreelabelError(f"{path}: is a folder, expected the name of a file to write")
    if target.exists() and not target.is_file():
        raise TreelabelError(f"{path}: is not an ordinary file; {instead}")
    return target


def mode_of(target: Path, usual: int) -> int:
    """Return the permissions of what is replaced, or what is usual for something new.

    Parameters
    ----------
    target
        What is replaced, if it is there.
    usual
        What is usual, before the user's mask.

    Returns
    -------
    int
    """
    with suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return usual & ~umask


@contextmanager
def errors_of(target: Path) -> Iterator[None]:
    """Report the file that was asked for, not a working name beside it, where the system refuses to write."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and not os.fsdecode(error.filename).startswith(str(target.parent)):
            raise
        if isinstance(error, PermissionError):
            raise TreelabelError(f"{target}: no permission to write in the folder {target.parent}") from None
        # numpy says so in its own words, and Arrow around the system's.
        why = os.strerror(error.errno) if error.errno else str(error)
        why = os.strerror(errno.ENOSPC) if " requested and " in why else why
        raise TreelabelError(f"{target}: cannot be written: {why}; what was there before was not touched") from error
