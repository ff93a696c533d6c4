"""From margins to probabilities: a few numbers learned on documents that the margins have not seen.

One slope for all documents makes probabilities too extreme at both ends, for some documents are harder than others. So
a softmax is mixed of a steep and a flat one, with a share that is learned, and single outputs get a map of any rising
shape.

scipy.optimize is imported where something is fitted: it takes as long to load as many predictions.
"""

import numpy as np

from treelabel.core.compute import BoolArray, DoubleArray, FloatArray, IntArray, LongArray, kernel, over_rows

# Margins are brought to so many steps before sigmoids are fitted: no probability changes visibly.
STEPS = 400
# Numbers are found when a further step would gain less than this share of the loss.
ENOUGH = {"ftol": 1e-6}
# What is impossible by all that is known is at least this likely, and has a logarithm.
TINY = 1e-30


def fit_softmax(parts: FloatArray, true: BoolArray, offsets: DoubleArray | None = None) -> DoubleArray:
    """Find v such that softmax(sum of v_i x parts_i + offsets) has the least log loss; v is not below 0.

    `parts` is documents x outputs x parts. `true` marks the output of each document, or several of which one is true.
    """
    from scipy.optimize import minimize

    added = np.zeros(parts.shape[1]) if offsets is None else offsets

    def loss(v: DoubleArray) -> tuple[float, DoubleArray]:
        found = over_rows(lambda low, high: softmax_loss(parts, true, added, v, low, high), len(true), least=256)
        total = np.sum(found, axis=0) / len(true)
        return float(total[0]), total[1:]

    more = parts.shape[2] - 1
    start = np.array([5.0] + [1.0] * more)
    bounds = [(0.05, 60.0)] + [(0.0, 60.0)] * more
    v: DoubleArray = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=ENOUGH).x
    return v


@kernel
def softmax_loss(
    given: FloatArray, true: BoolArray, offsets: DoubleArray, v: DoubleArray, start: int, stop: int
) -> DoubleArray:
    """Sum the log losses of documents, and their slopes by v: the expected part less what is expected of true ones."""
    found = np.zeros(1 + len(v))
    logits, expected, right = np.empty(given.shape[1]), np.empty(len(v)), np.empty(len(v))
    for row in range(start, stop):
        for k in range(len(logits)):
            logits[k] = offsets[k]
            for i in range(len(v)):
                logits[k] += v[i] * given[row, k, i]
        largest = logits.max()
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


def fit_flatter(logits: DoubleArray, true: BoolArray, offsets: DoubleArray | None = None) -> tuple[float, float, float]:
    """Find (s, f, e) such that (1 - e) softmax(s x logits) + e softmax(f x logits) has the least log loss.

    `offsets` are added to the logits of both; `true` is as in `fit_softmax`.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    added = np.zeros(logits.shape[1]) if offsets is None else offsets

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        steep, flat, share = np.exp(numbers[0]), np.exp(numbers[1]), expit(numbers[2])
        found = over_rows(
            lambda low, high: scaled_softmaxes(logits, true, added, steep, flat, low, high), len(true), least=256
        )
        one, two, one_slope, two_slope = np.concatenate(found, axis=1)
        steep_part, flat_part = np.log1p(-share) + one, np.log(share) + two
        whole = np.logaddexp(steep_part, flat_part)
        of_steep, of_flat = np.exp(steep_part - whole), np.exp(flat_part - whole)
        slope = [(of_steep * one_slope).mean() * steep, (of_flat * two_slope).mean() * flat, (of_flat - share).mean()]
        return -float(whole.mean()), -np.array(slope)

    bounds = [(-1.5, 1.5), (-4.0, 0.0), (-6.0, 1.0)]
    start = np.array([0.2, -1.0, -1.5])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=ENOUGH).x
    return float(np.exp(found[0])), float(np.exp(found[1])), float(expit(found[2]))


@kernel
def scaled_softmaxes(
    logits: DoubleArray, true: BoolArray, offsets: DoubleArray, steep: float, flat: float, start: int, stop: int
) -> DoubleArray:
    """ln of the true outputs' probability with two slopes, and how both change with their slope: 4 x documents."""
    found = np.empty((4, stop - start))
    for row in range(start, stop):
        given = logits[row]
        for which in range(2):
            slope = steep if which == 0 else flat
            largest = -np.inf
            for k in range(len(given)):
                largest = max(largest, slope * given[k] + offsets[k])
            total, mean, hit, right = 0.0, 0.0, TINY, 0.0
            for k in range(len(given)):
                odds = np.exp(slope * given[k] + offsets[k] - largest) + TINY
                total += odds
                mean += odds * given[k]
                hit += odds if true[row, k] else 0.0
                right += odds * given[k] if true[row, k] else 0.0
            found[which, row - start] = np.log(hit) - np.log(total)
            found[2 + which, row - start] = right / hit - mean / total
    return found


