"""Groups of documents: read, carried along, written, and never divided by a split."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from tests.helpers import Run, put
from treelabel import Dataset, Hierarchy, TreelabelError, cut, deduplicate, per_class, read, read_together, split, write

TREE = Hierarchy.from_paths(["A > B", "A > C", "D > E", "D > F"])
CSV = "text,label,shop\none,B,x\ntwo,C,y\nthree,E,x\nfour,F,y\n"
HALVES = {"train": 0.5, "test": 0.5}


def grouped(rows: list[list[str]], groups: list[str]) -> Dataset:
    return Dataset.of([f"text {at}" for at in range(len(rows))], rows, TREE, groups=groups)


def group_sets(parts: dict[str, Dataset]) -> list[set[str]]:
    return [set(part.groups or ()) for part in parts.values()]


def test_a_column_is_read_as_groups_and_stays_a_column(tmp_path: Path) -> None:
    data = read(put(tmp_path, "data.csv", CSV), taxonomy=TREE, group="shop")
    assert (data.group, data.groups) == ("shop", ("x", "y", "x", "y"))
    assert data.choices["group"] == "shop"
    assert data.extra["shop"].to_pylist() == ["x", "y", "x", "y"]
    assert read(tmp_path / "data.csv", taxonomy=TREE).groups is None


def test_numbers_are_groups_by_how_they_are_written() -> None:
    data = replace(grouped([["B"]] * 2, ["a", "b"]), extra={"n": pa.chunked_array([[7, 12]])}, group="n")
    assert data.groups == ("7", "12")


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("store", r"data.csv:2: no column 'store' for the groups; columns are 'text', 'label', 'shop'"),
        ("text", "the column 'text' is read as text, labels or id, so that it cannot tell the groups"),
    ],
)
def test_columns_that_cannot_be_groups_are_refused(tmp_path: Path, group: str, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        read(put(tmp_path, "data.csv", CSV), taxonomy=TREE, group=group)


@pytest.mark.parametrize("missing", [None, "", " "])
def test_a_document_without_a_group_is_refused_where_groups_are_used(missing: Any) -> None:
    data = grouped([["B"]] * 2, ["x", missing])
    for use in (lambda: data.groups, lambda: split(data, HALVES)):
        with pytest.raises(TreelabelError, match=r"row 1 \(id '1'\) has no value in column 'group'"):
            use()


def test_a_dataset_must_have_the_column_of_its_groups() -> None:
    data = grouped([["B"]], ["x"])
    with pytest.raises(TreelabelError, match="no column 'shop' for the groups; further columns are: group"):
        replace(data, group="shop")


def test_groups_go_with_their_documents() -> None:
    data = grouped([["B"], ["C"], ["E"]], ["x", "y", "z"])
    assert data[[2, 0]].groups == ("z", "x")
    assert data[1:].groups == ("y", "z")
    assert [part.groups for part in data.batches(2)] == [("x", "y"), ("z",)]
    assert cut(data, 1).groups == ("x", "y", "z")
    assert deduplicate(data, against=["text 1"]).groups == ("x", "z")


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.jsonl", "out.parquet"])
def test_groups_are_written_and_read_back(tmp_path: Path, name: str) -> None:
    data = grouped([["B"], ["C"]], ["x", "y"])
    write(data, tmp_path / name)
    assert read(tmp_path / name, group="group").groups == ("x", "y")


def test_a_group_column_called_like_ours_is_written_under_its_new_name(tmp_path: Path) -> None:
    data = replace(grouped([["B"]], ["x"]), extra={"text": pa.chunked_array([["x"]])}, group="text")
    write(data, tmp_path / "out.jsonl")
    assert read(tmp_path / "out.jsonl", group="text_").groups == ("x",)


def test_files_read_together_have_their_groups(tmp_path: Path) -> None:
    files = [put(tmp_path, name, CSV) for name in ("one.csv", "two.csv")]
    assert [data.groups for data in read_together(files, group="shop")] == [("x", "y", "x", "y")] * 2


# Splits


@given(
    st.lists(st.tuples(st.lists(st.sampled_from(TREE.names), max_size=3), st.sampled_from("abcdefgh")), max_size=60),
    st.sampled_from(["random", "stratified", "group"]),
    st.integers(0, 9),
)
def test_no_split_divides_a_group(documents: list[tuple[list[str], str]], by: Any, seed: int) -> None:
    data = grouped([labels for labels, _ in documents], [group for _, group in documents])
    parts = split(data, {"train": 0.6, "valid": 0.1, "test": 0.3}, by=by, seed=seed)
    assert sum(map(len, group_sets(parts))) == len({group for _, group in documents})
    assert sum(map(len, parts.values())) == len(documents)


def test_the_column_can_be_named_for_one_split() -> None:
    data = replace(grouped([["B"]] * 20, ["x"] * 20), group=None)
    shops = pa.chunked_array([[str(at // 5) for at in range(20)]])
    data = replace(data, extra={"group": data.extra["group"], "shop": shops})
    parts = split(data, HALVES, group="shop")
    assert sorted(len(set(part.extra["shop"].to_pylist())) for part in parts.values()) == [2, 2]
    assert len(split(replace(data, group="group"), HALVES, group="shop")["train"]) == 10


def label_distance(data: Dataset, rows: Any, share: float) -> float:
    """Return the mean over leaves of how far the share of their documents in a part is from what was asked."""
    leaves = np.flatnonzero(data.hierarchy.is_leaf & (data.frequencies > 0))
    held = np.bincount(data.closed_labels[rows].indices, minlength=len(data.hierarchy))
    return float(np.abs(held[leaves] / data.frequencies[leaves] - share).mean())


def skewed(seed: int, documents: int = 3000) -> Dataset:
    """Make groups of very different sizes, most of which have few labels."""
    rng = np.random.default_rng(seed)
    h = Hierarchy.from_paths([f"{top} > {top}{leaf}" for top in "ABCD" for leaf in range(8)])
    leaves = np.array([h.names[leaf] for leaf in h.leaves])
    label = rng.choice(len(leaves), documents, p=rng.dirichlet(np.full(len(leaves), 4)))
    own, shared = label * 30 + rng.integers(0, 30, documents), -1 - rng.zipf(1.5, documents) % 200
    groups = np.where(rng.random(documents) < 0.7, own, shared)
    return Dataset.of([""] * documents, leaves[label], h, groups=map(str, groups))


@pytest.mark.parametrize("seed", range(3))
def test_parts_are_alike_at_least_as_much_as_those_of_scikit_learn(seed: int) -> None:
    data = skewed(seed)
    parts = split(data, {"train": 0.8, "test": 0.2}, seed=seed)
    assert len(parts["test"]) == pytest.approx(600, abs=10)
    ours = label_distance(data, [int(name) for name in parts["test"].ids], 0.2)
    ends = data.hierarchy.most_specific(data.labels).indices
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=seed).split(ends, ends, data.groups)
    assert ours <= np.mean([label_distance(data, test, 0.2) for _, test in folds])
    random = split(data, {"train": 0.8, "test": 0.2}, by="random", seed=seed)["test"]
    assert ours < label_distance(data, [int(name) for name in random.ids], 0.2)


def test_groups_of_one_document_are_split_like_documents() -> None:
    data = grouped([[leaf] for leaf in "BCEF" for _ in range(50)], [str(at) for at in range(200)])
    for part, count in zip(split(data, {"train": 0.7, "valid": 0.1, "test": 0.2}).values(), (35, 5, 10), strict=True):
        assert [part.frequencies[TREE.names.index(leaf)] for leaf in "BCEF"] == [count] * 4


def test_the_same_seed_gives_the_same_parts_and_another_seed_others() -> None:
    first, again, other = (split(skewed(0), HALVES, seed=seed)["train"] for seed in (3, 3, 4))
    assert list(first.ids) == list(again.ids)
    assert list(first.ids) != list(other.ids)


def test_what_would_divide_groups_is_refused() -> None:
    data = grouped([["B"]] * 4, ["x", "x", "y", "y"])
    with pytest.raises(TreelabelError, match="a split by time would divide the groups of column 'group'"):
        split(data, HALVES, by="time", column="group")
    with pytest.raises(TreelabelError, match="drawing documents per class would divide the groups of column 'group'"):
        per_class(data)


# Command line


def test_split_keeps_the_groups_of_a_column_together(tmp_path: Path, run: Run) -> None:
    lines = "".join(f"text {at},{'BCEF'[at % 4]},shop {at // 8}\n" for at in range(80))
    source = put(tmp_path, "data.csv", f"text,label,shop\n{lines}")
    ended = run("split", source, tmp_path / "parts", "--parts", "train=0.8,test=0.2", "--group", "shop", "--json")
    assert ended.json == {"train": 64, "test": 16}
    train, test = (read(tmp_path / "parts" / f"{name}.jsonl", group="shop").groups for name in ("train", "test"))
    assert set(train or ()).isdisjoint(test or ())
    refused = run("split", source, tmp_path / "other", "--group", "store")
    assert (refused.code, "no column 'store' for the groups" in refused.err) == (2, True)
