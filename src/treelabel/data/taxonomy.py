"""Taxonomy files: edges, children lists, tables, paths, nested JSON, SKOS; reading, writing, finding them."""

import csv
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np

from treelabel.core.errors import TreelabelError, located, quoted
from treelabel.core.inputs import STANDARD, existing_file, numbered_lines, open_input, suffixes, whole_lines
from treelabel.core.json_text import JsonLimitError, parse_json
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.outputs import open_output
from treelabel.data.names import unprintable
from treelabel.data.skos import read_skos
from treelabel.hierarchy import SEPARATOR, Hierarchy, hierarchy_from_json, hierarchy_to_json, split_path
from treelabel.hierarchy.build import ROOT_NAMES, Edges, edges_of_pairs, text_array

TaxonomyFormat = Literal["edges", "paths", "json", "skos"]
ENDINGS: dict[str, TaxonomyFormat] = {
    ".tsv": "edges",
    ".tab": "edges",
    ".taxonomy": "edges",
    ".csv": "edges",
    ".txt": "paths",
    ".json": "json",
    ".ttl": "skos",
    ".rdf": "skos",
    ".xml": "skos",
    ".nt": "skos",
    ".jsonld": "skos",
}
CHILD_COLUMNS = ("child", "label", "name", "id", "node", "code", "title")
ID_COLUMNS = ("id", "code", "node")


def read_taxonomy(
    path: str | Path,
    format: TaxonomyFormat | None = None,  # noqa: A002  what users call it
    root: str | None = None,
    tree: bool = False,
    sep: str = SEPARATOR,
    language: str = "en",
    encoding: str = "utf-8",
    limits: Limits = DEFAULT_LIMITS,
) -> Hierarchy:
    """Read a hierarchy from a file.

    - edges (.tsv, .csv, .taxonomy): a line is a parent and its child, or its children; a header that names a column
      `parent` is understood, whatever other columns there are.
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
    sep : str
        The separator of paths.
    language : str
        The language of preferred labels in SKOS.
    encoding : str
        As Python calls it.
    limits : Limits
        The resources that reading may take.

    Returns
    -------
    Hierarchy
    """
    file = existing_file(path)
    kind = format or ENDINGS.get(suffixes(file)[0])
    # Makers of hierarchies do not know the file of what they refuse.
    with located(file):
        if kind == "edges":
            return _read_edges(file, root, tree, encoding, limits)
        if kind == "paths":
            return _read_paths(file, sep, encoding, limits)
        if kind == "json":
            return _read_json(file, root, tree, encoding, limits)
        if kind == "skos":
            return read_skos(file, language, tree, limits)
    raise TreelabelError(f"{file}: cannot tell the taxonomy's format by its ending; known are {', '.join(ENDINGS)}")


def _read_edges(file: Path, root: str | None, tree: bool, encoding: str, limits: Limits) -> Hierarchy:
    lines = list(numbered_lines(file, encoding, limits))
    delimiter = _delimiter(file, lines[0][1]) if lines else "\t"
    rows = [(number, _cells(line, delimiter, file, number)) for number, line in lines]
    columns = _header_columns([row for _, row in rows])
    if columns is not None and columns.name is not None:
        return Hierarchy.from_coded(_edges_of_table(rows[1:], columns, file), root, tree)
    pairs: list[tuple[str, str]] = []
    at_line: list[int] = []
    for number, row in rows if columns is None else rows[1:]:
        for pair in _pairs_of(row, columns, file, number):
            pairs.append(pair)
            at_line.append(number)
    if not pairs:
        raise TreelabelError(f"{file}: no edges; expected lines with a parent and a child, separated by a tab")

    named = [pair for pair in pairs if pair[0]]
    # A table lists its top labels too, with nothing in the parent's column.
    at_line = [line for line, pair in zip(at_line, pairs, strict=True) if pair[0]]
    tops = [child for parent, child in pairs if not parent]
    return Hierarchy.from_coded(edges_of_pairs(named, tops, lambda edge: f"{file}:{at_line[edge]}"), root, tree)


def _delimiter(file: Path, first: str) -> str:
    if suffixes(file)[0] != ".csv" or "\t" in first:
        return "\t"
    return max((",", ";", "|"), key=first.count)


def _cells(line: str, delimiter: str, file: Path, number: int) -> list[str]:
    if delimiter == "\t":
        return [cell.strip() for cell in line.split("\t")]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True))]
    except csv.Error as error:
        raise TreelabelError(f"{file}:{number}: not valid CSV: {error}") from error


@dataclass(frozen=True)
class _Columns:
    """Columns of a table: the parent, the one that parents refer to, and the name if that is another."""

    parent: int
    child: int
    name: int | None


def _header_columns(rows: list[list[str]]) -> _Columns | None:
    """Find the columns of a table if the first line is a header.

    Where several could be the child's (id and name, say), it is the one whose values the parents are called by; if that
    is an id and there is a name beside it, labels are called by the name.
    """
    lower = [_column_kind(cell.lower()) for cell in (rows[0] if rows else [])]
    choices = [lower.index(name) for name in CHILD_COLUMNS if name in lower]
    if "parent" not in lower or not choices:
        return None
    above = lower.index("parent")
    parents = {row[above] for row in rows[1:] if len(row) > above}
    by_id = rows[0][above].lower().endswith("id")

    def fits(at: int) -> tuple[int, bool]:
        called = sum(len(row) > at and row[at] in parents for row in rows[1:])
        return called, by_id and lower[at] in ID_COLUMNS

    child = max(choices, key=fits)
    names = [lower.index(name) for name in ("name", "label", "title") if name in lower]
    return _Columns(above, child, next((at for at in names if at != child and lower[child] in ID_COLUMNS), None))


