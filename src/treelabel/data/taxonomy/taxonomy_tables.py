"""Hierarchies in tables: lines of text with a tab, a comma or the like between cells, or the rows of a sheet.

Tables of moves, which say what became of the labels of a taxonomy, are read in the same way.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import existing_file, numbered_lines, suffixes
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.data.columns import require_printable
from treelabel.data.io.sheets import open_sheet
from treelabel.data.taxonomy.taxonomy_columns import (
    ParentColumns,
    PathColumns,
    VocabularyColumn,
    parent_columns,
    path_columns,
    vocabulary_column,
)
from treelabel.hierarchy.edges import Edges, edges_of_pairs, text_array
from treelabel.hierarchy.hierarchy import Hierarchy, split_path
from treelabel.hierarchy.identifiers import Identifiers, distinct_names, plain_uri, uri_end
from treelabel.hierarchy.moves import Move

TaxonomyFormat = Literal["edges", "paths", "json", "skos", "vocabulary"]
# What tables with ids write in place of the parent of a label at the top.
NO_PARENT = {"0", "-1", "null", "none", "nan", "n/a", "na", "-", "\\n"}
OLD_COLUMNS = ("old", "from", "before", "old label", "old_label", "old path", "old_path")
NEW_COLUMNS = ("new", "to", "after", "new label", "new_label", "new path", "new_path")
# A line number and its cells, stripped.
NumberedRow = tuple[int, list[str]]


@dataclass(frozen=True)
class TaxonomyOptions:
    """How a taxonomy is read; `read_taxonomy` says what each option means."""

    format: TaxonomyFormat | None = None
    root: str | None = None
    tree: bool = False
    sep: str | None = None
    language: str = "en"
    encoding: str = "utf-8"
    limits: Limits = DEFAULT_LIMITS
    sheet: str | None = None


def read_table(file: Path, options: TaxonomyOptions) -> tuple[Hierarchy, str]:
    """Read a table of edges, of paths or of levels, or a vocabulary of Annif; say in words which it is."""
    is_sheet = suffixes(file)[0] == ".xlsx"
    lines = () if is_sheet else numbered_lines(file, options.encoding, options.limits)
    rows = _sheet_rows(file, options) if is_sheet else split_lines(file, list(lines))
    cells = [row for _, row in rows]
    vocabulary = vocabulary_column(cells, options.language)
    if vocabulary is not None:
        return _read_vocabulary(rows[vocabulary.first :], vocabulary, file), vocabulary.summary(cells[0])
    columns = parent_columns(cells)
    if columns is not None:
        edges = (_edges_by_name if columns.name is None else _edges_by_id)(rows[1:], columns, file)
        coded = replace(edges, identifiers=_identifiers(rows[1:], columns, edges, file))
        return Hierarchy.from_coded(coded, options.root, options.tree), columns.summary(cells[0])
    paths = path_columns(cells, options.sep)
    if paths is not None:
        return Hierarchy.from_paths(_paths_of(rows[paths.first :], paths, file)), paths.summary(cells[0])
    if is_sheet:
        rows = [(number, _without_empty_end(row)) for number, row in rows]
    edges = _edges_by_name(rows, None, file)
    return Hierarchy.from_coded(edges, options.root, options.tree), "a parent and its children on each line"


def split_lines(file: Path, lines: Sequence[tuple[int, str]]) -> list[NumberedRow]:
    """Split lines into cells: at tabs, or in a .csv file without any in its first line, at what that line has most of.

    Rows may differ in length, as those of a parent with its children do, and keep the number of their line.
    """
    delimiter = "\t"
    if lines and suffixes(file)[0] == ".csv" and "\t" not in lines[0][1]:
        delimiter = max((",", ";", "|"), key=lines[0][1].count)
    return [(number, _cells(line, delimiter, f"{file}:{number}")) for number, line in lines]


def _cells(line: str, delimiter: str, where: str) -> list[str]:
    if delimiter == "\t":
        return [cell.strip() for cell in line.split("\t")]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True))]
    except csv.Error as error:
        raise TreelabelError(f"{where}: not valid CSV: {error}") from error


def _sheet_rows(file: Path, options: TaxonomyOptions) -> list[NumberedRow]:
    """Read the rows of a sheet, all of one length, without empty columns and without a title above the header."""
    with open_sheet(file, options.sheet, options.limits) as opened:
        rows = [(number, [cell.strip() for cell in cells]) for number, cells in opened.rows]
    opened.warn()
    width = max((len(row) for _, row in rows), default=0)
    full = [(number, row + [""] * (width - len(row))) for number, row in rows]
    used = [column for column in range(width) if any(row[column] for _, row in full)]
    return _without_title([(number, [row[column] for column in used]) for number, row in full])


def _without_title(rows: list[NumberedRow]) -> list[NumberedRow]:
    """Leave out rows with a single cell above a header that names columns of a hierarchy."""
    for index, (_, row) in enumerate(rows[:20]):
        if sum(map(bool, row)) > 1:
            below = [cells for _, cells in rows[index:]]
            paths = path_columns(below)
            is_header = parent_columns(below) is not None or (paths is not None and paths.first > 0)
            return rows[index:] if is_header else rows
    return rows


def _without_empty_end(row: list[str]) -> list[str]:
    return row[: max((column + 1 for column, cell in enumerate(row) if cell), default=0)]


def _read_vocabulary(rows: list[NumberedRow], vocabulary: VocabularyColumn, file: Path) -> Hierarchy:
    """Read a vocabulary without broader terms: its labels are one level, with their URIs and notations.

    Labels with the same name are told apart as those of SKOS are.
    """
    for number, row in rows:
        if not vocabulary.name_of(row):
            raise TreelabelError(f"{file}:{number}: {quote(row[vocabulary.uri])} has no label")
    uris = [plain_uri(row[vocabulary.uri]) for _, row in rows]
    notations = [vocabulary.notation_of(row) for _, row in rows]
    codes = [notation or uri_end(uri) for notation, uri in zip(notations, uris, strict=True)]
    names = distinct_names([vocabulary.name_of(row) for _, row in rows], codes, uris)
    line_of = {name: number for name, (number, _) in zip(names, rows, strict=True)}
    if len(line_of) < len(rows):
        number, name = next((n, name) for name, (n, _) in zip(names, rows, strict=True) if line_of[name] != n)
        raise TreelabelError(
            f"{file}:{number}: {quote(name)} stands on line {line_of[name]}, too; leave out one of them"
        )
    require_printable(names, file)
    return Hierarchy.flat(names).with_identifiers(uris, notations)


def _identifiers(rows: list[NumberedRow], columns: ParentColumns, edges: Edges, file: Path) -> Identifiers | None:
    """Read the URIs and notations of the labels of edges, which must be the same wherever a label stands."""
    if columns.uri is None and columns.notation is None:
        return None
    # Codes are numbered as their rows come where parents are called by ids, and stand for names where not.
    code = {name: number for number, name in enumerate(edges.names.to_pylist())}
    by_id: dict[str, int] = {}
    lists: list[list[str | None]] = [[None] * len(edges.names) for _ in range(2)]
    owner: dict[str, int] = {}
    for number, row in rows:
        label = row[columns.child]
        node = code[label] if columns.name is None else by_id.setdefault(label, len(by_id))
        for values, column in zip(lists, (columns.uri, columns.notation), strict=True):
            cell = plain_uri(row[column]) if column is not None and column < len(row) else ""
            if cell and values[node] not in (None, cell):
                raise TreelabelError(f"{file}:{number}: {quote(label)} has {quote(cell)} here, {values[node]} above")
            values[node] = cell or values[node]
        uri = lists[0][node]
        if uri is not None and owner.setdefault(uri, node) != node:
            raise TreelabelError(f"{file}:{number}: {quote(label)} has the URI of another label, {quote(uri)}")
    return Identifiers.of(*lists)


def _edges_by_id(rows: list[NumberedRow], columns: ParentColumns, file: Path) -> Edges:
    """Read a table whose rows have an id, a name and the parent's id; every parent must have a row of its own."""
    assert columns.name is not None
    code: dict[str, int] = {}
    names: list[str] = []
    for number, row in rows:
        _require_fields(row, max(columns.parent, columns.child, columns.name), f"{file}:{number}")
        if not row[columns.child] or not row[columns.name]:
            raise TreelabelError(f"{file}:{number}: empty name or id")
        require_printable([row[columns.name]], f"{file}:{number}")
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


