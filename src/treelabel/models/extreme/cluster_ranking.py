"""Ranking behind a matcher: which documents rankers are shown, and the margins of labels in a document's clusters."""

from typing import Literal

import numpy as np
from scipy import sparse

from treelabel.core.compute import over_rows
from treelabel.core.matrices import normalize_rows
from treelabel.core.types import FloatArray, LongArray
from treelabel.models.extreme.beam import BATCH, margins_of
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.rankers import Rankers

Negatives = Literal["gold", "matcher", "both"]


def best_clusters(margins: FloatArray, count: int) -> sparse.csr_array:
    """Mark the clusters with the largest margins.

    Parameters
    ----------
    margins
        Documents × clusters.
    count
        How many of each document.

    Returns
    -------
    csr_array
        Boolean, documents × clusters.

    >>> best_clusters(np.array([[0.5, -1.0, 2.0]]), 2).toarray().tolist()
    [[True, False, True]]
    """
    documents, clusters = margins.shape
    count = min(count, clusters)
    # Ties go to the first, so that the same margins always have the same clusters.
    best = np.sort(np.argsort(-margins, axis=1, kind="stable")[:, :count], axis=1)
    ones = np.ones(best.size, np.bool_)
    return sparse.csr_array((ones, best.ravel().astype(np.int32), np.arange(documents + 1) * count), margins.shape)


def joined_features(tfidf: sparse.csr_array, vectors: FloatArray) -> sparse.csr_array:
    """Put tf-idf and text vectors side by side, each scaled to length 1, and then both together.

    Parameters
    ----------
    tfidf
        Documents × n-grams.
    vectors
        Documents × width.

    Returns
    -------
    csr_array
        float32, documents × (n-grams + width).
    """
    both = sparse.hstack([normalize_rows(tfidf), sparse.csr_array(normalize_rows(vectors))], format="csr")
    rows = sparse.csr_array(normalize_rows(both), dtype=np.float32)
    rows.sort_indices()
    return rows


def shown_documents(true: sparse.csr_array, beam: sparse.csr_array, negatives: Negatives) -> sparse.csr_array:
    """Mark the documents that the rankers of each cluster learn from.

    Parameters
    ----------
    true
        The clusters of true labels, documents × clusters (teacher-forced negatives).
    beam
        The clusters that the matcher finds (matcher-aware negatives).
    negatives
        Which of them.

    Returns
    -------
    csr_array
        Boolean, documents × clusters.
    """
    if negatives == "both":
        return sparse.csr_array(true + beam)
    return true if negatives == "gold" else beam


def rank(features: sparse.csr_array, beam: sparse.csr_array, tree: LabelTree, rankers: Rankers) -> sparse.csr_array:
    """Compute the margins of the labels in some clusters of each document; others are not looked at.

    Parameters
    ----------
    features
        Documents × features.
    beam
        The clusters of each document, documents × clusters.
    tree
        The clusters.

    Returns
    -------
    csr_array
        Documents × labels, in the order of the tree; what is not stored was not looked at.
    """
    children = tree.children[1]

    def some(start: int, stop: int) -> tuple[LongArray, FloatArray]:
        part = slice(beam.indptr[start], beam.indptr[stop])
        documents = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(beam.indptr[start : stop + 1]))
        return margins_of(features, documents, beam.indices[part], children, rankers)

    parts = over_rows(some, beam.shape[0], least=64, most=BATCH)
    sizes = np.concatenate([np.diff(offsets) for offsets, _ in parts])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    places = np.arange(ends[-1]) - np.repeat(ends[:-1] - children[beam.indices], sizes)
    margins = np.concatenate([margins for _, margins in parts])
    return sparse.csr_array((margins, places.astype(np.int32), ends[beam.indptr]), (beam.shape[0], children[-1]))
