"""Label trees of the systems for very many labels: the terminal labels of training documents, clustered."""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.errors import TreelabelError
from treelabel.models.base import Training
from treelabel.models.extreme.clustering import cluster_labels, pifa
from treelabel.models.extreme.label_tree import MOST_LEVELS, LabelTree
from treelabel.text import NgramShape, Tfidf

# Returns the number of clusters of each level above so many labels.
LevelSizes = Callable[[int], list[int]]


def tree_of_training(train: Training, sizes: LevelSizes, seed: int) -> LabelTree:
    """Cluster the terminal labels of training documents by the words of these.

    Parameters
    ----------
    train
        The training documents.
    sizes
        Returns the number of clusters of each level.
    seed
        Seed of the clustering.

    Returns
    -------
    LabelTree
        Its labels are nodes of the hierarchy.
    """
    terminal = train.hierarchy.most_specific(train.labels)
    nodes = np.unique(terminal.indices).astype(np.int32)
    wanted = sizes(len(nodes))
    if not wanted:
        return LabelTree((np.array([0, len(nodes)]),), nodes)
    _, words = Tfidf.fit_transform(train.texts, NgramShape())
    tree = cluster_labels(pifa(words, sparse.csr_array(terminal[:, nodes])), wanted, seed)
    return LabelTree(tree.children, nodes[tree.labels])


def level_sizes(labels: int, cluster_size: int, max_flat_labels: int) -> list[int]:
    """Choose the levels of a shallow tree: clusters of `cluster_size`, until a level is small enough to rank whole.

    Parameters
    ----------
    labels
        The number of labels.
    cluster_size
        The number of nodes in a cluster.
    max_flat_labels
        The largest level that is ranked whole.

    Returns
    -------
    list of int
        The number of nodes of each level above the labels.

    >>> level_sizes(670_000, 16, 4096), level_sizes(4_000, 16, 4096)
    ([2618, 41875], [])
    """
    found: list[int] = []
    size = labels
    while size > max_flat_labels:
        size = -(-size // cluster_size)
        found.insert(0, size)
    return found


def with_tree(schema: Schema, nodes: int) -> Schema:
    """Declare the arrays of a label tree beside those of a network.

    Parameters
    ----------
    schema
        The schema of the network.
    nodes
        The number of nodes of the hierarchy, of which labels are some.

    Returns
    -------
    Schema
        With the tree.
    """
    limits = {"levels": MOST_LEVELS, "tree_ends": MOST_LEVELS * (nodes + 2), "instances": nodes}
    return Schema(
        {**schema.arrays, **LabelTree.schema()},
        schema.csr,
        {**schema.sizes, "labels": nodes},
        {**schema.most, **limits},
        (*schema.relations, require_tree),
        schema.files,
        schema.parts,
    )


def require_tree(arrays: Arrays) -> None:
    """Refuse arrays that are no label tree in which every label stands once."""
    tree = LabelTree.of(arrays)
    if not len(tree.labels) or len(np.unique(tree.labels)) < len(tree.labels):
        raise TreelabelError("tree_labels holds no label, or a label twice")
