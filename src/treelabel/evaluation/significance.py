"""Differences between two systems: paired tests, corrections for many tests, improvements in percent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from treelabel.core.compute import BoolArray, DoubleArray, LongArray
from treelabel.core.errors import TreelabelError
from treelabel.evaluation.statistics import bootstrap_sums, shifted_ends


@dataclass(frozen=True)
class Comparison:
    """A difference between two systems, its interval where there is one, and the p-value of no difference."""

    difference: float
    p_value: float
    low: float = float("nan")
    high: float = float("nan")

    def is_significant(self, level: float = 0.05) -> bool:
        """Return whether the p-value is below the level."""
        return self.p_value < level


def paired_bootstrap(
    first: Sequence[Any],
    second: Sequence[Any],
    value: Callable[[tuple[Any, ...]], float],
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Test the difference second - first on the same resampled documents, with a bias-corrected interval.

    p is the share of resamples that deviate from the observed difference by at least its distance from 0. Resamples in
    which the value is not defined do not count. If the others do not vary (a single document, say), p is 1; without a
    resample that counts it is NaN.

    Parameters
    ----------
    first, second : sequence of arrays or sparse arrays of shape (documents, columns)
        Additive parts of the two systems, as for `bootstrap_sums`, the documents in the same order.
    value : callable
        Computes the value of a system from the column sums of its parts.
    resamples, level, seed
        As for `bootstrap_interval`.

    Returns
    -------
    Comparison

    >>> worse, better = [np.zeros((30, 1))], [np.arange(30.0)[:, None] % 2]
    >>> found = paired_bootstrap(worse, better, lambda sums: float(sums[0][0]) / 30, resamples=200)
    >>> found.difference, found.p_value < 0.05
    (0.5, True)
    """
    totals = [tuple(np.asarray(part.sum(axis=0)).ravel() for part in parts) for parts in (first, second)]
    point = value(totals[1]) - value(totals[0])
    if not np.isfinite(point):
        return Comparison(point, float("nan"))
    drawn = bootstrap_sums([*first, *second], resamples, seed)
    half = len(first)
    difference = np.array([value(sums[half:]) - value(sums[:half]) for sums in drawn])
    difference = difference[~np.isnan(difference)]
    if not len(difference):
        return Comparison(point, float("nan"))
    # Rounding must not make a resample that strays just as far look nearer.
    extreme = int(np.sum(np.abs(difference - point) >= abs(point) * (1 - 1e-9)))
    p = (extreme + 1) / (len(difference) + 1) if np.ptp(difference) > 0 else 1.0
    return Comparison(point, min(1.0, p), *shifted_ends(difference, point, level))


