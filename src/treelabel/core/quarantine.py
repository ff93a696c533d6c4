"""Rename a file that is in the way so that nothing is lost, however many processes try at once."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

# This many damaged files are kept for inspection; foreign ones are never removed, and no more than this are set aside.
DAMAGED, FOREIGN = 3, 9

Kind = Literal["damaged", "foreign"]
Inode = tuple[int, int]

# SQLite finds a journal by the name of its database.
_JOURNALS = ("-journal", "-wal", "-shm")


def inode_of(file: Path) -> Inode | None:
    """Return what tells a file from another one that takes its name later."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def set_aside(file: Path, inode: Inode | None, kind: Kind) -> Path | None:
    """Rename a file and its journals to `NAME.KIND-N`.

    Parameters
    ----------
    file
        The file.
    inode
        What `inode_of` returned when the file was judged; a file that has taken its place since is left alone.
    kind
        Of "damaged" files the last few are kept, of "foreign" ones all.

    Returns
    -------
    The new name, or None where another process has been faster. Raises OSError where renaming is not possible.
    """
    with _alone_in(file.parent):
        if inode != inode_of(file):
            return None
        numbers = sorted(_numbers(file, kind))
        if kind == "foreign" and len(numbers) >= FOREIGN:
            raise OSError(0, f"{FOREIGN} foreign files were set aside here before; remove some of them")
        aside = file.with_name(f"{file.name}.{kind}-{max(numbers, default=0) + 1}")
        # Journals go first: one that stays behind would be played back into the next file of that name.
        for ending in (*_JOURNALS, ""):
            if os.path.lexists(f"{file}{ending}"):
                os.rename(f"{file}{ending}", f"{aside}{ending}")
        if kind == "damaged":
            for number in numbers[: max(0, len(numbers) + 1 - DAMAGED)]:
                for ending in ("", *_JOURNALS):
                    file.with_name(f"{file.name}.damaged-{number}{ending}").unlink(missing_ok=True)
    return aside


def _numbers(file: Path, kind: Kind) -> Iterator[int]:
    pattern = re.compile(rf"{re.escape(file.name)}\.{kind}-([0-9]{{1,9}})")
    for other in file.parent.iterdir():
        match = pattern.fullmatch(other.name)
        if match is not None:
            yield int(match[1])


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time rename files in a folder, on systems that can lock one."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
