"""The log loss of held-out documents, by which models choose their settings and when to stop."""

from typing import Any

import numpy as np

from treelabel.models.base import Training

# A label that is said to be impossible costs as much as one said to be this likely.
LEAST = 1e-6


def log_loss(p: Any, held: Training) -> float:
    """Compute the mean log loss of documents: of their labels where they have one path, else of all nodes.

    Parameters
    ----------
    p : array or csr_array of shape (documents, nodes)
        Probabilities of nodes.
    held : Training
        The documents and their labels.

    Returns
    -------
    float
        The loss; NaN if no document has a label.
    """
    if held.regime == "multi_path":
        true, values = held.closed.toarray().astype(bool), np.asarray(p)
        right = np.clip(np.where(true, values, 1 - values), LEAST, 1)
        return -float(np.log(right).sum(axis=1).mean())
    terminals = held.hierarchy.most_specific(held.labels)
    row = np.repeat(np.arange(len(held)), np.diff(terminals.indptr))
    if not len(row):
        return np.nan
    return -float(np.log(np.maximum(np.asarray(p[row, terminals.indices]).ravel(), LEAST)).mean())
