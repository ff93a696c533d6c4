"""How rules are written and what they need: names, numbers, settings, training data; and what is refused."""

import inspect
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelabel import Dataset, Evaluator, Hierarchy, Scores, TreelabelError, decide, evaluate
from treelabel.metrics import METRICS
from treelabel.rules import RULES
from treelabel.rules.registry import find_rule

# Columns are A, D, B, C.
H = Hierarchy.from_paths(["A > B", "A > C", "D"])
SCORES = Scores(H, [[0.6, 0.4, 0.35, 0.25]])
TRAINING = Dataset.of([""] * 4, [["B"], ["B"], ["C"], ["D"]], H)


def called(rule: str, **options: Any) -> tuple[str, dict[str, Any]]:
    """Find a rule: its name and the settings it is to be used with."""
    asked = find_rule(rule, options)
    return asked.rule.name, dict(asked.settings)


# Ways to write a rule

WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    "threshold": ("threshold", {}),
    "threshold@0.3": ("threshold", {"t": 0.3}),
    "  threshold @ 0.3 ": ("threshold", {"t": 0.3}),
    "threshold@3e-1": ("threshold", {"t": 0.3}),
    "threshold(t=0.3)": ("threshold", {"t": 0.3}),
    "threshold (t = 0.3, closed = false)": ("threshold", {"t": 0.3, "closed": False}),
    "threshold(t=[0.5, 0.4])": ("threshold", {"t": [0.5, 0.4]}),
    "threshold(t=none, closed=TRUE)": ("threshold", {"closed": True}),
    "threshold()": ("threshold", {}),
    "threshold@0.3(unknown=0.5)": ("threshold", {"t": 0.3, "unknown": 0.5}),
    "top_k@3": ("top_k", {"k": 3}),
    "top_k(k=3, leaves=true)": ("top_k", {"k": 3, "leaves": True}),
    "optimal:cost(similarity=wu_palmer)": ("optimal:cost", {"similarity": "wu_palmer"}),
    "optimal:cost(similarity='lin')": ("optimal:cost", {"similarity": "lin"}),
    "optimal:icm(alpha=2, beta=4)": ("optimal:icm", {"alpha": 2, "beta": 4}),
    "optimal:hf_beta@0.5": ("optimal:hf_beta", {"beta": 0.5}),
    "optimal:macro_f1": ("optimal:macro_f1", {}),
    "optimal:macro_f1@5": ("optimal:macro_f1@k", {"k": 5}),
    "optimal:macro_f1@k": ("optimal:macro_f1@k", {}),
    "optimal:macro_f1@k(k=3)": ("optimal:macro_f1@k", {"k": 3}),
    "optimal:macro_f1@3(at_most=true)": ("optimal:macro_f1@k", {"k": 3, "at_most": True}),
    "optimal:binned_macro_f1": ("optimal:binned_macro_f1@k", {}),
    "optimal:binned_macro_f1@2(bin_edges=[1, 5])": ("optimal:binned_macro_f1@k", {"k": 2, "bin_edges": [1, 5]}),
}


@pytest.mark.parametrize(("rule", "expected"), WRITTEN.items())
def test_a_rule_is_written_with_its_number_or_its_settings(rule: str, expected: tuple[str, dict[str, Any]]) -> None:
    assert called(rule) == expected


@pytest.mark.parametrize("name", RULES)
def test_every_name_of_the_table_is_a_rule(name: str) -> None:
    assert called(name) == (name, {})


def test_settings_are_keyword_arguments_too_and_none_is_given_twice() -> None:
    assert called("threshold", t=0.3) == ("threshold", {"t": 0.3})
    assert called("top_k(k=2)", leaves=True) == ("top_k", {"k": 2, "leaves": True})
    for rule, settings in (("threshold@0.4", {"t": 0.3}), ("top_k(k=2)", {"k": 3}), ("top_k@2(k=3)", {})):
        with pytest.raises(TreelabelError, match="is given twice"):
            called(rule, **settings)
    assert decide(SCORES, "threshold", t=0.3).names() == decide(SCORES, "threshold@0.3").names() == [["A", "D", "B"]]


