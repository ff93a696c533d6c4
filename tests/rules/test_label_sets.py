"""The set with the largest expected F1 where the number of true paths has weights: against all closed sets."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import sets_of
from tests.reference_rules import Doubles, World, expected_f_of_subsets
from tests.strategies import Drawn, trees
from treelabel import Hierarchy, Scores, TreelabelError, decide
from treelabel.rules import label_set_distribution as kernels
from treelabel.rules.expected_f import best_label_set, gauss_legendre
from treelabel.rules.label_set_distribution import fit_log_odds, largest_error, log_odds

# Marginals are fitted to this.
TOLERANCE = 1e-4

WEIGHTS: list[list[float]] = [[1], [0.1, 1, 0.3], [0.01, 1, 0.02], [1, 0.2, 2, 0.1], [0.5, 0.1, 0.1, 1]]


@st.composite
def small(draw: st.DrawFn, least: float = 0.05, most: float = 0.95) -> tuple[Drawn, Doubles]:
    """Draw a small tree and coherent scores, each a share of its parent's."""
    drawn = draw(trees(6))
    shares = draw(st.lists(st.floats(least, most), min_size=len(drawn), max_size=len(drawn)))
    p = np.zeros(len(drawn))
    for node, share in enumerate(shares):
        parent = int(drawn.fast.parent[node])
        p[node] = share * (p[parent] if parent >= 0 else 1.0)
    return drawn, p


class Distribution:
    """All closed sets of a small tree with their probabilities."""

    def __init__(self, drawn: Drawn, p: Doubles, counts: list[float], inner: float, refit: bool) -> None:
        self.world, self.p = World(drawn.slow), p
        sets = self.world.sets
        ends = [drawn.slow.most_specific(set(labels)) for labels in self.world.closed_sets]
        g = np.array([float(counts[min(len(found), len(counts) - 1)]) for found in ends])
        g *= [inner ** len(found - drawn.slow.leaves) for found in ends]
        parent = drawn.fast.parent
        above = np.where(parent >= 0, p[parent], 1.0)
        open_to = np.where(parent >= 0, sets[:, parent], 1.0)
        given_parent = np.where(sets > 0, p / above, 1 - p / above)
        base = np.log(g) + (np.log(given_parent) * open_to).sum(axis=1)
        self.chance = self._fitted(base) if refit else _normalised(base)

    def _fitted(self, base: Doubles) -> Doubles:
        """Tilt until all marginals are the scores, by Newton's method."""
        sets, tilt = self.world.sets, np.zeros(self.world.sets.shape[1])

        def loss(tilt: Doubles) -> float:
            return float(np.logaddexp.reduce(base + sets @ tilt) - self.p @ tilt)

        for _ in range(200):
            chance = _normalised(base + sets @ tilt)
            gradient = chance @ sets - self.p
            if np.abs(gradient).max() < 1e-11:
                break
            spread = (sets.T * chance) @ sets - np.outer(chance @ sets, chance @ sets)
            step, length = np.linalg.solve(spread + 1e-14 * np.eye(len(tilt)), gradient), 1.0
            while loss(tilt - length * step) > loss(tilt) + 1e-15 and length > 1e-9:
                length /= 2
            tilt -= length * step
        assert np.abs(chance @ sets - self.p).max() < 1e-8
        return chance

    def values(self, empty: float = 0.0) -> Doubles:
        """The expected F1 of every closed set."""
        sets = self.world.sets
        sizes = sets.sum(axis=1)
        both = sizes[:, None] + sizes[None, :]
        f1 = np.divide(2 * sets @ sets.T, both, out=np.full(both.shape, empty), where=both > 0)
        return np.asarray(f1 @ self.chance)


def _normalised(logs: Doubles) -> Doubles:
    return np.asarray(np.exp(logs - np.logaddexp.reduce(logs)))


def place_of(drawn: Drawn, p: Doubles, world: World, **options: Any) -> int:
    """Where the chosen set stands among all closed sets."""
    rule = decide(Scores(drawn.fast, p[None]), "optimal:samples_f1", closed=False, **options)
    return world.place[frozenset(rule.csr.indices.tolist())]


