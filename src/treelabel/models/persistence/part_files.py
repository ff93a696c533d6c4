"""Files of models within a model: they stand in its folder, each behind the prefix of its part."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def files_to(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield an empty folder, whose files are then copied into the folder of the model.

    Parameters
    ----------
    folder
        The folder of the model.
    prefix
        The prefix of names there.
    """
    with tempfile.TemporaryDirectory() as own:
        yield Path(own)
        for file in sorted(Path(own).iterdir()):
            shutil.copyfile(file, folder / f"{prefix}{file.name}")


@contextmanager
def files_from(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield a folder with copies of the files of a part, by their own names.

    Parameters
    ----------
    folder
        The folder of the model.
    prefix
        The prefix of names there.
    """
    with tempfile.TemporaryDirectory() as own:
        for file in sorted(folder.glob(f"{prefix}*")):
            shutil.copyfile(file, Path(own) / file.name.removeprefix(prefix))
        yield Path(own)
