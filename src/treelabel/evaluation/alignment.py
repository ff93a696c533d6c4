"""Align truth, decisions and scores: the same hierarchy, the same documents in the same order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import BoolArray
from treelabel.core.errors import TreelabelError, some
from treelabel.hierarchy import Hierarchy, LabelMatrix, as_labels, keep_entries, matches, row_numbers
from treelabel.hierarchy.labels import encode
from treelabel.rules import Decisions
from treelabel.scores import Scores


def common_hierarchy(*things: Any) -> Hierarchy:
    """Find the one hierarchy of things of which some have one, or are one."""
    found = [thing if isinstance(thing, Hierarchy) else getattr(thing, "hierarchy", None) for thing in things]
    known = [hierarchy for hierarchy in found if hierarchy is not None]
    if not known:
        raise TreelabelError("a hierarchy is needed: pass hierarchy=, or truth, decisions or scores that have one")
    for other in known[1:]:
        known[0].require_same(other.fingerprint, "one of truth, decisions and scores")
    return known[0]


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
    if isinstance(labels, Decisions):
        return labels.csr
    if hasattr(labels, "labels") and hasattr(labels, "hierarchy"):
        return labels.labels
    if sparse.issparse(labels) or (isinstance(labels, np.ndarray) and labels.dtype.kind not in "UOT"):
        return as_labels(labels, len(hierarchy), what)
    return encode(hierarchy, labels)


def closed_where(hierarchy: Hierarchy, labels: LabelMatrix, rows: BoolArray) -> LabelMatrix:
    """Add all ancestors to the labels of some documents: those whose labels stand for them too.

    Parameters
    ----------
    hierarchy
        The hierarchy of the labels.
    labels : label matrix of shape (documents, nodes)
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
    wanted, given = list(names), list(ids)
    if wanted == given:
        return None
    row = {name: at for at, name in enumerate(given)}
    missing = [name for name in wanted if name not in row]
    if missing:
        if any(listed == list(map(str, range(len(listed)))) for listed in (wanted, given)):
            return None
        raise TreelabelError(
            f"{where}: no prediction for {len(missing):,} of {len(wanted):,} documents: ids {some(missing)}"
        )
    for listed, what in ((given, where), (wanted, "the truth")):
        last = {name: at for at, name in enumerate(listed)}
        twice = next((name for at, name in enumerate(listed) if last[name] != at), None)
        if twice is not None:
            raise TreelabelError(f"{what}: the id {twice!r} stands twice, so documents cannot be matched by id")
    return [row[name] for name in wanted]


def in_order(truth: Any, found: Any, what: str) -> Any:
    """Bring documents that have ids into the order of the truth.

    Parameters
    ----------
    truth
        What may have `ids`, such as a Dataset.
    found
        Scores or Decisions.
    what
        How messages call them.

    Returns
    -------
    Scores or Decisions
    """
    rows = rows_by_id(truth, getattr(found, "ids", None), what)
    return found if rows is None else found[rows]


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
    h = common_hierarchy(scores, truth)
    true = h.closure(label_sets(truth, h, "truth"))
    kept: Scores = in_order(truth, scores, "scores")
    if len(kept) != true.shape[0]:
        raise TreelabelError(f"truth has {true.shape[0]:,} documents, scores have {len(kept):,}")
    if not len(kept):
        raise TreelabelError("there are no validation documents to tune on")
    return kept, true
