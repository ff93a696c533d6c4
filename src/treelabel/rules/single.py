"""Rules that are optimal for metrics with a closed form: thresholds, best leaves, and single nodes by expectation.

Truth is taken to be one path, and scores a coherent distribution over where it ends (see `hf`).
"""

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray
from treelabel.hierarchy import LabelMatrix
from treelabel.rules.kernels import expected as kernels
from treelabel.rules.paths import best_leaf
from treelabel.rules.rows import nodes_of
from treelabel.rules.threshold import above
from treelabel.scores import Scores


def hamming(scores: Scores) -> LabelMatrix:
    """Predict {p > 1/2}: a node costs 1 - p if it is predicted and p if it is not. Exact, for any truth.

    >>> from treelabel.hierarchy import Hierarchy
    >>> hamming(Scores(Hierarchy.flat(["A", "B", "C"]), [[0.6, 0.5, 0.4]])).indices.tolist()
    [0]
    """
    return above(scores, 0.5)


def shortest_path(scores: Scores) -> LabelMatrix:
    """Predict {p > 1/2}: in a tree the edges between two paths are the nodes that only one has. Exact."""
    return above(scores, 0.5)


def icm(scores: Scores, alpha: float = 2.0, beta: float = 3.0) -> LabelMatrix:
    """Predict {p > 1 - alpha / beta}, which is 1/3 for the usual ICM of alpha = 2, beta = 3. Exact, for any truth.

    ICM = alpha a + alpha_2 b - beta (a + b - c) is a sum over predicted nodes of w(n) (alpha - beta + beta p(n)) in
    expectation, whatever their information w(n).

    Parameters
    ----------
    scores
        The scores.
    alpha, beta
        The parameters alpha_1 and beta of ICM.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> icm(Scores(Hierarchy.flat(["A", "B", "C"]), [[0.4, 0.34, 0.33]])).indices.tolist()
    [0, 1]
    """
    if not 0 < alpha <= beta < np.inf:
        raise TreelabelError(
            f"alpha = {alpha:g}, beta = {beta:g}: expected 0 < alpha <= beta; with a larger alpha every label would "
            "be worth predicting"
        )
    return above(scores, 1 - alpha / beta)


def leaf_accuracy(scores: Scores) -> LabelMatrix:
    """Predict the leaf with the largest score. Exact."""
    return best_leaf(scores)


def level_accuracy(scores: Scores) -> LabelMatrix:
    """Predict the path with the largest sum of scores, each level weighing by how few documents reach it.

    The metric averages over levels the share of documents, of those whose truth reaches the level, with the right node
    there. A closed set has at most one node per level if it is a path, so a path is best, and with W(d) = the sum over
    documents and nodes of depth d of p, the expected number of documents that reach the level, the best path has the
    largest sum of p(n) / W(depth of n). Exact where all paths are as deep, and for many documents: with few, how many
    reach a level is not what is expected. Needs a tree. Linear in the scores.
    """
    h = scores.hierarchy
    parent, kept = h.parent, scores.coherent()
    by_node = np.asarray(kept.values.sum(axis=0, dtype=np.float64)).ravel()
    # Without nodes numpy counts in whole numbers.
    reach = np.bincount(h.depth, weights=by_node, minlength=h.max_depth + 1).astype(np.float64)
    worth = np.divide(1.0, reach, out=np.zeros_like(reach), where=reach > 0)[h.depth]
    none = np.zeros(len(h))
    return nodes_of(kept, lambda *rows: kernels.best_path(parent, worth, none, *rows))


def onehot_win(scores: Scores) -> LabelMatrix:
    """Predict the leaf with the largest expected win: sum over its path of 2^-j p(n_j), the leaf's twice. Exact.

    Where the truth may end inside, the end is counted twice wherever it lies; and where no leaf below has a score, the
    deepest node that has one is predicted, which is worth the same. Needs a tree. Linear in the scores.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> h.names[onehot_win(Scores.from_leaves(h, ["B", "C", "D"], [[0.35, 0.25, 0.4]])).indices[0]]
    'B'
    """
    h = scores.hierarchy
    parent, worth = h.parent, np.exp2(-h.depth.astype(np.float64))
    return nodes_of(scores.coherent(), lambda *rows: kernels.best_path(parent, worth, worth, *rows))


def wu_palmer(scores: Scores) -> LabelMatrix:
    """Predict the node with the largest expected Wu-Palmer similarity, or nothing where that is the root. Exact.

    Needs a tree. Linear in the scores times the depth.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> h.names[wu_palmer(Scores.from_leaves(h, ["B", "C", "D"], [[0.35, 0.35, 0.3]])).indices[0]]
    'A'
    """
    h = scores.hierarchy
    parent = h.parent
    return nodes_of(scores.coherent(), lambda *rows: kernels.best_wu_palmer(parent, h.depth, *rows))


def lin(scores: Scores, information: DoubleArray) -> LabelMatrix:
    """Predict the node with the largest expected Lin similarity. Exact, if no node is more frequent than its parent.

    Needs a tree. Linear in the scores times the depth, and again for each node that a bound does not rule out.

    Parameters
    ----------
    scores
        The scores.
    information : array of shape (nodes,)
        The information content of each node.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    parent, bits = scores.hierarchy.parent, np.asarray(information, np.float64)
    return nodes_of(scores.coherent(), lambda *rows: kernels.best_lin(parent, bits, *rows))
