"""Read several files, such as training and test data, under one hierarchy; join datasets."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from treelabel.core.errors import TreelabelError, quote, some
from treelabel.core.inputs import STANDARD, existing_file
from treelabel.core.limits import DEFAULT_LIMITS
from treelabel.core.strings import Strings
from treelabel.data.columns import MissingColumnError
from treelabel.data.dataset import Dataset
from treelabel.data.io import ReadOptions, format_to_read, open_tables
from treelabel.data.read import Known, known_from, read
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy
from treelabel.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import UnknownLabelError, find_label
from treelabel.hierarchy.label_matrices import renumber_columns
from treelabel.hierarchy.union import require_nodes_in, unite_trees, with_paths


def read_together(
    paths: Sequence[str | Path], taxonomy: Any = None, widen: bool = False, **options: Any
) -> list[Dataset]:
    """Read files with one hierarchy: the taxonomy given, or found beside one of them, or else all labels of all files.

    `options` are those of `read`. Without any taxonomy a test file rarely has the labels of its training file; here
    both get the tree (or the flat list) of the labels of both, so that they can be describe_value and judged together.

    Parameters
    ----------
    paths
        The files.
    taxonomy
        A Hierarchy, or a file that holds one.
    widen
        Whether labels that are not in a taxonomy which was found beside a file are added to it, not refused, and the
        columns of further files are guessed where they have none of the names that were given.
    **options
        Options of `read`.

    Returns
    -------
    list of Dataset
        One per file.
    """
    files = [existing_file(path) for path in paths]
    widen = widen and taxonomy is None
    own = [False] * len(files)
    if taxonomy is None:
        own = [_has_hierarchy(file, options) for file in files]
        taxonomy = _found_beside([file for file, has in zip(files, own, strict=True) if not has], options)
    data = [_read_widely(path, None if own[at] else taxonomy, widen, options, at > 0) for at, path in enumerate(files)]
    if taxonomy is None and len({part.choices.get("separator") for part in data}) > 1:
        data = _read_alike(files, data, options)
    if all(part.hierarchy == data[0].hierarchy for part in data):
        return data
    union = unite_trees([part.hierarchy for part in data])
    return [under(part, union) for part in data]


def _has_hierarchy(file: Path, options: dict[str, Any]) -> bool:
    """Return whether a file holds its hierarchy itself, which goes before any beside it."""
    if file == STANDARD:
        return False
    read_options = ReadOptions(options.get("encoding", "utf-8"), limits=options.get("limits", DEFAULT_LIMITS))
    if "hierarchy" not in format_to_read(file, options.get("format"), read_options).holds:
        return False
    with open_tables(file, read_options, options.get("format")) as source:
        return source.hierarchy is not None


def _found_beside(files: Sequence[Path], options: dict[str, Any]) -> Known | None:
    """Read the first taxonomy that stands beside one of the files."""
    beside = next(filter(None, map(find_sibling_taxonomy, files)), None)
    if beside is None:
        return None
    limits, encoding = options.get("limits", DEFAULT_LIMITS), options.get("encoding", "utf-8")
    return known_from(beside, options.get("root"), encoding, limits)._replace(sibling=beside)


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
    largest = max(range(len(data)), key=lambda at: len(data[at]))
    sep = data[largest].choices.get("separator")
    # No label has a line break, so that as a separator it keeps all labels whole.
    again = options | {"sep": "\n" if sep is None else sep}
    return [
        part if part.choices.get("separator") == sep else read(file, **again)
        for file, part in zip(files, data, strict=True)
    ]


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
        free, at = name, 2
        while free in ids:
            free, at = f"{name}.{at}", at + 1
        ids[free] = None
    texts = Strings.of([text for part in parts for text in part.texts])
    labels = sparse.csr_array(sparse.vstack([part.labels for part in parts], format="csr"))
    features = None
    if all(part.features is not None for part in parts):
        features = sparse.csr_array(sparse.vstack([part.features for part in parts], format="csr"))
    extra, group = {}, next((part.group for part in parts if part.group is not None), None)
    if group is not None:
        # The dot keeps documents alone whatever groups are called.
        names = [part.groups or [f".{at}.{row}" for row in range(len(part))] for at, part in enumerate(parts)]
        extra = {group: pa.chunked_array([[name for each in names for name in each]], pa.string())}
    return Dataset(Strings.of(list(ids)), texts, labels, parts[0].hierarchy, extra, features, group=group)


def with_further_labels(data: Dataset, known: Hierarchy) -> Dataset:
    """Bring documents under a hierarchy that is known, extended by those of their labels that it does not have.

    Parameters
    ----------
    data : Dataset
        Documents under a hierarchy of their own, such as one made of their labels.
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
    paths = [data.hierarchy.path_names(node) for node, place in where.items() if place is None]
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
    for node, place in where.items():
        names = data.hierarchy.path_names(node) if place is None else known.path_names(place)
        to[node] = find_label(larger, names)
    return replace(data, labels=renumber_columns(data.labels, to, len(larger)), hierarchy=larger)


def _known_label(known: Hierarchy, own: Hierarchy, node: int) -> int | None:
    """Find a label in a hierarchy that is known, None if it is not there."""
    try:
        return find_label(known, own.path_names(node))
    except UnknownLabelError:
        return None
