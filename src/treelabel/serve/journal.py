"""The journal of corrections: one JSON line each, on disk before it is answered."""

import asyncio
import json
import logging
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from treelabel.core.errors import TreelabelError
from treelabel.core.locking import NO_FOLLOW, lock
from treelabel.serve.problems import ProblemError

LOG = logging.getLogger(__name__)


class Journal:
    """A file that only grows. `append` returns when its lines are on disk; lines that come meanwhile go together."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Corrections hold texts: they are for the user of the service alone.
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o600)
        if not lock(self._handle):
            os.close(self._handle)
            raise TreelabelError(f"{path}: another service is writing it; give each a folder of its own (--state)")
        self.healed = _cut_torn_line(self._handle)
        if self.healed:
            LOG.warning(
                "%s: the last line was cut short, by a kill or a full disk; %d bytes removed", path, self.healed
            )
        self._size = os.fstat(self._handle).st_size
        self.lines = len(read_journal(path))
        self._waiting: list[tuple[bytes, int, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, entries: Sequence[dict[str, Any]]) -> None:
        """Write entries; all of them are on disk when this returns, or none if it raises."""
        data = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((data, len(entries), done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting())
        await done

    async def _write_waiting(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._write, b"".join(data for data, _, _ in group))
            except OSError as error:
                LOG.error("%s: cannot be written: %s", self.path, error.strerror)
                for _, _, done in group:
                    if not done.done():
                        done.set_exception(ProblemError(507, f"the journal cannot be written: {error.strerror}"))
                continue
            for _, count, done in group:
                self.lines += count
                if not done.done():
                    done.set_result(None)

    def _write(self, data: bytes) -> None:
        """Append and bring to disk; what was written in part is taken back."""
        try:
            os.lseek(self._handle, self._size, os.SEEK_SET)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._handle, rest) :]
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def read_journal(path: Path, lines: int | None = None) -> list[dict[str, Any]]:
    """Read the first entries of a journal; by default all.

    Parameters
    ----------
    path
        The file.
    lines
        How many entries there are at least; later ones may still be being written.

    Returns
    -------
    list of dict
    """
    entries = []
    with path.open("rb") as stream:
        for number, line in enumerate(islice(stream, lines), 1):
            try:
                entries.append(json.loads(line))
            except ValueError:
                raise TreelabelError(f"{path}:{number}: damaged: no line of JSON") from None
    return entries


def _cut_torn_line(handle: int) -> int:
    """Remove what stands behind the last line break, which nobody was told of; return how many bytes."""
    size = end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - (1 << 16))
        last = os.pread(handle, end - start, start).rfind(b"\n")
        end = start + last + 1 if last >= 0 else start
        if last >= 0:
            break
    if end < size:
        os.ftruncate(handle, end)
        os.fsync(handle)
    return size - end