@settings(max_examples=60, deadline=None)
@given(small(), st.sampled_from(WEIGHTS), st.sampled_from([1.0, 0.1]), st.booleans(), st.sampled_from([0.0, 1.0]))
def test_no_closed_set_is_better(
    case: tuple[Drawn, Doubles], counts: list[float], inner: float, refit: bool, empty: float
) -> None:
    drawn, p = case
    distribution = Distribution(drawn, p, counts, inner, refit)
    values = distribution.values(empty)
    options = {"counts": counts, "inner": inner, "refit": refit, "empty": empty}
    assert values[place_of(drawn, p, distribution.world, **options)] >= values.max() - TOLERANCE


@settings(max_examples=30, deadline=None)
@given(small(1e-4, 0.6), st.sampled_from(WEIGHTS[:3]))
def test_leaving_out_unlikely_nodes_loses_next_to_nothing(case: tuple[Drawn, Doubles], counts: list[float]) -> None:
    drawn, p = case
    distribution = Distribution(drawn, p, counts, 1.0, False)
    values = distribution.values()
    chosen = place_of(drawn, p, distribution.world, counts=counts, refit=False)
    assert values[chosen] >= values.max() - 0.002 - TOLERANCE


@settings(max_examples=30, deadline=None)
@given(small(), st.sampled_from(WEIGHTS))
def test_marginals_stay_what_the_scores_say(case: tuple[Drawn, Doubles], counts: list[float]) -> None:
    drawn, p = case
    # Nodes that are less likely are folded, and have no marginal of their own.
    assume((p >= kernels.UNLIKELY * p.max()).all())
    up = drawn.fast.parent.astype(np.int32)
    tree = kernels.likely_tree(up, np.arange(len(p), dtype=np.int32), p)
    weights = kernels.weights_of(kernels.SetWeights(np.array(counts, float), 1.0), len(p))
    logits, found = log_odds(tree), np.zeros(len(tree.p))
    fit_log_odds(tree, weights, logits, kernels.workspace_for_counts(len(tree.p), len(p)), found, 1e-9, 500)
    assert largest_error(tree, found) <= 1e-9
    distribution = Distribution(drawn, p, counts, 1.0, True)
    assert found[1:] == pytest.approx(distribution.chance @ distribution.world.sets, abs=1e-7)


# Identities


@settings(deadline=None)
@given(trees(10), st.data())
def test_one_path_is_what_hf1_takes_for_granted(drawn: Drawn, data: st.DataObject) -> None:
    masses = data.draw(st.lists(st.integers(0, 9), min_size=len(drawn), max_size=len(drawn)))
    if not sum(masses):
        masses[-1] = 1
    paths = World(drawn.slow).paths
    p = np.array(masses) / sum(masses) @ paths
    scores = Scores(drawn.fast, p[None])
    expected = decide(scores, "optimal:hf1").names()
    assert decide(scores, "optimal:samples_f1", counts=[0, 1, 0]).names() == expected
    assert decide(scores, "optimal:hf1", counts=[0, 1, 0]).names() == expected


@settings(max_examples=30, deadline=None)
@given(small())
def test_nearly_one_path_is_nearly_as_good_as_the_exact_rule_for_one(case: tuple[Drawn, Doubles]) -> None:
    drawn, p = case
    paths = World(drawn.slow).paths
    masses = p / p.sum()
    scores = Scores(drawn.fast, (masses @ paths)[None])
    sizes = paths.sum(axis=1)

    def value(labels: set[int]) -> float:
        shared = paths[:, sorted(labels)].sum(axis=1)
        return float(masses @ (2 * shared / (len(labels) + sizes)))

    exact, near = (
        sets_of(decide(scores, "optimal:samples_f1", counts=counts).csr, len(drawn))[0]
        for counts in ([0, 1, 0], [1e-4, 1, 1e-4])
    )
    assert value(near) >= value(exact) - 0.002


@pytest.mark.parametrize("size", [6, 40, 300])
@pytest.mark.slow
def test_without_weights_labels_of_a_flat_hierarchy_are_independent(size: int) -> None:
    rng = np.random.default_rng(size)
    scores = Scores(Hierarchy.flat(map(str, range(size))), rng.random((30, size)) ** 3 * 0.99 + 0.004)
    one, two = decide(scores, "optimal:samples_f1"), decide(scores, "optimal:samples_f1", counts=[1])
    if size == 6:
        for row in range(30):
            values = expected_f_of_subsets(scores.dense()[row].tolist())
            chosen = frozenset(two[row].csr.indices.tolist())
            assert values[chosen] == pytest.approx(max(values.values()), abs=1e-9)
    assert one.names() == two.names()