@pytest.mark.parametrize("rule", [*WRITTEN, *RULES, "optimal:macro_f1@4", "threshold(unknown=0.25)"])
def test_what_decisions_say_of_their_rule_can_be_used_again(rule: str) -> None:
    asked = find_rule(rule)
    assert called(str(asked)) == (asked.rule.name, dict(asked.settings))


def is_found_or_told(rule: str) -> bool:
    try:
        return find_rule(rule).rule.name in RULES
    except TreelabelError as error:
        return repr(rule) in str(error)


@given(st.text(max_size=30) | st.text("t=[]{}()'\"0.,:*-+", max_size=12))
def test_any_text_is_a_rule_or_is_refused_with_a_sentence(text: str) -> None:
    for rule in (text, f"threshold({text})", f"threshold(t={text})", f"threshold@{text}"):
        assert is_found_or_told(rule)


def test_decisions_name_their_rule() -> None:
    for rule, said in {
        "threshold": "threshold",
        "threshold(t=0.3)": "threshold@0.3",
        "optimal:macro_f1@2": "optimal:macro_f1@2",
        "optimal:macro_f1@2(at_most=true)": "optimal:macro_f1@k(k=2, at_most=True)",
        "top_k(k=2, leaves=true)": "top_k(k=2, leaves=True)",
    }.items():
        assert decide(SCORES, rule).rule == said
    many = Hierarchy.flat(map(str, range(20)))
    assert str(decide(Scores(many, np.zeros((1, 20))), "threshold", t=np.full(20, 0.5)).rule).startswith(
        "threshold(t=<20 numbers "
    )


# Refusals

