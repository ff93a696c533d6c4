"""The on-disk cache of compiled loops: damage in it means compiling again, never an error or a wrong number.

numba trusts its cache files: a truncated one raises in the middle of whatever the user was doing, and a changed byte
in machine code ends the process. Here every file ends with a checksum, which is compared before anything is unpickled.
"""

# numba's classes have no types.
# mypy: allow-untyped-calls

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

_CHECKSUM = 16


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
            file.write(content.getvalue() + _checksum(content.getvalue()))


class CheckedCache(FunctionCache):
    """A function's cache that is never the reason of an error: what cannot be read is compiled, what cannot be
    written is not kept.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = CheckedFiles(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for a signature, or None."""
        with suppress(Exception):
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if that is possible."""
        with suppress(Exception):
            super().save_overload(sig, data)


def cache_compiled(dispatcher: Any) -> None:
    """Let a compiled function keep its machine code on disk, where there is a place for it.

    numba looks in NUMBA_CACHE_DIR, beside the source, and in the user's cache folder; without any of them the function
    is compiled in every process. With NUMBA_DISABLE_JIT a function is plain Python and has no cache.
    """
    if hasattr(dispatcher, "enable_caching"):
        # RuntimeError: no folder can be written; OSError: the source cannot be read any more.
        with suppress(RuntimeError, OSError):
            dispatcher._cache = CheckedCache(dispatcher.py_func)


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECKSUM).digest()


def _require_checksum(file: Path) -> None:
    """Raise ValueError where a file does not end with the checksum of its content."""
    content = file.read_bytes()
    if _checksum(content[:-_CHECKSUM]) != content[-_CHECKSUM:]:
        raise ValueError(f"{file}: the checksum is another")
