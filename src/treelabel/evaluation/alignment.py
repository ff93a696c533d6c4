"""Align truth, decisions and scores: the same hierarchy, the same documents in the same order."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError, some
from treelabel.core.types import BoolArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import encode
from treelabel.hierarchy.label_matrices import (
    LabelMatrix,
    as_labels,
    keep_entries,
    matches,
    renumber_columns,
    row_numbers,
    row_sizes,
)
from treelabel.hierarchy.union import join_hierarchies, nodes_in, require_nodes_in
from treelabel.rules.decisions import Decisions
from treelabel.scores.score_matrix import Scores


@dataclass(frozen=True, eq=False)
class Answered:
    """Documents as a model answers them: their scores, and the decisions that it makes of these by its own rule.

    `is_hierarchy_of_labels` says that labels which the model has never seen may be added to its hierarchy.
    """

    scores: Scores
    decisions: Decisions
    ids: Sequence[str] | None = None
    is_hierarchy_of_labels: bool = False

    @property
    def hierarchy(self) -> Hierarchy:
        """The hierarchy of the model."""
        return self.scores.hierarchy

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, rows: Any) -> "Answered":
        """Select documents by slice or row numbers."""
        ids = self.ids
        if ids is not None:
            ids = ids[rows] if isinstance(rows, slice) else [ids[row] for row in rows]
        return Answered(self.scores[rows], self.decisions[rows], ids, self.is_hierarchy_of_labels)


def judged_as(system: Any) -> dict[str, Any]:
    """Return the arguments of `evaluate` for a system: its scores, its decisions, or both."""
    if isinstance(system, Answered):
        return {"scores": system.scores, "decisions": system.decisions}
    return {"scores": system} if isinstance(system, Scores) else {"decisions": system}


def common_hierarchy(*things: Any, train: Any = None) -> Hierarchy:
    """Find the one hierarchy of things of which some have one, or are one.

    Hierarchies that were given must be the same. Where one was made of labels, for want of a taxonomy, they are joined
    by path: training and test data rarely have the same labels. The first one's nodes stay in their order.

    Parameters
    ----------
    *things
        Hierarchies, Scores, Decisions, Datasets, or None.
    train
        The training Dataset, if there is one.

    Returns
    -------
    Hierarchy
    """
    result = [(thing if isinstance(thing, Hierarchy) else getattr(thing, "hierarchy", None)) for thing in things]
    known = [hierarchy for hierarchy in result if hierarchy is not None]
    if not known:
        raise TreelabelError("a hierarchy is needed: pass hierarchy=, or truth, decisions or scores that have one")
    is_joined = any(getattr(thing, "is_hierarchy_of_labels", False) for thing in (*things, train))
    others = [(other, "one of truth, decisions and scores") for other in known[1:]]
    others += [(train.hierarchy, "the training data")] if hasattr(train, "hierarchy") else []
    union = known[0]
    for other, what in others:
        if is_joined:
            union = join_hierarchies(union, other, what)
        else:
            union.require_same(other.fingerprint, what)
    return union


def label_sets(labels: Any, hierarchy: Hierarchy, what: str) -> LabelMatrix:
    """Convert label sets from any of their forms to a label matrix.

    Parameters
    ----------
    labels
        A label matrix, Decisions, a Dataset, or one list of labels per document.
    hierarchy
        The hierarchy of the labels.
    what
        How messages call them.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    source = getattr(labels, "hierarchy", None)
    if source is not None and (isinstance(labels, Decisions) or hasattr(labels, "labels")):
        sets = labels.csr if isinstance(labels, Decisions) else labels.labels
        sets = as_labels(sets, len(source), what)
        return (
            sets
            if source == hierarchy
            else renumber_columns(sets, require_nodes_in(source, hierarchy, what), len(hierarchy))
        )
    if sparse.issparse(labels) or (isinstance(labels, np.ndarray) and labels.dtype.kind not in "UOT"):
        return as_labels(labels, len(hierarchy), what)
    return encode(hierarchy, labels)


