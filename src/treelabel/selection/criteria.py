"""Losses of held-out documents, by which models choose their settings and when to stop."""

from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.candidates import CandidateCalibration, CandidateSoftmax
from treelabel.core.types import DoubleArray
from treelabel.hierarchy.label_matrices import matches, row_numbers, row_sizes
from treelabel.metrics.probabilities import negative_log
from treelabel.metrics.ranking import ndcg
from treelabel.selection.training import Training

# A label that is said to be impossible costs as much as one said to be this likely.
LEAST = 1e-6
# Labels whose order is compared.
RANKED = 5


def log_losses(p: Any, held: Training) -> DoubleArray:
    """Compute the log loss of each document: of its label where documents have one path, else of all nodes.

    Parameters
    ----------
    held : Training
        The documents, whose regime says which of both.

    Returns
    -------
    array of shape (documents with a label,)
    """
    if held.regime == "multi_path":
        true, values = held.closed.toarray().astype(bool), np.asarray(p.toarray() if sparse.issparse(p) else p)
        losses: DoubleArray = negative_log(np.where(true, values, 1 - values), LEAST).sum(axis=1, dtype=np.float64)
        return losses
    terminals = held.hierarchy.most_specific(held.labels)
    true_p = p[row_numbers(terminals), terminals.indices]
    return negative_log(np.asarray(true_p, np.float64).ravel(), LEAST)


def log_loss(p: Any, held: Training) -> float:
    """Compute the mean of `log_losses`; NaN if no document has a label."""
    losses = log_losses(p, held)
    return float(losses.mean()) if len(losses) else np.nan


def candidate_loss(calibration: CandidateCalibration, evidence: sparse.csr_array, held: Training) -> float:
    """Compute how bad candidates of held-out documents are, however they are calibrated; NaN if nothing is known.

    Of documents with one path that is the log loss of the terminal node once `calibration` is fitted to them. Else it
    is 1 - nDCG@5: a log loss would be that of the many candidates which are nearly impossible, and hardly tell settings
    apart.

    Parameters
    ----------
    calibration : CandidateCalibration
        Of the kind that suits the documents.
    held : Training
        The documents.

    Returns
    -------
    float
    """
    if isinstance(calibration, CandidateSoftmax):
        loss = calibration.loss_of(evidence, held.labels)
        return np.nan if loss is None else loss(np.log(calibration.fit(evidence, held.labels).numbers))
    row, sizes = row_numbers(evidence), row_sizes(held.closed)
    order = np.lexsort((evidence.indices, -evidence.data, row))
    rank = np.arange(len(row)) - evidence.indptr[row]
    marks = np.zeros((len(sizes), RANKED), np.bool_)
    ranked = rank < RANKED
    marks[row[ranked], rank[ranked]] = matches(held.closed, evidence)[order][ranked]
    return 1 - float(ndcg(marks, sizes)[sizes > 0].mean()) if sizes.any() else np.nan
