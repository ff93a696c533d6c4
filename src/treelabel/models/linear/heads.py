"""Linear heads: which outputs they have, and how these are trained; HEADS lists them."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from treelabel.calibration.contract import MarginCalibration
from treelabel.calibration.output_space import OutputSpace
from treelabel.calibration.registry import calibration_for, margin_calibration
from treelabel.calibration.siblings import SiblingGroups, documents_below
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.registry import Registry
from treelabel.core.stopping import StopSignal
from treelabel.core.types import LongArray
from treelabel.models.linear.conditional import Group, train_groups
from treelabel.models.linear.descent import TrainingRows, train_hinge
from treelabel.models.linear.weight_collector import WeightCollector
from treelabel.selection.training import Training


@dataclass(frozen=True, eq=False)
class HeadTask:
    """The input of a fit of a head: features and labels, how they are divided, and settings of the model.

    `c` is scikit-learn's C: the weight of errors against that of large weights; None for the head's own.
    """

    rows: TrainingRows
    train: Training
    c: float | None = None
    tau: float = 0.0
    prune: float = 0.0

    @property
    def stop(self) -> StopSignal:
        """When to hurry."""
        return self.train.stop


@dataclass(frozen=True)
class LinearHead:
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
    outputs: Callable[[Training], OutputSpace]
    train: Callable[[HeadTask, float, OutputSpace, WeightCollector], None]
    calibration: Callable[[str], type[MarginCalibration]]
    c: float
    refuse: Callable[[Training], None] = lambda train: None


def train_nodes(job: HeadTask, c: float, outputs: OutputSpace, collector: WeightCollector) -> None:
    """Train the outputs, each against all other documents, with the squared hinge loss.

    Parameters
    ----------
    job : Job
        Documents and settings.
    c : float
        The weight of errors against that of large weights.
    outputs : OutputSpace
        Says which documents are positive for each output.
    collector : WeightCollector
        Takes the weights.
    """
    with progress_bar("learning", -(-outputs.count // 16), job.train.progress) as done:
        train_hinge(job.rows, outputs.targets(job.train.labels), c, collector.take, job.stop, done)


def train_siblings(job: HeadTask, c: float, outputs: OutputSpace, collector: WeightCollector) -> None:
    """Train a softmax over the children of each node; arguments as in `train_nodes`."""
    _train_groups(job, softmax_groups(outputs, job.train, job.tau), True, c, collector)


def train_children(job: HeadTask, c: float, outputs: OutputSpace, collector: WeightCollector) -> None:
    """Train a sigmoid for each node on the documents of its parents; arguments as in `train_nodes`."""
    _train_groups(job, sigmoid_groups(outputs, job.train), False, c, collector)


def _train_groups(job: HeadTask, groups: list[Group], softmax: bool, c: float, collector: WeightCollector) -> None:
    with progress_bar("learning", len(groups), job.train.progress) as done:
        train_groups(job.rows, groups, softmax, c, collector.take, job.stop, done)


def softmax_groups(outputs: OutputSpace, train: Training, tau: float) -> list[Group]:
    """Divide documents by the children of each node: the groups of more than one sibling.

    Logits are adjusted for rare siblings by `tau` x ln of their frequencies.
    """
    siblings = SiblingGroups.of(outputs)
    targets = outputs.targets(train.labels)
    groups = []
    for first, end in pairwise(siblings.ptr.tolist()):
        members = siblings.outputs[first:end]
        if len(members) < 2:
            continue
        marks = targets[:, members].tocsr()
        rows = np.flatnonzero(np.diff(marks.indptr))
        true = marks[rows].toarray().astype(np.float32)
        # Add-one smoothing, so that no sibling has ln 0.
        frequencies = (true.sum(axis=0) + 1) / (len(rows) + len(members))
        groups.append(Group(members, rows, true, (tau * np.log(frequencies)).astype(np.float32)))
    return groups


def sigmoid_groups(outputs: OutputSpace, train: Training) -> list[Group]:
    """Divide documents by parents: nodes with the same parents are learned from the same documents."""
    h, closed, targets = train.hierarchy, train.closed.tocsc(), outputs.targets(train.labels)
    by_parents: dict[tuple[int, ...], list[int]] = {}
    for index, node in enumerate(outputs.nodes.tolist()):
        parents = tuple(h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist())
        by_parents.setdefault(parents, []).append(index)
    groups = []
    for indices in by_parents.values():
        rows: LongArray = documents_below(h, closed, int(outputs.nodes[indices[0]]))
        members = outputs.node_outputs[indices]
        true = targets[:, members].tocsr()[rows].toarray().astype(np.float32)
        groups.append(Group(members, rows, true, np.zeros(len(members), np.float32)))
    return groups


def outputs_of(train: Training, **settings: bool) -> OutputSpace:
    """Return the outputs for training documents; `settings` are those of `OutputSpace.of`."""
    return OutputSpace.of(train.hierarchy, train.labels, multiple_paths=train.regime == "multi_path", **settings)


def find_head(name: str) -> LinearHead:
    """Return a row of HEADS."""
    if name not in HEADS:
        raise TreelabelError(f"linear has no head {name!r}; there are: auto, {', '.join(HEADS)}")
    return HEADS[name]


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


_ROWS = (
    LinearHead(
        "nodes",
        "squared hinge, each node against all other documents",
        outputs_of,
        train_nodes,
        lambda regime: calibration_for(regime == "multi_path"),
        3.0,
    ),
    LinearHead(
        "leaves",
        "squared hinge, each label where paths end against all other documents",
        lambda train: outputs_of(train, terminals_only=True),
        train_nodes,
        lambda regime: calibration_for(regime == "multi_path"),
        3.0,
    ),
    LinearHead(
        "conditional_softmax",
        "logistic regression among siblings; tau=1 adjusts logits for rare ones",
        lambda train: outputs_of(train, shared=False),
        train_siblings,
        lambda regime: margin_calibration("sibling_softmax"),
        100.0,
        require_tree_with_one_path,
    ),
    LinearHead(
        "conditional_sigmoid",
        "logistic regression of each node among the documents of its parents",
        lambda train: outputs_of(train, shared=False),
        train_children,
        lambda regime: margin_calibration("sibling_sigmoid"),
        100.0,
    ),
)

HEADS: Registry[LinearHead] = Registry("head of linear", _ROWS)
