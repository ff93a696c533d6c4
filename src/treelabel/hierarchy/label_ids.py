"""Label names and paths to node ids and back; label lists to label matrices and back.

Names live at the edge of the library: this is the only place that turns them into ids. A label may be written as the
name of any node, as a full path with a separator ("A > B"), as the end of a path if that is unique, or as a tuple of
the names on the path.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote as quote_uri

import numpy as np

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.registry import did_you_mean
from treelabel.core.strings import as_list, column_names, is_missing
from treelabel.hierarchy.hierarchy import SEPARATOR, Hierarchy, split_path
from treelabel.hierarchy.identifiers import URN, plain_uri
from treelabel.hierarchy.label_matrices import LabelMatrix, from_ids

# Tried in this order when no separator is given. A label that is itself a name is never split.
SEPARATORS = (SEPARATOR, ">", " / ", "/", " | ", "|", "::", "\\")
# What often stands between several labels of one cell.
LABEL_MARKS = (";", "|", ",")

Label = str | tuple[str, ...]

LONG_LABEL = 200

# Shares of names that may stand at several levels, and below several names ("other"), in lists that are levels.
MOVED_NAMES = 0.05
SPREAD_NAMES = 0.2


class UnknownLabelError(TreelabelError):
    """A label that is not in the hierarchy, or not clearly so."""


def find_label(hierarchy: Hierarchy, label: str | Sequence[str], sep: str | None = None, is_full: bool = False) -> int:
    """Find the node that a label means.

    A text is first taken as a name, then as a URI or notation if the hierarchy has these, then as a path with separator
    `sep` (None: any of `SEPARATORS`). A sequence is a path. A path may leave out top names where the rest is unique; a
    full path, even of a single name, goes first.

    Parameters
    ----------
    label
        A name, a path as text, or a sequence of names.
    sep
        What separates the names of a path.
    is_full
        Whether a path, or a single name, must begin at the top.

    Returns
    -------
    int
        The node id; unknown and ambiguous labels raise TreelabelError.

    >>> h = Hierarchy.from_paths(["A > Rest", "B > Rest"])
    >>> find_label(h, "A"), find_label(h, "B/Rest"), find_label(h, ["A", "Rest"])
    (0, 3, 2)
    >>> find_label(h, "Rest")
    Traceback (most recent call last):
    ...
    treelabel.hierarchy.label_ids.UnknownLabelError: 'Rest' names 2 labels: 'A > Rest', 'B > Rest'; give the full path
    """
    if not isinstance(label, str):
        names = [name.strip() for name in label]
        is_new = len(names) == 1 and names[0] not in hierarchy.ids_by_name
        identified = _find_identified(hierarchy, names[0]) if is_new else None
        return _find_path(hierarchy, names, SEPARATOR.join(label), is_full) if identified is None else identified
    for name in (label, label.strip()):
        if name in hierarchy.ids_by_name:
            return _find_path(hierarchy, [name], label, is_full)
    identified = _find_identified(hierarchy, label)
    if identified is not None:
        return identified
    problem = None
    for separator in [sep] if sep is not None else SEPARATORS:
        names = split_path(label, separator)
        if len(names) > 1 and names[-1] in hierarchy.ids_by_name:
            try:
                return _find_path(hierarchy, names, label, is_full)
            except UnknownLabelError as error:
                # A name may contain one separator, and the path be written with another.
                problem = problem or error
    mark = mark_between(hierarchy, label)
    if mark is not None:
        problem = UnknownLabelError(
            f"unknown label {quote(label)}: these are several labels with {quote(mark)} between them; say so "
            f"(--label-sep {quote(mark)})"
        )
    raise problem or _unknown(hierarchy, label)


def _find_identified(hierarchy: Hierarchy, label: str) -> int | None:
    """Find the node of a URI or a notation; None if it is none."""
    nodes = hierarchy.ids_by_identifier.get(plain_uri(label), [])
    if len(nodes) > 1:
        raise UnknownLabelError(
            f"{quote(label)} identifies {len(nodes)} labels: {some(hierarchy.paths(nodes))}; give the path"
        )
    return nodes[0] if nodes else None


def is_named(hierarchy: Hierarchy, label: str) -> bool:
    """Return whether a label, or the last step of a path, is a name of the hierarchy: quickly, as files have many.

    Parameters
    ----------
    label : str
        A name or a path.

    Returns
    -------
    bool

    >>> h = Hierarchy.from_paths(["A > B"])
    >>> is_named(h, "B"), is_named(h, "C > B"), is_named(h, "A > C")
    (True, True, False)
    """
    last = (split_path(label, separator)[-1] for separator in SEPARATORS)
    is_known = label in hierarchy.ids_by_name or plain_uri(label) in hierarchy.ids_by_identifier
    return is_known or any(name in hierarchy.ids_by_name for name in last)


def mark_between(hierarchy: Hierarchy, label: str) -> str | None:
    """Find what separates several labels that were taken for one.

    Parameters
    ----------
    label
        What is no label of it.

    Returns
    -------
    str or None
        None unless every part is named in the hierarchy.

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> mark_between(h, "A > B; C"), mark_between(h, "A > B; D")
    (';', None)
    """
    for mark in LABEL_MARKS if len(label) <= LONG_LABEL else ():
        parts = [part.strip() for part in label.split(mark)]
        if len(parts) > 1 and all(is_named(hierarchy, part) for part in parts):
            return mark
    return None


def _find_path(hierarchy: Hierarchy, names: list[str], label: str, is_full: bool = False) -> int:
    if not names or names[-1] not in hierarchy.ids_by_name:
        raise _unknown(hierarchy, label)
    ends = hierarchy.ids_by_name[names[-1]]
    # Climb from each candidate, keeping the set of nodes that the names so far can mean (several only in a DAG).
    matching: dict[int, set[int]] = {end: {end} for end in ends}
    for name in reversed(names[:-1]):
        for end, nodes in list(matching.items()):
            above = {parent for node in nodes for parent in hierarchy.parents_of(node)}
            matching[end] = {parent for parent in above if parent >= 0 and hierarchy.names[parent] == name}
            if not matching[end]:
                del matching[end]
    full = [end for end, nodes in matching.items() if any(-1 in hierarchy.parents_of(node) for node in nodes)]
    if not matching or (is_full and not full):
        known = some(hierarchy.paths(ends[:3]))
        raise UnknownLabelError(f"unknown path {quote(label)}: {quote(names[-1])} stands at {known}")
    best = full or list(matching)
    if len(best) > 1:
        raise UnknownLabelError(
            f"{quote(label)} names {len(best)} labels: {some(hierarchy.paths(best))}; give the full path"
        )
    return best[0]


def _unknown(hierarchy: Hierarchy, label: str) -> UnknownLabelError:
    # Comparing with a hundred thousand names, or a text with names, would take longer than anyone waits for a message.
    known = hierarchy.names[:20000] if len(label) <= LONG_LABEL else ()
    hint = did_you_mean(label, known, most=3, shown=quote) or "check the name and the taxonomy"
    return UnknownLabelError(f"unknown label {quote(label)}; {hint}")


def label_rows(labels: Any) -> list[Any]:
    """Take the labels of documents out of what people pass, one row each: None, a label, or a list of labels.

    A data frame, or a two-dimensional array of text, has a level of the hierarchy in each column, so that its rows are
    paths, which may end early. Dicts, sets, and a single text are refused.

    Parameters
    ----------
    labels
        A list, an array or a column of any library; or levels.

    Returns
    -------
    list
        Paths out of columns are tuples.

    >>> label_rows(np.array([["A", "B"], ["C", ""]]))
    [('A', 'B'), ('C',)]
    """
    if not are_levels(labels):
        return as_list(labels, "labels")
    if isinstance(labels, np.ndarray):
        return [_path_of(row, index) for index, row in enumerate(labels.tolist())]
    names = labels.column_names if hasattr(type(labels), "column_names") else labels.columns
    columns = [as_list(labels[name], "labels") for name in names]
    return [_path_of(row, index) for index, row in enumerate(zip(*columns, strict=True))]


def are_levels(labels: Any) -> bool:
    """Return whether labels are a table with a level in each column: a data frame, or a two-dimensional array of text.

    >>> are_levels(np.array([["A", "B"]])), are_levels(["A", "B"]), are_levels(np.array([[0, 1]]))
    (True, False, False)
    """
    if isinstance(labels, np.ndarray):
        return labels.ndim == 2 and labels.dtype.kind in "UOT"
    return column_names(labels) is not None and not isinstance(labels, Mapping)


def _path_of(row: Sequence[Any], index: int) -> tuple[str, ...]:
    """Read the names of a path, which may end early."""
    names = list(row)
    while names and is_missing(names[-1]):
        names.pop()
    wrong = next((name for name in names if not isinstance(name, str) or is_missing(name)), None)
    if wrong is not None or None in names:
        raise UnknownLabelError(
            f"row {index}: expected the names of the levels of a path, found {quote(wrong)} in {quote(tuple(row))}; "
            "an indicator matrix is an array of numbers, such as data.to_numpy()"
        )
    return tuple(names)


def find_level_list(rows: Iterable[Any]) -> list[str] | None:
    """Find a list among the labels of documents that looks like the levels of a path, as all lists then do.

    In lists of levels nearly every name keeps to one position and to one name before it; and a first name has several
    names behind it, or all lists are of one length. Sets are always sets of labels, tuples always paths, and names with
    " > " in them paths themselves.

    Parameters
    ----------
    rows
        The labels of each document.

    Returns
    -------
    list of str or None
        One of the lists; None where lists are several labels.

    >>> find_level_list([["A", "B"], ["A", "C"], ["D", "other"]]), find_level_list([["A", "B"], ["B", "C"]])
    (['A', 'B'], None)
    """
    lists = [row for row in rows if row is not None and not (isinstance(row, list) and not row)]
    if not all(isinstance(row, list | np.ndarray) for row in lists):
        return None
    if not all(isinstance(name, str) and SEPARATOR not in name for row in lists for name in row):
        return None
    sizes = {len(row) for row in lists}
    positions: dict[str, set[int]] = {}
    above: dict[str, set[str]] = {}
    for row in lists:
        for index, name in enumerate(row):
            positions.setdefault(name, set()).add(index)
            if index:
                above.setdefault(name, set()).add(row[index - 1])
    moved = sum(len(each) > 1 for each in positions.values())
    spread = sum(len(each) > 1 for each in above.values())
    if not above or moved > MOVED_NAMES * len(positions) or spread > SPREAD_NAMES * len(above):
        return None
    branches = len(set().union(*above.values())) < len(above)
    return [str(name) for name in max(lists, key=len)] if branches or len(sizes) == 1 else None


def is_path(row: Any) -> bool:
    """Return whether a row of labels is one path by its names: a tuple of texts, the last of which may be missing.

    >>> is_path(("A", "B")), is_path(("A", None)), is_path(["A", "B"]), is_path((("A", "B"), ("C",)))
    (True, True, False, False)
    """
    return isinstance(row, tuple) and any(isinstance(name, str) for name in row[:1])


def encode(hierarchy: Hierarchy, rows: Any, sep: str | None = None) -> LabelMatrix:
    """Turn the labels of documents into a label matrix, as given (not closed).

    A row is None, a label, or a list of labels; a label is as in `find_label`. A tuple of names is one path. Rows may
    stand in a column or table of any library: see `label_rows`.

    Parameters
    ----------
    rows
        The labels of each document.
    sep
        As for `find_label`.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> encode(h, [["B", "C"], "A > B", None, ("A", "B")]).toarray().astype(int).tolist()
    [[0, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0, 1]]
    """
    known: dict[Label, int] = {}
    flat: list[int] = []
    ptr = [0]
    for index, row in enumerate(label_rows(rows)):
        for label in labels_of_row(row, index):
            try:
                key = label if isinstance(label, str) else tuple(label)
                node = known.get(key)
            except TypeError:
                raise _no_label(row, index) from None
            if node is None:
                node = known[key] = _find_new(hierarchy, key, sep, row, index)
            flat.append(node)
        ptr.append(len(flat))
    return from_ids(np.array(ptr), np.array(flat, np.int32), len(hierarchy))


def labels_of_row(row: Any, index: int) -> Iterable[Any]:
    """Return the labels in a row, each a text or the names of a path.

    Parameters
    ----------
    row
        None, a label, or a list of labels.
    index
        The number of the row, for messages.

    Returns
    -------
    iterable

    >>> labels_of_row(("A", "B", ""), 0), labels_of_row({"A"}, 0), labels_of_row(None, 0)
    ([('A', 'B')], {'A'}, [])
    """
    if row is None:
        return []
    if isinstance(row, str):
        return [row]
    if is_path(row):
        return [_path_of(row, index)]
    if isinstance(row, Mapping) or not isinstance(row, Iterable):
        raise _no_label(row, index)
    return row


def _find_new(hierarchy: Hierarchy, key: Label, sep: str | None, row: Any, index: int) -> int:
    """Find a label that has not occurred before."""
    if not key or not all(isinstance(name, str) for name in key):
        raise _no_label(row, index)
    try:
        return find_label(hierarchy, key, sep)
    except UnknownLabelError as error:
        hint = "; a tuple is one path, and several labels are a list" if is_path(row) else ""
        raise UnknownLabelError(f"row {index}: {error}{hint}") from None


def _no_label(row: Any, index: int) -> UnknownLabelError:
    return UnknownLabelError(
        f"row {index}: expected a label, a list of labels, or a tuple (a path), found {quote(row)}"
    )


def path_uri(hierarchy: Hierarchy, node: int) -> str:
    """Return the URI of a node that has none of its own, with its path in it; `path_of_uri` reads it.

    >>> path_uri(Hierarchy.from_paths(["A > B c"]), 1)
    'urn:treelabel:A/B%20c'
    """
    return URN + "/".join(quote_uri(name, safe="") for name in hierarchy.path_names(node))


def with_uris(hierarchy: Hierarchy) -> Hierarchy:
    """Add a URI to every node that has none: urn:treelabel: and its path, so that the same label has the same one.

    >>> with_uris(Hierarchy.from_paths(["A > B c"])).identifiers.uris.to_pylist()
    ['urn:treelabel:A', 'urn:treelabel:A/B%20c']
    """
    known = hierarchy.identifiers
    uris = [None] * len(hierarchy) if known is None else known.uris.to_pylist()
    if None not in uris:
        return hierarchy
    made = [uri or path_uri(hierarchy, node) for node, uri in enumerate(uris)]
    return hierarchy.with_identifiers(made, None if known is None else known.notations.to_pylist())


def decode(hierarchy: Hierarchy, labels: LabelMatrix, paths: bool = False, sep: str = SEPARATOR) -> list[list[str]]:
    """Turn a label matrix into one list of names, or of full paths, per document.

    Parameters
    ----------
    paths
        Whether to return full paths.
    sep
        What separates the names of a path.

    Returns
    -------
    list of lists of str

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> decode(h, h.closure([[0, 0, 1]])), decode(h, h.closure([[0, 0, 1]]), paths=True)
    ([['A', 'B']], [['A', 'A > B']])
    """
    used = np.unique(labels.indices)
    texts = hierarchy.paths(used, sep) if paths else [hierarchy.names[node] for node in used.tolist()]
    flat = np.array(texts, object)[np.searchsorted(used, labels.indices)].tolist() if len(used) else []
    ptr = labels.indptr.tolist()
    return [flat[start:stop] for start, stop in pairwise(ptr)]
