"""Uncertainty of a number: bootstrap intervals, intervals over seeds, intervals of shares."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from scipy import sparse

from treelabel.core.compute import background, kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray
from treelabel.metrics.label_counts import frequent_labels_right
from treelabel.metrics.shared_formulas import least_share

# Numbers that a block of resamples holds: few enough to stay in a cache, enough to share the walk over sparse parts.
BLOCK = 500_000
# An average over labels has an interval if at most this share of its labels has fewer documents than that: beyond it
# intervals cover the population's value in less than 92% of the samples (benchmarks/levels.py).
FEWEST_DOCUMENTS = 5
MOST_THIN = 0.2

# Resampled values that differ by less, relative to the value, do so by rounding.
ROUNDING = 1e-12

# Draws weights of documents: takes a generator, how many rows to draw, and the number of documents.
Draw = Callable[[np.random.Generator, int, int], DoubleArray]


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its confidence interval; where these are NaN, `reason` may say why."""

    value: float
    low: float
    high: float
    level: float = 0.95
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.value:.4f} {self.ends}"

    @property
    def ends(self) -> str:
        """The ends as people read them, or why there are none."""
        return f"({self.no_ends})" if self.reason else f"[{self.low:.4f}, {self.high:.4f}]"

    @property
    def no_ends(self) -> str:
        """That there is no interval, and why; empty where nothing is known of a reason."""
        return f"no interval: {self.reason}" if self.reason else ""


def bootstrap_sums(parts: Sequence[Any], resamples: int, seed: int = 0) -> Iterator[tuple[Any, ...]]:
    """Sum additive parts over resampled documents.

    Documents are drawn with replacement, the same draw for all parts. Only the number of times that each document was
    drawn matters.

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
    return weighted_sums(parts, _times_drawn, resamples, seed)


def weighted_sums(parts: Sequence[Any], draw: Draw, repetitions: int, seed: int = 0) -> Iterator[tuple[Any, ...]]:
    """Sum additive parts over documents with random weights.

    A sum is one product (weights) x (part): linear in documents and stored entries, without copies. A background thread
    draws the next weights while the current ones are used; few are held at a time.

    Parameters
    ----------
    parts : sequence of arrays or sparse arrays of shape (documents, columns)
        What is summed; columns may differ in number.
    draw : callable
        Draws the weights, the same for all parts.
    repetitions : int
        How many times to draw.
    seed : int
        Seed of the draws.

    Yields
    ------
    tuple of arrays
        For each repetition, the column sums of every part.

    >>> [sums[0].tolist() for sums in weighted_sums([np.ones((5, 1))], lambda rng, size, n: np.full((size, n), 2.0), 1)]
    [[10.0]]
    """
    if repetitions < 1:
        raise TreelabelError(f"expected at least 1 resample, found {repetitions}")
    documents = parts[0].shape[0]
    columns = [part.T.astype(np.float64) if sparse.issparse(part) else np.asarray(part, np.float64).T for part in parts]
    block = max(1, min(repetitions, BLOCK // max(1, documents, *(part.shape[0] for part in columns))))
    sizes = [min(block, repetitions - begin) for begin in range(0, repetitions, block)]
    has_sparse = any(sparse.issparse(part) for part in parts)
    rng = np.random.default_rng(seed)
    for drawn in background(draw(rng, size, documents) for size in sizes):
        # scipy would copy a transposed view once for each sparse part.
        times = np.ascontiguousarray(drawn.T) if has_sparse else drawn.T
        yield from zip(*_multiply(columns, times), strict=True)


def _multiply(columns: Sequence[Any], times: DoubleArray) -> list[Any]:
    # A loss may be infinite, and 0 times that is no number; other columns have their sums all the same.
    with np.errstate(invalid="ignore"):
        # Dense parts have few columns, for which the threads of BLAS do nothing but get in the way of the others.
        return [(part @ times).T if sparse.issparse(part) else np.einsum("cd,dr->rc", part, times) for part in columns]


def _times_drawn(rng: np.random.Generator, resamples: int, documents: int) -> DoubleArray:
    """Draw as many documents as there are, with replacement, and count how often each came up: one row per resample."""
    return _count_draws(rng.integers(0, max(1, documents), (resamples, documents), dtype=np.int32))


@kernel
def _count_draws(draws: IntArray) -> DoubleArray:
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
    """Compute the bootstrap interval of a function of sums over documents, as `resampled_interval` does.

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
    reasons: Mapping[str, str] | None = None,
    shares: Mapping[str, int] | None = None,
) -> dict[str, Interval]:
    """Compute `bootstrap_interval` for several values of the same sums, resampling once for all of them.

    Parameters
    ----------
    parts, resamples, level, seed
        As for `bootstrap_interval`.
    values : callable
        Computes all values, by name, from the column sums of all parts.
    reasons : mapping of str, optional
        Why values have no interval, by name, as from `thin_labels`.
    shares : mapping of int, optional
        How many documents (or groups) count, by name, of values that are means of numbers between 0 and 1.

    Returns
    -------
    dict
        Intervals by name; the ends of a value that is not finite are NaN.

    >>> parts = [np.arange(10.0)[:, None]]
    >>> str(bootstrap_intervals(parts, lambda sums: {"sum": float(sums[0][0])}, 200)["sum"])
    '45.0000 [23.0848, 65.6663]'
    """
    reasons, shares = reasons or {}, shares or {}
    points = values(tuple(np.asarray(part.sum(axis=0)).ravel() for part in parts))
    drawn: dict[str, list[float]] = {
        name: [] for name, point in points.items() if np.isfinite(point) and name not in reasons
    }
    for sums in bootstrap_sums(parts, resamples, seed) if drawn else ():
        result = values(sums)
        for name, column in drawn.items():
            column.append(result.get(name, float("nan")))
    documents = parts[0].shape[0]
    return {
        name: resampled_interval(
            np.array(drawn.get(name, ())),
            point,
            documents,
            level,
            reasons.get(name, ""),
            share_of=shares.get(name, 0),
        )
        for name, point in points.items()
    }


