"""Intervals and tests: against theory, scipy, enumeration and slow loops; and the comparison made of them."""

import json
import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from treelabel import Dataset, Hierarchy, Result, Scores, TreelabelError, compare, evaluate
from treelabel.evaluation.comparison import compare_metric
from treelabel.evaluation.significance import (
    Comparison,
    binned_t_tests,
    exchange_test,
    exchanged_sums,
    holm,
    macro_t_test,
    micro_sign_test,
    permutation_test,
    relative_improvement,
)
from treelabel.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    bootstrap_sums,
    resampled_interval,
    seed_interval,
)

Numbers = npt.NDArray[np.float64]


def parts_of(values: Numbers) -> list[Numbers]:
    """Give values of documents as the parts of their mean."""
    return [np.stack([values, np.ones(len(values))], axis=1)]


def mean(sums: tuple[Any, ...]) -> float:
    total, count = sums[0]
    return float(total / count)


# Bootstrap


def test_the_interval_of_a_mean_is_that_of_normal_theory() -> None:
    values = np.random.default_rng(0).normal(3, 2, 500)
    found = bootstrap_interval(parts_of(values), mean, resamples=2000)
    reach = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - reach, abs=0.1 * reach)
    assert found.high == pytest.approx(values.mean() + reach, abs=0.1 * reach)
    assert found.level == 0.95


