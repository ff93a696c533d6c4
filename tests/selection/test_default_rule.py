"""The rule that decides where none is named: what evaluate and compare take, and what they say about it."""

import json

import numpy as np
import pytest
from hypothesis import given

from tests.strategies import Drawn, hierarchies, with_labels
from treelabel import Evaluator, Hierarchy, Scores, TreelabelError, compare, decide, evaluate
from treelabel.hierarchy import as_labels
from treelabel.hierarchy.label_ids import encode
from treelabel.hierarchy.labelled_texts import regime_of, usual_regime
from treelabel.models import make_model
from treelabel.rules.registry import DEFAULT_RULES, default_rule

TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])
LEAF, INSIDE, SEVERAL = ["F"], ["C"], ["F", "E"]
# The best leaf is C > F, and the scores of a whole path lie below a threshold of 0.5.
UNSURE = [0.6, 0.4, 0.4, 0.2, 0.4, 0.4]


def scores_of(documents: int) -> Scores:
    return Scores(TREE, [UNSURE] * documents)


@pytest.mark.parametrize(
    ("rows", "regime"),
    [
        ([LEAF] * 20, "single_path"),
        ([LEAF] * 19 + [SEVERAL], "single_path"),
        ([LEAF] * 19 + [INSIDE], "single_path"),
        ([LEAF] * 18 + [INSIDE] * 2, "partial_path"),
        ([LEAF] * 18 + [INSIDE, SEVERAL], "partial_path"),
        ([LEAF] * 18 + [SEVERAL] * 2, "multi_path"),
        ([LEAF] * 19 + [SEVERAL] + [[]] * 20, "single_path"),
        ([LEAF] * 18 + [SEVERAL] + [[]] * 20, "multi_path"),
        ([[]], "partial_path"),
        ([], "partial_path"),
    ],
)
def test_the_usual_regime_is_that_of_nearly_all_labelled_documents(rows: list[list[str]], regime: str) -> None:
    assert usual_regime(TREE, encode(TREE, rows)) == regime
    assert default_rule(TREE, encode(TREE, rows)) == DEFAULT_RULES[regime]


@given(drawn=with_labels(hierarchies()))
def test_the_regime_of_all_documents_is_the_usual_one_of_a_share_of_1(drawn: tuple[Drawn, list[set[int]]]) -> None:
    h, rows = drawn[0].fast, drawn[1]
    matrix = np.zeros((len(rows), len(h)), bool)
    for at, row in enumerate(rows):
        matrix[at, list(row)] = True
    labels = as_labels(matrix, len(h))
    assert usual_regime(h, labels, share=1) == regime_of(h, labels)


@pytest.mark.parametrize("rows", [[LEAF] * 2, [LEAF, INSIDE], [LEAF, SEVERAL], [LEAF] * 30 + [SEVERAL]])
def test_models_without_held_out_documents_have_the_same_default_rule(rows: list[list[str]]) -> None:
    model = make_model("most_frequent", hierarchy=TREE).fit(["text"] * len(rows), rows)
    assert model.default_rule == default_rule(TREE, encode(TREE, rows))


@pytest.mark.parametrize("rows", [[LEAF] * 2, [LEAF, INSIDE], [LEAF, SEVERAL], [LEAF] * 30 + [SEVERAL]])
def test_scores_without_a_rule_are_decided_by_the_default_which_is_told(rows: list[list[str]]) -> None:
    scores = scores_of(len(rows))
    expected = default_rule(TREE, encode(TREE, rows))
    result = evaluate(rows, scores=scores)
    assert (result.rule, result.is_default_rule) == (expected, True)
    assert result.values == evaluate(rows, scores=scores, rule=expected).values
    assert f"Scores were decided by {expected}, as predict decides for labels like these." in str(result)
    assert json.loads(result.to_json())["is_default_rule"]


def test_nothing_is_told_of_a_rule_that_was_asked_for_or_did_not_decide() -> None:
    scores = scores_of(1)
    for result in (
        evaluate([LEAF], scores=scores, rule="best_leaf", metrics=["hf1"]),
        evaluate([LEAF], scores=scores, metrics=["hf1_auc"]),
        evaluate([LEAF], decide(scores, "best_leaf"), scores, metrics=["hf1"]),
    ):
        assert (result.is_default_rule, result.notes) == (False, [])


def test_a_stream_keeps_the_rule_of_its_first_documents() -> None:
    stream = Evaluator(TREE, ["hf1"])
    stream.add([LEAF], scores=scores_of(1))
    stream.add([SEVERAL], scores=scores_of(1))
    assert stream.result().rule == "best_leaf"
    assert stream.result()["hf1"] == evaluate([LEAF, SEVERAL], scores=scores_of(2), rule="best_leaf")["hf1"]
    other = Evaluator(TREE, ["hf1"])
    other.add([SEVERAL], scores=scores_of(1))
    with pytest.raises(TreelabelError, match="cannot be merged; give both evaluators one rule="):
        _ = stream | other


def test_the_same_system_as_labels_and_as_scores_does_not_differ() -> None:
    rng = np.random.default_rng(0)
    h = Hierarchy.flat([str(number) for number in range(8)])
    scores = Scores(h, rng.dirichlet(np.ones(8), 200))
    truth = [[str(label)] for label in np.where(rng.random(200) < 0.7, scores.dense().argmax(1), 0)]
    labels = decide(scores, "best_leaf").csr
    table = compare(truth, {"labels": labels, "scores": scores}, resamples=50)
    assert table.rules == [None, "best_leaf"]
    assert all(row.p_values == [1.0] for row in table.metrics)
    shown = str(table)
    assert shown.splitlines()[1].split() == ["rule", "labels", "as", "given", "best_leaf"]
    assert "Rules differ (labels as given, best_leaf)" in shown
    assert json.loads(table.to_json())["rules"] == {"labels": None, "scores": "best_leaf"}


def test_systems_of_one_rule_are_compared_without_a_warning() -> None:
    truth = [LEAF, ["E"]] * 5
    same = compare(truth, {"one": scores_of(10), "two": scores_of(10)}, resamples=20)
    assert same.rules == ["best_leaf", "best_leaf"]
    assert "Rules differ" not in str(same)
    given_labels = compare(truth, {"one": truth, "two": truth}, TREE, resamples=20)
    assert "rule" not in str(given_labels)


def test_decisions_by_different_rules_are_told_apart() -> None:
    truth = [LEAF, ["E"]] * 5
    found = {rule: decide(scores_of(10), rule) for rule in ("threshold@0.5", "best_leaf")}
    assert "Rules differ (threshold@0.5, best_leaf)" in str(compare(truth, found, resamples=20))
