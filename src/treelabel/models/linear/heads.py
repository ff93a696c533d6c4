"""Linear heads: which outputs they have, how these are trained, calibrated, saved, and fitted anew; HEADS lists them.

`refit_head` learns the weights again, in one training with all documents; n-grams, the head and the calibration, whose
parameters belong to levels and not to labels, are those of the first fit, which spends 40 to 90% of its time on them
(benchmarks/update.py). Documents are visited in the same order as in a fit, so that the weights are those of fitting
anew with the same settings, bit for bit. They start where every training starts: on mwpd_gpc (10,012 documents),
starting from the dual variables of nine tenths of the documents takes 0.7 times as long in the loop, which is a fifth
of a fit there; but 59% of all documents x outputs have a dual variable, far more than there are weights, and to derive
these from weights, a = 2C max(0, 1 - y w x), multiplies what was pruned and not yet converged by 2C for each document.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.calibration.contract import MarginCalibration, OutputSpace
from treelabel.calibration.isotonic import margin_calibration
from treelabel.calibration.siblings import SiblingSigmoid, SiblingSoftmax
from treelabel.core.array_schema import Array, Arrays, Schema, indices
from treelabel.core.errors import TreelabelError, some
from treelabel.core.progress import progress_bar
from treelabel.core.registry import Registry
from treelabel.core.sparse_product import SparseWeights
from treelabel.core.types import FloatArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, label_matrix
from treelabel.hierarchy.moves import Moves
from treelabel.models.linear.conditional import Group, sigmoid_groups, softmax_groups, train_groups
from treelabel.models.linear.descent import TrainingRows, train_hinge
from treelabel.models.linear.pruned_weights import WeightCollector
from treelabel.models.linear.vector_blocks import BLOCK
from treelabel.models.persistence.schema import csr_arrays, csr_of, csr_schema, tfidf_arrays
from treelabel.selection.training import Training


@dataclass(frozen=True, eq=False)
class HeadTask:
    """The input of a fit of a head: features and labels, how they are divided, and settings of the model.

    `c` is scikit-learn's C: the weight of errors against that of large weights; None for the head's own. `flat`
    says that a flat model is asked for, too.
    """

    rows: TrainingRows
    train: Training
    c: float | None = None
    tau: float = 0.0
    prune: float = 0.0
    flat: bool = False


@dataclass(frozen=True)
class LinearHead:
    """A row of HEADS: which outputs there are, how they are trained, and how they become probabilities.

    Parameters
    ----------
    name, help : str
        What it is called, and what it is.
    outputs : callable
        Returns the outputs for training documents.
    groups : callable or None
        Returns the groups of siblings that are learned with the logistic loss; None learns each output against all
        other documents, with the squared hinge loss.
    calibration : callable
        Returns the class of the calibration for a kind of labels; see `regime_of`.
    c : float
        The usual C.
    softmax : bool
        Whether exactly one of the siblings of a group is true of a document.
    refuse : callable
        Raises TreelabelError for training documents that the head cannot learn.
    """

    name: str
    help: str
    outputs: Callable[[Training], OutputSpace]
    groups: Callable[[OutputSpace, HeadTask], list[Group]] | None
    calibration: Callable[[str], type[MarginCalibration]]
    c: float
    softmax: bool = False
    refuse: Callable[[Training], None] = lambda train: None


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
        None,
        lambda regime: margin_calibration(regime == "multi_path"),
        3.0,
    ),
    LinearHead(
        "leaves",
        "squared hinge, each label where paths end against all other documents",
        lambda train: outputs_of(train, terminals_only=True),
        None,
        lambda regime: margin_calibration(regime == "multi_path"),
        3.0,
    ),
    LinearHead(
        "conditional_softmax",
        "logistic regression among siblings; tau=1 adjusts logits for rare ones",
        lambda train: outputs_of(train, shared=False),
        lambda outputs, job: softmax_groups(outputs, job.train, job.tau),
        lambda regime: SiblingSoftmax,
        100.0,
        True,
        require_tree_with_one_path,
    ),
    LinearHead(
        "conditional_sigmoid",
        "logistic regression of each node among the documents of its parents",
        lambda train: outputs_of(train, shared=False),
        lambda outputs, job: sigmoid_groups(outputs, job.train),
        lambda regime: SiblingSigmoid,
        100.0,
    ),
)

HEADS: Registry[LinearHead] = Registry("head of linear", _ROWS)

# With more documents than this many times those of before, calibration is fitted anew to held-out documents.
MOST_GROWTH = 2.0
# Probabilities of held-out documents that a flat model is calibrated for, beside those of the head.
MOST_FLAT = 1 << 24
_OUTPUT_ARRAYS = ("nodes", "node_outputs", "terminals", "terminal_outputs")


@dataclass(frozen=True, eq=False)
class FittedHead:
    """A head that has been fitted: its weights and its calibration."""

    head: str
    weights: SparseWeights
    calibration: MarginCalibration

    @property
    def outputs(self) -> OutputSpace:
        """The meaning of the outputs."""
        return self.calibration.outputs

    def probabilities(self, features: sparse.csr_array, top: int | None = None) -> Any:
        """Compute the probabilities of nodes.

        Parameters
        ----------
        features : csr_array of shape (documents, features)
            Documents.
        top : int or None
            How many of the largest of each document to keep; None keeps all.

        Returns
        -------
        array or csr_array of shape (documents, nodes)
            Probabilities.
        """
        return self.calibration.probabilities_of(features, self.weights, top)

    def arrays(self) -> Arrays:
        """Return what was learned, to save."""
        return {
            **csr_arrays("weights", self.weights.sparse),
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
            A row of HEADS.
        regime : str
            See `regime_of`; it decides how outputs are calibrated.
        hierarchy : Hierarchy
            Outputs and calibration belong to its nodes.
        buckets : int or None
            The buckets of n-grams of all kinds; None without tf-idf.
        encoder_width : int
            The columns of embeddings, 0 without an encoder.

        Returns
        -------
        Schema
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
            outputs = OutputSpace(hierarchy, *(arrays[name] for name in _OUTPUT_ARRAYS))
            outputs.check(len(arrays["bias"]))
            kind(outputs).check(arrays)

        known = {"nodes": nodes, "encoder_width": encoder_width}
        return Schema(
            {**({} if buckets is None else tfidf_arrays()), **ours, **kind.parameters},
            (csr_schema("weights", "width + encoder_width", "outputs"),),
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
        """
        outputs = OutputSpace(hierarchy, *(arrays[name] for name in _OUTPUT_ARRAYS))
        weights = SparseWeights(csr_of("weights", arrays, (width, outputs.count)), arrays["bias"])
        return cls(head, weights, HEADS[head].calibration(regime)(outputs).restore(arrays))


