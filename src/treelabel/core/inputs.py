"""Opening files to read: regular files only, decompressed by the ending, line by line, within limits."""

import codecs
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from treelabel.core.encodings import AsUtf8, WesternText, encoding_of, is_known, is_like_ascii, peekable, western_text
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.registry import did_you_mean
from treelabel.core.strings import column_names, describe_value

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
# The name of standard input and output, which are told to be compressed by their first bytes.
STANDARD = Path("-")
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}

BUFFER = 1 << 18
# How much of a file is looked at to tell whether it is UTF-8: its first letters beyond ASCII may stand far behind.
HEAD_BYTES = 1 << 24
# Lines come in pieces of at most this size, so that a line is found to be too long before it is in memory.
PIECE = 1 << 20
NEWLINE, RETURN = b"\n"[0], b"\r"[0]


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


def is_utf8(path: Path) -> bool:
    """Return whether the first bytes of a file are text in UTF-8 that is no ASCII, which no other encoding looks like.

    Standard input, whose beginning cannot be read twice, is taken as it comes.
    """
    head = _read_head(path)
    return not head.isascii() and _is_utf8(head)


def western_file(path: Path) -> WesternText | None:
    """Tell whether a file is no UTF-8, but clearly text in cp1252: see `western_text`."""
    head = _read_head(path)
    if head.isascii() or _is_utf8(head) or encoding_of(head) != "utf-8":
        return None
    return western_text(head)


def _read_head(path: Path) -> bytes:
    if path == STANDARD or not path.is_file():
        return b""
    with open_input(path) as stream:
        return stream.read(HEAD_BYTES)


def _is_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def existing_file(path: str | Path) -> Path:
    """Check that a file is there to be read, and that it is a regular one: a pipe or a device may never end."""
    if not isinstance(path, str | os.PathLike):
        hint = "; pass its columns to fit instead: model.fit(data['text'], data['label'])" if column_names(path) else ""
        raise TreelabelError(f"expected the name of a file, found {describe_value(path)}{hint}")
    file = Path(path)
    if file == STANDARD:
        return file
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(file) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise TreelabelError(f"{file}: is a symbolic link that leads back to itself") from None
        raise TreelabelError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TreelabelError(f"{quote(str(path))}: not the name of a file: {error}") from None
    if stat.S_ISDIR(mode):
        raise TreelabelError(f"{file}: is a folder, expected a file")
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise TreelabelError(
            f"{file}: is {kind}, expected a regular file; save what comes from it to a file first, "
            "or pipe it into - (standard input)"
        )
    return file


def file_sha256(file: Path) -> str:
    """Return the sha256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _missing(path: Path) -> TreelabelError:
    """Return an error that names what is missing: the target of a link, the folder, or the file, with similar names."""
    if path.is_symlink():
        return TreelabelError(f"{path}: is a symbolic link to {os.readlink(path)}, which does not exist")
    if not path.parent.is_dir():
        return TreelabelError(f"{path}: no such file; there is no folder {path.parent}")
    try:
        hint = did_you_mean(path.name, [other.name for other in path.parent.iterdir()], most=2)
    except OSError:
        hint = ""
    return TreelabelError(f"{path}: no such file{f'; {hint}' if hint else ''}")


@contextmanager
def open_input(
    path: Path, seen: Callable[[int], None] | None = None, limits: Limits = DEFAULT_LIMITS, whole: bool = False
) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, decompressed."""
    _, compression = suffixes(path)
    if path == STANDARD:
        start = standard_input().peek(4)
        compression = next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
    with nullcontext(standard_input()) if path == STANDARD else path.open("rb") as raw:
        counted = _Watched(raw, seen)
        source: Any = counted if seen is not None or compression is not None or path == STANDARD else raw
        if compression is not None:
            unpacked = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), compression)
            source = _Watched(unpacked, lambda total: _check_ratio(path, total, counted.total, limits))
        if whole:
            source = _Watched(source, lambda total: _check_whole(path, total, limits))
        yield cast("IO[bytes]", BufferedReader(source, BUFFER))