def permutation_test(first: DoubleArray, second: DoubleArray, permutations: int = 10_000, seed: int = 0) -> Comparison:
    """Test a mean difference by swapping the two systems' values at random documents.

    p is the share of permutations whose mean difference is at least as large.

    Parameters
    ----------
    first, second : float arrays of shape (documents,)
        The values of the two systems; pairs with a NaN are left out.
    permutations : int
        How many random permutations to draw.
    seed : int
        Seed of the permutations.

    Returns
    -------
    Comparison

    >>> permutation_test(np.zeros(20), np.ones(20), permutations=999).p_value
    0.001
    """
    difference = np.asarray(second, np.float64) - np.asarray(first, np.float64)
    difference = difference[~np.isnan(difference)]
    if len(difference) == 0:
        return Comparison(float("nan"), float("nan"))
    observed = abs(difference.sum())
    rng = np.random.default_rng(seed)
    extreme = 0
    block = max(1, 4_000_000 // len(difference))
    for begin in range(0, permutations, block):
        size = min(block, permutations - begin)
        signs = rng.integers(0, 2, (size, len(difference)), dtype=np.int8) * 2 - 1
        # Rounding must not make a permutation that equals the observation look smaller.
        extreme += int(np.sum(np.abs(signs @ difference) >= observed * (1 - 1e-12)))
    return Comparison(float(difference.mean()), (extreme + 1) / (permutations + 1))


def macro_t_test(first: DoubleArray, second: DoubleArray) -> Comparison:
    """Run a paired two-sided t-test over the per-label F1 of two systems.

    Parameters
    ----------
    first, second : float arrays of shape (labels,)
        The F1 of every label, of the two systems.

    Returns
    -------
    Comparison

    >>> macro_t_test(np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.4, 0.5])).p_value < 0.05
    True
    """
    difference = np.asarray(second, np.float64) - np.asarray(first, np.float64)
    if len(difference) < 2:
        return Comparison(float(difference.mean()) if len(difference) else float("nan"), float("nan"))
    spread = difference.std(ddof=1)
    if spread == 0:
        return Comparison(float(difference.mean()), 1.0 if difference[0] == 0 else 0.0)
    t = difference.mean() / spread * np.sqrt(len(difference))
    return Comparison(float(difference.mean()), float(2 * scipy.special.stdtr(len(difference) - 1, -abs(t))))


def binned_t_tests(
    first: DoubleArray, second: DoubleArray, bins: dict[str, BoolArray], least: int = 10
) -> dict[str, Comparison]:
    """Run `macro_t_test` in every bin of labels that is large enough.

    Parameters
    ----------
    first, second : float arrays of shape (labels,)
        The F1 of every label, of the two systems.
    bins : dict of bool arrays of shape (labels,)
        The labels of each bin, by its name.
    least : int
        Bins need more labels than this.

    Returns
    -------
    dict
        Comparisons by the name of the bin.

    >>> binned_t_tests(np.zeros(3), np.ones(3), {"rare": np.array([True, True, False])}, least=1)["rare"].difference
    1.0
    """
    return {name: macro_t_test(first[keep], second[keep]) for name, keep in bins.items() if keep.sum() > least}


def sign_test(better: int, worse: int) -> float:
    """Compute the two-sided p-value of a sign test: that of `better` heads and `worse` tails of a fair coin.

    Parameters
    ----------
    better : int
        Decisions that only the one system gets right.
    worse : int
        Decisions that only the other system gets right.

    Returns
    -------
    float

    >>> sign_test(9, 1) < 0.05
    True
    """
    total = better + worse
    if total == 0:
        return 1.0
    return float(min(1.0, 2 * scipy.special.bdtr(min(better, worse), total, 0.5)))


def micro_sign_test(truth: Any, first: Any, second: Any) -> Comparison:
    """Run a sign test over the (document, label) pairs on which exactly one of two systems is right.

    A system is right about a pair if it predicts a true label or does not predict a false one. Only pairs on which the
    systems disagree count, so no other pair is visited.

    Parameters
    ----------
    truth : sparse array of shape (documents, labels)
        True labels.
    first, second : sparse arrays of shape (documents, labels)
        The labels that the two systems predict.

    Returns
    -------
    Comparison
        `difference` is (pairs that only the second gets right - pairs that only the first does) / all such pairs.

    >>> from scipy import sparse
    >>> truth, none = sparse.csr_array(np.ones((5, 2))), sparse.csr_array((5, 2))
    >>> micro_sign_test(truth, none, truth)
    Comparison(difference=1.0, p_value=0.001953125, low=nan, high=nan)
    """
    disagree = (first.astype(np.int8) - second.astype(np.int8)).tocsr()
    disagree.eliminate_zeros()
    # +1: only the first predicts the pair; where the pair is true, it is the first that is right.
    is_true = disagree.multiply(truth.astype(np.int8)).tocsr()
    true_first, true_second = int(np.sum(is_true.data > 0)), int(np.sum(is_true.data < 0))
    only_first, only_second = int(np.sum(disagree.data > 0)), int(np.sum(disagree.data < 0))
    first_right = true_first + (only_second - true_second)
    second_right = true_second + (only_first - true_first)
    total = first_right + second_right
    return Comparison((second_right - first_right) / total if total else 0.0, sign_test(second_right, first_right))


def holm(p_values: Sequence[float]) -> LongArray | DoubleArray:
    """Correct p-values of several tests by Holm's step-down procedure; NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    given = np.asarray(p_values, np.float64)
    known = np.flatnonzero(~np.isnan(given))
    order = known[np.argsort(given[known], kind="stable")]
    corrected = np.full(len(given), np.nan)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(given[order] * np.arange(len(order), 0, -1)))
    return corrected


def relative_improvement(baseline: float, value: float) -> float:
    """Compute the improvement over a baseline in percent.

    Parameters
    ----------
    baseline : float
        The value to improve on, at least 0.
    value : float
        The value that is compared with it.

    Returns
    -------
    float
        NaN where the baseline is 0.

    >>> relative_improvement(0.5, 0.6)
    20.0
    """
    if baseline < 0:
        raise TreelabelError(f"a relative improvement needs a baseline of at least 0, found {baseline}")
    return round(100 * (value - baseline) / baseline, 12) if baseline else float("nan")
