"""Coverage: how many documents got a label, and what those without one cost."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import Run, put
from tests.strategies import Drawn, examples, hierarchies
from treelabel import Evaluator, Hierarchy, Result, Scores, evaluate
from treelabel.hierarchy.label_matrices import from_ids

TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])
TRUTH = [["F"], ["E"], ["D"], ["F"]]
# A leaf that is right, its parent, a node beside the way, nothing.
FOUND = [["F"], ["B"], ["C"], []]


@pytest.fixture
def result() -> Result:
    return evaluate(TRUTH, FOUND, hierarchy=TREE, metrics=["hp", "hr", "hf1"])


def test_coverage_by_hand(result: Result) -> None:
    coverage = result.coverage
    assert coverage is not None
    assert (coverage.documents, coverage.with_label, coverage.with_leaf) == (4, 3, 1)
    assert (coverage.label, coverage.leaf) == (0.75, 0.25)
    assert coverage.all_documents == pytest.approx(result.values)
    # Precision 1, 1, 1/2; recall 1, 1/2, 1/2; F1 1, 2/3, 1/2.
    assert coverage.labelled_documents == pytest.approx({"hp": 2.5 / 3, "hr": 2 / 3, "hf1": (1 + 2 / 3 + 1 / 2) / 3})


def test_values_of_the_answered_are_those_of_an_evaluation_of_them_alone(result: Result) -> None:
    assert result.coverage is not None
    alone = evaluate(TRUTH[:3], FOUND[:3], hierarchy=TREE, metrics=["hp", "hr", "hf1"])
    assert result.coverage.labelled_documents == pytest.approx(alone.values)


def test_the_table_says_what_abstaining_costs(result: Result) -> None:
    assert str(result).splitlines()[-4:] == [
        "Labelled: of 4 documents, 75.0% got a label and 25.0% a leaf.",
        "What abstaining costs   hp      hr      hf1",
        "  all documents         0.6250  0.5000  0.5417",
        "  those with a label    0.8333  0.6667  0.7222",
    ]
    stored = json.loads(result.to_json())["coverage"]
    assert (stored["label"], stored["leaf"]) == (0.75, 0.25)
    assert stored["all"]["hf1"] == result["hf1"]
    assert stored["answered"]["hp"] == pytest.approx(2.5 / 3)


def test_where_every_document_got_a_label_nothing_is_said_of_abstaining() -> None:
    inside = evaluate([["F"], ["F"]], [["C"], ["F"]], hierarchy=TREE, metrics=["hf1"])
    assert inside.notes == ["Labelled: of 2 documents, 100.0% got a label and 50.0% a leaf."]
    assert evaluate([["F"]], [["D"]], hierarchy=TREE, metrics=["hf1"]).notes == []


def test_where_no_document_got_a_label_there_is_nothing_to_compare() -> None:
    nothing = evaluate([["F"], ["E"]], [[], []], hierarchy=TREE, metrics=["hf1"])
    assert nothing.notes == ["Labelled: of 2 documents, 0.0% got a label and 0.0% a leaf."]
    assert json.loads(nothing.to_json())["coverage"]["answered"] == {"hp": None, "hr": None, "hf1": None}


def test_a_document_has_a_leaf_by_any_of_its_labels_and_ancestors_count_as_labels() -> None:
    several = evaluate([["F"], ["F"]], [["B", "D"], ["A", "B"]], hierarchy=TREE, metrics=["hf1"]).coverage
    assert several is not None
    assert (several.with_label, several.with_leaf) == (2, 1)


def test_scores_that_nothing_decided_have_no_coverage() -> None:
    scores = Scores(TREE, np.ones((1, 6)))
    judged = evaluate([["F"]], scores=scores, metrics=["hf1_auc"])
    assert judged.coverage is None
    assert json.loads(judged.to_json())["coverage"] is None
    assert evaluate([["F"]], scores=scores).coverage is not None


def test_coverage_adds_up_over_batches_and_evaluators(result: Result) -> None:
    one, two = Evaluator(TREE, ["hf1"]), Evaluator(TREE, ["hf1"])
    one.add(TRUTH[:1], FOUND[:1])
    one.add(TRUTH[1:2], FOUND[1:2])
    two.add(TRUTH[2:], FOUND[2:])
    merged = (one | two).result()
    assert merged.notes == result.notes


def test_batches_tell_of_abstaining_what_one_pass_tells() -> None:
    stream = Evaluator(TREE, ["micro_f1"])
    stream.add([["F"]], [["F"]])
    stream.add([["F"]], [[]])
    whole = evaluate([["F"], ["F"]], [["F"], []], hierarchy=TREE, metrics=["micro_f1"])
    assert stream.result().notes == whole.notes
    assert stream.result().notes[-1].split() == ["those", "with", "a", "label", "1.0000", "1.0000", "1.0000"]
    assert evaluate([["F"], ["F"]], [["F"], []], hierarchy=TREE, metrics=["micro_f1"]).notes[1:] == [
        "What abstaining costs   hp      hr      hf1",
        "  all documents         0.5000  0.5000  0.5000",
        "  those with a label    1.0000  1.0000  1.0000",
    ]


def test_the_command_prints_it(tmp_path: Path, run: Run) -> None:
    put(tmp_path, "taxonomy.tsv", "".join(f"{above}\t{below}\n" for above, below in TREE.edges("Root")))
    for name, rows in (("truth", TRUTH), ("found", FOUND)):
        put(tmp_path, f"{name}.jsonl", "".join(json.dumps({"labels": labels}) + "\n" for labels in rows))
    ended = run("evaluate", tmp_path / "truth.jsonl", tmp_path / "found.jsonl")
    assert "Labelled: of 4 documents, 75.0% got a label and 25.0% a leaf." in ended.out.splitlines()


@examples(100)
@given(hierarchies(), st.data())
def test_documents_right_by_level_are_those_of_sets_cut_at_each_level(drawn: Drawn, data: st.DataObject) -> None:
    h = drawn.fast
    rows = st.lists(st.integers(0, len(h) - 1), max_size=4)
    count = data.draw(st.integers(1, 6))
    truth, decisions = ([sorted({*data.draw(rows)}) for _ in range(count)] for _ in range(2))
    sets = [
        from_ids(np.cumsum([0, *map(len, each)]), np.array([node for row in each for node in row], np.int32), len(h))
        for each in (truth, decisions)
    ]
    true, chosen = (h.closure(each).toarray() for each in sets)
    right = [
        sum(all(one[h.depth <= d] == two[h.depth <= d]) for one, two in zip(true, chosen, strict=True))
        for d in range(1, h.max_depth + 1)
    ]
    result = evaluate(sets[0], sets[1], hierarchy=h, metrics=["hf1"])
    assert result.coverage is not None
    assert list(result.coverage.right) == right
    assert result.headline.startswith(f"{right[-1]} of {count} exactly right")
