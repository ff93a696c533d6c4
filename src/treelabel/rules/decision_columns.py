"""Decisions as columns of a table: the labels of each document, likeliest first, with their levels and runners-up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.json_lines import number_texts
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, matches, row_numbers, row_sizes
from treelabel.rules.decisions import Decisions
from treelabel.scores.score_matrix import Scores

# From this score on, seven digits are found without a loop: float32 times a power of ten is exact in double precision.
LEAST_EXACT = 1e-4

# Writes nodes of a hierarchy as labels.
Writer = Callable[[Hierarchy, Any], Sequence[Any]]


@dataclass(frozen=True, eq=False)
class WrittenLabels:
    """Labels of documents in the order in which they are written, row after row, and their scores if they have any."""

    hierarchy: Hierarchy
    ptr: LongArray
    nodes: IntArray
    p: DoubleArray | None

    def lists(self, values: pa.Array) -> pa.LargeListArray:
        """Make one list per document of one value per label."""
        return pa.LargeListArray.from_arrays(self.ptr, values)

    def names(self, paths: bool = False, write: "Writer | None" = None) -> pa.DictionaryArray:
        """Return the name, or the path, of every label; or what `write` makes of its node."""
        used, index = self._used_nodes
        if write is not None:
            names = [str(name) for name in write(self.hierarchy, used)]
        else:
            names = self.hierarchy.paths(used) if paths else [self.hierarchy.names[node] for node in used.tolist()]
        return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(names, pa.large_string()))

    @cached_property
    def _used_nodes(self) -> tuple[LongArray, IntArray]:
        """The nodes that occur, and which of these each label is."""
        is_used = np.zeros(len(self.hierarchy), np.bool_)
        is_used[self.nodes] = True
        used = np.flatnonzero(is_used)
        return used, (np.cumsum(is_used, dtype=np.int32) - 1)[self.nodes]

    def identifiers(self) -> dict[str, pa.DictionaryArray]:
        """Return the URI of every label, null where it has none, and its notation where the hierarchy has any."""
        known = self.hierarchy.identifiers
        if known is None:
            raise TreelabelError("the labels have no URIs: fit the model with a vocabulary that has (--taxonomy)")
        used, index = self._used_nodes
        columns = {"uri": known.uris, "notation": known.notations}
        return {
            name: pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), column.take(pa.array(used)))
            for name, column in columns.items()
            if name == "uri" or column.null_count < len(column)
        }

    def objects(self, uris: bool = False) -> pa.LargeListArray:
        """Make one list per document of {"label": name, "path": "A > B", "p": 0.93}, with the URI if asked for."""
        fields = {"label": self.names(), "path": self.names(paths=True)} | (self.identifiers() if uris else {})
        if self.p is not None:
            fields["p"] = pa.array(self.p)
        return self.lists(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))


def chosen_labels(decisions: Decisions, scores: Scores | None, all_labels: bool = False) -> WrittenLabels:
    """Return the most specific labels of closed sets (or all of them), and sets that are not closed as they are.

    Parameters
    ----------
    decisions
        The sets.
    scores
        Where scores come from; without any, labels come in the order of nodes.
    all_labels
        Whether to include ancestors.

    Returns
    -------
    WrittenLabels
    """
    labels = decisions.csr
    if not all_labels:
        labels = decisions.most_specific
        if not decisions.closed_rows.all():
            both, rows = sparse.vstack([labels, decisions.csr], format="csr"), np.arange(len(decisions))
            labels = both[np.where(decisions.closed_rows, rows, rows + len(decisions))]
    return sorted_labels(
        decisions.hierarchy, labels, None if scores is None else scores.look_up(labels).astype(np.float64)
    )


def runner_up_labels(decisions: Decisions, scores: Scores, count: int) -> WrittenLabels:
    """Return the likeliest leaves of each document that were not predicted.

    Parameters
    ----------
    decisions
        What was predicted.
    scores
        The scores it was decided on.
    count
        How many, at most; leaves with a score of 0 are none.

    Returns
    -------
    WrittenLabels
    """
    h = scores.hierarchy
    if scores.is_sparse:
        values = scores.values.copy()
        values.data[matches(decisions.csr, values) | ~h.is_leaf[values.indices]] = 0
        values.eliminate_zeros()
    else:
        values = scores.values * h.is_leaf
        values[row_numbers(decisions.csr), decisions.csr.indices] = 0
    best = Scores(h, values).top_k(count).values
    return sorted_labels(h, best, best.data.astype(np.float64))


def sorted_labels(h: Hierarchy, labels: LabelMatrix, p: DoubleArray | None) -> WrittenLabels:
    """Put the labels of each document in order, the surest first; equal ones by node.

    Parameters
    ----------
    h
        The hierarchy.
    p
        A score for every label.

    Returns
    -------
    WrittenLabels
    """
    ptr = labels.indptr.astype(np.int64)
    if p is None:
        return WrittenLabels(h, ptr, labels.indices, None)
    p = seven_digits(p)
    if len(p) and row_sizes(labels).max() > 1:
        order = np.lexsort((-p, row_numbers(labels)))
        return WrittenLabels(h, ptr, labels.indices[order], p[order])
    return WrittenLabels(h, ptr, labels.indices, p)


def seven_digits(p: DoubleArray) -> DoubleArray:
    """Round scores to the seven digits that anyone reads.

    >>> seven_digits(np.array([0.123456789, 0.00012345678, 1.0, 3.21e-7])).tolist()
    [0.1234568, 0.0001234568, 1.0, 3.21e-07]
    """
    scale = 10.0 ** (7 + (p < 0.1).astype(np.int64) + (p < 0.01) + (p < 0.001))
    rounded: DoubleArray = np.rint(p * scale) / scale
    is_hard = (p < LEAST_EXACT) | (p.astype(np.float32) != p)
    for index in np.flatnonzero(is_hard & (p > 0)).tolist():
        rounded[index] = float(f"{p[index]:.7g}")
    return rounded


# What may stand between the labels of one cell; the first that no label holds is taken.
SEPARATORS = ("; ", " | ", " || ", " ;; ", "\n")


def label_separator(hierarchy: Hierarchy) -> str:
    """Choose what stands between several labels of a cell: something that is part of no label.

    >>> label_separator(Hierarchy.flat(["a", "b"])), label_separator(Hierarchy.flat(["a; b"]))
    ('; ', ' | ')
    """
    free = (mark for mark in SEPARATORS if not any(mark.strip(" ") in name for name in hierarchy.names))
    return next(free, "\n")


def column_names(
    levels: int, alternatives: int, several: bool, taken: Sequence[str] = (), identifiers: Sequence[str] = ()
) -> dict[str, str]:
    """Name the columns of predictions, so that none has the name of a column that is there already.

    Parameters
    ----------
    levels
        The depth of the hierarchy.
    alternatives
        How many further labels there are.
    several
        Whether documents may have several labels.
    taken
        Names of other columns.
    identifiers
        Which of uri and notation there are.

    Returns
    -------
    dict
        What a column holds to its name: the same, unless that is taken.

    >>> list(column_names(2, 1, False).values())
    ['predicted', 'path', 'p', 'level1', 'level2', 'alternative1', 'alternative1_p']
    >>> column_names(1, 0, False, ["path"])["path"]
    'predicted_path'
    """
    plain = [
        "predicted",
        "path",
        "p",
        *(["all_p"] if several else []),
        *identifiers,
        *(f"level{depth + 1}" for depth in range(levels)),
    ]
    plain += [name for rank in range(alternatives) for name in (f"alternative{rank + 1}", f"alternative{rank + 1}_p")]
    others = {name.lower() for name in taken}
    names: dict[str, str] = {}
    for name in plain:
        free = name if name.lower() not in others else f"predicted_{name}"
        while free.lower() in others:
            free += "_"
        names[name] = free
    return names


def prediction_columns(
    decisions: Decisions,
    scores: Scores,
    sep: str | None,
    all_labels: bool = False,
    alternatives: int = 0,
    several: bool = False,
    write: Writer | None = None,
    uris: bool = False,
) -> dict[str, pa.Array]:
    """Make the columns of predictions, one row per document; see `column_names`.

    `predicted` and `path` hold the labels, likeliest first, with `sep` between several; `p` is the probability of the
    first, `all_p` has those of all. Without a `sep`, these and `p` are lists instead. A level holds the names of all
    predicted labels at that depth, ancestors included.

    Parameters
    ----------
    decisions, scores
        What was decided, on what.
    sep
        What stands between several labels; None makes lists.
    all_labels
        Whether ancestors are labels, too.
    alternatives
        How many of the likeliest leaves that were not predicted to add.
    several
        Whether there is a column for the probabilities of all labels.
    write
        Writes labels and alternatives in another way than by their names.
    uris
        Whether there are columns for the URIs and notations of labels.

    Returns
    -------
    dict of arrays

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> s = Scores(h, [[0.75, 0.5, 0.25]])
    >>> from treelabel.rules import decide
    >>> [column[0].as_py() for column in prediction_columns(decide(s), s, "; ", alternatives=1).values()]
    ['B', 'A > B', 0.5, 'A', 'B', 'C', 0.25]
    """
    h = decisions.hierarchy
    labels = chosen_labels(decisions, scores, all_labels)
    columns = {
        "predicted": _cells(labels, labels.names(write=write), sep),
        "path": _cells(labels, labels.names(paths=True), sep),
        "p": _nth(labels, 0)[1] if sep is not None else labels.lists(pa.array(labels.p)),
    }
    if several and sep is not None and labels.p is not None:
        columns["all_p"] = _cells(labels, number_texts(labels.p), sep)
    for name, texts in (labels.identifiers() if uris else {}).items():
        columns[name] = _cells(labels, pc.fill_null(texts.cast(pa.large_string()), ""), sep)
    closed = decisions.csr if decisions.closed else h.closure(decisions.csr)
    for depth in range(1, h.max_depth + 1):
        level = h.level(depth)
        part = closed[:, level]
        nodes = WrittenLabels(h, part.indptr.astype(np.int64), part.indices + np.int32(level.start), None)
        columns[f"level{depth}"] = _cells(nodes, nodes.names(), sep)
    if alternatives:
        others = runner_up_labels(decisions, scores, alternatives)
        for rank in range(alternatives):
            names, p = _nth(others, rank, not h.has_unique_names, write)
            columns |= {f"alternative{rank + 1}": names, f"alternative{rank + 1}_p": p}
    return columns


def _cells(labels: WrittenLabels, texts: pa.Array, sep: str | None) -> pa.Array:
    """Put the texts of each document into one cell, where nothing is null; or into a list."""
    sizes = np.diff(labels.ptr)
    texts = texts.cast(pa.large_string())
    if sep is None:
        return labels.lists(texts)
    if len(sizes) and sizes.min() == 1 == sizes.max():
        return texts
    cells = pc.binary_join(labels.lists(texts), pa.scalar(sep, pa.large_string()))
    return pc.if_else(pa.array(sizes > 0), cells, pa.scalar(None, pa.large_string()))


def _nth(
    labels: WrittenLabels, rank: int, paths: bool = False, write: Writer | None = None
) -> tuple[pa.Array, pa.Array]:
    """Return one label of each document, counted from the likeliest, and its score; nothing is null."""
    index = labels.ptr[:-1] + rank
    taken = pa.array(index, mask=index >= labels.ptr[1:])
    p = np.zeros(0) if labels.p is None else labels.p
    return labels.names(paths, write).cast(pa.large_string()).take(taken), pa.array(p).take(taken)
