"""Readers at their edges: what a first line is taken for, sizes that headers promise, limits that are met exactly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import read_text
from tests.strategies import examples
from treelabel import Dataset, Hierarchy, TreelabelError, write
from treelabel.data.columns import ColumnChoice, between_numbers, labels_of_cell, labels_of_value, unprintable
from treelabel.data.io import argilla, libsvm, xmc
from treelabel.data.io.annif import is_annif
from treelabel.data.io.csv import measure_block
from treelabel.data.io.format import Head, Problem, Record
from treelabel.data.io.label_studio import is_label_studio
from treelabel.data.io.libmultilabel import is_libmultilabel
from treelabel.data.io.prodigy import is_prodigy
from treelabel.data.io.spacy import is_spacy
from treelabel.data.read import _are_paths

URI = "<http://example.org/1>"
# The first line of a file, and whether it is of the format.
FIRST_LINES: list[tuple[Callable[[Head], bool], dict[str, bool]]] = [
    (
        is_libmultilabel,
        {
            "7\tdog cat\tthree words here": True,
            "7\tdog cat\ttwo words": False,
            "dog cat\tthree words here": False,
            "7\tdog\tthree words here\tmore": False,
            "id\tdog\tthree words here": False,
        },
    ),
    (
        is_annif,
        {
            f"a lion\t{URI}": True,
            f"a lion\t{URI} {URI}": True,
            f"a lion\t{URI} dog": False,
            "a lion\t ": False,
            f"{URI}\t{URI}": False,
            'text, "subject_uris"': True,
            "text,subjects": False,
        },
    ),
    (
        libsvm.is_libsvm,
        {"1 2 3:4": True, "1:2": True, "1 2 3 4:5": False, "1 # 3:4": False, "1 2 3": False},
    ),
]
# The first object of a file, and whether it is of the format.
FIRST_OBJECTS: list[tuple[Callable[[Head], bool], list[tuple[dict[str, Any], bool]]]] = [
    (
        is_annif,
        [
            ({"subjects": [{}, {"uri": 1}]}, True),
            ({"subjects": [{}, 7]}, False),
            ({"subjects": {}}, False),
            ({"text": "a\tb"}, False),
        ],
    ),
    (
        is_prodigy,
        [
            ({"options": [{"id": 1}, {"id": 2}]}, True),
            ({"options": [{"id": 1}, {"text": "b"}]}, False),
            ({"options": [{"id": 1}, "id"]}, False),
            ({"options": []}, False),
            ({"answer": "accept", "label": "a"}, True),
            ({"answer": "ignore", "options": []}, True),
            ({"answer": "reject", "accept": []}, True),
            ({"answer": "accept"}, False),
            ({"answer": "42", "label": "a"}, False),
            ({"_input_hash": 1, "_task_hash": 2}, True),
            ({"_input_hash": 1}, False),
            ({}, False),
        ],
    ),
    (
        argilla.is_argilla,
        [
            ({"fields": {}, "suggestions": {}}, True),
            ({"fields": {}, "responses": {}}, True),
            ({"fields": {}}, False),
            ({"fields": 7, "responses": {}}, False),
            ({"responses": {}}, False),
        ],
    ),
    (
        is_label_studio,
        [
            ({"data": {}, "annotations": []}, True),
            ({"data": {}, "predictions": [], "annotations": 7}, True),
            ({"data": {}, "completions": []}, True),
            ({"data": {}}, False),
            ({"data": {}, "annotations": 7}, False),
            ({"data": 7, "annotations": []}, False),
            ({"annotation_id": 1, "annotator": 2}, True),
            ({"annotation_id": 1}, False),
        ],
    ),
    (
        is_spacy,
        [
            ({"text": "", "cats": {}}, True),
            ({"cats": {}}, False),
            ({"text": "", "cats": []}, False),
            ({"text": ""}, False),
        ],
    ),
]


@pytest.mark.parametrize(
    ("is_format", "line", "expected"), [(each, *case) for each, cases in FIRST_LINES for case in cases.items()]
)
def test_a_first_line_is_taken_for_what_it_is(is_format: Any, line: str, expected: bool) -> None:
    assert bool(is_format(Head.of(f"{line}\r\nnext"))) is expected


@pytest.mark.parametrize(
    ("is_format", "values", "expected"), [(each, *case) for each, cases in FIRST_OBJECTS for case in cases]
)
def test_a_first_object_is_taken_for_what_it_is(is_format: Any, values: dict[str, Any], expected: bool) -> None:
    for text in (json.dumps(values), f"\ufeff [\n {json.dumps(values)}, {{"):
        assert bool(is_format(Head.of(text))) is expected
    assert not is_format(Head.of("[7]"))


# Numbers of features and labels


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("1 2", "expected 'documents features labels', three numbers, found '1 2'"),
        ("1 2 3 4", "three numbers, found '1 2 3 4'"),
        ("1 2 -3", "three numbers"),
        (f"1 {'1' * 19} 3", "three numbers"),
        (f"1 {'1' * 18} 3", "promises 111,111,111,111,111,111 features; at most 2,147,483,647"),
        (f"1 {2**31} 3", "promises 2,147,483,648 features; at most 2,147,483,647 can be read"),
        (f"1 2 {2**31}", "promises 2,147,483,648 labels; at most"),
        ("3 2 2", "the header promises 3 documents, the file has 2; is it cut short?"),
        ("1 2 2", "the header promises 1 documents, the file has 2; is it cut short?"),
    ],
)
def test_a_header_that_promises_something_else_is_refused(tmp_path: Path, header: str, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        read_text(tmp_path, "d.xmc", f"{header}\n0 0:1\n1 1:1\n")


def test_the_largest_numbers_of_a_header_are_allowed(tmp_path: Path) -> None:
    data = read_text(tmp_path, "d.xmc", f"2 {2**31 - 1} 2\n0 0:1\n1 1:1\n")
    assert data.features is not None
    assert data.features.shape == (2, 2**31 - 1)


@pytest.mark.parametrize(
    ("line", "names", "numbers", "values"),
    [
        ("0,3 0:0.5 9:2\n", ["0", "3"], [0, 9], [0.5, 2]),
        ("0:1\r\n", [], [0], [1]),
        ("", [], [], []),
        ("2", ["2"], [], []),
        ("2  1:1 ", ["2"], [1], [1]),
        ("1 1:3.4028234e38", ["1"], [1], [3.4028234e38]),
    ],
)
def test_a_line_has_labels_and_features(line: str, names: list[str], numbers: list[int], values: list[float]) -> None:
    found, (columns, stored) = xmc.parse_line(line, 10, 4)
    assert (found, columns.tolist()) == (names, numbers)
    assert stored.tolist() == pytest.approx(values)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("4 0:1", "label '4' is not a number from 0 to 3"),
        ("a 0:1", "label 'a' is not a number from 0 to 3"),
        ("0 10:1", "feature '10:1' is not 'number:value' with a number from 0 to 9"),
        ("0 x:1", "feature 'x:1' is not"),
        ("0 1:2:3", "feature '1:2:3' is not"),
        ("0 1", "feature '1' is not"),
        ("0 1:x", "the value of feature '1:x' is not a number"),
        ("0 1:1e39", "the value of feature '1:1e39' is not a finite number"),
        ("0 1:-1e39", "the value of feature '1:-1e39' is not a finite number"),
        ("0 1:nan", "the value of feature '1:nan' is not a finite number"),
    ],
)
def test_a_line_with_other_numbers_is_refused(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        xmc.parse_line(line, 10, 4)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1,+3,-1 qid:7 2:0.5 # note 3:1", (["1", "3", "-1"], [2])),
        ("2:0.5", ([], [2])),
        ("1", (["1"], [])),
        (f"1 {2**31 - 2}:1", (["1"], [2**31 - 2])),
        (f"1 {2**31 - 1}:1", f"feature '{2**31 - 1}:1' is not 'number:value'"),
        ("1 2", "feature '2' is not 'number:value'; expected labels, then features"),
        ("1 2:3:4", "feature '2:3:4' is not"),
        ("1 a:1", "feature 'a:1' is not"),
        ("1,x 2:1", "label 'x' is not a number"),
        ("--1 2:1", "label '--1' is not a number"),
        ("1 2:1e39", "not a finite number"),
    ],
)
def test_a_line_of_svmlight_is_read_or_refused(line: str, expected: Any) -> None:
    found = libsvm.parse_line(5, line)
    assert found.line == 5
    if isinstance(found, Record):
        assert found.features is not None
        assert (found.values["labels"], found.features[0].tolist()) == expected
    else:
        assert expected in str(found)
    assert libsvm.parse_line(1, " # nothing") == Problem(0, "a line of a comment alone")


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("1 1:1 3:3\n2 2:2\n", [[1, 0, 3], [0, 2, 0]]),
        ("1 0:1 3:3\n2 2:2\n", [[1, 0, 0, 3], [0, 0, 2, 0]]),
        ("1 2:1\n2 3:1\n", [[0, 1, 0], [0, 0, 1]]),
        ("1\n2 1:4\n", [[0], [4]]),
    ],
)
def test_features_are_numbered_from_one_unless_there_is_a_zero(
    tmp_path: Path, content: str, columns: list[list[int]]
) -> None:
    features = read_text(tmp_path, "d.libsvm", content).features
    assert features is not None
    assert features.toarray().tolist() == columns


# Options of annotation tools


@pytest.mark.parametrize(("labels", "is_listed"), [(200, True), (201, False)])
def test_two_hundred_labels_are_listed_as_options(tmp_path: Path, labels: int, is_listed: bool) -> None:
    data = Dataset.of(["a"], [["7"]], Hierarchy.flat([str(number) for number in range(labels)]))
    write(data, tmp_path / "d.prodigy.jsonl")
    write(data, tmp_path / "d.spacy.jsonl")
    options = json.loads((tmp_path / "d.prodigy.jsonl").read_text())["options"]
    cats = json.loads((tmp_path / "d.spacy.jsonl").read_text())["cats"]
    assert len(options) == len(cats) == (labels if is_listed else 1)


def test_the_last_response_counts_and_the_question_called_labels_goes_first(tmp_path: Path) -> None:
    h = Hierarchy.flat(["dog", "cat"])
    record = {
        "fields": {"text": "a"},
        "metadata": {"source": "web"},
        "responses": {"mood": [{"value": "good"}], "labels": [{"value": ["cat"]}, {"value": "dog"}], "none": []},
        "suggestions": {"tone": {"value": "loud", "agent": "given labels"}, "other": {"value": "x", "agent": "model"}},
    }
    data = read_text(tmp_path, "d.argilla.json", json.dumps([record]), taxonomy=h)
    assert data.names() == [["dog"]]
    assert {name: data.extra[name].to_pylist() for name in ("source", "mood", "tone")} == {
        "source": ["web"],
        "mood": [["good"]],
        "tone": [["loud"]],
    }
    assert "other" not in data.extra


# Blocks of CSV


PARTS = ["a", "a", "b", ",", ",", '"', "\n", "\n", "\r\n"]


def slow_block(data: str, is_last: bool, longest: int) -> tuple[int, int, list[int]] | None:
    """Go through the characters of a block: where its whole rows end, their line breaks, and the line of each row."""
    rows, start, line, first_line, is_inside = [], 0, 0, 0, False
    for index, character in enumerate(data):
        is_inside ^= character == '"'
        line += character == "\n"
        if character == "\n" and not is_inside:
            rows.append((start, index + 1, first_line))
            start, first_line = index + 1, line
    if is_last and start < len(data):
        rows.append((start, len(data), first_line))
        start = len(data)
    quotes = [index for index in range(start) if data[index] == '"']
    for number, index in enumerate(quotes):
        before, after = data[index - 1 : index], data[index + 1 : index + 2]
        if number % 2 == 0 and before not in ("", ",", "\n", '"'):
            return None
        if number % 2 == 1 and after not in ("", ",", "\n", "\r", '"'):
            return None
    if len(quotes) % 2 or len(data) - start > longest or any(stop - begin > longest for begin, stop, _ in rows):
        return None
    filled = [number for begin, stop, number in rows if data[begin:stop] not in ("\n", "\r\n")]
    return start, data[:start].count("\n"), filled


@examples(300)
@given(st.lists(st.sampled_from(PARTS), max_size=14), st.booleans(), st.integers(1, 15))
def test_blocks_of_rows_are_those_of_a_loop(parts: list[str], is_last: bool, longest: int) -> None:
    data = "".join(parts)
    found = measure_block(data.encode(), ord(","), is_last, longest)
    listed = None if found is None else (found.end, found.breaks, found.lines.tolist())
    assert listed == slow_block(data, is_last, longest)


def test_many_blocks_of_rows_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    regular = 0
    for _ in range(1500):
        data = "".join(rng.choice(PARTS, rng.integers(0, 12)))
        is_last, longest = bool(rng.integers(2)), int(rng.integers(1, 14))
        found = measure_block(data.encode(), ord(","), is_last, longest)
        listed = None if found is None else (found.end, found.breaks, found.lines.tolist())
        assert listed == slow_block(data, is_last, longest), (data, is_last, longest)
        regular += listed is not None
    assert 300 < regular < 1400


# Columns and cells


@pytest.mark.parametrize(
    ("labels", "sep", "expected"),
    [
        (["a/b", "a/c", "d"], "/", True),
        (["a/b", "d"], "/", False),
        (["a/b", "a/c", "d", "e"], "/", False),
        (["x/y"], "/", False),
        (["x/y", "a/b"], "/", True),
        ([("a", "b"), "d"], None, True),
        ([("a",), "d"], None, False),
        (["a/b", "a/c", "d/e", "d/f"], None, True),
    ],
)
def test_labels_are_paths_where_most_have_the_separator(labels: list[Any], sep: str | None, expected: bool) -> None:
    assert _are_paths(labels, sep, Hierarchy.flat(["x/y", "z"])) is expected


@pytest.mark.parametrize(
    ("columns", "choice", "is_clear"),
    [
        (["text", "label"], {}, True),
        (["text", "label", "id"], {}, True),
        (["text", "label", "other"], {}, False),
        (["text", "id"], {}, False),
        (["label", "id"], {}, False),
        (["text", "id"], {"need_labels": False}, True),
        (["label", "id"], {"need_text": False}, True),
        (["a", "b"], {"text": "a", "labels": "b"}, True),
        (["a", "b", "c"], {"text": "a", "labels": "b", "id": "c"}, True),
        (["a", "b", "c"], {"usual": {"text": ["a"], "labels": ["b"], "id": ["c"]}}, True),
        (["a", "b", "c"], {"usual": {"text": ["a", "z"], "labels": ["b"], "id": ["c"]}}, False),
    ],
)
def test_columns_are_clear_by_their_names(columns: list[str], choice: dict[str, Any], is_clear: bool) -> None:
    assert ColumnChoice(**choice).is_clear(columns) is is_clear


def test_levels_are_labels_from_the_top_on_and_accepted_options_where_there_is_an_answer() -> None:
    for columns, labels in (
        (["text", "level10", "level2", "Level 1"], ("Level 1", "level2", "level10")),
        (["text", "cat_1", "label"], ("label",)),
        (["text", "accept", "answer"], ("accept",)),
        (["text", "accept"], ()),
        (["text", "answer"], ()),
    ):
        assert ColumnChoice().among(columns, "file").labels == labels


def test_twenty_columns_are_listed_in_a_message() -> None:
    for count, end in ((20, "'c19'$"), (21, r"'c19' \.\.\.$")):
        with pytest.raises(TreelabelError, match=end):
            ColumnChoice(text="text").among([f"c{number}" for number in range(count)], "file")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("", []),
        (" a ; ", ["a"]),
        ("a;b;;c", ["a", "b", "c"]),
        ('["a", "b"]', ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ("[a]", ["[a]"]),
        ("[a", ["[a"]),
        ("a]", ["a]"]),
        ("[[1, 2], 3]", [("1", "2"), "3"]),
    ],
)
def test_a_cell_has_labels(cell: str, expected: list[Any]) -> None:
    assert labels_of_cell(cell, ";", "labels") == expected
    # Long cells are read in the same way.
    if cell and cell[0] == cell[-1] == "a":
        assert labels_of_cell("a;" * 600, ";", "labels") == ["a"] * 600


def test_lists_are_labels_or_the_steps_of_paths() -> None:
    assert labels_of_value(["a", "b"], "path") == [("a", "b")]
    assert labels_of_value([["a", "b"], ["c", ""]], "path") == [("a", "b"), ("c",)]
    assert labels_of_value("a", "path") == [("a",)]
    assert labels_of_value(["", None], "path") == labels_of_value(None, "labels") == []
    assert labels_of_value([{"path": "a > b", "label": "b"}, {"label": "c"}, b"d", 7], "labels") == [
        "a > b",
        "c",
        "d",
        "7",
    ]
    for value, lists, message in (
        (["a", ["b"]], "path", "expected the steps of one path, or a list of paths, found both"),
        (["a", "", "b"], "path", "level 2 is empty, but deeper levels are not"),
        ([True], "labels", "expected a label name, found True"),
        ([[]], "labels", r"expected a label name, found \[\]"),
        ([" "], "labels", "empty label"),
        ([["a", ["b"]]], "labels", "expected the name of a label, found a list"),
    ):
        with pytest.raises(ValueError, match=message):
            labels_of_value(value, lists)  # type: ignore[arg-type]


def test_numbers_are_separated_as_labels_are() -> None:
    cells = ["0.75; 1e-05", "1|0.5", "0.5", "a; 1", " 1e+3 / 2", "1-2", 7]
    assert [between_numbers(cell) for cell in cells] == ["; ", "|", None, None, " / ", None, None]


@pytest.mark.parametrize(
    ("character", "kind"),
    [
        ("\x00", "control character U+0000"),
        ("\x1f", "control character U+001F"),
        ("\x7f", "control character U+007F"),
        ("\x9f", "control character U+009F"),
        ("\u202a", "direction override U+202A"),
        ("\u2069", "direction override U+2069"),
        (" ", None),
        ("\xa0", None),
    ],
)
def test_names_have_no_characters_that_drive_a_terminal(character: str, kind: str | None) -> None:
    found = unprintable(["fine", f"a{character}b"])
    assert found is None if kind is None else kind in str(found)
