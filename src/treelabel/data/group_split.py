"""Divide groups of documents among parts: each group whole, parts of the right sizes and alike in their labels."""

from typing import Final

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix

# How much the size of a part counts beside the frequency of one label in it. Much more than 1, as rare labels, which
# no part can have its share of, would otherwise draw all their groups to the largest part.
SIZE_WEIGHT: Final = 10.0


def fill_parts(groups: LongArray, shares: DoubleArray, rng: np.random.Generator) -> LongArray:
    """Assign documents to parts by their groups: the largest first, each to the part furthest behind its size.

    Parameters
    ----------
    groups : array of int, shape (documents,)
        The group of each document, numbered from 0.
    shares : array of float, shape (parts,)
        The share of the documents that each part is to have.
    rng : Generator
        It orders groups of the same size.

    Returns
    -------
    array of int, shape (documents,)
        The part of each document.

    >>> fill_parts(np.array([0, 0, 0, 1, 2]), np.array([0.6, 0.4]), np.random.default_rng(0)).tolist()
    [0, 0, 0, 1, 1]
    """
    sizes = np.bincount(groups)
    left = shares * len(groups)
    part = np.empty(len(sizes), np.int64)
    for group in _largest_first(sizes, rng).tolist():
        part[group] = int(np.argmax(left))
        left[part[group]] -= sizes[group]
    return part[groups]


def fill_parts_alike(
    groups: LongArray, labels: LabelMatrix, shares: DoubleArray, rng: np.random.Generator
) -> LongArray:
    """Assign documents to parts by their groups so that each part has about its share of every label.

    The largest group first, each goes to the part in which it adds least to the sum over labels and parts of
    (documents there - documents expected there)^2 / documents expected there, the sizes of parts included. This is the
    idea of scikit-learn's StratifiedGroupKFold, for parts of any shares and documents with several labels. Costs
    parts x labels of all groups.

    Parameters
    ----------
    groups : array of int, shape (documents,)
        The group of each document, numbered from 0.
    labels : LabelMatrix, documents x nodes
        With ancestors, so that parts are alike on all levels.
    shares : array of float, shape (parts,)
        The share of the documents that each part is to have.
    rng : Generator
        It orders groups of the same size.

    Returns
    -------
    array of int, shape (documents,)
        The part of each document.

    >>> labels = sparse.csr_array(np.array([[1, 0], [1, 0], [0, 1], [0, 1]], bool))
    >>> fill_parts_alike(np.arange(4), labels, np.array([0.5, 0.5]), np.random.default_rng(0)).tolist()
    [1, 0, 0, 1]
    """
    sizes = np.bincount(groups)
    member = sparse.csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))), (len(sizes), len(groups)))
    counts = sparse.csr_array(member @ labels.astype(np.float64))
    total = np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.float64)
    order = _largest_first(sizes, rng)
    ptr = counts.indptr.astype(np.int64)
    part = assign(ptr, counts.indices.astype(np.int32), counts.data, total, sizes.astype(np.int64), shares, order)
    return part[groups]


def _largest_first(sizes: LongArray, rng: np.random.Generator) -> LongArray:
    order = rng.permutation(len(sizes))
    return order[np.argsort(-sizes[order], kind="stable")]


@kernel
def assign(
    ptr: LongArray,
    nodes: IntArray,
    counts: DoubleArray,
    total: DoubleArray,
    sizes: LongArray,
    shares: DoubleArray,
    order: LongArray,
) -> LongArray:
    """Assign each group to the part in which it adds least to the squared distances from what is expected."""
    held = np.zeros((len(shares), len(total)))
    filled = np.zeros(len(shares))
    documents = sizes.sum()
    part = np.zeros(len(sizes), np.int64)
    for group in order:
        least = np.inf
        for index in range(len(shares)):
            expected = shares[index] * documents
            rise = SIZE_WEIGHT * sizes[group] * (2 * (filled[index] - expected) + sizes[group]) / expected
            for entry in range(ptr[group], ptr[group + 1]):
                expected = shares[index] * total[nodes[entry]]
                rise += counts[entry] * (2 * (held[index, nodes[entry]] - expected) + counts[entry]) / expected
            if rise < least:
                least, part[group] = rise, index
        filled[part[group]] += sizes[group]
        for entry in range(ptr[group], ptr[group + 1]):
            held[part[group], nodes[entry]] += counts[entry]
    return part
