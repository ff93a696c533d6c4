"""Which columns of a table hold its hierarchy: recognised by their names, in any order and case, else by values."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from treelabel.core.errors import TreelabelError, quote
from treelabel.data.columns import LEVEL_NAME
from treelabel.hierarchy.edges import ROOT_NAMES
from treelabel.hierarchy.hierarchy import SEPARATOR
from treelabel.hierarchy.identifiers import URI
from treelabel.hierarchy.separators import guess_separator

CHILD_COLUMNS = ("child", "label", "name", "id", "node", "code", "title", "category", "class", "concept", "term", "key")
ID_COLUMNS = ("id", "code", "node", "key")
PARENT_NAME = re.compile(r"parent_?((category|class|node|label|concept)?_?(id|name|code|key|title)?)?")
PATH_NAME = re.compile(r"(\w*_)?(full_?)?path|breadcrumbs?|full_?name")
# Columns that hold one name in a line, or paths.
LABEL_NAMES = ("label", "labels", "category", "categories", "name", "class", "taxonomy", "hierarchy", "topic", "title")
LEVEL_WORD = re.compile(
    r"(main_?|top_?)?(sub_?)*"
    r"(department|dept|division|section|segment|domain|area|family|group|class|brick|category|commodity|topic|chapter)"
    r"(_name)?"
)
LANGUAGE_LABEL = re.compile(r"label_[a-z]{2,3}(-\w+)?")


class ParentColumns(NamedTuple):
    """Columns of a table of edges: the parent, the one that parents refer to, and the name if that is another.

    `uri` and `notation` are columns with the identifiers of the child, if there are any.
    """

    parent: int
    child: int
    name: int | None
    uri: int | None = None
    notation: int | None = None

    def summary(self, header: Sequence[str]) -> str:
        """Say in words what was recognised."""
        parent, child = quote(header[self.parent], 40), quote(header[self.child], 40)
        if self.name is None:
            return f"parents in the column {parent}, labels in {child}"
        return f"parents in the column {parent}, which are called by {child}, names in {quote(header[self.name], 40)}"


@dataclass(frozen=True)
class PathColumns:
    """Columns whose values make a path: one that has it whole, with a separator, or one for each level.

    `first` is the index of the first row behind the header, which may be missing.
    """

    columns: tuple[int, ...]
    separator: str | None
    first: int

    def summary(self, header: Sequence[str]) -> str:
        """Say in words what was recognised; a first row that is no header is not quoted."""
        names = [quote(header[column], 40) if self.first else str(column + 1) for column in self.columns]
        if self.separator is None:
            return f"one level in each of the columns {' and '.join(names)}"
        return f"full paths in the column {names[0]}, separated by {self.separator!r}"


class VocabularyColumn(NamedTuple):
    """Columns of a vocabulary as Annif has it: the URI of a label, its name, and the index of the first row.

    `notation` is the column of notations below a header, `others` are labels in other languages.
    """

    uri: int
    label: int
    first: int
    notation: int | None = None
    others: tuple[int, ...] = ()

    def name_of(self, row: Sequence[str]) -> str:
        """Return the label of a row, in another language where there is none in the one asked for."""
        cells = (row[column] for column in (self.label, *self.others) if column < len(row))
        return next(filter(None, cells), "")

    def notation_of(self, row: Sequence[str]) -> str | None:
        """Return the notation of a row, which stands behind the label where no header says otherwise."""
        column = self.notation if self.first else self.label + 1
        return row[column] or None if column is not None and column < len(row) else None

    def summary(self, header: Sequence[str]) -> str:
        """Say in words what was recognised."""
        named = f"in the column {quote(header[self.label], 40)}" if self.first else "behind their URIs"
        return f"a vocabulary without a hierarchy, labels {named}"


def vocabulary_column(rows: list[list[str]], language: str = "en") -> VocabularyColumn | None:
    """Find the labels of a vocabulary of Annif, whose URIs are no parents of them; None for other tables.

    Parameters
    ----------
    rows
        The cells of all rows: of TSV, a URI and a label; of CSV, below a header with the columns uri and label_en (or
        another language).
    language
        The language of the labels, where there are several.

    Returns
    -------
    VocabularyColumn or None

    >>> vocabulary_column([["<http://example.org/1>", "cats"], ["<http://example.org/2>", "dogs"]])
    VocabularyColumn(uri=0, label=1, first=0, notation=None, others=())
    >>> vocabulary_column([["uri", "label_fi", "label_en"], ["http://example.org/1", "kissat", "cats"]])
    VocabularyColumn(uri=0, label=2, first=1, notation=None, others=(1,))
    """
    if not rows:
        return None
    header = [cell.strip().lower() for cell in rows[0]]
    if "uri" in header:
        labels = {name: column for column, name in enumerate(header) if LANGUAGE_LABEL.fullmatch(name)}
        wanted = f"label_{language.lower()}"
        if len(labels) > 1 and wanted not in labels:
            raise TreelabelError(f"no column {wanted!r} for the labels; there are {', '.join(sorted(labels))}")
        if not labels:
            return None
        label = labels.get(wanted, min(labels.values()))
        notation = header.index("notation") if "notation" in header else None
        others = tuple(column for column in labels.values() if column != label)
        return VocabularyColumn(header.index("uri"), label, 1, notation, others)
    known = {row[0] for row in rows}
    is_vocabulary = len(known) == len(rows) and all(
        len(row) in (2, 3) and URI.fullmatch(row[0]) and not URI.fullmatch(row[1]) for row in rows
    )
    return VocabularyColumn(0, 1, 0) if is_vocabulary else None


def parent_columns(rows: list[list[str]]) -> ParentColumns | None:
    """Find the columns of a table of edges if the first line is a header that names the parent's.

    Where several could be the child's (id and name, say), it is the one whose values the parents are called by; if that
    is an id and there is a column of names, labels are called by the name.

    >>> parent_columns([["Name", "ID", "Parent ID"], ["pet", "1", ""], ["dog", "2", "1"]])
    ParentColumns(parent=2, child=1, name=0, uri=None, notation=None)
    """
    kinds = [_kind(cell) for cell in (rows[0] if rows else [])]
    if "parent" not in kinds:
        return None
    above = kinds.index("parent")
    choices = [kinds.index(name) for name in CHILD_COLUMNS if name in kinds]
    if not choices and _is_header(rows):
        choices = [column for column in range(len(kinds)) if column != above]
    if not choices:
        return None
    parents = {row[above] for row in rows[1:] if len(row) > above}
    by_id = rows[0][above].lower().endswith(("id", "code", "key"))

    def fit(column: int) -> tuple[int, bool]:
        references = sum(len(row) > column and row[column] in parents for row in rows[1:])
        return references, by_id and kinds[column] in ID_COLUMNS

    child = max(choices, key=fit)
    names = [kinds.index(name) for name in ("name", "label", "title", "category") if name in kinds]
    is_id = kinds[child] in ID_COLUMNS
    name = next((column for column in names if is_id and column != child), None)
    uri, notation = (kinds.index(kind) if kind in kinds else None for kind in ("uri", "notation"))
    return ParentColumns(above, child, name, uri, notation)


def _plain(cell: str) -> str:
    return re.sub(r"[\W_]+", "_", cell.strip().lower()).strip("_")


def _kind(cell: str) -> str:
    name = _plain(cell)
    if PARENT_NAME.fullmatch(name):
        return "parent"
    return "id" if name.endswith("_id") else name.removesuffix("_name")


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether no value of the first row stands anywhere else, as names of columns do not."""
    names = {cell for cell in rows[0] if cell}
    if len(rows) < 2 or any(name.lower() in ROOT_NAMES for name in names):
        return False
    return not any(cell in names for row in rows[1:] for cell in row)


