"""Opening files to read: compression by the ending, lines with their numbers."""

import codecs
import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from treelabel.commit import finish_commit
from treelabel.errors import TreelabelError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}


def suffixes(path: Path) -> tuple[str, str | None]:
    """Split off a file's format ending and its compression, if any.

    >>> suffixes(Path("train.jsonl.gz")), suffixes(Path("TRAIN.CSV"))
    (('.jsonl', 'gzip'), ('.csv', None))
    """
    endings = [ending.lower() for ending in path.suffixes]
    compression = COMPRESSIONS.get(endings[-1]) if endings else None
    if compression is not None:
        endings.pop()
    return (endings[-1] if endings else ""), compression


def existing_file(path: str | Path) -> Path:
    """Check that a file is there to be read."""
    found = Path(path)
    finish_commit(found.parent)
    if found.is_dir():
        raise TreelabelError(f"{found}: is a folder, expected a file")
    if not found.exists():
        if not found.parent.is_dir():
            raise TreelabelError(f"{found}: no such file; there is no folder {found.parent}")
        close = difflib.get_close_matches(found.name, [other.name for other in found.parent.iterdir()], n=2)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise TreelabelError(f"{found}: no such file{hint}")
    return found


@contextmanager
def open_input(path: Path, seen: Callable[[int], None] | None = None) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, decompressed; `seen` is told how many bytes of the file have been read so far."""
    _, compression = suffixes(path)
    with path.open("rb") as raw:
        source: Any = _Counted(raw, seen) if seen is not None else raw
        if compression is not None:
            source = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), compression)
        yield cast("IO[bytes]", BufferedReader(source, 1 << 18))


class _Counted(RawIOBase):
    """A raw file that tells how far it has been read."""

    def __init__(self, raw: IO[bytes], seen: Callable[[int], None]) -> None:
        self._raw, self._seen = raw, seen

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self._seen(self._raw.tell())
        return len(data)

    def readable(self) -> bool:
        return True


def text_lines(stream: IO[bytes], path: Path, encoding: str) -> Iterator[str]:
    """Decode lines one by one, so that a wrong byte is reported with its line.

    A line that cannot be decoded comes as an `UndecodableLine`, for the caller to refuse or to skip.
    """
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise TreelabelError(f"{path}: unknown encoding {encoding!r}; usual are utf-8, latin-1, cp1252") from None
    try:
        for number, raw in enumerate(stream):
            try:
                line = raw.decode(encoding)
            except UnicodeDecodeError as error:
                line = UndecodableLine(
                    f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not {encoding}; "
                    "save the file as UTF-8 or name its encoding (for instance latin-1)"
                )
            yield line.removeprefix("\ufeff") if number == 0 and not isinstance(line, UndecodableLine) else line
    except (OSError, EOFError) as error:
        raise TreelabelError(
            f"{path}: cannot be decompressed: {error}; the file may be damaged or cut short"
        ) from error


class UndecodableLine(str):
    """Stands for a line that is not in the encoding; the text says why."""

    __slots__ = ()
