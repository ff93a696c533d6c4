"""What a model trained with a loss of LOSSES aims at: the loss that suits the labels, and the ends that it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.core.compute import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import Change, Hierarchy, LabelMatrix, row_sizes
from treelabel.losses.base import Loss
from treelabel.losses.registry import LOSSES, make_loss
from treelabel.models.base import Training
from treelabel.models.schema import Array, indices
from treelabel.scores import Scores

# A softmax over more leaves than this takes longer than a DAG's sigmoids.
MANY_LEAVES = 2_000
# From this many nodes on, only the likeliest are kept of each document.
MANY_NODES = 20_000
KEPT_NODES = 500
DOCUMENTS_AT_ONCE = 4_096
VALUES_AT_ONCE = 1 << 24


@dataclass(frozen=True, eq=False)
class Objective:
    """A loss of LOSSES for a hierarchy; with a loss for single paths, inner ends (`stops`) are leaves of their own.

    `frequencies` are the training documents of each node of the hierarchy with these leaves.
    """

    name: str
    hierarchy: Hierarchy
    stops: IntArray
    frequencies: LongArray
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, train: Training, name: str, settings: Mapping[str, Any], stops: IntArray | None = None) -> "Objective":
        """Choose what suits training documents; `stops` are further inner ends, known from elsewhere.

        "auto" takes conditional_softmax in a tree where documents have one path, leaf_softmax in a small DAG where they
        have one, and conditional_sigmoid otherwise.
        """
        h, one_path = train.hierarchy, train.regime != "many"
        automatic = "conditional_sigmoid"
        if one_path and h.is_tree:
            automatic = "conditional_softmax"
        elif one_path and len(h.leaves) <= MANY_LEAVES:
            automatic = "leaf_softmax"
        chosen = automatic if name == "auto" else name
        ends = np.unique(h.most_specific(train.labels).indices)
        found = ends[~h.is_leaf[ends] & (one_path and LOSSES.find(chosen).maker.needs != "any")].astype(np.int32)
        if stops is not None:
            found = np.union1d(found, stops).astype(np.int32)
        change = h.with_other_leaves(found)
        closed = change.new.closure(change.labels(train.labels))
        frequencies = np.bincount(closed.indices, minlength=len(change.new)).astype(np.int64)
        return cls(chosen, h, found, frequencies, settings)

    @cached_property
    def change(self) -> Change:
        """From the hierarchy to the one with leaves for inner ends, and back."""
        return self.hierarchy.with_other_leaves(self.stops)

    @cached_property
    def loss(self) -> Loss:
        """The loss for the hierarchy with these leaves."""
        return make_loss(self.name, self.change.new, self.frequencies, **self.settings)

    def require_outputs(self, count: int) -> None:
        """Refuse weights from a file that are of more or fewer outputs than the loss has."""
        if count != len(self.loss.outputs):
            raise TreelabelError(
                f"there are weights of {count:,} outputs, but the loss {self.name} has {len(self.loss.outputs):,}"
            )

    @property
    def exhaustive(self) -> bool:
        """Whether children sum to their parent: a softmax shares out all of it, sigmoids do not."""
        return self.loss.needs != "any"

    def truth(self, data: Training, drop: bool = False) -> tuple[LongArray, LabelMatrix]:
        """The documents to learn from, and their labels. A softmax learns nothing where there are none.

        `drop` leaves out all that the loss refuses, such as documents of a validation set with several paths.
        """
        labels = self.change.labels(data.labels)
        keep = np.ones(len(data), np.bool_)
        if self.loss.needs != "any":
            keep = usable(self.loss, labels) if drop else row_sizes(labels) > 0
        rows = np.flatnonzero(keep)
        return rows, labels[rows]

    def portions(self, documents: int) -> list[LongArray]:
        """Deal documents into portions that are scored at once: some thousands, or fewer if there are many nodes."""
        step = max(1, min(DOCUMENTS_AT_ONCE, VALUES_AT_ONCE // max(1, len(self.change.new))))
        return [np.arange(low, min(low + step, documents)) for low in range(0, documents, step)]

    def scores(self, logits: DoubleArray) -> Scores:
        """Turn logits into scores of the hierarchy; of very many nodes the likeliest are kept."""
        return self.scores_of(self.loss.probabilities(logits))

    def scores_of(self, probabilities: Any) -> Scores:
        """The same from probabilities of the hierarchy with further leaves."""
        given = Scores(self.change.new, probabilities)
        found = (given if self.loss.coherent else given.coherent()).moved_back(self.change)
        return found.top_k(KEPT_NODES) if len(self.hierarchy) > MANY_NODES else found


def objective_arrays() -> dict[str, Array]:
    """Declare the arrays of an objective: its stops, and the frequencies of all nodes and of these."""
    return {
        "stops": indices("stops", "nodes", rising=True),
        "frequencies": Array("int64", ("nodes + stops",), 0),
    }


def usable(loss: Loss, truth: LabelMatrix) -> BoolArray:
    """Mark the documents that a loss for single paths can judge."""
    h = loss.hierarchy
    ends = h.most_specific(truth)
    single: BoolArray = row_sizes(ends) == 1
    if loss.needs == "leaf":
        single[single] = h.is_leaf[ends.indices[ends.indptr[:-1][single]]]
    return single
