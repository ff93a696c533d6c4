"""Files that cannot be read: refused with file, line and value, or the bad rows skipped and counted."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import put, read_text
from tests.strategies import examples
from treelabel import Dataset, Hierarchy, TreelabelError, read, write
from treelabel.data import SkippedRowsWarning
from treelabel.data.columns import ListMeaning
from treelabel.data.documents import OnError
from treelabel.data.io.format import BATCH

ONE = Dataset.of(["x"], ["B"], Hierarchy.from_paths(["A > B"]))


# Refusals, each with file, line and value

REFUSALS: dict[str, tuple[str, str | bytes, dict[str, Any], str]] = {
    "wrong byte": (
        "d.csv",
        b"text,label\na,A\ncaf\xe9,B\n",
        {},
        ":3: byte 4 of the line (0xe9) is not utf-8; save the",
    ),
    "wrong byte in jsonl": (
        "d.jsonl",
        b'{"text": "a", "label": "A"}\n{"text": "\xff"}\n',
        {},
        ":2: byte 11 of the line",
    ),
    "wrong byte in fasttext": ("d.ft", b"__label__A a\n\n\xfe\n", {}, ":3: byte 1 of the line (0xfe) is not utf-8"),
    "wrong byte in xmc": ("d.xmc", b"1 2 3\n\xfe\n", {}, ":2: byte 1 of the line (0xfe) is not utf-8"),
    "wrong byte in the header": ("d.csv", b"t\xe9xt,label\na,A\n", {}, ":1: cannot read the column names: byte 2 of"),
    "wrong byte in an array": ("d.json", b'[\n{"text": "a"},\n{"text": "\xff"}]', {}, ":3: byte 11 of the line (0xff)"),
    "wrong byte, no header": ("d.csv", b"\xff,A\n", {"header": False}, ":1: byte 1 of the line (0xff) is not utf-8"),
    "too few fields": (
        "d.csv",
        "id,text,label\n1,a,A\n2,b\n",
        {},
        ":3: 2 fields, but the header has 3: id, text, label",
    ),
    "too many fields": (
        "d.csv",
        'text,label\n"a\nb",A\na,A,!\n',
        {},
        ":4: 3 fields, but the header has 2: text, label",
    ),
    "no text column": (
        "d.csv",
        "foo,label\na,A\n",
        {},
        ":2: no column looks like the text; columns are 'foo' (1 different words, such as 'a'), 'label'",
    ),
    "no such text column": (
        "d.csv",
        "text,label\na,A\n",
        {"text": "body"},
        ":2: no column 'body' for the text; columns",
    ),
    "no such label column": (
        "d.csv",
        "text,x\na,A\n",
        {"labels": "y"},
        ":2: no column 'y' for the labels; columns are",
    ),
    "no such id column": (
        "d.csv",
        "text,label\na,A\n",
        {"id": "k"},
        ":2: no column 'k' for the id; columns are 'text'",
    ),
    "a column twice": ("d.csv", "text,label,text\na,A,b\n", {}, ":1: the column 'text' stands twice in the header"),
    "unclosed quote": (
        "d.csv",
        'text,label\na,A\n"b,B\nc,C\nd,D\n',
        {},
        ":3: not valid CSV up to line 5: unexpected end",
    ),
    "stray quote": (
        "d.csv",
        'text,label\n"a"b,A\nc,C\n',
        {},
        ":2: not valid CSV: ',' expected after '\"'; check the quotes",
    ),
    "bad JSON": ("d.jsonl", '{"text": "a", "label": "A"}\n\n{"text": \n', {}, ":3: not valid JSON: Expecting value at"),
    "no JSON object": (
        "d.jsonl",
        '{"text": "a", "label": "A"}\n[1, 2]\n',
        {},
        ":2: expected a JSON object with fields, found list",
    ),
    "bad JSON array": ("d.json", '[{"text": "a"},\n {"text" "b"}]', {}, ":2: not valid JSON: Expecting ':' delimiter"),
    "deep JSON": ("d.jsonl", '{"text": ' + "[" * 100_000 + "\n", {}, ":1: JSON nested too deeply"),
    "endless number": (
        "d.jsonl",
        '{"text": "a", "x": ' + "1" * 5000 + "}\n",
        {},
        ":1: not a value that can be read: Exceeds",
    ),
    "half a character": (
        "d.jsonl",
        '{"text": "a"}\n{"text": "\\ud83d!"}\n',
        {},
        ":2: '\\ud83d' is half of a character",
    ),
    "a field missing": (
        "d.jsonl",
        '{"text": "a", "label": "A"}\n{"text": "b"}\n',
        {},
        ":2: no value for 'label'; the row has text",
    ),
    "an object as text": (
        "d.jsonl",
        '{"text": {"a": 1}, "label": "A"}\n',
        {},
        ":1: expected text, found an object {'a': 1}",
    ),
    "a number as label": ("d.jsonl", '{"text": "a", "label": 0.5}\n', {}, ":1: expected a label name, found 0.5"),
    "truth as label": ("d.jsonl", '{"text": "a", "label": true}\n', {}, ":1: expected a label name, found True"),
    "nothing as label": (
        "d.jsonl",
        '{"text": "a", "label": ["A", null]}\n',
        {},
        ":1: expected a label name, found None",
    ),
    "an empty label": ("d.jsonl", '{"text": "a", "label": ["A", " "]}\n', {}, ":1: empty label"),
    "an empty fasttext label": ("d.ft", "__label__A a\n__label__ b\n", {}, ":2: empty label"),
    "an empty name in a path": (
        "d.csv",
        "text,label\na,A > B\nb,A >  > B\n",
        {"sep": " > "},
        ":3: unknown path 'A >  > B'",
    ),
    "an empty step": ("d.jsonl", '{"text": "a", "label": [["A", ""]]}\n', {}, ":1: unknown label 'A > '"),
    "xmc without header": (
        "d.xmc",
        "0,1 2:3\n",
        {},
        ":1: expected 'documents features labels', three numbers, found '0,1 2:3'",
    ),
    "xmc with odd digits": (
        "d.xmc",
        "² 3 4\n",
        {},
        ":1: expected 'documents features labels', three numbers, found '² 3 4'",
    ),
    "xmc label too large": ("d.xmc", "1 3 2\n2 1:1\n", {}, ":2: label '2' is not a number from 0 to 1"),
    "xmc label no number": ("d.xmc", "1 3 2\n0,x 1:1\n", {}, ":2: label 'x' is not a number from 0 to 1"),
    "xmc feature too large": (
        "d.xmc",
        "1 3 2\n0 3:1\n",
        {},
        ":2: feature '3:1' is not 'number:value' with a number from 0 to 2",
    ),
    "xmc feature negative": ("d.xmc", "1 3 2\n0 -1:1\n", {}, ":2: feature '-1:1' is not 'number:value'"),
    "xmc feature bare": ("d.xmc", "1 3 2\n0 7\n", {}, ":2: feature '7' is not 'number:value'"),
    "xmc value no number": ("d.xmc", "1 3 2\n0 1:many\n", {}, ":2: the value of feature '1:many' is not a number"),
    "xmc cut short": (
        "d.xmc",
        "3 3 2\n0 1:1\n1 2:1\n",
        {},
        ":1: the header promises 3 documents, the file has 2; is it cut",
    ),
    "no labels at all": (
        "d.csv",
        "text,x\na,b\n",
        {},
        ": no labels found and no taxonomy given; name the label column",
    ),
    "unknown encoding": ("d.csv", "text,label\na,A\n", {"encoding": "utf-99"}, ": unknown encoding 'utf-99'"),
    "empty csv": ("d.csv", "", {}, ": the file is empty; expected a line with column names"),
    "header alone": ("d.csv", "text,label\n", {}, ": no documents; the file has no rows, or every line is blank"),
    "blank csv": ("d.csv", "\n\n", {}, ": no documents; the file has no rows"),
    "empty jsonl": ("d.jsonl", "", {}, ": no documents; the file has no rows"),
    "empty array": ("d.json", "[]", {}, ": no documents; the file has no rows"),
    "blank jsonl": ("d.jsonl", "\n \n", {}, ": no documents; the file has no rows"),
    "empty fasttext": ("d.ft", "", {}, ": no documents; the file has no rows"),
    "empty xmc": ("d.xmc", "", {}, ":1: expected 'documents features labels'"),
    "empty parquet": ("d.parquet", "", {}, ": not a Parquet file"),
    "text called parquet": ("d.parquet", "text,label\na,A\n", {}, ": not a Parquet file"),
    "text called gzip": ("d.csv.gz", "text,label\na,A\n", {}, ": cannot be decompressed"),
    "text called zstd": ("d.csv.zst", "text,label\na,A\n", {}, ": cannot be decompressed"),
    "unknown ending": ("d.docx", "text", {}, ": cannot tell the format by the ending '.docx'; known are .csv, .tsv"),
}


@pytest.mark.parametrize(("name", "content", "options", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals_name_file_line_and_value(
    tmp_path: Path, name: str, content: str | bytes, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TreelabelError) as refused:
        read_text(tmp_path, name, content, **options)
    assert f"{tmp_path / name}{message}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_label_is_refused_with_line_and_hint(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "pet\tdog\npet\tcat\n")
    with pytest.raises(TreelabelError, match=r"data\.csv:3: unknown label 'dgo'; did you mean 'dog'\?"):
        read_text(tmp_path, "data.csv", "text,label\na,cat\nb,dgo\nc,dgo\n")


def test_an_ambiguous_label_is_refused_with_line_and_candidates(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.txt", "A > x\nB > x\n")
    with pytest.raises(TreelabelError, match=r"data\.csv:2: 'x' names 2 labels: 'A > x', 'B > x'; give the full path"):
        read_text(tmp_path, "data.csv", "text,label\na,x\n")


def test_a_refusal_says_how_to_go_on_without_the_row(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match=r"\(to leave out such rows: --on-error skip\)$"):
        read_text(tmp_path, "data.csv", "text,label\na\n")


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda content: bytes(pa.compress(content, "zstd", asbytes=True)),
}


@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_compressed_file_that_is_cut_short_is_refused(tmp_path: Path, ending: str, share: float) -> None:
    rng = np.random.default_rng(0)
    lines = "".join(f'{{"text": "{rng.integers(1 << 60)}", "label": "A"}}\n' for _ in range(500)).encode()
    whole = COMPRESSIONS[ending](lines)
    with pytest.raises(TreelabelError, match=rf"data\.jsonl\.{ending}: cannot be decompressed: .*damaged or cut short"):
        read_text(tmp_path, f"data.jsonl.{ending}", whole[: int(len(whole) * share)])


def test_a_damaged_parquet_file_is_refused_with_the_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [str(rng.integers(1 << 60)) for _ in range(5000)]
    write(Dataset.of(texts, ["A"] * 5000, Hierarchy.flat(["A"])), tmp_path / "data.parquet")
    content = bytearray((tmp_path / "data.parquet").read_bytes())
    content[len(content) // 3 : len(content) // 3 + 2000] = bytes(2000)
    with pytest.raises(TreelabelError, match=r"data\.parquet: row 1: damaged Parquet file"):
        read_text(tmp_path, "data.parquet", bytes(content))


def test_a_parquet_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    write(ONE, tmp_path / "data.parquet")
    with pytest.raises(TreelabelError, match=r"data\.parquet: not a Parquet file"):
        read_text(tmp_path, "data.parquet", (tmp_path / "data.parquet").read_bytes()[:-20])


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(
        TreelabelError,
        match=r": is a folder, expected a file, or a folder of texts: .*are a pattern",
    ):
        read(tmp_path)
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(TreelabelError, match=r"out\.csv: is a folder, expected the name of a file to write"):
        write(ONE, tmp_path / "out.csv")


def test_an_empty_separator_is_refused(tmp_path: Path) -> None:
    for option in ("sep", "label_sep"):
        with pytest.raises(TreelabelError, match="a separator must be at least one character"):
            read_text(tmp_path, "data.csv", "text,label\na,A\n", **{option: ""})


def test_what_parquet_cannot_store_is_refused_and_no_file_is_left(tmp_path: Path) -> None:
    data = Dataset(ONE.ids, ONE.texts, ONE.labels, ONE.hierarchy, {"meta": pa.chunked_array([[{}]])})
    with pytest.raises(TreelabelError, match=r"x\.parquet: a column cannot be stored in Parquet: .*'meta'"):
        write(data, tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name_gets_a_hint(tmp_path: Path) -> None:
    put(tmp_path, "train.csv", "text,label\na,A\n")
    with pytest.raises(TreelabelError, match=r"trian\.csv: no such file; did you mean train\.csv\?$"):
        read(tmp_path / "trian.csv")
    with pytest.raises(TreelabelError, match=r"zzz: no such file$"):
        read(tmp_path / "zzz")


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match=r"train\.csv: no such file; there is no folder .*nowhere$"):
        read(tmp_path / "nowhere" / "train.csv")
    with pytest.raises(TreelabelError, match=r"the folder .*nowhere does not exist; make it first"):
        write(ONE, tmp_path / "nowhere" / "train.csv")


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    put(tmp_path, "data.csv", "text,label\na,A\n")
    with pytest.raises(TreelabelError, match="unknown format 'arff'; there are: csv, tsv, jsonl, parquet, fasttext"):
        read(tmp_path / "data.csv", format="arff")
    with pytest.raises(TreelabelError, match=r"out\.docx: cannot tell the format by the ending '\.docx'"):
        write(ONE, tmp_path / "out.docx")


# Skipping

SKIPS: dict[str, tuple[str, str | bytes, str]] = {
    "ragged rows": ("d.csv", "text,label\na,A\nb\nc,A,!\nd,B\n", "skipped 2 rows: {file}:3: 1 fields"),
    "wrong bytes": ("d.csv", b"text,label\na,A\n\xff,A\nd,B\n", "skipped 1 rows: {file}:3: byte 1"),
    "stray quote": ("d.csv", 'text,label\na,A\n"b"!,A\nd,B\n', "skipped 1 rows: {file}:3: not valid CSV"),
    "open quote": (
        "d.csv",
        'text,label\na,A\nd,B\n"e,A\nf,A\n',
        "skipped 2 rows: {file}:4: not valid CSV up to line 5",
    ),
    "bad JSON": ("d.jsonl", '{"text": "a", "label": "A"}\n{\n{"text": "d", "label": "B"}\n', "1 rows: {file}:2:"),
    "no labels": (
        "d.jsonl",
        '{"text": "a", "label": "A"}\n{"text": "b"}\n{"text": "d", "label": "B"}\n',
        "1 rows: {file}:2:",
    ),
    "a first bad line": (
        "d.jsonl",
        '?\n{"text": "a", "label": "A"}\n{"text": "d", "label": "B"}\n',
        "1 rows: {file}:1:",
    ),
    "empty label": ("d.ft", "__label__A a\n__label__ b\n__label__B d\n", "skipped 1 rows: {file}:2: empty label"),
    "items of an array": ("d.json", '[{"text": "a", "label": "A"}, 3, {"text": "d", "label": "B"}]', "1 rows"),
}


@pytest.mark.parametrize(("name", "content", "message"), SKIPS.values(), ids=SKIPS)
def test_bad_rows_can_be_skipped_and_are_counted(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.warns(SkippedRowsWarning) as told:
        data = read_text(tmp_path, name, content, on_error="skip")
    assert list(data.texts) == ["a", "d"]
    assert data.names() == [["A"], ["B"]]
    assert message.format(file=tmp_path / name) in str(told[0].message)
    assert len(told) == 1


def test_rows_with_unknown_labels_can_be_skipped(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "pet\tdog\npet\tcat\n")
    content = "text,label,n\na,cat,1\nb,dgo,2\nc,dgo,3\nd,,4\n" + "".join(f"e{row},bird{row},5\n" for row in range(5))
    with pytest.warns(SkippedRowsWarning) as told:
        data = read_text(tmp_path, "data.csv", content + "f,dog,6\n", on_error="skip")
    assert list(data.texts) == ["a", "d", "f"]
    assert data.names() == [["cat"], [], ["dog"]]
    assert data.extra["n"].to_pylist() == ["1", "4", "6"]
    message = str(told[0].message)
    assert "skipped 7 rows" in message
    assert "data.csv:3: unknown label 'dgo'" in message
    assert "bird4" not in message


def test_a_row_with_one_unknown_label_among_several_is_skipped_whole(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "pet\tdog\npet\tcat\n")
    content = '{"text": "a", "labels": ["dog", "bird"]}\n{"text": "b", "labels": ["dog", "cat"]}\n'
    with pytest.warns(SkippedRowsWarning, match="skipped 1 rows"):
        data = read_text(tmp_path, "data.jsonl", content, on_error="skip")
    assert data.names() == [["dog", "cat"]]


def test_skipped_rows_are_not_numbered(tmp_path: Path) -> None:
    with pytest.warns(SkippedRowsWarning):
        data = read_text(tmp_path, "data.csv", "text,label\na,A\nb\nc,C\n", on_error="skip")
    assert list(data.ids) == ["0", "1"]


def test_nothing_is_said_where_nothing_is_skipped(tmp_path: Path) -> None:
    # Warnings are errors in these tests.
    assert len(read_text(tmp_path, "data.csv", "text,label\na,A\n", on_error="skip")) == 1


def test_a_file_of_bad_rows_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match=r"no documents left, as all 2 rows were skipped: .*:2: 1 fields"):
        read_text(tmp_path, "data.csv", "text,label\na\nb\n", on_error="skip")


def test_a_file_of_unknown_labels_alone_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "pet\tdog\n")
    with pytest.raises(
        TreelabelError, match=r"no documents left, as all 2 rows were skipped: .*:2: unknown label 'cat'"
    ):
        read_text(tmp_path, "data.csv", "text,label\na,cat\nb,bird\n", on_error="skip")


def test_a_file_without_one_label_that_can_be_used_is_refused(tmp_path: Path) -> None:
    content = '{"text": "a", "label": [["A", ""]]}\n{"text": "b", "label": []}\n'
    with pytest.raises(TreelabelError, match=r"data\.jsonl: no label in the file can be used"):
        read_text(tmp_path, "data.jsonl", content, on_error="skip")


def test_bad_rows_in_every_batch_are_counted(tmp_path: Path) -> None:
    lines = [f"t{row},A" if row % 1000 else "bad" for row in range(2 * BATCH)]
    with pytest.warns(SkippedRowsWarning, match="skipped 17 rows"):
        data = read_text(tmp_path, "data.csv", "text,label\n" + "\n".join(lines) + "\n", on_error="skip")
    assert len(data) == 2 * BATCH - 17
    assert data.texts[BATCH] == "t8201"


# Whatever else a file may hold

PIECES = {
    "csv": ["text,label\n", ",", "\n", '"', "a", "\r", ";", "[1]", "['a']", "A > B", "\ufeff", "\x00", "é"],
    "jsonl": [
        '{"text": "a", "label": ',
        '"A"',
        "}\n",
        "[",
        "]",
        "{",
        "null",
        "0.5",
        ",",
        '"\\ud800"',
        "NaN",
        "\n",
        '"p": ',
    ],
    "ft": ["__label__", "a", " ", "\t", "%20", "%ff", "%", "\n", "é"],
    "xmc": ["1 2 2\n", "0", "1", ",", ":", " ", "\n", "x", "-1", "nan", "9999999999999999999"],
}


@pytest.mark.filterwarnings("ignore::treelabel.data.SkippedRowsWarning")
@pytest.mark.parametrize("ending", PIECES)
@examples(60)
@given(st.data())
def test_any_file_is_read_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, ending: str, data: st.DataObject
) -> None:
    content = "".join(data.draw(st.lists(st.sampled_from(PIECES[ending]), max_size=15)))
    file = put(tmp_path_factory.mktemp("any"), f"data.{ending}", content)
    on_error: OnError = data.draw(st.sampled_from(["stop", "skip"]))
    lists: ListMeaning = data.draw(st.sampled_from(["labels", "path"]))
    documents, refusal = 0, ""
    try:
        documents = len(read(file, on_error=on_error, lists=lists))
    except TreelabelError as error:
        refusal = str(error)
    assert documents > 0 or refusal.startswith(str(file))
