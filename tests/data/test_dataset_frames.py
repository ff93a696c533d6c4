"""Datasets out of frames of every library and back, with labels in every form that people have them in."""

from typing import Any, Literal

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.core.test_frames import KINDS
from treelabel import Dataset, Hierarchy, TreelabelError
from treelabel.data import SkippedRowsWarning

PATHS = ["animal > cat", "animal > dog", "food > soup", "food > tea"]


def columns(rows: int = 12) -> dict[str, list[Any]]:
    paths = [PATHS[row % 4] for row in range(rows)]
    return {
        "key": [f"k{row}" for row in range(rows)],
        "body": [f"a text about {path.split(' > ')[1]} number {row}" for row, path in enumerate(paths)],
        "category": [path.replace(" > ", "/") for path in paths],
        "dept": [path.split(" > ")[0] for path in paths],
        "class": [path.split(" > ")[1] for path in paths],
        "price": [row / 2 for row in range(rows)],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_every_library_are_read_alike(kind: str) -> None:
    frame = KINDS[kind][0](columns())
    data = Dataset.from_frame(frame, text="body", labels="category", id="key")
    assert data.paths() == [[PATHS[row % 4]] for row in range(12)]
    assert list(data.ids) == columns()["key"]
    assert list(data.texts) == columns()["body"]
    assert data.extra["price"].to_pylist() == columns()["price"]
    assert data.is_hierarchy_of_labels
    levels = Dataset.from_frame(frame, text="body", labels=["dept", "class"])
    assert levels.paths() == data.paths()


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_datasets_come_back_out_of_frames(kind: Literal["pandas", "polars", "pyarrow"]) -> None:
    data = Dataset.from_frame(pd.DataFrame(columns()), text="body", labels="category", id="key", group="price")
    frame = data.to_frame(kind)
    assert isinstance(frame, KINDS[kind][1])
    again = Dataset.from_frame(frame)
    assert (again.paths(), again.ids, again.texts) == (data.paths(), data.ids, data.texts)
    assert again.hierarchy == data.hierarchy
    assert again.extra["price"].to_pylist() == data.extra["price"].to_pylist()


def test_several_labels_come_back_as_lists() -> None:
    h = Hierarchy.flat(["a", "b"])
    data = Dataset.of(["x", "y", "z"], [["a", "b"], ["b"], []], h)
    frame = data.to_frame("polars")
    assert frame["labels"].to_list() == [["a", "b"], ["b"], []]
    assert Dataset.from_frame(frame, hierarchy=h).names() == data.names()
    assert data.to_frame()["labels"].tolist() == [["a", "b"], ["b"], []]


def test_missing_texts_and_labels_are_empty() -> None:
    frame = pd.DataFrame({"text": ["a", None, np.nan], "label": ["x", np.nan, "y"]})
    data = Dataset.from_frame(frame)
    assert list(data.texts) == ["a", "", ""]
    assert data.names() == [["x"], [], ["y"]]


FORMS: dict[str, Any] = {
    "tuples": [("animal", "cat"), ("food",), None],
    "tuples that end early": [("animal", "cat"), ("food", None), ()],
    "path strings": ["animal > cat", "food", None],
    "lists of paths": [["animal > cat"], ["food"], []],
    "sets": [{"animal > cat"}, {"food"}, set()],
    "arrays": [np.array(["animal > cat"]), np.array(["food"]), np.array([])],
    "categories": pd.Categorical(["animal > cat", "food", None]),
}


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_every_form_are_paths(form: str) -> None:
    frame = pd.DataFrame({"text": ["a", "b", "c"], "label": FORMS[form]})
    assert Dataset.from_frame(frame).paths() == [["animal > cat"], ["food"], []]


def test_categories_of_polars_and_class_labels_are_names() -> None:
    frame = pl.DataFrame({"text": ["a", "b"], "label": pl.Series(["x", "y"], dtype=pl.Categorical)})
    assert Dataset.from_frame(frame).names() == [["x"], ["y"]]
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    assert Dataset.from_frame(data).names() == [["pos"], ["neg"]]


def test_indicator_columns_are_labels_by_name() -> None:
    frame = pd.DataFrame(columns())
    dummies = pd.get_dummies(frame["category"])
    data = Dataset.from_frame(pd.concat([frame[["body"]], dummies], axis=1), text="body", labels=list(dummies.columns))
    assert data.paths() == [[PATHS[row % 4]] for row in range(12)]
    assert "labels" not in data.reading


def test_lists_that_look_like_levels_are_questioned() -> None:
    lists = [["animal", "cat"], ["animal", "dog"], ["food", "other"], ["tool", "saw"], ["tool", "axe"], ["pet", "cow"]]
    frame = pl.DataFrame({"text": list("abcdefg"), "label": [*lists, ["animal", "other"]]})
    with pytest.raises(TreelabelError, match="lists='path' for the steps of one path, lists='labels' for several"):
        Dataset.from_frame(frame)
    assert Dataset.from_frame(frame, lists="path").paths()[0] == ["animal > cat"]
    assert Dataset.from_frame(frame, lists="labels").paths()[0] == ["animal", "cat"]
    several = pl.DataFrame({"text": list("abc"), "label": [["a", "b"], ["b", "c"], ["c", "a"]]})
    assert Dataset.from_frame(several).names() == [["a", "b"], ["b", "c"], ["a", "c"]]


def test_wrong_rows_are_named_or_left_out() -> None:
    h = Hierarchy.flat(["x", "y"])
    frame = pd.DataFrame({"text": ["a", "b"], "label": ["x", "z"]})
    with pytest.raises(TreelabelError, match="data frame:1: unknown label 'z'"):
        Dataset.from_frame(frame, hierarchy=h)
    with pytest.warns(SkippedRowsWarning, match="skipped 1 rows"):
        assert Dataset.from_frame(frame, hierarchy=h, on_error="skip").names() == [["x"]]
    with pytest.raises(TreelabelError, match=r"no column 'lable' for the labels; .* did you mean label"):
        Dataset.from_frame(frame, labels="lable")
