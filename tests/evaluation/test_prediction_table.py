"""Predictions by column: numbers, texts and labels are those that a loop over documents writes."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from treelabel import Hierarchy, Scores, decide
from treelabel.core.errors import printable
from treelabel.core.json_lines import json_values, number_texts
from treelabel.evaluation.predictions import prediction_bytes
from treelabel.rules.decision_columns import (
    column_names,
    label_separator,
    prediction_columns,
    runner_up_labels,
    seven_digits,
)

TREE = Hierarchy.from_paths(["A > B", "A > C", "D > E", "D > F"])


@examples(200)
@given(st.lists(st.floats(0, 1, width=32), max_size=5), st.lists(st.floats(0, 1), max_size=5))
def test_scores_have_the_seven_digits_that_python_writes(single: list[float], double: list[float]) -> None:
    values = np.array([*single, *double], np.float64)
    wanted = [json.dumps(float(f"{p:.7g}")) for p in values.tolist()]
    assert number_texts(seven_digits(values)).to_pylist() == wanted


def test_every_digit_of_many_scores() -> None:
    p = np.random.default_rng(0).random(100_000).astype(np.float32) ** 3
    values = p.astype(np.float64)
    assert number_texts(seven_digits(values)).to_pylist() == [repr(float(f"{each:.7g}")) for each in values.tolist()]


@examples(100)
@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=6))
def test_texts_are_written_as_json_does(texts: list[str | None]) -> None:
    written = json_values(pa.array(texts, pa.large_string())).to_pylist()
    # And what would drive a terminal is escaped, too.
    assert written == [printable(json.dumps(text, ensure_ascii=False)) for text in texts]
    assert [json.loads(line) for line in written] == texts


def test_values_of_any_type_are_written_as_json() -> None:
    assert json_values(pa.array([1, None])).to_pylist() == ["1", "null"]
    assert json_values(pa.chunked_array([[["a"]], [None]])).to_pylist() == ['["a"]', "null"]


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_a_table_has_labels_levels_and_runners_up(form: str) -> None:
    # Columns are A, D, B, C, E, F.
    scores = Scores(TREE, [[0.9, 0.6, 0.5, 0.4, 0.1, 0.55], [0, 0, 0, 0, 0, 0], [0.3, 0.7, 0.3, 0, 0.2, 0.5]])
    scores = scores if form == "dense" else Scores(TREE, scores.csr())
    found = prediction_columns(decide(scores, "threshold@0.5"), scores, "; ", False, 2, True)
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "predicted": ["F; B", None, "F"],
        "path": ["D > F; A > B", None, "D > F"],
        "p": [0.55, None, 0.5],
        "all_p": ["0.55; 0.5", None, "0.5"],
        "level1": ["A; D", None, "D"],
        "level2": ["B; F", None, "F"],
        "alternative1": ["C", None, "B"],
        "alternative1_p": [0.4, None, 0.3],
        "alternative2": ["E", None, "E"],
        "alternative2_p": [0.1, None, 0.2],
    }
    every = prediction_columns(decide(scores, "threshold@0.5"), scores, "; ", all_labels=True)
    assert every["predicted"].to_pylist() == ["A; D; F; B", None, "D; F"]


def test_runners_up_are_the_likeliest_leaves_that_were_not_predicted() -> None:
    values = np.random.default_rng(0).random((50, 6)).astype(np.float32)
    for scores in (Scores(TREE, values), Scores(TREE, values).top_k(4)):
        decisions = decide(scores, "best_leaf")
        others = runner_up_labels(decisions, scores, 2)
        dense = scores.dense()
        for row, predicted in enumerate(decisions.names()):
            leaves = [node for node in TREE.leaves.tolist() if TREE.names[node] not in predicted and dense[row, node]]
            wanted = sorted(leaves, key=lambda node: -dense[row, node])[:2]
            assert others.nodes[others.ptr[row] : others.ptr[row + 1]].tolist() == wanted


def test_sets_that_are_not_closed_have_all_levels_above_them() -> None:
    scores = Scores(TREE, [[0.9, 0.1, 0.8, 0.1, 0.1, 0.1]])
    found = prediction_columns(decide(scores, "threshold", t=[1, 0.5], closed=False), scores, "; ")
    assert [found[name].to_pylist() for name in ("predicted", "level1", "level2")] == [["B"], ["A"], ["B"]]


def test_lines_say_which_sets_are_closed() -> None:
    scores = Scores(TREE, [[0.9, 0.1, 0.8, 0.1, 0.1, 0.1], [0.2, 0.9, 0.2, 0.1, 0.1, 0.1]])
    decisions = decide(scores, "threshold", t=[0.85, 0.5], closed=False)
    first, second = (json.loads(line) for line in prediction_bytes(decisions, pa.array(["a", "b"])).splitlines())
    assert (first["closed"], [entry["label"] for entry in first["labels"]]) == (True, ["B"])
    assert (second["closed"], [entry["label"] for entry in second["labels"]]) == (True, ["D"])
    open_sets = decide(scores, "threshold", t=[1, 0.5], closed=False)
    assert [
        json.loads(line).get("closed") for line in prediction_bytes(open_sets, pa.array(["a", "b"])).splitlines()
    ] == [
        None,
        True,
    ]


def test_further_columns_do_not_take_the_place_of_ours() -> None:
    scores = Scores(TREE, [[0.9, 0.1, 0.8, 0.1, 0.1, 0.1]])
    columns = {"id": pa.array(["own"]), "labels": pa.array([["x"]]), "n": pa.array([1])}
    (line,) = prediction_bytes(decide(scores), pa.array(["a"]), scores, False, 1, columns).splitlines()
    found = json.loads(line)
    assert (found["id"], found["id_"], found["labels_"], found["n"]) == ("a", "own", ["x"], 1)
    assert found["alternatives"] == [{"label": "C", "path": "A > C", "p": 0.1}]


def test_names_and_separators_are_free() -> None:
    assert column_names(1, 0, True, ["P", "predicted_p"])["p"] == "predicted_p_"
    assert label_separator(Hierarchy.flat(["a;b", "c|d"])) == " || "
