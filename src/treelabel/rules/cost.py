"""Rules for any cost: the node whose expected cost against the true leaf is the least."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import existing_file
from treelabel.core.types import DoubleArray, IntArray
from treelabel.hierarchy import similarity as similarities
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.rules.score_rows import single_labels
from treelabel.scores.score_matrix import Scores

Similarity = Literal["wu_palmer", "leacock_chodorow", "resnik", "lin", "jiang_conrath", "win", "shortest_path"]

# A matrix is held in memory as a whole; this many numbers are 4 GB.
LARGEST = 1 << 29
# Expected costs are computed for this many pairs of documents and nodes at once.
BLOCK = 1 << 22


def cost(
    scores: Scores, matrix: Any = None, similarity: Similarity | None = None, information: DoubleArray | None = None
) -> LabelMatrix:
    """Predict the node with the least expected cost: argmin over n of the sum over leaves l of p(l) cost(n, l). Exact.

    `matrix` has one row per node (or per leaf, in the order of `hierarchy.leaves`) and one column per leaf, or is the
    name of a .npy file with it; or it is made of a named similarity by `cost_matrix`. Equal costs: the lower id.
    Documents without a leaf above 0 get nothing. Costs documents x nodes x leaves (CSR: stored leaves), so for the
    similarities that have a rule of their own that rule is faster.

    Parameters
    ----------
    matrix : array of shape (nodes or leaves, leaves)
        The costs, or the name of a file with them.
    similarity
        A similarity to make the costs of, instead.
    information : array of shape (nodes,)
        The information content of each node, for similarities that need it.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> s = Scores.from_leaves(h, ["B", "C", "D"], [[0.35, 0.25, 0.4]])
    >>> h.names[cost(s, similarity="shortest_path").indices[0]]
    'A'
    """
    h = scores.hierarchy
    costs = _resolve_costs(h, matrix, similarity, information)
    chosen = np.arange(len(h), dtype=np.int32) if len(costs) == len(h) else h.leaves
    best = np.full(len(scores), -1, np.int32)
    step = max(1, BLOCK // max(1, len(costs)))
    for low in range(0, len(scores) if len(costs) else 0, step):
        leaves = scores.values[low : low + step][:, h.leaves]
        some = np.asarray(leaves.sum(axis=1)).ravel() > 0
        expected = np.asarray(leaves @ costs.T)
        best[low : low + step] = np.where(some, chosen[expected.argmin(axis=1)], -1)
    return single_labels(h, best)


def _resolve_costs(h: Hierarchy, matrix: Any, similarity: str | None, information: DoubleArray | None) -> DoubleArray:
    """Return the costs, given as a matrix or by a similarity."""
    if (matrix is None) == (similarity is None):
        names = ", ".join(get_args(Similarity))
        raise TreelabelError(
            f"needs either matrix=, nodes x leaves or the .npy file of one, or similarity=, one of {names}"
        )
    if similarity is not None:
        return cost_matrix(h, similarity, information)
    try:
        costs = _load_matrix(Path(matrix)) if isinstance(matrix, str | Path) else np.asarray(matrix, np.float64)
    except ValueError:
        raise TreelabelError("the cost matrix is no matrix of numbers") from None
    leaves = len(h.leaves)
    if costs.shape not in ((len(h), leaves), (leaves, leaves)):
        raise TreelabelError(
            f"a cost matrix of shape {costs.shape}, expected {len(h):,} nodes x {leaves:,} leaves, or leaves x leaves"
        )
    if not np.isfinite(costs).all():
        raise TreelabelError("the cost matrix has entries that are not finite numbers")
    return costs


def _load_matrix(path: Path) -> DoubleArray:
    """Read a matrix that numpy saved."""
    try:
        loaded: DoubleArray = np.load(existing_file(path), allow_pickle=False).astype(np.float64)
    except (ValueError, EOFError, AttributeError) as error:
        raise TreelabelError(f"{path}: no matrix of numbers; expected a .npy file that numpy.save wrote") from error
    return loaded


def cost_matrix(hierarchy: Hierarchy, similarity: str, information: DoubleArray | None = None) -> DoubleArray:
    """Make costs of a similarity, nodes x leaves: the distance itself, or minus the similarity.

    Parameters
    ----------
    similarity
        A function of `hierarchy.similarity`, by name.
    information : array of shape (nodes,)
        The information content of each node, for similarities that need it.

    Returns
    -------
    array of shape (nodes, leaves)

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> cost_matrix(h, "shortest_path").tolist()
    [[1.0, 1.0], [0.0, 2.0], [2.0, 0.0]]
    """
    if similarity not in get_args(Similarity):
        raise TreelabelError(f"unknown similarity {similarity!r}; there are: {', '.join(get_args(Similarity))}")
    if len(hierarchy) * len(hierarchy.leaves) > LARGEST:
        raise TreelabelError(
            f"a cost matrix of {len(hierarchy):,} nodes x {len(hierarchy.leaves):,} leaves would take "
            f"{8 * len(hierarchy) * len(hierarchy.leaves) / 1e9:.0f} GB; use a rule such as optimal:wu_palmer or "
            "optimal:lin, which needs none"
        )
    make: Callable[[IntArray, IntArray], DoubleArray]
    if similarity in ("resnik", "lin", "jiang_conrath"):
        if information is None:
            raise TreelabelError(f"the similarity {similarity} needs training frequencies; pass train_frequencies=")
        bits = np.asarray(information, np.float64)
        make = lambda one, two: getattr(similarities, similarity)(hierarchy, one, two, bits)  # noqa: E731
    elif similarity == "shortest_path":
        make = lambda one, two: similarities.edges_between(hierarchy, one, two)  # noqa: E731
    else:
        make = lambda one, two: getattr(similarities, similarity)(hierarchy, one, two)  # noqa: E731
    is_distance = similarity in ("shortest_path", "jiang_conrath")
    costs = np.empty((len(hierarchy), len(hierarchy.leaves)))
    for node in range(len(hierarchy)):
        alike = make(np.full(len(hierarchy.leaves), node, np.int32), hierarchy.leaves)
        costs[node] = alike if is_distance else -alike
    return costs
