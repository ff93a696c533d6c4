"""Batches of texts of about the same length, so that little of a batch is padding."""

from collections.abc import Sequence

import numpy as np

from treelabel.core.compute import LongArray


def token_batches(lengths: Sequence[int], most_tokens: int = 2048, most_rows: int = 32) -> list[LongArray]:
    """Group texts of so many tokens by length, longest first; give the places of each group's texts.

    A group of k texts takes k·(longest of them) tokens, at most `most_tokens` unless it is one text alone.

    >>> [batch.tolist() for batch in token_batches([1, 5, 2, 5, 3], most_tokens=10)]
    [[1, 3], [4, 2, 0]]
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    batches, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = start + min(most_rows, max(1, most_tokens // longest))
        batches.append(order[start:stop])
        start = stop
    return batches


def equal_batches(lengths: Sequence[int], most_tokens: int) -> list[LongArray]:
    """Group texts of exactly the same length, longest first: nothing is padded.

    >>> [batch.tolist() for batch in equal_batches([1, 5, 2, 5, 5], most_tokens=10)]
    [[1, 3], [4], [2], [0]]
    """
    counts = np.asarray(lengths, np.int64)
    batches = []
    for length in np.unique(counts)[::-1]:
        places = np.flatnonzero(counts == length)
        rows = max(1, most_tokens // max(1, int(length)))
        batches += [places[start : start + rows] for start in range(0, len(places), rows)]
    return batches
