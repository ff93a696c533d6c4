"""Opening files: compression by the ending, lines with their numbers, output that appears whole or not at all."""

import codecs
import difflib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter, RawIOBase
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

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


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; it takes the real name when the block ends well, and is removed if not."""
    target = Path(path)
    if target.is_dir():
        raise TreelabelError(f"{target}: is a folder, expected the name of a file to write")
    if target.exists() and not target.is_file():
        # Taking its name would put a file in the place of a device or a pipe.
        raise TreelabelError(f"{target}: is no ordinary file; write to a file and copy it there")
    if not target.parent.is_dir():
        raise TreelabelError(f"{target}: the folder {target.parent} does not exist; make it first")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except PermissionError:
        raise TreelabelError(f"{target}: no permission to write in the folder {target.parent}") from None
    except OSError as error:
        raise TreelabelError(f"{target}: cannot write in the folder {target.parent}: {error.strerror}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def open_output(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for writing bytes, compressed by its ending; it appears whole or not at all."""
    _, compression = suffixes(Path(path))
    with whole_file(path) as temporary, pa.OSFile(str(temporary), "wb") as raw:
        stream = raw if compression is None else pa.CompressedOutputStream(raw, compression)
        buffered = BufferedWriter(stream, 1 << 18)
        yield cast("IO[bytes]", buffered)
        buffered.flush()
        stream.close()
