"""The log loss of held-out documents, by which models choose their settings and when to stop."""

from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.types import DoubleArray
from treelabel.selection.training import Training

# A label that is said to be impossible costs as much as one said to be this likely.
LEAST = 1e-6


def log_losses(p: Any, held: Training) -> DoubleArray:
    """Compute the log loss of each document: of its label where documents have one path, else of all nodes.

    Parameters
    ----------
    p : array or csr_array of shape (documents, nodes)
        Probabilities of nodes.
    held : Training
        The documents and their labels.

    Returns
    -------
    array of shape (documents with a label,)
        Losses.
    """
    if held.regime == "multi_path":
        true, values = held.closed.toarray().astype(bool), np.asarray(p.toarray() if sparse.issparse(p) else p)
        right = np.clip(np.where(true, values, 1 - values), LEAST, 1)
        found: DoubleArray = -np.log(right).sum(axis=1, dtype=np.float64)
        return found
    terminals = held.hierarchy.most_specific(held.labels)
    row = np.repeat(np.arange(len(held)), np.diff(terminals.indptr))
    losses: DoubleArray = -np.log(np.maximum(np.asarray(p[row, terminals.indices], np.float64).ravel(), LEAST))
    return losses


def log_loss(p: Any, held: Training) -> float:
    """Compute the mean of `log_losses`; NaN if no document has a label.

    Parameters
    ----------
    p, held
        As there.

    Returns
    -------
    float
        The mean.
    """
    losses = log_losses(p, held)
    return float(losses.mean()) if len(losses) else np.nan
