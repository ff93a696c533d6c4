"""Balanced recursive k-means: labels with similar features come into the same clusters of about the same size."""

from itertools import pairwise

import numpy as np
from scipy import sparse

from treelabel.core.compute import FloatArray, IntArray, LongArray, in_threads, kernel
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.rows import compact_rows

# Passes of 2-means at most, and the least rise of the mean cosine for another one.
MOST_PASSES = 20
LEAST_RISE = 1e-4


def cluster_labels(features: sparse.csr_array, sizes: list[int], seed: int = 0) -> LabelTree:
    """Cluster labels into a tree with the given number of nodes on each level above the labels.

    Each cluster is divided by balanced spherical 2-means, again and again, until there are enough; the sizes of
    clusters of a level differ by 1 at most. Costs about features of all labels x log2(clusters) x 10 passes.

    Parameters
    ----------
    features : csr_array of shape (labels, features)
        Rows of length 1, or 0 for labels that nothing is known of.
    sizes : list of int
        The number of nodes of each level, increasing; empty for a tree without clusters.
    seed : int
        Seed of the first centres.

    Returns
    -------
    LabelTree
        The levels of `sizes`, and the labels.

    >>> rows = sparse.csr_array(np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]], np.float32))
    >>> cluster_labels(rows, [2]).labels.tolist() in ([0, 2, 1, 3], [1, 3, 0, 2])
    True
    """
    count = features.shape[0]
    counts = [min(size, count) for size in sizes if size > 1]
    order = np.arange(count, dtype=np.int32)
    ends, children = np.array([0, count]), []
    for wanted in counts:
        # Each cluster is divided into as many as its share of labels.
        inner = np.round(np.linspace(0, wanted, len(ends))).astype(np.int64)
        children.append(inner)
        ends = _divide(features, order, ends, np.diff(inner), seed)
        seed += 1
    children.append(ends.astype(np.int64))
    return LabelTree(tuple(children), order)


def _divide(features: sparse.csr_array, order: IntArray, ends: LongArray, parts: LongArray, seed: int) -> LongArray:
    """Divide each cluster order[ends[j]:ends[j + 1]] into parts[j] in place; return where the new ones end."""
    # (first label, one past the last, number of parts), in order.
    waiting = [(int(low), int(high), int(many)) for (low, high), many in zip(pairwise(ends), parts, strict=True)]
    idx, val, ptr = features.indices, features.data, features.indptr
    while any(many > 1 for *_, many in waiting):

        def split(task: tuple[int, int, int]) -> list[tuple[int, int, int]]:
            low, high, many = task
            if many == 1:
                return [task]
            left = many // 2
            first = round((high - low) * left / many)
            order[low:high] = halve(ptr, idx, val, order[low:high], first, seed + low, features.shape[1])
            return [(low, low + first, left), (low + first, high, many - left)]

        waiting = [part for found in in_threads(split, waiting) for part in found]
    return np.array([0, *(high for _, high, _ in waiting)], np.int64)


@kernel
def halve(
    ptr: IntArray, idx: IntArray, val: FloatArray, labels: IntArray, first: int, seed: int, width: int
) -> IntArray:
    """Divide labels into `first` of them and the others by balanced spherical 2-means; return the former first.

    Centres are the sums of their labels, scaled to length 1; the labels that are nearest to one centre, compared with
    the other, come to it.
    """
    count = len(labels)
    starts, places, values, names = compact_rows(ptr, idx, val, labels, width)
    np.random.seed(seed % 2**31)
    one = np.random.randint(count)
    two = (one + 1 + np.random.randint(max(1, count - 1))) % count
    centres = np.zeros((2, len(names)), np.float32)
    for side, label in enumerate((one, two)):
        for at in range(starts[label], starts[label + 1]):
            centres[side, places[at]] = values[at]
    nearness, before = np.zeros(count, np.float32), -2.0
    order = np.arange(count)
    for _ in range(MOST_PASSES):
        difference = centres[0] - centres[1]
        for label in range(count):
            found = np.float32(0)
            for at in range(starts[label], starts[label + 1]):
                found += values[at] * difference[places[at]]
            nearness[label] = found
        order = np.argsort(-nearness, kind="mergesort")
        rise = (nearness[order[:first]].sum() - nearness[order[first:]].sum()) / count - before
        if rise < LEAST_RISE:
            break
        before += rise
        centres[:] = 0
        for rank in range(count):
            label, side = order[rank], 0 if rank < first else 1
            for at in range(starts[label], starts[label + 1]):
                centres[side, places[at]] += values[at]
        for side in range(2):
            centres[side] /= max(np.float32(1e-15), np.sqrt((centres[side] ** 2).sum()))
    return labels[order]
