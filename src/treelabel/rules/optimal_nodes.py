"""Rules that are optimal for metrics with a closed form: thresholds, best leaves, and single nodes by expectation.

Truth is taken to be one path, and scores a coherent distribution over where it ends (see `hierarchical_f`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import existing_file
from treelabel.core.types import DoubleArray, IntArray
from treelabel.hierarchy import similarity as similarities
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.rules.score_rows import ScoreRows, choose_nodes, load_tree_row, longest_row, make_tree_row, single_labels
from treelabel.scores.score_matrix import Scores


def level_accuracy(scores: Scores) -> LabelMatrix:
    """Predict the path with the largest sum of scores, each level weighing by how few documents reach it.

    The metric averages over levels the share of documents, of those whose truth reaches the level, with the right node
    there. A closed set has at most one node per level if it is a path, so a path is best, and with W(d) = the sum over
    documents and nodes of depth d of p, the expected number of documents that reach the level, the best path has the
    largest sum of p(n) / W(depth of n). Exact where all paths are as deep, and for many documents: with few, how many
    reach a level is not what is expected. Needs a tree. Linear in the scores.
    """
    h = scores.hierarchy
    parent, selected = h.parent, scores.coherent()
    by_node = np.asarray(selected.values.sum(axis=0, dtype=np.float64)).ravel()
    # Without nodes numpy counts in whole numbers.
    reach = np.bincount(h.depth, weights=by_node, minlength=h.max_depth + 1).astype(np.float64)
    worth = np.divide(1.0, reach, out=np.zeros_like(reach), where=reach > 0)[h.depth]
    none = np.zeros(len(h))
    return choose_nodes(selected, lambda rows: best_path(parent, worth, none, rows))


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
    return choose_nodes(scores.coherent(), lambda rows: best_path(parent, worth, worth, rows))


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
    return choose_nodes(scores.coherent(), lambda rows: best_wu_palmer(parent, h.depth, rows))


def lin(scores: Scores, information: DoubleArray) -> LabelMatrix:
    """Predict the node with the largest expected Lin similarity. Exact, if no node is more frequent than its parent.

    Needs a tree. Linear in the scores times the depth, and again for each node that a bound does not rule out.

    Parameters
    ----------
    information : array of shape (nodes,)
        The information content of each node.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    parent, bits = scores.hierarchy.parent, np.asarray(information, np.float64)
    return choose_nodes(scores.coherent(), lambda rows: best_lin(parent, bits, rows))


@kernel
def best_path(parent: IntArray, worth: DoubleArray, worth_of_end: DoubleArray, rows: ScoreRows) -> IntArray:
    """Find the node with the largest sum over its path of worth x score + worth_of_end x own mass; linear in the row.

    Both worths are by node and not below 0, so that it is the end of a longest path of the row.
    """
    ptr, nodes, values, start, stop = rows
    most = longest_row(rows)
    workspace, total = make_tree_row(len(parent), most), np.empty(most)
    above, mass = workspace.above, workspace.mass
    result = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        load_tree_row(parent, nodes[low:high], values[low:high], workspace)
        best = -1.0
        for index in range(high - low):
            node = nodes[low + index]
            total[index] = worth[node] * values[low + index] + worth_of_end[node] * mass[index]
            if above[index] >= 0:
                total[index] += total[above[index]]
            # A child that adds nothing to its parent is still preferred: the path goes on to a leaf.
            if total[index] > best or (above[index] >= 0 and nodes[low + above[index]] == result[row - start]):
                best = total[index]
                result[row - start] = node
    return result


@kernel
def best_wu_palmer(parent: IntArray, depth: IntArray, rows: ScoreRows) -> IntArray:
    """Find the node (-1: the root) with the largest expected Wu-Palmer similarity to where the true path ends.

    For a node s at depth k, 2 d(lcs) / (d(s) + d(e)) is a sum over the common ancestors a of s and e, the root counted,
    of 2 / (d(s) + d(e)), so the expectation is a sum over the path of s of what lies below each of its nodes. One pass
    up and one down for each depth: linear in the row times its levels.
    """
    ptr, nodes, values, start, stop = rows
    most = longest_row(rows)
    workspace, path = make_tree_row(len(parent), most), np.empty(most)
    above = workspace.above
    result = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        load_tree_row(parent, nodes[low:high], values[low:high], workspace)
        best, none = -1.0, none_true(workspace.above, workspace.whole, high - low)
        for level in range(depth[nodes[high - 1]] + 1 if high > low else 0):
            root = similarity_below(depth, nodes[low:high], above, workspace.mass, level, path)
            # Where nothing is true, the true end is the root.
            root += none * 2 / (level + 2)
            if level == 0:
                best = root
            for index in range(high - low):
                if depth[nodes[low + index]] > level:
                    break
                path[index] += path[above[index]] if above[index] >= 0 else root
                if depth[nodes[low + index]] == level and path[index] > best:
                    best = path[index]
                    result[row - start] = nodes[low + index]
    return result


