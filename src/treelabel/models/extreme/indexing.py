"""Semantic label indexing: labels with similar features come into one cluster, and clusters are labels themselves."""

from typing import Literal

import numpy as np
from scipy import sparse

from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix
from treelabel.models.extreme.clustering import cluster_labels
from treelabel.models.extreme.label_tree import LabelTree

# The features of labels: the mean tf-idf of their documents, or embeddings of their names.
LabelEmbedding = Literal["pifa-tfidf", "text-emb"]

# Labels of a cluster at most, on average, where no number of clusters is asked for.
MOST_LABELS = 100


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
    gold = tree.above(labels)[0]
    return label_matrix(gold.indptr, gold.indices, gold.shape[1])