@lru_cache(1)
def _buffer_of(stream: Any) -> BufferedReader:
    # Not through a buffer of its own, which would wait until it is full.
    return BufferedReader(getattr(stream.buffer, "raw", stream.buffer), BUFFER)


def standard_input() -> BufferedReader:
    """Return standard input, always the same buffer, so that a look at its beginning takes nothing away."""
    return _buffer_of(sys.stdin)


class _Watched(RawIOBase):
    """A raw stream that reports how far it was read; of a pipe it returns what is there without waiting for more."""

    def __init__(self, source: Any, seen: Callable[[int], None] | None) -> None:
        self._read = source.readinto1 if isinstance(source, BufferedReader) else source.readinto
        self._seen, self.total = seen, 0

    def readinto(self, buffer: Any) -> int:
        count = int(self._read(buffer))
        self.total += count
        if self._seen is not None:
            self._seen(self.total)
        return count

    def readable(self) -> bool:
        return True


def _check_ratio(path: Path, unpacked: int, packed: int, limits: Limits) -> None:
    # By what has been read so far, not by the file's size: that would let a bomb grow to the ratio times itself first.
    if limits.exceeds("floor", unpacked) and limits.exceeds("ratio", unpacked / max(1, packed)):
        raise TreelabelError(
            f"{path}: {packed:,} bytes of it decompress to more than {unpacked:,}; {limits.hint('ratio')}"
        )


def first_mark(stream: IO[bytes], path: Path, encoding: str = "utf-8") -> bytes:
    """Look at the first character behind byte order mark and white space, and leave it to be read.

    Parameters
    ----------
    stream
        From `open_input`.
    path
        The file, to be named in messages.
    encoding
        As Python calls it; what the first bytes say goes first (see `encoding_of`).

    Returns
    -------
    bytes
        The character in UTF-8; empty at the end of the file.
    """
    _require_known(encoding, path)
    with decompressing(path):
        head = cast("BufferedReader", stream).peek(1)
    text = head.decode(encoding_of(head, encoding), "ignore")
    return text.removeprefix("\ufeff").lstrip()[:1].encode("utf-8", "replace")