def _require_fields(row: list[str], last: int, where: str) -> None:
    if len(row) <= last:
        raise TreelabelError(f"{where}: {len(row)} fields, too few for the header's columns")


def _known_parent(parent: str, code: dict[str, int]) -> str | None:
    """Return the id of a parent, empty for none; None if there is no such id.

    A column of whole numbers that has gaps is often saved with a point: 7.0 is the id 7.
    """
    if not parent or parent in code:
        return parent
    if parent.endswith(".0") and parent[:-2] in code:
        return parent[:-2]
    return "" if parent.lower().removesuffix(".0") in NO_PARENT else None


def _edges_by_name(rows: list[NumberedRow], columns: ParentColumns | None, file: Path) -> Edges:
    """Read a parent and its child, or its children, from each row; without columns the parent comes first."""
    # A file of names alone is more likely of another format than a list of top labels.
    allow_tops = columns is None and any(len(row) > 1 for _, row in rows)
    pairs = [(number, pair) for number, row in rows for pair in _pairs(row, columns, f"{file}:{number}", allow_tops)]
    if not pairs:
        raise TreelabelError(f"{file}: no edges; expected lines with a parent and a child, separated by a tab")
    edges = [(number, pair) for number, pair in pairs if pair[0]]
    # A table lists its top labels too, with nothing in the parent's column.
    tops = [child for _, (parent, child) in pairs if not parent]
    return edges_of_pairs([pair for _, pair in edges], tops, lambda edge: f"{file}:{edges[edge][0]}")


