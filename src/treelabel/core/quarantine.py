"""Quarantine: rename a bad file that is in the way, so that nothing is lost however many processes try at once."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from treelabel.core.locking import lock

# This many damaged files stay for inspection; foreign ones are never removed, and no more than this are renamed.
MOST_DAMAGED, MOST_FOREIGN = 3, 9

Kind = Literal["damaged", "foreign"]
Inode = tuple[int, int]

# SQLite finds a journal by the name of its database.
_JOURNALS = ("-journal", "-wal", "-shm")


def inode_of(file: Path) -> Inode | None:
    """Return what tells a file from another one that takes its name later."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def quarantine_file(file: Path, inode: Inode | None, kind: Kind) -> Path | None:
    """Rename a file and its journals to `NAME.KIND-N`.

    Parameters
    ----------
    inode
        What `inode_of` returned when the file was examined; a file that has replaced it since is left alone.
    kind
        Of "damaged" files the last few stay, of "foreign" ones all.

    Returns
    -------
    Path or None
        The new name; None where another process has been faster. OSError says that renaming is not possible.
    """
    with _lock_folder(file.parent):
        if inode != inode_of(file):
            return None
        numbers = sorted(_numbers(file, kind))
        if kind == "foreign" and len(numbers) >= MOST_FOREIGN:
            raise OSError(0, f"{MOST_FOREIGN} foreign files were set aside here before; remove some of them")
        target = file.with_name(f"{file.name}.{kind}-{max(numbers, default=0) + 1}")
        # Journals go first: one that stays behind would be played back into the next file of that name.
        for ending in (*_JOURNALS, ""):
            if os.path.lexists(f"{file}{ending}"):
                os.rename(f"{file}{ending}", f"{target}{ending}")
        if kind == "damaged":
            for number in numbers[: max(0, len(numbers) + 1 - MOST_DAMAGED)]:
                for ending in ("", *_JOURNALS):
                    file.with_name(f"{file.name}.damaged-{number}{ending}").unlink(missing_ok=True)
    return target


def _numbers(file: Path, kind: Kind) -> Iterator[int]:
    pattern = re.compile(rf"{re.escape(file.name)}\.{kind}-([0-9]{{1,9}})")
    for other in file.parent.iterdir():
        match = pattern.fullmatch(other.name)
        if match is not None:
            yield int(match[1])


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Let one process at a time rename files in a folder, on systems that can lock one."""
    handle = os.open(folder, os.O_RDONLY) if os.name == "posix" else -1
    try:
        if handle >= 0:
            lock(handle, wait=True)
        yield
    finally:
        if handle >= 0:
            os.close(handle)
