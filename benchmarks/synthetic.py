"""Made-up hierarchies and scores of any size, the same in every run."""

import numpy as np
from scipy import sparse

from treelabel import Hierarchy, Scores
from treelabel.hierarchy import LabelMatrix, label_matrix

SEED = 0


def random_tree(nodes: int, depth: int) -> Hierarchy:
    """Make a tree whose levels grow evenly; the parent of a node is drawn from the level above."""
    rng = np.random.default_rng(SEED)
    shares = (nodes ** (1 / depth)) ** np.arange(depth)
    sizes = np.maximum(1, nodes * shares / shares.sum()).astype(np.int64)
    sizes[-1] += nodes - sizes.sum()
    starts = np.append(0, sizes.cumsum())
    parents = [np.full(sizes[0], -1)]
    parents += [np.sort(rng.integers(starts[at], starts[at + 1], size)) for at, size in enumerate(sizes[1:])]
    return Hierarchy.from_parents(np.concatenate(parents), [f"label {node}" for node in range(nodes)])


def path_scores(documents: int, nodes: int) -> tuple[Scores, LabelMatrix]:
    """Make coherent scores of a softmax over the leaves of a tree, and one true leaf a document drawn from them."""
    rng = np.random.default_rng(SEED)
    h = random_tree(nodes, depth=6)
    odds = np.exp(3 * rng.normal(size=(documents, len(h.leaves))))
    leaf = odds / odds.sum(axis=1, keepdims=True)
    drawn = (leaf.cumsum(axis=1) < rng.random((documents, 1))).sum(axis=1)
    true = h.leaves[np.minimum(drawn, len(h.leaves) - 1)]
    return Scores.from_leaves(h, h.leaves, leaf), label_matrix(np.arange(documents + 1), true, len(h))


def sparse_path_scores(documents: int, nodes: int, stored: int) -> Scores:
    """Make coherent scores of which each document has `stored` at most: those of leaves near one of the tree."""
    rng = np.random.default_rng(SEED)
    h = random_tree(nodes, depth=6)
    # Leaves that are close in their numbers share ancestors, so that a document has a few subtrees and not all.
    steps = rng.geometric(0.2, (documents, stored)).cumsum(axis=1)
    places = (rng.integers(0, len(h.leaves), (documents, 1)) + steps) % len(h.leaves)
    odds = np.exp(2 * rng.normal(size=places.shape))
    weights = odds / odds.sum(axis=1, keepdims=True)
    row = np.repeat(np.arange(documents), places.shape[1])
    leaf = sparse.coo_array((weights.ravel(), (row, places.ravel())), (documents, len(h.leaves))).tocsr()
    return Scores.from_leaves(h, h.leaves, leaf).top_k(stored)


def label_scores(documents: int, labels: int, stored: int) -> Scores:
    """Make scores of flat labels whose frequencies fall off as in extreme classification, `stored` a document."""
    rng = np.random.default_rng(SEED)
    share = np.cumsum(1 / np.arange(1, labels + 1) ** 0.8)
    drawn = np.minimum(np.searchsorted(share / share[-1], rng.random((documents, stored))), labels - 1)
    p = np.clip(rng.beta(0.3, 2.0, drawn.shape), 1e-6, 0.999)
    row = np.repeat(np.arange(documents), stored)
    matrix = sparse.coo_array((p.ravel(), (row, drawn.ravel())), (documents, labels)).tocsr()
    # The same label drawn twice for a document was added up.
    matrix.data = np.minimum(matrix.data, 0.999)
    return Scores(Hierarchy.flat([f"label {label}" for label in range(labels)]), matrix)
