"""Weights of pooled models: what they are learned from, and the log loss that they minimize."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.fitting import softmax_loss
from treelabel.core.compute import one_blas_thread, sum_rows
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, LongArray

# Terminal nodes of a document that are looked at one by one when weights are learned; one more stands for all others.
LIKELIEST = 64
# The prior for equal weights counts as much as this many documents.
PRIOR_STRENGTH = 1.0
MOST_WEIGHT = 10.0

Loss = Callable[[DoubleArray], tuple[float, DoubleArray]]


def candidates(evidence: Sequence[Any], true: LongArray) -> tuple[FloatArray, DoubleArray]:
    """Choose terminal nodes of each document: the true one, the likeliest others, and the average of the rest.

    Parameters
    ----------
    evidence : sequence of arrays or csr_arrays of shape (documents, terminals)
        What each model says.
    true : array of shape (documents,)
        The true terminal nodes.

    Returns
    -------
    (array of shape (documents, candidates, models), array of shape (candidates,))
        Evidence, the true one first; and ln of how many terminal nodes each candidate stands for.
    """
    documents, terminals = evidence[0].shape
    few = min(LIKELIEST, terminals - 1)
    rest = terminals - 1 - few
    near = np.zeros((documents, 1 + few + (rest > 0), len(evidence)), np.float32)
    for row in range(documents):
        given = np.stack([dense_row(values, row) for values in evidence], axis=1)
        together = given.sum(axis=1)
        together[true[row]] = np.inf
        # Two borders: the true one comes first, then the likeliest in any order.
        order = np.argpartition(-together, [0, few])
        near[row, : 1 + few] = given[order[: 1 + few]]
        if rest:
            near[row, -1] = given[order[1 + few :]].mean(axis=0)
    return near, np.log(np.array([1.0] * (1 + few) + [float(rest)] * (rest > 0)))


def dense_row(values: Any, row: int) -> FloatArray:
    """Return one row of a matrix.

    Parameters
    ----------
    values : array or csr_array of shape (documents, nodes)
    row
        The number of the document.

    Returns
    -------
    array of shape (nodes,)
    """
    found: FloatArray = values[[row]].toarray()[0] if sparse.issparse(values) else values[row]
    return found


def fit_softmax_pool(near: FloatArray, hit: BoolArray, offsets: DoubleArray) -> DoubleArray:
    """Find the weights, at least 0, with which a softmax over candidates has the least log loss.

    Parameters
    ----------
    near : array of shape (documents, candidates, models)
        Evidence.
    hit : array of shape (documents, candidates)
        Marks the true ones.
    offsets : array of shape (candidates,)
        What is added to logits.

    Returns
    -------
    array of shape (models,)
        The weights.
    """

    def loss(weights: DoubleArray) -> tuple[float, DoubleArray]:
        total = sum_rows(lambda low, high: softmax_loss(near, hit, offsets, weights, low, high), len(hit))
        return float(total[0]), total[1:]

    return _least(loss, equal_weights(near.shape[2])[1:], len(hit))


def fit_sigmoid_pool(
    parts: DoubleArray, true: BoolArray, first: DoubleArray | None = None, free: int = 1
) -> DoubleArray:
    """Find b and weights, these at least 0, with which sigmoid(b + weights x logits) has the least log loss.

    Parameters
    ----------
    parts : array of shape (n, models)
        Logits.
    true : array of shape (n,)
        Whether each is one of a true label.
    first : array of shape (1 + models,) or None
        The center of the prior; None for equal weights.
    free : int
        How many numbers, b first, may be below 0.

    Returns
    -------
    array of shape (1 + models,)
        b and the weights.
    """
    from scipy.special import expit

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        z = numbers[0] + parts @ numbers[1:]
        error = expit(z) - true
        return float((np.logaddexp(0, z) - true * z).sum()), np.concatenate([[error.sum()], parts.T @ error])

    return _least(loss, equal_weights(parts.shape[1]) if first is None else first, len(true), free)


def equal_weights(count: int) -> DoubleArray:
    """Return b = 0 and equal weights."""
    return np.array([0.0] + [1 / count] * count)


def _least(loss: Loss, first: DoubleArray, count: int, free: int = 0) -> DoubleArray:
    """Minimize a loss with a Gaussian prior around `first`; all numbers but the `free` first ones are at least 0."""
    from scipy.optimize import minimize

    def penalized(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        value, slope = loss(numbers)
        away = numbers - first
        return (value + PRIOR_STRENGTH * float(away @ away)) / count, (slope + 2 * PRIOR_STRENGTH * away) / count

    bounds = [(-MOST_WEIGHT, MOST_WEIGHT)] * free + [(0.0, MOST_WEIGHT)] * (len(first) - free)
    with one_blas_thread():
        found: DoubleArray = minimize(penalized, first, jac=True, method="L-BFGS-B", bounds=bounds).x
    return found