class HeadFit(NamedTuple):
    """A fitted head, probabilities of held-out documents by what was learned without them, and those of a flat one.

    The flat one knows the margins of the labels where paths end, and nothing of those above; None where that is not
    asked for, or costs much.
    """

    head: FittedHead
    p: Any
    flat: Any = None


def fit_head(name: str, job: HeadTask) -> HeadFit:
    """Train a head, and calibrate it on the margins that each fold of documents has without having been learned.

    Parameters
    ----------
    name : str
        A row of HEADS.
    job : Job
        Documents and settings.

    Returns
    -------
    HeadFit
        The head, and the probabilities of the folds' documents by what was learned without them, in the order of
        `job.rows.held`: documents x nodes.
    """
    head, train, rows = HEADS[name], job.train, job.rows
    outputs = head.outputs(train)
    collector = _train(head, job, outputs)
    labels = train.labels[rows.held]
    fitted = head.calibration(train.regime)(outputs).fit(collector.margins, labels)
    fitted = fitted.match_sums(collector.margins, labels)
    p = fitted.probabilities(collector.margins)
    flat = _flat_probabilities(outputs, train, collector.margins, labels) if name == "nodes" and job.flat else None
    return HeadFit(FittedHead(name, SparseWeights(collector.weights(), collector.bias), fitted), p, flat)


def _flat_probabilities(outputs: OutputSpace, train: Training, margins: FloatArray, labels: LabelMatrix) -> Any:
    """Calibrate the outputs of labels where paths end by themselves, which are those of the head "leaves"."""
    if len(margins) * len(train.hierarchy) > MOST_FLAT or train.hierarchy.max_depth < 2:
        return None
    head = HEADS["leaves"]
    flat = head.outputs(train)
    columns = outputs.terminal_outputs
    if train.regime == "multi_path":
        columns = outputs.node_outputs[np.searchsorted(outputs.nodes, flat.terminals)]
    some = np.ascontiguousarray(margins[:, columns])
    return head.calibration(train.regime)(flat).fit(some, labels).match_sums(some, labels).probabilities(some)


