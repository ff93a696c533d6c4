"""Notes on the documents of an evaluation: how many got a label, and what a reader of the values must know."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treelabel.core.errors import some
from treelabel.evaluation.sums import Pair, add_sums, column_sums
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import row_numbers, row_sizes
from treelabel.metrics.batch import Batch
from treelabel.metrics.label_counts import constrained_counts, has_ancestors
from treelabel.metrics.metric import Metric
from treelabel.metrics.overlap import f_beta, precision, recall

JUDGED = ("hp", "hr", "hf1")


@dataclass(frozen=True, eq=False)
class Coverage:
    """Counts of documents, of those that got a label, and of those that got a leaf; they add up.

    `label` and `leaf` are shares. `all_documents` and `answered` are hp, hr and hf1 of all documents and of those with
    a label: a document without one has 0 in all three (unless it has no true label either), which is what abstaining
    costs. They are NaN without sums.
    """

    documents: int
    with_label: int
    with_leaf: int
    sums: Pair | None = None
    answered_sums: Pair | None = None

    @classmethod
    def of(cls, batch: Batch) -> "Coverage":
        """Count the documents of a batch that has decisions."""
        # Ancestors are no leaves, and make no label of none.
        chosen = batch.decisions
        has_label = row_sizes(chosen) > 0
        # Leaves up to the end of each row, less those up to its beginning.
        leaves = np.append(0, np.cumsum(batch.hierarchy.is_leaf[chosen.indices]))[chosen.indptr]
        counts = len(batch), int(has_label.sum()), int(np.count_nonzero(np.diff(leaves)))
        abc = batch.unit_overlap
        values = np.stack([precision(abc), recall(abc), f_beta(abc)]).T
        return cls(*counts, column_sums(values), column_sums(values[has_label]))

    def reported(self, with_values: bool) -> "Coverage":
        """Leave out the values where every document got a label, so that there is nothing to compare, unless wanted."""
        return self if with_values or self.with_label < self.documents else replace(self, sums=None, answered_sums=None)

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(
            self.documents + other.documents,
            self.with_label + other.with_label,
            self.with_leaf + other.with_leaf,
            None if self.sums is None or other.sums is None else add_sums(self.sums, other.sums),
            None
            if self.answered_sums is None or other.answered_sums is None
            else add_sums(self.answered_sums, other.answered_sums),
        )

    @property
    def label(self) -> float:
        """The share of documents that got a label; NaN of none."""
        return self.with_label / self.documents if self.documents else float("nan")

    @property
    def leaf(self) -> float:
        """The share of documents that got a leaf; NaN of none."""
        return self.with_leaf / self.documents if self.documents else float("nan")

    @property
    def all_documents(self) -> dict[str, float]:
        """The hp, hr and hf1 of all documents."""
        return self._means(self.sums, self.documents)

    @property
    def answered(self) -> dict[str, float]:
        """The hp, hr and hf1 of the documents that got a label."""
        return self._means(self.answered_sums, self.with_label)

    @staticmethod
    def _means(sums: Pair | None, count: int) -> dict[str, float]:
        means = np.full(len(JUDGED), np.nan) if sums is None or not count else sums[0] / count
        return dict(zip(JUDGED, means.tolist(), strict=True))

    def notes(self) -> list[str]:
        """Return lines for people, none where every document got a leaf."""
        if self.with_leaf == self.documents:
            return []
        lines = [f"Coverage: of {self.documents:,} documents, {self.label:.1%} got a label and {self.leaf:.1%} a leaf."]
        if self.sums is not None and 0 < self.with_label < self.documents:
            lines.append(f"{'What abstaining costs':<24}" + "".join(f"{name:<8}" for name in JUDGED).rstrip())
            for what, values in (("all documents", self.all_documents), ("those with a label", self.answered)):
                lines.append(f"  {what:<22}" + "  ".join(f"{values[name]:.4f}" for name in JUDGED))
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the shares and values by name; what is not known is None."""

        def known(values: dict[str, float]) -> dict[str, float | None]:
            return {name: None if np.isnan(value) else value for name, value in values.items()}

        shares = known({"label": self.label, "leaf": self.leaf})
        return {**shares, "all": known(self.all_documents), "answered": known(self.answered)}


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
