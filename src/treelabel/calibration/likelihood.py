"""Fit a few parameters by the least log loss: temperatures, softmaxes, sigmoids, beta calibration, mixture weights.

One temperature for all documents makes probabilities too extreme at both ends, for some documents are harder than
others. So a softmax is a mixture of a sharp and a flat one, with a weight that is fitted.

scipy.optimize is imported where something is fitted: it takes as long to load as many predictions.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel, one_blas_thread, over_rows, sum_rows
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, LongArray

# Optimization ends when a further step would gain less than this share of the loss.
TOLERANCE = 1e-6
# How much a beta calibration is drawn to changing nothing: as a normal prior with this precision / 2.
PRIOR = 5.0
# What seems impossible is at least this likely, and has a logarithm.
TINY = 1e-30


# Returns the value and the gradient.
Loss = Callable[[DoubleArray], tuple[float, DoubleArray]]


def minimize_within(
    loss: Loss, start: DoubleArray, bounds: Sequence[tuple[float, float]], tolerance: float = TOLERANCE
) -> DoubleArray:
    """Find where a smooth function of a few numbers within bounds is least.

    Parameters
    ----------
    loss : callable
        Returns the value and the gradient.
    start : array of shape (n,)
        Where to begin.
    bounds : sequence of (low, high)
        The limits of each number.
    tolerance : float
        The share of the loss that a further step must gain.

    Returns
    -------
    array of shape (n,)

    >>> loss = lambda x: (float(((x - 3) ** 2).sum()), 2 * (x - 3))
    >>> minimize_within(loss, np.zeros(2), [(0, 1), (0, 9)]).round(3).tolist()
    [1.0, 3.0]
    """
    from scipy.optimize import minimize

    with one_blas_thread():
        result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": tolerance})
    return np.asarray(result.x)


class FittedTemperature(NamedTuple):
    """The inverse temperature 1 / T, and the loss with it."""

    inverse: float
    loss: float


def fit_temperature(
    loss: Callable[[float], float], bounds: tuple[float, float] = (-3.0, 3.0), tolerance: float = 1e-5
) -> FittedTemperature:
    """Find the inverse temperature with the least loss by a bounded search over its logarithm (Guo et al. 2017).

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

    result = minimize_scalar(
        lambda logarithm: loss(np.exp(logarithm)), bounds=bounds, method="bounded", options={"xatol": tolerance}
    )
    return FittedTemperature(float(np.exp(result.x)), float(result.fun))


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


def fit_softmax(parts: FloatArray, true: BoolArray, offsets: DoubleArray) -> DoubleArray:
    """Find the weights v >= 0 with which softmax(sum of v_i x parts_i + offsets) has the least log loss.

    Parameters
    ----------
    parts : array of shape (documents, outputs, parts)
        The parts of each logit.
    true : array of shape (documents, outputs)
        Marks the true output of each document, or several of which one is true.
    offsets : array of shape (outputs,)
        Added to the logits.

    Returns
    -------
    array of shape (parts,)
    """

    def loss(v: DoubleArray) -> tuple[float, DoubleArray]:
        total = sum_rows(lambda low, high: softmax_loss(parts, true, offsets, v, low, high), len(true)) / len(true)
        return float(total[0]), total[1:]

    more = parts.shape[2] - 1
    return minimize_within(loss, np.array([5.0] + [1.0] * more), [(0.05, 60.0)] + [(0.0, 60.0)] * more)


@kernel
def softmax_loss(
    parts: FloatArray, true: BoolArray, offsets: DoubleArray, v: DoubleArray, start: int, stop: int
) -> DoubleArray:
    """Sum the log losses of documents, and their gradients by v: expected parts less those expected of true outputs."""
    sums = np.zeros(1 + len(v))
    logits, expected, right = np.empty(parts.shape[1]), np.empty(len(v)), np.empty(len(v))
    for row in range(start, stop):
        for k in range(len(logits)):
            logits[k] = offsets[k]
            for i in range(len(v)):
                logits[k] += v[i] * parts[row, k, i]
        largest = -np.inf
        for k in range(len(logits)):
            largest = max(largest, logits[k])
        total, hit = 0.0, TINY
        expected[:] = 0.0
        right[:] = 0.0
        for k in range(len(logits)):
            odds = np.exp(logits[k] - largest) + TINY
            total += odds
            hit += odds if true[row, k] else 0.0
            for i in range(len(v)):
                expected[i] += odds * parts[row, k, i]
                right[i] += odds * parts[row, k, i] if true[row, k] else 0.0
        sums[0] += np.log(total) - np.log(hit)
        for i in range(len(v)):
            sums[1 + i] += expected[i] / total - right[i] / hit
    return sums


def fit_softmax_mixture(logits: DoubleArray, true: BoolArray, offsets: DoubleArray) -> DoubleArray:
    """Find the mixture (1 - e) softmax(s x logits) + e softmax(f x logits) of two temperatures with the least log loss.

    Parameters
    ----------
    true : array of shape (documents, outputs)
        Marks the true output of each document, or several of which one is true.
    offsets : array of shape (outputs,)
        Added to the logits of both softmaxes.

    Returns
    -------
    array of shape (3,)
        s, f, e: the inverse temperatures of the sharp and of the flat softmax, and the weight of the flat one.
    """
    from scipy.special import expit

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        sharp, flat, weight = np.exp(numbers[0]), np.exp(numbers[1]), expit(numbers[2])
        blocks = over_rows(
            lambda low, high: scaled_softmaxes(logits, true, offsets, sharp, flat, low, high), len(true), least=256
        )
        one, two, one_slope, two_slope = np.concatenate(blocks, axis=1)
        sharp_part, flat_part = np.log1p(-weight) + one, np.log(weight) + two
        whole = np.logaddexp(sharp_part, flat_part)
        of_sharp, of_flat = np.exp(sharp_part - whole), np.exp(flat_part - whole)
        slope = [(of_sharp * one_slope).mean() * sharp, (of_flat * two_slope).mean() * flat, (of_flat - weight).mean()]
        return -float(whole.mean()), -np.array(slope)

    bounds = [(-1.5, 1.5), (-4.0, 0.0), (-6.0, 1.0)]
    sharp, flat, weight = minimize_within(loss, np.array([0.2, -1.0, -1.5]), bounds)
    return np.array([np.exp(sharp), np.exp(flat), expit(weight)])


