"""Uncertainty of a number: bootstrap intervals, intervals over seeds, paired tests, corrections for many tests."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse, special

from treelabel.core.compute import BoolArray, DoubleArray, IntArray, LongArray, background, kernel
from treelabel.core.errors import TreelabelError

# Numbers that a block of resamples holds: few enough to stay in a cache, enough to share the walk over sparse parts.
BLOCK = 500_000


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its confidence interval."""

    value: float
    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


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


def bootstrap_sums(parts: Sequence[Any], resamples: int, seed: int = 0) -> Iterator[tuple[Any, ...]]:
    """Sum additive parts over resampled documents.

    Documents are drawn with replacement, the same draw for all parts. Only the number of times that each document was
    drawn matters, so a resample is one product (counts) x (part): linear in documents and stored entries, without
    copies. A background thread draws the next resamples while the current ones are summed; few are held at a time.

    Parameters
    ----------
    parts : sequence of arrays or sparse arrays of shape (documents, columns)
        What is summed; columns may differ in number.
    resamples : int
        How many times to resample.
    seed : int
        Seed of the draws.

    Yields
    ------
    tuple of arrays
        For each resample, the column sums of every part.

    >>> [sums[0].tolist() for sums in bootstrap_sums([np.ones((5, 1))], 2)]
    [[5.0], [5.0]]
    """
    if resamples < 1:
        raise TreelabelError(f"expected at least 1 resample, found {resamples}")
    documents = parts[0].shape[0]
    columns = [part.T.astype(np.float64) if sparse.issparse(part) else np.asarray(part, np.float64).T for part in parts]
    block = max(1, min(resamples, BLOCK // max(1, documents, *(part.shape[0] for part in columns))))
    sizes = [min(block, resamples - begin) for begin in range(0, resamples, block)]
    has_sparse = any(sparse.issparse(part) for part in parts)
    rng = np.random.default_rng(seed)
    for drawn in background(_times_drawn(rng, size, documents) for size in sizes):
        # scipy would copy a transposed view once for each sparse part.
        times = np.ascontiguousarray(drawn.T) if has_sparse else drawn.T
        yield from zip(*_summed(columns, times), strict=True)


def _summed(columns: Sequence[Any], times: DoubleArray) -> list[Any]:
    # A loss may be infinite, and 0 times that is no number; other columns have their sums all the same.
    with np.errstate(invalid="ignore"):
        # Dense parts have few columns, for which the threads of BLAS do nothing but get in the way of the others.
        return [(part @ times).T if sparse.issparse(part) else np.einsum("cd,dr->rc", part, times) for part in columns]


def _times_drawn(rng: np.random.Generator, resamples: int, documents: int) -> DoubleArray:
    """Draw as many documents as there are, with replacement, and count how often each came up: one row per resample."""
    return _counted(rng.integers(0, max(1, documents), (resamples, documents), dtype=np.int32))


@kernel
def _counted(draws: IntArray) -> DoubleArray:
    counts = np.zeros(draws.shape)
    for row in range(len(draws)):
        for document in draws[row]:
            counts[row, document] += 1
    return counts


def sum_by_group(parts: Sequence[Any], groups: Sequence[str]) -> tuple[Any, ...]:
    """Sum additive parts over the documents of each group, so that whole groups are resampled.

    Parameters
    ----------
    parts : sequence of arrays or sparse matrices, documents x columns
        Additive parts.
    groups : sequence of str
        The group of each document.

    Returns
    -------
    tuple of arrays or sparse matrices, groups x columns

    >>> sum_by_group([np.array([[1.0], [2.0], [4.0]])], ["a", "b", "a"])[0].tolist()
    [[5.0], [2.0]]
    """
    codes = np.unique(np.asarray(groups, dtype=object), return_inverse=True)[1]
    shape = int(codes.max(initial=-1)) + 1, len(codes)
    member = sparse.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape)
    return tuple(member @ (part.astype(np.float64) if sparse.issparse(part) else part) for part in parts)


def bootstrap_interval(
    parts: Sequence[Any],
    value: Callable[[tuple[Any, ...]], float],
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Compute a bias-corrected percentile interval of a function of sums over documents.

    Rare labels are missing from some resamples, so resampled macro averages lie below the value; without the shift by
    the bootstrap's own bias, their interval could miss the value itself. Means shift by no more than the noise of
    resampling.

    Parameters
    ----------
    parts : sequence of arrays or sparse arrays of shape (documents, columns)
        Additive parts, as for `bootstrap_sums`.
    value : callable
        Computes the value from the column sums of all parts.
    resamples : int
        How many times to resample.
    level : float
        The confidence level.
    seed : int
        Seed of the draws.

    Returns
    -------
    Interval

    >>> values = np.arange(100.0)
    >>> parts = [np.stack([values, np.ones(100)], axis=1)]
    >>> bootstrap_interval(parts, lambda sums: float(sums[0][0] / sums[0][1]), resamples=200).value
    49.5
    """
    return bootstrap_intervals(parts, lambda sums: {"": value(sums)}, resamples, level, seed)[""]


def bootstrap_intervals(
    parts: Sequence[Any],
    values: Callable[[tuple[Any, ...]], dict[str, float]],
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Compute `bootstrap_interval` for several values of the same sums, resampling once for all of them.

    Parameters
    ----------
    parts, resamples, level, seed
        As for `bootstrap_interval`.
    values : callable
        Computes all values, by name, from the column sums of all parts.

    Returns
    -------
    dict
        Intervals by name; the ends of a value that is not finite are NaN.

    >>> parts = [np.ones((10, 1))]
    >>> {name: str(found) for name, found in bootstrap_intervals(parts, lambda s: {"sum": float(s[0][0])}, 20).items()}
    {'sum': '10.0000 [10.0000, 10.0000]'}
    """
    points = values(tuple(np.asarray(part.sum(axis=0)).ravel() for part in parts))
    drawn: dict[str, list[float]] = {name: [] for name, point in points.items() if np.isfinite(point)}
    for sums in bootstrap_sums(parts, resamples, seed) if drawn else ():
        found = values(sums)
        for name, kept in drawn.items():
            kept.append(found.get(name, float("nan")))
    intervals = {}
    for name, point in points.items():
        ends = float("nan"), float("nan")
        if name in drawn:
            resampled = np.array(drawn[name])
            ends = _quantiles(resampled + (point - _mean(resampled)), level)
            if np.nanmin(resampled) >= 0 and np.nanmax(resampled) <= 1 and 0 <= point <= 1:
                # The move must not take a share out of where shares live.
                ends = max(0.0, ends[0]), min(1.0, ends[1])
        intervals[name] = Interval(point, *ends, level)
    return intervals


def _mean(values: DoubleArray) -> float:
    """Return the mean over resamples, leaving out those without any document that counts (NaN)."""
    return float(values[~np.isnan(values)].mean())


def _quantiles(values: DoubleArray, level: float) -> tuple[float, float]:
    low, high = np.quantile(values[~np.isnan(values)], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def seed_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Compute the mean and t-interval of results over seeds: mean ± t s / sqrt(n).

    Parameters
    ----------
    values : sequence of float
        One result per seed.
    level : float
        The confidence level.

    Returns
    -------
    Interval
        With fewer than two values, or an infinite one, its ends are NaN.

    >>> str(seed_interval([0.5, 0.6, 0.7]))
    '0.6000 [0.3516, 0.8484]'
    """
    data = np.asarray(values, np.float64)
    mean = float(data.mean()) if len(data) else float("nan")
    if len(data) < 2 or not np.isfinite(data).all():
        return Interval(mean, float("nan"), float("nan"), level)
    reach = float(special.stdtrit(len(data) - 1, (1 + level) / 2) * data.std(ddof=1) / np.sqrt(len(data)))
    return Interval(mean, mean - reach, mean + reach, level)


def binomial_interval(hits: int, tries: int, level: float = 0.95) -> Interval:
    """Compute a share and its Clopper-Pearson interval; all NaN of no tries.

    Parameters
    ----------
    hits
        How many of the tries succeeded.
    tries
        How many there were.
    level
        The probability that the interval covers the true share.

    Returns
    -------
    Interval

    >>> str(binomial_interval(95, 100))
    '0.9500 [0.8872, 0.9836]'
    """
    if tries == 0:
        return Interval(float("nan"), float("nan"), float("nan"), level)
    low = float(special.betaincinv(hits, tries - hits + 1, (1 - level) / 2)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, tries - hits, (1 + level) / 2)) if hits < tries else 1.0
    return Interval(hits / tries, low, high, level)


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
    moved = difference + (point - _mean(difference))
    # Rounding must not make a resample that strays just as far look nearer.
    extreme = int(np.sum(np.abs(difference - point) >= abs(point) * (1 - 1e-9)))
    p = (extreme + 1) / (len(difference) + 1) if np.ptp(difference) > 0 else 1.0
    return Comparison(point, min(1.0, p), *_quantiles(moved, level))


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
    return Comparison(float(difference.mean()), float(2 * special.stdtr(len(difference) - 1, -abs(t))))


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
    return float(min(1.0, 2 * special.bdtr(min(better, worse), total, 0.5)))


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
