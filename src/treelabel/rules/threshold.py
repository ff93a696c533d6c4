"""Rules that look at each node on its own: thresholds, and the k best nodes."""

from collections.abc import Sequence

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, ScoreArray
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels, keep_entries, label_matrix
from treelabel.scores.score_matrix import Scores


def threshold(scores: Scores, t: float | Sequence[float] | ScoreArray = 0.5) -> LabelMatrix:
    """Predict {n : p(n) >= t}; t is one number, one per level, or one per node. Linear in the scores.

    It must be above 0, as what is not stored has score 0.

    Parameters
    ----------
    t
        One threshold, one per level, or one per node.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> s = Scores(h, [[0.5, 0.4, 0.1]])
    >>> threshold(s).indices.tolist(), threshold(s, [0.5, 0.3]).indices.tolist()
    ([0], [0, 1])
    """
    return _where(np.greater_equal, scores, by_node(scores, t))


def _where(compare: np.ufunc, scores: Scores, least: ScoreArray) -> LabelMatrix:
    """Predict the nodes whose scores compare with their thresholds."""
    if not scores.is_sparse:
        return as_labels(compare(scores.values, least), len(scores.hierarchy))
    return keep_entries(scores.values, compare(scores.values.data, least[scores.values.indices]))


def by_node(scores: Scores, t: float | Sequence[float] | ScoreArray) -> ScoreArray:
    """Return the threshold of every node in the precision of the scores, refusing those that would predict all.

    Parameters
    ----------
    t
        As in `threshold`.

    Returns
    -------
    array of shape (nodes,)
    """
    hierarchy = scores.hierarchy
    thresholds = np.asarray(t, scores.dtype)
    levels = hierarchy.max_depth
    if thresholds.ndim > 1 or (thresholds.ndim == 1 and len(thresholds) not in (levels, len(hierarchy))):
        raise TreelabelError(
            f"{thresholds.size:,} thresholds, expected one, {levels} (one per level) or {len(hierarchy):,} (one per "
            "node)"
        )
    wrong = thresholds[~(thresholds > 0)]
    if wrong.size:
        raise TreelabelError(f"expected a threshold above 0, found {wrong.flat[0]:g}; 0 would predict every label")
    if thresholds.ndim == 0 and thresholds > 1:
        raise TreelabelError(f"expected a threshold of at most 1, found {thresholds:g}; no label would be predicted")
    if thresholds.ndim == 1 and len(thresholds) == levels and len(hierarchy):
        thresholds = thresholds[hierarchy.depth - 1]
    return np.broadcast_to(thresholds, len(hierarchy))


def above(scores: Scores, t: float | DoubleArray) -> LabelMatrix:
    """Predict {n : p(n) > t}, t at least 0: one number, or one per node.

    Parameters
    ----------
    t
        The threshold, or one per node.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    # One number is compared in the precision of the scores: 1/3 is not above 1/3.
    least = np.asarray(t, np.float64 if np.ndim(t) else scores.dtype)
    return _where(np.greater, scores, np.broadcast_to(least, len(scores.hierarchy)))


def hamming(scores: Scores) -> LabelMatrix:
    """Predict {p > 1/2}: a node costs 1 - p if it is predicted and p if it is not. Exact, for any truth.

    With one path each, it is exact for the shortest path, too: the edges between two paths of a tree are the nodes that
    only one has.

    >>> from treelabel.hierarchy import Hierarchy
    >>> hamming(Scores(Hierarchy.flat(["A", "B", "C"]), [[0.6, 0.5, 0.4]])).indices.tolist()
    [0]
    """
    return above(scores, 0.5)


def icm(scores: Scores, alpha: float = 2.0, beta: float = 3.0) -> LabelMatrix:
    """Predict {p > 1 - alpha / beta}, which is 1/3 for the usual ICM of alpha = 2, beta = 3. Exact, for any truth.

    ICM = alpha a + alpha_2 b - beta (a + b - c) is a sum over predicted nodes of w(n) (alpha - beta + beta p(n)) in
    expectation, whatever their information w(n).

    Parameters
    ----------
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


def top_k(scores: Scores, k: int = 5, leaves: bool = False) -> LabelMatrix:
    """Predict the k nodes with the largest scores above 0, of all nodes or of the leaves; equal ones: lower ids.

    Linear in the scores.

    Parameters
    ----------
    k
        How many nodes to predict at most.
    leaves
        Whether only leaves are predicted.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> s = Scores(h, [[0.5, 0.4, 0.1]])
    >>> top_k(s, 1).indices.tolist(), top_k(s, 1, leaves=True).indices.tolist()
    ([0], [1])
    """
    selected = scores
    if leaves:
        # Inner nodes are set to 0, which is never predicted.
        is_leaf = scores.hierarchy.is_leaf
        if scores.is_sparse:
            matrix = scores.values.copy()
            matrix.data *= is_leaf[matrix.indices]
        else:
            matrix = scores.values * is_leaf
        selected = Scores(scores.hierarchy, matrix)
    best = selected.top_k(whole_number(k, "k")).values
    return label_matrix(best.indptr, best.indices, best.shape[1])


def whole_number(value: float, what: str) -> int:
    """Return a setting as an integer, refusing what is not a whole number of at least 1.

    Parameters
    ----------
    value
        The setting.
    what
        How messages call it.

    Returns
    -------
    int
    """
    if not 1 <= value < np.inf or value != int(value):
        raise TreelabelError(f"{what} = {value:g}, expected a whole number of at least 1")
    return int(value)
