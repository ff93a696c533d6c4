"""Taxonomy files: edges, children lists, tables, paths, nested JSON, SKOS; reading, writing, finding them."""

import csv
import json
import os
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Literal

from treelabel.core.atomic_output import open_output, remove_file
from treelabel.core.errors import TreelabelError, locate_errors, quote
from treelabel.core.inputs import (
    STANDARD,
    UndecodableError,
    existing_file,
    numbered_lines,
    open_input,
    suffixes,
    whole_lines,
)
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.data.io.sheets import write_sheet
from treelabel.data.names import unprintable
from treelabel.data.skos import read_skos
from treelabel.data.taxonomy_tables import check_names, read_table
from treelabel.hierarchy import SEPARATOR, Hierarchy, hierarchy_from_json, hierarchy_to_json, split_path
from treelabel.hierarchy.build import ROOT_NAMES
from treelabel.hierarchy.separators import guess_separator

TaxonomyFormat = Literal["edges", "paths", "json", "skos"]
ENDINGS: dict[str, TaxonomyFormat] = {
    ".tsv": "edges",
    ".tab": "edges",
    ".taxonomy": "edges",
    ".csv": "edges",
    ".xlsx": "edges",
    ".txt": "paths",
    ".json": "json",
    ".ttl": "skos",
    ".rdf": "skos",
    ".xml": "skos",
    ".nt": "skos",
    ".jsonld": "skos",
}
# Endings of a taxonomy beside its data, in this order.
BESIDE = (".tsv", ".json", ".csv", ".txt", ".xlsx")


def read_taxonomy(
    path: str | Path,
    format: TaxonomyFormat | None = None,  # noqa: A002  what users call it
    root: str | None = None,
    tree: bool = False,
    sep: str | None = None,
    language: str = "en",
    encoding: str = "utf-8",
    limits: Limits = DEFAULT_LIMITS,
    sheet: str | None = None,
) -> Hierarchy:
    """Read a hierarchy from a file.

    - edges (.tsv, .csv, .taxonomy, .xlsx): a line is a parent and its child, or its children; a name alone is a label
      at the top. With a header, columns are recognised by their names in any order and case, whatever others there
      are: parent and child, id, parent_id and name, a full path, or one column a level (level1, level2, ...). A
      vocabulary of Annif (a URI and its label on each line, or columns uri and label_en) is one level of labels.
    - paths (.txt): a line is a full path, parts separated by `sep`; lines with # are comments.
    - json: nested dicts or lists, {"name", "children"} objects, or treelabel's own form.
    - skos (.ttl, .rdf): broader and narrower between concepts, named by their preferred label in `language`.

    Lines may end as on any system. Names with control characters are refused (see `treelabel.data.names`), except in
    treelabel's own JSON, which holds any hierarchy.

    Parameters
    ----------
    path : str or Path
        The file, which may be compressed.
    format : "edges", "paths", "json" or "skos", optional
        By default by the ending of the file.
    root : str, optional
        The node that stands for the root: see `Hierarchy.from_edges`.
    tree : bool
        Whether to refuse labels with several parents.
    sep : str, optional
        The separator of paths; by default " > " if it occurs, else guessed (see `guess_separator`).
    language : str
        The language of preferred labels in SKOS, and of labels in a vocabulary of Annif.
    encoding : str
        As Python calls it; a byte order mark goes first.
    limits : Limits
        The resources that reading may take.
    sheet : str, optional
        The sheet of an .xlsx file, by name or number; by default the first.

    Returns
    -------
    Hierarchy
    """
    return recognised_taxonomy(path, format, root, tree, sep, language, encoding, limits, sheet)[0]


def recognised_taxonomy(
    path: str | Path,
    format: TaxonomyFormat | None = None,  # noqa: A002  what users call it
    root: str | None = None,
    tree: bool = False,
    sep: str | None = None,
    language: str = "en",
    encoding: str = "utf-8",
    limits: Limits = DEFAULT_LIMITS,
    sheet: str | None = None,
) -> tuple[Hierarchy, str]:
    """Read a hierarchy, and say for people what was recognised in the file.

    Parameters
    ----------
    path, format, root, tree, sep, language, encoding, limits, sheet
        As for `read_taxonomy`.

    Returns
    -------
    (Hierarchy, str)
    """
    file = existing_file(path)
    kind = format or ENDINGS.get(suffixes(file)[0])
    # Makers of hierarchies do not know the file of what they refuse.
    with locate_errors(file):
        if kind == "edges":
            return read_table(file, root, tree, sep, language, encoding, limits, sheet)
        if kind == "paths":
            return _read_paths(file, sep, encoding, limits)
        if kind == "json":
            return _read_json(file, root, tree, encoding, limits), "nested JSON"
        if kind == "skos":
            return read_skos(file, language, tree, limits), "SKOS"
    raise TreelabelError(f"{file}: cannot tell the taxonomy's format by its ending; known are {', '.join(ENDINGS)}")


