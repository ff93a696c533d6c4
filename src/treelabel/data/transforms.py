"""Datasets made of datasets: under another hierarchy, joined, and without duplicates."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from scipy import sparse

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.strings import Strings, plain_text
from treelabel.data.dataset import Dataset
from treelabel.data.equal_texts import text_codes
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import UnknownLabelError, find_label
from treelabel.hierarchy.label_matrices import from_ids, renumber_columns, row_numbers
from treelabel.hierarchy.union import require_nodes_in, with_paths


def cut(data: Dataset, depth: int) -> Dataset:
    """Keep the hierarchy's levels down to a depth; deeper labels become their ancestors there.

    Parameters
    ----------
    data
        A dataset.
    depth
        The number of levels to keep.

    Returns
    -------
    Dataset
    """
    return data.moved(data.hierarchy.cut(depth))


def with_other_leaves(data: Dataset) -> Dataset:
    """Let every document end in a leaf: internal nodes at which documents stop get an "other" child for them."""
    terminal = data.hierarchy.most_specific(data.labels)
    return data.moved(data.hierarchy.with_other_leaves(np.unique(terminal.indices)))


def unfold(data: Dataset) -> Dataset:
    """Make a DAG a tree; documents with full paths go to the copy on their path, others to all copies."""
    return data.moved(data.hierarchy.unfold())


def deduplicate(data: Dataset, against: Sequence[str] = ()) -> Dataset:
    """Keep the first of documents with the same text (case and spacing aside), with the labels of all of them.

    Texts in `against` (the training texts, say) are dropped altogether. Empty texts are no duplicates of each other.

    Parameters
    ----------
    data
        A dataset.
    against
        Texts that are dropped wherever they occur.

    Returns
    -------
    Dataset
    """
    first_row: dict[str, int] = {}
    other = {plain_text(text) for text in against}
    target = np.empty(len(data), np.int64)
    for row, text in enumerate(data.texts):
        plain = plain_text(text)
        target[row] = -1 if plain in other else first_row.setdefault(plain, row) if plain else row
    rows = row_numbers(data.labels)
    moved = target[rows]
    order = np.argsort(moved, kind="stable")
    order = order[moved[order] >= 0]
    ptr = np.searchsorted(moved[order], np.arange(len(data) + 1))
    united = from_ids(ptr, data.labels.indices[order], len(data.hierarchy))
    whole = replace(data, labels=united, choices={})
    return whole[np.flatnonzero(target == np.arange(len(data)))]


def without_texts(data: Dataset, texts: Strings) -> Dataset:
    """Leave out documents whose text, case and spacing aside, is among others, such as those of training data.

    Parameters
    ----------
    data
        A dataset.
    texts
        The texts to leave out.

    Returns
    -------
    Dataset
    """
    codes, others = text_codes(data.texts, texts)
    rest = data[np.flatnonzero((codes < 0) | ~np.isin(codes, others))]
    if len(rest) == 0:
        raise TreelabelError("no document is left: all texts are among those to leave out")
    return rest


def under(data: Dataset, hierarchy: Hierarchy) -> Dataset:
    """Bring documents under a hierarchy that has all their labels, by path.

    Parameters
    ----------
    data
        Documents.
    hierarchy
        such as one that `join_hierarchies` made.

    Returns
    -------
    Dataset
    """
    if data.hierarchy == hierarchy:
        return data
    where = require_nodes_in(data.hierarchy, hierarchy, "the data")
    return replace(data, labels=renumber_columns(data.labels, where, len(hierarchy)), hierarchy=hierarchy)


def concat(parts: Sequence[Dataset]) -> Dataset:
    """Join documents under one hierarchy: their ids, texts, labels, features and groups; no further columns.

    An id that an earlier document has gets a number behind it. Where only some parts have groups, documents of the
    others stand alone.

    >>> h = Hierarchy.flat(["cat", "dog"])
    >>> joined = concat([Dataset.of(["meow"], ["cat"], h), Dataset.of(["woof"], ["dog"], h)])
    >>> list(joined.ids), list(joined.texts), joined.names()
    (['0', '0.2'], ['meow', 'woof'], [['cat'], ['dog']])
    """
    for part in parts[1:]:
        parts[0].hierarchy.require_same(part.hierarchy.fingerprint, "a further part of the data")
    ids: dict[str, None] = {}
    for name in (name for part in parts for name in part.ids):
        free, number = name, 2
        while free in ids:
            free, number = f"{name}.{number}", number + 1
        ids[free] = None
    texts = Strings.of([text for part in parts for text in part.texts])
    labels = sparse.csr_array(sparse.vstack([part.labels for part in parts], format="csr"))
    features = None
    if all(part.features is not None for part in parts):
        features = sparse.csr_array(sparse.vstack([part.features for part in parts], format="csr"))
    extra, group = {}, next((part.group for part in parts if part.group is not None), None)
    if group is not None:
        # The dot keeps documents alone whatever groups are called.
        names = [part.groups or [f".{index}.{row}" for row in range(len(part))] for index, part in enumerate(parts)]
        extra = {group: pa.chunked_array([[name for each in names for name in each]], pa.string())}
    return Dataset(Strings.of(list(ids)), texts, labels, parts[0].hierarchy, extra, features, group=group)


def with_further_labels(data: Dataset, known: Hierarchy) -> Dataset:
    """Bring documents under a hierarchy that is known, extended by those of their labels that it does not have.

    Parameters
    ----------
    data : Dataset
        Documents under another hierarchy, such as one made of their labels.
    known : Hierarchy
        A label that it has, by name or path, is that label; others are added by their full paths.

    Returns
    -------
    Dataset
        Under the extended hierarchy.

    >>> h = Hierarchy.from_paths(["pet > horse", "pet > dog"])
    >>> new = Dataset.of(["neigh", "woof"], ["pet > horse", "pet > dog"], h)
    >>> with_further_labels(new, Hierarchy.from_paths(["pet > dog"])).hierarchy.paths()
    ['pet', 'pet > dog', 'pet > horse']
    """
    used = np.unique(data.labels.indices)
    where = {node: _known_label(known, data.hierarchy, node) for node in used.tolist()}
    paths = [data.hierarchy.path_names(node) for node, target in where.items() if target is None]
    lone = [path[0] for path in paths if len(path) == 1 and known.max_depth > 1]
    if lone:
        raise TreelabelError(
            f"{some(lone)}: new labels without a path, which the hierarchy has no place for; write full paths such as "
            f"{quote(known.paths([known.leaves[0]])[0])}"
        )
    if known.is_tree:
        larger = with_paths(known, paths)
    else:
        steps = [pair for path in paths for pair in pairwise(path)]
        larger = Hierarchy.from_edges(dict.fromkeys([*known.edges(), *steps]), root="", nodes=known.names)
    to = np.zeros(len(data.hierarchy), np.int32)
    for node, target in where.items():
        names = data.hierarchy.path_names(node) if target is None else known.path_names(target)
        to[node] = find_label(larger, names)
    return replace(data, labels=renumber_columns(data.labels, to, len(larger)), hierarchy=larger)


def _known_label(known: Hierarchy, hierarchy: Hierarchy, node: int) -> int | None:
    """Find a label in a hierarchy that is known, None if it is not there."""
    try:
        return find_label(known, hierarchy.path_names(node))
    except UnknownLabelError:
        return None
