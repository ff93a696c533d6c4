"""Predictions beside the columns of frames of every library."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.core.test_frames import KINDS, column
from tests.data.test_dataset_frames import PATHS, columns
from treelabel import Dataset, Hierarchy, TreelabelError, load_model, make_model
from treelabel.models.base import Model

NEW = {"id": [7, 8, 9], "body": ["about a cat", " ", "about some soup"]}


def fitted(**settings: Any) -> Model:
    data = Dataset.from_frame(pd.DataFrame(columns(32)), text="body", labels="category")
    return make_model("linear", **settings).fit(data)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_come_in_a_frame_of_the_same_library(kind: str) -> None:
    make, back = KINDS[kind]
    model = fitted()
    result = model.predict_frame(make(NEW), alternatives=1)
    assert isinstance(result, back)
    assert column(result, "id") == [7, 8, 9]
    assert column(result, "label") == ["cat", None, "soup"]
    assert column(result, "path") == ["animal > cat", None, "food > soup"]
    assert column(result, "level_1") == ["animal", None, "food"]
    assert column(result, "level_2") == ["cat", None, "soup"]
    scores = model.score(NEW["body"])
    best = scores.dense()[:, model.hierarchy_.leaves].max(axis=1)
    found = column(result, "probability")
    assert found[1] is None
    assert np.allclose([found[0], found[2]], best[[0, 2]], atol=1e-6)
    assert set(column(result, "alternative_1")) <= {path.split(" > ")[1] for path in PATHS}
    assert all(0 < p < 1 for p in column(result, "alternative_1_probability"))


def test_the_text_column_is_remembered_and_saved(tmp_path: Path) -> None:
    model = fitted()
    frame = pd.DataFrame({"text": ["nothing"], "body": ["about a cat"]})
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    for each in (model, loaded):
        assert each.predict_frame(frame)["label"].tolist() == ["cat"]
    assert model.predict_frame(frame.rename(columns={"body": "words"}), text="words")["label"].tolist() == ["cat"]
    series = pd.DataFrame(columns(32))
    by_column = make_model("linear").fit(series["body"], series["class"])
    assert by_column.predict_frame(frame)["label"].tolist() == ["cat"]
    with pytest.raises(TreelabelError, match="columns are 'words'; say which: text="):
        model.predict_frame(pd.DataFrame({"words": ["about a cat"]}))


@pytest.mark.parametrize(
    ("labels", "label"),
    [
        (["a", "b"] * 16, "a"),
        ([" a", "b"] * 16, " a"),
        (["A > a", "B"] * 16, "A > a"),
        ([7, 3] * 16, 7),
    ],
)
def test_labels_are_written_as_fit_was_given_them(labels: list[Any], label: Any) -> None:
    model = make_model("linear").fit(["one", "two"] * 16, labels)
    frame = pl.DataFrame({"text": ["one", "two", ""]})
    result = model.predict_frame(frame)
    assert result["label"].to_list() == [label, labels[1], None]
    assert result["label"].to_list()[:2] == list(model.predict(["one", "two"]))


def test_several_labels_are_lists_unless_one_is_asked_for() -> None:
    model = make_model("linear").fit(["one", "two", "three"] * 12, [{"a", "b"}, {"b"}, {"a"}] * 12)
    texts = ["one", "two", ""]
    for make, _ in (KINDS["pandas"], KINDS["polars"], KINDS["pyarrow"], KINDS["datasets"]):
        result = model.predict_frame(make({"text": texts}))
        labels, p = column(result, "label"), column(result, "probability")
        assert [sorted(row) for row in labels] == [["a", "b"], ["b"], []]
        assert [len(row) for row in p] == [2, 1, 0]
        assert [sorted(row) for row in column(result, "level_1")] == [["a", "b"], ["b"], []]
    single = model.predict_frame(pl.DataFrame({"text": texts}), several=False)
    assert single["label"].to_list()[1:] == ["b", None]
    assert single["label"].to_list()[0] in ("a", "b")


def test_a_rule_decides_and_the_likeliest_of_several_is_taken() -> None:
    model = fitted()
    frame = pa.table(NEW)
    every = model.predict_frame(frame, rule="threshold@1e-09", several=True)["label"].to_pylist()
    assert len(every[0]) > 1
    one = model.predict_frame(frame, rule="threshold@1e-09")["label"].to_pylist()
    assert one == [every[0][0], None, every[2][0]]


def test_columns_that_are_there_are_not_replaced() -> None:
    model = fitted()
    frame = pd.DataFrame({"body": ["about a cat"], "Label": ["?"], "level_1": ["?"]})
    with pytest.raises(TreelabelError, match=r"columns 'label', 'level_1' already.*prefix='predicted_'"):
        model.predict_frame(frame)
    result = model.predict_frame(frame, prefix="predicted_")
    assert result.columns.tolist() == [
        *frame.columns,
        *(f"predicted_{name}" for name in ("label", "path", "probability", "level_1", "level_2")),
    ]


def test_no_rows_have_the_same_columns() -> None:
    model = fitted()
    result = model.predict_frame(pl.DataFrame(NEW)[:0], alternatives=2)
    assert result.columns == model.predict_frame(pl.DataFrame(NEW), alternatives=2).columns
    assert len(result) == 0


def test_many_rows_are_predicted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    texts = [f"about {word} {row}" for row in range(10) for word in ("cat", "soup")]
    whole = model.predict_frame(pl.DataFrame({"text": texts}), text="text")
    monkeypatch.setattr("treelabel.models.predicted_frames.batch_size", lambda nodes: 3)
    assert model.predict_frame(pl.DataFrame({"text": texts}), text="text").equals(whole)


def test_what_cannot_be_predicted_is_refused() -> None:
    frame = pd.DataFrame(NEW)
    with pytest.raises(TreelabelError, match="has not learned anything yet"):
        make_model("linear").predict_frame(frame)
    with pytest.raises(TreelabelError, match="alternatives= to be a whole number from 0 on, found -1"):
        fitted().predict_frame(frame, alternatives=-1)
    with pytest.raises(TreelabelError, match=r"such as data\['body'\], or the frame itself to treelabel.fit"):
        fitted().predict(frame)


def test_the_hierarchy_is_an_attribute_once_it_is_learned() -> None:
    model = fitted()
    assert model.hierarchy is model.hierarchy_
    assert model.get_params()["hierarchy"] is None
    h = Hierarchy.flat(["x", "y"])
    given = make_model("linear", hierarchy=h)
    assert given.hierarchy is h
    # Another fit takes the setting, and not what was learned before.
    assert model.fit(["a", "b"], ["x", "y"]).hierarchy == Hierarchy.flat(["x", "y"])