REFUSED: dict[str, tuple[str, str]] = {
    "a misspelled name": ("treshold", "unknown rule 'treshold'; did you mean threshold"),
    "a metric's name": ("hf1", r"unknown rule 'hf1'; did you mean optimal:hf1.*'treelabel rules' lists them"),
    "nothing like it": ("zzzzzzzzzzzzzz", "unknown rule 'zzzzzzzzzzzzzz'; 'treelabel rules' lists them"),
    "an empty name": ("", "cannot read the rule ''; expected name, name@number or name"),
    "no number": ("threshold@", "cannot read the rule 'threshold@'"),
    "open brackets": ("threshold(t=0.5", "cannot read the rule"),
    "a word for a number": ("threshold@high", "'threshold@high': expected a number behind @, such as threshold@0.5"),
    "two numbers": ("threshold@0.5@1", "expected a number behind @, such as threshold@0.5"),
    "a number for k": ("optimal:macro_f1@x", "expected a number behind @, such as optimal:macro_f1@5"),
    "a number too many": ("best_leaf@3", "rule 'best_leaf@3': best_leaf takes no number behind @"),
    "a number for the usual F": ("optimal:hf1@2", "optimal:hf1 takes no number behind @"),
    "an unknown setting": ("top_k(size=3)", "has no setting 'size'; it has: k, leaves, closed, unknown$"),
    "a misspelled setting": ("top_k(leafs=true)", r"no setting 'leafs'; .*; did you mean leaves\?"),
    "what comes from training": ("optimal:lin(information=[1])", "no setting 'information'; it has: closed, unknown"),
    "a value without a name": ("threshold(0.5)", r"cannot read '0.5'; expected settings such as \(t=0.3\)"),
    "unpacking": ("threshold(**{'t': 1})", "cannot read"),
    "a call": ("threshold(t=__import__('os'))", "cannot read"),
    "a sum of calls": ("threshold(t=0.5) + f(t=0.3)", "cannot read"),
    "an attribute": ("threshold(t=(1).__class__)", "cannot read"),
    "a comprehension": ("threshold(t=[x for x in (1,)])", "cannot read"),
    "a lambda": ("threshold(t=lambda: 1)", "cannot read"),
    "a formatted text": ("threshold(t=f'{1}')", "cannot read"),
    "a value that is none": ("threshold(t={[1]: 2})", "cannot read"),
    "threshold 0": ("threshold@0", "threshold: expected a threshold above 0, found 0; 0 would predict every label"),
    "threshold below 0": ("threshold@-1", "expected a threshold above 0, found -1"),
    "no threshold at all": ("threshold@nan", "expected a threshold above 0, found nan"),
    "one threshold of 0": ("threshold(t=[0.5, 0])", "expected a threshold above 0, found 0"),
    "too few thresholds": (
        "threshold(t=[0.5, 0.5, 0.5])",
        r"threshold: 3 thresholds, expected one, 2 \(one per level\) or 4 \(one per node\)",
    ),
    "k of 0": ("top_k@0", "top_k: k = 0, expected a whole number of at least 1"),
    "half a label": ("top_k@1.5", "top_k: k = 1.5, expected a whole number of at least 1"),
    "endless labels": ("top_k@inf", "top_k: k = inf, expected a whole number of at least 1"),
    "k of nothing": ("top_k@nan", "top_k: k = nan, expected a whole number of at least 1"),
    "no beam": ("beam@0", "beam: width = 0, expected a whole number of at least 1"),
    "half a label by ascent": ("optimal:macro_f1@1.5", "optimal:macro_f1@k: k = 1.5, expected a whole number"),
    "a stop below 0": ("top_down@-0.1", "top_down: stop = -0.1, expected a score from 0 to 1"),
    "no stop": ("top_down@nan", "top_down: stop = nan, expected a score from 0 to 1"),
    "a trust below 0": ("back_off@-0.1", "back_off: t = -0.1, expected a score from 0 to 1"),
    "no trust": ("back_off@nan", "back_off: t = nan, expected a score from 0 to 1"),
    "a level too many to trust": ("back_off(t=[1, 1, 1])", r"3 thresholds, expected one, or 2 \(one per level\)"),
    "a level below 0": ("back_off(t=[0.5, -1])", "t has -1, expected scores from 0 to 1, or 2 for a level never pred"),
    "a precision not yet measured": (
        "back_off(precision=0.9)",
        r"back_off: back_off\(precision=0.9\) has to be measured on validation data first: tune\(truth, scores",
    ),
    "nothing to trust": ("back_off", r"back_off\(precision=0.95\) has to be measured on validation data first"),
    "a beta below 0": ("optimal:hf_beta@-1", "optimal:hf_beta: expected a beta of at least 0 and at most a million"),
    "a beta without end": ("optimal:hf_beta@inf", "expected a beta of at least 0 and at most a million, found inf"),
    "a beta for independent labels": ("optimal:samples_f1(beta=-1)", "expected a beta of at least 0, found -1"),
    "a beta of 0 in bits": ("optimal:info_hf1(beta=0)", "optimal:info_hf1: expected a beta above 0, found 0"),
    "an alpha above beta": (
        "optimal:icm(alpha=4)",
        "optimal:icm: alpha = 4, beta = 3: expected 0 < alpha <= beta; with a larger alpha every label",
    ),
    "an alpha of 0": ("optimal:icm(alpha=0)", "expected 0 < alpha <= beta"),
    "no cost": ("optimal:cost", "needs either matrix=.* or similarity="),
    "two costs": ("optimal:cost(matrix=[[1]], similarity=lin)", "needs either matrix=.* or similarity="),
    "a cost of the wrong shape": (
        "optimal:cost(matrix=[[1, 2], [3, 4]])",
        r"a cost matrix of shape \(2, 2\), expected 4 nodes x 3 leaves, or leaves x leaves",
    ),
    "a metric, nearly": ("macro", r"did you mean optimal:macro_f1 or optimal:macro_f1@k or optimal:micro_f1\?"),
    "an optimal rule, nearly": ("optimal:f", r"did you mean optimal:hf1 or optimal:lin or optimal:icm\?"),
    "an unknown similarity": ("optimal:cost(similarity=alike)", "unknown similarity 'alike'; there are: wu_palmer, "),
}


