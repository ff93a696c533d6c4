"""Facts for the page on a model: how its probabilities hold, and its labels."""

from dataclasses import dataclass

import numpy as np

from treelabel.evaluation.reliability_bins import Reliability, reliability_of_predictions
from treelabel.models.base import Model
from treelabel.serve.model_store import ServedModel


@dataclass(frozen=True)
class LabelRow:
    """A label with its documents: how many in training, their share, and the mean probability on held-out ones."""

    node: int
    path: str
    depth: int
    documents: int
    share: float
    predicted: float | None


def calibration_of(model: Model) -> Reliability | None:
    """Return how often predictions for held-out documents were right; None where there were none."""
    result = reliability_of_predictions(model.profile_.confidences, model.profile_.correct)
    return result if len(result.counts) else None


def label_rows(served: ServedModel, order: str, offset: int, limit: int) -> list[LabelRow]:
    """List labels.

    Parameters
    ----------
    served
        A model.
    order
        "documents": those with the most training documents first, "rarest": with the fewest, "taxonomy": as they are.
    offset, limit
        Which of them.

    Returns
    -------
    list of LabelRow
    """
    h, profile = served.model.hierarchy_, served.model.profile_
    counts = profile.frequencies
    nodes = np.arange(len(h))
    if order != "taxonomy":
        nodes = np.argsort(counts if order == "rarest" else -counts, kind="stable")
    some = nodes[offset : offset + limit].tolist()
    return [
        LabelRow(
            node,
            path,
            int(h.depth[node]),
            int(counts[node]),
            float(counts[node]) / profile.documents,
            float(profile.shares[node]) if len(profile.shares) else None,
        )
        for node, path in zip(some, h.paths(some), strict=True)
    ]
