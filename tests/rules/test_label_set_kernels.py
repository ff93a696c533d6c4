"""Compiled loops over the distribution of a document's label set, against sums over all closed sets; and by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.reference_rules import Doubles, World
from tests.rules.test_label_sets import Distribution, small
from tests.strategies import Drawn, examples
from treelabel import Hierarchy, Scores
from treelabel.rules import expected_f, path_counts
from treelabel.rules import label_set_distribution as label_sets
from treelabel.rules.score_rows import ScoreRows

# A 0, B 1, C 2 below A, D 3 below A, E 4 below C.
ABOVE = np.array([-1, -1, 0, 0, 2], np.int32)
WEIGHTS = [[1.0], [0.1, 1, 0.3], [1, 0.2, 2, 0.1]]


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


# The distribution of label sets


def likely(drawn: Drawn, p: Doubles) -> Any:
    return label_sets.likely_tree(drawn.fast.parent.astype(np.int32), np.arange(len(p), dtype=np.int32), p)


@examples(30)
@given(small(), st.sampled_from(WEIGHTS), st.sampled_from([1.0, 0.3]))
def test_generating_functions_of_sizes_are_sums_over_all_sets(
    case: tuple[Drawn, Doubles], counts: list[float], inner: float
) -> None:
    drawn, p = case
    tree = likely(drawn, p)
    assume((tree.node[1:] >= 0).all())
    distribution = Distribution(drawn, p, counts, inner, refit=False)
    weights = label_sets.weights_of(label_sets.SetWeights(np.array(counts), inner), len(p))
    room = label_sets.workspace_for_counts(len(tree.p), len(p))
    odds = np.exp(label_sets.log_odds(tree))
    label_sets.count_up(tree, odds, 1.0, inner, room)
    total = label_sets.total_weight(weights.g, room)
    points = np.array([0.3, 1.0])
    found = expected_f.size_functions(label_sets.LabelSetFit(tree, odds, weights, room), total, points)
    sets = distribution.world.sets
    for row, z in enumerate(points):
        assert found[row, 1:] == pytest.approx((distribution.chance * z ** sets.sum(axis=1)) @ sets, abs=1e-7)
    # Delta of a set of k nodes, a child never before its parent, and the bound E[2 |Y| / (k + |Y|)].
    gain = np.zeros(len(tree.p))
    bound = expected_f.gains(tree, found, np.array([0.5, 2.0]), gain)
    plain = 0.5 * found[0, 1:] + 2 * found[1, 1:]
    assert gain[1:] == pytest.approx(plain, abs=1e-9)
    assert bound == pytest.approx(plain.sum())


def test_sizes_of_sets_have_a_bound() -> None:
    # Two paths of A C E and A D: never more than 2 x 3 nodes; all are 5.
    tree = label_sets.likely_tree(ABOVE, np.arange(5, dtype=np.int32), np.array([0.9, 0.8, 0.7, 0.6, 0.5]))
    assert [expected_f.longest_sets(tree, most) for most in (0, 1, 2)] == [0, 3, 5]
    folded = tree._replace(length=ints(1, 1, 1, 1, 1, 4))
    assert [expected_f.longest_sets(folded, most) for most in (1, 2)] == [6, 8]


@examples(30)
@given(small(), st.sampled_from(WEIGHTS), st.sampled_from([1.0, 0.3]))
def test_shares_of_documents_by_number_of_paths_are_sums_over_all_sets(
    case: tuple[Drawn, Doubles], counts: list[float], inner: float
) -> None:
    drawn, p = case
    assume((p >= label_sets.UNLIKELY * p.max()).all())
    h, nodes = drawn.fast, np.arange(len(p), dtype=np.int32)
    rows = ScoreRows(np.array([0, 0, len(p), 2 * len(p)]), np.tile(nodes, 2), np.tile(p, 2), 0, 3)
    graph = h.parent_ptr.astype(np.int64), h.parent_idx
    found = path_counts.count_shares(graph, np.array(counts), np.array([inner, 2 * inner]), 0, rows)
    ends = [len(drawn.slow.most_specific(set(labels))) for labels in World(drawn.slow).closed_sets]
    chance = Distribution(drawn, p, counts, inner, refit=False).chance
    expected = np.zeros(len(counts))
    np.add.at(expected, np.minimum(ends, len(counts) - 1), 2 * chance)
    # The first document has no scores, and so no path.
    expected[0] += 1
    assert found[2:] == pytest.approx(expected, abs=1e-6)
    for place, weight in ((0, inner), (1, 2 * inner)):
        total = log_total(drawn, p, counts, weight)
        assert found[place] == pytest.approx(2 * total + math.log(counts[0]), abs=1e-6)


def log_total(drawn: Drawn, p: Doubles, counts: list[float], inner: float) -> float:
    """The log of the expected weight of a document's set, where nodes are independent given their parents."""
    chance = Distribution(drawn, p, [1.0], 1.0, refit=False).chance
    ends = [drawn.slow.most_specific(set(labels)) for labels in World(drawn.slow).closed_sets]
    g = [counts[min(len(each), len(counts) - 1)] * inner ** len(each - drawn.slow.leaves) for each in ends]
    return math.log(chance @ np.array(g))


