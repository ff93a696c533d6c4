"""Which columns of a table hold its hierarchy: limits met exactly, and tables that are something else."""

import pytest

from treelabel.data.taxonomy.taxonomy_columns import (
    ParentColumns,
    PathColumns,
    VocabularyColumn,
    parent_columns,
    path_columns,
    separator_of,
    vocabulary_column,
)

HEADER = ["x", "y", "z"]


def test_levels_need_as_many_full_rows_as_others() -> None:
    half = [HEADER, ["a", "b", "c"], ["a", "b", "d"], ["a", "b", ""], ["e", "f", ""]]
    assert path_columns(half) == PathColumns((0, 1, 2), None, 1)
    assert path_columns([*half, ["e", "g", ""]]) is None


def test_one_name_in_ten_may_have_several_parents() -> None:
    # Nine names below a and b1, and b2: ten in all, of which c1 stands under b1 and b2.
    rows = [HEADER, *(["a", "b1", f"c{number}"] for number in range(1, 9)), ["a", "b2", "c1"]]
    assert path_columns(rows) == PathColumns((0, 1, 2), None, 1)
    assert path_columns([*rows, ["a", "b2", "c2"]]) is None


def test_levels_say_some_edges_twice() -> None:
    assert path_columns([HEADER, ["a", "b", "c"], ["d", "e", "f"]]) is None
    assert path_columns([HEADER, ["a", "b", "c"], ["a", "b", "f"]]) == PathColumns((0, 1, 2), None, 1)
    # Two columns are edges, even if one stands there twice.
    assert path_columns([["a", "b"], ["a", "b"], ["a", "c"]]) is None
    # Rows of different lengths are a parent and its children.
    assert path_columns([["a", "b", "c"], ["a", "b", "d"], ["b", "e"]]) is None


@pytest.mark.parametrize(("width", "is_recognised"), [(1, True), (2, True), (10, True), (11, False)])
def test_paths_are_looked_for_in_ten_columns(width: int, is_recognised: bool) -> None:
    paths = ["a/b", "a/c", "d/e", "d/f"]
    rows = [[f"n{number}", path, *[""] * 9][-11:][:width] for number, path in enumerate(paths)]
    rows = [[path] for path in paths] if width == 1 else rows
    expected = PathColumns((0 if width == 1 else 1,), "/", 0)
    assert path_columns(rows) == (expected if is_recognised else None)


def test_one_column_of_paths_and_what_numbers_them() -> None:
    numbered = [["1", "a/b"], ["2", "a/c"], ["3", "d/e"], ["4", "d/f"]]
    assert path_columns(numbered) == PathColumns((1,), "/", 0)
    # What recurs beside paths is no number, but a parent.
    assert path_columns([[first, path] for first, (_, path) in zip("1123", numbered, strict=True)]) is None
    # Two columns of paths are edges between them.
    assert path_columns([[path, path.replace("/", "/x")] for _, path in numbered]) is None


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (["Department", "Class"], (0, 1)),
        (["main_category", "price", "sub-category"], (0, 2)),
        (["level_2", "level_1"], (1, 0)),
        (["L1", "L2", "L3"], (0, 1, 2)),
    ],
)
def test_names_of_levels_are_recognised(header: list[str], columns: tuple[int, ...]) -> None:
    rows = [
        header,
        [f"one{number}" for number in range(len(header))],
        [f"two{number}" for number in range(len(header))],
    ]
    assert path_columns(rows) == PathColumns(columns, None, 1)


def test_a_column_called_path_or_the_only_one_called_label_holds_paths() -> None:
    assert path_columns([["id", "full_path"], ["1", "a > b"]]) == PathColumns((1,), " > ", 1)
    assert path_columns([["Labels"], ["a"], ["b"]]) == PathColumns((0,), " > ", 1)
    assert path_columns([["labels", "other"], ["a", "b"]]) is None
    # A first row with a value that stands below is none.
    assert path_columns([["label", "a"], ["a", "b"]]) is None


def test_parents_are_called_by_the_column_that_has_them() -> None:
    rows = [["code", "name", "parent"], ["1", "pet", ""], ["2", "dog", "pet"], ["3", "cat", "pet"]]
    assert parent_columns(rows) == ParentColumns(2, 1, None)
    by_id = [["code", "name", "parent"], ["1", "pet", ""], ["2", "dog", "1"]]
    assert parent_columns(by_id) == ParentColumns(2, 0, 1)
    # Without a reference, the name of the parent's column decides.
    assert parent_columns([["name", "id", "parent_id"], ["pet", "1", ""]]) == ParentColumns(2, 1, 0)
    assert parent_columns([["name", "id"], ["pet", "1"]]) is None
    assert parent_columns([["parent", "thing"], ["a", "b"]]) == ParentColumns(0, 1, None)


def test_a_vocabulary_has_every_uri_once_and_no_uri_for_a_name() -> None:
    rows = [["<http://x/1>", "cats"], ["<http://x/2>", "dogs", "n2"]]
    assert vocabulary_column(rows) == VocabularyColumn(0, 1, 0)
    assert vocabulary_column([*rows, ["<http://x/1>", "cows"]]) is None
    assert vocabulary_column([*rows, ["<http://x/3>", "<http://x/1>"]]) is None
    assert vocabulary_column([*rows, ["<http://x/3>", "cows", "n3", "more"]]) is None
    assert vocabulary_column([*rows, ["<http://x/3>"]]) is None
    assert vocabulary_column([["uri", "label_fi"], ["http://x/1", "kissat"]]) == VocabularyColumn(0, 1, 1)
    assert vocabulary_column([]) is None


def test_the_separator_is_the_one_asked_for_the_usual_one_or_a_guess() -> None:
    slashes = ["a/b", "a/c", "d/e", "d/f"]
    assert separator_of(slashes, "|") == "|"
    assert separator_of(slashes, None) == "/"
    assert separator_of([*slashes, "g > h"], None) == " > "
    assert separator_of(["a", "b"], None) == " > "