def test_the_interval_widens_with_the_level_and_narrows_with_documents() -> None:
    values = np.random.default_rng(0).random(400)

    def width(of: Numbers, level: float) -> float:
        found = bootstrap_interval(parts_of(of), mean, level=level)
        return found.high - found.low

    assert width(values, 0.99) > width(values, 0.95) > width(values, 0.8)
    assert width(values, 0.95) == pytest.approx(width(values[:100], 0.95) / 2, rel=0.2)


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    parts = parts_of(np.random.default_rng(0).random(50))
    first, again, other = (bootstrap_interval(parts, mean, resamples=100, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        found = bootstrap_interval(parts_of(rng.exponential(1, 60)), mean, resamples=200, seed=seed)
        covered += found.low <= 1 <= found.high
    assert 0.88 <= covered / 200 <= 0.98


def test_all_parts_of_a_resample_are_drawn_alike_dense_or_sparse() -> None:
    rng = np.random.default_rng(0)
    dense = (rng.random((30, 8)) < 0.3).astype(float)
    parts = [dense, sparse.csr_array(dense.astype(bool)), np.ones((30, 1))]
    for one, two, count in bootstrap_sums(parts, 25, seed=3):
        assert one.tolist() == two.tolist()
        assert count.tolist() == [30]


def test_resamples_are_drawn_with_replacement_from_all_documents() -> None:
    drawn = np.array([sums[0] for sums in bootstrap_sums([np.eye(20)], 500)])
    assert drawn.shape == (500, 20)
    assert (drawn.sum(axis=1) == 20).all()
    assert (drawn == 0).mean() == pytest.approx(0.95**20, abs=0.02)
    assert drawn.mean(axis=0) == pytest.approx(np.ones(20), abs=0.25)


def flat_result(each: int, labels: int = 60, rare: int = 0) -> Result:
    """Judge a system that is right in four of five documents of labels with some documents each, rare ones with one."""
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(labels), np.where(np.arange(labels) < rare, 1, each))
    predicted = np.where(rng.random(len(true)) < 0.8, true, rng.integers(0, labels, len(true)))
    truth, decisions = ([[str(label)] for label in side] for side in (true, predicted))
    metrics = ["macro_f1", "micro_f1", "macro_f1_by_decile", "macro_f1_present"]
    return evaluate(truth, decisions, hierarchy=Hierarchy.flat(map(str, range(labels))), metrics=metrics)


def test_the_interval_of_a_macro_average_is_moved_by_the_bootstraps_bias_and_holds_its_value() -> None:
    result = flat_result(6)
    drawn = result.bootstrap_values("macro_f1")
    found = result.interval("macro_f1")
    # Labels fall out of resamples, which lie below the sample as the sample lies below the population.
    assert drawn.mean() < result["macro_f1"] - drawn.std() / 2
    assert found.low < result["macro_f1"] < (found.low + found.high) / 2
    assert found.high == pytest.approx(2 * result["macro_f1"] - 2 * drawn.mean() + np.quantile(drawn, 0.975), abs=0.001)


@pytest.mark.parametrize(("rare", "reason"), [(12, ""), (13, "22% of the labels have fewer than 5 documents")])
@pytest.mark.slow
def test_averages_over_labels_with_few_documents_have_no_interval_and_say_why(rare: int, reason: str) -> None:
    result = flat_result(6, rare=rare)
    found = result.interval("macro_f1")
    assert found.reason == reason
    assert math.isnan(found.low) == math.isnan(found.high) == bool(reason)
    assert result.interval("micro_f1").reason == ""
    assert (f"(no interval: {reason})" in result.table(intervals=True)) == bool(reason)
    # Labels of a part count for that part: by frequency in the truth, the rarest come first.
    expected = {"macro_f1_by_decile[1]", "macro_f1_by_decile[2]"}
    expected |= {"macro_f1", "macro_f1_present", "macro_f1_by_decile"} if reason else set()
    assert {name for name, each in result.intervals().items() if each.reason} == expected


def test_labels_without_a_document_count_as_thin_unless_they_are_left_out() -> None:
    truth = [["0"]] * 6 + [["1"]] * 6
    result = evaluate(truth, truth, hierarchy=FLAT, metrics=["macro_f1", "macro_f1_present"])
    assert result.interval("macro_f1").reason == "92% of the labels have fewer than 5 documents"
    assert result.interval("macro_f1_present").reason == (
        "resampling 12 documents or groups never changes it, which shows no spread"
    )


def test_asking_for_intervals_leaves_parts_as_they_are() -> None:
    """Parts may share their indices, which comparing sparse arrays would sort in place."""
    rng = np.random.default_rng(0)
    truth = [[str(label)] for label in rng.integers(0, 24, 40)]
    first, second = (
        evaluate(truth, scores=Scores(FLAT, rng.random((40, 24))), metrics=["macro_f1@5"]) for _ in range(2)
    )
    value = first["macro_f1@5"]
    compare_metric("macro_f1@5", first, second, resamples=5)
    assert first.interval("macro_f1@5", resamples=5).value == value


@pytest.mark.parametrize("groups", [3, 5, 10])
@pytest.mark.slow
def test_few_groups_have_intervals_of_students_t(groups: int) -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        found = bootstrap_interval(parts_of(rng.normal(1, 1, groups)), mean, resamples=200, seed=seed)
        covered += found.low <= 1 <= found.high
    assert 0.89 <= covered / 200 <= 0.99


def test_the_interval_of_a_difference_may_reach_below_0_though_no_resample_does() -> None:
    drawn = np.array([0.0, 0.1, 0.2, 0.3])
    shared, difference = (resampled_interval(drawn, 0.15, 3, is_difference=each) for each in (False, True))
    assert shared.low == 0
    assert difference.low < -0.1


def test_undefined_and_infinite_values_have_no_interval() -> None:
    for values in (np.array([]), np.array([np.inf, 1.0])):
        found = bootstrap_interval(parts_of(values), lambda sums: mean(sums) if sums[0][1] else math.nan)
        assert math.isnan(found.low)
        assert math.isnan(found.high)
        assert not math.isfinite(found.value)
    both = exchange_test(parts_of(np.array([np.inf])), parts_of(np.array([1.0])), mean)
    assert math.isnan(both.p_value)


def test_resamples_without_a_document_that_counts_are_left_out() -> None:
    parts = [np.array([[0.5, 1.0], [0.0, 0.0], [0.0, 0.0]])]
    found = bootstrap_interval(parts, lambda sums: mean(sums) if sums[0][1] else math.nan, resamples=100)
    # One document counts, and its value never changes.
    assert (found.value, "never changes it" in found.reason) == (0.5, True)


def test_an_interval_is_printed_with_its_ends() -> None:
    assert str(Interval(0.5, 0.25, 0.75)) == "0.5000 [0.2500, 0.7500]"


# Seeds


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("values", [[0.5, 0.6], [87.1, 87.5, 87.2, 88.0], [1.0, 2.0, 4.0, 8.0, 16.0]])
def test_the_interval_over_seeds_is_scipys_t_interval(values: list[float], level: float) -> None:
    found = seed_interval(values, level)
    low, high = scipy.stats.t.interval(level, len(values) - 1, np.mean(values), scipy.stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(values), low, high))


