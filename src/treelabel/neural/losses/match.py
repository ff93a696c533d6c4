"""MATCH: binary cross-entropy with two penalties that pull children towards their parents (Zhang et al., MATCH)."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import special

from treelabel.core.types import DoubleArray, IntArray
from treelabel.neural.losses.base import Parameter
from treelabel.neural.losses.bce import Bce


class Match(Bce):
    """Binary cross-entropy + lambda_probabilities x the sum over edges of max(0, P(child) - P(parent)), plus `penalty`.

    `penalty` is lambda_parameters / 2 x the sum over edges of |W_child - W_parent|^2, Gopal and Yang's recursive
    regulariser of the output weights W. Edges from the virtual root have no term: it has neither weights nor doubts.
    With both parameters at 0 this is plain bce. Takes any labels and any hierarchy.

    >>> from treelabel.hierarchy import Hierarchy
    >>> match = Match(Hierarchy.from_paths(["A > B"]), lambda_probabilities=1.0)
    >>> bce = Bce(match.hierarchy)
    >>> (match.loss([[0.0, 50.0]], [[1, 1]]) - bce.loss([[0.0, 50.0]], [[1, 1]])).round(3).tolist()
    [0.5]
    """

    name = "match"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "lambda_parameters": Parameter(1e-4, 0.0, 1e6, "weight of |W_child - W_parent|^2 / 2"),
        "lambda_probabilities": Parameter(1e-2, 0.0, 1e6, "weight of max(0, P(child) - P(parent))"),
    }

    @cached_property
    def edges(self) -> tuple[IntArray, IntArray]:
        """All children and their parents, without the edges from the root."""
        h = self.hierarchy
        real = h.parent_idx >= 0
        return h.edge_child[real], h.parent_idx[real]

    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute the loss of each document: see `Loss.loss`."""
        p, (child, parent) = self.probabilities(logits), self.edges
        above = np.maximum(p[:, child] - p[:, parent], 0).sum(axis=1)
        return np.asarray(super().loss(logits, truth) + self.params["lambda_probabilities"] * above)

    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute the gradient, +-P(1 - P) where a child is above its parent: see `Loss.gradient`."""
        s, true = self.checked(logits, truth)
        p, (child, parent) = special.expit(s), self.edges
        above = (p[:, child] > p[:, parent]).astype(np.float64)
        by_p = np.zeros((len(self.outputs), len(s)))
        np.add.at(by_p, child, above.T)
        np.subtract.at(by_p, parent, above.T)
        of_edges = p * special.expit(-s) * by_p.T
        return np.asarray(super().gradient(s, true) + self.params["lambda_probabilities"] * of_edges)

    def penalty(self, weights: npt.ArrayLike) -> tuple[float, DoubleArray]:
        """Return lambda_parameters / 2 x the sum over edges of |W_child - W_parent|^2, and its gradient.

        >>> from treelabel.hierarchy import Hierarchy
        >>> Match(Hierarchy.from_paths(["A > B"]), lambda_parameters=1.0).penalty([[1.0, 0.0], [0.0, 2.0]])[0]
        2.5
        """
        given, (child, parent) = np.asarray(weights, np.float64), self.edges
        apart = given[child] - given[parent]
        by_weights = np.zeros(given.shape)
        np.add.at(by_weights, child, apart)
        np.subtract.at(by_weights, parent, apart)
        factor = self.params["lambda_parameters"]
        return float(factor * (apart**2).sum() / 2), factor * by_weights