@pytest.mark.parametrize("remembered", [0, 1, 5, label_sets.MEMORY])
def test_a_step_is_that_of_the_matrix_of_bfgs(remembered: int) -> None:
    rng = np.random.default_rng(remembered)
    size, last = 6, 2
    gradient, scale = rng.normal(size=size), rng.random(size) + 0.5
    moves = rng.normal(size=(label_sets.MEMORY, size))
    changes = moves @ (np.diag(rng.random(size) + 1) + 0.1)
    matrix = np.diag(scale)
    for age in range(remembered - 1, -1, -1):
        s, y = moves[(last - age) % label_sets.MEMORY], changes[(last - age) % label_sets.MEMORY]
        left = np.eye(size) - np.outer(s, y) / (s @ y)
        matrix = left @ matrix @ left.T + np.outer(s, s) / (s @ y)
    step = label_sets.direction(gradient, scale, moves, changes, remembered, last)
    assert step == pytest.approx(-matrix @ gradient)


@examples(20)
@given(small(), st.sampled_from(WEIGHTS))
def test_the_gradient_is_that_of_the_loss(case: tuple[Drawn, Doubles], counts: list[float]) -> None:
    drawn, p = case
    tree = likely(drawn, p)
    size = len(tree.p)
    weights = label_sets.weights_of(label_sets.SetWeights(np.array(counts), 0.5), size)
    room, gradient, scratch = label_sets.workspace_for_counts(size, size), np.zeros(size), np.zeros(size)
    logits = 0.5 * label_sets.log_odds(tree)

    def loss(moved: Doubles) -> float:
        return label_sets.descend(tree, weights, moved, room, scratch, np.zeros(size))

    label_sets.descend(tree, weights, logits, room, scratch, gradient)
    for place in range(1, size):
        step = 1e-5 * np.eye(size)[place]
        assert gradient[place] == pytest.approx((loss(logits + step) - loss(logits - step)) / 2e-5, abs=1e-6)


def test_odds_are_fitted_in_few_steps() -> None:
    rng = np.random.default_rng(0)
    parents = np.array([-1] * 4 + [int(rng.integers(0, node)) for node in range(4, 40)], np.int32)
    taken = []
    for _ in range(20):
        p = np.zeros(40)
        for node, parent in enumerate(parents):
            p[node] = rng.beta(2, 2) * (p[parent] if parent >= 0 else 1)
        tree = label_sets.likely_tree(parents, np.arange(40, dtype=np.int32), p)
        most = label_sets.most_terminals(tree)
        weights = label_sets.weights_of(label_sets.SetWeights(np.array([0.01, 1, 0.05]), 0.2), most)
        logits, room = label_sets.log_odds(tree), label_sets.workspace_for_counts(len(tree.p), most)
        taken.append(label_sets.fit_log_odds(tree, weights, logits, room, np.zeros(len(tree.p)), 1e-6, 99))
    # Steps of another length, or in another direction, are more.
    assert sum(taken) <= 360
    assert max(taken) <= 28
    # None where the odds are right from the start.
    flat = label_sets.likely_tree(ints(-1, -1), ints(0, 1), np.array([0.5, 0.25]))
    room, ones = label_sets.workspace_for_counts(3, 2), label_sets.SetWeights(np.ones(3), 1.0)
    assert label_sets.fit_log_odds(flat, ones, label_sets.log_odds(flat), room, np.zeros(3), 1e-9, 9) == 0


# Independent labels


@pytest.mark.parametrize("p", [[], [0.5], [0.9, 0.5, 0.2], [1.0, 0.0, 0.3, 0.3]])
def test_true_labels_among_the_rest_are_sums_of_coins(p: list[float]) -> None:
    rest, top = np.zeros((len(p) + 1, len(p) + 2)), np.zeros(len(p) + 1, np.int64)
    expected_f.count_the_rest(np.array(p), rest, top)
    for start in range(len(p) + 1):
        coins = np.ones(1)
        for each in p[start:]:
            coins = np.convolve(coins, [1 - each, each])
        assert rest[start, : len(coins)].tolist() == pytest.approx(coins.tolist())
        # Numbers that cannot be are not looked at.
        assert top[start] == np.flatnonzero(coins).max()
    hits = np.zeros(len(p) + 2)
    hits[0] = 1.0
    for size, each in enumerate(p, 1):
        expected_f.add_coin(hits, size, each)
    assert hits[: len(p) + 1].tolist() == pytest.approx(rest[0, : len(p) + 1].tolist())


def test_a_table_of_counts_that_is_too_narrow_ends_at_its_width() -> None:
    rest, top = np.zeros((5, 3)), np.zeros(5, np.int64)
    expected_f.count_the_rest(np.full(4, 0.5), rest, top)
    assert top.tolist() == [2, 2, 2, 1, 0]
    assert rest[2].tolist() == [0.25, 0.5, 0.25]


def test_hundreds_of_labels_are_counted_up_to_what_can_be() -> None:
    # 4 x 60 + 64 true labels are next to impossible; the width of the table is that, not the number of labels.
    rng = np.random.default_rng(0)
    p = np.sort(rng.random(1200) * 0.1)[::-1]
    scores = Scores(Hierarchy.flat(map(str, range(1200))), [p])
    size = expected_f.samples_f1(scores).nnz
    sizes = np.arange(1, 1201)
    # With many labels the expected F is about 2 sum of p / (k + sum of all).
    near = 2 * np.cumsum(p) / (sizes + p.sum())
    assert near[size - 1] >= near.max() - 1e-3
