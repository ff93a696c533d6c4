"""Jobs as files: large arrays are stored once, and all processes of a node map the same bytes into their memory."""

import mmap
import pickle
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

# Smaller arrays stay within the job.
LEAST_BYTES = 1 << 16


@dataclass(frozen=True)
class StoredJob:
    """A job in files: the object itself, and its large arrays."""

    body: Path
    arrays: tuple[Path, ...]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.stat().st_size for file in (self.body, *self.arrays))


class JobFiles:
    """Stores jobs one after another in a folder; arrays that the job before had too are not written again.

    Files live as long as the run that made them, and are read by its own processes: they are no model files, and may be
    pickled. Memory holds the arrays of the last job.

    Parameters
    ----------
    folder
        Must be visible to all nodes; what an earlier run left there is removed.
    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        # What is unpickled here nobody else may write.
        folder.mkdir(mode=0o700)
        self.folder, self._count = folder, 0
        # Files by the address and size of what is in them; the buffer keeps its memory from being used for another.
        self._known: dict[tuple[int, int], tuple[Any, Path]] = {}
        self._body: Path | None = None

    def store(self, job: Any) -> StoredJob:
        """Write a job, whose predecessor is done with."""
        used: dict[tuple[int, int], tuple[Any, Path]] = {}
        files: list[Path] = []

        def take(buffer: pickle.PickleBuffer) -> bool:
            with buffer.raw() as raw:
                if raw.nbytes < LEAST_BYTES:
                    return True
                key = address_of(raw), raw.nbytes
                if key not in used:
                    used[key] = self._known.get(key) or (buffer, self._new_file(raw))
            files.append(used[key][1])
            return False

        body = self._new_file(pickle.dumps(job, protocol=5, buffer_callback=take))
        for key in self._known.keys() - used.keys():
            self._known[key][1].unlink()
        if self._body is not None:
            self._body.unlink()
        self._known, self._body = used, body
        return StoredJob(body, tuple(files))

    def _new_file(self, content: Any) -> Path:
        self._count += 1
        file = self.folder / str(self._count)
        file.write_bytes(content)
        return file

    def close(self) -> None:
        """Remove the files."""
        self._known = {}
        shutil.rmtree(self.folder, ignore_errors=True)


def address_of(raw: memoryview) -> int:
    """Return where in memory a buffer begins."""
    import numpy as np

    return int(np.frombuffer(raw, np.uint8).ctypes.data)


@lru_cache(maxsize=1)
def load_job(stored: StoredJob) -> Any:
    """Load a job, its arrays mapped copy-on-write: loops that were compiled for arrays which can be written take them.

    Parameters
    ----------
    stored
        What `JobFiles.store` returned.

    Returns
    -------
    object
        The job, with the same bits.
    """
    buffers = []
    for file in stored.arrays:
        with file.open("rb") as stream:
            buffers.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY))
    return pickle.loads(stored.body.read_bytes(), buffers=buffers)