def _column_kind(name: str) -> str:
    if name in ("parent_id", "parent_name", "parentid"):
        return "parent"
    return "id" if name.endswith("_id") else name.removesuffix("_name")


def _edges_of_table(rows: list[tuple[int, list[str]]], columns: _Columns, file: Path) -> Edges:
    """Read a table whose rows have an id, a name and the parent's id; every parent must have a row of its own."""
    assert columns.name is not None
    code: dict[str, int] = {}
    names: list[str] = []
    for number, row in rows:
        if len(row) <= max(columns.parent, columns.child, columns.name):
            raise TreelabelError(f"{file}:{number}: {len(row)} fields, too few for the header's columns")
        if not row[columns.child] or not row[columns.name]:
            raise TreelabelError(f"{file}:{number}: empty name or id")
        _check_names([row[columns.name]], f"{file}:{number}")
        if code.setdefault(row[columns.child], len(names)) == len(names):
            names.append(row[columns.name])
    linked = [(number, row) for number, row in rows if row[columns.parent]]
    for number, row in linked:
        if row[columns.parent] not in code:
            raise TreelabelError(
                f"{file}:{number}: unknown parent: {quoted(row[columns.name])} has parent "
                f"{quoted(row[columns.parent])}, which has no row of its own"
            )
    parent = np.array([code[row[columns.parent]] for _, row in linked], np.int32)
    child = np.array([code[row[columns.child]] for _, row in linked], np.int32)
    return Edges(parent, child, text_array(names, "name"), lambda edge: f"{file}:{linked[edge][0]}")


def _pairs_of(row: list[str], columns: _Columns | None, file: Path, number: int) -> list[tuple[str, str]]:
    if columns is not None:
        if len(row) <= max(columns.parent, columns.child):
            raise TreelabelError(f"{file}:{number}: {len(row)} fields, too few for the header's columns")
        parent, children = row[columns.parent], [row[columns.child]]
    else:
        if len(row) < 2:
            raise TreelabelError(
                f"{file}:{number}: expected a parent and a child separated by a tab, found {quoted(row[0])}"
            )
        parent, children = row[0], [child for child in row[1:] if child] if len(row) > 2 else row[1:]
        if not parent:
            raise TreelabelError(f"{file}:{number}: empty name: the parent of {quoted(', '.join(children))} is missing")
    if not children or not all(children):
        raise TreelabelError(f"{file}:{number}: empty name: the child of {quoted(parent)} is missing")
    _check_names([parent, *children], f"{file}:{number}")
    return [(parent, child) for child in children]


def _check_names(names: Iterable[str], where: object) -> None:
    found = unprintable(names)
    if found is not None:
        raise TreelabelError(f"{where}: {found}")


def _read_paths(file: Path, sep: str, encoding: str, limits: Limits) -> Hierarchy:
    paths = []
    for number, line in numbered_lines(file, encoding, limits):
        if line.startswith("#"):
            continue
        path = split_path(line, sep)
        if not all(path):
            raise TreelabelError(f"{file}:{number}: empty name in the path {quoted(line)}")
        _check_names(path, f"{file}:{number}")
        paths.append(path)
    if not paths:
        raise TreelabelError(f"{file}: no paths; expected lines such as 'A{sep}B{sep}C'")
    return Hierarchy.from_paths(paths)


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
    _check_names(hierarchy.names, file)
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
        The ending tells the format: edges (.tsv, .taxonomy, .csv), paths (.txt), or treelabel's own JSON (.json).
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
    if ending not in writers:
        raise TreelabelError(f"{target}: cannot write a taxonomy with this ending; choose one of {', '.join(writers)}")
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
                f"paths cannot hold this hierarchy: in {quoted(line)} a name contains {SEPARATOR!r} or a "
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
    ending = ".tsv" if writable_as_edges(hierarchy) else ".json"
    return data_file.with_name(f"{_stem(data_file)}.taxonomy{ending}")


def taxonomy_beside(data_file: Path) -> Path | None:
    """Find the hierarchy of a data file: `<name>.taxonomy.tsv` or `taxonomy.tsv` (or .json) in its folder."""
    if data_file == STANDARD:
        return None
    stems = (f"{_stem(data_file)}.taxonomy", "taxonomy")
    choices = (data_file.with_name(stem + ending) for stem in stems for ending in (".tsv", ".json", ".csv", ".txt"))
    # A link to nowhere is found, too, for the reader to say so.
    return next((choice for choice in choices if os.path.lexists(choice) and choice != data_file), None)


def _stem(file: Path) -> str:
    ending, compression = suffixes(file)
    name = file.name
    for _ in range((compression is not None) + (ending != "")):
        name = name.rpartition(".")[0]
    return name
