"""Linear heads: which outputs they have, and how these are trained. The rows of HEADS are made of this."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from treelabel.calibration.base import Calibration
from treelabel.calibration.outputs import Outputs
from treelabel.calibration.siblings import SiblingGroups, documents_below
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.stopping import StopSignal
from treelabel.core.types import LongArray
from treelabel.models.linear.conditional import Group, train_groups
from treelabel.models.linear.descent import Rows, train_hinge
from treelabel.models.linear.weights import WeightCollector
from treelabel.selection.training import Training


@dataclass(frozen=True, eq=False)
class Job:
    """The input of a fit of a head: features and labels, how they are divided, and settings of the model.

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


def train_nodes(job: Job, c: float, outputs: Outputs, collector: WeightCollector) -> None:
    """Train the outputs, each against all other documents, with the squared hinge loss.

    Parameters
    ----------
    job : Job
        What to fit them to.
    c : float
        The weight of errors against that of large weights.
    outputs : Outputs
        The outputs.
    collector : WeightCollector
        Takes the weights.
    """
    with progress_bar("learning", -(-outputs.count // 16), job.train.progress) as done:
        train_hinge(job.rows, outputs.targets(job.train.labels), c, collector.take, job.stop, done)


def train_siblings(job: Job, c: float, outputs: Outputs, collector: WeightCollector) -> None:
    """Train a softmax over the children of each node.

    Parameters
    ----------
    job, c, outputs, collector
        As in `train_nodes`.
    """
    groups = softmax_groups(outputs, job.train, job.tau)
    with progress_bar("learning", len(groups), job.train.progress) as done:
        train_groups(job.rows, groups, True, c, collector.take, job.stop, done)


def train_children(job: Job, c: float, outputs: Outputs, collector: WeightCollector) -> None:
    """Train a sigmoid for each node on the documents of its parents.

    Parameters
    ----------
    job, c, outputs, collector
        As in `train_nodes`.
    """
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


def outputs_of(train: Training, **settings: bool) -> Outputs:
    """Return the outputs for training documents; `settings` are those of `Outputs.of`.

    Parameters
    ----------
    train
        Training documents.
    **settings
        Settings of `Outputs.of`.

    Returns
    -------
    Outputs
    """
    return Outputs.of(train.hierarchy, train.labels, multiple_paths=train.regime == "multi_path", **settings)


def require_tree_with_one_path(train: Training) -> None:
    """Refuse documents with several paths, and DAGs."""
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
