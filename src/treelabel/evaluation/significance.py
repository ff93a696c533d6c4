"""Differences between two systems: paired tests, corrections for many tests, improvements in percent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import scipy
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, LongArray
from treelabel.evaluation.statistics import sum_by_group, weighted_sums
from treelabel.evaluation.sums import stack_parts


@dataclass(frozen=True)
class Comparison:
    """A difference between two systems, its interval where there is one, and the p-value of no difference."""

    difference: float
    p_value: float
    low: float = float("nan")
    high: float = float("nan")


def exchange_test(
    first: Sequence[Any],
    second: Sequence[Any],
    value: Callable[[tuple[Any, ...]], float],
    permutations: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Test the difference second - first by exchanging the two systems' answers at random documents.

    p is the share of permutations whose difference is at least as large (approximate randomisation). Where it makes no
    difference which system gave which answer, p is below any level as rarely as the level says, for every value of sums
    over documents. Permutations in which the value is not defined do not count.

    Parameters
    ----------
    first, second : sequence of arrays or sparse arrays of shape (documents, columns)
        Additive parts of the two systems, the documents (or groups of them) in the same order.
    value : callable
        Computes the value of a system from the column sums of its parts.
    permutations : int
        How many random permutations to draw.
    seed : int
        Seed of the permutations.

    Returns
    -------
    Comparison
        Without an interval; p is NaN where the difference is not a finite number.

    >>> worse, better = [np.zeros((30, 1))], [np.arange(30.0)[:, None] % 2]
    >>> result = exchange_test(worse, better, lambda sums: float(sums[0][0]) / 30, permutations=200)
    >>> result.difference, result.p_value < 0.05
    (0.5, True)
    """
    totals = [tuple(np.asarray(part.sum(axis=0)).ravel() for part in parts) for parts in (first, second)]
    point = value(totals[1]) - value(totals[0])
    if not np.isfinite(point):
        return Comparison(point, float("nan"))
    exchanged = exchanged_sums(first, second, permutations, seed)
    difference = np.array([value(other) - value(one) for one, other in exchanged])
    known = difference[~np.isnan(difference)]
    # Rounding must not make a permutation that differs just as much look nearer.
    extreme = int(np.sum(np.abs(known) >= abs(point) * (1 - 1e-9)))
    return Comparison(point, (extreme + 1) / (len(known) + 1))


