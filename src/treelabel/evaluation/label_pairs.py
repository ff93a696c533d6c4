"""Pairs of true and predicted labels within documents: which stands for which, and how far apart they are."""

from collections.abc import Iterator

import numpy as np

from treelabel.core.types import LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_numbers

# Documents whose pairs are held at a time.
BLOCK = 2_000


def blocks(truth: LabelMatrix, decisions: LabelMatrix) -> Iterator[tuple[LabelMatrix, LabelMatrix]]:
    """Yield some documents at a time, as pairs take more room than labels.

    Yields
    ------
    (label matrix, label matrix)
    """
    for start in range(0, truth.shape[0], BLOCK):
        yield truth[start : start + BLOCK], decisions[start : start + BLOCK]


def ranges(low: LongArray, sizes: LongArray) -> LongArray:
    """Concatenate the ranges low, low + 1, ... of the given sizes.

    Returns
    -------
    array of shape (sum of sizes,)

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(sizes) - sizes
    result: LongArray = np.repeat(low - before, sizes) + np.arange(int(sizes.sum()))
    return result


def equal_pairs(left: LongArray, right: LongArray) -> tuple[LongArray, LongArray]:
    """Return the places of all pairs of equal keys.

    Returns
    -------
    (array, array), each of shape (pairs,)

    >>> [places.tolist() for places in equal_pairs(np.array([7, 8]), np.array([8, 7, 8]))]
    [[0, 1, 1], [1, 0, 2]]
    """
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left, "left")
    sizes = np.searchsorted(right[order], left, "right") - low
    return np.repeat(np.arange(len(left)), sizes), order[ranges(low, sizes)]


def nearest(hierarchy: Hierarchy, labels: LabelMatrix, others: LabelMatrix) -> tuple[LongArray, LongArray]:
    """Find, for every stored label, the label among the others of its document that the fewest edges lead to.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.

    Returns
    -------
    (array, array), each of shape (stored labels,)
        The nearest label, the lowest id among equals, -1 (the root) where the document has none; and the edges.

    >>> from treelabel.hierarchy.label_ids import encode
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> [result.tolist() for result in nearest(h, encode(h, [["B"], ["B"]]), encode(h, [["C", "D"], []]))]
    [[3, -1], [2, 2]]
    """
    size = len(hierarchy)
    left, right = equal_pairs(row_numbers(labels), row_numbers(others))
    codes = others.indices[right].astype(np.int64) * size + labels.indices[left]
    distinct, which = np.unique(codes, return_inverse=True)
    edges = hierarchy.distance(distinct // size, distinct % size)[which].astype(np.int64)
    order = np.lexsort((codes, edges, left))
    first = order[np.append(True, np.diff(left[order]) > 0)[: len(order)]]
    node = np.full(labels.nnz, -1, np.int64)
    apart = hierarchy.shortest_depth[labels.indices].astype(np.int64)
    node[left[first]], apart[left[first]] = codes[first] // size, edges[first]
    return node, apart
