"""The pool for very many labels: a logistic regression over candidates, which most models say nothing about."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from treelabel.calibration.base import LARGEST_PARAMETER
from treelabel.calibration.outputs import LEVELS
from treelabel.core.array_schema import Array, Schema
from treelabel.core.types import DoubleArray, LongArray
from treelabel.hierarchy import Hierarchy
from treelabel.selection.training import Training
from treelabel.stack.pool import LEAST, NodePool, PathPool, Pool
from treelabel.stack.weights import MOST_WEIGHT, fit_sigmoid_pool

# With more nodes, only the largest scores of each model are looked at.
MANY_LABELS = 2_000


class PooledCandidates(NodePool):
    """Documents with several of very many labels: a candidate is what some model takes for possible.

    logit P(n) = b + the sum over models of (weight x logit P_model(n), or c_model where the model has no score for n)
    + v x logit(1 - the product of 1 - P_model(n)), made coherent. That a model which finds few labels (by their names)
    has not found one is no proof against it, as a probability of 0 would be; c tells how much it means. The last term
    is that of models which find labels independently of each other (noisy or). What no model takes for possible stays
    at 0. `coefficients` are b, c, weights and v of every level.
    """

    @classmethod
    def equal(cls, train: Training, count: int) -> "PooledCandidates":
        """Make a pool in which all models have the same weight.

        Parameters
        ----------
        train, count
            As in `PathPool.equal`.

        Returns
        -------
        PooledCandidates
        """
        return cls(train.hierarchy, np.tile(first_coefficients(count), (LEVELS + 1, 1)))

    @property
    def weights(self) -> DoubleArray:
        """The weights of the models: levels x models."""
        count = (self.coefficients.shape[1] - 2) // 2
        return self.coefficients[:, 1 + count : -1]

    def _fit_level(self, parts: DoubleArray, true: Any) -> DoubleArray:
        count = (parts.shape[1] - 1) // 2
        return fit_sigmoid_pool(parts, true, first_coefficients(count), 1 + count)

    @staticmethod
    def schema(hierarchy: Hierarchy, count: int) -> Schema:
        """Declare what `arrays` returns, for this many models.

        Parameters
        ----------
        hierarchy, count
            As in `PathPool.schema`.

        Returns
        -------
        Schema
        """
        size = (str(LEVELS + 1), "models + models + 2")
        coefficients = Array("float64", size, -LARGEST_PARAMETER, LARGEST_PARAMETER)
        return Schema({"coefficients": coefficients}, sizes={"models": count})

    def _possible(self, given: Sequence[Any]) -> tuple[DoubleArray, LongArray, LongArray]:
        """List what is known of candidates, one row each: missing, logits, noisy or; its document and its node."""
        p, row, node = self._known(given)
        missing = p <= LEAST
        inside = np.clip(p, LEAST, 1 - LEAST)
        some = np.clip(1 - np.prod(np.where(missing, 1, 1 - inside), axis=1), LEAST, 1 - LEAST)
        logits = np.where(missing, 0, np.log(inside / (1 - inside)))
        return np.column_stack([missing, logits, np.log(some / (1 - some))]), row, node


def first_coefficients(count: int) -> DoubleArray:
    """Return the coefficients of equal weights, where what is missing has the least probability."""
    missing = max(-MOST_WEIGHT, np.log(LEAST) / count)
    return np.array([0.0] + [missing] * count + [1 / count] * count + [0.0])


def is_extreme(regime: str, hierarchy: Hierarchy) -> bool:
    """Return whether labels are so many that only candidates are looked at.

    Parameters
    ----------
    regime
        That of the labels: see `regime_of`.
    hierarchy
        The hierarchy.

    Returns
    -------
    bool
    """
    return regime == "multi_path" and len(hierarchy) > MANY_LABELS


def pool_of(regime: str, hierarchy: Hierarchy) -> type[Pool]:
    """Return the kind of pool for a kind of labels.

    Parameters
    ----------
    regime, hierarchy
        As in `is_extreme`.

    Returns
    -------
    type
    """
    if regime != "multi_path":
        return PathPool
    return PooledCandidates if is_extreme(regime, hierarchy) else NodePool
