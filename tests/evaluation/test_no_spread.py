"""Intervals where every document has the same value: a bootstrap that cannot move must not claim certainty."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from treelabel import Dataset, Hierarchy, Scores, evaluate
from treelabel.evaluation.comparison import compare
from treelabel.evaluation.statistics import binomial_interval, resampled_interval
from treelabel.metrics import METRICS, find_metric
from treelabel.metrics.shared_formulas import least_share
from treelabel.selection.evidence import Evidence, RuleTrial

TREE = Hierarchy.from_paths(["A > C", "A > D", "B"])
SHARES = ["hf1", "subset_accuracy", "leaf_accuracy", "level_accuracy[1]", "level_accuracy[2]"]
OTHERS = ["shortest_path", "micro_f1", "level_accuracy", "icm"]


@given(st.integers(1, 10_000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
@examples(50)
def test_the_bound_is_that_of_clopper_and_pearson(tries: int, level: float) -> None:
    assert least_share(tries, level) == pytest.approx(binomial_interval(tries, tries, level).low, rel=1e-9)
    assert 1 - least_share(tries, level) == pytest.approx(binomial_interval(0, tries, level).high, rel=1e-6)


def test_the_bound_holds_as_often_as_it_says() -> None:
    # At the bound itself, all tries succeed with a chance of 2.5%; below it more rarely.
    for tries in (3, 30, 300):
        assert least_share(tries) ** tries == pytest.approx(0.025)


def test_all_right_is_not_certain() -> None:
    # As many of each, but twice as many of B, which has less information therefore.
    truth = [["C"], ["D"], ["B"], ["B"]] * 10
    result = evaluate(truth, truth, hierarchy=TREE, metrics=["hf1", "subset_accuracy", "leaf_accuracy", *OTHERS])
    shown = result.intervals(resamples=100)
    for name in SHARES:
        # Only the twenty documents below A reach the second level.
        count = 20 if name == "level_accuracy[2]" else 40
        assert shown[name].low == pytest.approx(0.025 ** (1 / count))
        assert shown[name].high == 1
        assert result.interval(name, resamples=100) == shown[name]
    for name in OTHERS[:3]:
        assert math.isnan(shown[name].low)
        assert "never changes it" in shown[name].reason
    assert shown["icm"].low < shown["icm"].high
    assert "[1.0000, 1.0000]" not in result.table(intervals=True)
    assert "(no interval: resampling 40 documents" in result.table(intervals=True)


def test_all_wrong_is_not_certain() -> None:
    result = evaluate([["C"]] * 30, [["B"]] * 30, hierarchy=TREE, metrics=["hf1", "shortest_path"])
    assert result.interval("hf1").low == 0
    assert result.interval("hf1").high == pytest.approx(1 - 0.025 ** (1 / 30))
    assert result.interval("shortest_path").reason


def test_a_value_between_has_no_interval_where_all_documents_have_it() -> None:
    result = evaluate([["C"]] * 30, [["D"]] * 30, hierarchy=TREE, metrics=["hf1"])
    assert result["hf1"] == 0.5
    assert "never changes it" in result.interval("hf1").reason


def test_groups_count_and_not_their_documents() -> None:
    truth = Dataset.of([""] * 30, [["C"]] * 30, TREE, groups=[str(number // 5) for number in range(30)])
    assert evaluate(truth, [["C"]] * 30, metrics=["hf1"]).interval("hf1").low == pytest.approx(0.025 ** (1 / 6))


def test_documents_that_do_not_count_are_not_counted() -> None:
    flat = Hierarchy.flat("ab")
    result = evaluate([["a"]] * 10 + [[]] * 30, scores=Scores(flat, np.tile([[1.0, 0.0]], (40, 1))), metrics="recall@1")
    assert result.interval("recall@1").low == pytest.approx(0.025 ** (1 / 10))


def test_equal_systems_have_a_difference_of_0_without_an_interval() -> None:
    truth = [["C"], ["D"], ["B"]] * 10
    table = compare(truth, {"one": truth, "two": truth}, hierarchy=TREE, metrics=["hf1"], resamples=50)
    assert table.metrics[0].differences[0].difference == 0
    assert math.isnan(table.metrics[0].differences[0].low)
    assert "[1.0000, 1.0000]" not in str(table)
    assert "[0.8843, 1.0000]" in str(table)


def test_values_that_move_have_the_interval_they_had() -> None:
    values = np.random.default_rng(0).random(500)
    assert resampled_interval(values, 0.5, 60) == resampled_interval(values, 0.5, 60, share_of=60)


def test_what_is_called_a_share_lies_between_0_and_1() -> None:
    for name in (
        "icm",
        "shortest_path",
        "shortest_path_sum",
        "macro_auc",
        "resnik",
        "coverage_error",
        "cross_entropy",
        "psp_printed@k",
    ):
        assert not METRICS[name].is_share
    assert find_metric("hf1").is_share
    assert find_metric("precision@3").is_share
    assert not find_metric("micro_f1").is_share
    assert METRICS["level_accuracy"].is_share


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, "1.000 (at least 0.929)"), (0.0, "0.000 (at most 0.071)"), (0.5, "0.500 ± 0.139")]
)
def test_the_line_of_fit_claims_no_certainty(value: float, shown: str) -> None:
    error = 0.0 if value in (0, 1) else (0.25 / 50) ** 0.5
    evidence = Evidence(50, (RuleTrial("best_leaf", value, error, value),))
    line = evidence.describe("best_leaf", "single_path")
    assert f"leaf accuracy {shown}, hF1 {shown}" in line


def test_few_documents_that_are_all_right_need_not_beat_frequent_labels() -> None:
    usual = RuleTrial("most frequent labels", 0.9, 0.01, 0.9)
    few, many = (Evidence(count, (RuleTrial("best_leaf", 1.0, 0.0, 1.0),), most_frequent=usual) for count in (20, 200))
    assert "no better than the most frequent labels" in few.compare_with_most_frequent("best_leaf")
    assert many.compare_with_most_frequent("best_leaf") == ""
