"""Uncertainty of a number: bootstrap intervals, intervals over seeds, intervals of shares."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from scipy import sparse

from treelabel.core.compute import DoubleArray, IntArray, background, kernel
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
            ends = shifted_ends(resampled, point, level)
            if np.nanmin(resampled) >= 0 and np.nanmax(resampled) <= 1 and 0 <= point <= 1:
                # The move must not take a share out of where shares live.
                ends = max(0.0, ends[0]), min(1.0, ends[1])
        intervals[name] = Interval(point, *ends, level)
    return intervals


def shifted_ends(resampled: DoubleArray, point: float, level: float) -> tuple[float, float]:
    """Compute the quantiles of resampled values that are shifted so that their mean is the value itself.

    Parameters
    ----------
    resampled : array of shape (resamples,)
        Values of resamples; those without any document that counts (NaN) are left out.
    point : float
        The value of all documents.
    level : float
        The confidence level.

    Returns
    -------
    (float, float)

    >>> shifted_ends(np.array([1.0, 2.0, np.nan, 3.0]), 5.0, 1.0)
    (4.0, 6.0)
    """
    known = resampled[~np.isnan(resampled)]
    low, high = np.quantile(known + (point - float(known.mean())), [(1 - level) / 2, (1 + level) / 2])
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
    reach = float(scipy.special.stdtrit(len(data) - 1, (1 + level) / 2) * data.std(ddof=1) / np.sqrt(len(data)))
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
    low = float(scipy.special.betaincinv(hits, tries - hits + 1, (1 - level) / 2)) if hits else 0.0
    high = float(scipy.special.betaincinv(hits + 1, tries - hits, (1 + level) / 2)) if hits < tries else 1.0
    return Interval(hits / tries, low, high, level)
