"""The objective of a model trained with a loss of LOSSES: the loss that suits the labels, and its stop nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from treelabel.core.array_schema import Array, Arrays, Schema, indices
from treelabel.core.bounded_memory import MANY_NODES
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Change, Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.models.persistence.schema import require_inner
from treelabel.neural.losses.registry import LOSSES, LossSpec
from treelabel.scores.score_matrix import Scores
from treelabel.selection.training import Training

if TYPE_CHECKING:
    from treelabel.neural.losses.base import Loss

# Bounds of the logarithm of the inverse temperature, in which the search is made.
LOG_INVERSE_TEMPERATURE = (-3.0, 1.5)
# A softmax over more leaves than this takes longer than a DAG's sigmoids.
MANY_LEAVES = 2_000
# Nodes of a document that are kept where there are very many.
KEPT_NODES = 500
DOCUMENTS_AT_ONCE = 4_096
VALUES_AT_ONCE = 1 << 24


@dataclass(frozen=True, eq=False)
class Objective:
    """A loss of LOSSES for a hierarchy.

    With a loss for single paths, inner nodes at which documents end are `stop_nodes`: each has a further leaf below it,
    whose output means that a document ends there. `frequencies` are the training documents of each node of the
    hierarchy with these leaves, and `loss_params` the values of the loss's own parameters.
    """

    name: str
    hierarchy: Hierarchy
    stop_nodes: IntArray
    frequencies: LongArray
    loss_params: Mapping[str, float] | None = None

    @classmethod
    def of(
        cls,
        train: Training,
        name: str,
        loss_params: Mapping[str, float] | None = None,
        stop_nodes: IntArray | None = None,
    ) -> "Objective":
        """Choose the objective that suits training documents.

        Parameters
        ----------
        train
            The training documents.
        name
            A loss of LOSSES. "auto" takes conditional_softmax in a tree where documents have one path, leaf_softmax in
            a small DAG where they have one, and conditional_sigmoid otherwise.
        loss_params
            Values of the loss's own parameters.
        stop_nodes
            Further stop nodes, known from elsewhere.

        Returns
        -------
        Objective
            The objective.
        """
        h, one_path = train.hierarchy, train.regime != "multi_path"
        automatic = "conditional_sigmoid"
        if one_path and h.is_tree:
            automatic = "conditional_softmax"
        elif one_path and len(h.leaves) <= MANY_LEAVES:
            automatic = "leaf_softmax"
        chosen = automatic if name == "auto" else name
        terminal = np.unique(h.most_specific(train.labels).indices)
        stops_count = one_path and LOSSES.find(chosen).needs != "any"
        stops = terminal[~h.is_leaf[terminal] & stops_count].astype(np.int32)
        if stop_nodes is not None:
            stops = np.union1d(stops, stop_nodes).astype(np.int32)
        change = h.with_other_leaves(stops)
        closed = change.new.closure(change.labels(train.labels))
        frequencies = np.bincount(closed.indices, minlength=len(change.new)).astype(np.int64)
        return cls(chosen, h, stops, frequencies, loss_params)

    @classmethod
    def restore(
        cls, name: str, hierarchy: Hierarchy, arrays: Arrays, loss_params: Mapping[str, float] | None = None
    ) -> "Objective":
        """Restore the objective of a model that was saved with `arrays`."""
        return cls(name, hierarchy, arrays["stop_nodes"], arrays["frequencies"], loss_params)

    def arrays(self) -> dict[str, Any]:
        """Return what is saved with the name of the loss: see `with_objective`."""
        return {"stop_nodes": self.stop_nodes, "frequencies": self.frequencies}

    @cached_property
    def change(self) -> Change:
        """The change from the hierarchy to the one with leaves for stop nodes, and back."""
        return self.hierarchy.with_other_leaves(self.stop_nodes)

    @cached_property
    def spec(self) -> LossSpec:
        """The loss bound to the hierarchy with these leaves; needs no torch."""
        return LOSSES.find(self.name).bind(self.change.new, self.frequencies, checked_params(self.loss_params))

    @cached_property
    def loss(self) -> "Loss":
        """The torch module of the loss, which stays on the CPU."""
        loss: Loss = self.spec.build()
        return loss

    def require_outputs(self, count: int) -> None:
        """Refuse weights from a file that are of more or fewer outputs than the loss has."""
        if count != len(self.spec.outputs):
            raise TreelabelError(
                f"there are weights of {count:,} outputs, but the loss {self.name} has {len(self.spec.outputs):,}"
            )

    @property
    def exhaustive(self) -> bool:
        """Whether children sum to their parent: a softmax shares out all of it, sigmoids do not."""
        return self.spec.row.needs != "any"

    def truth(self, data: Training, drop: bool = False) -> tuple[LongArray, LabelMatrix]:
        """Return the documents to learn from, and their labels.

        Parameters
        ----------
        data
            Documents; a softmax learns nothing from those without labels, which are left out.
        drop
            Whether to leave out all that the loss refuses, such as documents of a validation set with several paths.

        Returns
        -------
        tuple[LongArray, LabelMatrix]
            Row numbers, and labels in the hierarchy with leaves for stop nodes.
        """
        labels = self.change.labels(data.labels)
        keep = np.ones(len(data), np.bool_)
        if self.spec.row.needs != "any":
            keep = usable(self.spec, labels) if drop else row_sizes(labels) > 0
        rows = np.flatnonzero(keep)
        return rows, labels[rows]

    def portions(self, documents: int) -> list[LongArray]:
        """Split documents into portions to score at once: some thousands, or fewer if there are many nodes."""
        return portions_of(documents, min(DOCUMENTS_AT_ONCE, VALUES_AT_ONCE // max(1, len(self.change.new))))

    def scores(self, logits: DoubleArray) -> Scores:
        """Turn logits into scores of the hierarchy; of very many nodes the likeliest are kept."""
        return self.scores_of(self.loss.node_probabilities(logits))

    def scores_of(self, probabilities: Any) -> Scores:
        """Turn probabilities of the hierarchy with further leaves into scores of the hierarchy."""
        raw = Scores(self.change.new, probabilities)
        scores = (raw if self.spec.row.coherent else raw.coherent()).move_back(self.change)
        return scores.top_k(KEPT_NODES) if len(self.hierarchy) > MANY_NODES else scores


def portions_of(documents: int, step: int = DOCUMENTS_AT_ONCE) -> list[LongArray]:
    """Split documents into portions.

    Parameters
    ----------
    documents
        How many there are.
    step
        How many a portion has, 1 at least.

    Returns
    -------
    list of LongArray
        Row numbers.

    >>> [rows.tolist() for rows in portions_of(3, 2)]
    [[0, 1], [2]]
    """
    step = max(1, step)
    return [np.arange(low, min(low + step, documents)) for low in range(0, documents, step)]


def with_objective(schema: Schema, hierarchy: Hierarchy) -> Schema:
    """Declare the arrays of an objective alongside others: its stop nodes, and the frequencies of all nodes and these.

    Parameters
    ----------
    schema
        What a model has besides.
    hierarchy
        The hierarchy of the labels.

    Returns
    -------
    Schema
        What the folder has to hold.
    """
    nodes, stop_nodes = len(hierarchy), indices("stop_nodes", "nodes", rising=True)
    frequencies = Array("int64", ("nodes + stop_nodes",), 0)
    return replace(
        schema,
        arrays={"stop_nodes": stop_nodes, "frequencies": frequencies, **schema.arrays},
        sizes={"nodes": nodes, **schema.sizes},
        most={"stop_nodes": nodes, **schema.most},
        relations=(lambda arrays: require_inner(hierarchy, arrays["stop_nodes"]), *schema.relations),
    )


def checked_params(loss_params: Any) -> Mapping[str, float]:
    """Return the setting `loss_params` as a mapping; None is no parameters.

    >>> checked_params(None), checked_params({"beta": 0.1})
    ({}, {'beta': 0.1})
    """
    if loss_params is None:
        return {}
    if not isinstance(loss_params, Mapping) or not all(isinstance(name, str) for name in loss_params):
        raise TreelabelError(
            f"the setting loss_params is {loss_params!r}; expected parameters of the loss by name, such as "
            "{'beta': 0.1} for champ"
        )
    return dict(loss_params)


def check_loss(name: str, loss_params: Any) -> None:
    """Refuse a loss that there is not, and parameters that are no mapping."""
    checked_params(loss_params)
    if name != "auto":
        LOSSES.find(name)


def usable(spec: LossSpec, truth: LabelMatrix) -> BoolArray:
    """Mark the documents that a loss for single paths can judge: shape (documents,)."""
    h = spec.hierarchy
    terminal = h.most_specific(truth)
    single: BoolArray = row_sizes(terminal) == 1
    if spec.row.needs == "leaf":
        single[single] = h.is_leaf[terminal.indices[terminal.indptr[:-1][single]]]
    return single
