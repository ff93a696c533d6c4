"""Reading and writing data files: round trips, guesses, refusals with file and line, whole files or none."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tests.helpers import put, read_text
from tests.strategies import examples
from treelabel import FORMATS, Dataset, Hierarchy, TreelabelError, read, write
from treelabel.core.atomic_output import atomic_file, open_output
from treelabel.data import SkippedRowsWarning, Strings, losses
from treelabel.data.io.format import BATCH
from treelabel.data.io.tables import format_of
from treelabel.data.write import LabelStyle

TREE = Hierarchy.from_paths(
    [
        ["pets", "big dogs"],
        ["pets", "100% cat"],
        ["pets", 'so-called "fish"'],
        ["naïve 🐟", "[tag]"],
        ["naïve 🐟", "['x']"],
        ["naïve 🐟", "a, b; c|d"],
        ["été/winter", "x%20y"],
        ["été/winter", "None"],
    ]
)
AMBIGUOUS = Hierarchy.from_paths(["Other", "A > Other", "A > B/C", "B/C > Other", "B/C > A > Other"])
DOCUMENTS: list[tuple[str, list[str]]] = [
    ("plain", ["big dogs"]),
    ("", ["100% cat"]),
    (" space around \t", ["pets"]),
    ('say "hi", \'you\'; "', ['so-called "fish"']),
    ('"', ["[tag]", "['x']"]),
    ("a,b;c|d\te", ["a, b; c|d"]),
    ("line\nbreak\n\n", ["x%20y", "big dogs", "None"]),
    ("return\r\nand lone\rone", []),
    ("日本語 العربية ελληνικά e\u0301", ["naïve 🐟"]),
    ("👩‍👩‍👧‍👦 \U0001f600", ["été/winter"]),
    ("separators \u2028 \u2029 \x85 \x0b \x0c", ["[tag]"]),
    ("null", ["None"]),
    ("#[{see __label__x}]", ["['x']"]),
    ("\\n \\u0041 &amp; %41", ["pets", "big dogs"]),
]
EXTRA = {
    "note": pa.chunked_array([["n", None, 'q"', "", "é,", "\n", *"abcdefgh"]]),
    "count": pa.chunked_array([[1, None, -3, *range(11)]]),
    "weight": pa.chunked_array([[0.1, None, 1e300, -0.0, *map(float, range(10))]]),
    "tags": pa.chunked_array([[["a"], [], None, ["b", "c"], *[["d"]] * 10]]),
    "nothing": pa.chunked_array([pa.nulls(14)]),
}
AWKWARD = Dataset(
    Strings.of([f"id {at}" for at in range(len(DOCUMENTS))]),
    Strings.of([text for text, _ in DOCUMENTS]),
    Dataset.of([""] * len(DOCUMENTS), [labels for _, labels in DOCUMENTS], TREE).labels,
    TREE,
    EXTRA,
)
FULL = ["csv", "tsv", "tab", "jsonl", "ndjson", "json", "parquet", "pq"]


def same(one: Dataset, other: Dataset) -> bool:
    return (
        one.hierarchy == other.hierarchy
        and one.ids == other.ids
        and one.texts == other.texts
        and one.names() == other.names()
        and one.paths() == other.paths()
    )


# Round trips


@pytest.mark.parametrize("compression", ["", ".gz", ".zst", ".bz2"])
@pytest.mark.parametrize("ending", FULL)
def test_formats_that_hold_everything_give_everything_back(tmp_path: Path, ending: str, compression: str) -> None:
    write(AWKWARD, tmp_path / f"data.{ending}{compression}")
    again = read(tmp_path / f"data.{ending}{compression}")
    assert same(again, AWKWARD)
    assert list(again.extra) == list(AWKWARD.extra)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_further_columns_keep_their_values(tmp_path: Path, ending: str) -> None:
    write(AWKWARD, tmp_path / f"data.{ending}")
    again = read(tmp_path / f"data.{ending}")
    assert {name: column.to_pylist() for name, column in again.extra.items()} == {
        name: column.to_pylist() for name, column in EXTRA.items()
    }


def test_parquet_keeps_the_types_of_further_columns(tmp_path: Path) -> None:
    write(AWKWARD, tmp_path / "data.parquet")
    again = read(tmp_path / "data.parquet")
    assert again.extra["count"].type == pa.int64()
    assert again.extra["weight"].type == pa.float64()
    assert pa.types.is_list(again.extra["tags"].type)


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_csv_keeps_further_columns_as_text_with_lists_as_json(tmp_path: Path, ending: str) -> None:
    write(AWKWARD, tmp_path / f"data.{ending}")
    extra = read(tmp_path / f"data.{ending}").extra
    assert extra["note"].to_pylist()[:6] == ["n", "", 'q"', "", "é,", "\n"]
    assert extra["count"].to_pylist()[:3] == ["1", "", "-3"]
    assert extra["weight"].to_pylist()[:3] == ["0.1", "", "1e+300"]
    assert extra["tags"].to_pylist()[:4] == ['["a"]', "[]", "", '["b", "c"]']
    assert set(extra["nothing"].to_pylist()) == {""}


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_htc_keeps_texts_and_labels(tmp_path: Path, compression: str) -> None:
    file = tmp_path / f"data.htc{compression}"
    write(AWKWARD, file)
    again = read(file)
    assert again.texts == AWKWARD.texts
    assert again.names() == AWKWARD.names()
    assert again.hierarchy == AWKWARD.hierarchy


def test_htc_lines_are_what_the_benchmarks_have(tmp_path: Path) -> None:
    write(AWKWARD[:1], tmp_path / "data.htc")
    assert json.loads((tmp_path / "data.htc").read_text()) == {"token": "plain", "label": ["big dogs"]}


@pytest.mark.parametrize("ending", ["ft", "fasttext", "fasttext.txt", "ft.gz", "fasttext.txt.zst"])
def test_fasttext_keeps_labels_and_texts_up_to_line_breaks_and_space_around(tmp_path: Path, ending: str) -> None:
    # A document with neither text nor labels has no place in the format (see below).
    data = AWKWARD[np.arange(len(AWKWARD)) != 1]
    write(data, tmp_path / f"data.{ending}")
    again = read(tmp_path / f"data.{ending}")
    assert again.names() == data.names()
    assert again.hierarchy == data.hierarchy
    plain = [text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ").strip() for text in data.texts]
    assert [text.strip() for text in again.texts] == plain


def test_fasttext_writes_labels_as_single_tokens(tmp_path: Path) -> None:
    write(AWKWARD[[0, 1, 3]], tmp_path / "data.ft")
    assert (tmp_path / "data.ft").read_text() == (
        "__label__pets%20>%20big%20dogs plain\n__label__pets%20>%20100%25%20cat \n"
        '__label__pets%20>%20so-called%20"fish" say "hi", \'you\'; "\n'
    )


@pytest.mark.parametrize("ending", [*FULL, "htc", "ft"])
def test_labels_that_share_a_name_are_written_as_paths_and_found_again(tmp_path: Path, ending: str) -> None:
    nodes = range(len(AMBIGUOUS))
    rows: list[list[str]] = [[AMBIGUOUS.paths([node])[0]] for node in nodes]
    data = Dataset.of([f"text {node}" for node in nodes], rows, AMBIGUOUS)
    written = write(data, tmp_path / f"data.{ending}")
    again = read(written[0])
    assert again.hierarchy == AMBIGUOUS
    assert again.paths() == data.paths()


@pytest.mark.parametrize("sep", ["/", " / "])
def test_paths_are_written_with_a_separator_that_stands_in_no_name(tmp_path: Path, sep: str) -> None:
    h = Hierarchy.from_paths([["C >", "x"], ["D", "x"], ["a > x", "y"]])
    data = Dataset.of(["1", "2", "3"], [[["C >", "x"]], [["D", "x"]], [["a > x", "y"]]], h)
    write(data, tmp_path / "data.csv")
    assert "C > / x" in (tmp_path / "data.csv").read_text()
    assert same(read(tmp_path / "data.csv"), data)
    write(data, tmp_path / "data.csv", sep=sep)
    assert same(read(tmp_path / "data.csv"), data)
    with pytest.raises(TreelabelError, match="the separator ' > ' occurs in a label's name"):
        write(data, tmp_path / "data.csv", sep=" > ")


def test_names_can_be_asked_for_only_where_they_are_unique(tmp_path: Path) -> None:
    data = Dataset.of(["x"], ["A > Other"], AMBIGUOUS)
    with pytest.raises(TreelabelError, match="two labels share a name"):
        write(data, tmp_path / "data.csv", labels="names")
    assert list(tmp_path.iterdir()) == []


def test_paths_can_be_asked_for(tmp_path: Path) -> None:
    data = Dataset.of(["x"], ["b"], Hierarchy.from_paths(["a > b"]))
    write(data, tmp_path / "data.csv", labels="paths", taxonomy=False)
    assert (tmp_path / "data.csv").read_text() == "id,text,labels\n0,x,a > b\n"
    assert read(tmp_path / "data.csv").hierarchy == data.hierarchy


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "ft", "htc"])
def test_a_dag_comes_back_as_it_was(tmp_path: Path, ending: str) -> None:
    dag = Hierarchy.from_edges([("A", "C"), ("B", "C"), ("A", "D"), ("C", "E"), ("D", "E")])
    data = Dataset.of(["one", "two"], [["E"], ["C", "B"]], dag)
    styles: tuple[LabelStyle, ...] = ("names", "paths")
    for labels in styles:
        file = tmp_path / f"{labels}.{ending}"
        write(data, file, labels=labels)
        again = read(file)
        assert again.hierarchy == dag
        assert again.names() == data.names()


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_names_with_space_around_them_survive(tmp_path: Path, ending: str) -> None:
    data = Dataset.of(["x"], [[" a "]], Hierarchy.flat([" a ", "b\tc", "d\ne"]))
    write(data, tmp_path / f"data.{ending}")
    assert same(read(tmp_path / f"data.{ending}"), data)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_further_columns_called_like_ours_do_not_replace_the_text(tmp_path: Path, ending: str) -> None:
    content = "id,text,title,labels,category,text_\n7,long,short,[1],A,!\n"
    data = read_text(tmp_path, "in.csv", content, text="title", labels="category")
    assert list(data.extra) == ["text", "labels", "text_"]
    write(data, tmp_path / f"out.{ending}")
    again = read(tmp_path / f"out.{ending}")
    assert (list(again.texts), again.names(), list(again.ids)) == (["short"], [["A"]], ["7"])
    assert {name: column.to_pylist() for name, column in again.extra.items()} == {
        "text__": ["long"],
        "labels_": ["[1]"],
        "text_": ["!"],
    }


@pytest.mark.slow
def test_more_documents_than_a_batch_come_back_in_order(tmp_path: Path) -> None:
    count = 2 * BATCH + 3
    h = Hierarchy.flat(["a", "b", "c"])
    data = Dataset.of([f"text {row}" for row in range(count)], [["a", "b", "c"][: row % 4] for row in range(count)], h)
    for name in ("data.csv", "data.jsonl.zst", "data.parquet"):
        write(data, tmp_path / name)
        again = read(tmp_path / name)
        assert same(again, data)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(lambda name: name.strip())


@examples(40)
@given(st.lists(TEXTS, min_size=1, max_size=6), st.lists(NAMES, min_size=1, max_size=5, unique=True), st.data())
def test_any_texts_and_names_survive(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], names: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = [data.draw(st.lists(st.sampled_from(names), max_size=3)) for _ in texts]
    dataset = Dataset.of(texts, rows, Hierarchy.flat(names))
    for ending in ("csv", "tsv", "jsonl", "parquet"):
        write(dataset, folder / f"data.{ending}")
        assert same(read(folder / f"data.{ending}"), dataset), ending


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_single_label_that_looks_like_none_is_written_with_its_taxonomy(tmp_path: Path, ending: str) -> None:
    data = Dataset.of(["a", "b"], [["-"], []], Hierarchy.flat(["-"]))
    write(data, tmp_path / f"data.{ending}")
    assert same(read(tmp_path / f"data.{ending}"), data)


# The sparse format


def features() -> Dataset:
    values = [0.1, -3.5, 1e-38, 3.4e38, 1 / 3, 16777217, 5e-324]
    matrix = sparse.csr_array((np.array(values, np.float32), ([0, 0, 1, 1, 3, 3, 3], [0, 4, 1, 2, 0, 3, 4])), (4, 5))
    h = Hierarchy.flat([str(label) for label in range(6)])
    base = Dataset.of([""] * 4, [["0", "5"], ["3"], None, []], h)
    return Dataset(base.ids, base.texts, base.labels, h, {}, matrix)


@pytest.mark.parametrize("name", ["data.xmc", "data.svm", "data.xmc.gz", "data.xmc.zst"])
def test_xmc_keeps_features_to_float32_and_labels(tmp_path: Path, name: str) -> None:
    data = features()
    assert write(data, tmp_path / name) == [tmp_path / name]
    again = read(tmp_path / name)
    assert again.features is not None
    assert again.features.dtype == np.float32
    np.testing.assert_array_equal(again.features.toarray(), data.features.toarray())  # type: ignore[union-attr]
    assert again.names() == data.names()
    assert again.hierarchy == data.hierarchy


def test_xmc_numbers_are_below_those_of_the_header(tmp_path: Path) -> None:
    data = read_text(tmp_path, "d.xmc", "1 2147483647 4\n0,3 2147483646:3.4028234e38\n")
    assert data.features is not None
    assert (data.names(), data.features.indices.tolist()) == ([["0", "3"]], [2147483646])
    for content, message in (
        ("1 2147483648 4\n0 1:1\n", "promises 2,147,483,648 features; at most 2,147,483,647"),
        ("1 1 2147483648\n0 1:1\n", "promises 2,147,483,648 labels"),
        (f"1 {'0' * 18}1 4\n0 0:1\n", "expected 'documents features labels'"),
        ("1 10 4\n4 1:1\n", "label '4' is not a number from 0 to 3"),
        ("1 10 4\n3 10:1\n", "feature '10:1' is not 'number:value' with a number from 0 to 9"),
        ("1 10 4\n3 9:3.5e38\n", "not a finite number of single precision"),
        ("2 10 4\n3 9:1\n", "promises 2 documents, the file has 1"),
    ):
        with pytest.raises(TreelabelError, match=message):
            read_text(tmp_path, "d.xmc", content)
    assert len(read_text(tmp_path, "d.xmc", f"1 {'0' * 16}10 4\n0 9:1\n")) == 1


def test_xmc_lines_are_the_repository_s(tmp_path: Path) -> None:
    write(features()[[0, 2, 3]], tmp_path / "data.xmc")
    lines = (tmp_path / "data.xmc").read_text().split("\n")
    assert lines == ["3 5 6", "0,5 0:0.100000001 4:-3.5", "", " 0:0.333333343 3:16777216 4:0", ""]


def test_xmc_reads_lines_without_labels_with_or_without_the_space(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.xmc", "3 4 2\r\n 0:1 3:2\r\n1:2.5\r\n0,1\r\n")
    assert data.names() == [[], [], ["0", "1"]]
    assert data.features is not None
    assert data.features.toarray().tolist() == [[1, 0, 0, 2], [0, 2.5, 0, 0], [0, 0, 0, 0]]


def test_xmc_needs_features(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match=r"data\.xmc: this format holds numeric features, and the data has only"):
        write(AWKWARD, tmp_path / "data.xmc")
    assert list(tmp_path.iterdir()) == []


def test_xmc_skips_bad_lines_and_keeps_features_beside_their_documents(tmp_path: Path) -> None:
    content = "4 3 2\n0 1:1\n9 1:5\n1 2:7\n0 2:x\n"
    with pytest.warns(SkippedRowsWarning, match="skipped 2 rows"):
        data = read_text(tmp_path, "data.xmc", content, on_error="skip")
    assert data.names() == [["0"], ["1"]]
    assert data.features is not None
    assert data.features.toarray().tolist() == [[0, 1, 0], [0, 0, 7]]


# Endings


@pytest.mark.parametrize("name", ["x.CSV", "x.csv", "x.y.csv", "x.csv.GZ", "x.csv.zst"])
def test_the_format_follows_from_the_ending(name: str) -> None:
    assert format_of(Path(name)).name == "csv"


def test_every_ending_of_the_table_leads_to_its_format() -> None:
    for entry in FORMATS.values():
        for ending in entry.endings:
            assert format_of(Path(f"data{ending}")) is entry
            assert format_of(Path(f"data{ending}.gz")) is entry


def test_a_named_format_goes_before_the_ending(tmp_path: Path) -> None:
    write(AWKWARD[:1], tmp_path / "data.txt", format="jsonl")
    assert same(read(tmp_path / "data.txt", format="jsonl"), AWKWARD[:1])


def test_gzip_files_of_several_members_are_read_whole(tmp_path: Path) -> None:
    lines = [json.dumps({"text": name, "label": name}).encode() + b"\n" for name in "ab"]
    data = read_text(tmp_path, "data.jsonl.gz", b"".join(gzip.compress(line) for line in lines))
    assert list(data.texts) == ["a", "b"]


# What a format has no place for


def test_losses_say_what_a_format_drops() -> None:
    assert losses(AWKWARD, "x.csv") == losses(AWKWARD, "x.jsonl") == losses(AWKWARD, "x.parquet") == []
    assert losses(AWKWARD, "x.htc") == ["ids", "columns note, count, weight, tags, nothing"]
    assert losses(AWKWARD[:7], "x.ft") == ["ids", "line breaks (1 texts)", "columns note, count, weight, tags, nothing"]
    assert losses(features(), "x.csv") == losses(features(), "x.parquet") == ["features"]
    assert "features" not in losses(features(), "x.xmc")


def test_losses_count_documents_that_fasttext_cannot_hold(tmp_path: Path) -> None:
    data = Dataset.of(["", " ", "x"], [None, None, None], Hierarchy.flat(["A"]))
    assert losses(data, "x.ft") == ["ids", "documents with neither text nor labels (2)"]
    write(data, tmp_path / "x.ft")
    assert list(read(tmp_path / "x.ft").texts) == ["x"]


# Whole files or none


def break_writing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let the second batch of a file fail."""
    fails = iter([False, True])

    def failing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if next(fails):
                raise error
            return function(*arguments)

        return call

    for module, name in (("treelabel.data.write", "_label_lists"), ("treelabel.data.io.xmc", "feature_lines")):
        place = import_module(module)
        monkeypatch.setattr(place, name, failing(getattr(place, name)))


