"""Table 1 of "Evaluating extreme hierarchical multi-label classification", by specs/programs/metric_properties.py."""

import numpy as np
import pytest
from specs.programs.gold_standards import Reading, make_standard
from specs.programs.metric_properties import (
    DEVIATIONS,
    METRICS,
    PROPERTY_NAMES,
    TABLE,
    Sets,
    Strength,
    has_property,
    of_counts,
    others_right,
    situation,
    situations,
    with_labels,
)
from specs.programs.metric_suitability import TESTS, values_of, wins
from specs.programs.paper_metrics import OTHERWISE, PAPER_METRICS, flat_labels, label_f1


@pytest.mark.parametrize("name", PROPERTY_NAMES)
@pytest.mark.parametrize("metric", TABLE)
@pytest.mark.parametrize("strength", ["plain", "literal"])
def test_table_1(metric: str, name: str, strength: Strength) -> None:
    printed = TABLE[metric][PROPERTY_NAMES.index(name)] == "x"
    expected = printed != ((metric, name) in DEVIATIONS[strength])
    assert has_property(METRICS[metric], name, strength) == expected


@pytest.mark.parametrize("name", PROPERTY_NAMES)
@pytest.mark.parametrize("strength", ["plain", "literal"])
def test_no_property_holds_for_lack_of_situations(name: str, strength: Strength) -> None:
    assert len(situations(name, strength)) >= 6


def test_a_hit_is_worth_more_for_the_rare_label_only_if_both_are_treated_alike_by_label_f1() -> None:
    # The example of ALREADY_FOUND: label 0 has two items, one found; label 1 has three, none found.
    truth = of_counts([2, 3])
    output: Sets = [{0}, set(), set(), set(), set()]
    rare, frequent = situation(flat_labels(2), truth, with_labels(output, (1, 0)), with_labels(output, (2, 1)))
    before = situation(flat_labels(2), truth, output, output).better
    assert label_f1(rare) - label_f1(before) == pytest.approx((1 - 2 / 3) / 2)
    assert label_f1(frequent) - label_f1(before) == pytest.approx((1 / 2) / 2)


@pytest.mark.parametrize("count", [1, 2])
def test_a_category_that_never_occurs_weighs_as_one_that_occurs_once(count: int) -> None:
    # Section 5.1: the least probability is 1 / items. So information sees no difference between 0 items and 1.
    truth = of_counts([0, count, 3])
    output = others_right(truth, len(truth) - 1)
    outputs = [with_labels(output, (len(truth) - 1, label)) for label in (1, 0)]
    frequent, absent = situation(flat_labels(3), truth, *outputs)
    for name in ("ICM", "Jiang-Conrath"):
        assert (METRICS[name](frequent) > METRICS[name](absent) + 1e-12) == (count > 1)
    # Propensities tell them apart, and so does F1 by label, if absent labels count 1 as in the paper's table 3.
    for name in ("PROP-F", "LB-F"):
        assert METRICS[name](frequent) > METRICS[name](absent)
    counting_0 = OTHERWISE["LB-F, absent labels 0"]
    assert counting_0(frequent) < counting_0(absent)


def test_metrics_that_cannot_tell_the_outputs_apart_tie_in_every_gold_standard() -> None:
    shares = wins(Reading(), 3, 0, PAPER_METRICS)
    for name in ("LB-ACC", "EB-HAMM"):
        assert shares[name].tolist() == [1, 0.5, 0.5, 0.5, 0.5]
    for name in ("EB-JACC", "EB-SUBACC", "EB-F"):
        assert shares[name][1:4].tolist() == [0.5, 0.5, 0.5]
    assert all(len(row) == len(TESTS) for row in shares.values())
    values = values_of(shares)
    assert values["LB-ACC/least"] == values["EB-F/hierarchy"] == 50
    assert values["all but ICM/least"] <= 100
    assert values["no proximity/hierarchy"] == max(abs(values[f"{name}/hierarchy"] - 50) for name in ("LB-F", "PROP-F"))


def test_gold_standards_are_as_large_as_the_formulas_say() -> None:
    rng = np.random.default_rng(0)
    reading = Reading()
    assert reading.chance.sum() == pytest.approx(1)
    # 1,000 draws: 22.5, 22.0, ... 0.45 labels an item, 299, 149, ... 0.58 items a category.
    assert (1000 * reading.chance.sum(axis=1))[[0, 1, -1]] == pytest.approx([22.47, 22.02, 0.449], abs=0.01)
    assert (1000 * reading.chance.sum(axis=0))[[0, 1, -1]] == pytest.approx([298.9, 149.4, 0.584], abs=0.05)
    sizes = [len(make_standard(reading, rng).assignments) for _ in range(20)]
    assert np.mean(sizes) == pytest.approx(reading.presence.sum(), abs=25)
    assert len(make_standard(Reading(distinct=True), rng).assignments) == 1000