def test_weights_that_are_multiplied_by_a_power_change_nothing_in_a_flat_hierarchy() -> None:
    rng = np.random.default_rng(0)
    scores = Scores(Hierarchy.flat(map(str, range(12))), rng.random((40, 12)) ** 2)
    one = decide(scores, "optimal:samples_f1", counts=[1.0] * 13)
    two = decide(scores, "optimal:samples_f1", counts=[3 * 1.3**number for number in range(13)])
    assert one.names() == two.names()


def test_few_paths_make_few_labels() -> None:
    rng = np.random.default_rng(0)
    scores = Scores(Hierarchy.flat(map(str, range(12))), rng.random((200, 12)) ** 3)
    few, many = (
        decide(scores, "optimal:samples_f1", counts=counts, refit=False).csr.nnz
        for counts in ([1, 1, 0.1, 0.01], [0.01, 0.1, 1, 1])
    )
    assert few < decide(scores, "optimal:samples_f1").csr.nnz < many


# Forms of scores, and DAGs


@pytest.mark.parametrize("refit", [True, False])
def test_dense_and_csr_scores_of_both_precisions_give_the_same_sets(refit: bool) -> None:
    rng = np.random.default_rng(1)
    parents = np.array([-1, -1, *(int(rng.integers(0, node)) for node in range(2, 80))])
    h = Hierarchy.from_parents(parents, names=list(map(str, range(80))))
    values = rng.random((20, 80)).astype(np.float32) ** 3
    scores = Scores(h, values).coherent("min")
    dense = scores.dense()
    forms = (dense, sparse.csr_array(dense), dense.astype(np.float64))
    found = [best_label_set(Scores(h, form), [0.1, 1, 0.5], 0.1, refit) for form in forms]
    assert found[0].nnz > 0
    assert all((found[0] != other).nnz == 0 for other in found[1:])
    assert (h.closure(found[0]) != found[0]).nnz == 0


def test_in_a_dag_a_node_hangs_below_its_least_likely_parent() -> None:
    dag = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("A", "D"), ("C", "E")])
    tree = Hierarchy.from_edges([("B", "C"), ("A", "D"), ("C", "E")])
    p = {"A": 0.9, "B": 0.6, "C": 0.5, "D": 0.3, "E": 0.45}
    for counts in ([1], [0.1, 1, 0.1]):
        one, two = (
            decide(Scores(h, [[p[name] for name in h.names]]), "optimal:samples_f1", counts=counts).names()[0]
            for h in (dag, tree)
        )
        assert sorted(one) == sorted({*two, "A", "B"} if "C" in two else two)


def test_documents_without_scores_have_no_labels() -> None:
    h = Hierarchy.from_paths(["A > B"])
    assert decide(Scores(h, [[0.0, 0.0], [0.9, 0.8]]), "optimal:samples_f1", counts=[1]).names() == [[], ["A", "B"]]


