"""Thresholds found on validation data against brute force over all cuts; and the file that keeps them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.helpers import put
from tests.reference import matrix_of, sets_of
from tests.reference_metrics import flat_f1, label_counts, mean
from tests.strategies import Drawn, hierarchies, with_scores
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, TunedRule, decide, evaluate, tune
from treelabel.evaluation.tuning import best_threshold, best_threshold_per_label

H = Hierarchy.from_paths(["A > B", "A > C", "D"])
SCORES = Scores(H, [[0.9, 0.1, 0.6, 0.3], [0.8, 0.2, 0.3, 0.5], [0.3, 0.7, 0.2, 0.1], [0.6, 0.3, 0.4, 0.2]])
TRUTH = [["B"], ["C"], ["D"], ["D"]]

Validation = tuple[Drawn, Any, list[set[int]]]


@st.composite
def validation(draw: st.DrawFn) -> Validation:
    """Draw scores, often equal, and closed truth: labels never true, true labels without a score, empty rows."""
    drawn, values = draw(with_scores(hierarchies()).filter(lambda case: len(case[1]) > 0))
    # Now and then all scores are whole, so that nearly all are equal.
    values = np.ceil(values) if draw(st.integers(0, 9)) == 0 else values
    labels = st.sets(st.integers(0, len(drawn) - 1), max_size=3).map(drawn.slow.closure)
    truth = draw(st.lists(labels, min_size=len(values), max_size=len(values)))
    return drawn, values, truth


def both_forms(case: Validation) -> list[Scores]:
    return [Scores(case[0].fast, case[1]), Scores(case[0].fast, sparse.csr_array(case[1]))]


def cut_at(values: Any, cut: float) -> list[set[int]]:
    """The labels of at least a score."""
    return [{label for label, score in enumerate(row) if score >= cut} for row in values.tolist()]


def all_cuts(values: Any) -> list[float]:
    """Every threshold that predicts a different set: each score above 0."""
    return sorted(set(values[values > 0].tolist()))


def micro_f1(predicted: list[set[int]], truth: list[set[int]]) -> float:
    pairs = list(zip(predicted, truth, strict=True))
    return flat_f1(sum(len(s & y) for s, y in pairs), sum(len(s) for s, _ in pairs), sum(len(y) for _, y in pairs))


def label_f1(predicted: list[set[int]], truth: list[set[int]], label: int) -> float:
    return flat_f1(*label_counts(list(zip(predicted, truth, strict=True)), label))


# Thresholds for F1


@given(validation())
def test_no_threshold_has_a_larger_micro_f1(case: Validation) -> None:
    drawn, values, truth = case
    most = max((micro_f1(cut_at(values, cut), truth) for cut in all_cuts(values)), default=0.0)
    for scores in both_forms(case):
        true = matrix_of(truth, len(drawn))
        if most == 0:
            with pytest.raises(TreelabelError, match="no true label has a score above 0 in the validation data"):
                best_threshold(scores, true)
            continue
        t, reached = best_threshold(scores, true)
        assert reached == pytest.approx(most)
        predicted = sets_of(decide(scores, "threshold", t=t, closed=False).csr, len(drawn))
        assert micro_f1(predicted, truth) == reached
        # Halfway between two scores, and so none of them.
        assert t not in all_cuts(values)


@given(validation())
@pytest.mark.slow
def test_no_threshold_of_a_label_has_a_larger_f1(case: Validation) -> None:
    drawn, values, truth = case
    nodes = range(len(drawn))
    most = [
        max((label_f1(cut_at(values, cut), truth, node) for cut in all_cuts(values)), default=0.0) for node in nodes
    ]
    for scores in both_forms(case):
        true = matrix_of(truth, len(drawn))
        if not any(most):
            with pytest.raises(TreelabelError, match="no true label has a score above 0"):
                best_threshold_per_label(scores, true)
            continue
        thresholds, reached = best_threshold_per_label(scores, true)
        closed = sets_of(decide(scores, "threshold", t=thresholds).csr, len(drawn))
        assert reached == pytest.approx(mean(label_f1(closed, truth, node) for node in nodes))
        predicted = sets_of(decide(scores, "threshold", t=thresholds, closed=False).csr, len(drawn))
        assert [label_f1(predicted, truth, node) for node in nodes] == pytest.approx(most)
        # A label that the data tell nothing about takes the one threshold of all.
        usual = np.float32(best_threshold(scores, true)[0])
        assert [t for t, f1 in zip(thresholds, most, strict=True) if f1 == 0] == [usual] * most.count(0)


def test_equal_scores_are_predicted_together() -> None:
    flat = Hierarchy.flat("ab")
    scores = Scores(flat, [[0.5, 0.5], [0.25, 0.5]])
    # With 0.5 three labels are predicted and one is right; there is no cut between them.
    assert best_threshold(scores, matrix_of([{0}, set()], 2)) == (0.375, 0.5)
    thresholds, reached = best_threshold_per_label(scores, matrix_of([{0}, {1}], 2))
    assert thresholds.tolist() == [0.375, 0.25]
    assert reached == (1 + 2 / 3) / 2


def test_neighbouring_scores_are_told_apart() -> None:
    low = np.float32(0.5)
    high = np.nextafter(low, np.float32(1))
    scores = Scores(Hierarchy.flat("ab"), np.array([[low, high]]))
    t, reached = best_threshold(scores, matrix_of([{1}], 2))
    assert reached == 1.0
    assert decide(scores, "threshold", t=t).names() == [["b"]]


# Tuning


@pytest.mark.parametrize("rule", ["macro_f1", "micro_f1", "optimal:macro_f1", "optimal:micro_f1"])
def test_what_was_measured_is_what_the_tuned_rule_reaches(rule: str) -> None:
    tuned = tune(TRUTH, SCORES, rule)
    assert tuned.rule == "threshold"
    assert tuned.fingerprint == H.fingerprint
    name = rule.removeprefix("optimal:")
    assert tuned.measured.keys() == {name, "documents"}
    reached = evaluate(TRUTH, scores=SCORES, rule=tuned, metrics=[name])
    assert reached[name] == pytest.approx(tuned.measured[name])
    for t in np.linspace(0.05, 0.95, 19):
        assert evaluate(TRUTH, scores=SCORES, rule=f"threshold@{t}", metrics=[name])[name] <= reached[name] + 1e-12


def test_truth_comes_in_any_form_and_is_matched_by_ids() -> None:
    expected = tune(TRUTH, SCORES).settings
    rows = [{0, 2}, {0, 3}, {1}, {1}]
    data = Dataset.of([""] * 4, TRUTH, H, ids=["a", "b", "c", "d"])
    shuffled = Scores(H, SCORES.dense()[[2, 0, 3, 1]], ("c", "a", "d", "b"))
    assert tune(matrix_of(rows, len(H)), SCORES).settings == expected
    assert tune(data, SCORES).settings == expected
    assert tune(data, shuffled).settings == expected


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "a rule without numbers": (
        (TRUTH, SCORES, "best_leaf"),
        "cannot tune 'best_leaf'; expected macro_f1, micro_f1, back_off",
    ),
    "a rule that is not there": ((TRUTH, SCORES, "xyz"), "cannot tune 'xyz'; expected macro_f1"),
    "the number itself": (
        (TRUTH, SCORES, "back_off@0.5"),
        "back_off@0.5: t is what is to be found; expected what it must reach, as in back_off",
    ),
    "a setting that is not there": ((TRUTH, SCORES, "back_off(preciion=1)"), "did you mean precision"),
    "too few documents": ((TRUTH[:3], SCORES, "macro_f1"), "truth has 3 documents, scores have 4"),
    "no documents": (([], SCORES[:0], "macro_f1"), "there are no validation documents to tune on"),
    "no scores": ((TRUTH, SCORES.dense(), "macro_f1"), r"expected Scores\(hierarchy, matrix\) to tune on, found nda"),
    "an unknown label": (([["X"]] * 4, SCORES, "macro_f1"), "unknown label 'X'"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_tuned_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        tune(*arguments)


# The file


@pytest.mark.parametrize("rule", ["macro_f1", "micro_f1", "back_off(precision=0.9, confidence=0)"])
def test_a_tuned_rule_decides_the_same_after_saving_and_loading(rule: str, tmp_path: Path) -> None:
    tuned, file = tune(TRUTH, SCORES, rule), tmp_path / "rule.json"
    tuned.save(file)
    assert [path.name for path in tmp_path.iterdir()] == ["rule.json"]
    loaded = TunedRule.load(file)
    assert loaded == tuned
    expected = decide(SCORES, tuned)
    for again in (decide(SCORES, loaded), decide(SCORES, str(file))):
        assert again.names() == expected.names()
        assert again.rule == expected.rule
    judged = evaluate(TRUTH, scores=SCORES, rule=str(file), metrics=["hf1", "micro_f1"])
    assert judged.values == evaluate(TRUTH, expected, metrics=["hf1", "micro_f1"]).values
    tuned.save(file)
    assert TunedRule.load(file) == tuned


def test_settings_beside_a_tuned_rule_go_before_its_own() -> None:
    tuned = tune(TRUTH, SCORES, "micro_f1")
    assert decide(SCORES, tuned, t=0.95).names() == [[], [], [], []]
    assert decide(SCORES, tuned, closed=False).rule == f"threshold(t={tuned.settings['t']:g}, closed=False)"


def test_a_rule_tuned_for_another_hierarchy_is_refused(tmp_path: Path) -> None:
    tuned, file = tune(TRUTH, SCORES), tmp_path / "rule.json"
    tuned.save(file)
    other = Scores(Hierarchy.from_paths(["A > B", "A > C", "E"]), SCORES.dense())
    for rule in (tuned, str(file)):
        with pytest.raises(TreelabelError, match="the tuned rule threshold belongs to another hierarchy"):
            decide(other, rule)


STORED = {"kind": "treelabel tuned rule", "version": 1, "rule": "threshold", "settings": {"t": 0.5}}
STORED |= {"fingerprint": H.fingerprint, "measured": {}}

DAMAGED: dict[str, tuple[str | bytes, str]] = {
    "cut short": (json.dumps(STORED)[:-20], "no tuned rule, for it is no JSON"),
    "empty": ("", "no tuned rule, for it is no JSON"),
    "not text": (b"\xff\xfe\x00", "no tuned rule, for it is no JSON"),
    "a list": ("[1, 2]", "no tuned rule; expected a file that 'treelabel tune' wrote"),
    "something else": ('{"kind": "treelabel result"}', "no tuned rule; expected a file that 'treelabel tune' wrote"),
    "newer": (json.dumps({**STORED, "version": 2}), "a tuned rule of version 2, but this treelabel reads version 1"),
    "without version": (json.dumps({**STORED, "version": None}), "a tuned rule of version None"),
    "without settings": (
        json.dumps({**STORED, "settings": None}),
        r"tuned rule\['settings'\] is None, expected a mapping",
    ),
    "without fingerprint": (json.dumps({**STORED, "fingerprint": None}), r"tuned rule\['fingerprint'\] is None"),
    "without rule": (json.dumps({k: v for k, v in STORED.items() if k != "rule"}), "the tuned rule lacks 'rule'"),
    "with more": (json.dumps({**STORED, "extra": 1}), "the tuned rule has 'extra', which does not belong there"),
    "another kind of rule": (json.dumps({**STORED, "rule": 3}), r"tuned rule\['rule'\] is 3, expected text"),
    "an unknown rule": (json.dumps({**STORED, "rule": "treshold"}), "unknown rule 'treshold'; did you mean threshold"),
    "an unknown setting": (json.dumps({**STORED, "settings": {"x": 1}}), "has no setting 'x'"),
}


@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_is_no_tuned_rule_is_refused_with_a_sentence(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    file = put(tmp_path, "rule.json", content)
    with pytest.raises(TreelabelError, match=message):
        decide(SCORES, str(file))


def test_a_missing_file_is_named_with_one_that_is_alike(tmp_path: Path) -> None:
    put(tmp_path, "rule.json", "")
    with pytest.raises(TreelabelError, match=r"rul\.json: no such file; did you mean rule\.json"):
        decide(SCORES, str(tmp_path / "rul.json"))


def test_what_cannot_be_written_leaves_the_old_file_and_no_half_one(tmp_path: Path) -> None:
    file = put(tmp_path, "rule.json", "old")
    unwritable = TunedRule("threshold", {"t": object()}, H.fingerprint)
    for target in (file, tmp_path / "new.json"):
        with pytest.raises(TypeError, match="not JSON serializable"):
            unwritable.save(target)
    with pytest.raises(TreelabelError, match=r"the folder .* does not exist"):
        unwritable.save(tmp_path / "nowhere" / "rule.json")
    assert [path.name for path in tmp_path.iterdir()] == ["rule.json"]
    assert file.read_text() == "old"