def test_one_seed_has_a_value_and_none_has_nothing() -> None:
    assert seed_interval([0.5]).value == 0.5
    assert math.isnan(seed_interval([0.5]).low)
    assert seed_interval([0.5, math.inf]).value == math.inf
    assert math.isnan(seed_interval([0.5, math.inf]).high)
    assert math.isnan(seed_interval([]).value)


# Two systems


def test_equal_systems_do_not_differ() -> None:
    values = np.random.default_rng(0).random(50)
    found = exchange_test(parts_of(values), parts_of(values), mean)
    assert (found.difference, found.p_value) == (0, 1)
    assert permutation_test(values, values, permutations=99).p_value == 1
    assert found.p_value >= 0.05


def test_a_small_difference_in_much_noise_is_not_significant() -> None:
    rng = np.random.default_rng(1)
    first = rng.random(60)
    second = first + rng.normal(0.002, 0.2, 60)
    found = exchange_test(parts_of(first), parts_of(second), mean)
    assert found.p_value > 0.1
    assert permutation_test(first, second).p_value == pytest.approx(found.p_value, abs=0.1)


def test_a_large_difference_is_significant_in_either_direction() -> None:
    rng = np.random.default_rng(0)
    first = rng.random(60)
    second = first + rng.normal(0.3, 0.1, 60)
    there = exchange_test(parts_of(first), parts_of(second), mean, permutations=999)
    back = exchange_test(parts_of(second), parts_of(first), mean, permutations=999)
    assert there.difference == pytest.approx(np.mean(second - first)) == pytest.approx(-back.difference)
    # There is no p below what the number of permutations can show.
    assert there.p_value == back.p_value == 1 / 1000
    assert there.p_value < 0.01
    for one, two in ((first, second), (second, first)):
        assert permutation_test(one, two, permutations=999).p_value == 1 / 1000


def test_pairing_finds_what_two_intervals_would_hide() -> None:
    hard = np.random.default_rng(0).random(100)
    first, second = hard, hard + 0.02
    intervals = [bootstrap_interval(parts_of(values), mean) for values in (first, second)]
    assert intervals[0].high > intervals[1].low
    assert exchange_test(parts_of(first), parts_of(second), mean).p_value < 0.01


def test_tests_of_no_difference_rarely_find_one() -> None:
    rng = np.random.default_rng(0)
    found = {"exchange": 0, "permutation": 0}
    for seed in range(150):
        first, second = rng.random((2, 40))
        exchange = exchange_test(parts_of(first), parts_of(second), mean, permutations=200, seed=seed)
        found["exchange"] += exchange.p_value < 0.1
        found["permutation"] += permutation_test(first, second, 200, seed).p_value < 0.1
    assert all(0.04 * 150 < count < 0.17 * 150 for count in found.values()), found