def _train(head: LinearHead, job: HeadTask, outputs: OutputSpace) -> WeightCollector:
    train, c = job.train, head.c if job.c is None else job.c
    collector = WeightCollector(len(job.rows.held), job.rows.features.shape[1], outputs.count)
    groups = None if head.groups is None else head.groups(outputs, job)
    tasks = -(-outputs.count // BLOCK) if groups is None else len(groups)
    with progress_bar("learning", tasks, train.progress) as done:
        if groups is None:
            train_hinge(job.rows, outputs.targets(train.labels), c, collector.take, train.stop, done, job.prune)
        else:
            train_groups(job.rows, groups, head.softmax, c, collector.take, train.stop, done, job.prune)
    return collector


def refit_head(old: FittedHead, job: HeadTask) -> FittedHead:
    """Train the outputs of a head anew, nothing being held out, and keep its calibration.

    Parameters
    ----------
    old : FittedHead
        The head that was fitted before, to documents of the same regime.
    job : Job
        All documents.

    Returns
    -------
    FittedHead
    """
    outputs = HEADS[old.head].outputs(job.train)
    collector = _train(HEADS[old.head], job, outputs)
    calibration = replace(old.calibration, outputs=outputs)
    return FittedHead(old.head, SparseWeights(collector.weights(), collector.bias), calibration)


def rename_outputs(old: FittedHead, moves: Moves) -> FittedHead:
    """Assign outputs to the new names of their labels, where that is all that changed for them.

    A label's weights tell its documents from all others. They stay right while it keeps these documents: when it is
    renamed, or moved with everything that is below its parent. Where parents have no outputs (the head "leaves"),
    leaves may move anywhere. Anything else changes the documents of some output, and is refused.

    Parameters
    ----------
    old : FittedHead
        The head.
    moves : Moves
        From its hierarchy to the new one.

    Returns
    -------
    FittedHead
    """
    known, above = old.outputs, old.head != "leaves"
    nodes = (known.nodes if above else known.terminals).tolist()
    targets = [target for node in nodes for target in moves.targets[node]]
    taken = np.bincount(np.array(targets, np.int64), minlength=len(moves.new))
    changed = [node for node in nodes if not _keeps_documents(moves, node, taken, above)]
    if above:
        same_kind = moves.old.is_leaf[known.terminals] == moves.new.is_leaf[moves.forward[known.terminals].indices]
        changed = changed or known.terminals[~same_kind].tolist()
    if changed:
        raise TreelabelError(
            f"other texts than before belong to {some(moves.old.paths(changed))} now, and linear (head={old.head}) has "
            "to learn them anew; name the file that it was trained on with --train (train=). Labels that are renamed "
            "need none"
        )
    return replace(old, calibration=replace(old.calibration, outputs=_outputs_after(known, moves)))


def _keeps_documents(moves: Moves, node: int, taken: npt.NDArray[Any], above: bool) -> bool:
    """Return whether an output has the same documents after moves, and, if asked, the same ones above it."""
    targets = moves.targets[node]
    if len(targets) != 1 or taken[targets[0]] > 1:
        return False
    parents = {target for parent in moves.old.parents([node]).indices.tolist() for target in moves.targets[parent]}
    return not above or parents == set(moves.new.parents([targets[0]]).indices.tolist())


def _outputs_after(known: OutputSpace, moves: Moves) -> OutputSpace:
    """Assign the outputs to the new nodes."""
    target = np.array([targets[0] if len(targets) == 1 else -1 for targets in moves.targets], np.int32)
    terminals = target[known.terminals]
    order = np.argsort(terminals)
    # Above leaves that moved are other nodes than before, which have no outputs then.
    has = known.node_outputs >= 0
    output_of = dict(zip(target[known.nodes[has]].tolist(), known.node_outputs[has].tolist(), strict=True))
    ends = np.union1d(terminals, list(output_of))
    nodes = np.unique(moves.new.closure(label_matrix([0, len(ends)], ends, len(moves.new))).indices).astype(np.int32)
    node_outputs = np.array([output_of.get(node, -1) for node in nodes.tolist()], np.int32)
    return OutputSpace(moves.new, nodes, node_outputs, terminals[order], known.terminal_outputs[order])
