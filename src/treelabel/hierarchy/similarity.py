"""Information content of labels, and the similarity of two nodes: by depth, by the path between them, by information.

Every similarity takes two arrays of node ids and returns one value per pair; lcs is the lowest common ancestor (lowest
common subsumer). Depths count from a root at depth 1, and the root has no information. Each pair costs as much as
finding its lowest common ancestor.
"""

import numpy as np

from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy


def meeting_points(hierarchy: Hierarchy, left: IntArray, right: IntArray) -> IntArray:
    """Find the lowest common ancestor of each pair.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.
    left, right : int array of shape (pairs,)
        Node ids; -1 is the root.

    Returns
    -------
    int array of shape (pairs,)
        Node ids; -1 is the root.

    >>> meeting_points(Hierarchy.from_paths(["A > B", "A > C"]), np.array([1, -1]), np.array([2, 2])).tolist()
    [0, -1]
    """
    met = np.full(len(left), -1, np.int32)
    real = (left >= 0) & (right >= 0)
    if real.any():
        met[real] = hierarchy.lowest_common_ancestor(left[real], right[real])
    return met


def edges_between(hierarchy: Hierarchy, left: IntArray, right: IntArray) -> DoubleArray:
    """Count the edges of the shortest path between two nodes that goes up and then down.

    Parameters
    ----------
    hierarchy, left, right
        As for `meeting_points`.

    Returns
    -------
    float array of shape (pairs,)

    >>> edges_between(Hierarchy.from_paths(["A > B", "C"]), np.array([0, 2, -1]), np.array([2, 1, 2])).tolist()
    [1.0, 3.0, 2.0]
    """
    depth = hierarchy.shortest_depth
    edges = np.where(left < 0, 0, depth[left]) + np.where(right < 0, 0, depth[right])
    real = (left >= 0) & (right >= 0)
    edges[real] = hierarchy.distance(left[real], right[real])
    return edges.astype(np.float64)


def wu_palmer(hierarchy: Hierarchy, left: IntArray, right: IntArray) -> DoubleArray:
    """Compute Wu and Palmer's similarity, 2 d(lcs) / (d(x) + d(y)).

    Parameters
    ----------
    hierarchy, left, right
        As for `meeting_points`.

    Returns
    -------
    float array of shape (pairs,)
        Values above 0, up to 1 for equal nodes.

    >>> wu_palmer(Hierarchy.from_paths(["A > B", "A > C"]), np.array([1, 1]), np.array([1, 2])).round(3).tolist()
    [1.0, 0.667]
    """
    met = meeting_points(hierarchy, left, right)
    depth = hierarchy.depth
    one, two, shared = (np.where(nodes >= 0, depth[nodes] + 1.0, 1.0) for nodes in (left, right, met))
    alike: DoubleArray = 2 * shared / (one + two)
    return alike


def leacock_chodorow(hierarchy: Hierarchy, left: IntArray, right: IntArray) -> DoubleArray:
    """Compute Leacock and Chodorow's similarity, -ln(len / 2D).

    len is the number of nodes on the shortest path between the two, both included, and D the largest depth.

    Parameters
    ----------
    hierarchy, left, right
        As for `meeting_points`.

    Returns
    -------
    float array of shape (pairs,)

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> leacock_chodorow(h, np.array([1, 1]), np.array([1, 2])).round(3).tolist()
    [1.792, 0.693]
    """
    return -np.log((edges_between(hierarchy, left, right) + 1) / (2 * (hierarchy.max_depth + 1)))


def _bits(information: DoubleArray, *nodes: IntArray) -> list[DoubleArray]:
    return [np.where(ids >= 0, information[ids], 0.0) for ids in nodes]


def resnik(hierarchy: Hierarchy, left: IntArray, right: IntArray, information: DoubleArray) -> DoubleArray:
    """Compute Resnik's similarity, ic(lcs).

    Parameters
    ----------
    hierarchy, left, right
        As for `meeting_points`.
    information : float array of shape (nodes,)
        The information content ic of every node.

    Returns
    -------
    float array of shape (pairs,)

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> resnik(h, np.array([1, 1]), np.array([1, 2]), np.array([1.0, 2.0, 2.0])).tolist()
    [2.0, 1.0]
    """
    return _bits(information, meeting_points(hierarchy, left, right))[0]