def test_scores_that_are_all_small_still_give_labels() -> None:
    h = Hierarchy.from_paths(["A > B", "C"])
    assert decide(Scores(h, [[1e-5, 1e-7, 1e-7]]), "optimal:samples_f1", counts=[1]).names() == [["A"]]
    assert decide(Scores(h, [[1e-5, 1e-7, 1e-7]]), "optimal:hf1", counts=[1]).names() == [[]]


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts": [-1, 2]}, "expected weights of at least 0"),
        ({"counts": [0, 0]}, "not all of them 0"),
        ({"counts": []}, "expected weights|expected a number or a list"),
        ({"counts": [float("nan")]}, "expected weights"),
        ({"counts": "many"}, "expected a number or a list of numbers"),
        ({"counts": [1], "beta": 2}, "beta = 2 with counts"),
        ({"counts": [1], "inner": -1}, "inner = -1"),
        ({"inner": 0.5}, "go with counts"),
        ({"refit": False}, "go with counts"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    scores = Scores(Hierarchy.flat(["A"]), [[0.5]])
    with pytest.raises(TreelabelError, match=message):
        decide(scores, "optimal:samples_f1", **options)


def test_the_root_is_not_counted_with_weights() -> None:
    with pytest.raises(TreelabelError, match="leave out count_root"):
        decide(Scores(Hierarchy.flat(["A"]), [[0.5]]), "optimal:hf1", counts=[1], count_root=True)


def test_mass_of_a_node_is_what_its_children_leave() -> None:
    # The first of a row is a parent like any other; rounding never makes a mass negative.
    up = np.array([-1, 0, 0, 1], np.int32)
    mass = kernels.mass_beyond_children(up, np.array([0.9, 0.5, 0.3, 0.6]))
    assert mass == pytest.approx([0.1, 0.0, 0.3, 0.6])


def likely(up: list[int], values: list[float]) -> kernels.LikelyTree:
    """Keep the likely nodes, which are numbered from 10 on."""
    nodes = np.arange(10, 10 + len(up), dtype=np.int32)
    return kernels.likely_tree(np.array(up, np.int32), nodes, np.array(values))


def test_unlikely_nodes_are_joined_by_their_nearest_likely_ancestor_and_their_length() -> None:
    # Likely are a, b and c below a; a thousandth of the likeliest is enough. Below a there are d, f, and e below d;
    # below b there is g; u is a top label.
    up, values = [-1, -1, -1, 0, 0, 0, 1, 4], [1.0, 1e-3, 5e-4, 0.5, 6e-4, 3e-4, 2e-4, 4e-4]
    tree = likely(up, values)
    assert tree.node.tolist() == [-1, 10, 11, 13, -1, -1, -1, -1]
    assert tree.above.tolist() == [0, 0, 0, 1, 0, 1, 2, 1]
    assert tree.length.tolist() == [1, 1, 1, 1, 1, 1, 1, 2]
    assert tree.p == pytest.approx([1, 1, 1e-3, 0.5, 5e-4, 5e-4, 2e-4, 4e-4])
    assert [each.tolist() for each in likely([], [])] == [[0], [1], [1], [-1]]


def test_groups_of_unlikely_nodes_stay_below_half_of_their_ancestor_and_a_twentieth() -> None:
    tree = likely([-1, -1, 1, 1, 1], [1.0, 1e-3, 2.5e-4, 2.5e-4, 1e-4])
    assert tree.p[3:].tolist() == [5e-4, 1e-4]
    tree = likely([-1] * 61, [1.0] + [9e-4] * 60)
    assert tree.p[2:] == pytest.approx([55 * 9e-4, 5 * 9e-4])
    # What hardly ever ends somewhere is left out.
    assert likely([-1, -1, -1], [1.0, 1e-6, 2e-6]).p.tolist() == [1, 1, 2e-6]


def test_paths_are_counted_up_to_six_standard_deviations_and_six_more_than_expected() -> None:
    assert kernels.most_terminals(likely([-1] * 100, [0.5] * 100)) == int(50 + 6 * 50**0.5 + 6)
    # Children are more than their parent, each of 100.
    assert kernels.most_terminals(likely([-1] * 100 + list(range(100)) * 2, [0.5] * 100 + [0.4] * 200)) == 139
    assert kernels.most_terminals(likely([-1, -1], [0.5, 0.5])) == 2
    weights = kernels.weights_of(kernels.SetWeights(np.array([1, 0.2, 2]), 0.5), 4)
    assert (weights.g.tolist(), weights.inner) == ([1, 0.2, 2, 2, 2], 0.5)


def test_log_odds_are_those_of_a_node_given_its_parent() -> None:
    found = log_odds(likely([-1, 0, 0, -1], [0.8, 0.6, 0.8, 0.5]))
    assert found[:3] == pytest.approx([0, np.log(4), np.log(3)])
    # What its parent makes certain is nearly so.
    assert found[3:] == pytest.approx([np.log(1e9 - 1), 0])


def test_quadratures_are_right_to_ten_digits_below_their_degree() -> None:
    # The integral of z^d over [0, 1] is 1 / (d + 1).
    for points, weights, size, degree in zip(*gauss_legendre(), strict=True):
        error = [abs(weights[:size] @ points[:size] ** d - 1 / (d + 1)) for d in (1, degree // 2, degree - 1, degree)]
        assert max(error[:3]) <= 1e-10 < error[3]
        assert not weights[size:].any()
