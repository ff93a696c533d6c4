"""Hierarchies in tables: lines of text with a tab, a comma or the like between cells, or the rows of a sheet."""

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import numbered_lines, suffixes
from treelabel.core.limits import Limits
from treelabel.data.io.sheets import open_sheet
from treelabel.data.names import unprintable
from treelabel.data.taxonomy_columns import (
    ParentColumns,
    PathColumns,
    Row,
    VocabularyColumn,
    parent_columns,
    path_columns,
    vocabulary_column,
)
from treelabel.hierarchy import Hierarchy, split_path
from treelabel.hierarchy.build import Edges, edges_of_pairs, text_array

# What tables with ids write in place of the parent of a label at the top.
NO_PARENT = {"0", "-1", "null", "none", "nan", "n/a", "na", "-", "\\n"}


def read_table(
    file: Path,
    root: str | None,
    tree: bool,
    sep: str | None,
    language: str,
    encoding: str,
    limits: Limits,
    sheet: str | None,
) -> tuple[Hierarchy, str]:
    """Read a table of edges, of paths or of levels, or a vocabulary of Annif; say for people which it is.

    Parameters
    ----------
    file
        The table.
    root, tree, sep, language, encoding, limits, sheet
        As for `read_taxonomy`.

    Returns
    -------
    (Hierarchy, str)
    """
    rows = _rows(file, encoding, limits, sheet)
    cells = [row for _, row in rows]
    vocabulary = vocabulary_column(cells, language)
    if vocabulary is not None:
        return _flat(rows[vocabulary.first :], vocabulary, file), vocabulary.told(cells[0])
    columns = parent_columns(cells)
    if columns is not None:
        told = columns.told(cells[0])
        if columns.name is not None:
            return Hierarchy.from_coded(_edges_of_table(rows[1:], columns, file), root, tree), told
        return _hierarchy_of_edges(rows[1:], columns, file, root, tree), told
    paths = path_columns(cells, sep)
    if paths is not None:
        return Hierarchy.from_paths(_paths_of(rows[paths.first :], paths, file)), paths.told(cells[0])
    if suffixes(file)[0] == ".xlsx":
        rows = [(number, [cell for at, cell in enumerate(row) if any(row[at:])]) for number, row in rows]
    return _hierarchy_of_edges(rows, None, file, root, tree), "a parent and its children on each line"


def _flat(rows: list[Row], vocabulary: VocabularyColumn, file: Path) -> Hierarchy:
    """Read a vocabulary without broader terms: its labels are one level."""
    at_line: dict[str, int] = {}
    for number, row in rows:
        name = row[vocabulary.label] if len(row) > vocabulary.label else ""
        if not name:
            raise TreelabelError(f"{file}:{number}: {quote(row[vocabulary.uri])} has no label")
        if at_line.setdefault(name, number) != number:
            raise TreelabelError(
                f"{file}:{number}: the label {quote(name)} stands on line {at_line[name]} with another URI; give one "
                "of the two another name"
            )
    check_names(at_line, file)
    return Hierarchy.flat(at_line)


def _rows(file: Path, encoding: str, limits: Limits, sheet: str | None) -> list[Row]:
    if suffixes(file)[0] == ".xlsx":
        with open_sheet(file, sheet, limits) as opened:
            rows = [(number, [cell.strip() for cell in cells]) for number, cells in opened.rows]
        opened.warn()
        return _without_title(_trimmed(rows))
    lines = list(numbered_lines(file, encoding, limits))
    delimiter = _delimiter(file, lines[0][1]) if lines else "\t"
    return [(number, _cells(line, delimiter, file, number)) for number, line in lines]


def _trimmed(rows: list[Row]) -> list[Row]:
    """Bring the rows of a sheet to the same length, without the columns that are empty throughout."""
    width = max((len(row) for _, row in rows), default=0)
    full = [(number, row + [""] * (width - len(row))) for number, row in rows]
    used = [at for at in range(width) if any(row[at] for _, row in full)]
    return [(number, [row[at] for at in used]) for number, row in full]


def _without_title(rows: list[Row]) -> list[Row]:
    """Leave out rows with a single cell above a header that names columns of a hierarchy."""
    for at, (_, row) in enumerate(rows[:20]):
        if sum(map(bool, row)) > 1:
            below = [cells for _, cells in rows[at:]]
            found = path_columns(below)
            is_header = parent_columns(below) is not None or (found is not None and found.first > 0)
            return rows[at:] if is_header else rows
    return rows


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


def check_names(names: Iterable[str], where: object) -> None:
    """Refuse names with characters that no name in a file may have.

    Parameters
    ----------
    names
        The names.
    where
        Where they stand, for the message.
    """
    found = unprintable(names)
    if found is not None:
        raise TreelabelError(f"{where}: {found}")


