"""Risk control: thresholds by hand and against a slow search, bounds, and what is promised by simulation."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import matrix_of
from tests.strategies import Drawn, examples, hierarchies, with_scores
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, decide, tune
from treelabel.rules.risk_bounds import GRID, binomial_p_values, bounded_p_values, last_precise
from treelabel.rules.risk_control import RiskControl

FLAT = Hierarchy.flat("abcd")


# By hand


def test_the_expected_recall_by_hand() -> None:
    # One label each, with scores 0.1, 0.2, ..., 0.9 of the true one: with nine documents and one more that may be
    # missed, at most 0.3 x 10 - 1 = 2 may be.
    values = np.zeros((9, 4))
    values[:, 0] = np.arange(1, 10) / 10
    truth = [["a"]] * 9
    tuned = tune(truth, Scores(FLAT, values), "risk_control(at_least=0.7)")
    assert tuned.settings["t"] == pytest.approx(0.3)
    assert tuned.measured["promise"] == "in expectation, at least 0.7 of a document's true labels are predicted"
    # Two labels of a document count half each.
    two = np.zeros((9, 4))
    two[:, 0], two[:, 1] = np.arange(1, 10) / 10, 1.0
    tuned = tune([["a", "b"]] * 9, Scores(FLAT, two), "risk_control(at_least=0.7)")
    assert tuned.settings["t"] == pytest.approx(0.5)
    with pytest.raises(TreelabelError, match=r"recall of 0.95 on 9 validation documents \(the most .* is 0.900\)"):
        tune(truth, Scores(FLAT, values), "risk_control(at_least=0.95)")


def test_recall_in_bits_by_hand() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C"])
    train = Dataset.of(["", "", "", ""], [["B"], ["B"], ["B"], ["C"]], h)
    # A is in all, and has no information: B has log2(4/3), and only B can be missed.
    scores = Scores(h, [[0.9, 0.1 * place, 0.0] for place in range(1, 10)])
    rule = "risk_control(metric=info_recall, at_least=0.7)"
    assert tune([["B"]] * 9, scores, rule, train).settings["t"] == pytest.approx(0.3)
    assert tune([["B"]] * 9, scores, rule.replace("info_", "")).settings["t"] == pytest.approx(0.5)
    with pytest.raises(TreelabelError, match="info_recall needs to know how rare labels are in training"):
        tune([["B"]] * 9, scores, rule)


def test_a_share_without_false_labels_is_tested_exactly() -> None:
    # 100 documents, all right above 0.5; 0.9^100 is far below 0.05. Below, all are wrong.
    values = np.concatenate([np.full(100, 0.9), np.full(100, 0.3)])
    scores = Scores(FLAT, np.stack([values, *[np.zeros(200)] * 3], axis=1))
    truth = [["a"]] * 100 + [["b"]] * 100
    for metric in ("correct", "precision"):
        t = tune(truth, scores, f"risk_control(metric={metric})").settings["t"]
        assert 0.3 < t <= 0.9
        assert t == min(each for each in GRID if each > 0.3)
        assert [bool(each) for each in decide(scores, "risk_control", t=t).names()] == [True] * 100 + [False] * 100
    # Of 20 documents nobody can tell.
    with pytest.raises(TreelabelError, match=r"no threshold has a correct of 0.9 with a confidence of 0.95"):
        tune(truth[:20], scores[:20], "risk_control(metric=correct)")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("risk_control(metric=hf1)", "metric = 'hf1', expected one of recall, info_recall, precision, correct"),
        ("risk_control@1", "at_least = 1, expected a share above 0 and below 1"),
        ("risk_control(confidence=1)", "confidence = 1, expected a share above 0 and below 1"),
        ("risk_control(t=0.5)", "t is what is to be found; expected what it must reach, as in risk_control"),
    ],
)
def test_what_cannot_be_is_refused(rule: str, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        tune([["a"]] * 4, Scores(FLAT, np.full((4, 4), 0.5)), rule)
    with pytest.raises(TreelabelError, match="has to be calibrated on validation data first"):
        decide(Scores(FLAT, np.full((1, 4), 0.5)), "risk_control@0.9")


# Slow twins


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0, 1)), min_size=1), st.sampled_from([0.5, 0.9]))
def test_p_values_are_those_of_binomial_tests(cases: list[tuple[int, float]], mean: float) -> None:
    tries = np.array([count for count, _ in cases])
    hits = np.floor(tries * [share for _, share in cases])
    expected = [
        scipy.stats.binomtest(int(hit), int(count), mean, "greater").pvalue
        for hit, count in zip(hits, tries, strict=True)
    ]
    assert binomial_p_values(hits, tries, mean) == pytest.approx(expected)
    bound = bounded_p_values(hits, tries, mean)
    assert (bound >= np.array(expected) - 1e-12).all()
    assert (bound <= np.e * np.array(expected) + 1e-9).all()


@pytest.mark.parametrize("shape", [(0.5, 0.5), (9, 1), (1, 1)])
def test_bounds_of_shares_hold(shape: tuple[float, float]) -> None:
    """Of means that do not exceed what is claimed, at most 5% may be taken to: here none of the shares is above it."""
    rng = np.random.default_rng(0)
    mean = shape[0] / sum(shape)
    sums = rng.beta(*shape, (2000, 100)).sum(axis=1)
    assert (bounded_p_values(sums, np.full(2000, 100), mean) <= 0.05).mean() <= 0.05


@st.composite
def with_any_truth(draw: st.DrawFn) -> tuple[Drawn, Any, list[set[int]]]:
    """Draw scores and closed truth on any paths, several times over, so that something can be promised."""
    drawn, values = draw(with_scores(hierarchies()))
    labels = st.sets(st.integers(0, len(drawn) - 1), max_size=3)
    truth = [drawn.slow.closure(draw(labels)) for _ in values]
    return drawn, np.tile(values, (6, 1)), truth * 6


@examples(60)
@given(with_any_truth(), st.sampled_from([0.3, 0.5, 0.8]))
def test_no_larger_threshold_has_the_expected_recall(case: tuple[Drawn, Any, list[set[int]]], at_least: float) -> None:
    drawn, values, truth = case
    scores, true = Scores(drawn.fast, values), matrix_of(truth, len(drawn))

    def risk(t: float) -> float:
        predicted = decide(scores, "risk_control", t=t).csr.toarray()
        missed = [
            len(y - set(np.flatnonzero(row))) / len(y) if y else 0.0 for y, row in zip(truth, predicted, strict=True)
        ]
        return (sum(missed) + 1) / (len(truth) + 1)

    allowed = [t for t in np.arange(1, 9) / 8 if len(truth) and risk(t) <= 1 - at_least + 1e-9]
    of_truth = [t for t in allowed if any(q == t for q in scores.coherent().look_up(true).tolist())]
    control = RiskControl("recall", at_least)
    if of_truth:
        assert control.find_threshold(scores, true) == max(of_truth)
    else:
        with pytest.raises(TreelabelError, match="no threshold has a recall"):
            control.find_threshold(scores, true)


# What is promised

LEAVES = 30


def simulated(rng: np.random.Generator, documents: int) -> tuple[Scores, Any, Any]:
    """Draw several labels each, of independent probabilities that are too large, and the true ones."""
    h = Hierarchy.from_paths([f"{leaf % 6} > {leaf % 6}.{leaf}" for leaf in range(LEAVES)])
    p = rng.beta(0.3, 2, (documents, LEAVES))
    true = np.zeros((documents, len(h)), np.bool_)
    true[:, h.leaves] = rng.random((documents, LEAVES)) < p
    values = np.zeros((documents, len(h)))
    values[:, h.leaves] = p**0.7
    return Scores(h, values).coherent(), h.closure(true), h


@pytest.mark.parametrize("documents", [50, 200])
@pytest.mark.parametrize("at_least", [0.7, 0.9])
@pytest.mark.slow
def test_the_expected_recall_is_reached(documents: int, at_least: float) -> None:
    rng = np.random.default_rng(documents)
    scores, truth, _ = simulated(rng, 20_000)
    control, reached = RiskControl("recall", at_least), []
    for _ in range(200):
        drawn = rng.permutation(len(scores))[: documents + 50]
        valid, new = drawn[:documents], drawn[documents:]
        t = control.find_threshold(scores[valid], truth[valid])
        reached.append(control.measure(scores[new], truth[new], t)[0].mean())
    error = np.std(reached) / np.sqrt(len(reached))
    assert np.mean(reached) >= at_least - 3.5 * error
    assert np.mean(reached) <= at_least + 1 / documents + 0.02


@pytest.mark.parametrize("metric", ["recall", "precision", "correct"])
@pytest.mark.slow
def test_what_is_promised_with_a_confidence_is_rarely_missed(metric: str) -> None:
    rng = np.random.default_rng(7)
    scores, truth, _ = simulated(rng, 20_000)
    control = RiskControl(metric, {"recall": 0.8, "precision": 0.7, "correct": 0.6}[metric], 0.9)
    misses, found = 0, 0
    for _ in range(100):
        valid = rng.permutation(len(scores))[:400]
        try:
            t = control.find_threshold(scores[valid], truth[valid])
        except TreelabelError:
            continue
        found += 1
        misses += bool(np.nanmean(control.measure(scores, truth, t)[0]) < control.at_least)
    assert found > 50
    assert misses <= scipy.stats.binom.ppf(0.999, found, 0.1)


def test_tests_of_shares_need_more_documents_than_exact_ones() -> None:
    hits, tries = [40], [40]
    assert last_precise(hits, tries, 0.9, 0.9) == 0
    assert last_precise(hits, tries, 0.9, 0.9, are_shares=True) == 0
    assert last_precise([39], [40], 0.9, 0.9, are_shares=True) == -1


def test_scores_of_nothing_promise_nothing() -> None:
    nothing = Scores(FLAT, np.zeros((60, 4)))
    for rule in ("at_least=0.9", "metric=precision, at_least=0.9", "metric=correct, at_least=0.9"):
        with pytest.raises(TreelabelError, match="no threshold has a"):
            tune([["a"]] * 60, nothing, f"risk_control({rule})")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("t=0.5, at_least=2", "at_least = 2, expected a share above 0 and below 1"),
        ("t=0.5, metric=recalls", "metric = 'recalls', expected one of recall, info_recall, precision, correct"),
        ("t=0.5, confidence=1", "confidence = 1, expected a share above 0 and below 1"),
        ("t=0", "expected a threshold above 0, found 0"),
        ("t=2", "expected a threshold of at most 1, found 2"),
    ],
)
def test_damaged_settings_are_refused(settings: str, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        decide(Scores(FLAT, np.full((1, 4), 0.5)), f"risk_control({settings})")