def resampled_interval(
    resampled: DoubleArray,
    point: float,
    documents: int,
    level: float = 0.95,
    reason: str = "",
    is_difference: bool = False,
    share_of: int = 0,
) -> Interval:
    """Compute the interval of a value from its values on resampled documents.

    The bootstrap's bias (the mean of the resamples - the value) estimates that of the value, and is taken off: rare
    labels are missing from samples, so macro averages lie below that of the population, and those of resamples lower
    still. Deviations of n documents (or groups) are those of n - 1, and so reach further by sqrt(n / (n - 1)) and by
    Student's t over the normal quantile, which matters for few groups. The interval always has the value in it, and
    that of a share stays within 0 and 1.

    Where resampling never changes the value, it says nothing about the next document: then a share of 0 or 1 has the
    interval of Clopper and Pearson, and any other value none.

    Parameters
    ----------
    resampled : array of shape (resamples,)
        Values of resamples; those without any document that counts (NaN) are left out.
    point : float
        The value of all documents.
    documents : int
        How many documents, or groups of them, are drawn.
    level : float
        The confidence level.
    reason : str
        Why there is no interval, if there is none.
    is_difference : bool
        Whether the value may be below 0 though no resample is.
    share_of : int
        The number of documents (or groups) that count, of a mean of values between 0 and 1; 0 for other values.

    Returns
    -------
    Interval

    >>> str(resampled_interval(np.array([1.0, 2.0, np.nan, 3.0]), 2.0, 1000, 0.5))
    '2.0000 [1.4996, 2.5004]'
    >>> str(resampled_interval(np.ones(1000), 1.0, 50, share_of=50))
    '1.0000 [0.9289, 1.0000]'
    """
    known = resampled[~np.isnan(resampled)]
    reason = reason or ("a single document or group shows no spread" if documents == 1 and np.isfinite(point) else "")
    if reason or not len(known) or not np.isfinite(point):
        return Interval(point, float("nan"), float("nan"), level, reason)
    if np.ptp(known) <= ROUNDING * max(1.0, abs(point)):
        return _motionless_interval(point, documents, level, 0 if is_difference else share_of)
    bias = float(known.mean()) - point
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    low, high = point - bias + _widening(documents, tails[1]) * (np.quantile(known, tails) - known.mean())
    low, high = min(float(low), point), max(float(high), point)
    if not is_difference and known.min() >= 0 and known.max() <= 1 and 0 <= point <= 1:
        low, high = max(0.0, low), min(1.0, high)
    return Interval(point, low, high, level)


def _motionless_interval(point: float, documents: int, level: float, share_of: int) -> Interval:
    """Return the interval of a value that resampling never changes: that of a share of 0 or 1, or none and why."""
    if share_of and abs(point - round(point)) <= ROUNDING and round(point) in (0, 1):
        low = least_share(share_of, level)
        return Interval(point, low, 1.0, level) if round(point) == 1 else Interval(point, 0.0, 1 - low, level)
    reason = f"resampling {documents:,} documents or groups never changes it, which shows no spread"
    return Interval(point, float("nan"), float("nan"), level, reason)


def _widening(documents: int, tail: float) -> float:
    """How much further the deviations of few documents reach than those of resamples."""
    if tail in (0.5, 1.0):
        return 1.0
    student = scipy.special.stdtrit(documents - 1, tail) / scipy.special.ndtri(tail)
    return float(student * np.sqrt(documents / (documents - 1)))


def thin_labels(
    parts: Sequence[Any],
    values: Callable[[tuple[Any, ...]], dict[str, float]],
    unit: str = "documents",
    extremes: Callable[[Any, int], tuple[Any, ...]] = frequent_labels_right,
) -> dict[str, str]:
    """Tell which averages over labels have no interval, as too many of their labels have too few documents.

    Labels that occur in no document, or in one or two, have an F1 of which a sample knows next to nothing.

    Parameters
    ----------
    parts : sequence of arrays or sparse arrays
        Additive parts, such as predictions, truths and hits by label and a column that counts documents.
    values : callable
        Computes averages over labels, by name, from the sums of such parts.
    unit : str
        What a row is: "documents" or "groups".
    extremes : callable
        Makes sums of parts in which labels with as many documents have a value of 1, and others 0.

    Returns
    -------
    dict
        Reasons by name, of those without an interval.

    >>> truth = sparse.csr_array(np.eye(3)[[0, 0, 0, 0, 0, 1]])
    >>> thin_labels((truth, truth, truth, np.ones((6, 1))), lambda sums: {"mean": float(sums[2].mean())})
    {'mean': '67% of the labels have fewer than 5 documents'}
    """
    # Then the average is the share of the labels with enough documents.
    shares = values(extremes(parts, FEWEST_DOCUMENTS))
    return {
        name: f"{1 - share:.0%} of the labels have fewer than {FEWEST_DOCUMENTS} {unit}"
        for name, share in shares.items()
        if share < 1 - MOST_THIN - 1e-9
    }


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
