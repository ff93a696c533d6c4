"""The contract of calibrations: evidence in, coherent probabilities out, fitted on held-out documents."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from treelabel.calibration.output_space import OutputSpace
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.compute import over_rows
from treelabel.core.sparse_product import SparseWeights
from treelabel.core.types import FloatArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.scores.score_matrix import Scores

# Scores that a thread computes at once: with fewer it would wait for Python, with more for memory.
THREAD_SCORES = 1 << 19
# Fitted parameters stay far below.
LARGEST_PARAMETER = 1e6


@dataclass(frozen=True, eq=False)
class Calibration(ABC):
    """A map from evidence to coherent probabilities of nodes: a dataclass whose arrays are its parameters.

    An instance is made for what the evidence stands for, with parameters that fit no data in particular; `fit` and
    `restore` return another one. Whoever uses a calibration need not know which one it is; CALIBRATIONS lists them.
    """

    # The fields that are fitted and saved, and what their arrays may hold.
    parameters: ClassVar[Mapping[str, Array]]

    @abstractmethod
    def fit(self, evidence: Any, labels: LabelMatrix) -> Self:
        """Fit the parameters to held-out documents.

        Parameters
        ----------
        evidence
            As in `probabilities`.
        labels : csr_array of shape (documents, nodes)
            The true labels, closed or not.

        Returns
        -------
        Calibration
            One of the same class; the same one where documents say nothing.
        """

    @abstractmethod
    def probabilities(self, evidence: Any) -> Any:
        """Turn evidence into probabilities of nodes.

        Parameters
        ----------
        evidence
            Documents x columns: margins (dense), candidates (CSR), or a sequence of the scores of several models.

        Returns
        -------
        array or csr_array of shape (documents, nodes)
            float32; a child never has more than its parent.
        """

    def arrays(self) -> Arrays:
        """Return the parameters, to save."""
        return {name: getattr(self, name) for name in self.parameters}

    def restore(self, arrays: Arrays) -> Self:
        """Return the same with parameters that `arrays` returned and `check` has passed."""
        return replace(self, **{name: arrays[name] for name in self.parameters})

    def check(self, arrays: Arrays) -> None:  # noqa: B027
        """Refuse arrays, each of which fits `parameters`, that do not fit each other or the evidence."""


@dataclass(frozen=True, eq=False)
class MarginCalibration(Calibration):
    """A calibration of the margins of a linear model, of cosines or of logits: documents x outputs.

    `outputs` tells what each column stands for; a margin of ABSENT marks an output that has learned nothing.
    """

    outputs: OutputSpace

    @abstractmethod
    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        """Return the probabilities of all nodes: documents x nodes."""

    def for_more_documents(self, ratio: float) -> Self:
        """Return the calibration for a model that has learned more documents than the one it was fitted to.

        `ratio` is the number of documents before over that after. Margins grow with the documents, and are better for
        it; by how much more they grow, if at all, depends on what is made of them.
        """
        return self

    def probabilities(self, evidence: FloatArray, top: int | None = None) -> Any:
        """Turn margins into probabilities; with `top`, keep the largest of each document, as CSR."""
        if top is None:
            return self._node_probabilities(evidence)
        return in_blocks(
            lambda start, stop: self._node_probabilities(evidence[start:stop]),
            len(evidence),
            self.outputs.hierarchy,
            top,
        )

    def probabilities_of(self, features: sparse.csr_array, weights: SparseWeights, top: int | None = None) -> Any:
        """Turn the features of documents into probabilities, some documents at a time.

        Parameters
        ----------
        weights : SparseWeights
            Turn features into margins.
        top : int or None
            How many of the largest probabilities of each document to keep, as CSR; None keeps all.

        Returns
        -------
        array or csr_array of shape (documents, nodes)
        """
        return in_blocks(
            lambda start, stop: self._node_probabilities(weights.times(features, start, stop)),
            features.shape[0],
            self.outputs.hierarchy,
            top,
        )


def in_blocks(
    score: Callable[[int, int], Any],
    documents: int,
    hierarchy: Hierarchy,
    top: int | None,
    least: int = 64,
    most: int | None = None,
) -> Any:
    """Score blocks of documents in threads, keeping the largest scores of each block before the next one is made.

    Parameters
    ----------
    score : callable
        Returns the probabilities of the documents from its first argument up to its second: documents x nodes.
    documents : int
        The number of documents.
    top : int or None
        Scores of a document to keep; None keeps all.
    least : int
        Documents that are worth a thread.
    most : int or None
        Documents of a block at most; by default, as many as keep a thread busy.

    Returns
    -------
    array or csr_array of shape (documents, nodes)
        CSR if `top` is set or the blocks are.
    """

    def block(start: int, stop: int) -> Any:
        p = score(start, stop)
        return p if top is None else Scores(hierarchy, p).top_k(top).values

    if most is None:
        most = max(16, THREAD_SCORES // max(1, len(hierarchy)))
    parts = over_rows(block, documents, least=least, most=most)
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
