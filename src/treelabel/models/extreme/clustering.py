"""Balanced recursive k-means: labels with similar features come into the same clusters of about the same size."""

from itertools import pairwise

import numpy as np
from scipy import sparse

from treelabel.core.compute import in_threads, kernel
from treelabel.core.types import FloatArray, IntArray, LongArray
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.rows import compact_rows

# Passes of 2-means at most, and by how much more labels must be nearer to their own centre than to the other, on
# average, for another one.
MOST_PASSES = 20
LEAST_RISE = 1e-4


def cluster_labels(features: sparse.csr_array, sizes: list[int], seed: int = 0) -> LabelTree:
    """Cluster labels into a tree with the given number of nodes on each level above the labels.

    Each cluster is divided by balanced spherical 2-means, again and again, until there are enough; those of
    the last level differ by one label at most. Costs about features of all labels x log2(clusters) x 10 passes.

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
    >>> sorted(sorted(part.tolist()) for part in np.split(cluster_labels(rows, [2]).labels, 2))
    [[0, 2], [1, 3]]
    """
    count = features.shape[0]
    counts = sorted({min(size, count) for size in sizes if size > 1})
    order = np.arange(count, dtype=np.int32)
    # Where labels of each cluster begin and end: those of the last level are alike, others are made of whole ones.
    ends = np.round(np.linspace(0, count, (counts or [1])[-1] + 1)).astype(np.int64)
    children, borders = [ends], [ends]
    for fewer in [*counts[-2::-1], 1] if counts else []:
        below = np.round(np.linspace(0, len(borders[0]) - 1, fewer + 1)).astype(np.int64)
        children.insert(0, below)
        borders.insert(0, borders[0][below])
    for level in range(len(counts)):
        _divide(features, order, children[level], borders[level + 1], seed + level)
    return LabelTree(tuple(children), order)


def _divide(features: sparse.csr_array, order: IntArray, parents: LongArray, ends: LongArray, seed: int) -> None:
    """Divide the labels of each parent into its clusters, in place, by halves of its clusters and their halves.

    Parameters
    ----------
    features : csr_array of shape (labels, features)
        Features of labels.
    order : array of int32
        The labels, those of a parent side by side.
    parents : array of shape (parents + 1,)
        The clusters of each parent.
    ends : array of shape (clusters + 1,)
        The labels of each cluster.
    seed : int
        Seed of the first centres.
    """
    idx, val, ptr = features.indices, features.data, features.indptr

    def split(task: tuple[int, int]) -> list[tuple[int, int]]:
        first, last = task
        middle = (first + last) // 2
        low, high = int(ends[first]), int(ends[last])
        order[low:high] = halve(ptr, idx, val, order[low:high], int(ends[middle]) - low, seed + low, features.shape[1])
        return [(first, middle), (middle, last)]

    waiting = [(int(first), int(last)) for first, last in pairwise(parents)]
    while waiting:
        found = in_threads(split, [task for task in waiting if task[1] - task[0] > 1])
        waiting = [part for parts in found for part in parts]


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