def fit_slope(logits: FloatArray, true: LongArray) -> float:
    """Find s such that softmax(s x logits) has the least log loss; -inf marks what is not there."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    rows = np.arange(len(true))
    given = logits.astype(np.float64)

    def loss(log_slope: float) -> float:
        return -float(log_softmax(np.exp(log_slope) * given, axis=1)[rows, true].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x))


def fit_sigmoid(margins: FloatArray, true: BoolArray) -> tuple[float, float]:
    """Find (s, t) such that sigmoid(s x margin + t) has the least log loss (Platt's scaling)."""
    from scipy.optimize import minimize
    from scipy.special import expit

    given = margins.astype(np.float64)
    # Nothing is quite certain: as if one more document of each kind had been seen (Platt 1999).
    high, low = (true.sum() + 1) / (true.sum() + 2), 1 / ((~true).sum() + 2)
    target = np.where(true, high, low)

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        z = numbers[0] * given + numbers[1]
        error = expit(z) - target
        return float((np.logaddexp(0, z) - target * z).mean()), np.array([(error * given).mean(), error.mean()])

    bounds = [(0.05, 20.0), (-20.0, 20.0)]
    slope, shift = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=bounds, options=ENOUGH).x
    return float(slope), float(shift)


def fit_share(found: DoubleArray, other: DoubleArray) -> float:
    """Find the share e of a mixture (1 - e) x found + e x other that makes what happened likeliest (EM)."""
    if not len(found):
        return 0.0
    share = 0.05
    for _ in range(100):
        part = share * other
        share = float((part / np.maximum(part + (1 - share) * found, 1e-300)).mean())
    return share


def fit_monotone(margins: FloatArray, true: BoolArray) -> DoubleArray:
    """Find the rising map from margins to probabilities with the least squared error (isotonic regression).

    Gives the smallest and the largest margin, and the probabilities at equal steps from one to the other.
    """
    from sklearn.isotonic import isotonic_regression

    low, high = float(margins.min()), float(margins.max()) + 1e-6
    place = ((margins - low) / (high - low) * STEPS).astype(np.int64)
    total = np.bincount(place, minlength=STEPS + 1).astype(np.float64)
    right = np.bincount(place[true], minlength=STEPS + 1)
    seen = np.flatnonzero(total)
    # Half a document of each kind in all keeps the ends away from 0 and 1, which nothing can be sure of.
    share = 0.5 / len(margins)
    found = isotonic_regression(
        (right[seen] + share * total[seen]) / (total[seen] * (1 + 2 * share)), sample_weight=total[seen]
    )
    learned: DoubleArray = np.concatenate([[low, high], np.interp(np.arange(STEPS + 1), seen, found)])
    return learned


@kernel
def rising(
    margins: FloatArray, nodes: IntArray, outputs: IntArray, levels: IntArray, maps: DoubleArray, count: int
) -> FloatArray:
    """Map each node's output by the map of its level, between whose steps it is straight: documents x nodes.

    A map is the smallest and the largest margin, and the probabilities in the middle of equal steps between them.
    """
    found = np.zeros((len(margins), count), np.float32)
    last = maps.shape[1] - 3
    for row in range(len(margins)):
        for at in range(len(nodes)):
            learned = maps[levels[at]]
            place = (margins[row, outputs[at]] - learned[0]) / (learned[1] - learned[0]) * last - 0.5
            place = min(max(place, 0.0), float(last))
            low = min(int(place), last - 1)
            part = place - low
            found[row, nodes[at]] = (1 - part) * learned[2 + low] + part * learned[3 + low]
    return found