def path_columns(rows: list[list[str]], sep: str | None = None) -> PathColumns | None:
    """Find the columns of a table whose rows are paths; None where rows are edges.

    Parameters
    ----------
    rows : list of lists of str
        The cells of all rows, the header first if there is one.
    sep : str, optional
        The separator of paths in one column; by default it is guessed.

    Returns
    -------
    PathColumns or None

    >>> path_columns([["No", "Level 2", "Level 1"], ["1", "dog", "pet"], ["2", "cat", "pet"]])
    PathColumns(columns=(2, 1), separator=None, first=1)
    >>> path_columns([["id", "Full path"], ["1", "pet/dog"]], sep="/")
    PathColumns(columns=(1,), separator='/', first=1)
    """
    if not rows:
        return None
    return (_named_columns(rows, sep) if _is_header(rows) else None) or _by_value(rows, sep)


def _named_columns(rows: list[list[str]], sep: str | None) -> PathColumns | None:
    names = [_plain(cell) for cell in rows[0]]
    path = next((column for column, name in enumerate(names) if PATH_NAME.fullmatch(name)), None)
    if path is not None:
        return PathColumns((path,), separator_of(_values(rows[1:], path), sep), 1)
    levels = [(int(match[2]), column) for column, name in enumerate(names) if (match := LEVEL_NAME.fullmatch(name))]
    if len(levels) > 1:
        return PathColumns(tuple(column for _, column in sorted(levels)), None, 1)
    words = [column for column, name in enumerate(names) if LEVEL_WORD.fullmatch(name)]
    if len(words) > 1:
        return PathColumns(tuple(words), None, 1)
    for column, name in enumerate(names):
        values = _values(rows[1:], column)
        if name in LABEL_NAMES and (len(names) == 1 or guess_separator(values) is not None):
            return PathColumns((column,), separator_of(values, sep), 1)
    return None


