"""`.npz` files: written without pickle, and read from outside with what is in them, and how large, known first.

treelabel writes such files uncompressed, so none of its own can be refused for what it unpacks to.
"""

import math
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treelabel.core.errors import TreelabelError

# A compressed file may unpack to this many bytes, plus this many times its size.
FREE_BYTES = 64 << 20
MOST_TIMES = 100

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Header(NamedTuple):
    """The type and shape of an array that is not read yet."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    # Whether columns stand first.
    is_fortran: bool = False

    @property
    def size(self) -> int:
        """The bytes that it takes in memory."""
        return self.dtype.itemsize * math.prod(self.shape)


Headers = Mapping[str, Header]


class Npz:
    """An open `.npz` file: the headers of its arrays, each of which is read when it is asked for."""

    def __init__(self, archive: zipfile.ZipFile, file: Path) -> None:
        self._archive, self._file = archive, file
        names = archive.namelist()
        if len(set(names)) < len(names) or not all(name.endswith(".npy") for name in names):
            raise ValueError("expected files .npy, each once")
        self.headers: dict[str, Header] = {
            info.filename.removesuffix(".npy"): self._header(info) for info in archive.infolist()
        }
        self._check_size(sum(header.size for header in self.headers.values()))

    def __contains__(self, name: object) -> bool:
        return name in self.headers

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Read an array, in C order."""
        with self._archive.open(f"{name}.npy") as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False), order="C")

    @contextmanager
    def open_array(self, name: str) -> Iterator[IO[bytes]]:
        """Open the bytes of an array, which can be read piece by piece."""
        with self._archive.open(f"{name}.npy") as stream:
            _read_header(stream)
            yield stream

    def _header(self, info: zipfile.ZipInfo) -> Header:
        with self._archive.open(info) as stream:
            header, taken = _read_header(stream)
        if header.dtype.hasobject or header.dtype.names is not None:
            raise ValueError(f"{info.filename} holds no plain numbers")
        if info.file_size != taken + header.size:
            raise ValueError(f"{info.filename} has {info.file_size:,} bytes, its header says {taken + header.size:,}")
        return header

    def _check_size(self, total: int) -> None:
        packed = self._file.stat().st_size
        most = FREE_BYTES + MOST_TIMES * packed
        if total > most:
            raise TreelabelError(
                f"{self._file}: would unpack to {total:,} bytes, but a file of {packed:,} bytes may unpack to at most "
                f"{most:,} ({FREE_BYTES >> 20} MB and {MOST_TIMES} times its size)"
            )


def _read_header(stream: IO[bytes]) -> tuple[Header, int]:
    """Read the header of a `.npy` file: what it says, and how many bytes it takes."""
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"a .npy file of version {version[0]}.{version[1]}, expected 1.0 or 2.0")
    shape, is_fortran, dtype = _HEADERS[version](stream)
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"an array of shape {shape}")
    return Header(dtype, shape, is_fortran and len(shape) > 1), stream.tell()


@contextmanager
def open_npz(file: Path, what: str) -> Iterator[Npz]:
    """Open a `.npz` file; `what` says in messages what it should be. Nothing in it is ever unpickled.

    Errors of the libraries inside the block are turned into one sentence too: there is no end to what they raise on
    foreign bytes.

    Parameters
    ----------
    what
        What it should be, for messages.

    Yields
    ------
    Npz
    """
    with one_sentence(file, what):
        if not stat.S_ISREG(file.stat().st_mode):
            raise TreelabelError(f"{file}: is no ordinary file, expected {what}")
        with zipfile.ZipFile(file) as archive:
            yield Npz(archive, file)


@contextmanager
def one_sentence(file: Path, what: str) -> Iterator[None]:
    """Turn whatever a library raises on the bytes of a file into one sentence.

    Parameters
    ----------
    what
        What it should be, for messages.
    """
    try:
        yield
    except (TreelabelError, MemoryError):
        raise
    except Exception as error:
        # numpy's advice to load what it cannot read unsafely is not for anyone's eyes.
        first = str(error).strip().partition("\n")[0]
        why = "" if "pickle" in first or not first else f": {first}"
        raise TreelabelError(f"{file}: not {what}, or damaged{why}") from error


def read_arrays(file: Path, what: str, check: Callable[[Headers], None]) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of a file after `check` has seen their headers.

    Parameters
    ----------
    what
        What it should be, for messages.
    check
        Called with the names, types and shapes of all arrays before any is read; raises TreelabelError.

    Returns
    -------
    dict of arrays
        By name.
    """
    with open_npz(file, what) as stored:
        check(stored.headers)
        return {name: stored[name] for name in stored.headers}


def write_arrays(target: Path | IO[bytes], arrays: Mapping[str, npt.NDArray[Any]], compress: bool = False) -> None:
    """Write arrays of plain numbers under their names; an array of objects, which only pickle could hold, is refused.

    numpy before 2.2 stores `allow_pickle=False` as an array of that name, so the check is made here.

    Parameters
    ----------
    target
        A file's path, or an open binary file.
    arrays
        By name.
    compress
        Deflate each array.
    """
    plain: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    if objects := [name for name, array in plain.items() if array.dtype.hasobject]:
        raise TreelabelError(f"cannot store {', '.join(objects)}: expected plain numbers, found Python objects")
    (np.savez_compressed if compress else np.savez)(target, **plain)
