"""Moves: what became of every label, and what that means for label sets, scores and sums."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.strategies import examples
from treelabel import Hierarchy, Moves, Scores, TreelabelError
from treelabel.hierarchy.label_ids import encode
from treelabel.hierarchy.move_scores import are_exclusive
from treelabel.hierarchy.moves import Move

OLD = Hierarchy.from_paths(["pet > dog", "pet > cat", "pet > bird", "farm > cow", "farm > pig", "car"])
NEW = Hierarchy.from_paths(
    ["pet > hound", "pet > cat", "farm > livestock", "farm > horse", "wild > bird", "truck", "van"]
)
ROWS = [("dog", "hound"), ("cow", "livestock"), ("pig", "livestock"), ("car", "truck"), ("car", "van")]
MOVES = Moves.of(OLD, NEW, ROWS)


def carried(moves: Moves, *labels: Any) -> list[str]:
    return moves.new.paths(moves.labels(encode(moves.old, [list(labels)])).indices)


def kinds(moves: Moves) -> dict[str, str]:
    return dict(zip(moves.old.names, moves.kinds, strict=True))


# What became of labels


def test_kinds_are_inferred() -> None:
    assert kinds(MOVES) == {
        "pet": "same",
        "farm": "same",
        "car": "split",
        "dog": "renamed",
        "cat": "same",
        "bird": "moved",
        "cow": "merged",
        "pig": "merged",
    }
    assert MOVES.counts() == {"same": 3, "renamed": 1, "moved": 1, "merged": 2, "split": 1}
    assert NEW.paths(MOVES.new_labels) == ["wild", "farm > horse"]
    assert not MOVES.is_identity
    assert Moves.of(OLD, OLD).is_identity


def test_what_is_below_a_label_goes_with_it() -> None:
    new = Hierarchy.from_paths(["animal > pets > dog", "animal > pets > cat", "animal > pets > bird"])
    moves = Moves.of(OLD, new, [("pet", "pets"), ("farm", ""), ("car", "")])
    found = kinds(moves)
    assert {name: found[name] for name in ("pet", "dog", "cow", "farm", "car")} == {
        "pet": "moved",
        "dog": "path",
        "cow": "deleted",
        "farm": "deleted",
        "car": "deleted",
    }
    assert carried(moves, "dog") == ["animal > pets > dog"]


def test_names_may_be_exchanged() -> None:
    old = Hierarchy.from_paths(["A > x", "B > y"])
    new = Hierarchy.from_paths(["B > x", "A > y"])
    moves = Moves.of(old, new, [("A", "B"), ("B", "A")])
    assert carried(moves, "x") == ["B > x"]
    assert kinds(moves) == {"A": "renamed", "B": "renamed", "x": "path", "y": "path"}


def test_equal_names_are_told_apart_by_paths() -> None:
    old = Hierarchy.from_paths(["A > other", "B > other"])
    new = Hierarchy.from_paths(["A > other", "C > other"])
    assert carried(Moves.of(old, new, [("B", "C")]), "B > other") == ["C > other"]
    with pytest.raises(TreelabelError, match=r"'other' names 2 labels"):
        Moves.of(old, new, [("other", "C > other")])


def test_labels_that_are_gone_without_a_word_are_listed() -> None:
    new = Hierarchy.from_paths(["pet > dogs", "pet > cat", "farm > cow", "car"])
    with pytest.raises(TreelabelError) as error:
        Moves.of(OLD, new)
    said = str(error.value)
    assert said.startswith("3 labels of the old taxonomy are neither in the new one nor among the moves: ")
    assert "'pet > dog' (did you mean 'dogs'?), 'pet > bird', 'farm > pig'; write a line" in said


def test_only_the_topmost_of_what_is_gone_is_listed() -> None:
    with pytest.raises(TreelabelError, match=r"1 label of the old taxonomy is neither .*: 'farm'; write"):
        Moves.of(Hierarchy.from_paths(["farm > cow", "car"]), Hierarchy.flat(["car"]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [Move("dgo", "hound", "moves.tsv:3")],
            r"moves\.tsv:3: the old taxonomy has no such label: .*'dgo'; did you mean",
        ),
        (
            [Move("dog", "houd", "moves.tsv:4")],
            r"moves\.tsv:4: the new taxonomy has no such label: .*'houd'; did you mean",
        ),
        ([*ROWS, Move("dog", "", "moves.tsv:9")], r"moves\.tsv:9: 'dog' is deleted here and kept in another line"),
    ],
    ids=["old", "new", "both"],
)
def test_tables_that_cannot_be_right_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        Moves.of(OLD, NEW, rows)


def test_a_part_of_the_old_taxonomy_may_do() -> None:
    part = Hierarchy.from_paths(["pet > dog"])
    assert carried(Moves.of(part, NEW, ROWS, partial=True), "dog") == ["pet > hound"]
    with pytest.raises(TreelabelError, match="'cow'"):
        Moves.of(part, NEW, ROWS)


def test_children_of_a_split_label_need_a_line_where_it_is_unclear() -> None:
    old = Hierarchy.from_paths(["shop > shoes"])
    new = Hierarchy.from_paths(["men > shoes", "women > shoes"])
    rows = [("shop", "men"), ("shop", "women")]
    with pytest.raises(TreelabelError, match=r"'shop > shoes' could be 'men > shoes' and 'women > shoes' now"):
        Moves.of(old, new, rows)
    assert carried(Moves.of(old, new, [*rows, ("shoes", "men > shoes")]), "shoes") == ["men > shoes"]


def test_a_dag_is_carried_by_names() -> None:
    old = Hierarchy.from_edges([("pet", "dog"), ("work", "dog"), ("work", "horse")])
    new = Hierarchy.from_edges([("pet", "hound"), ("work", "hound"), ("work", "horse"), ("pet", "horse")])
    moves = Moves.of(old, new, [("dog", "hound")])
    assert kinds(moves)["dog"] == "renamed"
    sums = np.arange(len(old), dtype=np.float64)[:, None]
    assert Moves.of(old, old).sums(sums) == pytest.approx(sums)


# Label sets


def test_label_sets_go_where_their_labels_went() -> None:
    assert carried(MOVES, "dog") == ["pet > hound"]
    assert carried(MOVES, "cow", "pig") == ["farm > livestock"]
    assert carried(MOVES, "bird") == ["wild > bird"]
    # Nothing is known of what a split label is now but what its new ones share, which is nothing at the top.
    assert carried(MOVES, "car") == []


def test_a_split_label_goes_to_what_its_new_ones_share() -> None:
    new = Hierarchy.from_paths(
        ["pet > puppy", "pet > hound", "pet > cat", "pet > bird", "farm > cow", "farm > pig", "car"]
    )
    moves = Moves.of(OLD, new, [("dog", "puppy"), ("dog", "hound")])
    assert carried(moves, "dog") == ["pet"]


def test_a_deleted_label_goes_to_its_parent() -> None:
    moves = Moves.of(
        OLD, OLD.prune([OLD.names.index(name) for name in ("dog", "bird", "cow", "pig", "car")]).new, [("cat", "")]
    )
    assert carried(moves, "cat") == ["pet"]
    assert carried(moves, "cat", "dog") == ["pet", "pet > dog"]


def test_ancestors_beside_a_label_are_those_of_the_new_one() -> None:
    assert carried(MOVES, "pet", "bird") == ["wild", "wild > bird"]
    labels = encode(OLD, [["pet", "bird"], ["bird"], []])
    assert np.diff(MOVES.labels(labels).indptr).tolist() == [2, 1, 0]


# Scores


def values(moves: Moves, scores: Any) -> dict[str, float]:
    dense = Scores(moves.old, scores).move(moves).dense()[0]
    return {path: round(float(p), 6) for path, p in zip(moves.new.paths(), dense, strict=True)}


EXCLUSIVE = Scores.from_leaves(
    OLD, ["dog", "cat", "bird", "cow", "pig", "car"], [[0.25, 0.125, 0.125, 0.125, 0.25, 0.125]]
)


def test_scores_that_exclude_each_other_add_up_and_are_shared() -> None:
    assert values(MOVES, EXCLUSIVE.values) == {
        "pet": 0.375,
        "farm": 0.375,
        "wild": 0.125,
        "truck": 0.0625,
        "van": 0.0625,
        "pet > hound": 0.25,
        "pet > cat": 0.125,
        "farm > livestock": 0.375,
        "farm > horse": 0.0,
        "wild > bird": 0.125,
    }
    moved = EXCLUSIVE.move(MOVES)
    assert moved.is_coherent()
    assert moved.is_exhaustive()


def test_what_a_deleted_label_had_stays_with_its_parent() -> None:
    moves = Moves.of(
        OLD,
        OLD.prune([OLD.names.index(name) for name in ("dog", "bird", "cow", "pig")]).new,
        [("cat", ""), ("car", "")],
    )
    found = values(moves, EXCLUSIVE.values)
    assert found["pet"] == 0.5
    assert sum(found[path] for path in ("pet", "farm")) == 0.875


def test_scores_of_independent_labels_are_not_added() -> None:
    given = np.array([[0.9, 0.8, 0.5, 0.9, 0.4, 0.6, 0.5, 0.8]])
    assert not are_exclusive(OLD, given)
    found = values(MOVES, given)
    assert found["farm > livestock"] == pytest.approx(1 - 0.5 * 0.2)
    # A parent is raised to its children.
    assert found["farm"] == pytest.approx(0.9)
    assert found["wild"] == found["wild > bird"] == pytest.approx(0.6)
    assert found["truck"] == found["van"] == pytest.approx(0.25)
    assert found["pet > hound"] == pytest.approx(0.9)


def test_what_a_split_label_had_as_a_whole_is_at_least_what_its_new_ones_share() -> None:
    old, new = Hierarchy.flat(["a", "b"]), Hierarchy.from_paths(["top > a1", "top > a2", "b"])
    moves = Moves.of(old, new, [("a", "a1"), ("a", "a2")])
    assert values(moves, [[0.75, 0.75]]) == {"top": 0.75, "b": 0.75, "top > a1": 0.375, "top > a2": 0.375}
    assert values(moves, [[0.75, 0.25]]) == {"top": 0.75, "b": 0.25, "top > a1": 0.375, "top > a2": 0.375}


def test_a_child_that_becomes_its_parent_is_not_counted_twice() -> None:
    old, new = Hierarchy.from_paths(["a > b", "a > c"]), Hierarchy.from_paths(["a > c"])
    moves = Moves.of(old, new, [("b", "a")])
    for scores in ([[0.8, 0.3, 0.5]], [[0.8, 0.7, 0.7]]):
        assert values(moves, scores)["a"] == pytest.approx(0.8)


@examples(40)
@given(st.data())
def test_csr_is_carried_like_dense_and_stays_coherent(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    given_scores = rng.random((5, len(OLD))) * data.draw(st.sampled_from([0.1, 1.0]))
    given_scores[given_scores < 0.03] = 0
    scores = Scores(OLD, given_scores).coherent("min")
    if data.draw(st.booleans()):
        scores = Scores.from_leaves(OLD, OLD.leaves, rng.dirichlet(np.ones(len(OLD.leaves)), 5))
    dense, csr = scores.move(MOVES), Scores(OLD, sparse.csr_array(scores.values)).move(MOVES)
    assert csr.is_sparse
    assert csr.dense() == pytest.approx(dense.dense(), abs=1e-6)
    assert dense.is_coherent()
    assert dense.dense().max() <= 1


def test_scores_of_another_hierarchy_are_refused() -> None:
    with pytest.raises(TreelabelError, match="another hierarchy"):
        Scores(NEW, np.zeros((1, len(NEW)))).move(MOVES)
    with pytest.raises(TreelabelError, match="do not fit"):
        MOVES.scores(np.zeros((1, 2)))


# Sums


@examples(40)
@given(st.integers(0, 10_000))
def test_sums_are_those_of_the_carried_documents(seed: int) -> None:
    rng = np.random.default_rng(seed)
    new = Hierarchy.from_paths(["pet > hound", "pet > cat", "farm > livestock", "wild > bird", "truck"])
    moves = Moves.of(OLD, new, [("dog", "hound"), ("cow", "livestock"), ("pig", "livestock"), ("car", "truck")])
    labels = encode(OLD, [[OLD.paths([node])[0]] for node in rng.integers(0, len(OLD), 30)])
    vectors = rng.normal(size=(30, 3))
    before = OLD.closure(labels).astype(np.float64).T @ vectors
    moved = moves.labels(labels)
    assert moves.sums(before) == pytest.approx(new.closure(moved).astype(np.float64).T @ vectors)
    assert moves.residues(before) == pytest.approx(new.most_specific(moved).astype(np.float64).T @ vectors)
