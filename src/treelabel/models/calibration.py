"""From margins to probabilities: a few numbers learned on documents that the margins have not seen.

One slope for all documents makes probabilities too extreme at both ends, for some documents are harder than others. So
a softmax is mixed of a steep and a flat one, with a share that is learned, and single outputs get a map of any rising
shape.
"""

from collections.abc import Sequence

import numpy as np
from scipy import optimize, special

from treelabel.compute import BoolArray, DoubleArray, FloatArray, LongArray

# Margins are brought to so many steps before sigmoids are fitted: no probability changes visibly.
STEPS = 400


def fit_softmax(parts: Sequence[FloatArray], true: LongArray) -> DoubleArray:
    """Find v such that softmax(sum of v_i x parts_i) has the least log loss; v is not below 0.

    Each part is documents x outputs, `true` the output of each document. Convex, so there is one best v.
    """
    rows = np.arange(len(true))
    given = [part.astype(np.float64) for part in parts]

    def loss(v: DoubleArray) -> tuple[float, DoubleArray]:
        logits = np.sum([number * part for number, part in zip(v, given, strict=True)], axis=0)
        p = special.softmax(logits, axis=1)
        slope = [((p * part).sum(axis=1) - part[rows, true]).mean() for part in given]
        return float((special.logsumexp(logits, axis=1) - logits[rows, true]).mean()), np.array(slope)

    start = np.array([5.0] + [1.0] * (len(parts) - 1))
    bounds = [(0.05, 60.0)] + [(0.0, 60.0)] * (len(parts) - 1)
    v: DoubleArray = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return v


def fit_flatter(logits: DoubleArray, true: LongArray) -> tuple[float, float, float]:
    """Find (s, f, e) such that (1 - e) softmax(s x logits) + e softmax(f x logits) has the least log loss."""
    rows = np.arange(len(true))

    def loss(numbers: DoubleArray) -> float:
        steep, flat, share = np.exp(numbers[0]), np.exp(numbers[1]), special.expit(numbers[2])
        one, two = (special.log_softmax(scale * logits, axis=1)[rows, true] for scale in (steep, flat))
        return -float(np.logaddexp(np.log1p(-share) + one, np.log(share) + two).mean())

    bounds = [(-1.5, 1.5), (-4.0, 0.0), (-6.0, 1.0)]
    start = np.array([0.2, -1.0, -1.5])
    found = optimize.minimize(loss, start, method="L-BFGS-B", bounds=bounds).x
    return float(np.exp(found[0])), float(np.exp(found[1])), float(special.expit(found[2]))


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


def monotone(margins: FloatArray, learned: DoubleArray) -> DoubleArray:
    """Map margins by what `fit_monotone` found."""
    low, high = learned[:2]
    place = (margins.astype(np.float64) - low) / (high - low) * STEPS - 0.5
    found: DoubleArray = np.interp(place, np.arange(STEPS + 1), learned[2:])
    return found
