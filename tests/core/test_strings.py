"""Columns of any library are taken; data frames, dicts, sets and single texts are refused in words."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from treelabel import TreelabelError
from treelabel.core.strings import Strings, as_list, column_names, is_missing

COLUMNS = {"body": ["a", "b", "c"], "category": ["x", "y", "x"]}


class Frame:
    """A frame of a library that is not installed: polars, datasets and Spark have these, too."""

    columns = ("body", "category")

    def __iter__(self) -> Any:
        return iter(self.columns)


@pytest.mark.parametrize(
    "frame", [pd.DataFrame(COLUMNS), pa.table(COLUMNS), COLUMNS, Frame()], ids=["pandas", "arrow", "dict", "other"]
)
def test_frames_are_never_read_as_their_column_names(frame: Any) -> None:
    assert column_names(frame) == ["body", "category"]
    with pytest.raises(TreelabelError, match=r"'body', 'category'; pass one column of it, such as data\['body'\]"):
        Strings.of(frame)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(COLUMNS["body"]),
        pd.Series(COLUMNS["body"], dtype="category"),
        pa.array(COLUMNS["body"]),
        pa.chunked_array([COLUMNS["body"]]),
        pa.array(COLUMNS["body"]).dictionary_encode(),
        np.array(COLUMNS["body"]),
        np.array(COLUMNS["body"], object),
        tuple(COLUMNS["body"]),
        iter(COLUMNS["body"]),
    ],
    ids=lambda column: type(column).__name__,
)
def test_columns_of_any_library_are_taken(column: Any) -> None:
    assert list(Strings.of(column)) == COLUMNS["body"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("abc", "found one text; put it into a list"),
        ({"a", "b"}, "a set, which has no order"),
        (5, "expected a list of texts, found 5"),
        (pa.array([1, 2]), "found one of type int64"),
        (pa.array([b"a"]), "found one of type binary"),
        (pd.Series(["a", None]), "row 1: expected text"),
        ([pd.DataFrame(COLUMNS)], "row 0: expected text, found a data frame with columns 'body', 'category'"),
    ],
)
def test_what_is_no_column_of_texts_is_refused(values: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        Strings.of(values)


def test_values_are_those_of_python() -> None:
    assert as_list(pa.array(["a", None]), "labels") == ["a", None]
    assert as_list(pd.Series([["a"], ["b", "c"]]), "labels") == [["a"], ["b", "c"]]
    assert [is_missing(value) for value in (pd.NA, pd.NaT, np.nan, None, "", 0)] == [True] * 5 + [False]
