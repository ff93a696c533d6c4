"""Bounds that hold for any number of documents: what held-out ones allow to promise of those to come.

Split conformal prediction: the quantile of held-out scores that a new one does not exceed (Vovk et al., 2005). Learn
then test: a fixed sequence of tests, of which the last that passes has the required precision with a confidence
(Angelopoulos et al., 2021). The tests are exact for outcomes that are right or wrong, and by Hoeffding and Bentkus for
shares. `conformal`, `risk_control`, `back_off` and `review` stand on these.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, LongArray

# A threshold of nested sets of at least this much takes everything in: it stands for infinity, which JSON has not.
EVERYTHING: Final = 1e6
# How many times the fewest documents that can show a precision a sequence of tests begins with.
FIRST_TEST: Final = 1.5
# Thresholds that are tested: fixed beforehand, and close to each other near 1, where predictions crowd. These are
# 1 / (1 + exp(-x)) of 201 numbers from 10 down to -10.
GRID: DoubleArray = 1 / (1 + np.exp(-np.linspace(10, -10, 201)))
# Products such as 0.55 x 100 are not quite whole numbers.
_ROUNDING: Final = 1e-9


# Parts of the validation documents, each of which is judged by what was found on the others.
FOLDS: Final = 5


def assign_folds(documents: int, groups: Sequence[str] | None = None) -> LongArray:
    """Return the fold of each document; documents of one group are in one fold.

    >>> np.bincount(assign_folds(10)).tolist(), len(set(assign_folds(3, ["a", "a", "a"]).tolist()))
    ([2, 2, 2, 2, 2], 1)
    """
    unit = np.arange(documents)
    if groups is not None:
        unit = np.unique(np.asarray(groups, dtype=object), return_inverse=True)[1]
    # Documents often come sorted by their labels, so that folds are drawn.
    folds: LongArray = np.random.default_rng(0).permutation(int(unit.max()) + 1)[unit] % FOLDS
    return folds


def require_share(value: float, what: str) -> float:
    """Return a share above 0 and below 1, refusing others."""
    if not 0 < value < 1:
        raise TreelabelError(f"{what} = {value:g}, expected a share above 0 and below 1")
    return float(value)


def conformal_quantile(values: npt.ArrayLike, coverage: float) -> float:
    """Return the ceil((n + 1) coverage)-th smallest of n values; `EVERYTHING` if there are not so many.

    A new value, exchangeable with these, does not exceed it with a probability of at least the coverage, and, if no two
    values are equal, of at most coverage + 1 / (n + 1).

    >>> conformal_quantile([0.3, 0.1, 0.2], 0.5), conformal_quantile([0.3, 0.1, 0.2], 0.9)
    (0.2, 1000000.0)
    """
    ordered = np.sort(np.asarray(values, np.float64))
    rank = math.ceil((len(ordered) + 1) * coverage - _ROUNDING)
    return float(ordered[max(rank, 1) - 1]) if rank <= len(ordered) else EVERYTHING


def binomial_p_values(hits: npt.ArrayLike, tries: npt.ArrayLike, precision: float) -> DoubleArray:
    """Return the probability of so many hits or more if each try is one with the given probability, exactly.

    >>> binomial_p_values([2, 1], [2, 2], 0.5).tolist()
    [0.25, 0.75]
    """
    # It takes as long to load as thousands of decisions.
    from scipy import special

    right, count = np.asarray(hits, np.float64), np.asarray(tries, np.float64)
    p: DoubleArray = special.betainc(np.maximum(right, 1), count - right + 1, precision)
    return np.where(right >= 1, p, 1.0)


def bounded_p_values(sums: npt.ArrayLike, tries: npt.ArrayLike, mean: float) -> DoubleArray:
    """Bound the probability of sums of shares this large if their expectation is at most `mean`, for any distribution.

    The smaller one of Hoeffding's and Bentkus' bound (Bates et al., 2021): exp(-n KL) and e times the binomial tail.

    >>> bounded_p_values([20, 9.5], [20, 10], 0.5).round(4).tolist()
    [0.0, 0.0071]
    """
    total, count = np.asarray(sums, np.float64), np.maximum(np.asarray(tries, np.float64), 1)
    reached = np.clip(total / count, mean, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(reached < 1, (1 - reached) * np.log((1 - reached) / (1 - mean)), 0.0)
    hoeffding = np.exp(-count * (reached * np.log(reached / mean) + below))
    whole = np.floor(total + _ROUNDING)
    return np.where(total > 0, np.minimum(hoeffding, np.e * binomial_p_values(whole, count, mean)), 1.0)


def last_precise(
    hits: npt.ArrayLike,
    tries: npt.ArrayLike,
    precision: float,
    confidence: float,
    are_shares: bool = False,
) -> int:
    """Find the last of a sequence of candidates, from strict to lenient, that has a precision with a confidence.

    Each is tested by an exact binomial test, and the next one at the level that is left while tests pass, so that all
    that pass have the precision but for a probability of 1 - confidence: a fixed sequence. One mistake among the first
    few documents would end it, so that the level is divided between several starts (the fallback procedure, Wiens,
    2003): the first candidate with FIRST_TEST times the fewest documents that can pass, that with twice as many, and so
    on. Only the numbers of documents may decide what the candidates and the starts are.

    Parameters
    ----------
    hits, tries
        How many documents each candidate predicts right, and how many it predicts at all.
    precision
        The required share of right ones.
    confidence
        Above 0 and below 1.
    are_shares
        Whether `hits` are sums of shares from 0 to 1, one for each document, and not of right ones; the test is then
        `bounded_p_values`.

    Returns
    -------
    int
        Its index; -1 if none passes.

    >>> last_precise([70, 139, 150], [70, 140, 180], 0.95, 0.9), last_precise([20], [20], 0.95, 0.9)
    (1, -1)
    """
    right, count = np.asarray(hits, np.float64), np.asarray(tries, np.int64)
    most = int(count.max(initial=0))
    if precision >= 1 or not most:
        return -1
    size, starts = FIRST_TEST * math.log(1 - confidence) / math.log(precision), []
    while size <= most:
        starts.append(int(np.argmax(count >= size)))
        size *= 2
    p_values = (bounded_p_values if are_shares else binomial_p_values)(right, count, precision)
    result, level = -1, 0.0
    for index in range(len(count)):
        level += starts.count(index) * (1 - confidence) / max(1, len(starts))
        if right[index] and p_values[index] <= level:
            result = index
        else:
            level = 0.0
    return result