def closed_where(hierarchy: Hierarchy, labels: LabelMatrix, rows: BoolArray) -> LabelMatrix:
    """Add all ancestors to the labels of some documents: those whose labels stand for them too.

    Parameters
    ----------
    hierarchy
        The hierarchy of the labels.
    rows : array of bool, shape (documents,)
        Marks these documents.

    Returns
    -------
    label matrix of the same shape

    >>> h = Hierarchy.from_paths(["A > B"])
    >>> closed_where(h, encode(h, ["B", "B"]), np.array([True, False])).toarray().tolist()
    [[True, True], [False, True]]
    """
    if not rows.any():
        return labels
    closed = hierarchy.closure(labels)
    return keep_entries(closed, rows[row_numbers(closed)] | matches(labels, closed))


def rows_by_id(truth: Any, ids: Sequence[str] | None, where: str) -> list[int] | None:
    """Find the row of each true document among documents with ids; None where rows are matched by their order.

    They are if one side has no ids, if both have the same ids in the same order, and if the ids do not fit but those of
    one side are nothing but row numbers.

    Parameters
    ----------
    truth
        What may have `ids`, such as a Dataset.
    ids
        The ids of the other documents.
    where
        How messages call these.

    Returns
    -------
    list of int or None
    """
    names = getattr(truth, "ids", None)
    if names is None or ids is None:
        return None
    wanted, others = list(names), list(ids)
    if wanted == others:
        return None
    row = {name: index for index, name in enumerate(others)}
    missing = [name for name in wanted if name not in row]
    if missing:
        if any(listed == list(map(str, range(len(listed)))) for listed in (wanted, others)):
            return None
        raise TreelabelError(
            f"{where}: no prediction for {len(missing):,} of {len(wanted):,} documents: ids {some(missing)}"
        )
    for listed, what in ((others, where), (wanted, "the truth")):
        last = {name: index for index, name in enumerate(listed)}
        twice = next((name for index, name in enumerate(listed) if last[name] != index), None)
        if twice is not None:
            raise TreelabelError(f"{what}: the id {twice!r} stands twice, so documents cannot be matched by id")
    return [row[name] for name in wanted]


def in_order(truth: Any, result: Any, what: str) -> Any:
    """Bring documents that have ids into the order of the truth.

    Parameters
    ----------
    truth
        What may have `ids`, such as a Dataset.
    result
        Scores or Decisions.
    what
        How messages call them.

    Returns
    -------
    Scores or Decisions
    """
    rows = rows_by_id(truth, getattr(result, "ids", None), what)
    return result if rows is None else result[rows]


def _known_part(truth: Any, known: Hierarchy) -> LabelMatrix:
    """Return the true labels that a hierarchy has; of one that it does not have, the ancestors that it has."""
    h = common_hierarchy(known, truth)
    true = label_sets(truth, h, "truth")
    if h == known:
        return true
    back = np.full(len(h), -1, np.int32)
    back[nodes_in(known, h)] = np.arange(len(known))
    closed = h.closure(true)
    known_labels = keep_entries(closed, back[closed.indices] >= 0)
    lost = int(np.count_nonzero(row_sizes(closed) > row_sizes(known_labels)))
    if lost:
        unseen = np.unique(closed.indices[back[closed.indices] < 0])
        warnings.warn(
            f"labels of the truth ({lost:,} of {len(closed.indptr) - 1:,} documents) are not known to the scores, so "
            f"that no rule can predict them: {some(h.paths(unseen))}",
            stacklevel=4,
        )
    return renumber_columns(known_labels, back, len(known))


def has_label(truth: Any, known: Hierarchy) -> BoolArray:
    """Mark the documents that have a label, be it one that a hierarchy does not know."""
    marks: BoolArray = row_sizes(label_sets(truth, common_hierarchy(known, truth), "truth")) > 0
    return marks


def validation(truth: Any, scores: Scores) -> tuple[Scores, LabelMatrix]:
    """Return the scores of validation documents in the order of the truth, and the closed truth.

    Parameters
    ----------
    truth
        A Dataset, or one list of labels per document.
    scores
        The scores of the same documents.

    Returns
    -------
    (Scores, label matrix)
    """
    if not isinstance(scores, Scores):
        raise TreelabelError(f"expected Scores(hierarchy, matrix) to tune on, found {type(scores).__name__}")
    h = scores.hierarchy
    true = h.closure(_known_part(truth, h))
    aligned: Scores = in_order(truth, scores, "scores")
    if len(aligned) != true.shape[0]:
        raise TreelabelError(f"truth has {true.shape[0]:,} documents, scores have {len(aligned):,}")
    if not len(aligned):
        raise TreelabelError("there are no validation documents to tune on")
    return aligned, true