def taxonomy_of_data(file: Path, root: str | None, encoding: str, limits: Limits) -> tuple[Hierarchy, str]:
    """Read the taxonomy of data in some encoding: in UTF-8 if it is that, as treelabel writes it, else like the data.

    Parameters
    ----------
    file
        The taxonomy.
    root
        As for `read_taxonomy`.
    encoding
        That of the data.
    limits
        The resources that reading may take.

    Returns
    -------
    (Hierarchy, str)
        As from `recognised_taxonomy`.
    """
    try:
        return recognised_taxonomy(file, root=root, limits=limits)
    except UndecodableError:
        if encoding == "utf-8":
            raise
        return recognised_taxonomy(file, root=root, encoding=encoding, limits=limits)


def _read_paths(file: Path, sep: str | None, encoding: str, limits: Limits) -> tuple[Hierarchy, str]:
    lines = [pair for pair in numbered_lines(file, encoding, limits) if not pair[1].startswith("#")]
    if sep is None:
        has_usual = any(SEPARATOR in line for _, line in lines)
        sep = SEPARATOR if has_usual else guess_separator(line for _, line in lines) or SEPARATOR
    paths = []
    for number, line in lines:
        path = split_path(line, sep)
        if not all(path):
            raise TreelabelError(f"{file}:{number}: empty name in the path {quote(line)}")
        check_names(path, f"{file}:{number}")
        paths.append(path)
    if not paths:
        raise TreelabelError(f"{file}: no paths; expected lines such as 'A{sep}B{sep}C'")
    return Hierarchy.from_paths(paths), f"a path on each line, separated by {sep!r}"


def _read_json(file: Path, root: str | None, tree: bool, encoding: str, limits: Limits) -> Hierarchy:
    with open_input(file, limits=limits) as stream:
        text = "".join(whole_lines(stream, file, encoding, limits))
    try:
        nested: Any = parse_json(text, limits)
    except json.JSONDecodeError as error:
        raise TreelabelError(f"{file}:{error.lineno}: not valid JSON: {error.msg}") from error
    except JsonLimitError as error:
        raise TreelabelError(f"{file}: {error}; store the taxonomy as edges (.tsv)") from None
    if isinstance(nested, dict) and "treelabel_hierarchy" in nested:
        hierarchy = hierarchy_from_json(text, str(file))
        # Asking for the parents refuses a DAG.
        _ = hierarchy.parent if tree else None
        return hierarchy
    hierarchy = Hierarchy.from_nested(nested, root)
    check_names(hierarchy.names, file)
    if len(hierarchy) == 0:
        raise TreelabelError(f"{file}: no labels in the JSON")
    return hierarchy


def write_taxonomy(hierarchy: Hierarchy, path: str | Path) -> None:
    """Write a hierarchy to a file.

    Parameters
    ----------
    hierarchy : Hierarchy
        What to write.
    path : str or Path
        The ending tells the format: edges (.tsv, .taxonomy, .csv, .xlsx), paths (.txt), or treelabel's own JSON
        (.json).
    """
    target = Path(path)
    writers: dict[str, Callable[[Hierarchy], list[str]]] = {
        ".tsv": _edge_lines,
        ".taxonomy": _edge_lines,
        ".csv": _csv_lines,
        ".txt": _path_lines,
        ".json": lambda h: [hierarchy_to_json(h)],
    }
    ending = suffixes(target)[0]
    if ending == ".xlsx":
        _edge_lines(hierarchy)
        write_sheet(target, map(list, [("parent", "child"), *hierarchy.edges(_root_name(hierarchy))]), "taxonomy")
        return
    if ending not in writers:
        known = ", ".join([*writers, ".xlsx"])
        raise TreelabelError(f"{target}: cannot write a taxonomy with this ending; choose one of {known}")
    lines = writers[ending](hierarchy)
    with open_output(target) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())


def _edge_lines(hierarchy: Hierarchy) -> list[str]:
    if not writable_as_edges(hierarchy):
        raise TreelabelError(
            "edges cannot hold this hierarchy: two labels share a name, or a name has a tab; use .json"
        )
    return [f"{parent}\t{child}" for parent, child in hierarchy.edges(_root_name(hierarchy))]


def _csv_lines(hierarchy: Hierarchy) -> list[str]:
    _edge_lines(hierarchy)
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([("parent", "child"), *hierarchy.edges(_root_name(hierarchy))])
    # Not splitlines(), which also splits at line separators that may stand in a name.
    return buffer.getvalue().split("\n")[:-1]


