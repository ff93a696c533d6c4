"""Claims: intervals against a direct bootstrap, what is confirmed, and what stays open and why."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from tests.experiment.study import HEADER, RULE, add_failure, add_run, add_values, exported, judged, make_study
from treelabel import TreelabelError
from treelabel.evaluation.statistics import bootstrap_sums
from treelabel.experiment.claims import Verdict, judge_claims, overall
from treelabel.experiment.estimates import Estimate, Resampled, Term, drawn_values, estimate
from treelabel.experiment.results import Results
from treelabel.metrics import find_metric


def claim(left: str, right: str, more: str = "") -> str:
    return f'[[claims]]\nname = "c"\ntext = "Left beats right"\nleft = {left}\nright = {right}\n{more}\n'


GOOD, FAIR, POOR = (f'{{system = "{name}", metric = "hf1"}}' for name in ("good", "fair", "poor"))


def only(results: Results) -> Verdict:
    (found,) = judge_claims(results)
    return found


def test_a_difference_and_its_interval_are_those_of_a_direct_bootstrap(tmp_path: Path) -> None:
    results = make_study(tmp_path, claim(GOOD, FAIR, 'data = ["one"]'))
    found = only(results).outcomes[0]
    pairs = [(judged(0.95, seed), judged(0.6, seed)) for seed in range(3)]
    differences = [good["hf1"] - fair["hf1"] for good, fair in pairs]
    assert found.difference == pytest.approx(np.mean(differences))
    # Other draws, and each resample done by hand: the mean difference of drawn documents, then the mean over seeds.
    rng = np.random.default_rng(7)
    values = [good.documents["hf1"] - fair.documents["hf1"] for good, fair in pairs]
    drawn = [np.mean([row[rows].mean() for row in values]) for rows in rng.integers(0, 60, (4000, 60))]
    below, above = np.mean(drawn) - np.quantile(drawn, 0.025), np.quantile(drawn, 0.975) - np.mean(drawn)
    seeds = stats.t.ppf(0.975, 2) * np.std(differences, ddof=1) / math.sqrt(3)
    assert found.low == pytest.approx(found.difference - math.hypot(below, seeds), abs=0.01)
    assert found.high == pytest.approx(found.difference + math.hypot(above, seeds), abs=0.01)
    assert (found.left_value, found.right_value) == pytest.approx(
        (np.mean([good["hf1"] for good, _ in pairs]), np.mean([fair["hf1"] for _, fair in pairs]))
    )


@pytest.mark.slow
def test_means_over_labels_with_few_documents_vary_as_exchanged_answers_do(tmp_path: Path) -> None:
    """Labels of one document leave many resamples, and what is left varies less than the difference does."""
    make_study(tmp_path, seeds=1)
    pairs = {name: [judged(share, seed, 14) for seed in (0, 1)] for name, share in (("left", 0.7), ("right", 0.4))}
    for name, each in pairs.items():
        for seed, result in enumerate(each):
            add_run(tmp_path, "one", name, seed, {RULE: result}, documents={"train": 100, "test": 14})
    resampled = Resampled(Results.load(tmp_path))

    def found(metric: str) -> Estimate:
        return estimate(resampled, [Term("one", name, metric) for name in pairs], lambda values: values[0] - values[1])

    # Both seeds of a document change sides together.
    swaps = np.random.default_rng(3).integers(0, 2, (2000, 14, 1))
    exchanged, drawn = np.zeros(2000), np.zeros(1000)
    for left, right in zip(*pairs.values(), strict=True):
        metric, value = left.value_function("macro_f1")
        drawn += (left.bootstrap_values("macro_f1") - right.bootstrap_values("macro_f1")) / 2
        sides = [[sparse.csr_array(part).toarray() * 1.0 for part in each.parts[metric.key]] for each in (left, right)]
        for at, swap in enumerate(swaps):
            one = tuple((a * (1 - swap) + b * swap).sum(axis=0) for a, b in zip(*sides, strict=True))
            other = tuple((a * swap + b * (1 - swap)).sum(axis=0) for a, b in zip(*sides, strict=True))
            exchanged[at] += (value(one) - value(other)) / 2
    assert judged(0.7, 0, 14).why_no_interval("macro_f1")
    assert found("macro_f1").document_error == pytest.approx(exchanged.std(), rel=0.1)
    assert found("macro_f1").document_error > drawn.std()
    # Means over documents are those of the bootstrap.
    direct = np.mean([a.documents["hf1"] - b.documents["hf1"] for a, b in zip(*pairs.values(), strict=True)], axis=0)
    assert found("hf1").document_error == pytest.approx(direct.std() / math.sqrt(14), rel=0.1)


def test_all_systems_and_metrics_are_drawn_alike_whatever_their_parts() -> None:
    # macro-F1 sums seven columns a part, hf1 two: draws must not depend on how many resamples fit into a block.
    wide, narrow = np.ones((50, 1)), np.zeros((50, 20_000))
    narrow[:, 0] = wide[:, 0] = np.arange(50)
    few, many = (np.array([sums[0][0] for sums in bootstrap_sums([part], 60, 3)]) for part in (wide, narrow))
    np.testing.assert_array_equal(few, many)
    one, two = judged(0.9), judged(0.9)
    np.testing.assert_array_equal(
        drawn_values(one, [find_metric("hf1")], 20)["hf1"], drawn_values(two, [find_metric("hf1")], 20)["hf1"]
    )


@pytest.mark.parametrize(
    ("left", "right", "more", "status"),
    [
        (GOOD, FAIR, "", "confirmed"),
        (FAIR, GOOD, "", "contradicted"),
        (GOOD, GOOD, "", "open"),
        (GOOD, FAIR, "margin = 0.2", "open"),
        (GOOD, FAIR, "margin = 0.9", "contradicted"),
        (GOOD, GOOD, "margin = -0.01", "confirmed"),
        (GOOD, '{best_of = ["fair", "poor"], metric = "hf1"}', "", "confirmed"),
        ('{worst_of = ["fair", "good"], metric = "hf1"}', POOR, "", "confirmed"),
        ('{best_of = ["fair", "poor"], metric = "hamming"}', '{system = "good", metric = "hamming"}', "", "confirmed"),
        (GOOD, '{mean_of = ["fair", "poor"], metric = "hf1"}', "margin = 0.1", "confirmed"),
        (GOOD, "{value = 0.8}", "", "confirmed"),
        ('{system = "good", metric = "hf1", relative_to = "poor"}', "{value = 0.1}", "", "confirmed"),
        ('{system = "good", metric = "macro_f1_by_depth[2]", rule = "best_leaf"}', "{value = 0.5}", "", "confirmed"),
        (
            '{system = "good", metric = "hf1", data = "two"}',
            '{system = "poor", metric = "hf1", data = "one"}',
            "",
            "confirmed",
        ),
    ],
)
@pytest.mark.slow
def test_what_becomes_of_a_claim(tmp_path: Path, left: str, right: str, more: str, status: str) -> None:
    assert only(make_study(tmp_path, claim(left, right, more))).status == status


def test_sides_take_the_best_by_the_direction_of_the_metric(tmp_path: Path) -> None:
    best = '{best_of = ["poor", "good", "fair"], metric = "hamming"}'
    worst = '{worst_of = ["poor", "good", "fair"], metric = "hamming"}'
    found = only(make_study(tmp_path, claim(worst, best))).outcomes[0]
    assert (found.left, found.right) == ("poor", "good")


def test_a_relative_side_divides_in_each_resample(tmp_path: Path) -> None:
    side = '{system = "good", metric = "hf1", relative_to = "fair"}'
    results = make_study(tmp_path, claim(side, "{value = 0}", 'data = ["one"]'), seeds=1)
    found = only(results).outcomes[0]
    good, fair = judged(0.95), judged(0.6)
    assert found.difference == pytest.approx(good["hf1"] / fair["hf1"] - 1)
    drawn = (
        drawn_values(good, [find_metric("hf1")], 1000)["hf1"] / drawn_values(fair, [find_metric("hf1")], 1000)["hf1"]
        - 1
    )
    low, high = np.quantile(drawn, [0.025, 0.975]) - drawn.mean() + found.difference
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_mean_of_systems_is_the_mean_for_each_seed(tmp_path: Path) -> None:
    results = make_study(tmp_path, claim('{mean_of = ["good", "fair"], metric = "hf1"}', "{value = 0}"))
    expected = np.mean([judged(right, seed)["hf1"] for right in (0.95, 0.6) for seed in range(3)])
    assert only(results).outcomes[0].difference == pytest.approx(expected)


def test_a_system_that_failed_leaves_a_claim_open_with_the_reason(tmp_path: Path) -> None:
    header = HEADER + 'systems.late = {model = "linear"}\n'
    late = '{system = "late", metric = "hf1"}'
    make_study(tmp_path, claim(GOOD, late, 'data = ["one"]'), header)
    add_failure(tmp_path, "one", "late", "timeout", "over 10m")
    found = only(Results.load(tmp_path))
    assert found.status == "open"
    assert found.describe() == "open: Left beats right: open on one (late on one: timeout: over 10m)."
    (tmp_path / "runs" / "one-late-0.json").unlink()
    assert "late on one: has not run" in only(Results.load(tmp_path)).describe()


def test_without_documents_only_seeds_count(tmp_path: Path) -> None:
    spec = claim(GOOD, FAIR, 'data = ["one"]')
    whole = make_study(tmp_path / "whole", spec)
    found = only(exported(whole, tmp_path / "results.json")).outcomes[0]
    differences = [judged(0.95, seed)["hf1"] - judged(0.6, seed)["hf1"] for seed in range(3)]
    reach = stats.t.ppf(0.975, 2) * np.std(differences, ddof=1) / math.sqrt(3)
    assert found.high - found.difference == pytest.approx(reach)
    few = exported(make_study(tmp_path / "few", spec, seeds=1), tmp_path / "few.json")
    assert only(few).status == "open"
    assert "one seed, and what each document contributed is not known" in only(few).describe()


def test_values_of_programs_compare_exactly(tmp_path: Path) -> None:
    header = HEADER + 'systems.program = {command = ["{python}"], writes = "values"}\n'
    side = '{{system = "program", metric = "{}"}}'.format
    make_study(tmp_path, claim(side("ICM/error rate"), side("F1/error rate"), 'data = ["one"]'), header)
    add_values(tmp_path, "one", "program", {"ICM/error rate": 96.0, "F1/error rate": 95.5})
    found = only(Results.load(tmp_path)).outcomes[0]
    assert (found.status, found.difference, found.low, found.high) == ("confirmed", 0.5, 0.5, 0.5)


def test_a_program_that_draws_has_the_interval_of_its_seeds(tmp_path: Path) -> None:
    header = HEADER + 'systems.program = {command = ["{python}", "--seed", "{seed}"], writes = "values"}\n'
    side = '{system = "program", metric = "share"}'
    make_study(tmp_path, claim(side, "{value = 50}", 'data = ["one"]'), header)
    values = [52.0, 54.0, 53.0]
    add_values(tmp_path, "one", "program", {"share": values[0]})
    single = only(Results.load(tmp_path)).outcomes[0]
    assert (single.status, single.difference, math.isnan(single.low)) == ("open", 2.0, True)
    for seed, value in enumerate(values):
        add_values(tmp_path, "one", "program", {"share": value}, seed)
    found = only(Results.load(tmp_path)).outcomes[0]
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))
    assert found.status == "confirmed"


def test_nothing_follows_from_a_run_that_was_cut_short(tmp_path: Path) -> None:
    best = '{best_of = ["fair", "poor"], metric = "hf1"}'
    other = claim(GOOD, FAIR, 'data = ["one"]').replace('"c"', '"d"')
    results = make_study(tmp_path, claim(GOOD, best, 'data = ["one"]') + other)
    before = judge_claims(results)
    assert [each.status for each in before] == ["confirmed", "confirmed"]
    # The best of several may have been another, had it had its time.
    runs = tuple(replace(run, stopped=run.system == "poor") for run in results.runs)
    first, second = judge_claims(replace(results, runs=runs))
    assert (first.status, second) == ("open", before[1])
    assert first.outcomes[0].difference == before[0].outcomes[0].difference
    assert first.describe().startswith("open, cut short: Left beats right: open on one: +")
    assert first.describe().endswith("; cut short: poor).")
    assert Verdict.from_json(first.to_json()) == first
    runs = tuple(replace(run, stopped=(run.system, run.seed) == ("fair", 1)) for run in results.runs)
    assert judge_claims(replace(results, runs=runs))[1].outcomes[0].reason == "cut short: fair (1 of 3 seeds)"


def test_verdicts_travel_with_an_exported_file(tmp_path: Path) -> None:
    results = make_study(tmp_path / "study", claim(GOOD, FAIR))
    before = judge_claims(results)
    kept = exported(results, tmp_path / "results.json", [each.to_json() for each in before])
    assert judge_claims(kept) == before
    (tmp_path / "results.json").write_text((tmp_path / "results.json").read_text().replace('"confirmed"', '"sure"'))
    with pytest.raises(TreelabelError, match="a verdict is damaged"):
        judge_claims(Results.load(tmp_path / "results.json"))


def test_a_verdict_says_its_numbers(tmp_path: Path) -> None:
    said = only(
        make_study(tmp_path, claim(GOOD, POOR, 'margin = 0.05\ndata = ["one"]\nsource = "R, table 2"'))
    ).describe()
    assert said.startswith("confirmed: Left beats right (R, table 2): confirmed on one: +0.")
    assert said.endswith("(more than +0.0500 is claimed).")


def test_data_sets_that_disagree_leave_a_claim_open(tmp_path: Path) -> None:
    make_study(tmp_path, claim(GOOD, FAIR))
    for seed in range(3):
        add_run(tmp_path, "two", "fair", seed, {RULE: judged(0.999, seed)})
    found = only(Results.load(tmp_path))
    assert found.status == "open"
    assert found.describe().startswith("open (mixed): Left beats right: confirmed on one: +0.")


def test_seeds_pair_and_a_single_run_is_constant(tmp_path: Path) -> None:
    results = make_study(tmp_path)
    add_run(tmp_path, "one", "good", 7, {RULE: judged(0.5, 7)})
    resampled = Resampled(Results.load(tmp_path), resamples=50)
    terms = [Term("one", "good", "hf1"), Term("one", "fair", "hf1")]
    assert estimate(resampled, terms, lambda values: values[0] - values[1]).seeds == 3
    assert estimate(resampled, [terms[0]]).seeds == 4
    against_one = [terms[0], Term("one", "poor", "hf1")]
    assert estimate(resampled, against_one, lambda values: values[0] - values[1]).seeds == 4
    assert estimate(resampled, [Term("one", "good", "micro_f1")]).problem == "good on one: has no value of micro_f1"
    assert results.spec.title == "A study"


@given(value=st.floats(0.01, 5), documents=st.floats(0.01, 2), seeds=st.floats(0.01, 2), count=st.integers(2, 9))
def test_a_p_value_is_the_level_of_the_interval_that_touches_zero(
    value: float, documents: float, seeds: float, count: int
) -> None:
    alone: dict[str, Any] = {"value": value, "seeds": count}
    t = stats.ttest_1samp(_sample(value, seeds, count), 0).pvalue
    assert Estimate(**alone, seed_error=seeds).p_value == pytest.approx(t, rel=1e-6)
    z = 2 * stats.norm.sf(value / documents)
    assert Estimate(**alone, document_error=documents).p_value == pytest.approx(z, rel=1e-6, abs=1e-299)
    both = Estimate(**alone, document_error=documents, seed_error=seeds).p_value
    assert both >= max(t, z) * (1 - 1e-6)
    reach = math.hypot(stats.norm.isf(both / 2) * documents, stats.t.isf(both / 2, count - 1) * seeds)
    assert reach == pytest.approx(value, rel=1e-5)


def _sample(mean: float, error: float, count: int) -> Any:
    """Numbers with a given mean and standard error of it."""
    shape = np.arange(count) - (count - 1) / 2
    return mean + shape / shape.std(ddof=1) * error * math.sqrt(count)


def test_nothing_is_known_of_a_single_number() -> None:
    assert math.isnan(Estimate(1.0).p_value)
    assert math.isnan(Estimate(1.0).interval[0])
    assert Estimate(1.0, 0.0, 0.0, document_error=0.0).p_value == 1.0
    assert Estimate(1.0, is_exact=True).interval == (1.0, 1.0)
    assert overall([]) == "open"
