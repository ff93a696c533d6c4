"""Remarks on the documents that were judged: what a reader of the values must know of truth and predictions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treelabel.core.errors import some
from treelabel.hierarchy import Hierarchy, row_numbers
from treelabel.metrics import Batch, Metric
from treelabel.metrics.labels import constrained_counts, has_ancestors


@dataclass(frozen=True)
class Remarks:
    """Counts that add up over documents.

    `unseen` are the true labels, ancestors included, that the hierarchy of the scores does not have; `with_unseen`
    documents have one. `with_orphan` documents have a predicted label without one of its ancestors.
    """

    documents: int = 0
    unseen: frozenset[int] = frozenset()
    with_unseen: int = 0
    with_orphan: int = 0

    @classmethod
    def of(cls, batch: Batch, metrics: Sequence[Metric]) -> "Remarks":
        """Look at some documents.

        Parameters
        ----------
        batch
            The documents.
        metrics
            What they are judged by: nobody looks for orphans where it makes no difference.

        Returns
        -------
        Remarks
        """
        closed, unseen, with_unseen, with_orphan = batch.closed_truth, np.zeros(0, np.int32), 0, 0
        if batch.known_nodes is not None:
            is_unseen = ~batch.known_nodes[closed.indices]
            unseen, with_unseen = closed.indices[is_unseen], len(np.unique(row_numbers(closed)[is_unseen]))
        if any(metric.parts is constrained_counts for metric in metrics):
            is_orphan = ~has_ancestors(batch.hierarchy, batch.decisions)
            with_orphan = len(np.unique(row_numbers(batch.decisions)[is_orphan]))
        return cls(len(batch), frozenset(np.unique(unseen).tolist()), with_unseen, with_orphan)

    def __add__(self, other: "Remarks") -> "Remarks":
        return Remarks(
            self.documents + other.documents,
            self.unseen | other.unseen,
            self.with_unseen + other.with_unseen,
            self.with_orphan + other.with_orphan,
        )

    def notes(self, hierarchy: Hierarchy) -> list[str]:
        """Return lines for people, none where there is nothing to remark.

        >>> h = Hierarchy.from_paths(["A > B", "A > C"])
        >>> print(*Remarks(10, frozenset([2]), with_unseen=3).notes(h))
        1 label of the truth (3 of 10 documents) is not known to the scores, which are 0 there: 'A > C'.
        """
        notes = []
        if self.unseen:
            what, verb = ("1 label", "is") if len(self.unseen) == 1 else (f"{len(self.unseen):,} labels", "are")
            notes.append(
                f"{what} of the truth ({self.with_unseen:,} of {self.documents:,} documents) {verb} not known to the "
                f"scores, which are 0 there: {some(hierarchy.paths(sorted(self.unseen)))}."
            )
        if self.with_orphan:
            notes.append(
                f"{self.with_orphan:,} of {self.documents:,} documents have predicted labels without their ancestors, "
                "which constrained F1 counts as wrong. If these labels stand for their ancestors too, say so "
                '("closed": true in a prediction file).'
            )
        return notes
