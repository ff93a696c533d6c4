"""Linear heads: features -> margins -> calibrated probabilities of nodes. One row of HEADS each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.base import Calibration
from treelabel.calibration.outputs import Outputs
from treelabel.calibration.registry import CALIBRATIONS, calibration_for
from treelabel.calibration.siblings import SiblingGroups, documents_below
from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.registry import Registry
from treelabel.core.schema import Array, Arrays, Csr, Schema, indices
from treelabel.core.sparse_product import Weights
from treelabel.hierarchy import Hierarchy
from treelabel.models.base import Training
from treelabel.models.linear.conditional import Group, train_groups
from treelabel.models.linear.descent import Rows, train_hinge
from treelabel.models.linear.weights import WeightCollector
from treelabel.models.schema import tfidf_arrays
from treelabel.models.stopping import StopSignal

_OUTPUT_ARRAYS = ("nodes", "node_outputs", "terminals", "terminal_outputs")


@dataclass(frozen=True, eq=False)
class Job:
    """What a head is fitted to: features and labels, how they are divided, and settings of the model.

    `c` is scikit-learn's C: the weight of errors against that of large weights; None for the head's own.
    """

    rows: Rows
    train: Training
    c: float | None = None
    tau: float = 0.0
    prune: float = 0.0

    @property
    def stop(self) -> StopSignal:
        """When to hurry."""
        return self.train.stop


@dataclass(frozen=True)
class Head:
    """A row of HEADS: which outputs there are, how they are trained, and how they become probabilities.

    Parameters
    ----------
    name, help : str
        What it is called, and what it is.
    outputs : callable
        Returns the outputs for training documents.
    train : callable
        Trains them on a job with C, and hands weights to a collector.
    calibration : callable
        Returns the class of the calibration for a kind of labels; see `regime_of`.
    c : float
        The usual C.
    refuse : callable
        Raises TreelabelError for training documents that the head cannot learn.
    """

    name: str
    help: str
    outputs: Callable[[Training], Outputs]
    train: Callable[[Job, float, Outputs, WeightCollector], None]
    calibration: Callable[[str], type[Calibration]]
    c: float
    refuse: Callable[[Training], None] = lambda train: None


@dataclass(frozen=True, eq=False)
class FittedHead:
    """A head that has been fitted: its weights and its calibration."""

    head: str
    weights: Weights
    calibration: Calibration

    @property
    def outputs(self) -> Outputs:
        """What the outputs stand for."""
        return self.calibration.outputs

    def probabilities(self, features: sparse.csr_array, top: int | None = None) -> Any:
        """Compute the probabilities of nodes.

        Parameters
        ----------
        features : csr_array of shape (documents, features)
            Documents.
        top : int or None
            Keep the so many largest of each document; None keeps all.

        Returns
        -------
        array or csr_array of shape (documents, nodes)
            Probabilities.
        """
        return self.calibration.probabilities_of(features, self.weights, top)

    def arrays(self) -> Arrays:
        """Return what was learned, to save."""
        return {
            "weights_data": self.weights.sparse.data,
            "weights_indices": self.weights.sparse.indices,
            "weights_indptr": self.weights.sparse.indptr,
            "bias": self.weights.bias,
            **{name: getattr(self.outputs, name) for name in _OUTPUT_ARRAYS},
            **self.calibration.arrays(),
        }

    @staticmethod
    def schema(head: str, regime: str, hierarchy: Hierarchy, buckets: int | None, encoder_width: int) -> Schema:
        """Declare what `arrays` returns, and the arrays of tf-idf.

        Parameters
        ----------
        head : str
            The name of the head.
        regime : str
            The kind of labels.
        hierarchy : Hierarchy
            The hierarchy.
        buckets : int or None
            The buckets of n-grams of all kinds; None without tf-idf.
        encoder_width : int
            The columns of embeddings, 0 without an encoder.

        Returns
        -------
        Schema
            The schema.
        """
        nodes, kind = len(hierarchy), HEADS[head].calibration(regime)
        ours = {
            "bias": Array("float32", ("outputs",)),
            "nodes": indices("seen", "nodes", rising=True),
            "node_outputs": indices("seen", "outputs", low=-1),
            "terminals": indices("terminals", "nodes", rising=True),
            "terminal_outputs": indices("terminals", "outputs"),
        }

        def check(arrays: Arrays) -> None:
            outputs = Outputs(hierarchy, *(arrays[name] for name in _OUTPUT_ARRAYS))
            outputs.check(len(arrays["bias"]))
            kind.check(outputs, arrays)

        known = {"nodes": nodes, "encoder_width": encoder_width}
        return Schema(
            {**({} if buckets is None else tfidf_arrays()), **ours, **kind.schema()},
            (Csr("width + encoder_width", "outputs", "weights_indices", "weights_indptr", "weights_data"),),
            known | ({"width": 0} if buckets is None else {"buckets": buckets}),
            {"width": buckets or 1, "outputs": 2 * nodes, "seen": nodes, "terminals": nodes},
            (check,),
        )

    @classmethod
    def of(cls, head: str, regime: str, hierarchy: Hierarchy, width: int, arrays: Arrays) -> "FittedHead":
        """Make a head of what `arrays` returned.

        Parameters
        ----------
        head, regime, hierarchy
            As in `schema`.
        width : int
            The columns of features.
        arrays : mapping
            Arrays that fit the schema.

        Returns
        -------
        FittedHead
            The head.
        """
        outputs = Outputs(hierarchy, *(arrays[name] for name in _OUTPUT_ARRAYS))
        parts = arrays["weights_data"], arrays["weights_indices"], arrays["weights_indptr"]
        weights = sparse.csr_array(parts, (width, outputs.count))
        return cls(head, Weights(weights, arrays["bias"]), HEADS[head].calibration(regime).of(outputs, arrays))


def fit_head(name: str, job: Job) -> tuple[FittedHead, Any]:
    """Train a head, and calibrate it on the margins that each fold of documents has without having been learned.

    Parameters
    ----------
    name : str
        A row of HEADS.
    job : Job
        What to fit it to.

    Returns
    -------
    (FittedHead, array or csr_array of shape (documents of the folds, nodes))
        The head, and the probabilities of the folds' documents by what was learned without them, in the order of
        `job.rows.held`.
    """
    head, train, rows = HEADS[name], job.train, job.rows
    outputs = head.outputs(train)
    collector = WeightCollector(len(rows.held), rows.features.shape[1], outputs.count, job.prune)
    head.train(job, head.c if job.c is None else job.c, outputs, collector)
    fitted = head.calibration(train.regime).fit(outputs, collector.margins, train.labels[rows.held])
    p = fitted.probabilities(collector.margins)
    if rows.learn_all:
        fitted = fitted.for_more_documents(1 - len(rows.held) / len(rows.folds) / len(train))
    return FittedHead(name, Weights(collector.weights(), collector.bias), fitted), p


def _train_hinge(job: Job, c: float, outputs: Outputs, collector: WeightCollector) -> None:
    with progress_bar("learning", -(-outputs.count // 16), job.train.progress) as done:
        train_hinge(job.rows, outputs.targets(job.train.labels), c, collector.take, job.stop, done)


def _train_softmax(job: Job, c: float, outputs: Outputs, collector: WeightCollector) -> None:
    groups = softmax_groups(outputs, job.train, job.tau)
    with progress_bar("learning", len(groups), job.train.progress) as done:
        train_groups(job.rows, groups, True, c, collector.take, job.stop, done)


def _train_sigmoid(job: Job, c: float, outputs: Outputs, collector: WeightCollector) -> None:
    groups = sigmoid_groups(outputs, job.train)
    with progress_bar("learning", len(groups), job.train.progress) as done:
        train_groups(job.rows, groups, False, c, collector.take, job.stop, done)


def softmax_groups(outputs: Outputs, train: Training, tau: float) -> list[Group]:
    """Divide documents by the children of each node: the groups of more than one sibling.

    Parameters
    ----------
    outputs : Outputs
        The outputs.
    train : Training
        Documents.
    tau : float
        How much logits are adjusted for rare siblings.

    Returns
    -------
    list of Group
        Groups.
    """
    groups = SiblingGroups.of(outputs)
    targets = outputs.targets(train.labels)
    made = []
    for group in range(len(groups.parents)):
        members = groups.outputs[groups.ptr[group] : groups.ptr[group + 1]]
        if len(members) < 2:
            continue
        marks = targets[:, members].tocsr()
        rows = np.flatnonzero(np.diff(marks.indptr))
        true = marks[rows].toarray().astype(np.float32)
        # Add-one smoothing, so that no sibling has ln 0.
        frequencies = (true.sum(axis=0) + 1) / (len(rows) + len(members))
        made.append(Group(members, rows, true, (tau * np.log(frequencies)).astype(np.float32)))
    return made


def sigmoid_groups(outputs: Outputs, train: Training) -> list[Group]:
    """Divide documents by parents: nodes with the same parents are learned from the same documents.

    Parameters
    ----------
    outputs : Outputs
        The outputs.
    train : Training
        Documents.

    Returns
    -------
    list of Group
        Groups.
    """
    h, closed, targets = train.hierarchy, train.closed.tocsc(), outputs.targets(train.labels)
    by_parents: dict[tuple[int, ...], list[int]] = {}
    for place, node in enumerate(outputs.nodes.tolist()):
        parents = tuple(h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist())
        by_parents.setdefault(parents, []).append(place)
    made = []
    for places in by_parents.values():
        rows: LongArray = documents_below(h, closed, int(outputs.nodes[places[0]]))
        members = outputs.node_outputs[places]
        true = targets[:, members].tocsr()[rows].toarray().astype(np.float32)
        made.append(Group(members, rows, true, np.zeros(len(members), np.float32)))
    return made


def _outputs_of(train: Training, **settings: bool) -> Outputs:
    return Outputs.of(train.hierarchy, train.labels, multiple_paths=train.regime == "multi_path", **settings)


def _require_tree_with_one_path(train: Training) -> None:
    if train.regime == "multi_path":
        raise TreelabelError(
            "conditional_softmax needs documents with one path, but some have several; "
            "use head=conditional_sigmoid or head=nodes"
        )
    if not train.hierarchy.is_tree:
        raise TreelabelError(
            "conditional_softmax needs a tree, but the hierarchy is a DAG; use head=conditional_sigmoid or head=nodes, "
            "or make it a tree with unfold()"
        )


_ROWS = (
    Head(
        "nodes",
        "squared hinge, each node against all other documents",
        _outputs_of,
        _train_hinge,
        lambda regime: calibration_for(regime == "multi_path"),
        3.0,
    ),
    Head(
        "leaves",
        "squared hinge, each label where paths end against all other documents",
        lambda train: _outputs_of(train, terminals_only=True),
        _train_hinge,
        lambda regime: calibration_for(regime == "multi_path"),
        3.0,
    ),
    Head(
        "conditional_softmax",
        "logistic regression among siblings; tau=1 adjusts logits for rare ones",
        lambda train: _outputs_of(train, shared=False),
        _train_softmax,
        lambda regime: CALIBRATIONS["sibling_softmax"].maker,
        100.0,
        _require_tree_with_one_path,
    ),
    Head(
        "conditional_sigmoid",
        "logistic regression of each node among the documents of its parents",
        lambda train: _outputs_of(train, shared=False),
        _train_sigmoid,
        lambda regime: CALIBRATIONS["sibling_sigmoid"].maker,
        100.0,
    ),
)

HEADS: Registry[Head] = Registry("head of linear", _ROWS)