def exchanged_sums(
    first: Sequence[Any], second: Sequence[Any], permutations: int, seed: int = 0
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Sum the additive parts of two systems whose answers are exchanged at random documents.

    Only documents on which the systems differ are visited, and no sum is made by subtraction: what is 0 stays 0.

    Parameters
    ----------
    first, second : sequence of arrays or sparse arrays of shape (documents, columns)
        As for `exchange_test`.
    permutations, seed : int
        How many to draw, and the seed of the draws.

    Yields
    ------
    (tuple of arrays, tuple of arrays)
        The column sums of every part, of the two systems.

    >>> one, other = [np.array([[1.0]])], [np.array([[5.0]])]
    >>> sorted((a[0].tolist(), b[0].tolist()) for a, b in exchanged_sums(one, other, 2, seed=0))
    [([1.0], [5.0]), ([5.0], [1.0])]
    """
    apart = [_rows_apart(one, other) for one, other in zip(first, second, strict=True)]
    rows, moving = np.logical_or.reduce(apart), [offset for offset, differs in enumerate(apart) if differs.any()]
    fixed = [part[~rows] if offset in moving else part for offset, part in enumerate(first)]
    base = [np.asarray(part.sum(axis=0)).ravel() for part in fixed]
    sides = (first, second), (second, first)
    stacked = [stack_parts([one[offset][rows], other[offset][rows]]) for one, other in sides for offset in moving]
    drawn = weighted_sums(stacked, _exchanges, permutations, seed) if moving else repeat((), permutations)
    for sums in drawn:
        both = list(base), list(base)
        for index, result in enumerate(sums):
            side, offset = divmod(index, len(moving))
            both[side][moving[offset]] = base[moving[offset]] + result
        yield tuple(both[0]), tuple(both[1])


def _rows_apart(first: Any, second: Any) -> BoolArray:
    """The documents whose parts differ."""
    if not sparse.issparse(first):
        return np.asarray((first != second).any(axis=1))
    # Copies, as comparing sorts the indices of sparse arrays in place, and other parts may share them.
    return np.asarray((first.copy() != second.copy()).sum(axis=1)).ravel() > 0


def _exchanges(rng: np.random.Generator, permutations: int, rows: int) -> DoubleArray:
    """Draw which of two stacked systems answers each document: a weight of 1 in one of its two rows, 0 in the other."""
    swapped = rng.integers(0, 2, (permutations, rows // 2), dtype=np.int8).astype(np.float64)
    return np.concatenate([1 - swapped, swapped], axis=1)


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
    count, total = len(difference), float(difference.sum())
    # Documents without a difference change nothing, on whichever side they are.
    difference = difference[difference != 0]
    observed = abs(total)
    rng = np.random.default_rng(seed)
    extreme = 0
    block = max(1, 4_000_000 // max(1, len(difference)))
    for begin in range(0, permutations, block):
        size = min(block, permutations - begin)
        signs = rng.integers(0, 2, (size, len(difference)), dtype=np.int8) * 2 - 1
        # Rounding must not make a permutation that equals the observation look smaller.
        extreme += int(np.sum(np.abs(signs @ difference) >= observed * (1 - 1e-12)))
    return Comparison(total / count, (extreme + 1) / (permutations + 1))


def macro_t_test(first: DoubleArray, second: DoubleArray) -> Comparison:
    """Run a paired two-sided t-test over the per-label F1 of two systems.

    It takes labels for independent draws, whose differences are normal. They are neither: labels share documents, and
    rare ones have differences of 0 and a few of 1. See docs/definitions.md for how often it errs.

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


def micro_sign_test(
    truth: Any, first: Any, second: Any, groups: Sequence[str] | None = None, permutations: int = 1000, seed: int = 0
) -> Comparison:
    """Test whether one of two systems is right more often where exactly one is, over (document, label) pairs.

    A system is right about a pair if it predicts a true label or does not predict a false one. The pairs of a document
    are no independent trials (a wrong leaf is a wrong path, and a right one missed), so that not pairs change sides but
    documents, with all their pairs: `permutation_test` of how many more pairs the second gets right in each. The sign
    test of the literature takes pairs for independent, and finds equal systems different far too often.

    Parameters
    ----------
    truth : sparse array of shape (documents, labels)
        True labels.
    first, second : sparse arrays of shape (documents, labels)
        The labels that the two systems predict.
    groups : sequence of str, optional
        The group of each document; whole groups change sides.
    permutations, seed : int
        As for `permutation_test`.

    Returns
    -------
    Comparison
        `difference` is (pairs that only the second gets right - pairs that only the first does) / all such pairs.

    >>> truth, none = sparse.csr_array(np.ones((9, 2))), sparse.csr_array((9, 2))
    >>> result = micro_sign_test(truth, none, truth)
    >>> result.difference, result.p_value < 0.01
    (1.0, True)
    """
    disagree = (first.astype(np.int8) - second.astype(np.int8)).tocsr()
    # +1 where only the second is right, -1 where only the first is: where the pair is true, who predicts it is right.
    gain = (disagree - 2 * disagree.multiply(truth.astype(np.int8))).tocsr()
    pairs = int(np.count_nonzero(gain.data))
    gains = np.asarray(gain.astype(np.float64).sum(axis=1)).reshape(-1, 1)
    by_unit = gains[:, 0] if groups is None else sum_by_group([gains], groups)[0][:, 0]
    result = permutation_test(np.zeros(len(by_unit)), by_unit, permutations, seed)
    return Comparison(float(by_unit.sum()) / pairs if pairs else 0.0, result.p_value)


def holm(p_values: Sequence[float]) -> LongArray | DoubleArray:
    """Correct p-values of several tests by Holm's step-down procedure; NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    corrected = np.full(len(p), np.nan)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
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
