"""Batches of texts of similar length, so that little of a batch is padding."""

from collections.abc import Sequence

import numpy as np

from treelabel.core.types import LongArray


def token_batches(lengths: Sequence[int], max_tokens: int = 2048, max_rows: int = 32) -> list[LongArray]:
    """Group texts by length, longest first.

    Parameters
    ----------
    lengths
        The number of tokens of each text.
    max_tokens
        A batch of k texts has k · (longest of them) tokens, at most this many unless it is a single text.
    max_rows
        The most texts in a batch.

    Returns
    -------
    list[LongArray]
        The row numbers of the texts in each batch.

    >>> [batch.tolist() for batch in token_batches([1, 5, 2, 5, 3], max_tokens=10)]
    [[1, 3], [4, 2, 0]]
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + min(max_rows, max(1, max_tokens // longest))
        batches.append(order[start:stop])
        start = stop
    return batches


def equal_batches(lengths: Sequence[int], max_tokens: int) -> list[LongArray]:
    """Group texts of exactly the same length, longest first: nothing is padded.

    Parameters
    ----------
    lengths
        The number of tokens of each text.
    max_tokens
        The most tokens in a batch, unless it is a single text.

    Returns
    -------
    list[LongArray]
        The row numbers of the texts in each batch.

    >>> [batch.tolist() for batch in equal_batches([1, 5, 2, 5, 5], max_tokens=10)]
    [[1, 3], [4], [2], [0]]
    """
    counts = np.asarray(lengths, np.int64)
    batches = []
    for length in np.unique(counts)[::-1]:
        places = np.flatnonzero(counts == length)
        rows = max(1, max_tokens // max(1, int(length)))
        batches += [places[start : start + rows] for start in range(0, len(places), rows)]
    return batches
