"""A fitted head: features -> margins -> calibrated probabilities of nodes."""

from dataclasses import dataclass
from typing import Any

from scipy import sparse

from treelabel.calibration.base import Calibration
from treelabel.calibration.outputs import Outputs
from treelabel.core.array_schema import Array, Arrays, Csr, Schema, indices
from treelabel.core.sparse_product import Weights
from treelabel.hierarchy import Hierarchy
from treelabel.models.linear.heads import Job
from treelabel.models.linear.registry import HEADS
from treelabel.models.linear.weights import WeightCollector
from treelabel.models.persistence.schema import tfidf_arrays

_OUTPUT_ARRAYS = ("nodes", "node_outputs", "terminals", "terminal_outputs")


@dataclass(frozen=True, eq=False)
class FittedHead:
    """A head that has been fitted: its weights and its calibration."""

    head: str
    weights: Weights
    calibration: Calibration

    @property
    def outputs(self) -> Outputs:
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