def _by_value(rows: list[list[str]], sep: str | None) -> PathColumns | None:
    width = max(map(len, rows))
    if width > 2 and _are_levels(rows):
        return PathColumns(tuple(range(width)), None, int(_is_header(rows)))
    if width > 10:
        return None
    guesses = {column: guess_separator(_values(rows, column)) for column in range(width)}
    paths = [(column, guess) for column, guess in guesses.items() if guess is not None]
    if len(paths) != 1 or not _is_numbering(rows, paths[0][0]):
        return None
    column, guess = paths[0]
    separator = sep or guess
    is_header = width > 1 and _is_header(rows) and separator not in rows[0][column]
    return PathColumns((column,), separator, int(is_header))


def _is_numbering(rows: Sequence[Sequence[str]], paths: int) -> bool:
    """Return whether the column next to paths could number them; one of edges holds parents, which recur."""
    first = [row[0] for row in rows] if paths != 0 else [row[1] if len(row) > 1 else "" for row in rows]
    known = set(_values(rows, paths))
    return max(map(len, rows)) == 1 or (len(set(first)) == len(first) and not known.intersection(first))


def _are_levels(rows: list[list[str]]) -> bool:
    """Return whether columns are levels: read as a parent with its children, the rows would say some edges twice.

    Every name then has one parent, the one in the column before it.
    """
    body = rows[1:]
    full = [row for row in body if all(row)]
    if len({len(row) for row in rows}) > 1 or 2 * len(full) < len(body) or not full:
        return False
    repeated = len({(row[0], row[1]) for row in full}) < len(full)
    parents: dict[tuple[int, str], set[str]] = {}
    for row in full:
        for level, (above, name) in enumerate(pairwise(row)):
            parents.setdefault((level, name), set()).add(above)
    several = sum(len(above) > 1 for above in parents.values())
    return repeated and several <= 0.1 * len(parents)


def _values(rows: Iterable[Sequence[str]], column: int) -> list[str]:
    return [row[column] for row in rows if column < len(row) and row[column]]


def separator_of(paths: Sequence[str], sep: str | None) -> str:
    """Return the separator that was asked for, else the usual one if any path has it, else a guess."""
    if sep is not None:
        return sep
    return SEPARATOR if any(SEPARATOR in path for path in paths) else guess_separator(paths) or SEPARATOR
