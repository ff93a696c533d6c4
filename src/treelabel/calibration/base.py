"""The contract of calibrations: fit on held-out documents, turn margins into probabilities, save and load."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy import sparse

from treelabel.calibration.outputs import Outputs
from treelabel.core.array_schema import Array, Arrays
from treelabel.core.compute import over_rows
from treelabel.core.sparse_product import Weights
from treelabel.core.types import FloatArray
from treelabel.hierarchy import Hierarchy, LabelMatrix
from treelabel.scores import Scores

# Scores that a thread computes at once: with fewer it would wait for Python, with more for memory.
THREAD_SCORES = 1 << 19
# Fitted parameters stay far below.
LARGEST_PARAMETER = 1e6


class Calibration(ABC):
    """A map from the margins of outputs to coherent probabilities of nodes, fitted on held-out documents.

    Margins are those of a linear model, cosines or logits: documents x outputs, where `outputs` tells what each output
    stands for. Whoever uses a calibration need not know which one it is; CALIBRATIONS lists them.
    """

    outputs: Outputs

    @classmethod
    @abstractmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, labels: LabelMatrix) -> Self:
        """Fit to held-out documents.

        Parameters
        ----------
        outputs : Outputs
            What the columns of `margins` stand for.
        margins : array of shape (documents, outputs)
            Margins; ABSENT where an output has learned nothing.
        labels : csr_array of shape (documents, nodes)
            The true labels, closed or not.

        Returns
        -------
        Calibration
            A calibration of its class.
        """

    def for_more_documents(self, ratio: float) -> Self:
        """Return the calibration for a model that has learned more documents than the one it was fitted to.

        `ratio` is the number of documents before over that after. Margins grow with the documents, and are better for
        it; by how much more they grow, if at all, depends on what is made of them.
        """
        return self

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return the fitted parameters, to save."""

    @staticmethod
    @abstractmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns."""

    @staticmethod
    @abstractmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse arrays, each of which fits `schema`, that do not fit each other or the outputs.

        Parameters
        ----------
        outputs
            What the margins stand for.
        arrays
            Arrays from a file.
        """

    @classmethod
    @abstractmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> Self:
        """Make a calibration of what `arrays` returned.

        Parameters
        ----------
        outputs
            What the margins stand for.
        arrays
            Arrays that fit `schema` and have passed `check`.

        Returns
        -------
        Calibration
        """

    @abstractmethod
    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        """Return the probabilities of all nodes: documents x nodes."""

    def probabilities(self, margins: FloatArray, top: int | None = None) -> Any:
        """Turn margins into probabilities.

        Parameters
        ----------
        margins : array of shape (documents, outputs)
            Margins.
        top : int or None
            How many of the largest probabilities of each document to keep; None keeps all.

        Returns
        -------
        array or csr_array of shape (documents, nodes)
            Probabilities, CSR with `top`.
        """
        if top is None:
            return self._node_probabilities(margins)
        return in_blocks(
            lambda start, stop: self._node_probabilities(margins[start:stop]),
            len(margins),
            self.outputs.hierarchy,
            top,
        )

    def probabilities_of(self, features: sparse.csr_array, weights: Weights, top: int | None = None) -> Any:
        """Turn the features of documents into probabilities, some documents at a time.

        Parameters
        ----------
        features : csr_array of shape (documents, features)
            Documents.
        weights : Weights
            What turns them into margins.
        top : int or None
            How many of the largest probabilities of each document to keep; None keeps all.

        Returns
        -------
        array or csr_array of shape (documents, nodes)
            Probabilities, CSR with `top`.
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
    hierarchy : Hierarchy
        The hierarchy.
    top : int or None
        Scores of a document to keep; None keeps all.
    least : int
        Documents that are worth a thread.
    most : int or None
        Documents of a block at most; by default, as many as keep a thread busy.

    Returns
    -------
    array or csr_array of shape (documents, nodes)
        CSR if `top` is given or the blocks are.
    """

    def block(start: int, stop: int) -> Any:
        found = score(start, stop)
        return found if top is None else Scores(hierarchy, found).top_k(top).values

    if most is None:
        most = max(16, THREAD_SCORES // max(1, len(hierarchy)))
    parts = over_rows(block, documents, least=least, most=most)
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
