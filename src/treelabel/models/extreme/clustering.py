"""Label clusters: labels with similar features (the mean of their documents) come into clusters of about one size.

Balanced recursive k-means divides the labels; clusters may be the labels of a matcher themselves (semantic label
indexing).
"""

from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy import sparse

from treelabel.core.compute import in_threads, kernel, over_rows
from treelabel.core.matrices import normalize_rows
from treelabel.core.types import BoolArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, label_matrix
from treelabel.models.extreme.compact_rows import compact_rows
from treelabel.models.extreme.label_tree import LabelTree

# Passes of 2-means at most, and by how much more labels must be nearer to their own centre than to the other, on
# average, for another one.
MOST_PASSES = 20
LEAST_RISE = 1e-4
# The features of labels: the mean tf-idf of their documents, or embeddings of their names.
LabelEmbedding = Literal["pifa-tfidf", "text-emb"]

# Labels of a cluster at most, on average, where no number of clusters is asked for.
MOST_LABELS = 100


def pifa(features: sparse.csr_array, labels: sparse.csr_array, most: int = 256) -> sparse.csr_array:
    """Compute the mean of each label's documents, scaled to length 1 (positive instance feature aggregation).

    A label without documents has an empty row. Costs the features of all documents, once for each of their labels.

    Parameters
    ----------
    features : csr_array of shape (documents, features)
        Documents.
    most : int
        Features of a label to keep at most, the largest: the others hardly change a cosine.

    Returns
    -------
    csr_array of shape (labels, features)
        float32.

    >>> means = pifa(sparse.csr_array([[1.0, 0], [0, 1]]), sparse.csr_array([[1, 0], [1, 1]]))
    >>> means.toarray().astype(float).round(2).tolist()
    [[0.71, 0.71], [0.0, 1.0]]
    """
    by_label = sparse.csc_array(labels)
    rows = features.indptr, features.indices, features.data.astype(np.float32, copy=False)
    some = partial(sum_rows, *rows, by_label.indptr, by_label.indices, features.shape[1], most)
    parts = over_rows(some, labels.shape[1], least=256, most=65_536)
    sizes, idx, val = (np.concatenate([part[which] for part in parts]) for which in range(3))
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    return normalize_rows(sparse.csr_array((val, idx, ptr), (labels.shape[1], features.shape[1])))


@kernel
def sum_rows(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    member_ptr: IntArray,
    members: IntArray,
    width: int,
    most: int,
    start: int,
    stop: int,
) -> tuple[LongArray, IntArray, FloatArray]:
    """Add up the rows of each group's members, and keep the largest sums: their number, places and values."""
    total, touched, seen = np.zeros(width, np.float32), np.empty(width, np.int32), np.zeros(width, np.bool_)
    sizes = np.zeros(stop - start, np.int64)
    columns, sums = np.empty(1024, np.int32), np.empty(1024, np.float32)
    used = 0
    for group in range(start, stop):
        count = add_rows(ptr, idx, val, members[member_ptr[group] : member_ptr[group + 1]], total, touched, seen)
        positions = touched[:count]
        if count > most:
            order = np.argsort(-np.abs(total[positions]))[:most]
            largest = np.sort(positions[order])
        else:
            largest = np.sort(positions)
        while used + len(largest) > len(columns):
            longer, larger = np.empty(2 * len(columns), np.int32), np.empty(2 * len(columns), np.float32)
            longer[:used], larger[:used] = columns[:used], sums[:used]
            columns, sums = longer, larger
        for position in largest:
            columns[used], sums[used] = position, total[position]
            used += 1
        sizes[group - start] = len(largest)
        for position in positions:
            total[position] = 0
            seen[position] = False
    return sizes, columns[:used], sums[:used]


@kernel
def add_rows(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    rows: IntArray,
    total: FloatArray,
    touched: IntArray,
    seen: BoolArray,
) -> int:
    """Add rows to a total, and list the places that are not listed yet; return how many are."""
    count = 0
    for row in rows:
        for index in range(ptr[row], ptr[row + 1]):
            position = idx[index]
            total[position] += val[index]
            if not seen[position]:
                seen[position] = True
                touched[count] = position
                count += 1
    return count


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

    `order` has the labels of a parent side by side, `parents` says which clusters each parent has, and `ends` where the
    labels of each cluster end.
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
        halves = in_threads(split, [task for task in waiting if task[1] - task[0] > 1])
        waiting = [part for parts in halves for part in parts]


