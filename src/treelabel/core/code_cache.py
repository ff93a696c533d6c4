"""The on-disk cache of compiled loops: damage in it means compiling again, never an error or a wrong number.

numba trusts its cache files: a truncated one raises in the middle of whatever the user was doing, and a changed byte
in machine code ends the process. Here every file ends with a checksum, which is compared before anything is unpickled.
Processes that need the same loop compile it once: the others wait for it, and take it from the cache.
"""

# numba's classes have no types.
# mypy: allow-untyped-calls

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile

from treelabel.core.compilation import compilation
from treelabel.core.locking import lock
from treelabel.core.machine_code import CHECKSUM_BYTES, checksum

# A loop that another process is compiling is waited for so long, in seconds, and looked at so often.
LONGEST_WAIT, PAUSE = 60.0, 0.02


class CheckedFiles(IndexDataCacheFile):
    """The index and data files of one function, each followed by a checksum of what is before it.

    Unpickling stops at the end of the pickle, so what numba reads is not changed by the bytes that follow.
    """

    def load(self, key: Any) -> Any:
        """Return what is stored under a key, or None where that is missing or damaged."""
        with suppress(Exception):
            return super().load(key)
        return None

    def _load_index(self) -> Any:
        # A damaged index is an empty one: `save` replaces it.
        with suppress(Exception):
            _require_checksum(Path(self._index_path))
            return super()._load_index()
        return {}

    def _load_data(self, name: str) -> Any:
        _require_checksum(Path(self._data_path(name)))
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        content = BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + checksum(content.getvalue()))


class CheckedCache(FunctionCache):
    """A function's cache that is never the reason of an error: what cannot be read is compiled, what cannot be
    written is not kept.
    """

    def __init__(self, function: Any, variant: str = "") -> None:
        super().__init__(function)
        name, stamp = self._impl.filename_base + variant, self._impl.locator.get_source_stamp()
        self._cache_file = CheckedFiles(self._cache_path, name, stamp)
        self._turn = Turn(Path(self._cache_path) / f"{name}.lock")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for a signature, or None: then it is this process's turn to compile it."""
        overload = self._load(sig, target_context)
        if overload is None and self._turn.take():
            overload = self._load(sig, target_context)
            if overload is not None:
                self._turn.end()
        return overload

    def _load(self, sig: Any, target_context: Any) -> Any:
        with suppress(Exception):
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if that is possible."""
        with suppress(Exception):
            super().save_overload(sig, data)
        self._turn.end()

    def entry(self, sig: Any, target_context: Any) -> Any:
        """Return what is stored of a signature as it is, or None."""
        return self._cache_file.load(self._index_key(sig, target_context.codegen()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept yet."""
        return not self._cache_file._load_index()


class Turn:
    """The turn of a process to compile a function, by a lock that ends with the process.

    Loops call each other without circles, so that processes do not wait for each other in a circle, either.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._handle = file, -1

    def take(self) -> bool:
        """Wait until no other process compiles the function; return whether one may have."""
        if self._handle >= 0:
            return False
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
            until = time.monotonic() + LONGEST_WAIT
            with compilation.going_on():
                while not lock(self._handle) and time.monotonic() < until:
                    time.sleep(PAUSE)
                    compilation.look()
            return True
        return False

    def end(self) -> None:
        """Leave the turn to others."""
        if self._handle >= 0:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1


class _Watch(event.Listener):
    """Tells when numba compiles."""

    def on_start(self, event: Any) -> None:
        """Begin."""
        compilation.begin()

    def on_end(self, event: Any) -> None:
        """End."""
        compilation.end()


event.register("numba:compile", _Watch())


def is_cached(function: Any) -> bool:
    """Return whether a compiled loop is in the cache already, or can never be."""
    cache = getattr(function.dispatcher, "_cache", None)
    return not isinstance(cache, CheckedCache) or not cache.is_empty


def cache_compiled(dispatcher: Any, variant: str = "") -> None:
    """Let a compiled function keep its machine code on disk, where there is a place for it; variants have their own.

    numba looks in NUMBA_CACHE_DIR, beside the source, and in the user's cache folder; without any of them the function
    is compiled in every process. With NUMBA_DISABLE_JIT a function is plain Python and has no cache.
    """
    if hasattr(dispatcher, "enable_caching"):
        # RuntimeError: no folder can be written; OSError: the source cannot be read any more.
        with suppress(RuntimeError, OSError):
            dispatcher._cache = CheckedCache(dispatcher.py_func, variant)


def _require_checksum(file: Path) -> None:
    """Raise ValueError where a file does not end with the checksum of its content."""
    content = file.read_bytes()
    if checksum(content[:-CHECKSUM_BYTES]) != content[-CHECKSUM_BYTES:]:
        raise ValueError(f"{file}: the checksum is another")
