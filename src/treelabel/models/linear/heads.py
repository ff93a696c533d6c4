"""Linear heads: features -> outputs -> calibrated probabilities of nodes. One row of HEADS each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.node_map import NodeMap
from treelabel.calibration.outputs import Outputs
from treelabel.calibration.path_map import PathMap
from treelabel.calibration.sibling_map import (
    Groups,
    SigmoidMap,
    SoftmaxMap,
    require_tree_for_softmax,
    rows_below,
)
from treelabel.core.compute import LongArray, over_rows
from treelabel.core.progress import progress_bar
from treelabel.hierarchy import Hierarchy
from treelabel.models.base import Training
from treelabel.models.linear.conditional import Group, train_groups
from treelabel.models.linear.descent import Rows, train_hinge
from treelabel.models.linear.weights import Gathered, Weights
from treelabel.models.schema import Array, Arrays, Csr, Schema, indices, tfidf_arrays
from treelabel.models.stopping import StopSignal

# So many probabilities are computed at once by a thread: fewer wait for Python, more for memory.
CHUNK = 1 << 19

# A label that is said to be impossible costs as much as one said to be this likely.
LEAST = 1e-6

# Outputs that have learned from all documents are larger than those that were calibrated, by more than they are better.
# On training data of six sets log losses of nodes are least, or nearly, if they count (learned before / all) ** 0.4.
GROWTH = 0.4

Map = PathMap | NodeMap | SoftmaxMap | SigmoidMap


@dataclass(frozen=True, eq=False)
class Job:
    """What a head is learned from: features and labels, how they are divided, and how long it may take."""

    rows: Rows
    train: Training
    cost: float | None = None
    tau: float = 0.0
    prune: float = 0.0

    @property
    def stop(self) -> StopSignal:
        """When to hurry."""
        return self.train.stop


@dataclass(frozen=True)
class Head:
    """A row of HEADS: which outputs there are, how they are learned, and how they become probabilities.

    `cost` is the weight of errors against that of large weights, unless it is given.
    """

    name: str
    help: str
    outputs: Callable[[Training], Outputs]
    learn: Callable[[Job, float, Outputs, Gathered], None]
    map_of: Callable[[str], type[Map]]
    cost: float
    refuse: Callable[[Training], None] = lambda train: None


@dataclass(frozen=True, eq=False)
class Learned:
    """A head that has learned: its weights and its map; and its loss on what was held out."""

    head: str
    weights: Weights
    map: Map
    loss: float = np.nan

    @property
    def outputs(self) -> Outputs:
        """What the outputs stand for."""
        return self.map.outputs

    def probabilities(self, features: sparse.csr_array) -> Any:
        """The probabilities of all nodes: documents x nodes."""
        if isinstance(self.map, PathMap):
            return self.map.scored(features, self.weights)
        most = max(16, CHUNK // max(1, len(self.outputs.hierarchy)))
        parts = over_rows(
            lambda start, stop: self.map.probabilities(self.weights.times(features, start, stop)),
            features.shape[0],
            least=64,
            most=most,
        )
        return np.concatenate(parts)

    def arrays(self) -> Arrays:
        """What is learned, to save."""
        outputs = self.outputs
        return {
            "weights_data": self.weights.sparse.data,
            "weights_indices": self.weights.sparse.indices,
            "weights_indptr": self.weights.sparse.indptr,
            "bias": self.weights.bias,
            "nodes": outputs.nodes,
            "of_nodes": outputs.of_nodes,
            "ends": outputs.ends,
            "of_ends": outputs.of_ends,
            **self.map.arrays(),
        }

    @staticmethod
    def schema(head: str, regime: str, hierarchy: Hierarchy, bits: int | None, encoder_width: int) -> Schema:
        """Declare what `arrays` gives, and tf-idf before it unless there are no `bits`."""
        nodes, kind = len(hierarchy), HEADS[head].map_of(regime)
        ours = {
            "bias": Array("float32", ("outputs",)),
            "nodes": indices("seen", "nodes", rising=True),
            "of_nodes": indices("seen", "outputs", low=-1),
            "ends": indices("ends", "nodes", rising=True),
            "of_ends": indices("ends", "outputs"),
        }

        def check(arrays: Arrays) -> None:
            outputs = Outputs(hierarchy, *(arrays[name] for name in ("nodes", "of_nodes", "ends", "of_ends")))
            outputs.check(len(arrays["bias"]))
            kind.check(outputs, arrays)

        known = {"nodes": nodes, "encoder_width": encoder_width}
        return Schema(
            {**({} if bits is None else tfidf_arrays()), **ours, **kind.declared()},
            (Csr("width + encoder_width", "outputs", "weights_indices", "weights_indptr", "weights_data"),),
            known | ({"width": 0} if bits is None else {"buckets": 1 << bits}),
            {"width": 1 << (bits or 0), "outputs": 2 * nodes, "seen": nodes, "ends": nodes},
            (check,),
        )

    @classmethod
    def of(cls, head: str, regime: str, hierarchy: Any, width: int, arrays: Arrays) -> "Learned":
        """Take back what `arrays` gave."""
        kept = (arrays[name] for name in ("nodes", "of_nodes", "ends", "of_ends"))
        outputs = Outputs(hierarchy, *kept)
        parts = arrays["weights_data"], arrays["weights_indices"], arrays["weights_indptr"]
        weights = sparse.csr_array(parts, (width, outputs.count))
        return cls(head, Weights(weights, arrays["bias"]), HEADS[head].map_of(regime).of(outputs, arrays))


def learn_head(name: str, job: Job) -> Learned:
    """Learn a head without the documents held out, calibrate it on them, and learn all."""
    head, train, rows = HEADS[name], job.train, job.rows
    cost = head.cost if job.cost is None else job.cost
    outputs, held = head.outputs(train), train[rows.held]
    gathered = Gathered(len(held), rows.features.shape[1], outputs.count, job.prune)
    head.learn(job, cost, outputs, gathered)
    fitted = head.map_of(train.regime).fit(outputs, gathered.margins, held)
    loss = log_loss(fitted.probabilities(gathered.margins), held)
    if rows.learn_held and isinstance(fitted, PathMap):
        fitted = fitted.times((1 - len(held) / len(train)) ** GROWTH)
    return Learned(name, Weights(gathered.weights(), gathered.bias), fitted, loss)


def log_loss(p: Any, held: Training) -> float:
    """The mean over documents of the log loss: of their ends where they have one path, else of all nodes."""
    if held.regime == "many":
        true, values = held.closed.toarray().astype(bool), np.asarray(p)
        right = np.clip(np.where(true, values, 1 - values), LEAST, 1)
        return -float(np.log(right).sum(axis=1).mean())
    ends = held.hierarchy.most_specific(held.labels)
    row = np.repeat(np.arange(len(held)), np.diff(ends.indptr))
    return -float(np.log(np.maximum(np.asarray(p[row, ends.indices]).ravel(), LEAST)).mean()) if len(row) else np.nan


def _learn_hinge(job: Job, cost: float, outputs: Outputs, gathered: Gathered) -> None:
    with progress_bar("learning", -(-outputs.count // 16), job.train.progress) as done:
        train_hinge(job.rows, outputs.targets(job.train), cost, gathered.take, job.stop, done)


def _learn_softmax(job: Job, cost: float, outputs: Outputs, gathered: Gathered) -> None:
    groups = softmax_groups(outputs, job.train, job.tau)
    with progress_bar("learning", len(groups), job.train.progress) as done:
        train_groups(job.rows, groups, True, cost, gathered.take, job.stop, done)


def _learn_sigmoid(job: Job, cost: float, outputs: Outputs, gathered: Gathered) -> None:
    groups = sigmoid_groups(outputs, job.train)
    with progress_bar("learning", len(groups), job.train.progress) as done:
        train_groups(job.rows, groups, False, cost, gathered.take, job.stop, done)


def softmax_groups(outputs: Outputs, train: Training, tau: float) -> list[Group]:
    """Divide documents by the children of each node: the groups of more than one sibling."""
    groups = Groups.of(outputs)
    targets = outputs.targets(train)
    made = []
    for group in range(len(groups.parents)):
        members = groups.outputs[groups.ptr[group] : groups.ptr[group + 1]]
        if len(members) < 2:
            continue
        marks = targets[:, members].tocsr()
        rows = np.flatnonzero(np.diff(marks.indptr))
        true = marks[rows].toarray().astype(np.float32)
        # Add-one smoothing, so that no sibling has ln 0.
        shares = (true.sum(axis=0) + 1) / (len(rows) + len(members))
        made.append(Group(members, rows, true, (tau * np.log(shares)).astype(np.float32)))
    return made


def sigmoid_groups(outputs: Outputs, train: Training) -> list[Group]:
    """Divide documents by parents: nodes with the same parents are learned from the same documents."""
    h, closed, targets = train.hierarchy, train.closed.tocsc(), outputs.targets(train)
    by_parents: dict[tuple[int, ...], list[int]] = {}
    for place, node in enumerate(outputs.nodes.tolist()):
        parents = tuple(h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist())
        by_parents.setdefault(parents, []).append(place)
    made = []
    for places in by_parents.values():
        rows: LongArray = rows_below(h, closed, int(outputs.nodes[places[0]]))
        members = outputs.of_nodes[places]
        true = targets[:, members].tocsr()[rows].toarray().astype(np.float32)
        made.append(Group(members, rows, true, np.zeros(len(members), np.float32)))
    return made


_ROWS = (
    Head(
        "nodes",
        "squared hinge, each node against all other documents",
        Outputs.of,
        _learn_hinge,
        lambda regime: NodeMap if regime == "many" else PathMap,
        3.0,
    ),
    Head(
        "leaves",
        "squared hinge, each label where paths end against all other documents",
        lambda train: Outputs.of(train, ends_only=True),
        _learn_hinge,
        lambda regime: NodeMap if regime == "many" else PathMap,
        3.0,
    ),
    Head(
        "conditional_softmax",
        "logistic regression among siblings; tau=1 adjusts logits for rare ones",
        lambda train: Outputs.of(train, shared=False),
        _learn_softmax,
        lambda regime: SoftmaxMap,
        100.0,
        require_tree_for_softmax,
    ),
    Head(
        "conditional_sigmoid",
        "logistic regression of each node among the documents of its parents",
        lambda train: Outputs.of(train, shared=False),
        _learn_sigmoid,
        lambda regime: SigmoidMap,
        100.0,
    ),
)

HEADS: dict[str, Head] = {row.name: row for row in _ROWS}

__all__ = ["HEADS", "Head", "Job", "Learned", "Rows", "learn_head"]
