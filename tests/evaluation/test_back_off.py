"""Backing off with a required precision: thresholds by level against brute force, the promise, and what it costs."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.test_tuning import Validation, both_forms, validation
from tests.reference import matrix_of
from tests.reference_rules import back_off
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, back_off_table, decide, tune
from treelabel.evaluation.statistics import binomial_interval
from treelabel.hierarchy.label_ids import encode
from treelabel.rules.back_off import NEVER, LeafPaths, precise_thresholds
from treelabel.rules.risk_bounds import FIRST_TEST, last_precise

H = Hierarchy.from_paths(["A > B", "A > C", "D"])
SCORES = Scores(H, [[0.9, 0.1, 0.6, 0.3], [0.8, 0.2, 0.3, 0.5], [0.3, 0.7, 0.2, 0.1], [0.6, 0.3, 0.4, 0.2]])
TRUTH = [["B"], ["C"], ["D"], ["D"]]


# Thresholds by level


def predictions(case: Validation, t: list[float]) -> list[tuple[int, bool]]:
    """The depth of what the slow twin predicts for each document that gets a label, and whether it is right."""
    drawn, values, truth = case
    found = [back_off(drawn.slow, dict(enumerate(row)), t) for row in values.tolist()]
    return [
        (drawn.slow.longest_depth(min(labels)), labels <= true)
        for labels, true in zip(found, truth, strict=True)
        if labels
    ]


def smallest(case: Validation, t: list[float], depth: int, precision: float) -> float:
    """The smallest score that is a threshold of a level, given those below, by trying all of them."""
    for cut in sorted(set(case[1][case[1] > 0].tolist())):
        tried = [NEVER] * (depth - 1) + [cut] + t[depth:]
        right = [is_right for at, is_right in predictions(case, tried) if at == depth]
        if right and np.mean(right) >= precision:
            return float(cut)
    return NEVER


@given(validation(), st.sampled_from([0.25, 0.5, 2 / 3, 0.75, 1.0]))
def test_every_level_has_the_smallest_threshold_that_is_precise_enough(case: Validation, precision: float) -> None:
    levels = case[0].fast.max_depth
    expected = [NEVER] * levels
    for depth in range(levels, 0, -1):
        expected[depth - 1] = smallest(case, expected, depth, precision)
    for scores in both_forms(case):
        ways = LeafPaths.of(scores, matrix_of(case[2], len(case[0])))
        if not predictions(case, expected):
            with pytest.raises(TreelabelError, match=r"no leaf has a score above 0|no thresholds reach a precision"):
                precise_thresholds(ways, precision, confidence=0)
            continue
        t = precise_thresholds(ways, precision, confidence=0)
        # Scores off the ways of the best leaves are thresholds, too, at which nothing changes.
        assert predictions(case, t.tolist()) == predictions(case, expected)
        assert ways.is_right[ways.predictions(t)].sum() == sum(right for _, right in predictions(case, expected))


def test_backing_off_by_hand() -> None:
    # Columns are A, D, B, C. Ways up: B 0.6 A 0.9 | C 0.5 A 0.8 | D 0.7 | B 0.4 A 0.6, wrong all the way.
    tuned = tune(TRUTH, SCORES, "back_off(precision=0.9, confidence=0)")
    assert tuned.rule == "back_off"
    assert tuned.settings["t"] == pytest.approx([0.7, 0.5])
    assert decide(SCORES, tuned).names() == [["A", "B"], ["A", "C"], ["D"], []]
    lower = tune(TRUTH, SCORES, "back_off(precision=0.6, confidence=0)")
    assert lower.settings["t"] == pytest.approx([0.7, 0.4])
    assert decide(SCORES, lower).names() == [["A", "B"], ["A", "C"], ["D"], ["A", "B"]]


def test_other_settings_stay_with_the_rule() -> None:
    tuned = tune(TRUTH, SCORES, "back_off(precision=0.9, confidence=0, unknown=0.85)")
    assert tuned.settings.keys() == {"t", "unknown"}
    found = decide(SCORES, tuned)
    assert found.unknown is not None
    assert found.unknown.tolist() == [False, True, True, True]


@pytest.mark.parametrize("precision", [0, -0.5, 1.5, 95])
def test_a_required_precision_is_a_share(precision: float) -> None:
    with pytest.raises(TreelabelError, match=f"precision = {precision}, expected a share above 0 and at most 1"):
        tune(TRUTH, SCORES, f"back_off(precision={precision})")


@pytest.mark.parametrize("confidence", [-0.1, 1, 90])
def test_a_confidence_is_a_share_below_1(confidence: float) -> None:
    with pytest.raises(TreelabelError, match=f"confidence = {confidence}, expected a share from 0 to below 1"):
        tune(TRUTH, SCORES, f"back_off(confidence={confidence})")


def test_what_few_documents_cannot_promise_is_refused() -> None:
    message = (
        "no thresholds reach a precision of 0.9 with a confidence of 0.9 on 4 validation documents; ask for less, or "
        "give more documents"
    )
    with pytest.raises(TreelabelError, match=message):
        tune(TRUTH, SCORES, "back_off(precision=0.9)")


# The promise


def simulated(seed: int, documents: int, form: str = "tree") -> tuple[Scores, Any]:
    """Draw calibrated scores of leaves and the leaf that is true."""
    rng = np.random.default_rng(seed)
    paths = [f"{top} > {top}{mid} > {top}{mid}{leaf}" for top in "ABC" for mid in "xy" for leaf in "12"]
    h = Hierarchy.from_paths(paths)
    if form == "dag":
        h = Hierarchy.from_edges([*h.edges("Root"), ("Ax", "By1"), ("Cx", "Ay2")], root="Root")
    leaves = rng.dirichlet(np.full(len(h.leaves), 0.03), documents)
    true = [[h.names[h.leaves[rng.choice(len(h.leaves), p=row)]]] for row in leaves]
    return Scores.from_leaves(h, h.leaves, leaves), true


@pytest.mark.parametrize("form", ["tree", "dag"])
@pytest.mark.parametrize("required", [0.8, 0.9, 0.95])
@pytest.mark.slow
def test_what_is_promised_on_validation_documents_holds_on_many_others(form: str, required: float) -> None:
    scores, truth = simulated(1000, 20_000, form)
    ways = LeafPaths.of(scores, scores.hierarchy.closure(encode(scores.hierarchy, truth)))
    reached = []
    for seed in range(40):
        found, true = simulated(seed, 1000, form)
        try:
            t = precise_thresholds(
                LeafPaths.of(found, found.hierarchy.closure(encode(found.hierarchy, true))), required
            )
        except TreelabelError:
            continue
        reached.append(ways.outcomes(t)[0].mean())
    # At most 10% may miss it; more than 8 of 40 would by chance in 2% of such tests.
    assert sum(share < required for share in reached) <= 8
    assert len(reached) >= 36


def slow_last(hits: list[int], tries: list[int], precision: float, confidence: float) -> int:
    """Test candidates one after the other, with the level that is left."""
    fewest = np.log(1 - confidence) / np.log(precision) * FIRST_TEST
    starts = [
        next(at for at, count in enumerate(tries) if count >= fewest * 2**double)
        for double in range(20)
        if max(tries) >= fewest * 2**double
    ]
    level, last = 0.0, -1
    for at, (hit, count) in enumerate(zip(hits, tries, strict=True)):
        level += starts.count(at) * (1 - confidence) / max(1, len(starts))
        p = scipy.stats.binomtest(hit, count, precision, "greater").pvalue if count else 1.0
        last, level = (at, level) if p <= level else (last, 0.0)
    return last


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=12), st.sampled_from([0.8, 0.9]))
def test_candidates_are_tested_in_their_order(steps: list[tuple[int, int]], precision: float) -> None:
    tries = np.cumsum([count for count, _ in steps]).tolist()
    wrong = np.cumsum([min(count, misses) for count, misses in steps])
    hits = (np.array(tries) - wrong).tolist()
    assert last_precise(hits, tries, precision, 0.9) == slow_last(hits, tries, precision, 0.9)


@pytest.mark.parametrize("documents", [200, 1000])
def test_a_precision_that_is_nowhere_reached_is_rarely_promised(documents: int) -> None:
    """Draw documents of which 94.5% are right however sure one is: at most 10% of 400 samples may promise 95%."""
    rng = np.random.default_rng(0)
    tries = np.arange(1, documents + 1)
    found = [last_precise(np.cumsum(rng.random(documents) < 0.945), tries, 0.95, 0.9) for _ in range(400)]
    assert np.mean([at >= 0 for at in found]) <= 0.1


@pytest.mark.parametrize(("hits", "tries"), [(0, 10), (7, 10), (10, 10), (950, 1000)])
def test_intervals_are_those_of_clopper_and_pearson(hits: int, tries: int) -> None:
    both = scipy.stats.binomtest(hits, tries).proportion_ci(0.95, "exact")
    found = binomial_interval(hits, tries)
    assert (found.low, found.high) == pytest.approx((both.low, both.high))


# The table


def test_the_table_is_measured_on_documents_that_thresholds_were_not_found_on() -> None:
    # Noise: whatever is found precise on some documents is not on others.
    rng = np.random.default_rng(0)
    h = Hierarchy.flat("ab")
    noise = rng.random(2000)
    scores = Scores(h, np.stack([noise, 1 - noise], axis=1))
    truth = [["a" if coin else "b"] for coin in rng.random(2000) < 0.5]
    (row,) = back_off_table(truth, scores, [0.6], confidence=0).rows
    t = tune(truth, scores, "back_off(precision=0.6, confidence=0)")
    right = [found == true for found, true in zip(decide(scores, t).names(), truth, strict=True) if found]
    assert np.mean(right) >= 0.6
    assert not row.precision.value >= 0.6


def test_a_larger_precision_costs_coverage_and_is_reached() -> None:
    scores, truth = simulated(3, 3000)
    table = back_off_table(truth, scores)
    assert [row.required for row in table.rows] == [0.8, 0.85, 0.9, 0.95, 0.98, 0.99]
    leaves = [row.leaf_coverage for row in table.rows]
    assert leaves == sorted(leaves, reverse=True)
    for row in table.rows:
        assert row.precision.low <= row.precision.value <= row.precision.high
        assert row.precision.high >= row.required
        assert row.leaf_coverage <= row.coverage <= 1
    assert len(str(table).splitlines()) == 8


def test_what_no_document_gets_is_shown_as_unknown() -> None:
    (row,) = back_off_table(TRUTH, SCORES, [0.99]).rows
    assert (row.coverage, row.leaf_coverage) == (0, 0)
    assert row.to_json()["precision"] is None
    assert row.to_json()["mean depth"] is None
    assert "0.99      0.0%          0.0%         -           -" in str(back_off_table(TRUTH, SCORES, [0.99]))


def test_what_tune_measured_is_the_row_of_the_table() -> None:
    scores, truth = simulated(4, 500)
    tuned = tune(truth, scores, "back_off(precision=0.9, confidence=0.8)")
    (row,) = back_off_table(truth, scores, [0.9], confidence=0.8).rows
    assert tuned.measured == {**row.to_json(), "confidence": 0.8, "documents": 500}


def test_thresholds_of_the_table_are_found_on_other_groups() -> None:
    h = Hierarchy.flat(["A", "B"])
    rng = np.random.default_rng(0)
    # Copies of a document have one score, and are right together or not at all.
    score = np.repeat(rng.uniform(0.5, 1.0, 60), 10)
    right = np.repeat(rng.random(60) < 0.8, 10)
    scores = Scores(h, np.column_stack([score, 1 - score]))
    labels = [["A"] if each else ["B"] for each in right]
    groups = [str(number // 10) for number in range(600)]
    truth = Dataset.of(["text"] * 600, labels, h, groups=groups)
    scores = Scores(h, scores.dense(), tuple(truth.ids))
    table = back_off_table(truth, scores, [0.8], confidence=0)
    shuffled = back_off_table(labels, Scores(h, scores.dense()), [0.8], confidence=0)
    assert str(table) != str(shuffled)
    assert tune(truth, scores, "back_off(precision=0.8, confidence=0)").measured["precision"] == pytest.approx(
        table.rows[0].precision.value
    )
    # Any two documents of a group are treated alike: by thresholds that neither took part in.
    assert round(table.rows[0].coverage * 600) % 10 == 0
    assert round(table.rows[0].coverage * 600 * table.rows[0].precision.value) % 10 == 0
