"""Temperature scaling: all logits are divided by one number T, found where the log loss is least (Guo et al. 2017).

What is fitted is the inverse temperature 1 / T, which logits are multiplied by. scipy.optimize is imported where
something is fitted: it takes as long to load as many predictions.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from treelabel.core.types import FloatArray, LongArray


class FittedTemperature(NamedTuple):
    """The inverse temperature 1 / T, and the loss with it."""

    inverse: float
    loss: float


def fit_temperature(
    loss: Callable[[float], float], bounds: tuple[float, float] = (-3.0, 3.0), tolerance: float = 1e-5
) -> FittedTemperature:
    """Find the inverse temperature with the least loss by a bounded search over its logarithm.

    Parameters
    ----------
    loss : callable
        Returns the mean loss of held-out documents when their logits are multiplied by its argument.
    bounds : (float, float)
        The smallest and the largest logarithm of the inverse temperature.
    tolerance : float
        The search ends when the logarithm is known this closely.

    Returns
    -------
    FittedTemperature
        The inverse temperature and its loss.

    >>> round(fit_temperature(lambda inverse: (inverse - 2) ** 2).inverse, 3)
    2.0
    """
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda logarithm: loss(np.exp(logarithm)), bounds=bounds, method="bounded", options={"xatol": tolerance}
    )
    return FittedTemperature(float(np.exp(found.x)), float(found.fun))


def fit_softmax_temperature(logits: FloatArray, true: LongArray) -> float:
    """Find the inverse temperature of a softmax.

    Parameters
    ----------
    logits : array of shape (documents, outputs)
        Logits; -inf marks outputs that do not exist.
    true : array of shape (documents,)
        The true output of each document.

    Returns
    -------
    float
        s such that softmax(s x logits) has the least log loss.
    """
    from scipy.special import log_softmax

    rows = np.arange(len(true))
    wide = logits.astype(np.float64)
    return fit_temperature(lambda inverse: -float(log_softmax(inverse * wide, axis=1)[rows, true].mean())).inverse