def _path_lines(hierarchy: Hierarchy) -> list[str]:
    _ = hierarchy.parent
    lines = hierarchy.paths()
    for node, line in enumerate(lines):
        if split_path(line, SEPARATOR) != hierarchy.path_names(node) or unprintable([line]) or line.startswith("#"):
            raise TreelabelError(
                f"paths cannot hold this hierarchy: in {quote(line)} a name contains {SEPARATOR!r} or a "
                "control character, or begins with # or a space; use .json"
            )
    return lines


def writable_as_edges(hierarchy: Hierarchy) -> bool:
    """Return whether every name stands for one node and fits on a line between tabs, as `read_taxonomy` takes it."""
    fits = all(name == name.strip() for name in hierarchy.names) and unprintable(hierarchy.names) is None
    return fits and hierarchy.has_unique_names


def _root_name(hierarchy: Hierarchy) -> str:
    names = {name.lower() for name in hierarchy.names}
    return next(name for name in ("Root", *ROOT_NAMES) if name.lower() not in names)


def taxonomy_name(data_file: Path, hierarchy: Hierarchy) -> Path:
    """Return the file beside a data file that holds its hierarchy: train.csv -> train.taxonomy.tsv.

    Parameters
    ----------
    data_file
        The data file.
    hierarchy
        Its hierarchy, which decides the format.

    Returns
    -------
    Path
    """
    return data_file.with_name(f"{_stem(data_file)}.taxonomy{taxonomy_ending(hierarchy)}")


def taxonomy_ending(hierarchy: Hierarchy) -> str:
    """Return the ending of a file that holds a hierarchy: edges where they can, else JSON."""
    return ".tsv" if writable_as_edges(hierarchy) else ".json"


def taxonomy_beside(data_file: Path) -> Path | None:
    """Find the hierarchy of a data file: `<name>.taxonomy.tsv` or `taxonomy.tsv` (or one of BESIDE) in its folder."""
    # A link to nowhere is found, too, for the reader to say so.
    return next(filter(os.path.lexists, _names_beside(data_file)), None)


def _names_beside(data_file: Path) -> list[Path]:
    """List the names under which the hierarchy of a data file is looked for, the first that is there being taken."""
    if data_file == STANDARD:
        return []
    stems = (f"{_stem(data_file)}.taxonomy", "taxonomy")
    choices = (data_file.with_name(stem + ending) for stem in stems for ending in BESIDE)
    return [choice for choice in choices if choice != data_file]


def require_no_other_taxonomy(file: Path, hierarchy: Hierarchy) -> None:
    """Refuse a taxonomy beside a data file with which the names in it would mean other labels.

    Parameters
    ----------
    file
        The data file to write.
    hierarchy
        The hierarchy of its labels.
    """
    found = taxonomy_beside(file)
    if found is not None and not _holds(found, hierarchy):
        raise TreelabelError(
            f"{found} is there already and holds another hierarchy, with which the names in {file.name} would be read; "
            "choose another name, or write paths"
        )


def write_taxonomy_of(
    files: Sequence[Path], hierarchy: Hierarchy, name: Path, is_needed: bool = True, overwrite: bool = False
) -> Path | None:
    """Write the hierarchy of data files beside them, unless what is there already makes `read` find it.

    A taxonomy that is there and says the same may say more, in further columns: it stays as it is.

    Parameters
    ----------
    files
        The data files.
    hierarchy
        Their hierarchy.
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
    is_written, others = False, list[Path]()
    for file in files:
        found, names = taxonomy_beside(file), _names_beside(file)
        if found is None or not _holds(found, hierarchy):
            is_written |= is_needed or found is not None
            # What `read` would find before this one, or in its place.
            there = filter(os.path.lexists, names[: names.index(name) + 1])
            others += [each for each in there if each not in others and not _holds(each, hierarchy)]
    if others and not overwrite:
        raise TreelabelError(
            f"{others[0]} is there already and holds another hierarchy, with which {files[0].name} would be read; "
            "choose another name, or replace it with --force"
        )
    if not is_written:
        return None
    for other in others:
        if other != name:
            remove_file(other)
    write_taxonomy(hierarchy, name)
    return name


def _holds(file: Path, hierarchy: Hierarchy) -> bool:
    """Return whether a taxonomy that is there is a hierarchy; what cannot be read is none."""
    try:
        return read_taxonomy(file) == hierarchy
    except TreelabelError:
        return False


def _stem(file: Path) -> str:
    ending, compression = suffixes(file)
    name = file.name
    for _ in range((compression is not None) + (ending != "")):
        name = name.rpartition(".")[0]
    return name