@pytest.mark.parametrize("shift", [0.0, 0.15, 0.4])
def test_the_permutation_test_approaches_exact_enumeration(shift: float) -> None:
    rng = np.random.default_rng(3)
    first = rng.random(8)
    difference = rng.normal(shift, 0.3, 8)
    observed = abs(difference.sum())
    flips = [abs(np.dot(signs, difference)) >= observed - 1e-12 for signs in product([-1, 1], repeat=8)]
    exact = np.mean(flips)
    parts = parts_of(first), parts_of(first + difference)
    for found in (permutation_test(first, first + difference, 20_000), exchange_test(*parts, mean, 20_000)):
        assert found.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000) + 1e-4)
        assert found.difference == pytest.approx(difference.mean())


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_exchanged_sums_are_those_of_documents_that_change_sides(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.random((2, rows, 3)).round(1)
    second[rng.random(rows) < 0.4] = first[0]
    same = rng.random((rows, 2))
    sides = [(dense, sparse.csr_array(dense > 0.5), same) for dense in (first, second)]
    possible = []
    for swaps in product([False, True], repeat=rows):
        chosen = np.array(swaps)[:, None]
        dense = np.where(chosen, second, first), np.where(chosen, first, second)
        possible.append(np.concatenate([x for one in dense for x in (one.sum(0), (one > 0.5).sum(0), same.sum(0))]))
    for one, other in exchanged_sums(sides[0], sides[1], 6, seed):
        found = np.concatenate([*one, *other])
        assert min(np.abs(found - each).max() for each in possible) < 1e-12


def test_what_no_document_has_stays_exactly_0_in_every_exchange() -> None:
    """A sum made by subtraction would be 1e-17 now and then, and a value of 0/0 something else altogether."""
    rng = np.random.default_rng(0)
    first, second = (np.stack([side, np.zeros(50)], axis=1) for side in rng.random((2, 50)))
    alike = np.where(np.arange(50)[:, None] == 0, first, 0.0)
    for one, other in exchanged_sums([alike], [np.zeros((50, 2))], 40):
        assert {one[0][0], other[0][0]} == {first[0, 0], 0.0}
    assert all(one[0][1] == other[0][1] == 0 for one, other in exchanged_sums([first], [second], 40))


def test_documents_without_a_value_are_left_out_of_the_permutation_test() -> None:
    first, second = np.array([0.1, np.nan, 0.3, 0.2]), np.array([0.4, 0.5, 0.7, np.nan])
    known = permutation_test(first[[0, 2]], second[[0, 2]])
    assert repr(permutation_test(first, second)) == repr(known)
    assert math.isnan(permutation_test(np.array([np.nan]), np.array([1.0])).p_value)


# Labels and decisions


@pytest.mark.parametrize("seed", range(5))
def test_the_macro_t_test_is_scipys_paired_t_test(seed: int) -> None:
    first, second = np.random.default_rng(seed).random((2, 12))
    found = macro_t_test(first, second)
    assert found.p_value == pytest.approx(scipy.stats.ttest_rel(second, first).pvalue)
    assert found.difference == pytest.approx(np.mean(second - first))


def test_the_macro_t_test_without_spread_or_labels() -> None:
    half = np.full(5, 0.5)
    assert macro_t_test(half, half).p_value == 1
    assert repr(macro_t_test(half, half + 0.25)) == repr(Comparison(0.25, 0.0))
    assert math.isnan(macro_t_test(half[:1], half[:1]).p_value)
    assert math.isnan(macro_t_test(half[:0], half[:0]).difference)


def test_only_bins_of_more_than_ten_labels_are_tested() -> None:
    first, second = np.random.default_rng(0).random((2, 30))
    bins = {name: np.arange(30) < size for name, size in (("ten", 10), ("eleven", 11), ("all", 30))}
    found = binned_t_tests(first, second, bins)
    assert list(found) == ["eleven", "all"]
    assert repr(found["eleven"]) == repr(macro_t_test(first[:11], second[:11]))


def slow_sign_test(truth: npt.NDArray[np.bool_], first: Any, second: Any) -> tuple[int, int]:
    """Count the decisions that only the second and only the first system takes rightly."""
    better = worse = 0
    for true, one, two in zip(truth.ravel(), first.ravel(), second.ravel(), strict=True):
        better += two == true != one
        worse += one == true != two
    return better, worse


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_micro_sign_test_equals_a_slow_loop_over_all_decisions(rows: int, columns: int, seed: int) -> None:
    truth, first, second = np.random.default_rng(seed).random((3, rows, columns)) < 0.4
    pairs = [slow_sign_test(*(side[row] for side in (truth, first, second))) for row in range(rows)]
    better, worse = np.sum(pairs, axis=0)
    matrices = sparse.csr_array(truth), sparse.csr_array(first), sparse.csr_array(second)
    found = micro_sign_test(*matrices, None, 99, seed)
    gains, losses = np.array(pairs, np.float64).T
    by_document = permutation_test(losses, gains, 99, seed)
    assert found.p_value == by_document.p_value
    assert found.difference == pytest.approx((better - worse) / (better + worse) if better + worse else 0)


def test_the_micro_sign_test_by_hand() -> None:
    # Of six decisions the systems disagree on four: three times the second is right, once the first.
    truth = sparse.csr_array([[True, True, False], [False, True, False]])
    first = sparse.csr_array([[True, False, True], [True, True, False]])
    second = sparse.csr_array([[True, True, False], [False, False, False]])
    found = micro_sign_test(truth, first, second, permutations=9999)
    assert found.difference == (3 - 1) / 4
    # The second document is a draw, so that the first is the only one that counts, and it alone shows nothing.
    assert found.p_value == 1


def test_many_decisions_of_one_document_are_one_piece_of_evidence() -> None:
    """Nine documents whose fifty pairs all change together say as much as nine, not as 450 pairs."""
    truth, none = sparse.csr_array(np.ones((9, 50), bool)), sparse.csr_array((9, 50), dtype=bool)
    keep = np.arange(9)[:, None] < 7
    first, second = (sparse.csr_array(np.ones((9, 50), bool) & side) for side in (~keep, keep))
    found = micro_sign_test(truth, first, second, permutations=20_000)
    exact = scipy.stats.binomtest(7, 9).pvalue
    assert found.p_value == pytest.approx(exact, abs=0.02)
    assert micro_sign_test(truth, none, truth, groups=["all"] * 9).p_value == 1
    assert micro_sign_test(truth, none, truth, groups=["one"] * 4 + ["two"] * 5, permutations=999).p_value > 0.4


# Many tests


@pytest.mark.parametrize(
    ("given_values", "expected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.01, 0.01], [0.02, 0.02]),
        ([0.2], [0.2]),
        ([], []),
    ],
)
def test_holms_correction_by_hand(given_values: list[float], expected: list[float]) -> None:
    assert holm(given_values).tolist() == pytest.approx(expected)


def test_tests_without_a_value_do_not_count_in_holms_correction() -> None:
    found = holm([0.01, math.nan, 0.04])
    assert found[[0, 2]].tolist() == pytest.approx([0.02, 0.04])
    assert math.isnan(found[1])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holms_correction_never_lowers_and_keeps_the_order(values: list[float]) -> None:
    found = holm(values)
    assert (found >= np.array(values)).all()
    assert (found <= np.minimum(1, np.array(values) * len(values)) + 1e-12).all()
    assert (np.diff(found[np.argsort(values)]) >= 0).all()


def test_relative_improvement_is_in_percent_of_the_baseline() -> None:
    assert relative_improvement(0.5, 0.6) == 20
    assert relative_improvement(0.4, 0.3) == -25
    assert relative_improvement(0.2, 0.2) == 0
    assert math.isnan(relative_improvement(0, 0.5))
    with pytest.raises(TreelabelError, match="needs a baseline of at least 0, found -1"):
        relative_improvement(-1, 1)


# Systems side by side


FLAT = Hierarchy.flat(map(str, range(24)))


def systems(size: int = 200) -> tuple[list[list[str]], dict[str, list[list[str]]]]:
    """Make a truth, a poor system, the same once more, and one that is much better."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 24, size)

    def system(right: float) -> list[list[str]]:
        chosen = np.where(rng.random(size) < right, true, rng.integers(0, 24, size))
        return [[str(label)] for label in chosen]

    poor = system(0.3)
    return [[str(label)] for label in true], {"poor": poor, "same": poor, "good": system(0.9)}


def test_a_comparison_tests_every_system_against_the_first() -> None:
    truth, found = systems()
    table = compare(truth, found, FLAT, metrics=["hf1", "macro_f1"], resamples=200)
    assert table.systems == ["poor", "same", "good"]
    assert table.documents == 200
    assert [row.name for row in table.metrics] == ["hf1", "macro_f1", "micro_f1"]
    for row in table.metrics:
        same, good = row.p_values
        assert same == 1
        assert good < 0.03
        judged = [evaluate(truth, decisions, hierarchy=FLAT, metrics=[row.name]) for decisions in found.values()]
        assert row.values == [result.interval(row.name, resamples=200) for result in judged]
    assert table.sign_tests[0] == 1
    assert table.sign_tests[1] == 2 / 201


def test_p_values_are_corrected_for_the_number_of_systems() -> None:
    truth, found = systems()
    two = compare(truth, {name: found[name] for name in ("poor", "good")}, FLAT, resamples=200)
    three = compare(truth, found, FLAT, resamples=200)
    assert three.metrics[0].p_values[1] == pytest.approx(2 * two.metrics[0].p_values[0])
    assert 0 < three.sign_tests[1] == pytest.approx(2 * two.sign_tests[0], abs=0)


def test_bins_are_tested_over_labels_where_there_are_more_than_ten() -> None:
    truth, found = systems()
    frequencies = [0] * 3 + [5] * 12 + [50] * 9
    table = compare(truth, found, FLAT, resamples=50, train_frequencies=frequencies)
    assert table.bin_sizes == {"0": 3, "1-9": 12, "10-99": 9}
    f1 = {
        name: evaluate(truth, decisions, hierarchy=FLAT, metrics=["micro_f1"]).labels.column("f1").to_numpy()
        for name, decisions in found.items()
    }
    rows = {row.name: row for row in table.bins}
    assert [value.value for value in rows["1-9"].values] == pytest.approx([f1[name][3:15].mean() for name in f1])
    expected = scipy.stats.ttest_rel(f1["good"][3:15], f1["poor"][3:15]).pvalue
    assert rows["1-9"].p_values == pytest.approx([1, 2 * expected])
    assert all(math.isnan(p) for name in ("0", "10-99") for p in rows[name].p_values)
    improvement = relative_improvement(f1["poor"][3:15].mean(), f1["good"][3:15].mean())
    assert f"* ({improvement:+.1f}%)" in str(table)


def test_a_comparison_shows_stars_and_goes_to_json() -> None:
    truth, found = systems()
    table = compare(truth, found, FLAT, resamples=999)
    line = next(line for line in str(table).splitlines() if line.startswith("hf1"))
    poor, same, good = line.split("]")[:3]
    assert "*" not in poor + same
    assert "*" in good
    stored = json.loads(table.to_json(), parse_constant=lambda constant: pytest.fail(constant))
    assert stored["documents"] == 200
    assert stored["metrics"]["hf1"]["poor"]["p"] is None
    assert stored["metrics"]["hf1"]["good"]["p"] == pytest.approx(2 * 1 / 1000)
    assert stored["sign_test_p"]["same"] == 1
    assert set(stored["bins"]) == {row.name for row in table.bins}


@pytest.mark.slow
def test_all_metrics_are_compared_that_apply_to_every_system() -> None:
    truth, found = systems(40)
    scores = Scores(FLAT, np.random.default_rng(0).random((40, 24)))
    table = compare(truth, {"scores": scores, "decisions": found["good"]}, FLAT, metrics="all", resamples=20)
    names = [row.name for row in table.metrics]
    assert "hf1" in names
    assert "hf1_auc" not in names
    both = compare(truth, {"one": scores, "two": scores}, metrics="all", resamples=20)
    assert "hf1_auc" in [row.name for row in both.metrics]
    assert all(p == 1 or math.isnan(p) for row in both.metrics for p in row.p_values)


def test_p_is_a_share_of_the_permutations_that_have_a_value() -> None:
    # Each system knows the value of two documents; where one gets none of the four answers, there is no mean.
    first, second = (
        np.array(side, float) for side in ([[1, 1], [1, 1], [0, 0], [0, 0]], [[0, 0], [0, 0], [2, 1], [2, 1]])
    )

    def mean_of_known(sums: tuple[Any, ...]) -> float:
        value, count = sums[0]
        return float(value / count) if count else float("nan")

    found = exchange_test([first], [second], mean_of_known, permutations=999)
    drawn = [(mean_of_known(one), mean_of_known(other)) for one, other in exchanged_sums([first], [second], 999)]
    known = [other - one for one, other in drawn if not math.isnan(other - one)]
    assert 800 < len(known) < 950
    assert found.difference == 1
    assert found.p_value == (1 + sum(abs(each) >= 1 for each in known)) / (1 + len(known))


def test_groups_of_the_truth_are_drawn_whole() -> None:
    # Every document stands ten times: there are forty independent ones, not four hundred.
    rng = np.random.default_rng(0)
    true, found = rng.integers(0, 24, (2, 40))
    found = np.where(rng.random(40) < 0.5, true, found)
    names = [[str(label)] for label in np.repeat(true, 10)]
    groups = [f"source {at}" for at in np.repeat(np.arange(40), 10)]
    decisions = [[str(label)] for label in np.repeat(found, 10)]
    results = {
        what: evaluate(Dataset.of([""] * len(rows), rows, FLAT, groups=given), chosen, metrics=["hf1", "macro_f1"])
        for what, rows, chosen, given in (
            ("grouped", names, decisions, groups),
            ("copied", names, decisions, None),
            ("once", names[::10], decisions[::10], None),
        )
    }
    widths = {what: result.interval("hf1").high - result.interval("hf1").low for what, result in results.items()}
    assert widths["grouped"] == pytest.approx(widths["once"], rel=0.15)
    assert widths["copied"] < widths["once"] / 2
    assert results["grouped"].values == results["copied"].values
    both = results["grouped"].intervals()
    assert both["hf1"] == results["grouped"].interval("hf1")
    assert "fewer than 5 groups" in both["macro_f1"].reason


def test_systems_are_compared_by_whole_groups() -> None:
    truth, found = systems(60)
    data = Dataset.of([""] * 600, truth * 10, FLAT, groups=[str(at) for at in range(60)] * 10)
    alone = Dataset.of([""] * 600, truth * 10, FLAT)
    pair = {name: found[name] * 10 for name in ("poor", "good")}
    once = compare(truth, {name: found[name] for name in pair}, FLAT, resamples=500).metrics[0]
    grouped, copied = (compare(given, pair, resamples=500).metrics[0] for given in (data, alone))

    def width(row: Any) -> float:
        return float(row.values[0].high - row.values[0].low)

    assert width(grouped) == pytest.approx(width(once), rel=0.2)
    assert width(copied) < width(once) / 2


def test_without_a_permutation_that_has_a_value_nothing_is_shown() -> None:
    parts = [np.ones((3, 1))]
    values = iter([1.0, 0.0, *[float("nan")] * 198])
    found = exchange_test(parts, parts, lambda _: next(values), permutations=99)
    assert (found.difference, found.p_value) == (1, 1)


@pytest.mark.parametrize("names", [[], ["only"]])
def test_one_system_cannot_be_compared(names: Sequence[str]) -> None:
    with pytest.raises(TreelabelError, match="comparing needs at least two systems"):
        compare([["1"]], {name: [["1"]] for name in names}, FLAT)


def test_a_difference_in_one_document_of_many_is_chance() -> None:
    first = np.zeros(500)
    second = np.append(np.zeros(499), 1.0)
    for seed in range(5):
        assert exchange_test(parts_of(first), parts_of(second), mean, permutations=99, seed=seed).p_value == 1


def test_one_document_alone_shows_nothing() -> None:
    assert exchange_test(parts_of(np.zeros(1)), parts_of(np.ones(1)), mean, permutations=99).p_value == 1
    alone = bootstrap_interval(parts_of(np.ones(1)), mean, resamples=9)
    assert str(alone) == "1.0000 (no interval: a single document or group shows no spread)"
