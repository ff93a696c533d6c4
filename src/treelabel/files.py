"""Writing files: compression by the ending, output that appears whole or not at all. Reading is in `inputs`."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from treelabel.errors import TreelabelError
from treelabel.inputs import COMPRESSIONS, UndecodableLine, existing_file, open_input, suffixes, text_lines

__all__ = [
    "COMPRESSIONS",
    "UndecodableLine",
    "existing_file",
    "open_input",
    "open_output",
    "suffixes",
    "text_lines",
    "whole_file",
]


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
