"""Sets that are optimal for hierarchical F: exact where every node weighs the same, a search where nodes have weights.

Truth is taken to be one path, and scores a coherent distribution over where it ends: what the children of a node lack
of its score is the probability that the path ends there, and what the top labels lack of 1 is the probability that
nothing is true. There, predicting nothing is worth 1, and anything else 0 (or what the root is worth, if it counts): so
nothing is predicted where that is likelier to be right than any set is good.
"""

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray
from treelabel.hierarchy import LabelMatrix
from treelabel.hierarchy.information import information_weights
from treelabel.rules.kernels.hf import best_sets
from treelabel.rules.kernels.weighted_hf import best_weighted_sets
from treelabel.rules.rows import sets_of
from treelabel.scores import Scores


def hf_beta(scores: Scores, beta: float = 1.0, count_root: bool = False, empty: float = 1.0) -> LabelMatrix:
    """Choose the set with the largest expected hF_beta = (1 + beta^2) c / (a + beta^2 b). Exact; closed.

    For a set S of k nodes the expectation is the sum over its nodes of Delta_k(n) = sum over the leaves l below n of
    p(l) (1 + beta^2) / (k + beta^2 |A(l)|), so the k nodes of largest Delta_k are the best of that size (they are
    closed, as Delta_k falls from parent to child), and the best size is found by trying them in turn until a bound on
    all larger ones ends the search. In a DAG a leaf counts once for each ancestor. `count_root` adds the root to both
    sets; without it, predicting nothing where nothing is true is worth `empty`: 0 for documents that all have a label,
    whatever their scores lack of 1. Each size tried is linear in the stored scores of the document (times its ancestors
    in a DAG).

    Parameters
    ----------
    scores
        The scores.
    beta
        How many times as much recall counts as precision.
    count_root
        Whether the root is in both sets.
    empty
        What predicting nothing is worth where nothing is true.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["1 > 3", "1 > 4", "1 > 5", "2"])
    >>> s = Scores.from_leaves(h, ["3", "4", "5", "2"], [[0.2, 0.2, 0.35, 0.25]])
    >>> [h.names[node] for node in hf_beta(s).indices]
    ['1', '2', '5']
    """
    if not 0 <= beta <= 1e6:
        raise TreelabelError(f"expected a beta of at least 0 and at most a million, found {beta:g}")
    h = scores.hierarchy
    if h.is_tree:
        link_ptr, links, sizes = h.parent_ptr.astype(np.int64), h.parent_idx, h.depth
    else:
        above = h.ancestors(np.arange(len(h)))
        link_ptr, links = above.indptr.astype(np.int64), above.indices
        sizes = (np.diff(link_ptr) + 1).astype(np.int32)
    options = (float(beta), int(count_root), float(empty))
    return sets_of(scores.coherent(), lambda *rows: best_sets(link_ptr, links, h.is_tree, sizes, *options, *rows))


def hf1_root(scores: Scores) -> LabelMatrix:
    """Choose the set with the largest expected hierarchical F1 that counts the root in both sets. Exact; closed."""
    return hf_beta(scores, 1.0, count_root=True)


def info_hf1(scores: Scores, information: DoubleArray, beta: float = 1.0) -> LabelMatrix:
    """Search the set with the largest expected information-weighted hF: nodes weigh ic(n) - ic(parent). Closed.

    Not exact: which nodes a set of a given weight should have is a knapsack problem. Where the truth has no information
    (all documents have its labels, or it is empty), sets without any are worth 1 and others 0. Needs a tree. Each size
    tried, and each node tried in improving the best one, is linear in the stored scores of the document.

    Parameters
    ----------
    scores
        The scores.
    information : array of shape (nodes,)
        The information content of each node.
    beta
        How many times as much recall counts as precision.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    if not 0 < beta < np.inf:
        raise TreelabelError(f"expected a beta above 0, found {beta:g}")
    # Beyond these the sets no longer change, but the square is 0 or infinite, and would be divided by.
    beta = min(max(beta, 1e-6), 1e6)
    h = scores.hierarchy
    weights = information_weights(h, np.asarray(information, np.float64))
    parent = h.parent
    return sets_of(scores.coherent(), lambda *rows: best_weighted_sets(parent, weights, float(beta), *rows))
