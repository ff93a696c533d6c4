"""Information content of labels, the node weights made of it, and propensities."""

import numpy as np

from treelabel.core.types import DoubleArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy


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
