"""Labels of training data that look wrong: found on the embedded sample, kept apart by text and group, and written."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from treelabel import Dataset, Hierarchy, TreelabelError, audit, load_sample, make_model, read, write
from treelabel.core.strings import Strings
from treelabel.hierarchy import label_matrix
from treelabel.operations.audit import Audit, near_copies
from treelabel.selection.training import out_of_fold

PETS = Hierarchy.from_paths(["pet > dog", "pet > cat", "food > cake"])


def pets(wrong: int = 1) -> Dataset:
    """Return three kinds of texts with a few words each; the first `wrong` ones about cats are labelled as dogs."""
    words = {"dog": "woof bark bone", "cat": "meow purr mouse", "cake": "sugar flour oven"}
    texts = [f"{text} {number}" for text in words.values() for number in range(12)]
    labels = [name for name in words for _ in range(12)]
    labels[12 : 12 + wrong] = ["dog"] * wrong
    return Dataset.of(texts, labels, PETS, ids=[f"d{row}" for row in range(36)])


@pytest.fixture(scope="module")
def found() -> Audit:
    return audit(pets(), cv=3)


def test_a_swapped_label_comes_first_with_what_the_model_would_say(found: Audit) -> None:
    first = found.rows(top=1)[0]
    assert (first["id"], first["given"], first["suggested"]) == ("d12", "pet > dog", "pet > cat")
    assert (first["reason"], first["duplicate"], first["line"]) == ("sibling", None, None)
    assert first["p_suggested"] > first["p_given"]
    assert found.rows()[:1] == [first]


def test_a_copy_with_another_label_is_named() -> None:
    data = pets(0)
    texts = [*data.texts[:35], data.texts[0].upper()]
    first = audit(replace(data, texts=Strings.of(texts)), cv=3).rows(top=1)[0]
    assert (first["id"], first["given"], first["suggested"]) == ("d35", "food > cake", "pet > dog")
    assert (first["reason"], first["duplicate"]) == ("duplicate disagrees", "d0")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "tsv"])
def test_suspects_can_be_written_and_read_again(found: Audit, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"suspects.{ending}"
    assert write(found.table(top=5), file, taxonomy=False) == [file]
    back = read(file)
    assert list(back.ids) == [row["id"] for row in found.rows(top=5)]
    assert [str(value) for value in back.extra["suggested"].to_pylist()] == [r["suggested"] for r in found.rows(top=5)]
    assert [float(value) for value in back.extra["score"].to_pylist()] == [row["score"] for row in found.rows(top=5)]
    assert [[path] for path in (row["given"] for row in found.rows(top=5))] == back.paths()


def test_documents_without_labels_are_left_out() -> None:
    data = pets(0)
    labels = data.labels.toarray()
    labels[0] = 0
    some = replace(data, labels=PETS.closure(labels))
    assert len(audit(some, "most_frequent", cv=2).data) == 35
    with pytest.raises(TreelabelError, match="unknown model 'linea'"):
        audit(data, "linea")
    with pytest.raises(TreelabelError, match="1 documents with labels are too few"):
        audit(data[:1])


def test_columns_of_a_frame_are_refused_in_words() -> None:
    pd = pytest.importorskip("pandas")
    texts, labels = pd.Series(["woof", "meow"]), pd.Series(["dog", "cat"])
    with pytest.raises(TreelabelError, match=r"expected a Dataset, found Series; read one .*Dataset\.of\(texts"):
        audit(texts, labels)
    with pytest.raises(TreelabelError, match="expected the name of a model, such as 'linear', found Series"):
        audit(pets(), labels)


def test_one_part_of_the_rows_is_not_all_of_them() -> None:
    with pytest.raises(TreelabelError, match="expected each of 36 once"):
        out_of_fold(lambda: make_model("most_frequent"), pets(), [np.arange(3)])


def test_nearly_equal_texts_have_one_number() -> None:
    long = "the quick brown fox jumps over the lazy dog while the cat sleeps near the warm old stove in the kitchen"
    texts = Strings.of([long, f"{long} today", "another text about cakes", long.upper(), ""])
    assert near_copies(texts, np.array([0, 1, 2, 0, -1])).tolist() == [0, 0, 1, 0, -1]


@pytest.mark.slow
def test_swapped_labels_of_the_sample_are_found() -> None:
    data = load_sample()
    data = data[np.arange(0, len(data), 2)]
    rng = np.random.default_rng(5)
    h = data.hierarchy
    labels = h.most_specific(data.labels).indices.copy()
    used, counts = np.unique(labels, return_counts=True)
    often = used[counts >= 10]
    rows = rng.choice(np.flatnonzero(np.isin(labels, often)), 200, replace=False)
    for row in rows.tolist():
        labels[row] = rng.choice(often[often != labels[row]])
    noisy = replace(data, labels=label_matrix(np.arange(len(data) + 1), labels, len(h)))
    ranked = audit(noisy, cv=3).suspects.rows[:200]
    assert np.isin(ranked, rows).mean() > 0.6


def test_what_is_no_dataset_is_refused_in_words() -> None:
    with pytest.raises(TreelabelError, match="expected a Dataset, found a data frame with columns 'text', 'label'"):
        audit(pd.DataFrame({"text": ["a"], "label": ["b"]}))
    with pytest.raises(TreelabelError, match="expected a Dataset, found"):
        audit(pd.Series(["a"]), pd.Series(["b"]))
