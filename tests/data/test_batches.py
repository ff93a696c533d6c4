"""Reading in batches finds what reading at once finds, whatever the size of batches and the way of reading."""

import csv
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import put
from tests.strategies import examples
from treelabel import Dataset, Hierarchy, TreelabelError, read, write
from treelabel.data.data_file import read_batches
from treelabel.data.io import csv as csv_format

FLAT = Hierarchy.flat(["A", "B"])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files in blocks of a few bytes."""
    monkeypatch.setattr(csv_format, "BLOCK", 16)


def pairs(batches: Any) -> list[tuple[str, str]]:
    return [pair for data in batches for pair in zip(data.ids, data.texts, strict=True)]


def expected(file: Path, **options: Any) -> Any:
    """Read at once, or return how that fails."""
    try:
        return pairs([read(file, taxonomy=FLAT, need_labels=False, **options)])
    except TreelabelError as error:
        return str(error)


def found(file: Path, size: int, **options: Any) -> Any:
    try:
        return pairs(read_batches(file, FLAT, size, need_labels=False, **options))
    except TreelabelError as error:
        return str(error)


CSV = {
    "plain": "id,text\n1,one\n2,two\n3,three\n",
    "no id, blank lines": "text,more\n\none,x\n\n\ntwo,y\n",
    "quotes": 'id,text\n1,"a, ""b"""\n2,"two\nlines"\n"3",x\n"","no id"\n',
    "CR LF": 'id,text\r\n1,one\r\n2,"two\r\nlines"\r\n',
    "no line break at the end": "id,text\n1,one\n2,two",
    "quote at the end": 'id,text\n1,one\n2,"two"',
    "mark": "\ufeffid,text\n1,one\n",
    "not ASCII": "id,text\n1,naïve 日本\n2,😀\n",
    "quote within": 'id,text\n1,say "a"\n2,two\n',
    "two texts": "title,body,text,id\na,b,c,1\nd,e,f,2\n",
    "lone carriage return": "id,text\n1,one\rtwo\n3,three\n",
    "too few fields": "id,text\n1,one\n2\n3,three\n",
    "too many fields": "id,text\n1,one\n2,two,too\n3,three\n",
    "unclosed quote": 'id,text\n1,one\n2,"two\n3,three\n',
    "behind a quote": 'id,text\n1,one\n2,"two" x\n3,three\n',
    "escaped": "id,text,treelabel:escaped\n1,'=a,1\n2,'=b,0\n",
    "empty": "",
    "header only": "id,text\n",
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", CSV)
@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.filterwarnings("ignore:.*skipped")
def test_csv_is_read_as_at_once(tmp_path: Path, name: str, on_error: str) -> None:
    file = put(tmp_path, "a.csv", CSV[name])
    for size in (1, 2, 100):
        wanted, got = expected(file, on_error=on_error), found(file, size, on_error=on_error)
        if "no documents" in str(wanted):
            assert "no documents" in str(got)
        else:
            assert got == wanted


@pytest.mark.usefixtures("quick")
def test_bytes_that_are_no_text_are_told_with_their_line(tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", b"id,text\n1,one\n2,caf\xe9\n")
    assert found(file, 10) == expected(file)
    assert ":3: byte" in found(file, 10)
    assert found(file, 10, encoding="latin-1") == [("1", "one"), ("2", "café")]


@examples(60)
@given(
    rows=st.lists(st.lists(st.text(st.sampled_from("a,\"\n\r é='\t"), max_size=6), min_size=3, max_size=3), max_size=8),
    raw=st.text(st.sampled_from('a,"\n\r'), max_size=12),
    size=st.integers(1, 5),
    block=st.integers(1, 40),
)
def test_any_csv_is_read_as_at_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], raw: str, size: int, block: int
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["id", "text", "more"], *rows])
    file = put(tmp_path_factory.mktemp("csv"), "a.csv", text.getvalue() + raw)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(csv_format, "BLOCK", block)
        for on_error in ("stop", "skip"):
            wanted, got = expected(file, on_error=on_error), found(file, size, on_error=on_error)
            if isinstance(wanted, str) and "no documents" in wanted:
                assert "no documents" in str(got)
            else:
                assert got == wanted


