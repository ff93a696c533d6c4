"""Probabilities as scikit-learn's classifiers give them: one column per class."""

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray
from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix
from treelabel.scores import Scores


def stop_nodes(hierarchy: Hierarchy, labels: LabelMatrix) -> IntArray:
    """Return the inner nodes at which the paths of some documents end.

    Parameters
    ----------
    hierarchy
        The hierarchy.
    labels : label matrix of shape (documents, nodes)

    Returns
    -------
    array of node ids
    """
    terminal = np.unique(hierarchy.most_specific(labels).indices)
    found: IntArray = terminal[~hierarchy.is_leaf[terminal]].astype(np.int32)
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


def as_distributions(p: DoubleArray) -> DoubleArray:
    """Divide rows by their sums, so that each is a distribution; one without any probability becomes uniform.

    >>> as_distributions(np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.0], [0.0, 0.0, 0.0]])).round(3).tolist()
    [[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.333, 0.333, 0.333]]
    """
    total = p.sum(axis=1, keepdims=True)
    found: DoubleArray = np.full_like(p, 1 / max(1, p.shape[1]))
    np.divide(p, total, out=found, where=total > 0)
    return found


def class_codes(hierarchy: Hierarchy, codes: np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> LabelMatrix:
    """Return the label matrix of class codes, which scikit-learn makes of labels: code i is the i-th leaf.

    scikit-learn numbers the labels that occur in sorted order, be they names or paths. A code therefore has one meaning
    only where every leaf occurs, and leaves are sorted by name and by path; anything else is refused.

    Parameters
    ----------
    hierarchy : Hierarchy
        The hierarchy of the labels.
    codes : int array of shape (documents,)
        One class per document.

    Returns
    -------
    csr_array of shape (documents, nodes)

    >>> class_codes(Hierarchy.from_paths(["A > B", "A > C"]), np.array([1, 0])).indices.tolist()
    [2, 1]
    """
    leaves = hierarchy.leaves
    names, paths = [hierarchy.names[leaf] for leaf in leaves], hierarchy.paths(leaves)
    why = ""
    if len(codes) and (codes.min() < 0 or codes.max() != len(leaves) - 1):
        why = f"they are {codes.min()} to {codes.max()}, but the hierarchy has {len(leaves):,} leaves"
    elif names != sorted(names) or paths != sorted(paths):
        why = "the leaves of the hierarchy are not in sorted order"
    if why:
        raise TreelabelError(
            f"cannot tell which labels the integers stand for that scikit-learn makes of labels: {why}; pass labels by "
            "name past it: cross_val_predict(model, texts, params={'labels': labels}, method='predict_proba')"
        )
    return label_matrix(np.arange(len(codes) + 1), leaves[codes], len(hierarchy))
