"""Similarity of two nodes: by the depth of their lowest common ancestor, by the path between them, by information.

Every function takes two arrays of node ids and returns one value per pair; lcs is the lowest common ancestor (lowest
common subsumer). Depths count from a root at depth 1, and the root has no information. Each pair costs as much as
finding its lowest common ancestor.
"""

import numpy as np

from treelabel.core.types import DoubleArray, IntArray
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
