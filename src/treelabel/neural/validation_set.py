"""Validation: which epoch is best, by the log loss of documents that training does not see."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from treelabel.core.types import LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix, keep_entries
from treelabel.models.base import Training
from treelabel.neural.featurizers import Inputs, TextFeaturizer
from treelabel.neural.network import Network
from treelabel.neural.objective import Objective
from treelabel.selection.evidence import HeldOut

# At most this many documents × nodes, but at least this many documents.
MAX_VALUES = 300_000
MIN_DOCUMENTS = 200


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Documents that tell how good a network is: by the log loss of their labels at the best temperature."""

    data: Training
    inputs: Inputs
    featurizer: TextFeaturizer
    objective: Objective
    # What is true of them, whatever the best epoch is chosen by.
    labels: LabelMatrix

    @classmethod
    def of(
        cls,
        data: Training | None,
        featurizer: TextFeaturizer,
        objective: Objective,
        seed: int,
        seen: Training | None = None,
    ) -> "ValidationSet | None":
        """Sample documents whose labels the loss can take.

        Parameters
        ----------
        data
            Documents that training does not see, if any.
        featurizer
            How the network sees texts.
        objective
            What the network is trained for.
        seed
            Seed of the sample.
        seen
            The documents that are trained on, where the best epoch is to be chosen by the labels that these have.

        Returns
        -------
        Validation or None
            None where there is no such document.
        """
        rows = np.zeros(0, np.int64) if data is None else objective.truth(data, drop=True)[0]
        if data is None or not len(rows):
            return None
        count = max(MIN_DOCUMENTS, MAX_VALUES // max(1, len(data.hierarchy)))
        # At random: documents are often sorted by their labels.
        sample = data[np.sort(np.random.default_rng(seed).permutation(rows)[:count])]
        labels = sample.labels
        if seen is not None:
            sample = with_seen_labels(sample, seen)
        if not objective.exhaustive:
            # Sigmoids are evaluated at all nodes: for a single one, a probability of 1 for everything would be best.
            sample = replace(sample, regime="multi_path")
        inputs = featurizer.inputs(sample.texts, data.progress)
        return cls(sample, inputs, featurizer, objective, labels)

    @cached_property
    def batches(self) -> list[LongArray]:
        """The row numbers of each batch."""
        return self.featurizer.batches(self.inputs)

    def score(self, network: Network, temperature: float) -> HeldOut:
        """Score the documents, and put what is true of them alongside."""
        scores = network.score(self.batches, self.inputs, self.objective, temperature)
        return HeldOut(scores, self.labels, self.data.groups)

    def __call__(self, network: Network) -> tuple[float, float]:
        """Return the log loss, and the temperature of the logits that gives it; candidates are ranked without one."""
        return network.validation_loss(self.batches, self.inputs, self.objective, self.data)


def with_seen_labels(held_out: Training, shown: Training) -> Training:
    """Leave out labels that training does not see."""
    seen = np.zeros(len(shown.hierarchy), np.bool_)
    seen[shown.closed_labels.indices] = True
    closed = held_out.closed_labels
    return replace(held_out, labels=keep_entries(closed, seen[closed.indices]))
