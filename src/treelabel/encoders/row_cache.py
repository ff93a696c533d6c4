"""Rows of numbers on disk by key, in a SQLite file where every row has a checksum.

A cache never causes an error. Damaged rows count as missing; a damaged or foreign file is set aside and a new one
started; where nothing can be written, nothing is stored. Each of these is reported once, as a `CacheWarning`. Files
have a rollback journal and not a write-ahead log: those can be read in a read-only folder, and work on network drives.
"""

import hashlib
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from treelabel.core.quarantine import Inode, Kind, inode_of, quarantine_file
from treelabel.core.types import FloatArray

# To be raised when tables change; part of the file's name, so that two versions of treelabel do not share a file.
VERSION = 1
# "tlbl": marks a file as one of ours, in its header.
APPLICATION = 0x746C626C
_HEADER = {"application_id": APPLICATION, "user_version": VERSION}
_TABLES = {
    "about": "CREATE TABLE about (width integer not null)",
    "rows": "CREATE TABLE rows (key blob primary key, row blob not null, checksum blob not null) without rowid",
}
# How long a process waits for another one that is writing, which takes milliseconds.
_SECONDS = 30.0
# Errors that are no fault of the file: permissions, other processes, the disk.
_CIRCUMSTANCES = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_AUTH,
}

Result = TypeVar("Result")


class CacheWarning(UserWarning):
    """A cache is damaged or cannot be used: results are the same, and take longer to compute."""


