"""Training and test data without a taxonomy: hierarchies are joined by path, and unseen labels count as wrong."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.strategies import Drawn, examples, trees
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, compare, decide, evaluate, read, tune
from treelabel.hierarchy.union import join_hierarchies, nodes_in

KNOWN = Hierarchy.from_paths(["A > x", "A > y", "B > z"])
LEAVES = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1]]
SCORES = Scores.from_leaves(KNOWN, ["A > x", "A > y", "B > z"], LEAVES, ids=["a", "b", "c"])
NAMES = ["hf1", "micro_f1", "macro_f1", "hf1_auc"]


def dataset(folder: Path, rows: list[str], name: str = "test.csv") -> Dataset:
    lines = [f"{name_},text,{label}" for name_, label in zip("abcdefgh", rows, strict=False)]
    (folder / name).write_text("\n".join(["id,text,category", *lines]) + "\n")
    return read(folder / name)


def test_an_unseen_label_counts_as_a_label_with_a_score_of_0(tmp_path: Path) -> None:
    truth = dataset(tmp_path, ["A > x", "B > new", "A > y"])
    for scores in (SCORES, Scores(KNOWN, SCORES.csr(), SCORES.ids)):
        result = evaluate(truth, scores=scores, rule="best_leaf", metrics=NAMES)
        # By hand: decided A > x, B > z, A > x. Of six labels A and B have F1 1, x has 2/3, y, z and new have 0.
        assert result["hf1"] == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
        assert result["micro_f1"] == pytest.approx(4 / 6)
        assert result["macro_f1"] == pytest.approx((1 + 1 + 2 / 3) / 6)
        # Areas 1; from (0, 1) over (1/2, 1/2), (1/2, 1/5) to (1, 1/3), as new comes last with all others; and 19/24.
        assert result["hf1_auc"] == pytest.approx((1 + (3 / 8 + 2 / 15) + 19 / 24) / 3)
        assert "1 label of the truth (1 of 3 documents) is not known to the scores" in result.notes[0]
        assert "'B > new'" in str(result)
        assert "B > new" in result.to_json()
    seen = evaluate(truth[[0, 2]], scores=SCORES[[0, 2]], rule="best_leaf", metrics=NAMES)
    assert not seen.notes
    decided = evaluate(truth, decide(SCORES, "best_leaf"), metrics=NAMES[:3])
    assert decided["macro_f1"] == pytest.approx((1 + 1 + 2 / 3) / 6)


def test_rules_decide_under_the_hierarchy_of_the_scores(tmp_path: Path) -> None:
    # Under the union, A > x is no leaf, and best_leaf would predict what nobody has scored.
    truth = dataset(tmp_path, ["A > x > deep", "B > z", "A > y"])
    result = evaluate(truth, scores=SCORES, rule="best_leaf", metrics=["hf1"])
    assert result.documents["hf1"] == pytest.approx([0.8, 1, 0.5])
    train = dataset(tmp_path, ["A > x", "B > z", "A > y", "C"], "train.csv")
    rare = evaluate(truth, scores=SCORES, rule="optimal:info_hf1", metrics=["hf1"], train_frequencies=train)
    assert rare.rule == "optimal:info_hf1"


def test_counts_of_training_follow_the_union(tmp_path: Path) -> None:
    truth = dataset(tmp_path, ["B > new", "B > z", "A > y"])
    train = dataset(tmp_path, ["A > x", "A > y", "B > z"], "train.csv")
    by_data = evaluate(truth, scores=SCORES, metrics=["info_hf1"], train_frequencies=train)
    counts = evaluate(truth, scores=SCORES, metrics=["info_hf1"], train_frequencies=[2, 1, 1, 1, 1], train_documents=3)
    assert by_data["info_hf1"] == counts["info_hf1"]


def test_systems_are_compared_over_the_labels_of_all(tmp_path: Path) -> None:
    truth = dataset(tmp_path, ["A > x", "B > new", "A > y"])
    smaller = Hierarchy.from_paths(["A > y", "A > x"])
    other = Scores.from_leaves(smaller, ["x", "y"], [[0.6, 0.4]] * 3, ids=["a", "b", "c"])
    table = compare(truth, {"one": SCORES, "two": other}, rule="best_leaf", metrics=["macro_f1"])
    one, two = (found.value for found in table.metrics[0].values)
    assert (one, two) == pytest.approx(((1 + 1 + 2 / 3) / 6, (4 / 5 + 1 / 2) / 6))
    assert any(note.startswith("two: 2 labels of the truth") for note in table.notes)


def test_tuning_leaves_out_what_no_rule_can_predict(tmp_path: Path) -> None:
    truth = dataset(tmp_path, ["A > x", "B > new", "A > y"])
    with pytest.warns(UserWarning, match=r"labels of the truth \(1 of 3 documents\) are not known to the scores"):
        tuned = tune(truth, SCORES, "micro_f1")
    assert len(decide(SCORES, tuned)) == 3


def test_bare_names_are_found_by_name(tmp_path: Path) -> None:
    truth = dataset(tmp_path, ["x", "z", "y"])
    assert truth.hierarchy.max_depth == 1
    assert evaluate(truth, scores=SCORES, rule="best_leaf", metrics=["hf1"])["hf1"] == pytest.approx((1 + 1 + 0.5) / 3)
    with pytest.raises(TreelabelError, match="labels without a path that are not known: 'new'; write full paths"):
        evaluate(dataset(tmp_path, ["x", "new", "y"]), scores=SCORES)


def test_what_cannot_be_joined_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match=r"another hierarchy: no label in common: 'C > w' there, 'B > z' here"):
        evaluate(dataset(tmp_path, ["C > w", "C > w", "C > w"]), scores=SCORES)
    flat = Scores(Hierarchy.flat(["x", "y", "A"]), np.ones((3, 3)) / 3, SCORES.ids)
    with pytest.raises(TreelabelError, match="another hierarchy: 'x' is 'A > x' there, but 'x' here"):
        evaluate(dataset(tmp_path, ["A > x", "B > new", "A > y"]), scores=flat)
    dag = Hierarchy.from_edges([("A", "x"), ("B", "x"), ("A", "y")])
    with pytest.raises(TreelabelError, match="labels with several parents cannot be matched by their paths"):
        evaluate(dataset(tmp_path, ["A > x", "B > new", "A > y"]), scores=Scores(dag, np.ones((3, 4)), SCORES.ids))
    # Hierarchies that were given, and names in them: x stands elsewhere.
    moved = Hierarchy.from_paths(["B > x", "A > y", "B > z"])
    with pytest.raises(TreelabelError, match="belongs to another hierarchy"):
        evaluate(Dataset.of(["", "", ""], [["x"], ["y"], ["z"]], moved), scores=SCORES)


@examples(25)
@given(one=trees(), two=trees(), seed=st.integers(0, 10**6))
def test_a_union_has_all_paths_and_keeps_the_order_of_the_first(one: Drawn, two: Drawn, seed: int) -> None:
    known = one.fast
    # A name of a flat hierarchy that stands below another one there is refused.
    assume(known.max_depth > 1 or not {*known.names} & {*two.fast.names})
    top = known.names[0]
    other = Hierarchy.from_paths([[top], *([top, *two.fast.path_names(node)] for node in range(len(two.fast)))])
    union = join_hierarchies(known, other, "the other")
    assert set(union.paths()) == {*known.paths(), *other.paths()}
    where = nodes_in(known, union)
    assert (np.diff(where) > 0).all()
    assert union.paths(where) == known.paths()
    assert join_hierarchies(known, known, "the same") is known
    values = np.random.default_rng(seed).random((2, len(known)))
    scores = Scores(known, values)
    assert (scores.under(union).dense()[:, where] == scores.dense()).all()
    assert (Scores(known, scores.csr()).under(union).dense() == scores.under(union).dense()).all()
