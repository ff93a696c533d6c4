"""Mixing the distribution over siblings with the uniform one, with a weight per level."""

import numpy as np

from treelabel.calibration.fitting import fit_mixture_weight
from treelabel.calibration.outputs import LEVELS, Outputs
from treelabel.calibration.path_kernels import Sums
from treelabel.core.types import DoubleArray, FloatArray
from treelabel.hierarchy import Hierarchy, LabelMatrix


def fit_uniform_weights(hierarchy: Hierarchy, p: FloatArray, closed: LabelMatrix) -> DoubleArray:
    """Fit the weight of the uniform distribution over siblings, by level.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree.
    p : array of shape (documents, nodes)
        Probabilities of nodes.
    closed : csr_array of shape (documents, nodes)
        The true labels and their ancestors.

    Returns
    -------
    array of shape (LEVELS + 1,)
        Weights; that of level 0 is 0.
    """
    h, row, nodes = hierarchy, np.repeat(np.arange(closed.shape[0]), np.diff(closed.indptr)), closed.indices
    parent = h.parent[nodes]
    above = np.where(parent >= 0, p[row, parent], 1.0)
    sizes = np.bincount(h.parent + 1, minlength=len(h) + 1)[parent + 1]
    uniform = 1.0 / sizes
    given = np.where(above > 0, p[row, nodes] / np.maximum(above, 1e-30), uniform)
    levels = np.minimum(h.depth[nodes], LEVELS)
    weights = np.zeros(LEVELS + 1)
    for level in range(1, LEVELS + 1):
        at = (levels == level) & (sizes > 1)
        weights[level] = fit_mixture_weight(given[at], uniform[at])
    return weights


def sums_of(outputs: Outputs, uniform_weights: DoubleArray) -> Sums:
    """Prepare how terminals sum up to nodes, and how siblings in a tree are mixed with the uniform distribution.

    Parameters
    ----------
    outputs : Outputs
        Terminal nodes and their hierarchy.
    uniform_weights : array of shape (LEVELS + 1,)
        Weights by level.

    Returns
    -------
    Sums
        What compiled loops need.
    """
    h, none, paths = outputs.hierarchy, np.zeros(0, np.int32), outputs.paths
    if not h.is_tree:
        nothing = np.zeros(0, np.float32)
        return Sums(outputs.terminals, none, nothing, nothing, paths.indptr, paths.indices)
    sizes = np.bincount(h.parent + 1, minlength=len(h) + 1)
    depth = np.minimum(np.concatenate([[0], h.depth]) + 1, LEVELS)
    uniform = np.where(sizes > 0, 1 / np.maximum(sizes, 1), 0).astype(np.float32)
    return Sums(outputs.terminals, h.parent, uniform_weights[depth].astype(np.float32), uniform, none, none)