def two_batches(with_features: bool) -> Dataset:
    count = BATCH + 1
    data = Dataset.of(["text"] * count, ["0"] * count, Hierarchy.flat(["0"]))
    matrix = sparse.csr_array(np.ones((count, 1), np.float32)) if with_features else None
    return Dataset(data.ids, data.texts, data.labels, data.hierarchy, {}, matrix)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError("disk full"), TreelabelError), (KeyboardInterrupt(), KeyboardInterrupt)],
    ids=["error", "interrupt"],
)
@pytest.mark.parametrize(
    "name",
    ["d.csv", "d.tsv", "d.jsonl", "d.jsonl.gz", "d.jsonl.zst", "d.htc", "d.ft", "d.parquet", "d.xmc", "d.xmc.gz"],
)
@pytest.mark.parametrize("old", [b"what was there", None], ids=["replacing", "new"])
def test_writing_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, raised: type, old: bytes | None
) -> None:
    if old is not None:
        put(tmp_path, name, old)
    break_writing(monkeypatch, error)
    with pytest.raises(raised):
        write(two_batches("xmc" in name), tmp_path / name)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == ({name: old} if old is not None else {})


def test_writing_replaces_a_file_that_is_there(tmp_path: Path) -> None:
    write(AWKWARD, put(tmp_path, "d.csv", "old"))
    assert same(read(tmp_path / "d.csv"), AWKWARD)
    assert {file.name for file in tmp_path.iterdir()} == {"d.csv"}


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with open_output(target) as stream:
        stream.write(b"half")
        assert not target.exists()
    assert target.read_bytes() == b"half"


def test_new_files_have_the_usual_permissions(tmp_path: Path) -> None:
    usual = put(tmp_path, "usual", "").stat().st_mode
    with atomic_file(tmp_path / "ours") as temporary:
        temporary.write_text("x")
    assert (tmp_path / "ours").stat().st_mode == usual


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_progress_bar_shows_on_a_terminal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(AWKWARD, tmp_path / "data.jsonl.gz")
    read(tmp_path / "data.jsonl.gz")
    assert capsys.readouterr() == ("", "")
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    read(tmp_path / "data.jsonl.gz")
    assert "reading data.jsonl.gz" in terminal.getvalue()
    shown = len(terminal.getvalue())
    read(tmp_path / "data.jsonl.gz", progress=False)
    assert len(terminal.getvalue()) == shown
