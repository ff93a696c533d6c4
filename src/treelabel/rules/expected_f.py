"""The set with the largest expected F1: for documents with many labels, independent or not, and with one path."""

from collections.abc import Sequence

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.rules.hierarchical_f import hf_beta
from treelabel.rules.label_sets import best_label_set
from treelabel.rules.score_rows import ScoreRows, choose_sets
from treelabel.scores.score_matrix import Scores

# What is less likely than this is left out of distributions of counts.
NEGLIGIBLE = 1e-15


def hf1(
    scores: Scores,
    count_root: bool = False,
    empty: float = 1.0,
    counts: Sequence[float] | DoubleArray | None = None,
    inner: float = 1.0,
    refit: bool = True,
) -> LabelMatrix:
    """Choose the set with the largest expected hierarchical F1: `hf_beta` with beta = 1. Exact; closed.

    Hierarchical F1 is the F1 of closed sets, so with `counts`, weights of the number of true paths, this is
    `samples_f1` with the same settings, but that predicting nothing where nothing is true is worth 1, as in the metric.
    Where that is likelier than any set is good, nothing is predicted; with empty=0, as for data in which every document
    has a label, something always is.

    Parameters
    ----------
    count_root
        Whether the root is in both sets.
    empty
        What predicting nothing is worth where nothing is true.
    counts, inner, refit
        As in `samples_f1`.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> hf1(Scores(h, [[0.9, 0.7, 0.2], [0.2, 0.1, 0.1]])).toarray().astype(int).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    if counts is None:
        _require_counts(inner, refit)
        return hf_beta(scores, 1.0, count_root, empty)
    if count_root:
        raise TreelabelError("counts weigh the paths of sets without the root; leave out count_root")
    return best_label_set(scores, counts, inner, refit, empty)


def _require_counts(inner: float, refit: bool) -> None:
    if inner != 1 or not refit:
        raise TreelabelError("inner and refit go with counts=[...], the weights of 0, 1, 2, ... true paths")


def samples_f1(
    scores: Scores,
    beta: float = 1.0,
    empty: float = 0.0,
    counts: Sequence[float] | DoubleArray | None = None,
    inner: float = 1.0,
    refit: bool = True,
) -> LabelMatrix:
    """Choose the set with the largest expected F_beta if labels are independent with the given marginals. Closed.

    With `counts`, the weights of 0, 1, 2, ... true paths that `fit_counts` finds, labels are not independent:
    `best_label_set` says what `inner` and `refit` are.

    Exact under that assumption. The best set of k labels is the k likeliest (Lewis 1995), so with coherent scores it
    is closed; with H hits among them and R true labels among the others, its value is
    E[(1 + beta^2) H / (k + beta^2 (H + R))]. Both counts are sums of independent coins, whose distributions are built
    label by label (Ye et al. 2012). No set of k or more has more than E[(1 + beta^2) |Y| / (k + beta^2 |Y|)], which
    ends the search. `empty` is what predicting nothing is worth if nothing is true. Costs sorting the stored scores,
    and those times the number of labels that may be true; the sizes tried cost their square times that number.

    Parameters
    ----------
    beta
        How many times as much recall counts as precision.
    empty
        What predicting nothing is worth where nothing is true.
    counts
        The weights of the numbers of true paths.
    inner, refit
        As in `best_label_set`.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> s = Scores(Hierarchy.flat(["A", "B", "C"]), [[0.9, 0.45, 0.1]])
    >>> samples_f1(s).indices.tolist()
    [0, 1]
    """
    if not 0 <= beta < np.inf:
        raise TreelabelError(f"expected a beta of at least 0, found {beta:g}")
    if counts is not None:
        if beta != 1:
            raise TreelabelError(f"beta = {beta:g} with counts; expected beta = 1, or no counts")
        return best_label_set(scores, counts, inner, refit, empty)
    _require_counts(inner, refit)
    return choose_sets(scores.coherent(), lambda rows: best_prefixes(float(beta), float(empty), rows))


@kernel
def count_the_rest(p: DoubleArray, rest: DoubleArray, top: LongArray) -> None:
    """Find the distribution of the number of true labels among those from each place on: rest[at, number].

    Numbers above top[at] have next to no probability.
    """
    count, width = len(p), rest.shape[1]
    rest[count, 0], top[count] = 1.0, 0
    for index in range(count - 1, -1, -1):
        last = top[index + 1]
        rest[index, 0] = rest[index + 1, 0] * (1 - p[index])
        for number in range(1, last + 1):
            rest[index, number] = rest[index + 1, number] * (1 - p[index]) + rest[index + 1, number - 1] * p[index]
        top[index] = last
        if last + 1 < width and rest[index + 1, last] * p[index] > NEGLIGIBLE:
            rest[index, last + 1] = rest[index + 1, last] * p[index]
            top[index] = last + 1


@kernel
def add_coin(hits: DoubleArray, size: int, p: float) -> None:
    """Make the distribution of hits among size - 1 labels that among `size`."""
    hits[size] = hits[size - 1] * p
    for number in range(size - 1, 0, -1):
        hits[number] = hits[number] * (1 - p) + hits[number - 1] * p
    hits[0] *= 1 - p


@kernel
def expected_f(hits: DoubleArray, rest: DoubleArray, top: int, size: int, squared: float) -> float:
    """E[(1 + beta^2) H / (k + beta^2 (H + R))], H the true among k predicted labels, R those among the others."""
    value = 0.0
    for right in range(1, size + 1):
        if hits[right] > NEGLIGIBLE:
            inner = 0.0
            for missed in range(top + 1):
                inner += rest[missed] / (size + squared * (right + missed))
            value += hits[right] * (1 + squared) * right * inner
    return value


@kernel
def best_size(
    p: DoubleArray, rest: DoubleArray, top: LongArray, hits: DoubleArray, squared: float, empty: float
) -> int:
    """Find how many of the likeliest labels to predict."""
    best, result = empty * rest[0, 0], 0
    hits[0] = 1.0
    for size in range(1, len(p) + 1):
        bound = 0.0
        for number in range(1, top[0] + 1):
            bound += rest[0, number] * (1 + squared) * number / (size + squared * number)
        if bound <= best:
            break
        add_coin(hits, size, p[size - 1])
        value = expected_f(hits, rest[size], top[size], size, squared)
        if value > best:
            best, result = value, size
    return result


@kernel
def best_prefixes(beta: float, empty: float, rows: ScoreRows) -> tuple[IntArray, LongArray]:
    """Choose, for each row, its likeliest labels, as many as are worth it."""
    ptr, nodes, values, start, stop = rows
    most, expected = 0, 0.0
    for row in range(start, stop):
        most = max(most, ptr[row + 1] - ptr[row])
        expected = max(expected, values[ptr[row] : ptr[row + 1]].sum())
    # Sums of independent coins with mean m exceed 4 m + 64 with a probability below 1e-20.
    width = min(most, int(4 * expected + 64)) + 1
    rest, top = np.zeros((most + 1, width)), np.zeros(most + 1, np.int64)
    hits = np.zeros(most + 1)
    result = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        low, high = ptr[row], ptr[row + 1]
        # A stable sort by falling score leaves equal ones in the order of their ids, parents first.
        order = np.argsort(-values[low:high], kind="mergesort")
        p = values[low:high][order].astype(np.float64)
        count_the_rest(p, rest, top)
        size = best_size(p, rest, top, hits, beta * beta, empty)
        result[used : used + size] = nodes[low:high][np.sort(order[:size])]
        used += size
        sizes[row - start] = size
    return result[:used], sizes