DATA = Dataset.of([f"text {at}" for at in range(50)], [["A"], ["B"]] * 25, FLAT, ids=[f"x{at}" for at in range(50)])


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "jsonl", "jsonl.zst", "parquet", "ft.bz2", "htc"])
def test_every_format_is_read_in_batches(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.{ending}"
    write(DATA, file, taxonomy=False)
    wanted = pairs([read(file, taxonomy=FLAT)])
    assert [len(data) for data in read_batches(file, FLAT, 20, 3)] == [3, 12, 20, 15]
    assert pairs(read_batches(file, FLAT, 20, 3)) == wanted
    labels = [names for data in read_batches(file, FLAT, 7) for names in data.names()]
    assert labels == [["A"], ["B"]] * 25
    assert not any(data.labels.nnz for data in read_batches(file, FLAT, 7, need_labels=False))


def test_features_come_in_batches(tmp_path: Path) -> None:
    file = put(tmp_path, "a.xmc", "3 4 2\n0 1:0.5\n1 2:1\n0 0:2 3:1\n")
    h = Hierarchy.flat(["0", "1"])
    parts = [data.features for data in read_batches(file, h, 2)]
    assert [part.toarray().tolist() for part in parts if part is not None] == [
        [[0, 0.5, 0, 0], [0, 0, 1, 0]],
        [[2, 0, 0, 1]],
    ]


@pytest.mark.usefixtures("quick")
def test_columns_come_as_they_are_in_their_order(tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", "price,text,id,label\n1.50,one,a,A\n,two,b,B\n")
    (data,) = read_batches(file, FLAT, columns=True, need_labels=False)
    assert {name: column.to_pylist() for name, column in data.extra.items()} == {
        "price": ["1.50", ""],
        "text": ["one", "two"],
        "id": ["a", "b"],
        "label": ["A", "B"],
    }
    lines = put(tmp_path, "a.jsonl", '{"text": "one", "n": 1}\n{"text": "two", "tags": ["x"], "n": null}\n')
    (data,) = read_batches(lines, FLAT, columns=True, need_labels=False)
    assert {name: column.to_pylist() for name, column in data.extra.items()} == {
        "text": ["one", "two"],
        "n": ["1", None],
        "tags": [None, '["x"]'],
    }


def test_numbers_of_parquet_stay_numbers(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [7, None], "text": ["one", None], "n": [1.5, 2.5]}), tmp_path / "a.parquet")
    (data,) = read_batches(tmp_path / "a.parquet", FLAT, columns=True, need_labels=False)
    assert (list(data.ids), list(data.texts)) == (["7", "1"], ["one", ""])
    assert data.extra["n"].to_pylist() == [1.5, 2.5]


def test_a_column_that_comes_late_is_said_to_be_left_out(tmp_path: Path) -> None:
    lines = "".join(f'{{"text": "{at}"}}\n' for at in range(9000)) + '{"text": "last", "late": 1}\n'
    file = put(tmp_path, "a.jsonl", lines)
    with pytest.warns(UserWarning, match="the column 'late' is in none of the first rows"):
        parts = list(read_batches(file, FLAT, columns=True, need_labels=False))
    assert all(list(data.extra) == ["text"] for data in parts)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", "text\none\n")
    with pytest.raises(TreelabelError, match="no option 'colour'"):
        read_batches(file, FLAT, colour="red")
    with pytest.raises(TreelabelError, match="at least 1 row"):
        read_batches(file, FLAT, 0)
    with pytest.raises(TreelabelError, match="no such file"):
        read_batches(tmp_path / "b.csv", FLAT)
