"""Binary cross-entropy: an independent sigmoid for every node."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from treelabel.core.types import DoubleArray
from treelabel.neural.losses.base import Loss, Truth


class Bce(Loss):
    """Binary cross-entropy: the sum over nodes n of w_n (ln(1 + e^s_n) - y_n s_n), with w_n = 1. P(n) = sigmoid(s_n).

    Takes any labels and any hierarchy. Nothing keeps children below their parents; `Scores.coherent()` does it
    afterwards. Losses that weight nodes differently override `weights`.

    >>> from treelabel.hierarchy import Hierarchy
    >>> bce = Bce(Hierarchy.flat(["A", "B"]))
    >>> bce.loss([[0.0, 100.0]], [[1, 1]]).round(3).tolist(), bce.probabilities([[0.0, 100.0]]).tolist()
    ([0.693], [[0.5, 1.0]])
    """

    name = "bce"
    coherent = False

    def weights(self, truth: Truth) -> DoubleArray:
        """Return the weight of every node: documents x nodes, or what broadcasts to it."""
        return np.ones((1, 1))

    def loss(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute the loss of each document: see `Loss.loss`."""
        s, true = self.checked(logits, truth)
        per_node = np.logaddexp(0, s) - np.where(true.dense(), s, 0.0)
        return np.asarray((self.weights(true) * per_node).sum(axis=1))

    def gradient(self, logits: npt.ArrayLike, truth: Any) -> DoubleArray:
        """Compute w_n (sigmoid(s_n) - y_n): see `Loss.gradient`."""
        s, true = self.checked(logits, truth)
        return np.asarray(self.weights(true) * (special.expit(s) - true.dense()))

    def probabilities(self, logits: npt.ArrayLike) -> DoubleArray:
        """Return sigmoid(s_n): documents x nodes."""
        return np.asarray(special.expit(self.checked_logits(logits)))
