"""Metrics of distances between labels, for any number of labels: every predicted one against every true one.

Both sets are taken at their most specific labels, since ancestors are said with them. A distance is the edges of the
shortest way up and down again, through the root if need be.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from treelabel.core.compute import join_rows, kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix, LabelRows, row_sizes, rows_of
from treelabel.hierarchy.similarity import edges_between
from treelabel.metrics.batch import Batch, Context, Parts, Sums, sum_rows


class LabelPairs(NamedTuple):
    """Distances of the most specific labels: the matrix of a document, true x predicted, one row behind the other.

    `ptr` is where the distances of each document begin; `true` and `predicted` are the labels of all documents, and
    `true_ptr` and `predicted_ptr` where those of each document begin.
    """

    ptr: LongArray
    distance: DoubleArray
    true_ptr: LongArray
    true: IntArray
    predicted_ptr: LongArray
    predicted: IntArray


def terminal_labels(batch: Batch) -> tuple[LabelMatrix, LabelMatrix]:
    """Return the most specific true and predicted labels, computed once for all metrics of a batch.

    Returns
    -------
    two label matrices
    """
    if terminal_labels not in batch._tables:
        batch._tables[terminal_labels] = (
            batch.hierarchy.most_specific(batch.truth),
            batch.hierarchy.most_specific(batch.decisions),
        )
    sets: tuple[LabelMatrix, LabelMatrix] = batch._tables[terminal_labels]
    return sets


def label_pairs(batch: Batch) -> LabelPairs:
    """Compute all distances between true and predicted labels, once for all metrics of a batch."""
    if label_pairs not in batch._tables:
        truth, decisions = terminal_labels(batch)
        one, two = row_sizes(truth).astype(np.int64), row_sizes(decisions).astype(np.int64)
        # Every true label once for each predicted one, and the predicted ones over and over.
        left = np.repeat(truth.indices, np.repeat(two, one))
        ptr = np.append(0, np.cumsum(one * two))
        first = np.repeat(decisions.indptr[:-1].astype(np.int64), one * two)
        within = np.arange(ptr[-1]) - np.repeat(ptr[:-1], one * two)
        right = decisions.indices[first + within % np.maximum(np.repeat(two, one * two), 1)]
        distance = edges_between(batch.hierarchy, left, right)
        rows = (truth.indptr.astype(np.int64), truth.indices, decisions.indptr.astype(np.int64), decisions.indices)
        batch._tables[label_pairs] = LabelPairs(ptr, distance, *rows)
    pairs: LabelPairs = batch._tables[label_pairs]
    return pairs


def shortest_path_sum(batch: Batch) -> DoubleArray:
    """Sum of the distances between all true and all predicted labels (the submission's footnote 8); lower is better.

    It is `shortest_path` for one label each. The root stands for an empty set; two empty ones have 0. Equal sets of
    several labels have a sum above 0.

    One value per document: shape (documents,).

    >>> from treelabel.metrics.example import example
    >>> shortest_path_sum(example()).round(3).tolist()
    [1.0, 2.0, 2.0, 0.0]
    """
    pairs, (truth, decisions) = label_pairs(batch), terminal_labels(batch)
    total = np.append(0.0, np.cumsum(pairs.distance))[pairs.ptr]
    depth = batch.hierarchy.shortest_depth
    alone = [
        np.where(row_sizes(other) == 0, sum_rows(labels, depth[labels.indices]), 0.0)
        for labels, other in ((truth, decisions), (decisions, truth))
    ]
    summed: DoubleArray = np.diff(total) + alone[0] + alone[1]
    return summed


def mgia(batch: Batch, max_distance: float = 5.0) -> DoubleArray:
    """Multi-label graph-induced accuracy (Kosmopoulos et al. 2015): 1 - E / (|Y xor S| D).

    Every label that only one set has is paired with at least one label of the other set, at the cost of their distance,
    or with none, at the cost D; a label may be in several pairs. E is the least cost of all. 1 for equal sets. The
    authors' program pairs each label with its nearest ones and drops superfluous pairs, which can cost more.

    One value per document: shape (documents,).

    Parameters
    ----------
    batch
        Documents with truth and decisions.
    max_distance
        The cost D of a label without a partner.

    Returns
    -------
    array of shape (documents,)

    >>> from treelabel.metrics.example import example
    >>> mgia(example()).round(3).tolist()
    [0.9, 0.8, 0.8, 1.0]
    """
    if max_distance <= 0:
        raise TreelabelError(f"mgia: max_distance = {max_distance:g}, expected a number above 0")
    pairs = label_pairs(batch)
    values: DoubleArray = join_rows(lambda start, stop: pairing_accuracy(pairs, max_distance, start, stop), len(batch))
    return values


def kernel_distance(batch: Batch, base: float = 0.75) -> DoubleArray:
    """Distance of the sums of label vectors (Blockeel et al. 2002), of which only the products need be known.

    sqrt(K(S, S) + K(Y, Y) - 2 K(S, Y)), where K sums k(x, y) over pairs of labels, and k(x, y) is the weight of the
    ancestors that both have, themselves included: base^(depth - 1) for each. So |x|^2 is the weight of the path to x,
    and |x - y|^2 that of the path from x to y. The paper leaves these distances open; base 0.75 is that of Vens et al.
    (2008). The root weighs nothing. Lower is better.

    One value per document: shape (documents,).

    Parameters
    ----------
    batch
        Documents with truth and decisions.
    base
        The factor by which weights fall from level to level.

    Returns
    -------
    array of shape (documents,)

    >>> from treelabel.metrics.example import example
    >>> kernel_distance(example()).round(3).tolist()
    [0.866, 1.225, 1.414, 0.0]
    """
    h = batch.hierarchy
    paths = rows_of(h.closure(sparse.eye_array(len(h), dtype=np.bool_, format="csr")))
    truth, decisions = (rows_of(labels) for labels in terminal_labels(batch))
    weights = np.power(base, h.depth - 1.0)
    squares: DoubleArray = join_rows(
        lambda start, stop: squared_distances(truth, decisions, paths, weights, start, stop), len(batch)
    )
    return np.sqrt(squares)


def distance_contributions(batch: Batch, acceptable: float = 2.0) -> Parts:
    """Count hits, false and missed labels of each document, and what wrong ones contribute, as Sun and Lim do.

    A wrong label c contributes sum over the labels c' of the other set of 1 - distance(c, c') / acceptable, cut to
    [-1, 1].

    Parameters
    ----------
    batch
        Documents with truth and decisions.
    acceptable
        The distance at which a contribution is 0.

    Returns
    -------
    one matrix of shape (documents, 6): hits, false, missed, contributions of false and of missed labels, 1
    """
    if acceptable <= 0:
        raise TreelabelError(f"acceptable = {acceptable:g}: expected a distance above 0")
    pairs = label_pairs(batch)
    parts: DoubleArray = join_rows(lambda start, stop: contributions(pairs, acceptable, start, stop), len(batch))
    return (parts,)


def distance_precision(sums: Sums, _: Context) -> float:
    """Distance-based precision (Sun and Lim 2001), micro: max(0, TP + FpCon + FnCon) / (TP + FP + FnCon).

    FpCon and FnCon sum what false and missed labels contribute. A denominator of 0 or less gives 0, and so do sets that
    are all empty, as in flat metrics.

    Takes the column sums of what `distance_contributions` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> parts = lambda batch: distance_contributions(batch, 4.0)
    >>> round(distance_precision(example_sums(parts), example_context()), 3)
    0.737
    """
    hits, false, _missed, false_part, missed_part, documents = sums[0]
    return _share(hits + false_part + missed_part, hits + false + missed_part, documents)


def distance_recall(sums: Sums, _: Context) -> float:
    """Distance-based recall (Sun and Lim 2001), micro: max(0, TP + FpCon + FnCon) / (TP + FN + FpCon).

    As `distance_precision`.

    Takes the column sums of what `distance_contributions` returns.

    >>> from treelabel.metrics.example import example_context, example_sums
    >>> parts = lambda batch: distance_contributions(batch, 4.0)
    >>> round(distance_recall(example_sums(parts), example_context()), 3)
    0.737
    """
    hits, _false, missed, false_part, missed_part, documents = sums[0]
    return _share(hits + false_part + missed_part, hits + missed + false_part, documents)


def _share(part: float, whole: float, documents: float) -> float:
    if not documents:
        return float("nan")
    return float(max(0.0, part) / whole) if whole > 0 else 0.0


@kernel
def squared_distances(
    truth: LabelRows, decisions: LabelRows, paths: LabelRows, weights: DoubleArray, start: int, stop: int
) -> DoubleArray:
    """Compute the sum over nodes of weight x (predicted labels at or below - true ones)^2; `paths` has ancestors."""
    path_ptr, path_idx = paths
    surplus = np.zeros(len(weights), np.int64)
    result = np.zeros(stop - start)
    for row in range(start, stop):
        for (ptr, idx), step in ((decisions, 1), (truth, -1)):
            for label in idx[ptr[row] : ptr[row + 1]]:
                for node in path_idx[path_ptr[label] : path_ptr[label + 1]]:
                    surplus[node] += step
        for ptr, idx in (decisions, truth):
            for label in idx[ptr[row] : ptr[row + 1]]:
                for node in path_idx[path_ptr[label] : path_ptr[label + 1]]:
                    result[row - start] += weights[node] * surplus[node] ** 2
                    surplus[node] = 0
    return result


@kernel
def contributions(pairs: LabelPairs, acceptable: float, start: int, stop: int) -> DoubleArray:
    """Count hits, false and missed labels, what the latter two contribute, and the document."""
    result = np.zeros((stop - start, 6))
    for row in range(start, stop):
        size = pairs.true_ptr[row + 1] - pairs.true_ptr[row]
        count = pairs.predicted_ptr[row + 1] - pairs.predicted_ptr[row]
        table = pairs.distance[pairs.ptr[row] : pairs.ptr[row + 1]].reshape(size, count)
        values = result[row - start]
        values[5] = 1.0
        for side in range(2):
            for one in range(size if side == 0 else count):
                total, is_hit = 0.0, False
                for other in range(count if side == 0 else size):
                    distance = table[one, other] if side == 0 else table[other, one]
                    total += 1.0 - distance / acceptable
                    is_hit = is_hit or distance == 0
                if is_hit:
                    values[0] += 0.5
                else:
                    values[2 if side == 0 else 1] += 1.0
                    values[4 if side == 0 else 3] += min(1.0, max(-1.0, total))
    return result


@kernel
def pairing_accuracy(pairs: LabelPairs, most: float, start: int, stop: int) -> DoubleArray:
    """Compute 1 - E / (|Y xor S| most), E the cheapest way to pair every label that only one set has.

    All labels take their nearest partner, or none at the cost `most`; then labels pair up with each other where that is
    cheaper, which is a matching of the largest gain.
    """
    result = np.ones(stop - start)
    for row in range(start, stop):
        size = pairs.true_ptr[row + 1] - pairs.true_ptr[row]
        count = pairs.predicted_ptr[row + 1] - pairs.predicted_ptr[row]
        table = pairs.distance[pairs.ptr[row] : pairs.ptr[row + 1]].reshape(size, count)
        near, near_other = np.full(size, most), np.full(count, most)
        for one in range(size):
            for other in range(count):
                near[one] = min(near[one], table[one, other])
                near_other[other] = min(near_other[other], table[one, other])
        wrong = 0
        for one in range(size):
            wrong += near[one] > 0
        for other in range(count):
            wrong += near_other[other] > 0
        if wrong == 0:
            continue
        gains = np.zeros((min(size, count), max(size, count)))
        for one in range(size):
            for other in range(count):
                gain = max(0.0, near[one] + near_other[other] - table[one, other])
                if size <= count:
                    gains[one, other] = gain
                else:
                    gains[other, one] = gain
        error = near.sum() + near_other.sum() - largest_matching(gains)
        result[row - start] = 1.0 - error / (wrong * most)
    return result


@kernel
def largest_matching(gains: DoubleArray) -> float:
    """Find the largest total gain of a matching of rows with columns, at most as many rows as columns.

    The Hungarian method: one row after the other is matched along a shortest augmenting path, with prices of rows and
    columns; rows^2 x columns steps.
    """
    rows, columns = gains.shape
    prices = np.zeros(rows + 1), np.zeros(columns + 1)
    # Columns and rows count from 1; column 0 holds the row that is being matched.
    matched = np.zeros(columns + 1, np.int64)
    for row in range(1, rows + 1):
        matched[0] = row
        match_row(gains, prices, matched)
    total = 0.0
    for column in range(1, columns + 1):
        if matched[column] != 0:
            total += gains[matched[column] - 1, column - 1]
    return total


@kernel
def match_row(gains: DoubleArray, prices: tuple[DoubleArray, DoubleArray], matched: LongArray) -> None:
    """Match the row in column 0 by a shortest augmenting path, and change prices and matches accordingly."""
    columns = gains.shape[1]
    price, other_price = prices
    slack, previous = np.full(columns + 1, np.inf), np.zeros(columns + 1, np.int64)
    visited = np.zeros(columns + 1, np.bool_)
    column = 0
    while matched[column] != 0:
        visited[column] = True
        current, step, best = matched[column], np.inf, 0
        for other in range(1, columns + 1):
            reduced = -gains[current - 1, other - 1] - price[current] - other_price[other]
            if not visited[other] and reduced < slack[other]:
                slack[other], previous[other] = reduced, column
            if not visited[other] and slack[other] < step:
                step, best = slack[other], other
        for other in range(columns + 1):
            if visited[other]:
                price[matched[other]] += step
                other_price[other] -= step
            else:
                slack[other] -= step
        column = best
    while column != 0:
        matched[column] = matched[previous[column]]
        column = previous[column]