def _pairs(row: list[str], columns: ParentColumns | None, where: str, allow_tops: bool) -> list[tuple[str, str]]:
    if columns is not None:
        _require_fields(row, max(columns.parent, columns.child), where)
        parent, children = row[columns.parent], [row[columns.child]]
    elif len(row) == 1 and allow_tops:
        parent, children = "", row
    else:
        if len(row) < 2:
            raise TreelabelError(
                f"{where}: expected a parent and a child separated by a tab, found {quote(row[0])}; a list of labels "
                "or of paths begins with a line that says so (label, path), or is a .txt file"
            )
        parent, children = row[0], [child for child in row[1:] if child] if len(row) > 2 else row[1:]
        if not parent:
            raise TreelabelError(f"{where}: empty name: the parent of {quote(', '.join(children))} is missing")
    if not children or not all(children):
        raise TreelabelError(f"{where}: empty name: the child of {quote(parent)} is missing")
    require_printable([parent, *children], where)
    return [(parent, child) for child in children]


def _paths_of(rows: list[NumberedRow], columns: PathColumns, file: Path) -> list[list[str]]:
    """Read a path from each row: out of one cell, or out of several cells, each of a level.

    Names that are left out at the beginning are those of the row above, as people write an outline.
    """
    paths: list[list[str]] = []
    for number, row in rows:
        cells = [row[column] if column < len(row) else "" for column in columns.columns]
        path = split_path(cells[0], columns.separator) if columns.separator is not None and cells[0] else cells
        while path and not path[-1]:
            path.pop()
        first = next((level for level, name in enumerate(path) if name), 0)
        if paths and columns.separator is None and first <= len(paths[-1]):
            path[:first] = paths[-1][:first]
        if not all(path):
            raise TreelabelError(f"{file}:{number}: empty name in the path {quote(' > '.join(path))}")
        require_printable(path, f"{file}:{number}")
        if path:
            paths.append(path)
    if not paths:
        raise TreelabelError(f"{file}: no labels below the header; expected a path in each line")
    return paths


# Moves


def read_moves(path: str | Path, encoding: str = "utf-8", limits: Limits = DEFAULT_LIMITS) -> list[Move]:
    """Read a table of moves: a line is an old label and what became of it, names or full paths.

    A name may be given where it is unique in its taxonomy. Two lines with one old label split it, two with one new
    label merge, and a line with nothing behind the old label deletes it. Labels that stay need no line, nor do those
    below a label that was renamed or moved as a whole.

    Parameters
    ----------
    path : str or Path
        Tabs separate columns, or commas, semicolons or bars in a .csv file. A first line with the columns old and new
        (or from and to) is understood, in any order and among others; lines with # are comments.
    encoding : str
        As Python calls it.
    limits : Limits
        The resources that reading may take.

    Returns
    -------
    list of Move
        Each with its file and line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "moves.tsv")
    ...     _ = file.write_text("old\\tnew\\npet > dog\\tpet > hound\\nfish\\t\\n")
    ...     [(move.old, move.new) for move in read_moves(file)]
    [('pet > dog', 'pet > hound'), ('fish', '')]
    """
    file = existing_file(path)
    numbered = numbered_lines(file, encoding, limits)
    rows = split_lines(file, [(number, line) for number, line in numbered if not line.startswith("#")])
    if not rows:
        raise TreelabelError(f"{file}: no moves; expected lines with an old label and a new one, separated by a tab")
    header = [cell.lower() for cell in rows[0][1]]
    old = next((column for column, cell in enumerate(header) if cell in OLD_COLUMNS), None)
    new = next((column for column, cell in enumerate(header) if cell in NEW_COLUMNS), None)
    columns = None if old is None or new is None else (old, new)
    body = rows if columns is None else rows[1:]
    return [_move(cells, columns, f"{file}:{number}") for number, cells in body]


def _move(cells: list[str], columns: tuple[int, int] | None, where: str) -> Move:
    if columns is None and any(cells[2:]):
        raise TreelabelError(
            f"{where}: {len(cells)} columns, expected an old label and a new one; write one line for each new label, "
            "or name the columns old and new in the first line"
        )
    old, new = (cells[column] if column < len(cells) else "" for column in columns or (0, 1))
    if not old:
        raise TreelabelError(f"{where}: no old label before {quote(new)}; new labels need no line")
    require_printable([old, new], where)
    return Move(old, new, where)