@kernel
def halve(
    ptr: IntArray, idx: IntArray, val: FloatArray, labels: IntArray, first: int, seed: int, width: int
) -> IntArray:
    """Divide labels into `first` of them and the others by balanced spherical 2-means; return the former first.

    Centres are the sums of their labels, scaled to length 1; the labels that are nearest to one centre, compared with
    the other, come to it.
    """
    count = len(labels)
    starts, positions, values, names = compact_rows(ptr, idx, val, labels, width)
    np.random.seed(seed % 2**31)
    one = np.random.randint(count)
    two = (one + 1 + np.random.randint(max(1, count - 1))) % count
    centres = np.zeros((2, len(names)), np.float32)
    for side, label in enumerate((one, two)):
        for index in range(starts[label], starts[label + 1]):
            centres[side, positions[index]] = values[index]
    nearness, before = np.zeros(count, np.float32), -2.0
    order = np.arange(count)
    for _ in range(MOST_PASSES):
        difference = centres[0] - centres[1]
        for label in range(count):
            projection = np.float32(0)
            for index in range(starts[label], starts[label + 1]):
                projection += values[index] * difference[positions[index]]
            nearness[label] = projection
        order = np.argsort(-nearness, kind="mergesort")
        rise = (nearness[order[:first]].sum() - nearness[order[first:]].sum()) / count - before
        if rise < LEAST_RISE:
            break
        before += rise
        centres[:] = 0
        for rank in range(count):
            label, side = order[rank], 0 if rank < first else 1
            for index in range(starts[label], starts[label + 1]):
                centres[side, positions[index]] += values[index]
        for side in range(2):
            centres[side] /= max(np.float32(1e-15), np.sqrt((centres[side] ** 2).sum()))
    return labels[order]


def cluster_count(labels: int, wanted: int = 0) -> int:
    """Choose the number of clusters.

    Parameters
    ----------
    labels
        The number of labels.
    wanted
        The number that is asked for; 0 is that of X-Transformer, ⌊log2(labels // 100 + 1)⌋ + 1 halvings.

    Returns
    -------
    int
        So many that each has at least two labels, for an only one has nothing to be ranked against.

    >>> [cluster_count(labels) for labels in (1, 5, 1_000, 3_956, 501_070)], cluster_count(5, 100)
    ([1, 2, 16, 64, 8192], 2)
    """
    usual = 2 ** (int(np.log2(labels // MOST_LABELS + 1)) + 1)
    return max(1, min(wanted or usual, labels // 2))


def index_labels(features: sparse.csr_array, clusters: int, seed: int) -> LabelTree:
    """Put labels into clusters by balanced k-means.

    Parameters
    ----------
    features
        Labels × features, rows of length 1.
    clusters
        The number of clusters.
    seed
        Seed of the first centres.

    Returns
    -------
    LabelTree
        Clusters, and the labels in them.
    """
    if clusters > 1:
        return cluster_labels(features, [clusters], seed)
    count = features.shape[0]
    return LabelTree((np.array([0, 1]), np.array([0, count])), np.arange(count, dtype=np.int32))


def cluster_hierarchy(clusters: int) -> Hierarchy:
    """Return clusters as the labels that a matcher learns."""
    return Hierarchy.flat([f"cluster {number}" for number in range(clusters)])


def clusters_of(tree: LabelTree, labels: sparse.csr_array) -> LabelMatrix:
    """Return the clusters of documents' labels; a cluster counts once, however many of its labels there are.

    Parameters
    ----------
    tree
        The clusters.
    labels
        Documents × labels.

    Returns
    -------
    label matrix
        Documents × clusters.
    """
    clusters = tree.above(labels)[0]
    return label_matrix(clusters.indptr, clusters.indices, clusters.shape[1])
