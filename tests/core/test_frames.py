"""Frames of every library: columns out of them and into them, as each library has them."""

from collections.abc import Callable
from typing import Any

import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from treelabel import TreelabelError
from treelabel.core.frames import Frame, is_frame, make_frame

COLUMNS = {"body": ["woof", None, "meow"], "n": [1, 2, 3]}


class Stream:
    """What hands out an Arrow stream, and nothing else."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(schema)


def relation(columns: dict[str, Any]) -> Any:
    return duckdb.from_arrow(pa.table(columns))


# How a frame is made of columns, and the class that comes back.
KINDS: dict[str, tuple[Callable[[dict[str, Any]], Any], type]] = {
    "pandas": (pd.DataFrame, pd.DataFrame),
    "polars": (pl.DataFrame, pl.DataFrame),
    "lazy polars": (pl.LazyFrame, pl.DataFrame),
    "pyarrow": (pa.table, pa.Table),
    "DuckDB": (relation, pa.Table),
    "datasets": (datasets.Dataset.from_dict, datasets.Dataset),
    "stream": (Stream, pa.Table),
}


def column(frame: Any, name: str) -> list[Any]:
    """Return the values of a column of any frame, with None for what is missing."""
    values = frame[name]
    listed = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    return [None if value is pd.NA or (isinstance(value, float) and value != value) else value for value in listed]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_read_and_added_in_every_library(kind: str) -> None:
    make, back = KINDS[kind]
    frame = Frame.of(make(COLUMNS))
    assert frame.names == ["body", "n"]
    assert len(frame) == 3
    assert list(frame.texts(["body"])) == ["woof", "", "meow"]
    assert frame.values("n") == [1, 2, 3]
    more = {
        "label": pa.array(["x", None, "y"]),
        "p": pa.array([0.5, None, 1.0]),
        "some": pa.array([["a"], [], ["b", "c"]]),
        "code": pa.array([1, None, 2]),
    }
    result = frame.with_columns(more)
    assert isinstance(result, back)
    assert column(result, "body") == COLUMNS["body"]
    for name, values in more.items():
        assert [list(each) if name == "some" else each for each in column(result, name)] == values.to_pylist()


def test_the_index_of_pandas_stays_and_lists_are_lists() -> None:
    frame = pd.DataFrame(COLUMNS, index=["a", "b", "c"])
    more = {"some": pa.array([["a"], [], ["b"]]), "code": pa.array([1, None, 2]), "label": pa.array(["x", "y", None])}
    result = Frame.of(frame).with_columns(more)
    assert result.index.tolist() == ["a", "b", "c"]
    assert result.loc["a", "some"] == ["a"]
    assert str(result["code"].dtype) == "Int64"
    assert list(frame.columns) == ["body", "n"]


def test_texts_of_several_columns_are_joined_by_line_breaks() -> None:
    frame = Frame.of(pl.DataFrame({"title": ["a", None], "body": ["b", "c"]}))
    assert list(frame.texts(["title", "body"])) == ["a\nb", "\nc"]


def test_class_labels_are_read_by_their_names() -> None:
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["neg", "pos"]),
            "topics": datasets.List(datasets.ClassLabel(names=["u", "v"])),
        }
    )
    columns = {"text": ["a", "b", "c"], "label": [1, -1, 0], "topics": [[0], [], [1, 0]]}
    data = datasets.Dataset.from_dict(columns, features=features)
    frame = Frame.of(data.select([2, 0, 1]))
    assert frame.values("label") == ["neg", "pos", None]
    assert frame.values("topics") == [["v", "u"], ["u"], []]
    added = frame.with_columns({"new": pa.array(["x", "y", "z"])})
    assert added.features["label"].names == ["neg", "pos"]
    assert added["text"][:] == ["c", "a", "b"]


def test_indicators_are_columns_of_0_and_1() -> None:
    frame = Frame.of(pd.DataFrame({"a": [True, False], "b": [0, 1], "c": [1, 2]}))
    marks = frame.indicators(["a", "b"])
    assert marks is not None
    assert marks.tolist() == [[True, False], [False, True]]
    assert frame.indicators(["a", "c"]) is None
    assert frame.indicators(["a"]) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Frame.of({"text": ["a"]}), r"found a dict with the keys 'text'; pyarrow.table\(data\)"),
        (lambda: Frame.of(["a"]), r"expected a data frame .* found \['a'\]"),
        (
            lambda: Frame.of(pd.DataFrame([[1, 2]], columns=["a", "a"])),
            "cannot read a data frame with columns 'a', 'a'",
        ),
        (lambda: Frame.of(pa.table(COLUMNS)).texts(["n"]), "expected texts in the column 'n', found int64"),
        (lambda: Frame.of(pa.table(COLUMNS)).text_columns("bod"), "no column 'bod' for the text; .* did you mean body"),
        (lambda: Frame.of(pa.table({"x": ["a"]})).text_columns(None), r"columns are 'x'; say which: text="),
        (lambda: make_frame({"a": pa.array([1])}, "excel"), "pandas, polars or pyarrow, found kind='excel'"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        call()


def test_the_text_is_what_was_asked_for_or_remembered_or_has_a_usual_name() -> None:
    frame = Frame.of(pa.table({"n": ["1"], "Body": ["a"], "words": ["b"]}))
    assert frame.text_columns("n", ["words"]) == ("n",)
    assert frame.text_columns(None, ["words"]) == ("words",)
    assert frame.text_columns(None, ["gone"]) == ("Body",)


def test_columns_are_no_frames() -> None:
    for values in (pd.Series(["a"]), pl.Series(["a"]), pa.array(["a"]), np.array([["a"]]), ["a"]):
        assert not is_frame(values)
    for make, _ in KINDS.values():
        assert is_frame(make(COLUMNS))
