"""Read several files, such as training and test data, under one hierarchy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treelabel.core.inputs import STANDARD
from treelabel.core.limits import DEFAULT_LIMITS
from treelabel.data.columns import MissingColumnError
from treelabel.data.dataset import Dataset
from treelabel.data.io.format import ReadOptions
from treelabel.data.io.tables import existing_data, format_to_read, open_tables
from treelabel.data.read import Known, known_from, read
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy
from treelabel.data.transforms import under
from treelabel.hierarchy.label_ids import UnknownLabelError
from treelabel.hierarchy.union import unite_trees


def read_together(
    paths: Sequence[str | Path], taxonomy: Any = None, widen: bool = False, **options: Any
) -> list[Dataset]:
    """Read files with one hierarchy: the taxonomy given, or one in their folder, or else all labels of all files.

    `options` are those of `read`. Without any taxonomy a test file rarely has the labels of its training file; here
    both get the tree (or the flat list) of the labels of both, so that they can be described and judged together.

    Parameters
    ----------
    paths
        The files.
    taxonomy
        A Hierarchy, or a file that holds one.
    widen
        Whether labels that are not in a taxonomy that was found in the folder are added to it, not refused, and the
        columns of further files are guessed where they have none of the names that were given.
    **options
        Options of `read`.

    Returns
    -------
    list of Dataset
        One per file.
    """
    files = [existing_data(path) for path in paths]
    widen = widen and taxonomy is None
    embedded = [taxonomy is None and _has_hierarchy(file, options) for file in files]
    if taxonomy is None:
        taxonomy = _read_sibling([file for file, has in zip(files, embedded, strict=True) if not has], options)
    data = [
        _read_widely(file, None if embedded[index] else taxonomy, widen, options, index > 0)
        for index, file in enumerate(files)
    ]
    if taxonomy is None and len({part.choices.get("separator") for part in data}) > 1:
        data = _read_alike(files, data, options)
    if all(part.hierarchy == data[0].hierarchy for part in data):
        return data
    union = unite_trees([part.hierarchy for part in data])
    return [under(part, union) for part in data]


def _has_hierarchy(file: Path, options: dict[str, Any]) -> bool:
    """Return whether a file holds its hierarchy itself, which goes before any in its folder."""
    if file == STANDARD:
        return False
    read_options = ReadOptions(options.get("encoding", "utf-8"), limits=options.get("limits", DEFAULT_LIMITS))
    if "hierarchy" not in format_to_read(file, options.get("format"), read_options).holds:
        return False
    with open_tables(file, read_options, options.get("format")) as source:
        return source.hierarchy is not None


def _read_sibling(files: Sequence[Path], options: dict[str, Any]) -> Known | None:
    """Read the first taxonomy that is in the folder of one of the files and belongs to it."""
    sibling = next(filter(None, map(find_sibling_taxonomy, files)), None)
    if sibling is None:
        return None
    limits, encoding = options.get("limits", DEFAULT_LIMITS), options.get("encoding", "utf-8")
    language = options.get("language", "en")
    return known_from(sibling, options.get("root"), encoding, limits, language)._replace(sibling=sibling)


def _read_widely(path: Path, taxonomy: Any, widen: bool, options: dict[str, Any], is_other: bool) -> Dataset:
    """Read a file under a taxonomy; if it has other labels and that is no error, under one made of its labels."""
    try:
        return read(path, taxonomy=taxonomy, **options)
    except MissingColumnError:
        if not (widen and is_other):
            raise
        guessed = {name: value for name, value in options.items() if name not in ("text", "labels", "id")}
        return _read_widely(path, taxonomy, widen, guessed, is_other=False)
    except UnknownLabelError:
        if not widen:
            raise
        return read(path, **options)


def _read_alike(files: Sequence[Path], data: Sequence[Dataset], options: dict[str, Any]) -> list[Dataset]:
    """Read files again whose labels were understood in different ways; the most documents say which is right."""
    largest = max(data, key=len)
    sep = largest.choices.get("separator")
    # No label has a line break, so that as a separator it keeps all labels whole.
    again = options | {"sep": "\n" if sep is None else sep}
    return [
        part if part.choices.get("separator") == sep else read(file, **again)
        for file, part in zip(files, data, strict=True)
    ]
