"""The set with the largest expected hierarchical F where nodes weigh the information they add: a search."""

from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.hierarchy.similarity import information_weights
from treelabel.rules.score_rows import ScoreRows, choose_sets, largest, load_tree_row, longest_row, make_tree_row
from treelabel.scores.score_matrix import Scores


def info_hf1(scores: Scores, information: DoubleArray, beta: float = 1.0) -> LabelMatrix:
    """Search the set with the largest expected information-weighted hF: nodes weigh ic(n) - ic(parent). Closed.

    Not exact: which nodes a set of a given weight should have is a knapsack problem. Where the truth has no information
    (all documents have its labels, or it is empty), sets without any are worth 1 and others 0. Needs a tree. Each size
    tried, and each node tried in improving the best one, is linear in the stored scores of the document.

    Parameters
    ----------
    information : array of shape (nodes,)
        The information content of each node.
    beta
        How many times as much recall counts as precision.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    if not 0 < beta < np.inf:
        raise TreelabelError(f"expected a beta above 0, found {beta:g}")
    # Beyond these the sets no longer change, but the square is 0 or infinite, and would be divided by.
    beta = min(max(beta, 1e-6), 1e6)
    h = scores.hierarchy
    weights = information_weights(h, np.asarray(information, np.float64))
    parent = h.parent
    return choose_sets(scores.coherent(), lambda rows: best_weighted_sets(parent, weights, float(beta), rows))


class WeightedRow(NamedTuple):
    """One row over a tree, as `TreeRow` has it, with the weight of each node and that of its path."""

    above: IntArray
    mass: DoubleArray
    whole: DoubleArray
    weight: DoubleArray
    path_weight: DoubleArray


@kernel
def expected_weighted(row: WeightedRow, chosen: BoolArray, squared: float, shared: DoubleArray) -> float:
    """Compute the expected F of a closed set of weighted nodes of a row over a tree; `shared` is scratch."""
    total = 0.0
    for index in range(len(row.above)):
        local = row.weight[index] if chosen[index] else 0.0
        total += local
        shared[index] = local + (shared[row.above[index]] if row.above[index] >= 0 else 0.0)
    expected = 0.0
    for index in range(len(row.above)):
        if row.mass[index] > 0 and shared[index] > 0:
            expected += row.mass[index] * (1 + squared) * shared[index] / (total + squared * row.path_weight[index])
    return expected


@kernel
def can_gain(row: WeightedRow, index: int, total: float, longest: float, value: float, squared: float) -> bool:
    """Return whether a node may raise the expected F, by a bound on what it gains and on what the others lose."""
    added = row.weight[index]
    if added == 0:
        return False
    gained = row.whole[index] * (1 + squared) / (total + added + squared * row.path_weight[index])
    return bool(gained > value / (total + added + squared * longest))


@kernel
def improve(row: WeightedRow, chosen: BoolArray, squared: float, shared: DoubleArray) -> float:
    """Add or remove single nodes, keeping the set closed, for as long as the expected F rises; return it."""
    above, weight = row.above, row.weight
    below = np.zeros(len(above), np.int32)
    longest = row.path_weight.max()
    value = expected_weighted(row, chosen, squared, shared)
    total = 0.0
    for index in range(len(above)):
        if chosen[index]:
            total += weight[index]
            if above[index] >= 0:
                below[above[index]] += 1
    better = True
    while better:
        better = False
        for index in range(len(above)):
            may_go = chosen[index] and below[index] == 0
            may_come = not chosen[index] and (above[index] < 0 or chosen[above[index]])
            if not may_go and not (may_come and can_gain(row, index, total, longest, value, squared)):
                continue
            chosen[index] = not chosen[index]
            changed = expected_weighted(row, chosen, squared, shared)
            if changed > value * (1 + 1e-12):
                value, better = changed, True
                total += weight[index] if chosen[index] else -weight[index]
                if above[index] >= 0:
                    below[above[index]] += 1 if chosen[index] else -1
            else:
                chosen[index] = not chosen[index]
    return value


@kernel
def without_bits(row: WeightedRow) -> float:
    """Return the expected F of a set without information: the probability that the truth has none either.

    Of the truth that is nothing at all, whose probability is what the top nodes lack of 1, this holds too.
    """
    worth, top = 0.0, 0.0
    for index in range(len(row.above)):
        if row.path_weight[index] == 0:
            worth += row.mass[index]
        if row.above[index] < 0:
            top += row.whole[index]
    return worth + max(0.0, 1.0 - top)


@kernel
def best_weighted_sets(
    parent: IntArray, node_weight: DoubleArray, beta: float, rows: ScoreRows
) -> tuple[IntArray, LongArray]:
    """Search the set of the largest expected F with weighted nodes, over a tree.

    Which nodes a set of weight W should have is a knapsack; taking those that gain most for their weight,
    r_W(n) = sum over terminal nodes e below n of m(e) (1 + beta^2) / (W + beta^2 w(A(e))), is its relaxation. So for
    each size that many nodes are taken, W being the weight of the set before; the best set is then improved node by
    node. Where the truth is likelier to have no information than that is worth, the likely nodes without any are
    predicted.
    """
    ptr, nodes, values, start, stop = rows
    most = longest_row(rows)
    workspace, heap = make_tree_row(len(parent), most), np.empty(most + 1, np.int32)
    chosen, best_set = np.empty(most, np.bool_), np.empty(most, np.bool_)
    gain, shared, path_weight = np.empty(most), np.empty(most), np.empty(most)
    result = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.zeros(stop - start, np.int64)
    squared, used = beta * beta, 0
    for number in range(start, stop):
        low, high = ptr[number], ptr[number + 1]
        count, here = high - low, nodes[low:high]
        if count == 0:
            continue
        load_tree_row(parent, here, values[low:high], workspace)
        above, weight = workspace.above[:count], node_weight[here]
        for index in range(count):
            path_weight[index] = weight[index] + (path_weight[above[index]] if above[index] >= 0 else 0.0)
        row = WeightedRow(above, workspace.mass[:count], workspace.whole[:count], weight, path_weight[:count])
        best, total = -1.0, 0.0
        best_set[:count] = False
        for size in range(1, count + 1):
            if find_gains(row, squared, total, gain) <= best:
                break
            largest(gain, count, size, heap)
            chosen[:count] = False
            chosen[heap[:size]] = True
            total = weight[heap[:size]].sum()
            value = expected_weighted(row, chosen, squared, shared)
            if value > best:
                best = value
                best_set[:count] = chosen[:count]
        if improve(row, best_set, squared, shared) < without_bits(row):
            best_set[:count] = (row.path_weight == 0) & (row.whole > 0.5)
        picked = here[best_set[:count]]
        result[used : used + len(picked)] = picked
        used += len(picked)
        sizes[number - start] = len(picked)
    return result[:used], sizes


@kernel
def find_gains(row: WeightedRow, squared: float, total: float, gain: DoubleArray) -> float:
    """Sum what a shared bit of a set of this weight is worth over where the truth ends, at or below each node.

    Returns what sharing all bits would be worth.
    """
    bound = 0.0
    for index in range(len(row.above)):
        gain[index] = 0.0
        if row.mass[index] > 0 and row.path_weight[index] > 0:
            gain[index] = row.mass[index] * (1 + squared) / (total + squared * row.path_weight[index])
            bound += gain[index] * row.path_weight[index]
    for index in range(len(row.above) - 1, -1, -1):
        if row.above[index] >= 0:
            gain[row.above[index]] += gain[index]
    return bound
