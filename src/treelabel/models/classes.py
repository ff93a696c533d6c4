"""Probabilities as scikit-learn's classifiers give them: one column per class."""

import numpy as np

from treelabel.core.compute import DoubleArray, IntArray
from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix
from treelabel.scores import Scores


def stop_nodes(hierarchy: Hierarchy, labels: LabelMatrix) -> IntArray:
    """Return the inner nodes at which the paths of some documents end."""
    ends = np.unique(hierarchy.most_specific(labels).indices)
    found: IntArray = ends[~hierarchy.is_leaf[ends]].astype(np.int32)
    return found


def terminal_probabilities(scores: Scores, stops: IntArray) -> tuple[IntArray, DoubleArray]:
    """Return the probability that a document's path ends at each terminal node: a leaf, or one of `stops`.

    What ends at an inner node is its probability less all that ends below it.

    Parameters
    ----------
    scores
        Probabilities of nodes; documents are expected to have one path.
    stops
        Inner nodes at which paths may end.

    Returns
    -------
    nodes, probabilities
        The terminal nodes in the hierarchy's order, and documents x terminal nodes.

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> nodes, p = terminal_probabilities(Scores(h, [[1.0, 0.5, 0.25]]), np.array([0], np.int32))
    >>> nodes.tolist(), p.tolist()
    ([0, 1, 2], [[0.25, 0.5, 0.25]])
    """
    h = scores.hierarchy
    nodes: IntArray = np.union1d(h.leaves, stops).astype(np.int32)
    place = np.full(len(h), -1)
    place[nodes] = np.arange(len(nodes))
    found = np.asarray(scores.csr()[:, nodes].toarray() if scores.is_sparse else scores.dense()[:, nodes], np.float64)
    # Children come behind their parents, so what ends below a node is known when its turn comes.
    for node in sorted(stops.tolist(), reverse=True):
        under = place[h.descendants([node]).indices]
        found[:, place[node]] -= found[:, under[under >= 0]].sum(axis=1)
    return nodes, np.maximum(found, 0.0)


def class_codes(hierarchy: Hierarchy, codes: np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> LabelMatrix:
    """Return the label matrix of class codes, which scikit-learn makes of labels: code i is the i-th leaf.

    >>> class_codes(Hierarchy.from_paths(["A > B", "A > C"]), np.array([1, 0])).indices.tolist()
    [2, 1]
    """
    return label_matrix(np.arange(len(codes) + 1), hierarchy.leaves[codes], len(hierarchy))
