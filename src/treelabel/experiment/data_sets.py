"""The data sets of a study: where their files are, what identifies their content, and how they are read."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import file_sha256
from treelabel.data.dataset import Dataset
from treelabel.data.joint_reading import read_together
from treelabel.data.read import read
from treelabel.data.sample import load_sample
from treelabel.data.splits import per_class, split
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy
from treelabel.data.transforms import unfold
from treelabel.experiment.spec import SAMPLE, DataSpec

# What chooses among the combinations of a grid: a share of the training documents, and no more than so many of them.
HELD_OUT = 0.2
MOST_LEARNED, MOST_HELD_OUT = 3_000, 1_000


@dataclass(frozen=True, eq=False)
class Splits:
    """The documents of one run; `spare` are training documents that it does not learn from, if there are any."""

    train: Dataset
    test: Dataset
    valid: Dataset | None = None
    spare: Dataset | None = None

    def for_choosing(self) -> "tuple[Dataset, Dataset]":
        """Return documents to learn from and to judge on, none of them a test document, for choosing parameters."""
        learn, held = self.train, self.valid if self.valid is not None else self.spare
        if held is None:
            # Published numbers are of divisions that know nothing of duplicates.
            shares = {"learn": 1 - HELD_OUT, "held": HELD_OUT}
            learn, held = split(self.train, shares, seed=0, keep_duplicates=False).values()
        return some_of(learn, MOST_LEARNED), some_of(held, MOST_HELD_OUT)


def find_file(name: str, folder: Path) -> Path:
    """Find a file of a data set: beside the spec, in TREELABEL_DATA, or in ../shared/data.

    Parameters
    ----------
    name : str
        The file as the spec names it.
    folder : Path
        The folder of the spec.

    Returns
    -------
    Path
    """
    chosen = os.environ.get("TREELABEL_DATA")
    usual = [Path("..", "shared", "data"), folder.parent.parent / "shared" / "data"]
    folders = [folder, *([Path(chosen)] if chosen else usual)]
    for each in folders:
        if (each / name).is_file():
            return each / name
    searched = ", ".join(map(str, folders))
    raise TreelabelError(f"{name}: not found in {searched}; set TREELABEL_DATA to the folder of the data sets")


# Settings of models that may name a file.
FILE_SETTINGS = ("descriptions",)


def with_files(params: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Find the files that parameters name, as those of data sets are found.

    Parameters
    ----------
    params : mapping
        The parameters of a model.
    folder : Path
        The folder of the spec.

    Returns
    -------
    dict
        The same, with paths that can be opened.

    >>> with_files({"C": 1.0, "descriptions": {"A": "the first letter"}}, Path())
    {'C': 1.0, 'descriptions': {'A': 'the first letter'}}
    """
    return {
        name: str(find_file(value, folder)) if name in FILE_SETTINGS and isinstance(value, str) else value
        for name, value in params.items()
    }


def params_hash(params: Mapping[str, Any], folder: Path) -> list[str]:
    """Return what identifies the content of the files that parameters name; what is not there is told by its name.

    Parameters
    ----------
    params : mapping
        Parameters of a model.
    folder : Path
        The folder of the spec.

    Returns
    -------
    list of str
    """
    result = []
    for name in FILE_SETTINGS:
        if isinstance(params.get(name), str):
            with suppress(TreelabelError):
                result.append(_file_hash(find_file(params[name], folder)))
    return result


def files_of(data: DataSpec, folder: Path) -> dict[str, Path]:
    """Find the files of a data set, and the taxonomies that belong to them; none for the embedded sample.

    Parameters
    ----------
    data : DataSpec
        The data set.
    folder : Path
        The folder of the spec.

    Returns
    -------
    dict of str to Path
    """
    named = {part: getattr(data, part) for part in ("all", "train", "test", "valid")}
    result = {part: find_file(name, folder) for part, name in named.items() if name is not None and name != SAMPLE}
    taxonomy = data.read.get("taxonomy")
    if taxonomy is not None:
        return result | {"taxonomy": find_file(str(taxonomy), folder)}
    sibling = {f"taxonomy of {part}": find_sibling_taxonomy(file) for part, file in result.items()}
    return result | {part: file for part, file in sibling.items() if file is not None}


def content_hash(data: DataSpec, folder: Path) -> str:
    """Return what identifies the content of a data set: its files, and what is made of them.

    Parameters
    ----------
    data : DataSpec
        The data set.
    folder : Path
        The folder of the spec.

    Returns
    -------
    str
    """
    options = {name: value for name, value in asdict(data).items() if name not in ("name", "title", "note", "same_as")}
    files = {part: _file_hash(file) for part, file in files_of(data, folder).items()}
    text = json.dumps([options, files], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _file_hash(file: Path) -> str:
    return _hash_once(file, file.stat().st_size, file.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _hash_once(file: Path, size: int, changed: int) -> str:
    return file_sha256(file)


def load_parts(data: DataSpec, folder: Path, seed: int) -> Splits:
    """Read a data set.

    Parameters
    ----------
    data : DataSpec
        Where its files are, and what is made of them.
    folder : Path
        The folder of the spec.
    seed : int
        The seed of the run, by which few documents a class are drawn.

    Returns
    -------
    Parts
    """
    parts = _read(data, folder)
    if data.unfold and not parts["train"].hierarchy.is_tree:
        parts = {name: unfold(part) for name, part in parts.items()}
    if data.depth is not None:
        parts = {name: part.moved(part.hierarchy.cut(data.depth)) for name, part in parts.items()}
    parts = {name: some_of(part, data.limit.get(name)) for name, part in parts.items()}
    train, spare = parts["train"], None
    if data.per_class is not None:
        train, spare = per_class(train, data.per_class, seed=seed)
    return Splits(train, parts["test"], parts.get("valid"), spare)


def _read(data: DataSpec, folder: Path) -> dict[str, Dataset]:
    options = dict(data.read)
    if "taxonomy" in options:
        options["taxonomy"] = find_file(str(options["taxonomy"]), folder)
    if data.all is None:
        names = [name for name in ("train", "test", "valid") if getattr(data, name) is not None]
        files = [find_file(getattr(data, name), folder) for name in names]
        return dict(zip(names, read_together(files, progress=False, **options), strict=True))
    whole = load_sample() if data.all == SAMPLE else read(find_file(data.all, folder), progress=False, **options)
    return split(whole, data.split, seed=data.split_seed, keep_duplicates=False)


def some_of(data: Dataset, count: int | None, seed: int = 0) -> Dataset:
    """Draw at most so many documents at random, in their order.

    Parameters
    ----------
    data : Dataset
        What to draw from.
    count : int or None
        How many; None takes all.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    Dataset

    >>> len(some_of(load_sample(), 10)), len(some_of(load_sample()[:5], None))
    (10, 5)
    """
    if count is None or len(data) <= count:
        return data
    return data[np.sort(np.random.default_rng(seed).permutation(len(data))[:count])]
