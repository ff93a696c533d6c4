"""The taxonomy in the folder of a data file: which one `read` finds, how it is read, and when it is written."""

import os
from collections.abc import Sequence
from pathlib import Path

from treelabel.core.atomic_output import remove_file
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import STANDARD, UndecodableError, suffixes
from treelabel.core.limits import Limits
from treelabel.data.io.sqlite import file_behind
from treelabel.data.taxonomy.taxonomy_files import (
    read_taxonomy,
    read_with_summary,
    writable_as_edges,
    write_taxonomy,
)
from treelabel.data.taxonomy.taxonomy_tables import TaxonomyOptions
from treelabel.hierarchy.hierarchy import Hierarchy

# Endings of a taxonomy in the folder of its data, in this order.
SIBLING_ENDINGS = (".tsv", ".json", ".csv", ".txt", ".xlsx")


def find_sibling_taxonomy(data_file: Path) -> Path | None:
    """Find the hierarchy of a data file: `<name>.taxonomy.tsv` or `taxonomy.tsv` (or SIBLING_ENDINGS) in its folder."""
    # A link to nowhere is found, too, for the reader to say so.
    return next(filter(os.path.lexists, _candidates(data_file)), None)


def _candidates(data_file: Path) -> list[Path]:
    """List the names under which the hierarchy of a data file is looked for; the first that exists is taken."""
    if data_file == STANDARD:
        return []
    data_file = file_behind(data_file)
    stems = (f"{_stem(data_file)}.taxonomy", "taxonomy")
    choices = (data_file.with_name(stem + ending) for stem in stems for ending in SIBLING_ENDINGS)
    return [choice for choice in choices if choice != data_file]


def _stem(file: Path) -> str:
    ending, compression = suffixes(file)
    name = file.name
    for _ in range((compression is not None) + (ending != "")):
        name = name.rpartition(".")[0]
    return name


def read_sibling_taxonomy(
    file: Path, root: str | None, encoding: str, limits: Limits, language: str = "en"
) -> tuple[Hierarchy, str]:
    """Read the taxonomy of data in some encoding: in UTF-8 if it is that, as treelabel writes it, else like the data.

    Returns the hierarchy and what was recognised, as `read_with_summary`.
    """
    try:
        return read_with_summary(file, TaxonomyOptions(root=root, language=language, limits=limits))
    except UndecodableError:
        if encoding == "utf-8":
            raise
        return read_with_summary(file, TaxonomyOptions(root=root, language=language, encoding=encoding, limits=limits))


def sibling_path(data_file: Path, hierarchy: Hierarchy) -> Path:
    """Return the file that holds the hierarchy of one data file: train.csv -> train.taxonomy.tsv."""
    file = file_behind(data_file)
    return file.with_name(f"{_stem(file)}.taxonomy{taxonomy_ending(hierarchy)}")


def taxonomy_ending(hierarchy: Hierarchy) -> str:
    """Return the ending of a file that holds a hierarchy: edges where they can, else JSON."""
    return ".tsv" if writable_as_edges(hierarchy) else ".json"


def require_no_other_taxonomy(file: Path, hierarchy: Hierarchy) -> None:
    """Refuse to write a data file next to a taxonomy with which the names in it would mean other labels."""
    sibling = find_sibling_taxonomy(file)
    if sibling is not None and not _holds(sibling, hierarchy):
        raise TreelabelError(
            f"{sibling} is there already and holds another hierarchy, with which the names in {file.name} would be "
            "read; choose another name, or write paths"
        )


def write_sibling_taxonomy(
    files: Sequence[Path], hierarchy: Hierarchy, name: Path, is_needed: bool = True, overwrite: bool = False
) -> Path | None:
    """Write the hierarchy of data files to their folder, unless what is there already makes `read` find it.

    A taxonomy that is there and says the same may say more, in further columns: it stays as it is.

    Parameters
    ----------
    files
        The data files.
    name
        The taxonomy to write, a name by which `read` finds it for every one of the files.
    is_needed
        Whether `read` needs it; if not, it is written only where the files would be read with another one.
    overwrite
        Whether to replace other hierarchies that the files would be read with; by default they are refused.

    Returns
    -------
    Path or None
        What was written, if anything.
    """
    must_write, others = False, list[Path]()
    for file in files:
        sibling, candidates = find_sibling_taxonomy(file), _candidates(file)
        if sibling is None or not _holds(sibling, hierarchy):
            must_write |= is_needed or sibling is not None
            # What `read` would find before this one, or in its place.
            existing = filter(os.path.lexists, candidates[: candidates.index(name) + 1])
            others += [each for each in existing if each not in others and not _holds(each, hierarchy)]
    if others and not overwrite:
        raise TreelabelError(
            f"{others[0]} is there already and holds another hierarchy, with which {files[0].name} would be read; "
            "choose another name, or replace it with --force"
        )
    if not must_write:
        return None
    for other in others:
        if other != name:
            remove_file(other)
    write_taxonomy(hierarchy, name)
    return name


def _holds(file: Path, hierarchy: Hierarchy) -> bool:
    """Return whether a file holds a hierarchy, and its identifiers if it has any; what cannot be read holds none."""
    try:
        stored = read_taxonomy(file)
        return stored == hierarchy and hierarchy.identifiers in (None, stored.identifiers)
    except TreelabelError:
        return False
