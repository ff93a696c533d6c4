"""The formal properties of metrics: as the paper's table 1 has them, and of functions of anybody's own."""

from typing import Any

import numpy as np
import pytest
from specs.programs.metric_properties import DEVIATIONS, PROPERTY_NAMES, TABLE

import treelabel
from tests.helpers import Run
from treelabel import Hierarchy, TreelabelError
from treelabel.evaluation.metric_properties import PROPERTIES, STRENGTHS, Strength, check_metric

# The metrics of the table that METRICS have with the paper's conventions.
SAME = {
    "LB-ACC": "label_accuracy(sets=given)",
    "EB-SUBACC": "subset_accuracy(sets=given)",
    "EB-HAMM": "hamming(sets=given)",
    "PROP-F": "propensity_f1",
    "HF": "hf1_root",
    "Leacock-Chodorow": "leacock_chodorow",
    "Wu-Palmer": "wu_palmer",
    "Resnik": "resnik",
    "Jiang-Conrath": "jiang_conrath",
    "Lin": "lin",
    "ICM": "icm",
}


# Quick runs look at one flat metric and one of the hierarchy, to which situations are left that fail the other.
QUICK = ("EB-HAMM", "ICM")


@pytest.mark.parametrize(
    "metric", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SAME]
)
def test_table_1_of_the_paper(metric: str) -> None:
    found = check_metric(SAME[metric], tries=240)
    assert [each.name for each in found.properties] == list(PROPERTY_NAMES) == list(PROPERTIES)
    for name, printed in zip(PROPERTY_NAMES, TABLE[metric], strict=True):
        differs = (metric, name) in DEVIATIONS["plain"]
        # What is not defined has a dash in the table.
        assert bool(found[name].plain) == ((printed == "x") != differs), name
        if (metric, name) in DEVIATIONS["literal"] or printed == "-":
            assert not found[name].literal or name == "hierarchical proximity", name


@pytest.mark.slow
def test_a_counter_example_is_one_and_the_smallest_drawn() -> None:
    example = check_metric("hf1", tries=120)["true category specificity"].counter_example
    assert example is not None
    h = Hierarchy.from_paths(example.paths)
    values = [
        treelabel.evaluate(example.truth, output, hierarchy=h, metrics=["hf1"])["hf1"]
        for output in (example.better, example.worse)
    ]
    assert values == [example.better_value, example.worse_value]
    assert values[0] <= values[1]
    # Three labels, one of them in two documents: there is no smaller situation.
    assert len(example.truth) == 4


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("name", PROPERTIES)
def test_situations_are_what_the_property_speaks_about(name: str, strength: Strength) -> None:
    rng = np.random.default_rng(0)
    for size in (1, 3, 6):
        for _ in range(20):
            drawn = PROPERTIES[name][1](rng, strength, size)
            rows = list(zip(drawn.truth, drawn.better, drawn.worse, strict=True))
            changed = [row for row in rows if row[1] != row[2]]
            assert changed
            if "monotonicity" in name:
                ((true, better, worse),) = changed
                assert better > worse
                assert better - worse <= true
            if name in ("strict monotonicity", "true category specificity", "wrong category specificity"):
                assert drawn.hierarchy.max_depth == 1
                assert all(len(labels) <= 1 for row in rows for labels in row)
            if name == "hierarchical proximity":
                ((true, better, worse),) = changed
                assert not (better | worse) & true
            if name == "label vs. item quantity":
                assert sum(len(better) for _, better, _ in rows) == sum(len(worse) for _, _, worse in rows)
            others_right = all(true == better for true, better, worse in rows if better == worse)
            assert strength == "literal" or others_right


def test_a_function_of_ones_own() -> None:
    def jaccard(truth: list[list[str]], decisions: list[list[str]], hierarchy: Hierarchy) -> float:
        shares = []
        for true, predicted in zip(truth, decisions, strict=True):
            union = {*true, *predicted}
            shares.append(len({*true} & {*predicted}) / len(union) if union else 1.0)
        return float(np.mean(shares))

    found = treelabel.check_metric(jaccard, tries=120)
    assert found.metric == "jaccard"
    plain = "".join("x" if each.plain else "-" for each in found.properties)
    assert plain == TABLE["EB-JACC"]
    assert "multi-label monotonicity: holds\n" in str(found)
    negated = treelabel.check_metric(lambda *given: -jaccard(*given), higher_is_better=False, tries=120)
    assert [each.plain for each in negated.properties] == [each.plain for each in found.properties]


def test_what_is_not_a_number_is_not_better() -> None:
    found = check_metric(lambda truth, decisions, hierarchy: float("nan"), tries=12)
    assert not any(each.plain for each in found.properties)
    assert found.to_json()["properties"][0]["counter_example"]["better_value"] is None
    assert {each.verdict for each in found.properties} == {"fails: a value is not a number"}


def divides(truth: list[list[str]], decisions: list[list[str]], hierarchy: Hierarchy) -> float:
    return 1 / 0


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (divides, r"divides of truth \[\['A'\], .* failed: ZeroDivisionError: division by zero"),
        (lambda truth, decisions: 1.0, "failed: TypeError: .*takes 2 positional arguments but 3 were given"),
        (lambda *given: np.ones(3), r"expected a number, found an array of shape \(3,\)"),
        (lambda *given: None, "expected a number, found None"),
        (lambda *given: "0.5", "expected a number, found '0.5'"),
        (lambda *given: 1j, "expected a number, found 1j"),
        (lambda *given: {"mean": 1.0}, "expected a number, found {'mean': 1.0}"),
        (3, "expected the name of a metric or a function, found 3"),
    ],
)
def test_a_function_that_is_no_metric_is_named(metric: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        check_metric(metric, tries=12)


def test_numbers_of_any_kind_are_numbers_and_what_is_given_may_be_changed() -> None:
    def spoils(truth: list[list[str]], decisions: list[list[str]], hierarchy: Hierarchy) -> Any:
        value = np.mean([float(true == predicted) for true, predicted in zip(truth, decisions, strict=True)])
        truth.clear()
        decisions.clear()
        return np.array(value, np.float32)

    kept = [each.plain for each in check_metric("subset_accuracy(sets=given)", tries=60).properties]
    assert [each.plain for each in check_metric(spoils, tries=60).properties] == kept


def test_metrics_of_scores_and_too_few_tries_are_refused() -> None:
    with pytest.raises(TreelabelError, match="hf1_auc is a metric of scores"):
        check_metric("hf1_auc")
    for tries in (5, "many"):
        with pytest.raises(TreelabelError, match=f"tries = {tries}, expected at least 6"):
            check_metric("hf1", tries=tries)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_command_prints_what_was_found(run: Run) -> None:
    told = run("check-metric", "wu_palmer", "--tries", "60").out
    assert told.startswith("wu_palmer: properties, tried on up to 60 random situations each")
    assert "multi-label monotonicity: not defined" in told
    assert "true category specificity: fails" in told
    assert "but the better output has" in told
    stored = run("check-metric", "wu_palmer", "--tries", "60", "--json").json
    assert stored["properties"][1]["verdict"] == "fails"
    assert stored["properties"][4]["plain"] is None
    assert run("check-metric", "wu_palmer", "--tries", "60", "--seed", "1", "--json").json["metric"] == "wu_palmer"
    assert "--seed" in run("check-metric", "hf1", "--seed", "-1").err
    ended = run("check-metric", "hf2")
    assert (ended.code, "did you mean hf1" in ended.err) == (2, True)
