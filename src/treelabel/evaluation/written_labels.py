"""Labels of many documents on their way into a file: by arrays, surest first, with scores of seven digits."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_numbers, row_sizes
from treelabel.rules.decisions import Decisions
from treelabel.scores.score_matrix import Scores

# From this score on, seven digits are found without a loop: float32 times a power of ten is exact in double precision.
LEAST_EXACT = 1e-4


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

    def names(self, paths: bool = False) -> pa.DictionaryArray:
        """Return the name, or the path, of every label."""
        used, index = self._used
        names = self.hierarchy.paths(used) if paths else [self.hierarchy.names[node] for node in used.tolist()]
        return pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), pa.array(names, pa.large_string()))

    @cached_property
    def _used(self) -> tuple[LongArray, IntArray]:
        """The nodes that occur, and which of these each label is."""
        is_used = np.zeros(len(self.hierarchy), np.bool_)
        is_used[self.nodes] = True
        used = np.flatnonzero(is_used)
        return used, (np.cumsum(is_used, dtype=np.int32) - 1)[self.nodes]

    def objects(self) -> pa.LargeListArray:
        """Make one list per document of {"label": name, "path": "A > B", "p": 0.93}."""
        fields = {"label": self.names(), "path": self.names(paths=True)}
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
            labels = _rows_of(decisions.most_specific, decisions.csr, decisions.closed_rows)
    return sorted_labels(decisions.hierarchy, labels, None if scores is None else scores_at(scores, labels))


def _rows_of(one: LabelMatrix, other: LabelMatrix, take_one: BoolArray) -> LabelMatrix:
    """Take some rows of one matrix and the rest of another."""
    both = sparse.vstack([one, other], format="csr")
    rows = np.arange(len(take_one))
    return both[np.where(take_one, rows, rows + len(take_one))]


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
    rows, predicted = row_numbers(decisions.csr), decisions.csr.indices
    if scores.is_sparse:
        values = scores.values.copy()
        taken = np.isin(_keys(row_numbers(values), values.indices, len(h)), _keys(rows, predicted, len(h)))
        values.data[taken | ~h.is_leaf[values.indices]] = 0
        values.eliminate_zeros()
    else:
        values = scores.values * h.is_leaf
        values[rows, predicted] = 0
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


def scores_at(scores: Scores, labels: LabelMatrix) -> DoubleArray:
    """Look up the scores of labels; what is not stored is 0.

    Parameters
    ----------
    labels
        Labels of the same documents.

    Returns
    -------
    array of one score per label
    """
    rows, values = row_numbers(labels), scores.values
    if not scores.is_sparse:
        return np.asarray(values[rows, labels.indices], np.float64)
    width = labels.shape[1]
    stored, wanted = _keys(row_numbers(values), values.indices, width), _keys(rows, labels.indices, width)
    result = np.zeros(len(wanted))
    if len(stored):
        index = np.minimum(np.searchsorted(stored, wanted), len(stored) - 1)
        is_stored = stored[index] == wanted
        result[is_stored] = values.data[index[is_stored]]
    return result


def _keys(rows: Any, nodes: Any, width: int) -> LongArray:
    keys: LongArray = np.asarray(rows, np.int64) * width + nodes
    return keys


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