class _UnusableFileError(Exception):
    """The file is no cache, or a damaged one."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def cache_name(fingerprint: str) -> str:
    """Return the name of the file that holds the rows of an encoder with this fingerprint."""
    return f"{hashlib.sha256(fingerprint.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}-{VERSION}.sqlite"


class RowCache:
    """Rows of float32, all of one width, by bytes keys; to be used in a `with` statement.

    Any number of processes may use a file at the same time, each with its own `RowCache`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stored: sqlite3.Connection | None = None
        self._inode: Inode | None = None
        self._is_writable = True
        self._is_given_up = False

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, keys: Sequence[bytes], at_once: int = 500) -> dict[bytes, FloatArray]:
        """Return the rows of those keys that are stored and undamaged.

        Parameters
        ----------
        keys
            The keys to look up.
        at_once
            Keys per query.

        Returns
        -------
        dict[bytes, FloatArray]
            Rows by key.
        """
        rows: dict[bytes, FloatArray] = {}
        damaged = 0
        for start in range(0, len(keys), at_once):
            part = keys[start : start + at_once]
            intact, bad = self._try(partial(_select, keys=part)) or ({}, 0)
            rows |= intact
            damaged += bad
        if damaged:
            what = f"{damaged:,} of the embeddings that were looked up are damaged; they are computed again"
            _warn_once(f"damaged {self._file}", f"{self._file}: {what}")
        return rows

    def write(self, keys: Sequence[bytes], rows: FloatArray) -> None:
        """Store rows, if possible.

        Parameters
        ----------
        rows
            keys × width.
        """
        if self._is_writable:
            self._try(partial(_insert, keys=keys, rows=rows), is_writing=True)

    def _try(self, work: Callable[[sqlite3.Connection], Result], is_writing: bool = False) -> Result | None:
        """Work on the file, trying twice more if it is bad or was moved; return None if that does not help."""
        for _ in range(3):
            if self._stored is None:
                return None
            try:
                return work(self._stored)
            except (sqlite3.Error, _UnusableFileError) as error:
                fault = self._fault(error)
                if _code(error) == sqlite3.SQLITE_READONLY_DBMOVED:
                    # Another process has set the file aside.
                    self._open()
                elif fault is not None:
                    self._quarantine(fault)
                    if not self._is_given_up:
                        self._open()
                elif is_writing:
                    self._is_writable = False
                    self._warn_not_stored(error)
                    return None
                else:
                    self._give_up(error)
        return None

    def _open(self) -> None:
        """Open the file, or start one; whatever is in the way is set aside."""
        for _ in range(3):
            self._close()
            try:
                self._stored = self._connect()
                return
            except (sqlite3.Error, OSError, _UnusableFileError) as error:
                fault = self._fault(error)
                if fault is None:
                    self._give_up(error)
                else:
                    self._quarantine(fault)
            if self._is_given_up:
                return
        self._give_up(OSError(0, "the file is damaged again and again"))

    def _connect(self) -> sqlite3.Connection:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if self._file.exists() and not self._file.is_file():
            self._inode = inode_of(self._file)
            raise _UnusableFileError("foreign", "is no ordinary file")
        self._stored = stored = sqlite3.connect(self._file, timeout=_SECONDS, isolation_level=None)
        self._inode = inode_of(self._file)
        # Damaged text must not fail to decode.
        stored.text_factory = bytes
        stored.execute("pragma trusted_schema = off")
        if _is_new(stored):
            _create(stored)
        return stored

    def _quarantine(self, error: _UnusableFileError) -> None:
        """Rename a bad file, so that its name can be used again."""
        self._close()
        try:
            target = quarantine_file(self._file, self._inode, error.kind)
        except OSError as problem:
            self._give_up(OSError(0, f"the file there {error}, and cannot be set aside: {problem.strerror}"))
            return
        if target is not None:
            _warn_once(str(target), f"{self._file}: {error}; it was set aside as {target.name}, and a new one begun")

    def _fault(self, error: Exception) -> _UnusableFileError | None:
        """Return what is wrong with the file; None where the error is none of its faults.

        A damaged cache is told from another program's file by the application number in the header.
        """
        if isinstance(error, _UnusableFileError):
            return error
        if isinstance(error, OSError) or _code(error) & 0xFF in _CIRCUMSTANCES:
            return None
        try:
            with self._file.open("rb") as file:
                is_ours = file.read(72)[68:] == APPLICATION.to_bytes(4, "big")
        except OSError:
            is_ours = False
        return _UnusableFileError("damaged" if is_ours else "foreign", f"is no cache that can be read ({error})")

    def _give_up(self, error: Exception) -> None:
        self._is_given_up = True
        self._close()
        self._warn_not_stored(error)

    def _warn_not_stored(self, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        advice = "set TREELABEL_CACHE to a folder that can be written"
        _warn_once(f"not kept {self._file}", f"{self._file}: embeddings are not kept: {reason}; {advice}")

    def _close(self) -> None:
        if self._stored is not None:
            self._stored.close()
            self._stored = None


def _is_new(stored: sqlite3.Connection) -> bool:
    """Return whether a database is still empty; refuse one that is not ours."""
    with _transaction(stored, "deferred"):
        application, version = (stored.execute(f"pragma {name}").fetchone()[0] for name in _HEADER)
        tables = stored.execute("select name, sql from sqlite_master where sql is not null order by name").fetchall()
    if application == 0 and not tables:
        return True
    if application != APPLICATION:
        raise _UnusableFileError("foreign", "is a database of another program")
    if version != VERSION:
        raise _UnusableFileError("damaged", f"is a cache of version {version}, expected {VERSION}")
    if tables != [(name.encode(), sql.encode()) for name, sql in _TABLES.items()]:
        # Somebody may have put something of their own there.
        raise _UnusableFileError("foreign", "has other tables than a cache has")
    return False


def _create(stored: sqlite3.Connection) -> None:
    with _transaction(stored):
        if stored.execute("select count(*) from sqlite_master").fetchone()[0]:
            # Another process was faster.
            return
        for sql in _TABLES.values():
            stored.execute(sql)
        for name, value in _HEADER.items():
            stored.execute(f"pragma {name} = {value}")


def _select(stored: sqlite3.Connection, keys: Sequence[bytes]) -> tuple[dict[bytes, FloatArray], int]:
    """Return the undamaged rows, and how many are damaged."""
    marks = ",".join("?" * len(keys))
    # In one transaction: else the first rows may come between the two.
    with _transaction(stored, "deferred"):
        width = _width(stored)
        selected = stored.execute(f"select key, row, checksum from rows where key in ({marks})", keys).fetchall()
    intact = {
        key: np.frombuffer(row, np.float32)
        for key, row, checksum in selected
        if isinstance(row, bytes) and len(row) == 4 * (width or 0) and _checksum(key, row) == checksum
    }
    return intact, len(selected) - len(intact)


def _insert(stored: sqlite3.Connection, keys: Sequence[bytes], rows: FloatArray) -> None:
    """Write rows; a file whose rows have another width is refused."""
    with _transaction(stored):
        width = _width(stored)
        if width is None:
            stored.execute("insert into about values (?)", (rows.shape[1],))
        elif width != rows.shape[1]:
            raise _UnusableFileError(
                "damaged", f"holds rows of {width} numbers, but the encoder gives {rows.shape[1]} a text"
            )
        contents = (row.tobytes() for row in rows)
        values = ((key, row, _checksum(key, row)) for key, row in zip(keys, contents, strict=True))
        stored.executemany("insert or replace into rows values (?, ?, ?)", values)


def _width(stored: sqlite3.Connection) -> int | None:
    """Return how many numbers a row has, once there is one."""
    widths = stored.execute("select width from about").fetchall()
    if not widths:
        return None
    if len(widths) > 1 or not isinstance(widths[0][0], int):
        raise _UnusableFileError("damaged", "does not say how wide its rows are")
    width: int = widths[0][0]
    return width


def _checksum(key: bytes, row: bytes) -> bytes:
    return hashlib.blake2b(key + row, digest_size=8).digest()


@contextmanager
def _transaction(stored: sqlite3.Connection, how: str = "immediate") -> Iterator[None]:
    """Commit all or nothing; one that will write waits for others at its start, where nothing can be lost."""
    stored.execute(f"begin {how}")
    try:
        yield
        stored.execute("commit")
    except BaseException:
        if stored.in_transaction:
            stored.execute("rollback")
        raise


def _code(error: Exception) -> int:
    """Return SQLite's code of an error; errors of Python's module have none, and are faults of the content."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)


_warned: set[str] = set()


def _warn_once(topic: str, message: str) -> None:
    if topic not in _warned:
        _warned.add(topic)
        warnings.warn(message, CacheWarning, stacklevel=2)
