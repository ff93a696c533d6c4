"""The log loss of held-out documents, by which models choose their settings and when to stop."""

from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.candidates import CandidateCalibration, CandidateSoftmax
from treelabel.core.types import DoubleArray
from treelabel.hierarchy import matches, row_numbers
from treelabel.selection.training import Training

# A label that is said to be impossible costs as much as one said to be this likely.
LEAST = 1e-6
# Labels whose order is compared.
RANKED = 5


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


def candidate_loss(calibration: CandidateCalibration, evidence: sparse.csr_array, held: Training) -> float:
    """Compute how bad candidates of held-out documents are, however they are calibrated; NaN if nothing is known.

    Of documents with one path that is the log loss of the terminal node once `calibration` is fitted to them. Else it
    is 1 - nDCG@5: a log loss would be that of the many candidates which are nearly impossible, and hardly tell settings
    apart.

    Parameters
    ----------
    calibration : CandidateCalibration
        Of the kind that suits the documents.
    evidence : csr_array of shape (documents, nodes)
    held : Training
        The documents.

    Returns
    -------
    float
    """
    if isinstance(calibration, CandidateSoftmax):
        loss = calibration.loss_of(evidence, held.labels)
        return np.nan if loss is None else loss(np.log(calibration.fit(evidence, held.labels).numbers))
    sizes = np.diff(held.closed.indptr)
    row, true = row_numbers(evidence), matches(held.closed, evidence)
    order = np.lexsort((evidence.indices, -evidence.data, row))
    rank = np.arange(len(row)) - np.repeat(evidence.indptr[:-1], np.diff(evidence.indptr))
    gains = 1 / np.log2(np.arange(RANKED) + 2)
    hit = true[order] & (rank < RANKED)
    reached = np.bincount(row[hit], gains[rank[hit]], len(sizes))
    best = np.concatenate([[0], np.cumsum(gains)])[np.minimum(sizes, RANKED)]
    return 1 - float((reached[sizes > 0] / best[sizes > 0]).mean()) if sizes.any() else np.nan
