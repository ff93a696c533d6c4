"""Carry scores to a taxonomy that has changed: of labels that exclude each other, and of labels that do not."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.hierarchy.hierarchy import Hierarchy

# Sums of children stray this far above their parent in single precision.
ROUNDING = 1e-3
# Scores of so many nodes are computed at once in double precision.
BLOCK_SCORES = 1 << 22
# The largest probability that has a logarithm of what is left.
ALMOST_ONE = 1 - 1e-15


def are_exclusive(hierarchy: Hierarchy, scores: Any) -> bool:
    """Return whether labels seem to exclude each other: in a tree where no siblings sum to more than their parent.

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> are_exclusive(h, np.array([[0.8, 0.5, 0.3]])), are_exclusive(h, np.array([[0.8, 0.5, 0.5]]))
    (True, False)
    """
    if not hierarchy.is_tree:
        return False
    nodes = np.arange(len(hierarchy))
    to_parent = sparse.csr_array((np.ones(len(nodes)), (nodes, hierarchy.parent + 1)), (len(nodes), len(nodes) + 1))
    return not any(_exceeds(block, to_parent) for block in _blocks(scores))


def _exceeds(scores: Any, to_parent: sparse.csr_array) -> bool:
    """Return whether any children sum to more than their parent, that of top labels having 1."""
    if sparse.issparse(scores):
        sums = sparse.csr_array(scores @ to_parent)
        root, beyond = sums[:, [0]], sparse.csr_array(sums[:, 1:] - scores)
        top = float(root.max()) if root.nnz else 0.0
        return top > 1 + ROUNDING or (beyond.nnz > 0 and float(beyond.max()) > ROUNDING)
    sums = (to_parent.T @ scores.T).T
    return bool((sums[:, 0] > 1 + ROUNDING).any() or (sums[:, 1:] - scores > ROUNDING).any())


def carry_mass(old: Hierarchy, new: Hierarchy, shares: sparse.csr_array, scores: Any) -> Any:
    """Carry what each node has beyond its children to its new nodes, and sum up there.

    Parameters
    ----------
    old, new
        The old one is a tree.
    shares : csr_array of shape (old nodes, new nodes)
        Where what ends at an old node goes.
    scores : array or csr_array of shape (documents, old nodes)
        Probabilities.

    Returns
    -------
    array or csr_array of shape (documents, new nodes)
    """
    child = np.flatnonzero(old.parent >= 0)
    sums = sparse.csr_array((np.ones(len(child)), (child, old.parent[child])), (len(old), len(old)))
    alone = sparse.csr_array(sparse.identity(len(old)) - sums)
    every = sparse.identity(len(new), np.bool_, "csr")
    there = sparse.csr_array(shares @ new.closure(sparse.csr_array(every)).astype(np.float64))
    if sparse.issparse(scores):
        ends = sparse.csr_array(scores.astype(np.float64) @ alone)
        ends.data = np.maximum(ends.data, 0)
        result = sparse.csr_array(ends @ there)
        result.data = np.minimum(result.data, 1)
        return _canonical(result, scores.dtype)
    moved = np.empty((len(scores), len(new)), scores.dtype)
    start = 0
    for block in _blocks(scores):
        ends = np.maximum(alone.T @ block.T.astype(np.float64), 0)
        moved[start : start + len(block)] = np.minimum((there.T @ ends).T, 1)
        start += len(block)
    return moved


def any_of(
    columns: int, sources: Sequence[tuple[int, int, float]], wholes: Sequence[tuple[int, int]], scores: Any
) -> Any:
    """Compute 1 - the product of (1 - share x p) over the old nodes that each new one is made of.

    Parameters
    ----------
    columns : int
        The number of new nodes.
    sources : sequence of (int, int, float)
        An old node, a new one, and the share of the old one's probability.
    wholes : sequence of (int, int)
        An old node, and a new one that has at least as much.
    scores : array or csr_array of shape (documents, old nodes)
        Probabilities.

    Returns
    -------
    array or csr_array of shape (documents, columns)
    """
    if not sparse.issparse(scores):
        parts = [any_of(columns, sources, wholes, sparse.csr_array(block)).toarray() for block in _blocks(scores)]
        return np.concatenate([np.zeros((0, columns), scores.dtype), *parts])
    logs = sparse.csr_array((scores.shape[0], columns), dtype=np.float64)
    for share in sorted({share for _, _, share in sources}):
        pairs = [(node, target) for node, target, its in sources if its == share]
        p = scores.astype(np.float64)
        p.data = np.log1p(-np.minimum(share * p.data, ALMOST_ONE))
        logs = logs + p @ _selection(pairs, (scores.shape[1], columns))
    result = sparse.csr_array(logs)
    result.data = -np.expm1(result.data)
    for pair in wholes:
        result = sparse.csr_array(result.maximum(scores @ _selection([pair], (scores.shape[1], columns))))
    return _canonical(result, scores.dtype)


def _canonical(scores: sparse.csr_array, dtype: Any) -> sparse.csr_array:
    scores.eliminate_zeros()
    scores.sort_indices()
    return scores.astype(dtype)


def _selection(pairs: Sequence[tuple[int, int]], shape: tuple[int, int]) -> sparse.csr_array:
    """Return the matrix that carries the columns of old nodes to new ones."""
    old, new = np.array(pairs, np.int32).T
    return sparse.csr_array((np.ones(len(pairs)), (old, new)), shape)


def _blocks(scores: Any) -> Iterator[Any]:
    """Divide dense scores into rows that fit the memory in double precision; CSR is one block."""
    if sparse.issparse(scores):
        yield scores
        return
    step = max(1, BLOCK_SCORES // max(1, scores.shape[1]))
    for start in range(0, len(scores), step):
        yield scores[start : start + step]
