"""Formulas that several families of metrics share: ratios of (a, b, c), log loss, and discounted gain.

a = w(S) is what is predicted, b = w(Y) what is true, c = w(S and Y) both: of documents, or of labels. 0/0 is decided in
`ratio` alone: precision of an empty prediction is 0, F is 0 when nothing is shared; two empty sets agree completely (1)
in hierarchical metrics, and count 0 in flat ones, as scikit-learn has it.
"""

import numpy as np

from treelabel.core.types import BoolArray, DoubleArray, LongArray
from treelabel.metrics.batch import Sums


def ratio(part: DoubleArray, whole: DoubleArray, both_empty: BoolArray, if_empty: float) -> DoubleArray:
    """part / whole; `if_empty` where both sets are empty, and 0 for any other 0/0.

    Parameters
    ----------
    both_empty : array of the same shape
        Marks where both sets are empty.
    if_empty
        The value there.

    Returns
    -------
    array of the same shape

    >>> ratio(np.array([1.0, 0.0, 0.0]), np.array([2.0, 0.0, 0.0]), np.array([False, True, False]), 1.0).tolist()
    [0.5, 1.0, 0.0]
    """
    return np.where(both_empty, if_empty, np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))


def precision(abc: DoubleArray, if_empty: float = 1.0) -> DoubleArray:
    """c / a for rows (a, b, c).

    Parameters
    ----------
    if_empty
        The value where both sets are empty.

    Returns
    -------
    array of shape (documents,)

    >>> precision(np.array([[2.0, 4.0, 1.0]])).tolist()
    [0.5]
    """
    a, b, c = abc.T
    return ratio(c, a, (a == 0) & (b == 0), if_empty)


def recall(abc: DoubleArray, if_empty: float = 1.0) -> DoubleArray:
    """c / b for rows (a, b, c).

    Parameters
    ----------
    if_empty
        The value where both sets are empty.

    Returns
    -------
    array of shape (documents,)

    >>> recall(np.array([[2.0, 4.0, 1.0]])).tolist()
    [0.25]
    """
    a, b, c = abc.T
    return ratio(c, b, (a == 0) & (b == 0), if_empty)


def f_beta(abc: DoubleArray, beta: float = 1.0, if_empty: float = 1.0) -> DoubleArray:
    """(1 + beta^2) c / (a + beta^2 b) for rows (a, b, c); of one row of sums it is the micro average.

    Parameters
    ----------
    beta
        How many times as much recall counts as precision.
    if_empty
        The value where both sets are empty.

    Returns
    -------
    array of shape (documents,)

    >>> f_beta(np.array([[2.0, 4.0, 1.0], [0.0, 0.0, 0.0]])).round(3).tolist()
    [0.333, 1.0]
    """
    a, b, c = abc.T
    return ratio((1 + beta**2) * c, a + beta**2 * b, (a == 0) & (b == 0), if_empty)


def by_label(sums: Sums) -> DoubleArray:
    """Stack counts as one row (a, b, c) = (predicted, true, both) per label."""
    return np.array(sums[:3], np.float64).T


def label_f1(sums: Sums) -> DoubleArray:
    """F1 of every label; 0 where it is neither true nor predicted, NaN without documents."""
    return f_beta(by_label(sums), if_empty=0.0 if sums[3].sum() else float("nan"))


def with_mean(parts: dict[str, float]) -> dict[str, float]:
    """Add the mean of the parts that are numbers."""
    known = [value for value in parts.values() if not np.isnan(value)]
    return {"mean": float(np.mean(known)) if known else float("nan"), **parts}


# A 95% interval has this many standard errors on either side.
STANDARD_ERRORS = 1.96


def least_share(tries: int, level: float = 0.95) -> float:
    """Return the least share of successes that lets all tries succeed with a chance of at least (1 - level) / 2.

    It is the lower end of the Clopper-Pearson interval where nothing failed, and close to 1 - 3.7 / tries at 95%. The
    mean of values up to 1 is at least the share of ones, so it bounds such a mean, too.

    >>> [round(least_share(tries), 4) for tries in (5, 50, 5000)]
    [0.4782, 0.9289, 0.9993]
    """
    return float(((1 - level) / 2) ** (1 / tries)) if tries else 0.0


def negative_log(p: DoubleArray, least: float = 0.0) -> DoubleArray:
    """Compute -ln max(p, least) of probabilities, the log loss of what came true; infinite for 0.

    >>> negative_log(np.array([0.9, 0.5, 0.0]), 1e-6).round(3).tolist()
    [0.105, 0.693, 13.816]
    """
    with np.errstate(divide="ignore"):
        lost: DoubleArray = -np.log(np.maximum(p, least))
    return lost


def ndcg(marks: BoolArray, sizes: LongArray) -> DoubleArray:
    """Compute nDCG from marks of the ranked labels that are true, best label first; NaN without true labels.

    Parameters
    ----------
    sizes : array of shape (documents,)
        How many labels are true.

    Returns
    -------
    array of shape (documents,)

    >>> ndcg(np.array([[True, False], [False, True]]), np.array([1, 2])).round(3).tolist()
    [1.0, 0.387]
    """
    gain = 1 / np.log2(np.arange(2, marks.shape[1] + 2))
    ideal = np.append(0.0, gain.cumsum())[np.minimum(sizes, marks.shape[1])]
    gained: DoubleArray = np.divide(marks @ gain, ideal, out=np.full(len(ideal), np.nan), where=ideal > 0)
    return gained
