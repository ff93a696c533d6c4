"""Fitting a few parameters to held-out documents: softmaxes and their mixtures, sigmoids, mixture weights.

One temperature for all documents makes probabilities too extreme at both ends, for some documents are harder than
others. So a softmax is a mixture of a sharp and a flat one, with a weight that is fitted.

scipy.optimize is imported where something is fitted: it takes as long to load as many predictions.
"""

from collections.abc import Callable, Sequence

import numpy as np

from treelabel.core.compute import kernel, one_blas_thread, over_rows, sum_rows
from treelabel.core.types import BoolArray, DoubleArray, FloatArray

# Optimization ends when a further step would gain less than this share of the loss.
OPTIONS = {"ftol": 1e-6}
# How much a beta calibration is drawn to changing nothing: as a normal prior with this precision / 2.
PRIOR = 5.0
# What seems impossible is at least this likely, and has a logarithm.
TINY = 1e-30


def least(
    loss: Callable[[DoubleArray], tuple[float, DoubleArray]], start: DoubleArray, bounds: Sequence[tuple[float, float]]
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

    Returns
    -------
    array of shape (n,)
        The numbers.

    >>> least(lambda x: (float(((x - 3) ** 2).sum()), 2 * (x - 3)), np.zeros(2), [(0, 1), (0, 9)]).round(3).tolist()
    [1.0, 3.0]
    """
    from scipy.optimize import minimize

    with one_blas_thread():
        found: DoubleArray = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=OPTIONS).x
    return found


def fit_softmax(parts: FloatArray, true: BoolArray, offsets: DoubleArray | None = None) -> DoubleArray:
    """Find the weights v >= 0 with which softmax(sum of v_i x parts_i + offsets) has the least log loss.

    Parameters
    ----------
    parts : array of shape (documents, outputs, parts)
        The parts of each logit.
    true : array of shape (documents, outputs)
        Marks the true output of each document, or several of which one is true.
    offsets : array of shape (outputs,) or None
        What is added to the logits.

    Returns
    -------
    array of shape (parts,)
        The weights.
    """
    added = np.zeros(parts.shape[1]) if offsets is None else offsets

    def loss(v: DoubleArray) -> tuple[float, DoubleArray]:
        total = sum_rows(lambda low, high: softmax_loss(parts, true, added, v, low, high), len(true)) / len(true)
        return float(total[0]), total[1:]

    more = parts.shape[2] - 1
    start = np.array([5.0] + [1.0] * more)
    bounds = [(0.05, 60.0)] + [(0.0, 60.0)] * more
    v: DoubleArray = least(loss, start, bounds)
    return v


@kernel
def softmax_loss(
    given: FloatArray, true: BoolArray, offsets: DoubleArray, v: DoubleArray, start: int, stop: int
) -> DoubleArray:
    """Sum the log losses of documents, and their gradients by v: expected parts less those expected of true outputs."""
    found = np.zeros(1 + len(v))
    logits, expected, right = np.empty(given.shape[1]), np.empty(len(v)), np.empty(len(v))
    for row in range(start, stop):
        for k in range(len(logits)):
            logits[k] = offsets[k]
            for i in range(len(v)):
                logits[k] += v[i] * given[row, k, i]
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
                expected[i] += odds * given[row, k, i]
                right[i] += odds * given[row, k, i] if true[row, k] else 0.0
        found[0] += np.log(total) - np.log(hit)
        for i in range(len(v)):
            found[1 + i] += expected[i] / total - right[i] / hit
    return found


def fit_softmax_mixture(
    logits: DoubleArray, true: BoolArray, offsets: DoubleArray | None = None
) -> tuple[float, float, float]:
    """Find the mixture (1 - e) softmax(s x logits) + e softmax(f x logits) of two temperatures with the least log loss.

    Parameters
    ----------
    logits : array of shape (documents, outputs)
        Logits.
    true : array of shape (documents, outputs)
        Marks the true output of each document, or several of which one is true.
    offsets : array of shape (outputs,) or None
        What is added to the logits of both softmaxes.

    Returns
    -------
    (s, f, e)
        The inverse temperatures of the sharp and of the flat softmax, and the weight of the flat one.
    """
    from scipy.special import expit

    added = np.zeros(logits.shape[1]) if offsets is None else offsets

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        sharp, flat, weight = np.exp(numbers[0]), np.exp(numbers[1]), expit(numbers[2])
        found = over_rows(
            lambda low, high: scaled_softmaxes(logits, true, added, sharp, flat, low, high), len(true), least=256
        )
        one, two, one_slope, two_slope = np.concatenate(found, axis=1)
        sharp_part, flat_part = np.log1p(-weight) + one, np.log(weight) + two
        whole = np.logaddexp(sharp_part, flat_part)
        of_sharp, of_flat = np.exp(sharp_part - whole), np.exp(flat_part - whole)
        slope = [(of_sharp * one_slope).mean() * sharp, (of_flat * two_slope).mean() * flat, (of_flat - weight).mean()]
        return -float(whole.mean()), -np.array(slope)

    bounds = [(-1.5, 1.5), (-4.0, 0.0), (-6.0, 1.0)]
    start = np.array([0.2, -1.0, -1.5])
    found = least(loss, start, bounds)
    return float(np.exp(found[0])), float(np.exp(found[1])), float(expit(found[2]))


@kernel
def scaled_softmaxes(
    logits: DoubleArray, true: BoolArray, offsets: DoubleArray, sharp: float, flat: float, start: int, stop: int
) -> DoubleArray:
    """Compute ln P(true outputs) at two inverse temperatures, and its derivatives by them: 4 x documents."""
    found = np.empty((4, stop - start))
    for row in range(start, stop):
        given = logits[row]
        for which in range(2):
            inverse = sharp if which == 0 else flat
            largest = -np.inf
            for k in range(len(given)):
                largest = max(largest, inverse * given[k] + offsets[k])
            total, mean, hit, right = 0.0, 0.0, TINY, 0.0
            for k in range(len(given)):
                odds = np.exp(inverse * given[k] + offsets[k] - largest) + TINY
                total += odds
                mean += odds * given[k]
                hit += odds if true[row, k] else 0.0
                right += odds * given[k] if true[row, k] else 0.0
            found[which, row - start] = np.log(hit) - np.log(total)
            found[2 + which, row - start] = right / hit - mean / total
    return found


def fit_logistic(
    features: FloatArray, target: DoubleArray, weights: DoubleArray | None = None, slopes: tuple[float, float] = (0, 20)
) -> DoubleArray:
    """Fit sigmoid(sum of s_i x feature_i + t) by the least log loss, with slopes within limits.

    Parameters
    ----------
    features : array of shape (n, features)
        Features.
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

    given = np.column_stack([features.astype(np.float64), np.ones(len(features))])
    share = np.full(len(target), 1 / len(target)) if weights is None else weights / weights.sum()

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        z = given @ numbers
        return float(share @ (np.logaddexp(0, z) - target * z)), (share * (expit(z) - target)) @ given

    count = features.shape[1]
    start = np.array([1 / count] * count + [0.0])
    bounds = [slopes] * count + [(-20.0, 20.0)]
    found: DoubleArray = least(loss, start, bounds)
    return found


def fit_sigmoid(margins: FloatArray, true: BoolArray) -> tuple[float, float]:
    """Fit sigmoid(s x margin + t) by the least log loss (Platt scaling).

    Parameters
    ----------
    margins : array of shape (n,)
        Margins.
    true : array of shape (n,)
        Whether each is one of a true label.

    Returns
    -------
    (s, t)
        Slope and intercept.
    """
    # Nothing is quite certain: as if one more document of each kind had been seen (Platt 1999).
    high, low = (true.sum() + 1) / (true.sum() + 2), 1 / ((~true).sum() + 2)
    slope, intercept = fit_logistic(margins[:, None], np.where(true, high, low), slopes=(0.05, 20.0))
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

    given, nothing = np.column_stack([np.log(p), -np.log1p(-p), np.ones(len(p))]), np.array([1.0, 1.0, 0.0])

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        z, away = given @ numbers, numbers - nothing
        value = (np.logaddexp(0, z) - true * z).sum() + PRIOR * (away**2).sum()
        return float(value), (expit(z) - true) @ given + 2 * PRIOR * away

    bounds = [(0.0, 10.0), (0.0, 10.0), (-10.0, 10.0)]
    a, b, c = least(loss, nothing, bounds).tolist()
    return a, b, c


def fit_mixture_weight(one: DoubleArray, other: DoubleArray) -> float:
    """Find the weight e of a mixture (1 - e) x one + e x other with the largest likelihood (EM).

    Parameters
    ----------
    one, other : array of shape (documents,)
        What either distribution says of what happened.

    Returns
    -------
    float
        The weight of the other one.
    """
    if not len(one):
        return 0.0
    weight = 0.05
    for _ in range(100):
        part = weight * other
        weight = float((part / np.maximum(part + (1 - weight) * one, 1e-300)).mean())
    return weight