@kernel
def scaled_softmaxes(
    logits: DoubleArray, true: BoolArray, offsets: DoubleArray, sharp: float, flat: float, start: int, stop: int
) -> DoubleArray:
    """Compute ln P(true outputs) at two inverse temperatures, and its derivatives by them: 4 x documents."""
    results = np.empty((4, stop - start))
    for row in range(start, stop):
        row_logits = logits[row]
        for which in range(2):
            inverse = sharp if which == 0 else flat
            largest = -np.inf
            for k in range(len(row_logits)):
                largest = max(largest, inverse * row_logits[k] + offsets[k])
            total, mean, hit, right = 0.0, 0.0, TINY, 0.0
            for k in range(len(row_logits)):
                odds = np.exp(inverse * row_logits[k] + offsets[k] - largest) + TINY
                total += odds
                mean += odds * row_logits[k]
                hit += odds if true[row, k] else 0.0
                right += odds * row_logits[k] if true[row, k] else 0.0
            results[which, row - start] = np.log(hit) - np.log(total)
            results[2 + which, row - start] = right / hit - mean / total
    return results


def fit_logistic(
    features: FloatArray | DoubleArray,
    target: DoubleArray,
    weights: DoubleArray | None = None,
    slopes: tuple[float, float] = (0, 20),
) -> DoubleArray:
    """Fit sigmoid(sum of s_i x feature_i + t) by the least log loss, with slopes within limits.

    Parameters
    ----------
    target : array of shape (n,)
        The probability that each should have.
    weights : array of shape (n,) or None
        How many each stands for; 1 by default.
    slopes : (float, float)
        The smallest and the largest slope.

    Returns
    -------
    array of shape (features + 1,)
        The slopes, and t.
    """
    from scipy.special import expit

    columns = np.column_stack([features.astype(np.float64), np.ones(len(features))])
    share = np.full(len(target), 1 / len(target)) if weights is None else weights / weights.sum()

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        z = columns @ numbers
        return float(share @ (np.logaddexp(0, z) - target * z)), (share * (expit(z) - target)) @ columns

    count = features.shape[1]
    return minimize_within(loss, np.array([1 / count] * count + [0.0]), [slopes] * count + [(-20.0, 20.0)])


def fit_sigmoid(margins: FloatArray | DoubleArray, true: BoolArray, least_slope: float = 0.05) -> tuple[float, float]:
    """Fit sigmoid(s x margin + t) by the least log loss (Platt scaling).

    Parameters
    ----------
    true : array of shape (n,)
        Whether each is one of a true label.

    Returns
    -------
    (s, t)
        Slope and intercept.
    """
    # Nothing is quite certain: as if one more document of each kind had been seen (Platt 1999).
    high, low = (true.sum() + 1) / (true.sum() + 2), 1 / ((~true).sum() + 2)
    slope, intercept = fit_logistic(margins[:, None], np.where(true, high, low), slopes=(least_slope, 20.0))
    return float(slope), float(intercept)


def fit_beta(p: DoubleArray, true: BoolArray) -> tuple[float, float, float]:
    """Fit sigmoid(a ln p - b ln(1 - p) + c) by the least log loss (beta calibration, Kull et al. 2017).

    Unlike one temperature, it bends both ends on their own. Few documents change little: a, b and c have a prior.

    Parameters
    ----------
    p : array of shape (n,)
        Probabilities above 0 and below 1.
    true : array of shape (n,)
        Whether each came true.

    Returns
    -------
    (a, b, c)
        a, b >= 0; (1, 1, 0) changes nothing.

    >>> fit_beta(np.full(2, 0.5), np.array([True, False]))
    (1.0, 1.0, 0.0)
    """
    from scipy.special import expit

    columns, neutral = np.column_stack([np.log(p), -np.log1p(-p), np.ones(len(p))]), np.array([1.0, 1.0, 0.0])

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        z, away = columns @ numbers, numbers - neutral
        value = (np.logaddexp(0, z) - true * z).sum() + PRIOR * (away**2).sum()
        return float(value), (expit(z) - true) @ columns + 2 * PRIOR * away

    a, b, c = minimize_within(loss, neutral, [(0.0, 10.0), (0.0, 10.0), (-10.0, 10.0)]).tolist()
    return a, b, c


def fit_mixture_weight(one: DoubleArray, other: DoubleArray) -> float:
    """Find the weight e of a mixture (1 - e) x one + e x other with the largest likelihood (EM).

    Parameters
    ----------
    one, other : array of shape (documents,)
        The probability that either distribution gives to what came true.

    Returns
    -------
    float
    """
    if not len(one):
        return 0.0
    weight = 0.05
    for _ in range(100):
        part = weight * other
        weight = float((part / np.maximum(part + (1 - weight) * one, 1e-300)).mean())
    return weight
