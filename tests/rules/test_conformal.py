"""Sets with a coverage: by hand, smallest by brute force, limits against a slow search, and coverage by simulation."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.reference import ROOT, SlowHierarchy, matrix_of, sets_of
from tests.reference_rules import (
    conformal,
    leaves_at_or_below,
    masses,
    nested_scores,
    nested_set,
    representations,
)
from tests.strategies import Drawn, dags, examples, trees, with_scores
from treelabel import Hierarchy, Scores, TreelabelError, decide, evaluate, tune
from treelabel.rules.conformal import ConformalSets
from treelabel.rules.risk_bounds import EVERYTHING, conformal_quantile
from treelabel.rules.set_calibration import calibrate_sets, measure_sets

TREE = Hierarchy.from_paths(["A > B", "A > C", "A > D", "E > F", "E > G"])
LEAVES = ["B", "C", "D", "F", "G"]
# Sums of these are exact.
SCORES = Scores.from_leaves(TREE, LEAVES, [[0.5, 0.25, 0.0625, 0.125, 0.0625]])
PENALTIES: dict[str, Any] = {"penalty": 0.125, "k_reg": 2}
KINDS = [(nodes, score) for nodes in (1, 2, 3) for score in ("lac", "aps", "raps")]


def names(rule: str) -> list[str]:
    (found,) = decide(SCORES, f"conformal({rule}, closed=false)").names()
    return found


def both_forms(h: Hierarchy, values: Any) -> list[Scores]:
    return [Scores(h, values), Scores(h, sparse.csr_array(values))]


# By hand


def test_one_node_climbs_from_the_best_leaf() -> None:
    # B has 0.5, A 0.8125.
    assert [names(f"t={t}") for t in (0.4, 0.5, 0.8, 0.8125, 1e6)] == [["B"], ["A"], ["A"], [], []]


def test_sets_of_leaves_are_represented_by_few_nodes() -> None:
    # Leaves by falling probability: B, C, F, D, G; 1 - p are 0.5, 0.75, 0.875, 0.9375, 0.9375.
    assert names("t=0.75, nodes=2") == ["B", "C"]
    # B, C and F: A and F have four leaves, one node all five.
    assert names("t=0.875, nodes=2") == ["A", "F"]
    assert names("t=0.875, nodes=3") == ["B", "C", "F"]
    assert names("t=0.875, nodes=1, score=aps") == []
    # Mass before each leaf: 0, 0.5, 0.75, 0.875, 0.9375.
    assert names("t=0.5, nodes=5, score=aps") == ["B", "C"]
    assert names("t=0.75, nodes=5, score=aps") == ["B", "C", "F"]
    assert names("t=0.9, nodes=5, score=aps") == ["A", "F"]
    # The third leaf, one beyond the second, is penalised by 0.125.
    assert names("t=0.875, nodes=5, score=raps, penalty=0.125, k_reg=2") == ["B", "C", "F"]
    assert names("t=0.75, nodes=5, score=raps, penalty=0.125, k_reg=2") == ["B", "C"]
    # Everything is one node: the root, which is no label.
    assert names("t=2, nodes=5") == []


def test_paths_that_may_end_inside_are_covered_at_their_end() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    stopping = Scores(h, [[0.75, 0.25, 0.25, 0.125]])
    # A itself has 0.75 - 0.375 = 0.375, more than B.
    assert decide(stopping, "conformal(t=0.625, nodes=3)").paths() == [["A"]]
    # A and D are all leaves, and so is the root.
    assert decide(stopping, "conformal(t=0.75, nodes=3)").paths() == [[]]
    family = ConformalSets(3)
    assert family.cover_limits(stopping, h.closure([[1, 0, 0, 0]])).tolist() == [0.0]


def test_quantiles_have_the_finite_sample_correction() -> None:
    values = np.arange(1, 11) / 10
    # ceil(11 x 0.9) = 10 of 10; ceil(11 x 0.5) = 6; ceil(11 x 0.95) = 11 is beyond all.
    assert [conformal_quantile(values, share) for share in (0.9, 0.5, 0.95)] == [1.0, 0.6, EVERYTHING]
    # 0.55 x 100 is not quite 55 in floating point.
    assert conformal_quantile(np.arange(99), 0.55) == 54
    assert conformal_quantile([], 0.5) == EVERYTHING


# Slow twins


@st.composite
def with_truth(draw: st.DrawFn, drawn: st.SearchStrategy[Drawn]) -> tuple[Drawn, Any, list[set[int]]]:
    """Draw scores, and the closed truth of each document: the path to a node, or nothing."""
    hierarchy, values = draw(with_scores(drawn))
    ends = [draw(st.integers(ROOT, len(hierarchy) - 1)) for _ in values]
    return hierarchy, values, [hierarchy.slow.closure([end]) if end != ROOT else set() for end in ends]


def slow_limit(h: SlowHierarchy, row: dict[int, float], true: set[int], nodes: int, score: str) -> set[float]:
    """Return the least limit from which on all sets cover; several where the smallest nodes are not the only ones."""
    scores = nested_scores(masses(h, row), score, **PENALTIES)
    if not scores:
        return {0.0}
    for limit in sorted({0.0, *scores.values()}, reverse=True):
        taken = nested_set(scores, limit)
        yes = covers(h, taken, true, nodes)
        if yes == {True}:
            continue
        above = [each for each in scores.values() if each > limit]
        least = min(above, default=EVERYTHING)
        return {least} if yes == {False} else {least, limit, *scores.values(), 0.0}
    return {0.0}


def covers(h: SlowHierarchy, taken: set[int], true: set[int], nodes: int) -> set[bool]:
    """Whether the smallest representations cover the truth: they may differ."""
    found = representations(h, taken, nodes)
    cost = min((len(leaves_at_or_below(h, some)), len(some)) for some in found)
    smallest = [some for some in found if (len(leaves_at_or_below(h, some)), len(some)) == cost]
    return {some == {ROOT} or bool(some & true) for some in smallest}


@examples(60)
@given(with_truth(trees(8)), st.sampled_from(KINDS[1:]))
def test_limits_are_the_least_from_which_on_sets_cover(
    case: tuple[Drawn, Any, list[set[int]]], kind: tuple[int, str]
) -> None:
    drawn, values, truth = case
    family = ConformalSets(*kind, **PENALTIES)
    for scores in both_forms(drawn.fast, values):
        limits = family.cover_limits(scores, matrix_of(truth, len(drawn)))
        for limit, row, true in zip(limits.tolist(), values.tolist(), truth, strict=True):
            assert limit in slow_limit(drawn.slow, dict(enumerate(row)), true, *kind)


@examples(60)
@given(with_truth(trees() | dags()))
def test_limits_of_climbing_are_the_least_from_which_on_the_node_is_true(
    case: tuple[Drawn, Any, list[set[int]]],
) -> None:
    drawn, values, truth = case
    limits = ConformalSets().cover_limits(Scores(drawn.fast, values), matrix_of(truth, len(drawn)))
    for limit, row, true in zip(limits.tolist(), values.tolist(), truth, strict=True):
        right = [t for t in np.arange(9) / 8 if conformal(drawn.slow, dict(enumerate(row)), t) <= true]
        assert limit == min(right)


@examples(100)
@given(data=st.data())
def test_no_representation_has_fewer_leaves(data: st.DataObject) -> None:
    drawn, values = data.draw(with_scores(trees(8)))
    nodes, score = data.draw(st.sampled_from(KINDS[1:]))
    t = data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.875, 1.0]))
    h, scores = drawn.slow, Scores(drawn.fast, values)
    chosen = decide(scores, "conformal", t=t, nodes=nodes, score=score, closed=False, **PENALTIES).csr
    for row, found in zip(values.tolist(), sets_of(chosen, len(drawn)), strict=True):
        taken = nested_set(nested_scores(masses(h, dict(enumerate(row))), score, **PENALTIES), t)
        if not taken:
            assert not found
            continue
        every = representations(h, taken, nodes)
        assert (found or {ROOT}) in every
        cost = [(len(leaves_at_or_below(h, some)), len(some)) for some in (found or {ROOT}, *every)]
        assert cost[0] == min(cost)


@given(with_truth(trees()), st.sampled_from([*KINDS, (2, "random")]))
def test_documents_are_covered_from_their_limit_on(
    case: tuple[Drawn, Any, list[set[int]]], kind: tuple[int, str]
) -> None:
    drawn, values, truth = case
    is_random = kind[1] == "random"
    family = ConformalSets(kind[0], "aps" if is_random else kind[1], randomised=is_random, **PENALTIES)
    scores, true = Scores(drawn.fast, values), matrix_of(truth, len(drawn))
    limits = family.cover_limits(scores, true)
    for more in (0.0, 0.1, 0.5, EVERYTHING):
        sets = sets_of(family.predict(scores, limits + more), len(drawn))
        assert all(not some or some & each for some, each in zip(sets, truth, strict=True))


def many_masses(rng: np.random.Generator, kind: str) -> Any:
    """Draw the probabilities of 100 labels, of which the sum is at most 1."""
    if kind == "spiky":
        return rng.dirichlet(np.full(100, 0.05))
    if kind == "tied":
        return rng.choice([1, 1, 2, 3], 100) / 512
    if kind == "alike":
        return (1 + rng.random(100) / 1e4) / 128
    return rng.random(100) ** 30 * 2.0**-33


@pytest.mark.parametrize("kind", ["spiky", "tied", "alike", "tiny"])
@pytest.mark.parametrize("score", ["lac", "aps"])
def test_many_labels_are_taken_by_falling_probability_and_then_by_id(kind: str, score: str) -> None:
    """Rows this long are sorted in parts, as far as they are wanted: the sets are those of sorting all."""
    rng = np.random.default_rng(0)
    h, values = Hierarchy.flat([f"label {node}" for node in range(100)]), many_masses(rng, kind)
    order = np.argsort(-values, kind="stable")
    ranked = values[order]
    limits = 1 - ranked if score == "lac" else np.concatenate([[0.0], np.cumsum(ranked)[:-1]])
    scores = Scores(h, values[None, :])
    family = ConformalSets(100, score)
    for rank in (0, 1, 2, 5, 40, 98):
        sets = family.predict(scores, np.array([limits[rank]]))
        taken = order[: np.flatnonzero(limits <= limits[rank]).max() + 1]
        # All labels are the root.
        assert sets.indices.tolist() == (sorted(taken.tolist()) if len(taken) < 100 else [])
    true = h.closure(matrix_of([{int(order[40])}], 100))
    # Nodes with equal scores are taken together.
    assert family.cover_limits(scores, true)[0] == limits[np.flatnonzero(limits >= limits[40]).min()]


# Groups, settings, refusals


def test_groups_have_limits_of_their_own() -> None:
    family = ConformalSets(group="top")
    scores = Scores.from_leaves(TREE, LEAVES, [[0.5, 0.25, 0, 0.125, 0.125], [0.25, 0.125, 0.125, 0.5, 0]])
    groups, count = family.groups_of(scores)
    assert (groups.tolist(), count) == ([0, 1], 2)
    assert decide(scores, "conformal(t=[0.4, 0.5], group=top)").paths() == [["A > B"], []]
    deep = Hierarchy.from_paths(["A > B", "C"])
    assert ConformalSets(group="level").groups_of(Scores(deep, [[0.5, 0.5, 0.25], [0, 1, 0], [0, 0, 0]]))[
        0
    ].tolist() == [0, 0, -1]


def test_random_shares_depend_on_the_scores_alone() -> None:
    rng = np.random.default_rng(0)
    scores = Scores.from_leaves(TREE, LEAVES, rng.dirichlet(np.ones(5), 200))
    rule = "conformal(t=0.7, nodes=3, score=aps, randomised=true)"
    whole = decide(scores, rule).csr.toarray()
    apart = [decide(scores[row : row + 1], rule).csr.toarray()[0] for row in range(200)]
    csr = decide(Scores(TREE, scores.csr()), rule).csr.toarray()
    assert (whole == apart).all()
    assert (whole == csr).all()
    assert (whole != decide(scores, rule, seed=1).csr.toarray()).any()
    # Half of its own probability on average: between none and all of it.
    sizes = [
        decide(scores, f"conformal(t=0.7, nodes=5, score=aps{more})").csr.nnz for more in ("", ", randomised=true")
    ]
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("conformal@0.9", "has to be calibrated on validation data first"),
        ("conformal(t=0.5, score=margin)", "score = 'margin', expected one of lac, aps, raps"),
        ("conformal(t=0.5, group=colour)", "group = 'colour', expected one of top, level"),
        ("conformal(t=0.5, randomised=true)", "the score lac is never randomised"),
        ("conformal(t=0.5, nodes=0)", "nodes = 0, expected a whole number of at least 1"),
        ("conformal(t=-1)", "t has -1, expected numbers of at least 0"),
        ("conformal(t=[0.5, 0.5, 0.5], group=top)", "t has 3 numbers, expected 2"),
        ("conformal(t=0.5, coverage=7)", "coverage = 7, expected a share above 0 and below 1"),
        ("conformal(t=0.5, nodes=2, penalty=7)", "penalty = 7, expected a number from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(rule: str, message: str) -> None:
    with pytest.raises(TreelabelError, match=message.replace("[", r"\[")):
        decide(SCORES, rule)


def test_a_dag_is_climbed_and_its_leaf_sets_refused() -> None:
    dag = Hierarchy.from_edges([("A", "C"), ("B", "C")])
    scores = Scores(dag, [[0.75, 0.5, 0.25]])
    assert decide(scores, "conformal(t=0.5)").names() == [["A"]]
    with pytest.raises(TreelabelError, match="sets of leaves need a tree, but the hierarchy is a DAG"):
        decide(scores, "conformal(t=0.5, nodes=2)")


# Coverage by simulation

WIDE = Hierarchy.from_paths(
    [f"{top} > {top}{mid} > {top}{mid}{leaf}" for top in "ABC" for mid in "xy" for leaf in "12"] + ["D > Dz", "E"]
)
DRAWS = 300


def simulated(rng: np.random.Generator, documents: int) -> tuple[Scores, Any]:
    """Draw overconfident scores of leaves, of which some paths end above, and the closed truth."""
    p = rng.dirichlet(np.full(len(WIDE.leaves), 0.3), documents)
    true = WIDE.leaves[(rng.random((documents, 1)) < p.cumsum(axis=1)).argmax(axis=1)]
    stops = (rng.random(documents) < 0.1) & (WIDE.parent[true] >= 0)
    sharp = p**1.5 / (p**1.5).sum(axis=1, keepdims=True)
    return Scores.from_leaves(WIDE, WIDE.leaves, sharp), np.where(stops, WIDE.parent[true], true)


@pytest.mark.parametrize("documents", [50, 200, 1000])
@pytest.mark.parametrize("coverage", [0.7, 0.9])
@pytest.mark.parametrize(
    "family",
    [
        ConformalSets(),
        ConformalSets(2),
        ConformalSets(1, "aps"),
        ConformalSets(3, "aps"),
        ConformalSets(3, "aps", randomised=True),
        ConformalSets(3, "raps"),
        ConformalSets(3, "raps", randomised=True),
        ConformalSets(group="top"),
        ConformalSets(2, group="top"),
        ConformalSets(group="level"),
        ConformalSets(3, "raps", group="level"),
    ],
    ids=str,
)
@pytest.mark.slow
def test_coverage_lies_within_its_binomial_bounds(family: ConformalSets, coverage: float, documents: int) -> None:
    """Draw validation documents and one new one many times: each group's share of covered new ones is as promised.

    A new document is covered if its limit is at most that of the others; exactly coverage to coverage + 1 / (n + 1) of
    them would be if no two limits were equal. Equal ones cover more.
    """
    rng = np.random.default_rng(documents)
    scores, ends = simulated(rng, min(DRAWS * (documents + 1), 60_000))
    truth = WIDE.closure(matrix_of([{int(end)} for end in ends], len(WIDE)))
    limits, (groups, count) = family.cover_limits(scores, truth), family.groups_of(scores)
    covered: list[list[bool]] = [[] for _ in range(count)]
    for _ in range(DRAWS):
        drawn = rng.choice(len(limits), documents + 1, replace=False)
        valid, new = drawn[:-1], drawn[-1]
        t = conformal_quantile(limits[valid[groups[valid] == groups[new]]], coverage)
        covered[groups[new]].append(bool(limits[new] <= t))
    for outcomes in (each for each in covered if each):
        # One of 10,000 draws of an exact coverage has fewer.
        assert sum(outcomes) >= scipy.stats.binom.ppf(1e-4, len(outcomes), coverage)
    if family.group is None and family.randomised:
        most = coverage + 1 / (documents + 1)
        assert sum(covered[0]) <= scipy.stats.binom.ppf(1 - 1e-4, DRAWS, min(1.0, most + 0.02))


def test_calibration_measures_on_other_documents() -> None:
    rng = np.random.default_rng(5)
    scores, ends = simulated(rng, 2000)
    truth = WIDE.closure(matrix_of([{int(end)} for end in ends], len(WIDE)))
    for family in (ConformalSets(), ConformalSets(3, "aps"), ConformalSets(2, group="top")):
        t, costs = calibrate_sets(scores, truth, family, 0.9)
        new, new_ends = simulated(rng, 4000)
        new_truth = WIDE.closure(matrix_of([{int(end)} for end in new_ends], len(WIDE)))
        found = measure_sets(new, new_truth, family.predict(new, family.limits_of(new, t)), 0.9)
        assert found.covered == pytest.approx(0.9, abs=0.03)
        assert costs.covered == pytest.approx(0.9, abs=0.03)
        assert costs.leaves == pytest.approx(found.leaves, rel=0.1)


def test_several_paths_are_refused() -> None:
    scores = Scores(TREE, np.full((4, len(TREE)), 0.5))
    with pytest.raises(TreelabelError, match="4 of 4 validation documents have several most specific labels"):
        tune([["B", "F"]] * 4, scores, "conformal(coverage=0.9)")


# What an attacker would try


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("documents", [1, 8, 9, 29])
def test_few_documents_promise_no_more_than_they_can(kind: tuple[int, str], documents: int) -> None:
    """Of n documents, n / (n + 1) is the most that a finite limit can promise."""
    scores = Scores.from_leaves(TREE, LEAVES, [[0.5, 0.25, 0.0625, 0.125, 0.0625]] * documents)
    rule = tune([["B"]] * documents, scores, f"conformal(coverage=0.9, nodes={kind[0]}, score={kind[1]})")
    assert (rule.settings["t"] == EVERYTHING) == (documents < 9)
    assert decide(scores[:1], rule).paths() == [[]] if documents < 9 else [["A > B"]]


@pytest.mark.parametrize("kind", KINDS)
def test_documents_whose_scores_are_all_equal_are_covered(kind: tuple[int, str]) -> None:
    scores = Scores.from_leaves(TREE, LEAVES, np.full((60, 5), 0.2))
    truth = [[name] for name in LEAVES] * 12
    rule = tune(truth, scores, f"conformal(coverage=0.8, nodes={kind[0]}, score={kind[1]})")
    assert evaluate(truth, scores=scores, rule=rule, metrics=["set_coverage"])["set_coverage"] >= 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_a_true_leaf_that_is_not_stored_is_covered_from_above(kind: tuple[int, str]) -> None:
    rng = np.random.default_rng(0)
    scores = Scores.from_leaves(TREE, LEAVES, rng.dirichlet(np.ones(5), 300)).top_k(2)
    truth = [[LEAVES[leaf]] for leaf in rng.integers(0, 5, 300)]
    rule = tune(truth, scores, f"conformal(coverage=0.9, nodes={kind[0]}, score={kind[1]})")
    assert evaluate(truth, scores=scores, rule=rule, metrics=["set_coverage"])["set_coverage"] >= 0.9
    assert rule.measured["share of documents covered"] >= 0.85


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_truth_inside_and_documents_without_a_label(score: str) -> None:
    rng = np.random.default_rng(0)
    scores = Scores.from_leaves(TREE, LEAVES, rng.dirichlet(np.ones(5), 200))
    truth: list[list[str]] = [["A"], ["B"], ["G"], []] * 50
    rule = tune(truth, scores, f"conformal(coverage=0.9, nodes=2, score={score})")
    labelled = [row for row, labels in enumerate(truth) if labels]
    judged = evaluate([truth[row] for row in labelled], scores=scores[labelled], rule=rule, metrics=["set_coverage"])
    assert judged["set_coverage"] >= 0.9
    # Documents without a label promise nothing of those with one.
    alone = tune([truth[row] for row in labelled], scores[labelled], f"conformal(coverage=0.9, nodes=2, score={score})")
    assert alone.settings["t"] == rule.settings["t"]
    with pytest.raises(TreelabelError, match="no validation document has a label, so there is nothing to cover"):
        tune([[]] * 200, scores, "conformal(coverage=0.9)")


def test_a_tuned_rule_is_used_as_it_was_tuned() -> None:
    scores = Scores.from_leaves(TREE, LEAVES, [[0.5, 0.25, 0.0625, 0.125, 0.0625]] * 20)
    rule = tune([["B"]] * 20, scores, "conformal(coverage=0.9)")
    for settings in ({"nodes": 3}, {"coverage": 0.5}, {"t": 0.1}):
        with pytest.raises(TreelabelError, match="is used as it was tuned"):
            decide(scores, rule, **settings)
    assert decide(scores[:1], rule, unknown=0.5, closed=False).paths() == [["A > B"]]