@kernel
def none_true(above: IntArray, whole: DoubleArray, count: int) -> float:
    """Return what the top nodes of a row lack of 1."""
    lacking = 1.0
    for index in range(count):
        if above[index] < 0:
            lacking -= whole[index]
    return max(0.0, lacking)


@kernel
def similarity_below(
    depth: IntArray, nodes: IntArray, above: IntArray, mass: DoubleArray, level: int, below: DoubleArray
) -> float:
    """Sum 2 m(e) / (level + d(e)) over the terminal nodes e below each node of a row; return the sum of the root.

    Depths count from 1.
    """
    for index in range(len(nodes)):
        below[index] = mass[index] * 2 / (level + depth[nodes[index]] + 2)
    root = 0.0
    for index in range(len(nodes) - 1, -1, -1):
        if above[index] >= 0:
            below[above[index]] += below[index]
        else:
            root += below[index]
    return root


@kernel
def lin_bound(information: DoubleArray, above: IntArray, nodes: IntArray, whole: DoubleArray, index: int) -> float:
    """Bound the expected Lin similarity of a node: terminal nodes are as close to its path as they can be."""
    bits = information[nodes[index]]
    bound = whole[index]
    passed = bound
    step = above[index]
    while step >= 0:
        shared = information[nodes[step]]
        if shared > 0:
            bound += max(0.0, whole[step] - passed) * 2 * shared / (shared + bits)
        passed = whole[step]
        step = above[step]
    result: float = bound
    return result


@kernel
def expected_lin(
    information: DoubleArray, above: IntArray, mass: DoubleArray, nodes: IntArray, index: int, shared: DoubleArray
) -> float:
    """Compute the expected Lin similarity of one node of a row to the end of the true path.

    `shared` is scratch: ic(lcs).
    """
    shared[: len(nodes)] = -1.0
    step = index
    while step >= 0:
        shared[step] = information[nodes[step]]
        step = above[step]
    bits = information[nodes[index]]
    expected = 0.0
    for terminal in range(len(nodes)):
        if shared[terminal] < 0:
            shared[terminal] = shared[above[terminal]] if above[terminal] >= 0 else 0.0
        both = bits + information[nodes[terminal]]
        if terminal == index:
            expected += mass[terminal]
        elif both > 0:
            expected += mass[terminal] * 2 * shared[terminal] / both
    return expected


@kernel
def best_lin(parent: IntArray, information: DoubleArray, rows: ScoreRows) -> IntArray:
    """Find the node with the largest expected Lin similarity to where the true path ends.

    One expectation is linear in the row; a bound that costs a node's depth leaves only few nodes to compute it for.
    """
    ptr, nodes, values, start, stop = rows
    most = longest_row(rows)
    workspace, bound, shared = make_tree_row(len(parent), most), np.empty(most), np.empty(most)
    result = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        load_tree_row(parent, nodes[low:high], values[low:high], workspace)
        promising = 0
        for index in range(high - low):
            bound[index] = lin_bound(information, workspace.above, nodes[low:high], workspace.whole, index)
            if bound[index] > bound[promising]:
                promising = index
        # Where nothing is true, only predicting nothing is like it.
        best, best_index = none_true(workspace.above, workspace.whole, high - low), -1
        for turn in range(-1, high - low):
            # The most promising node goes first, so that most others need not be looked at.
            index = promising if turn < 0 else turn
            if high == low or (turn == promising) or bound[index] * (1 + 1e-12) < best:
                continue
            expected = expected_lin(information, workspace.above, workspace.mass, nodes[low:high], index, shared)
            if expected > best or (expected == best and 0 <= index < best_index):
                best, best_index = expected, index
        if best_index >= 0:
            result[row - start] = nodes[low + best_index]
    return result


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