def lin(hierarchy: Hierarchy, left: IntArray, right: IntArray, information: DoubleArray) -> DoubleArray:
    """Compute Lin's similarity, 2 ic(lcs) / (ic(x) + ic(y)); 1 for equal nodes.

    Parameters
    ----------
    hierarchy, left, right
        As for `meeting_points`.
    information : float array of shape (nodes,)
        The information content ic of every node.

    Returns
    -------
    float array of shape (pairs,)
        Values from 0 to 1.

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> lin(h, np.array([1, 1]), np.array([1, 2]), np.array([1.0, 2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    one, two, shared = _bits(information, left, right, meeting_points(hierarchy, left, right))
    total = one + two
    return np.where(left == right, 1.0, np.divide(2 * shared, total, out=np.zeros_like(total), where=total > 0))


def jiang_conrath(hierarchy: Hierarchy, left: IntArray, right: IntArray, information: DoubleArray) -> DoubleArray:
    """Compute Jiang and Conrath's distance, ic(x) + ic(y) - 2 ic(lcs).

    Parameters
    ----------
    hierarchy, left, right
        As for `meeting_points`.
    information : float array of shape (nodes,)
        The information content ic of every node.

    Returns
    -------
    float array of shape (pairs,)
        0 for equal nodes.

    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> jiang_conrath(h, np.array([1, 1]), np.array([1, 2]), np.array([1.0, 2.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    one, two, shared = _bits(information, left, right, meeting_points(hierarchy, left, right))
    return one + two - 2 * shared


def win(hierarchy: Hierarchy, left: IntArray, right: IntArray) -> DoubleArray:
    """Compute the win of the one-hot vector at `left` for the true node `right`: 1 if reached, else 1 - 2^-d(lcs).

    Here depths count from a root at depth 0. A DAG is refused.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree.
    left : int array of shape (pairs,)
        The predicted nodes; -1 is the root.
    right : int array of shape (pairs,)
        The true nodes.

    Returns
    -------
    float array of shape (pairs,)
        Values from 0 to 1.

    >>> win(Hierarchy.from_paths(["A > B", "A > C"]), np.array([1, 1]), np.array([1, 2])).tolist()
    [1.0, 0.5]
    """
    _ = hierarchy.parent
    met = meeting_points(hierarchy, left, right)
    shared = 1.0 - 2.0 ** -np.where(met >= 0, hierarchy.depth[met], 0)
    return np.where(met == right, 1.0, shared)


def information_content(frequencies: LongArray, documents: int) -> DoubleArray:
    """Compute ic(n) = -log2 P(n), P(n) the share of reference documents whose closure holds n, at least 1/N.

    Parameters
    ----------
    frequencies : array of shape (nodes,)
        The documents of each node, ancestors included.
    documents
        The number N of documents.

    Returns
    -------
    array of shape (nodes,)

    >>> information_content(np.array([4, 2, 0]), 4).tolist()
    [0.0, 1.0, 2.0]
    """
    if documents == 0:
        return np.zeros(len(frequencies))
    bits: DoubleArray = np.log2(documents) - np.log2(np.maximum(frequencies, 1))
    return bits


def information_weights(hierarchy: Hierarchy, information: DoubleArray) -> DoubleArray:
    """Compute w(n) = ic(n) - ic(parent), so that w(cl(S)) is the information content of the set S; the root has 0.

    On trees this closed form equals the recursion of the ICM paper (section 5.1). On DAGs it is
    w(n) = max(0, ic(n) - max over parents of ic), because the recursion would depend on the order of labels.

    Parameters
    ----------
    information : array of shape (nodes,)
        The information content of each node.

    Returns
    -------
    array of shape (nodes,)

    >>> h = Hierarchy.from_paths(["A > B"])
    >>> information_weights(h, np.array([1.0, 3.0])).tolist()
    [1.0, 2.0]
    """
    above = np.where(hierarchy.parent_idx >= 0, information[hierarchy.parent_idx], 0.0)
    most = np.zeros(len(hierarchy))
    np.maximum.at(most, hierarchy.edge_child, above)
    return np.maximum(0.0, information - most)


def inverse_propensities(frequencies: LongArray, documents: int, a: float = 0.55, b: float = 1.5) -> DoubleArray:
    """Compute 1 / p_c = 1 + C exp(-A ln(N_c + B)), C = (ln N - 1)(B + 1)^A: how much rarer a label looks than it is.

    A = 0.55, B = 1.5 by default; 0.6, 2.6 are usual for Amazon data and 0.5, 0.4 for Wikipedia. With one or two
    documents C would be below 0 and a propensity no probability, so it is 0.

    Parameters
    ----------
    frequencies : array of shape (nodes,)
        The training documents N_c of each label.
    documents
        The number N of training documents.
    a, b
        Parameters of the data set.

    Returns
    -------
    array of shape (nodes,)
    """
    c = max(0.0, (np.log(documents) - 1) * (b + 1) ** a) if documents > 0 else 0.0
    inverse: DoubleArray = 1 + c * np.exp(-a * np.log(frequencies + b))
    return inverse
