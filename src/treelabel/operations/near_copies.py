"""Texts that are nearly the same: nearest neighbours by tf-idf of words, above a cosine."""

from typing import Final

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.models.neighbours import SparseStore
from treelabel.text import NgramShape, Tfidf

# The search goes through all texts for each of them: seconds for this many; of more, only equal texts are known.
MOST_TEXTS: Final = 50_000
NEIGHBOURS: Final = 5
# Candidates are found by words that at most this many texts have, which all copies share; others take long to compare.
MOST_SHARED: Final = 100


def near_copies(texts: Strings, codes: LongArray, least: float = 0.95) -> LongArray:
    """Number texts so that equal and nearly equal ones have the same number.

    Parameters
    ----------
    texts : Strings
        The texts.
    codes : array of shape (texts,)
        Equal numbers for equal texts, -1 for empty ones.
    least : float
        The cosine of tf-idf of words from which on two texts are nearly the same.

    Returns
    -------
    array of shape (texts,)
        Numbers from 0 on, and -1 for empty texts. With more than 50,000 texts these are `codes`.

    >>> texts = Strings.of(["the cat sat on the mat today", "The cat sat on the mat, today", "dogs bark"])
    >>> near_copies(texts, np.array([0, 1, 2])).tolist()
    [0, 0, 1]
    """
    if not 0 < len(texts) <= MOST_TEXTS or (codes < 0).all():
        return codes
    _, first = np.unique(codes, return_index=True)
    first = first[codes[first] >= 0]
    _, rows = Tfidf.fit_transform(texts.take(first), NgramShape((1, 1)))
    rare = _rare(rows)
    alone = np.arange(len(first), dtype=np.int64)
    found = SparseStore(rare).nearest(rare, NEIGHBOURS, alone, alone)
    one, place = np.nonzero((found.rows >= 0) & (found.cosines >= least / 2))
    other = found.rows[one, place]
    is_near = np.asarray(rows[one].multiply(rows[other]).sum(axis=1)).ravel() >= least
    pairs = one[is_near], other[is_near]
    graph = sparse.csr_array((np.ones(len(pairs[0]), np.int8), pairs), (len(first),) * 2)
    number = csgraph.connected_components(graph, directed=False)[1]
    joined = np.full(codes.max() + 1, -1, np.int64)
    joined[codes[first]] = number
    return np.where(codes >= 0, joined[np.maximum(codes, 0)], -1)


def _rare(rows: sparse.csr_array) -> sparse.csr_array:
    """Keep the n-grams that some but few texts share, in rows of length 1."""
    frequency = np.bincount(rows.indices, minlength=rows.shape[1])
    kept = sparse.csr_array(rows[:, np.flatnonzero((frequency > 1) & (frequency <= MOST_SHARED))])
    length = np.sqrt(np.asarray(kept.multiply(kept).sum(axis=1)).ravel())
    kept.data = (kept.data / np.repeat(np.maximum(length, 1e-30), np.diff(kept.indptr))).astype(np.float32)
    return kept
