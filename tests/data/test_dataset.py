"""Dataset: made, selected, moved and described; every number of the description by hand."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from treelabel import Dataset, Hierarchy, TreelabelError
from treelabel.data import Strings
from treelabel.hierarchy.label_ids import UnknownLabelError

TREE = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
DAG = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("C", "D"), ("A", "E")])
TEXTS = ["one two", "one  two", "one two", "", " \t", "x"]
LABELS = [["C"], ["D"], ["E"], [], ["B"], ["C", "A"]]
SMALL = Dataset.of(TEXTS, LABELS, TREE, ids=["a", "b", "c", "d", "e", "a"])


def with_everything() -> Dataset:
    base = Dataset.of(["t0", "t1", "t2", "t3"], ["C", None, ["D", "E"], "A"], TREE)
    extra = {"n": pa.chunked_array([[0, 1], [2, 3]]), "note": pa.chunked_array([["a", None, "c", "d"]])}
    features = sparse.csr_array(np.arange(8, dtype=np.float32).reshape(4, 2))
    return Dataset(base.ids, base.texts, base.labels, TREE, extra, features)


# Making


def test_ids_are_row_numbers_unless_given() -> None:
    assert list(Dataset.of(["x", "y"], ["C", "D"], TREE).ids) == ["0", "1"]
    assert list(Dataset.of(["x", "y"], ["C", "D"], TREE, ids=["p", "q"]).ids) == ["p", "q"]


def test_texts_may_come_from_any_iterable() -> None:
    data = Dataset.of((text for text in "ab"), iter([["C"], None]), TREE)
    assert list(data.texts) == ["a", "b"]
    assert len(data) == 2


def test_labels_are_kept_as_given_and_closed_on_demand() -> None:
    assert SMALL.names() == [["C"], ["D"], ["E"], [], ["B"], ["A", "C"]]
    assert SMALL.paths()[0] == ["A > B > C"]
    assert SMALL.closed_labels.toarray().astype(int).tolist() == [
        [1, 0, 1, 0, 1],
        [1, 0, 0, 1, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 0, 1, 0, 1],
    ]


def test_labels_may_be_paths_with_a_named_separator() -> None:
    assert Dataset.of(["x"], ["A.B.C"], TREE, sep=".").names() == [["C"]]


def test_frequencies_count_documents_with_ancestors() -> None:
    assert dict(zip(TREE.names, SMALL.frequencies.tolist(), strict=True)) == {"A": 4, "E": 1, "B": 3, "D": 1, "C": 2}


def test_an_unknown_label_is_refused_with_the_row() -> None:
    with pytest.raises(UnknownLabelError, match="row 1: unknown label 'F'"):
        Dataset.of(["x", "y"], ["C", "F"], TREE)


def test_a_text_that_is_none_is_refused_with_the_row() -> None:
    texts: list[Any] = ["x", None]
    with pytest.raises(TreelabelError, match="row 1: expected text, found None"):
        Dataset.of(texts, ["C", "C"], TREE)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(TreelabelError, match="columns of different lengths: ids 2, texts 2, labels 1"):
        Dataset.of(["x", "y"], ["C"], TREE)
    with pytest.raises(TreelabelError, match=r"columns of different lengths: .*column 'n' 1"):
        Dataset(SMALL.ids, SMALL.texts, SMALL.labels, TREE, {"n": pa.chunked_array([[1]])})
    with pytest.raises(TreelabelError, match=r"columns of different lengths: .*features 1"):
        Dataset(SMALL.ids, SMALL.texts, SMALL.labels, TREE, {}, sparse.csr_array(np.ones((1, 2), np.float32)))


def test_labels_of_another_hierarchy_are_refused() -> None:
    with pytest.raises(TreelabelError, match="labels have 5 columns, but the hierarchy has 2 nodes"):
        Dataset(SMALL.ids, SMALL.texts, SMALL.labels, Hierarchy.flat(["A", "B"]))


# Selecting


@pytest.mark.parametrize(
    ("rows", "picked"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        (slice(-2, None), [2, 3]),
        (slice(9, 12), []),
        (np.array([True, False, False, True]), [0, 3]),
        ([False, True, False, False], [1]),
        ([3, 0, 3], [3, 0, 3]),
        (np.array([2, -1]), [2, 3]),
        ((1, 2), [1, 2]),
        ([], []),
        (np.zeros(4, np.bool_), []),
        (2, [2]),
    ],
    ids=str,
)
def test_documents_are_selected_with_all_their_columns(rows: Any, picked: list[int]) -> None:
    data = with_everything()
    part = data[rows]
    assert list(part.ids) == [str(row) for row in picked]
    assert list(part.texts) == [f"t{row}" for row in picked]
    assert part.names() == [data.names()[row] for row in picked]
    assert part.extra["n"].to_pylist() == picked
    assert part.extra["note"].to_pylist() == [["a", None, "c", "d"][row] for row in picked]
    assert part.features is not None
    assert part.features.toarray().tolist() == [[2 * row, 2 * row + 1] for row in picked]
    assert part.hierarchy is data.hierarchy


def test_batches_are_consecutive_and_complete() -> None:
    parts = list(SMALL.batches(4))
    assert [list(part.ids) for part in parts] == [["a", "b", "c", "d"], ["e", "a"]]
    assert list(SMALL[:0].batches(4)) == []


def test_a_dataset_says_what_it_is() -> None:
    assert repr(SMALL) == "Dataset(6 documents, Hierarchy(5 nodes, 3 leaves, depth 3, tree))"


def test_labels_move_to_a_hierarchy_made_of_this_one() -> None:
    data = with_everything()
    moved = data.moved(TREE.cut(1))
    assert moved.names() == [["A"], [], ["A", "E"], ["A"]]
    assert moved.hierarchy.names == ("A", "E")
    assert moved.texts == data.texts
    assert moved.extra["n"].to_pylist() == [0, 1, 2, 3]
    assert moved.features is data.features


def test_a_change_of_another_hierarchy_is_refused() -> None:
    with pytest.raises(TreelabelError, match="the change belongs to another hierarchy"):
        SMALL.moved(DAG.cut(1))


# Describing


def test_sizes_levels_and_texts_are_counted() -> None:
    described = SMALL.describe()
    assert (described.documents, described.nodes, described.leaves, described.is_tree) == (6, 5, 3, True)
    assert described.nodes_per_level == [2, 2, 1]
    assert described.labels_per_document == pytest.approx(11 / 6)
    assert described.given_labels_per_document == pytest.approx(6 / 6)
    assert described.unlabelled == 1
    assert described.words_per_text == pytest.approx(7 / 6)
    assert described.empty_texts == 2
    assert described.duplicate_texts == 1
    assert described.duplicate_ids == 1
    assert described.fingerprint == TREE.fingerprint


@pytest.mark.parametrize(
    ("hierarchy", "rows", "regime", "shares"),
    [
        (TREE, [["C"], ["A > D"], ["E"]], "single_path", (1, 0, 0)),
        (TREE, [["C", "B", "A"], ["A", "D"]], "single_path", (1, 0, 0)),
        (TREE, [["C"], ["B"], ["A"], ["E"]], "partial_path", (0.5, 0.5, 0)),
        (TREE, [["C"], ["B"], ["C", "D"], ["C", "E"]], "multi_path", (0.25, 0.25, 0.5)),
        (TREE, [["C"], None], "single_path", (1, 0, 0)),
        # Through two parents the closure of one label is no path.
        (DAG, [["D"]], "multi_path", (0, 0, 1)),
        (DAG, [["C"]], "multi_path", (0, 0, 1)),
        (DAG, [["E"], ["A", "E"]], "single_path", (1, 0, 0)),
        (DAG, [["E"], ["A"], ["D"], None], "multi_path", (1 / 3, 1 / 3, 1 / 3)),
        # A short cut leaves it a path.
        (Hierarchy.from_edges([("A", "B"), ("B", "C"), ("A", "C")]), [["C"]], "single_path", (1, 0, 0)),
    ],
)
def test_the_regime_is_that_of_the_closed_sets(
    hierarchy: Hierarchy, rows: list[Any], regime: str, shares: tuple[float, float, float]
) -> None:
    described = Dataset.of(["x"] * len(rows), rows, hierarchy).describe()
    assert described.regime == regime
    assert described.regime_share == dict(zip(("single_path", "partial_path", "multi_path"), shares, strict=True))


def test_without_labels_there_is_no_regime() -> None:
    described = Dataset.of(["x", "y"], [None, []], TREE).describe()
    assert (described.regime, described.regime_share, described.unlabelled) == ("unlabelled", {}, 2)


def test_labels_are_counted_by_frequency_at_the_edges_of_the_bins() -> None:
    counts = [0, 1, 9, 10, 99, 100, 999, 1000, 1001]
    names = [f"n{count}" for count in counts]
    rows = [[name for name, count in zip(names, counts, strict=True) if row < count] for row in range(max(counts))]
    described = Dataset.of(["x"] * len(rows), rows, Hierarchy.flat(names)).describe()
    assert described.frequency_bins == {"1-9": 2, "10-99": 2, "100-999": 2, "1000+": 2}
    assert described.labels_unseen == 1


def test_frequencies_and_unseen_labels_are_those_of_the_training_data() -> None:
    train = Dataset.of(["x"] * 10, ["C"] * 10, TREE)
    described = SMALL.describe(train=train)
    assert described.frequency_bins == {"1-9": 0, "10-99": 3, "100-999": 0, "1000+": 0}
    assert (described.labels_unseen, described.leaves_unseen) == (2, 2)
    assert described.documents_with_unseen_labels == 2
    assert SMALL.describe().documents_with_unseen_labels == 0


def test_training_data_of_another_hierarchy_is_refused() -> None:
    with pytest.raises(
        TreelabelError, match="the training data has another hierarchy; read both with the same taxonomy"
    ):
        SMALL.describe(train=Dataset.of(["x"], ["D"], DAG))


def test_duplicates_are_counted_beyond_the_first_of_each() -> None:
    data = Dataset.of(["a", "b", "a", "a", "b", "", ""], [None] * 7, TREE)
    assert (data.describe().duplicate_texts, data.describe().empty_texts) == (3, 2)


def test_an_empty_dataset_is_described_without_a_crash() -> None:
    described = SMALL[:0].describe()
    assert (described.documents, described.regime, described.labels_unseen) == (0, "unlabelled", 5)
    assert np.isnan(described.labels_per_document)
    assert described.to_json()["labels_per_document"] is None
    assert json.loads(json.dumps(described.to_json(), allow_nan=False))["documents"] == 0
    assert "documents" in str(described)


def test_a_description_is_plain_json() -> None:
    values = json.loads(json.dumps(SMALL.describe().to_json(), allow_nan=False))
    assert values["nodes_per_level"] == [2, 2, 1]
    assert values["regime_share"] == {"single_path": 0.8, "partial_path": 0.2, "multi_path": 0.0}
    assert values["features"] is None
    assert values["extra_columns"] == []
    assert with_everything().describe().to_json()["extra_columns"] == ["n", "note"]


def test_a_description_prints_as_a_table() -> None:
    lines = str(SMALL.describe()).splitlines()
    assert lines[:7] == [
        "documents                   6",
        "nodes                       5 (3 leaves), tree of depth 3",
        "nodes per level             2-2-1",
        "labels per document         1.83 with ancestors, 1.00 as given",
        "regime                      partial path (80.0% single path, 20.0% partial path)",
        "without labels              1",
        "labels by frequency         1-9: 5, 10-99: 0, 100-999: 0, 1000+: 0 in this file",
    ]
    assert lines[-1] == f"fingerprint                 {TREE.fingerprint}"
    assert len({line[26:28] for line in lines}) == 1
    assert "1000+: 0 in training" in str(SMALL.describe(SMALL))
    assert "DAG of depth 3" in str(Dataset.of(["x"], ["D"], DAG).describe())


def test_data_with_features_is_described_by_them() -> None:
    table = str(with_everything().describe())
    assert "2 (no texts)" in table
    assert "words per text" not in table
    assert "further columns" in table


# Columns of texts


def test_strings_are_a_sequence() -> None:
    texts = Strings.of(["a", "b", "c", "b"])
    assert (len(texts), texts[0], texts[-1], texts.index("b"), texts.count("b")) == (4, "a", "b", 1, 2)
    assert "c" in texts
    assert "d" not in texts
    assert list(reversed(texts)) == ["b", "c", "b", "a"]
    assert repr(texts) == "Strings(4 texts)"
    with pytest.raises(IndexError):
        texts[4]


def test_strings_are_sliced_as_lists_are() -> None:
    values = ["a", "b", "c", "d", "e"]
    texts = Strings.of(values)
    ends = [None, -7, -2, 0, 2, 7]
    for start in ends:
        for stop in ends:
            for step in (None, 1, 2, -1, -3):
                assert list(texts[start:stop:step]) == values[start:stop:step], (start, stop, step)


def test_strings_compare_by_value_whatever_their_chunks() -> None:
    texts = Strings.of(["a", "b"])
    assert texts == ["a", "b"]
    assert texts == Strings(pa.chunked_array([["a"], ["b"]], pa.large_string()))
    assert texts != ["a", "c"]
    assert texts != ["a"]
    assert texts != "ab"
    assert Strings.of([]) == []


def test_strings_are_made_of_arrow_columns_too() -> None:
    assert list(Strings.of(pa.array(["a", "b"]))) == ["a", "b"]
    assert list(Strings.of(pa.chunked_array([["a"], ["b"]]))) == ["a", "b"]
    texts = Strings.of(["a"])
    assert Strings.of(texts) is texts


def test_strings_are_iterated_across_chunks_and_parts() -> None:
    values = [str(number) for number in range(10_000)]
    arrow = pa.chunked_array([values[:1], [], values[1:6000], values[6000:]], pa.large_string())
    assert list(Strings(arrow)) == values
    assert list(Strings(arrow).take([9999, 0, 6000])) == ["9999", "0", "6000"]


def test_a_column_with_a_missing_text_is_refused() -> None:
    with pytest.raises(TreelabelError, match="row 1: expected text, found None"):
        Strings.of(pa.array(["a", None]))


def test_half_a_character_is_no_text() -> None:
    with pytest.raises(TreelabelError, match="is half of a character"):
        Strings.of(["fine", "not \ud83d"])


def test_a_dataset_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SMALL.texts = Strings.of(["x"])  # type: ignore[misc]
