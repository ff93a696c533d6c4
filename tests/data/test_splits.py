"""Datasets made of datasets: splits, few documents a class, cuts, "other" leaves, trees of DAGs, no duplicates."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treelabel import (
    Dataset,
    Hierarchy,
    TreelabelError,
    cut,
    deduplicate,
    load_sample,
    per_class,
    split,
    unfold,
    with_other_leaves,
)

TREE = Hierarchy.from_paths(["A > B > C", "A > D", "E", "F > G"])
DAG = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("C", "D"), ("A", "E")])
HALVES = {"one": 0.5, "two": 0.5}
THREE = {"train": 0.7, "valid": 0.1, "test": 0.2}
SINGLE = st.lists(st.sampled_from([*TREE.names, None]), max_size=60)
MULTI = st.lists(st.lists(st.sampled_from(TREE.names), max_size=3), max_size=60)
SHARES = st.lists(st.integers(1, 9), min_size=2, max_size=4).map(
    lambda weights: {f"part {at}": weight / sum(weights) for at, weight in enumerate(weights)}
)


def of(rows: Sequence[Any], **columns: Sequence[Any]) -> Dataset:
    data = Dataset.of([f"text {row}" for row in range(len(rows))], rows, TREE)
    return replace(data, extra={name: pa.chunked_array([pa.array(values)]) for name, values in columns.items()})


def rows_of(part: Dataset) -> list[int]:
    return [int(name) for name in part.ids]


def ends(data: Dataset) -> set[str]:
    """Name the most specific labels of all documents."""
    return {TREE.names[node] for node in data.hierarchy.most_specific(data.labels).indices}


def sizes(parts: dict[str, Dataset]) -> list[int]:
    return [len(part) for part in parts.values()]


# Splits of any kind


@given(MULTI, SHARES, st.sampled_from(["random", "stratified", "group", "time"]), st.integers(0, 9))
def test_parts_are_disjoint_complete_and_in_order(
    rows: list[list[str]], shares: dict[str, float], by: Any, seed: int
) -> None:
    data = of(rows, key=pa.array([row % 7 for row in range(len(rows))], pa.int64()))
    parts = split(data, shares, by=by, column="key", seed=seed)
    assert list(parts) == list(shares)
    assert sorted(row for part in parts.values() for row in rows_of(part)) == list(range(len(rows)))
    for part in parts.values():
        assert rows_of(part) == sorted(rows_of(part))
        assert part.names() == [data.names()[row] for row in rows_of(part)]
        assert part.extra["key"].to_pylist() == [row % 7 for row in rows_of(part)]


@pytest.mark.parametrize("by", ["random", "stratified", "group"])
def test_the_same_seed_gives_the_same_parts_and_another_seed_others(by: Any) -> None:
    data = of([TREE.names[row % 7] for row in range(200)], key=[row // 4 for row in range(200)])
    once, again, other = (split(data, THREE, by=by, column="key", seed=seed) for seed in (3, 3, 4))
    assert [rows_of(part) for part in once.values()] == [rows_of(part) for part in again.values()]
    assert rows_of(once["train"]) != rows_of(other["train"])


@given(st.integers(0, 300), SHARES, st.sampled_from(["random", "stratified"]))
def test_sizes_follow_the_shares(count: int, shares: dict[str, float], by: Any) -> None:
    parts = split(of([TREE.names[row % 7] for row in range(count)]), shares, by=by)
    # Dealt in turn, a part may be a little more than one document behind where several parts are due at once.
    most = 1 + 1e-9 if by == "random" else 1.5
    assert all(abs(size - share * count) <= most for size, share in zip(sizes(parts), shares.values(), strict=True))


@pytest.mark.parametrize(
    "shares", [{"a": 0.5, "b": 0.4}, {"a": 0.5, "b": 0.6}, {"a": 1.0}, {"a": 1.0, "b": 0.0}, {"a": 1.5, "b": -0.5}, {}]
)
def test_shares_must_be_positive_and_sum_to_one(shares: dict[str, float]) -> None:
    with pytest.raises(TreelabelError, match="expected at least two shares above 0 that sum to 1, found"):
        split(of(["C"] * 10), shares)


def test_shares_may_be_off_by_rounding() -> None:
    assert sizes(split(of(["C"] * 10), {str(part): 0.1 for part in range(10)})) == [1] * 10


def test_an_unknown_way_to_split_is_refused() -> None:
    way: Any = "alphabet"
    with pytest.raises(TreelabelError, match="unknown way to split 'alphabet'; expected random, stratified, group or"):
        split(of(["C"] * 4), HALVES, by=way)


# Random


def test_a_random_split_is_spread_over_the_data() -> None:
    train = rows_of(split(of(["C"] * 1000), {"train": 0.8, "test": 0.2}, by="random")["train"])
    assert len(train) == 800
    assert 0.7 < sum(row < 500 for row in train) / 500 < 0.9


# Stratified


@given(SINGLE, SHARES, st.integers(0, 9))
def test_every_label_is_in_the_first_part_while_there_is_room(
    labels: list[str | None], shares: dict[str, float], seed: int
) -> None:
    data = of(labels)
    first = next(iter(split(data, shares, seed=seed).values()))
    if len(ends(data)) <= len(first):
        assert ends(first) == ends(data)
    else:
        assert len(ends(first)) == len(first)


def test_labels_with_one_document_are_all_in_the_first_part() -> None:
    names = [f"rare {at}" for at in range(50)]
    h = Hierarchy.from_paths([f"top > {name}" for name in [*names, "frequent"]])
    rows = ["frequent"] * 50 + names
    for seed in range(5):
        parts = split(Dataset.of(rows, rows, h), {"train": 0.6, "test": 0.4}, seed=seed, keep_duplicates=False)
        assert sizes(parts) == [60, 40]
        assert set(names) <= set(parts["train"].texts)
        assert set(parts["test"].texts) == {"frequent"}


def test_a_label_that_only_stands_beside_rarer_ones_is_in_the_first_part() -> None:
    # "common" is never the rarest label of a document, and most documents of each rare label do without it.
    h = Hierarchy.flat(["common", *(f"rare {at}" for at in range(6))])
    rows = [[f"rare {at}", *(["common"] if turn == 0 else [])] for at in range(6) for turn in range(5)]
    for seed in range(40):
        texts = [str(row) for row in range(30)]
        parts = split(Dataset.of(texts, rows, h), {"train": 0.25, "test": 0.75}, seed=seed)
        assert sizes(parts) == [8, 22]
        assert (parts["train"].frequencies > 0).all()


@given(st.lists(st.integers(0, 40), min_size=7, max_size=7), st.integers(0, 9))
def test_each_label_is_in_each_part_by_its_share(counts: list[int], seed: int) -> None:
    rows = [name for name, count in zip(TREE.names, counts, strict=True) for _ in range(count) if count >= 10]
    parts = split(of(rows), THREE, seed=seed)
    for label, count in Counter(rows).items():
        for name, share in THREE.items():
            assert abs(parts[name].names().count([label]) - share * count) <= 2


def test_the_sample_is_split_evenly_leaf_by_leaf() -> None:
    sample = load_sample()
    parts = split(sample, {"train": 0.8, "test": 0.2})
    leaves = sample.hierarchy.leaves
    expected = sample.frequencies[leaves] * 0.2
    frequent = expected >= 4
    assert frequent.sum() > 50
    assert np.abs(parts["test"].frequencies[leaves] - expected)[frequent].max() <= 2
    assert (parts["train"].frequencies > 0).all()
    assert parts["test"].describe(train=parts["train"]).documents_with_unseen_labels == 0


def test_documents_without_labels_are_shared_out_too() -> None:
    parts = split(of([None] * 50 + ["C"] * 50), HALVES)
    assert [part.describe().unlabelled for part in parts.values()] == [25, 25]
    assert sizes(split(of([None] * 10), HALVES)) == [5, 5]


def test_documents_with_several_labels_are_split_by_their_rarest() -> None:
    rows = [["A", "C", "E"] if row % 4 == 0 else ["E"] for row in range(80)]
    parts = split(of(rows), HALVES)
    assert [sum("C" in names for names in part.names()) for part in parts.values()] == [10, 10]


def test_documents_that_stop_inside_are_stratified_as_a_class_of_their_own() -> None:
    rows = [["A"]] * 20 + [["C"]] * 20 + [["B", "A"]] * 20
    for part in split(of(rows), HALVES).values():
        assert Counter(map(tuple, part.names())) == {("A",): 10, ("C",): 10, ("A", "B"): 10}


# By group and by time


@given(st.lists(st.sampled_from("abcdefgh"), max_size=60), SHARES, st.integers(0, 9))
def test_groups_stay_whole(groups: list[str], shares: dict[str, float], seed: int) -> None:
    data = of(["C"] * len(groups), group=pa.array(groups, pa.string()))
    parts = split(data, shares, by="group", column="group", seed=seed)
    found = [set(part.extra["group"].to_pylist()) for part in parts.values()]
    assert sum(map(len, found)) == len(set(groups))


def test_groups_fill_the_parts_by_their_shares() -> None:
    groups = np.random.default_rng(0).integers(0, 100, 2000).tolist()
    parts = split(of(["C"] * 2000, group=groups), THREE, by="group", column="group")
    largest = np.bincount(groups).max()
    assert all(abs(size - share * 2000) <= largest for size, share in zip(sizes(parts), THREE.values(), strict=True))


@given(st.lists(st.integers(0, 12), max_size=60), SHARES)
def test_time_does_not_overlap_and_equal_times_stay_together(times: list[int], shares: dict[str, float]) -> None:
    data = of(["C"] * len(times), time=pa.array(times, pa.int64()))
    parts = [part.extra["time"].to_pylist() for part in split(data, shares, by="time", column="time").values()]
    full = [part for part in parts if part]
    assert all(max(earlier) < min(later) for earlier, later in pairwise(full))


def test_distinct_times_are_cut_at_the_shares() -> None:
    days = [date(2024, 1, 1 + (row * 7) % 30) for row in range(30)]
    parts = split(of(["C"] * 30, day=days), {"old": 0.7, "new": 0.3}, by="time", column="day")
    assert sizes(parts) == [21, 9]
    assert min(parts["new"].extra["day"].to_pylist()) == date(2024, 1, 22)


@pytest.mark.parametrize(
    "values",
    [["10", "9", "10", "9"], ["2024-02-01", "2024-01-31"] * 2, [True, False, True, False], [2.5, 0.5, 2.5, 0.5]],
    ids=str,
)
def test_columns_of_text_truth_and_numbers_can_divide(values: list[Any]) -> None:
    parts = split(of(["C"] * 4, key=values), HALVES, by="time", column="key")
    assert [rows_of(part) for part in parts.values()] == [[1, 3], [0, 2]]
    groups = split(of(["C"] * 4, key=values), HALVES, by="group", column="key")
    assert sorted(map(rows_of, groups.values())) == [[0, 2], [1, 3]]


@pytest.mark.parametrize("by", ["group", "time"])
def test_the_column_to_split_by_must_be_there_and_full(by: Any) -> None:
    data = of(["C"] * 3, day=["2024-01-01", None, "2024-01-02"], tags=[["a"], [], ["b"]])
    with pytest.raises(TreelabelError, match=f"splitting by {by} needs the name of a column; there are: day, tags"):
        split(data, HALVES, by=by)
    with pytest.raises(TreelabelError, match="no column 'week' to split by; there are: day, tags"):
        split(data, HALVES, by=by, column="week")
    with pytest.raises(TreelabelError, match=r"row 1 \(id '1'\) has no value in column 'day'"):
        split(data, HALVES, by=by, column="day")
    with pytest.raises(TreelabelError, match="cannot split by column 'tags': its values are of type list"):
        split(data, HALVES, by=by, column="tags")
    with pytest.raises(TreelabelError, match="there are: none besides id, text and labels"):
        split(of(["C"]), HALVES, by=by)


def test_times_written_as_text_must_be_numbers_or_dates() -> None:
    with pytest.raises(TreelabelError, match="expected numbers or dates such as 2024-01-31, found 2/3/2012"):
        split(of(["C"] * 2, day=["2/3/2012", "1/1/2013"]), HALVES, by="time", column="day")
    with pytest.raises(TreelabelError, match=r"row 1 \(id '1'\) has no value in column 'day'"):
        split(of(["C"] * 2, day=["3", " "]), HALVES, by="time", column="day")


# Few documents a class


@given(SINGLE, st.integers(1, 4), st.integers(0, 9))
def test_so_many_documents_of_each_class_are_taken(labels: list[str | None], count: int, seed: int) -> None:
    data = of(labels)
    few, others = per_class(data, count, seed)
    assert sorted(rows_of(few) + rows_of(others)) == list(range(len(labels)))
    found = Counter(name for names in few.names() for name in names)
    assert found == {
        name: min(count, total) for name, total in Counter(label for label in labels if label is not None).items()
    }
    assert rows_of(few) == sorted(rows_of(few))


def test_which_documents_of_a_class_are_taken_depends_on_the_seed() -> None:
    data = of(["C"] * 100)
    assert len({tuple(rows_of(per_class(data, seed=seed)[0])) for seed in range(5)}) > 1
    assert rows_of(per_class(data, 3, seed=1)[0]) == rows_of(per_class(data, 3, seed=1)[0])


def test_a_document_with_several_labels_counts_for_its_rarest() -> None:
    few, _ = per_class(of([["C", "E"], ["E"], ["E"], ["C", "A"]]))
    assert len(few) == 2
    assert any("C" in names for names in few.names())
    assert ["E"] in few.names()


def test_less_than_one_document_a_class_is_refused() -> None:
    with pytest.raises(TreelabelError, match="expected at least 1 document per class, found 0"):
        per_class(of(["C"]), 0)


# Other hierarchies


def test_a_cut_moves_labels_up_to_its_depth() -> None:
    data = cut(of([["C"], ["D", "E"], ["A"], [], ["C", "D"]]), 1)
    assert data.names() == [["A"], ["A", "E"], ["A"], [], ["A"]]
    assert data.hierarchy.names == ("A", "E", "F")
    assert cut(of(["C"]), 2).names() == [["B"]]
    assert cut(of(["C"]), 9).hierarchy == TREE


def test_a_cut_above_the_first_level_is_refused() -> None:
    with pytest.raises(TreelabelError, match="cannot cut at depth 0"):
        cut(of(["C"]), 0)


def test_documents_that_stop_inside_get_other_leaves() -> None:
    data = with_other_leaves(of([["B"], ["C"], ["A", "B"], ["A"], ["A", "E"], []]))
    assert set(data.hierarchy.names) - set(TREE.names) == {"other [A]", "other [B]"}
    specific = data.hierarchy.most_specific(data.labels)
    assert [{data.hierarchy.names[node] for node in specific[[row]].indices} for row in range(len(data))] == [
        {"other [B]"},
        {"C"},
        {"other [B]"},
        {"other [A]"},
        {"E", "other [A]"},
        set(),
    ]
    assert data.describe().regime_share["partial_path"] == 0


def test_where_all_documents_end_in_leaves_no_other_leaves_are_added() -> None:
    assert with_other_leaves(of([["C"], ["D", "A"]])).hierarchy == TREE


def test_with_other_leaves_a_partial_path_becomes_a_single_one() -> None:
    data = of([["B"], ["C"], ["F"]])
    assert data.describe().regime == "partial_path"
    assert with_other_leaves(data).describe().regime == "single_path"


def test_unfolding_puts_a_full_path_on_its_own_copy_and_a_bare_label_on_all() -> None:
    data = unfold(Dataset.of(["x", "y", "z"], [["A", "C", "D"], ["D"], ["E", "A"]], DAG))
    assert data.hierarchy.is_tree
    assert data.hierarchy.paths() == [
        "A",
        "B",
        "A > E",
        "A > C [A]",
        "B > C [B]",
        "A > C [A] > D [C [A]]",
        "B > C [B] > D [C [B]]",
    ]
    assert data.names()[0] == ["A", "C [A]", "D [C [A]]"]
    assert data.names()[1] == ["D [C [A]]", "D [C [B]]"]
    assert data.names()[2] == ["A", "E"]


def test_unfolding_a_tree_changes_nothing() -> None:
    data = of([["C"], ["A", "D"]])
    assert unfold(data).hierarchy == TREE
    assert unfold(data).names() == data.names()


# Duplicates


def test_the_first_of_equal_texts_stays_with_the_labels_of_all() -> None:
    texts = ["One two", "x", "one  TWO ", "X", "y", "ONE two\n"]
    labels: list[Any] = [["C"], None, ["D"], ["E"], ["F"], ["C", "G"]]
    data = deduplicate(Dataset.of(texts, labels, TREE))
    assert list(data.texts) == ["One two", "x", "y"]
    assert list(data.ids) == ["0", "1", "4"]
    assert [set(names) for names in data.names()] == [{"C", "D", "G"}, {"E"}, {"F"}]


def test_empty_texts_are_no_duplicates_of_each_other() -> None:
    data = deduplicate(Dataset.of(["", "a", " ", ""], [["C"], ["C"], ["D"], ["E"]], TREE))
    assert data.names() == [["C"], ["C"], ["D"], ["E"]]


def test_texts_seen_elsewhere_are_dropped() -> None:
    train = Dataset.of(["a b", "c"], [["C"], ["D"]], TREE)
    test = Dataset.of(["C ", "d", "A  b", "D"], [["C"], ["D"], ["E"], ["F"]], TREE)
    left = deduplicate(test, against=train.texts)
    assert list(left.texts) == ["d"]
    assert [set(names) for names in left.names()] == [{"D", "F"}]


def test_further_columns_of_the_first_document_stay() -> None:
    data = deduplicate(replace(of(["C", "D"], n=[1, 2]), texts=Dataset.of(["a", "A"], [None, None], TREE).texts))
    assert data.extra["n"].to_pylist() == [1]


@given(st.lists(st.sampled_from(["a", "A", "b", " b", "", " "]), max_size=20), st.data())
def test_after_removing_duplicates_there_are_none_and_no_label_is_lost(texts: list[str], draw: st.DataObject) -> None:
    rows = [draw.draw(st.lists(st.sampled_from(TREE.names), max_size=2)) for _ in texts]
    data = Dataset.of(texts, rows, TREE)
    once = deduplicate(data)
    plain = [text.strip().lower() for text in once.texts]
    full = [text for text in plain if text]
    assert len(set(full)) == len(full)
    assert plain.count("") == sum(not text.strip() for text in texts)
    united = {text: set[str]() for text in full}
    for text, names in zip(texts, rows, strict=True):
        if text.strip():
            united[text.strip().lower()] |= set(names)
    assert {text: set(names) for text, names in zip(plain, once.names(), strict=True) if text} == united
    assert deduplicate(once).names() == once.names()
