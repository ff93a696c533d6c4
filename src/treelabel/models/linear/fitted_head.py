"""A fitted head: features -> margins -> calibrated probabilities of nodes; how it takes more documents or new names.

`refit_head` learns the weights again, in one training with all documents; n-grams, the head and the calibration, whose
parameters belong to levels and not to labels, are those of the first fit, which spends 40 to 90% of its time on them
(benchmarks/update.py). Documents are visited in the same order as in a fit, so that the weights are those of fitting
anew with the same settings, bit for bit. They start where every training starts: on mwpd_gpc (10,012 documents),
starting from the dual variables of nine tenths of the documents takes 0.7 times as long in the loop, which is a fifth
of a fit there; but 59% of all documents x outputs have a dual variable, far more than there are weights, and to derive
these from weights, a = 2C max(0, 1 - y w x), multiplies what was pruned and not yet converged by 2C for each document.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.calibration.contract import MarginCalibration
from treelabel.calibration.output_space import OutputSpace
from treelabel.core.array_schema import Array, Arrays, Csr, Schema, indices
from treelabel.core.errors import TreelabelError, some
from treelabel.core.sparse_product import SparseWeights
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import label_matrix
from treelabel.hierarchy.moves import Moves
from treelabel.models.linear.heads import HEADS, HeadTask, LinearHead
from treelabel.models.linear.weight_collector import WeightCollector
from treelabel.models.persistence.schema import tfidf_arrays

# With more documents than this many times those of before, calibration is fitted anew to held-out documents.
MOST_GROWTH = 2.0
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
        """
        outputs = OutputSpace(hierarchy, *(arrays[name] for name in _OUTPUT_ARRAYS))
        parts = arrays["weights_data"], arrays["weights_indices"], arrays["weights_indptr"]
        weights = sparse.csr_array(parts, (width, outputs.count))
        return cls(
            head, SparseWeights(weights, arrays["bias"]), HEADS[head].calibration(regime)(outputs).restore(arrays)
        )


def fit_head(name: str, job: HeadTask) -> tuple[FittedHead, Any]:
    """Train a head, and calibrate it on the margins that each fold of documents has without having been learned.

    Parameters
    ----------
    name : str
        A row of HEADS.
    job : Job
        Documents and settings.

    Returns
    -------
    (FittedHead, array or csr_array of shape (documents of the folds, nodes))
        The head, and the probabilities of the folds' documents by what was learned without them, in the order of
        `job.rows.held`.
    """
    head, train, rows = HEADS[name], job.train, job.rows
    outputs, collector = _train(head, job)
    fitted = head.calibration(train.regime)(outputs).fit(collector.margins, train.labels[rows.held])
    p = fitted.probabilities(collector.margins)
    if rows.learn_all:
        fitted = fitted.for_more_documents(1 - len(rows.held) / len(rows.folds) / len(train))
    return FittedHead(name, SparseWeights(collector.weights(), collector.bias), fitted), p


def _train(head: LinearHead, job: HeadTask) -> tuple[OutputSpace, WeightCollector]:
    outputs = head.outputs(job.train)
    collector = WeightCollector(len(job.rows.held), job.rows.features.shape[1], outputs.count, job.prune)
    head.train(job, head.c if job.c is None else job.c, outputs, collector)
    return outputs, collector


def refit_head(old: FittedHead, job: HeadTask, ratio: float) -> FittedHead:
    """Train the outputs of a head anew, nothing being held out, and keep its calibration.

    Parameters
    ----------
    old : FittedHead
        The head that was fitted before, to documents of the same regime.
    job : Job
        All documents.
    ratio : float
        The number of documents before over that of now.

    Returns
    -------
    FittedHead
    """
    outputs, collector = _train(HEADS[old.head], job)
    calibration = replace(old.calibration, outputs=outputs).for_more_documents(ratio)
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
