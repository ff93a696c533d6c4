"""Texts with labels in a hierarchy, and their regime: single paths, paths that may end inside, or anything."""

from functools import cached_property
from typing import Final, Literal, get_args

import numpy as np

from treelabel.core.strings import Strings
from treelabel.core.types import IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes

Regime = Literal["single_path", "partial_path", "multi_path"]

REGIMES: Final[tuple[Regime, ...]] = get_args(Regime)

# The share of documents that must fit a regime for it to be the usual one: a few irregular rows change nothing.
USUAL_SHARE: Final = 0.95


class LabelledTexts:
    """A base for frozen dataclasses that have these three fields: one text and one row of labels per document."""

    texts: Strings
    labels: LabelMatrix
    hierarchy: Hierarchy

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def closed_labels(self) -> LabelMatrix:
        """The labels with all their ancestors."""
        return self.hierarchy.closure(self.labels)

    @cached_property
    def frequencies(self) -> LongArray:
        """The number of documents that carry each node, ancestors included."""
        return np.bincount(self.closed_labels.indices, minlength=len(self.hierarchy)).astype(np.int64)


def regime_of(hierarchy: Hierarchy, labels: LabelMatrix) -> Regime:
    """Return the regime of all documents together, by their most specific labels.

    Parameters
    ----------
    hierarchy : Hierarchy
        In a DAG a label may have several ways up; it counts as one path here, as it excludes all other labels.
    labels : LabelMatrix, documents x nodes
        As given or closed.

    Returns
    -------
    Regime
        "multi_path" if any document has several most specific labels, "single_path" if all labels are leaves.

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> regime_of(h, h.closure([[0, 0, 1], [0, 1, 0]])), regime_of(h, h.closure([[1, 0, 0]]))
    ('single_path', 'partial_path')
    """
    return usual_regime(hierarchy, labels, share=1)


def usual_regime(hierarchy: Hierarchy, labels: LabelMatrix, share: float = USUAL_SHARE) -> Regime:
    """Return the narrowest regime that fits at least a share of the documents; those without labels do not count.

    A single path fits all regimes, a path that ends inside all but "single_path". With a share of 1 this is
    `regime_of`.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG; as for `regime_of`, one most specific label is one path.
    labels : LabelMatrix, documents x nodes
        As given or closed.
    share : float
        Above 0 and at most 1.

    Returns
    -------
    Regime

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> rows = h.closure([[0, 0, 1]] * 97 + [[1, 1, 0]] * 3)
    >>> usual_regime(h, rows), usual_regime(h, rows, share=0.98)
    ('single_path', 'multi_path')
    """
    return usual_of(count_regimes(hierarchy, labels), share)


def count_regimes(hierarchy: Hierarchy, labels: LabelMatrix) -> LongArray:
    """Count documents with labels, those with one most specific label, and those of which that is a leaf.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.
    labels : LabelMatrix, documents x nodes
        As given or closed.

    Returns
    -------
    array of shape (3,)
        Counts of several batches add up.
    """
    terminal = hierarchy.most_specific(labels)
    sizes = row_sizes(terminal)
    single = np.flatnonzero(sizes == 1)
    in_leaf = hierarchy.is_leaf[terminal.indices[terminal.indptr[single]]].sum()
    return np.array([(sizes > 0).sum(), len(single), in_leaf], np.int64)


def usual_of(counts: LongArray, share: float = USUAL_SHARE) -> Regime:
    """Return the usual regime of documents that `count_regimes` counted; see `usual_regime`.

    Parameters
    ----------
    counts
        What `count_regimes` returned.
    share
        Above 0 and at most 1.

    Returns
    -------
    Regime
    """
    labelled, single, in_leaf = counts.tolist()
    least = share * labelled
    if least and in_leaf >= least:
        return "single_path"
    return "partial_path" if single >= least else "multi_path"


def stop_nodes(hierarchy: Hierarchy, labels: LabelMatrix) -> IntArray:
    """Return the inner nodes at which the paths of some documents end.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.
    labels : LabelMatrix, documents x nodes
        As given or closed.

    Returns
    -------
    array of node ids, rising

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> stop_nodes(h, h.closure([[0, 0, 1], [1, 0, 0]])).tolist()
    [0]
    """
    terminal = np.unique(hierarchy.most_specific(labels).indices)
    inner: IntArray = terminal[~hierarchy.is_leaf[terminal]].astype(np.int32)
    return inner


def document_regimes(hierarchy: Hierarchy, labels: LabelMatrix, closed: LabelMatrix) -> IntArray:
    """Return the regime of each document as its index in REGIMES, -1 for documents without labels.

    A closed set is a path if it has as many nodes as its deepest one is deep; in a DAG the closure of a single label
    need not be one.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.
    labels, closed : LabelMatrix, documents x nodes
        The labels as given, and with all ancestors.

    Returns
    -------
    array of int32, shape (documents,)

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> rows = h.closure([[0, 0, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    >>> document_regimes(h, rows, rows).tolist()
    [0, 1, 2, -1]
    """
    regimes = np.where(row_sizes(labels) > 0, 2, -1).astype(np.int32)
    terminal = hierarchy.most_specific(labels)
    rows = np.flatnonzero(row_sizes(terminal) == 1)
    node = terminal.indices[terminal.indptr[rows]]
    is_path = row_sizes(closed)[rows] == hierarchy.depth[node]
    regimes[rows[is_path]] = np.where(hierarchy.is_leaf[node[is_path]], 0, 1)
    return regimes