@pytest.mark.parametrize(("rule", "message"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_in_a_rule_is_told(rule: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "system", lambda _: pytest.fail("a rule was run as code"))
    with pytest.raises(TreelabelError, match=message):
        decide(SCORES, rule, train_frequencies=TRAINING)


def test_costs_must_be_numbers() -> None:
    with pytest.raises(TreelabelError, match="the cost matrix has entries that are not finite numbers"):
        decide(SCORES, "optimal:cost", matrix=np.full((3, 3), np.inf))


def test_something_that_is_no_rule_or_no_scores_is_refused() -> None:
    with pytest.raises(TreelabelError, match="expected a rule such as 'optimal:hf1' or what tune gave, found int"):
        decide(SCORES, 3)  # type: ignore[arg-type]
    with pytest.raises(TreelabelError, match=r"expected Scores\(hierarchy, matrix\) to decide on, found ndarray"):
        decide(SCORES.dense())  # type: ignore[arg-type]


# What comes from training

BY_RARITY = ["optimal:info_hf1", "optimal:lin", "optimal:binned_macro_f1@k"]


def test_the_table_says_which_rules_need_training_data() -> None:
    assert [name for name, row in RULES.items() if row.needs] == BY_RARITY
    assert [name for name, row in RULES.items() if row.known - row.needs] == ["optimal:cost"]


@pytest.mark.parametrize("rule", [*BY_RARITY, "optimal:cost(similarity=resnik)"])
def test_training_data_come_as_a_dataset_or_as_counts(rule: str) -> None:
    counts = [3, 1, 2, 1]
    assert TRAINING.frequencies.tolist() == counts
    expected = decide(SCORES, rule, TRAINING).names()
    assert decide(SCORES, rule, train_frequencies=counts, train_documents=4).names() == expected
    assert decide(SCORES, rule, np.array(counts), 4).names() == expected


@pytest.mark.parametrize("rule", BY_RARITY)
def test_without_training_data_a_rule_by_rarity_is_refused(rule: str) -> None:
    with pytest.raises(TreelabelError, match=f"{rule} needs to know how rare labels are in training; pass train_freq"):
        decide(SCORES, rule)
    with pytest.raises(TreelabelError, match=r"train_frequencies of shape \(2,\), expected one count for 4 nodes"):
        decide(SCORES, rule, train_frequencies=[1, 2], train_documents=4)
    other = Dataset.of([""], [["A"]], Hierarchy.flat("ABCD"))
    with pytest.raises(TreelabelError, match="the training data belongs to another hierarchy"):
        decide(SCORES, rule, train_frequencies=other)


@pytest.mark.parametrize("rule", ["optimal:info_hf1", "optimal:lin"])
def test_information_needs_the_number_of_documents(rule: str) -> None:
    with pytest.raises(TreelabelError, match="how rare labels are in training; pass train_documents="):
        decide(SCORES, rule, train_frequencies=[3, 1, 2, 1])


def test_a_similarity_by_information_needs_training_data() -> None:
    with pytest.raises(TreelabelError, match="optimal:cost: the similarity lin needs training frequencies"):
        decide(SCORES, "optimal:cost(similarity=lin)")


@pytest.mark.parametrize("rule", BY_RARITY)
def test_a_rule_by_rarity_in_an_evaluation_never_looks_at_the_truth(rule: str) -> None:
    truth, metrics = [["C"]], ["info_hf1"]
    # The metric may take the truth as its reference; a decision that did would know what it is to predict.
    with pytest.raises(TreelabelError, match=f"{rule} needs to know how rare labels are in training"):
        evaluate(truth, scores=SCORES, rule=rule, metrics=metrics)
    for known in ({"train_frequencies": TRAINING}, {"train_frequencies": [3, 1, 2, 1], "train_documents": 4}):
        judged = evaluate(truth, scores=SCORES, rule=rule, metrics=metrics, **known)
        decided = decide(SCORES, rule, **known)
        assert judged.values == evaluate(truth, decided, metrics=metrics, **known).values
        assert judged.rule == decided.rule == rule


def test_a_stream_decides_with_the_training_data_it_was_given() -> None:
    judge = Evaluator(H, ["hf1"], "optimal:info_hf1", TRAINING)
    judge.add([["C"]], scores=SCORES)
    expected = evaluate([["C"]], decide(SCORES, "optimal:info_hf1", TRAINING), metrics=["hf1"])
    assert judge.result()["hf1"] == expected["hf1"]


# The table


def test_the_table_says_what_a_reader_needs() -> None:
    for name, row in RULES.items():
        assert row.name == name
        assert row.help
        assert (row.best_for is not None) == (row.is_exact is not None) == bool(row.assumes)
        assert row.main is None or row.main in row.settings
        assert {"closed", "unknown"} <= row.settings.keys()
        assert inspect.getdoc(row.choose)
        if row.best_for is not None:
            assert name == f"optimal:{row.best_for}"
            assert row.best_for in METRICS or row.best_for == "cost"