def _edges_of_table(rows: list[Row], columns: ParentColumns, file: Path) -> Edges:
    """Read a table whose rows have an id, a name and the parent's id; every parent must have a row of its own."""
    assert columns.name is not None
    code: dict[str, int] = {}
    names: list[str] = []
    for number, row in rows:
        if len(row) <= max(columns.parent, columns.child, columns.name):
            raise TreelabelError(f"{file}:{number}: {len(row)} fields, too few for the header's columns")
        if not row[columns.child] or not row[columns.name]:
            raise TreelabelError(f"{file}:{number}: empty name or id")
        check_names([row[columns.name]], f"{file}:{number}")
        if code.setdefault(row[columns.child], len(names)) == len(names):
            names.append(row[columns.name])
    linked = []
    for number, row in rows:
        above = _known_parent(row[columns.parent], code)
        if above is None:
            raise TreelabelError(
                f"{file}:{number}: unknown parent: {quote(row[columns.name])} has parent "
                f"{quote(row[columns.parent])}, which has no row of its own"
            )
        if above:
            linked.append((number, code[above], code[row[columns.child]]))
    parent = np.array([above for _, above, _ in linked], np.int32)
    child = np.array([below for _, _, below in linked], np.int32)
    return Edges(parent, child, text_array(names, "name"), lambda edge: f"{file}:{linked[edge][0]}")


def _known_parent(parent: str, code: dict[str, int]) -> str | None:
    """Return the id of a parent, empty for none; None if there is no such id.

    A column of whole numbers that has gaps is often saved with a point: 7.0 is the id 7.
    """
    if not parent or parent in code:
        return parent
    if parent.endswith(".0") and parent[:-2] in code:
        return parent[:-2]
    return "" if parent.lower().removesuffix(".0") in NO_PARENT else None


def _hierarchy_of_edges(
    rows: list[Row], columns: ParentColumns | None, file: Path, root: str | None, tree: bool
) -> Hierarchy:
    pairs: list[tuple[str, str]] = []
    at_line: list[int] = []
    # A file of names alone is more likely of another format than a list of top labels.
    is_list = columns is None and any(len(row) > 1 for _, row in rows)
    for number, row in rows:
        for pair in _pairs_of(row, columns, file, number, is_list):
            pairs.append(pair)
            at_line.append(number)
    if not pairs:
        raise TreelabelError(f"{file}: no edges; expected lines with a parent and a child, separated by a tab")

    named = [pair for pair in pairs if pair[0]]
    # A table lists its top labels too, with nothing in the parent's column.
    at_line = [line for line, pair in zip(at_line, pairs, strict=True) if pair[0]]
    tops = [child for parent, child in pairs if not parent]
    return Hierarchy.from_coded(edges_of_pairs(named, tops, lambda edge: f"{file}:{at_line[edge]}"), root, tree)


def _pairs_of(
    row: list[str], columns: ParentColumns | None, file: Path, number: int, is_list: bool
) -> list[tuple[str, str]]:
    if columns is not None:
        if len(row) <= max(columns.parent, columns.child):
            raise TreelabelError(f"{file}:{number}: {len(row)} fields, too few for the header's columns")
        parent, children = row[columns.parent], [row[columns.child]]
    elif len(row) == 1 and is_list:
        parent, children = "", row
    else:
        if len(row) < 2:
            raise TreelabelError(
                f"{file}:{number}: expected a parent and a child separated by a tab, found {quote(row[0])}; a list of "
                "labels or of paths begins with a line that says so (label, path), or is a .txt file"
            )
        parent, children = row[0], [child for child in row[1:] if child] if len(row) > 2 else row[1:]
        if not parent:
            raise TreelabelError(f"{file}:{number}: empty name: the parent of {quote(', '.join(children))} is missing")
    if not children or not all(children):
        raise TreelabelError(f"{file}:{number}: empty name: the child of {quote(parent)} is missing")
    check_names([parent, *children], f"{file}:{number}")
    return [(parent, child) for child in children]


def _paths_of(rows: list[Row], columns: PathColumns, file: Path) -> list[list[str]]:
    """Read a path from each row: out of one cell, or out of several cells, each of a level.

    Names that are left out at the beginning are those of the row above, as people write an outline.
    """
    paths: list[list[str]] = []
    for number, row in rows:
        cells = [row[at] if at < len(row) else "" for at in columns.columns]
        path = split_path(cells[0], columns.separator) if columns.separator is not None and cells[0] else cells
        while path and not path[-1]:
            path.pop()
        given = next((at for at, name in enumerate(path) if name), 0)
        if paths and columns.separator is None and given <= len(paths[-1]):
            path[:given] = paths[-1][:given]
        if not all(path):
            raise TreelabelError(f"{file}:{number}: empty name in the path {quote(' > '.join(path))}")
        check_names(path, f"{file}:{number}")
        if path:
            paths.append(path)
    if not paths:
        raise TreelabelError(f"{file}: no labels below the header; expected a path in each line")
    return paths