def whole_lines(stream: IO[bytes], path: Path, encoding: str, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """Read a file at once, as JSON must be; the lines may be of any length, as all of it may be one.

    Returns
    -------
    The lines with their ends; joined, they are the text.
    """
    pieces: list[bytes] = []
    size = 0
    with decompressing(path):
        while piece := stream.read(PIECE):
            pieces.append(piece)
            size += len(piece)
            _check_whole(path, size, limits)
    lines: list[str] = []
    for line in text_lines(BytesIO(b"".join(pieces)), path, encoding, replace(limits, line=None), False):
        if isinstance(line, UndecodableLine):
            raise UndecodableError(f"{path}:{len(lines) + 1}: {line}")
        lines.append(line)
    return lines


def _check_whole(path: Path, size: int, limits: Limits) -> None:
    if limits.exceeds("whole", size):
        raise TreelabelError(f"{path}: holds more than can be read at once; {limits.hint('whole')}")


def numbered_lines(file: Path, encoding: str = "utf-8", limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[int, str]]:
    """Read the lines of a small text file that are not blank; a line that cannot be decoded is refused.

    Parameters
    ----------
    file : Path
        The file, compressed or not.
    encoding : str
        As Python calls it.
    limits : Limits
        How long a line may be.

    Yields
    ------
    int, str
        The number of a line, from 1 on, and its text without the line break (LF, CR LF or CR).
    """
    with open_input(file, limits=limits) as stream:
        for number, line in enumerate(text_lines(stream, file, encoding, limits, universal=True), 1):
            if isinstance(line, UndecodableLine):
                raise UndecodableError(f"{file}:{number}: {line}")
            if line.strip():
                yield number, line.rstrip("\r\n")


def text_lines(
    stream: IO[bytes],
    path: Path,
    encoding: str = "utf-8",
    limits: Limits = DEFAULT_LIMITS,
    universal: bool | None = None,
    continues: bool = False,
) -> Iterator[str]:
    """Decode lines one by one, so that a wrong byte is reported with its line.

    A line that cannot be decoded or is too long comes as an `UndecodableLine`, for the caller to refuse or to skip.

    Parameters
    ----------
    universal : whether a lone carriage return ends a line, too; by default where no line ends otherwise. Lines keep
        their ends as they are.
    continues : whether the stream stands within a file of the given encoding: its bytes tell no other one.

    Returns
    -------
    iterator of str
        The lines with their line breaks.
    """
    _require_known(encoding, path)
    with decompressing(path):
        source = peekable(stream)
        actual = encoding if continues else encoding_of(source.peek(1), encoding)
        is_recoded = not is_like_ascii(actual)
        if is_recoded:
            source = BufferedReader(AsUtf8(source, actual), BUFFER)
        if universal is None:
            head = source.peek(1)
            universal = b"\r" in head[:-1] and b"\n" not in head
        for number, raw in enumerate(_raw_lines(source, limits.line or sys.maxsize, universal)):
            if raw is None:
                yield UndecodableLine(f"the line is too long; {limits.hint('line')}")
                continue
            try:
                line = raw.decode("utf-8" if is_recoded else actual)
            except UnicodeError as error:
                why = _describe_damage(raw, actual) if is_recoded else _describe_undecodable(raw, actual, error)
                line = UndecodableLine(why)
            if number == 0 and not continues and not isinstance(line, UndecodableLine):
                line = line.removeprefix("\ufeff")
            if line:
                yield line


def _require_known(encoding: str, path: Path) -> None:
    if not is_known(encoding):
        raise TreelabelError(f"{path}: unknown encoding {quote(encoding)}; usual are utf-8, cp1252, latin-1, utf-16")


@contextmanager
def decompressing(path: Path) -> Iterator[None]:
    """Say what is wrong with a file that cannot be decompressed."""
    try:
        yield
    except (OSError, EOFError) as error:
        raise TreelabelError(
            f"{path}: cannot be decompressed: {error}; the file may be damaged or cut short"
        ) from error


def _describe_undecodable(raw: bytes, encoding: str, error: UnicodeError) -> str:
    usual = "utf-16" if b"\0" in raw else "cp1252" if encoding == "utf-8" else "utf-8"
    hint = "; old Windows files are cp1252" if usual == "cp1252" else ""
    advice = f"save the file as UTF-8, or name its encoding (--encoding {usual}{hint})"
    if not isinstance(error, UnicodeDecodeError):
        return f"the line is not {encoding}: {error}; {advice}"
    return f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not {encoding}; {advice}"


def _describe_damage(raw: bytes, encoding: str) -> str:
    """Say where a line that was recoded has bytes that mean nothing."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        position = len(raw[: error.start].decode()) + 1
        return f"character {position} of the line is not {encoding}; the file may be damaged or cut short"
    raise AssertionError("a line that can be decoded is not damaged")


class UndecodableError(TreelabelError):
    """A line of a file that has to be read as a whole cannot be given as text."""


class UndecodableLine(str):
    """Stands for a line that cannot be given as text; the text says why."""

    __slots__ = ()


def _raw_lines(stream: IO[bytes], most: int, universal: bool) -> Iterator[bytes | None]:
    """Split a stream into lines with their ends; None stands for a line of more than `most` bytes.

    None comes before the rest of its line is read, so that whoever refuses the file need not read on.
    """
    held: list[bytes] = []
    size = 0
    for piece in iter(partial(stream.readline, min(PIECE, most + 1)), b""):
        if size == 0 and piece[-1] == NEWLINE and not (universal and b"\r" in piece):
            yield piece
            continue
        if universal and piece[-1] == RETURN:
            # A line feed that belongs to it may come with the next piece.
            piece += stream.readline(1)
        for part in piece.splitlines(keepends=True) if universal else [piece]:
            is_too_long = size > most
            size += len(part)
            if size <= most:
                held.append(part)
            elif not is_too_long:
                held.clear()
                yield None
            if part[-1] == NEWLINE or (universal and part[-1] == RETURN):
                if held:
                    yield b"".join(held)
                    held.clear()
                size = 0
    if held:
        yield b"".join(held)
