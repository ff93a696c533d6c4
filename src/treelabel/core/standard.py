"""Standard input and output where a file is needed: a temporary one takes their place."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treelabel.core.inputs import STANDARD, standard_input


@contextmanager
def as_input(path: Path, ending: str) -> Iterator[Path]:
    """Return a file as it is; standard input (-) is copied to one that is gone after the block.

    Parameters
    ----------
    path
        The file, or -.
    ending
        The ending of the copy.
    """
    if path != STANDARD:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="treelabel-") as folder:
        copy = Path(folder, f"standard_input{ending}")
        with copy.open("wb") as stream:
            shutil.copyfileobj(standard_input(), stream)
        yield copy


@contextmanager
def as_output(path: Path, ending: str) -> Iterator[Path]:
    """Return a file as it is; for standard output (-), one that is sent there after the block.

    Parameters
    ----------
    path
        The file, or -.
    ending
        The ending of the file that is sent.
    """
    if path != STANDARD:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="treelabel-") as folder:
        made = Path(folder, f"standard_output{ending}")
        yield made
        with made.open("rb") as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
            sys.stdout.buffer.flush()
