"""Reading what people have: columns, labels and hierarchies are guessed where they are not named."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers import put, read_text
from treelabel import Dataset, Hierarchy, TreelabelError, read, read_batches, write
from treelabel.data import SkippedRowsWarning
from treelabel.data.columns import labels_of_cell
from treelabel.data.data_file import DataFile
from treelabel.data.io.format import BATCH

ONE = Dataset.of(["x"], ["B"], Hierarchy.from_paths(["A > B"]))


# Guesses


def test_text_label_and_id_columns_are_guessed_in_any_case_and_order(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "Category,ID,Body,x\nA,7,hello,1\n")
    assert (list(data.ids), list(data.texts), data.names(), list(data.extra)) == (["7"], ["hello"], [["A"]], ["x"])


def test_without_an_id_column_rows_are_numbered(tmp_path: Path) -> None:
    assert list(read_text(tmp_path, "data.csv", "text,label\na,A\nb,B\n").ids) == ["0", "1"]


def test_an_empty_id_is_replaced_by_the_row_number(tmp_path: Path) -> None:
    content = (
        '{"id": 5, "text": "a", "label": "A"}\n{"id": null, "text": "b", "label": "A"}\n{"text": "c", "label": "A"}\n'
    )
    assert list(read_text(tmp_path, "data.jsonl", content).ids) == ["5", "1", "2"]


def test_token_and_label_are_the_benchmark_s_columns(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.json", '{"token": "some text", "label": ["A", "B"], "topic": []}\n')
    assert (list(data.texts), data.names()) == (["some text"], [["A", "B"]])


def test_a_list_of_tokens_is_joined_to_a_text(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.json", '{"doc_token": ["some", "words", 3], "doc_label": ["A"]}\n')
    assert (list(data.texts), data.names()) == (["some words 3"], [["A"]])


def test_level_columns_make_a_path_that_may_end_early(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,level2,level1,level10\na,B,A,C\nb,,A,\nc,,,\nd,B,D,\n")
    assert data.paths() == [["A > B > C"], ["A"], [], ["D > B"]]


@pytest.mark.parametrize("names", [("l1", "l2"), ("Cat_1", "Cat_2"), ("category 1", "category 2"), ("lvl-1", "lvl-2")])
def test_level_columns_may_be_called_in_many_ways(tmp_path: Path, names: tuple[str, str]) -> None:
    assert read_text(tmp_path, "data.csv", f"text,{','.join(names)}\na,A,B\n").paths() == [["A > B"]]


def test_a_gap_between_levels_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(
        TreelabelError, match=r"data\.csv:3: level 2 is empty, but deeper levels are not: \['A', '', 'C'"
    ):
        read_text(tmp_path, "data.csv", "text,level1,level2,level3\na,A,B,C\nb,A,,C\n")


def test_columns_can_be_named_and_texts_joined(tmp_path: Path) -> None:
    content = "key,title,body,text,a,b\nk1,T,B,unused,A,B\n"
    data = read_text(tmp_path, "data.csv", content, text=["title", "body"], labels=["a", "b"], id="key")
    assert (list(data.ids), list(data.texts), data.paths()) == (["k1"], ["T\nB"], [["A > B"]])
    assert list(data.extra) == ["text"]


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_the_delimiter_of_a_csv_file_is_guessed(tmp_path: Path, mark: str) -> None:
    content = f'text{mark}label\n"a{mark} b, c"{mark}A\n'
    assert list(read_text(tmp_path, "data.csv", content).texts) == [f"a{mark} b, c"]


def test_a_delimiter_can_be_named(tmp_path: Path) -> None:
    assert list(read_text(tmp_path, "data.csv", "text~label\na,b~A\n", delimiter="~").texts) == ["a,b"]


def test_without_a_header_columns_are_numbered(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.tsv", "A\tfirst\nB\tsecond\n", header=False, labels="1", text="2")
    assert (list(data.texts), data.names()) == (["first", "second"], [["A"], ["B"]])


def test_without_a_header_the_first_record_may_span_lines(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", '"a\nb",A\nc,B\n', header=False, text="1", labels="2")
    assert (list(data.texts), data.names()) == (["a\nb", "c"], [["A"], ["B"]])


def test_with_quotes_off_quotes_are_part_of_the_text(tmp_path: Path) -> None:
    content = '"open\tA\nshut"\tB\n'
    for header, start in ((True, "text\tlabel\n"), (False, "")):
        names = {} if header else {"text": "1", "labels": "2"}
        data = read_text(tmp_path, "data.tsv", start + content, quotes=False, header=header, **names)
        assert list(data.texts) == ['"open', 'shut"']


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", b"\xef\xbb\xbftext,label\na,A\n")
    assert list(data.texts) == ["a"]
    assert read_text(tmp_path, "data.jsonl", b'\xef\xbb\xbf{"text": "a", "label": "A"}\n').names() == [["A"]]


def test_windows_line_ends_are_no_part_of_the_last_column(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,label,x\r\na,A,1\r\n\r\nb,B,2\r\n")
    assert (data.names(), data.extra["x"].to_pylist()) == ([["A"], ["B"]], ["1", "2"])
    assert read_text(tmp_path, "data.ft", "__label__A a\r\n__label__B\r\n").names() == [["A"], ["B"]]


def test_another_encoding_can_be_named(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,label\ncafé,über\n".encode("cp1252"), encoding="cp1252")
    assert (list(data.texts), data.names()) == (["café"], [["über"]])


def test_fields_longer_than_the_csv_module_s_limit_are_read(tmp_path: Path) -> None:
    long = "word " * 60_000
    assert len(long) > 128 * 1024
    assert read_text(tmp_path, "data.csv", f'text,label\n"{long}",A\n').texts[0] == long


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("\"['a', 'b c']\"", ["a", "b c"]),
        ('"[""a"", ""b c""]"', ["a", "b c"]),
        ('"[""it\'s"", 5]"', ["it's", "5"]),
        ("[]", []),
        ("", []),
        ("  ", []),
        ("[not a list]", ["[not a list]"]),
        ('"a, b"', ["a, b"]),
    ],
)
def test_cells_with_lists_as_pandas_or_json_write_them(tmp_path: Path, cell: str, labels: list[str]) -> None:
    data = read_text(tmp_path, "data.csv", f"text,labels\nx,{cell}\ny,z\n")
    assert sorted(data.names()[0]) == sorted(labels)


def test_several_labels_in_a_cell_with_a_separator(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,labels\nx,a; b c;\ny,d\nz,\n", label_sep=";")
    assert data.names() == [["a", "b c"], ["d"], []]


def test_paths_and_several_labels_in_one_cell(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,labels\nx,A > B; C > D\n", label_sep=";", sep=" > ")
    assert data.paths() == [["A > B", "C > D"]]


def test_lists_may_be_the_steps_of_a_path(tmp_path: Path) -> None:
    content = '{"text": "x", "labels": ["A", "B"]}\n{"text": "y", "labels": []}\n{"text": "z", "labels": ["C", "B"]}\n'
    assert read_text(tmp_path, "data.jsonl", content, lists="path").paths() == [["A > B"], [], ["C > B"]]
    assert read_text(tmp_path, "data.jsonl", content).hierarchy.max_depth == 1


def test_lists_of_lists_are_paths(tmp_path: Path) -> None:
    content = '{"text": "x", "labels": [["A", "B"], ["C"]]}\n'
    assert read_text(tmp_path, "data.jsonl", content).paths() == [["C", "A > B"]]


def test_a_json_array_is_read_as_rows(tmp_path: Path) -> None:
    content = '[\n  {"text": "x", "label": "A"},\n\n  {"text": "y", "label": "B"}\n]\n'
    data = read_text(tmp_path, "data.json", content)
    assert (list(data.texts), data.names()) == (["x", "y"], [["A"], ["B"]])


def test_prediction_files_can_be_read(tmp_path: Path) -> None:
    labels = '[{"label": "B", "path": "A > B", "p": 0.93}, {"label": "C", "p": 0.1}]'
    data = read_text(tmp_path, "data.jsonl", f'{{"id": "7", "text": "x", "labels": {labels}}}\n', sep=" > ")
    assert data.paths() == [["C", "A > B"]]


def test_numbers_can_be_labels(tmp_path: Path) -> None:
    content = '{"text": "x", "label": 3}\n{"text": "y", "label": [1, 2]}\n'
    assert read_text(tmp_path, "data.jsonl", content).names() == [["3"], ["1", "2"]]
    pq.write_table(pa.table({"text": ["x", "y"], "label": [4, None]}), tmp_path / "data.parquet")
    assert read(tmp_path / "data.parquet").names() == [["4"], []]


def test_columns_are_found_even_if_the_first_objects_lack_them(tmp_path: Path) -> None:
    content = '{"text": "x", "labels": ["A"], "id": "1"}\n{"text": "y", "id": "2"}\n'
    swapped = "".join(reversed(content.splitlines(keepends=True)))
    with pytest.raises(TreelabelError, match=r"data\.jsonl:1: no value for 'labels'; the row has text, id"):
        read_text(tmp_path, "data.jsonl", swapped)


def test_a_column_called_features_is_a_column_like_any_other(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,label,features\na,A,4 doors\n")
    assert data.extra["features"].to_pylist() == ["4 doors"]
    assert data.features is None


def test_labels_without_separator_make_one_level(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,label\na,B/C\nb,A\n")
    assert data.hierarchy.paths() == ["B/C", "A"]


def test_paths_with_the_usual_separator_make_a_tree_unasked(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,label\na,A > B\nb,A > C\nc,A\n")
    assert data.hierarchy.paths() == ["A", "A > B", "A > C"]


def test_a_top_label_that_shares_its_name_can_be_a_label(tmp_path: Path) -> None:
    data = read_text(tmp_path, "data.csv", "text,label\na,Other\nb,A > Other\n", sep=" > ")
    assert data.paths() == [["Other"], ["A > Other"]]


# Columns of mixed types


def test_columns_of_mixed_values_become_json_text(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "A"} | extra for extra in ({"x": 1}, {"x": {"k": "é"}}, {})]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    assert read_text(tmp_path, "data.jsonl", content).extra["x"].to_pylist() == ["1", '{"k": "é"}', None]


def test_columns_whose_type_changes_after_a_batch_are_joined(tmp_path: Path) -> None:
    lines = [{"text": "a", "label": "A", "x": 1, "y": 1, "z": 1}] * BATCH
    lines += [{"text": "b", "label": "A", "x": 0.5, "y": "one"}]
    data = read_text(tmp_path, "data.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert data.extra["x"].to_pylist()[-2:] == [1.0, 0.5]
    assert data.extra["y"].to_pylist()[-2:] == ["1", "one"]
    assert data.extra["z"].to_pylist()[-2:] == [1, None]


def test_numbers_beyond_64_bits_are_kept_as_text(tmp_path: Path) -> None:
    content = '{"text": "a", "label": "A", "x": 123456789012345678901234567890}\n'
    assert read_text(tmp_path, "data.jsonl", content).extra["x"].to_pylist() == ["123456789012345678901234567890"]


# Hierarchies beside the file


def test_the_hierarchy_is_written_beside_the_file_and_found_there(tmp_path: Path) -> None:
    h = Hierarchy.from_paths(["A > B", "C"])
    data = Dataset.of(["x"], ["B"], h)
    assert write(data, tmp_path / "train.csv.gz") == [tmp_path / "train.csv.gz", tmp_path / "train.taxonomy.tsv"]
    assert read(tmp_path / "train.csv.gz").hierarchy == h


def test_a_taxonomy_for_the_whole_folder_is_found(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "A\tB\nA\tC\n")
    assert read_text(tmp_path, "data.csv", "text,label\nx,B\n").paths() == [["A > B"]]


def test_the_file_s_own_taxonomy_goes_before_the_folder_s(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "A\tB\n")
    put(tmp_path, "data.taxonomy.json", '{"Z": ["B"]}')
    assert read_text(tmp_path, "data.csv", "text,label\nx,B\n").paths() == [["Z > B"]]


def test_a_taxonomy_that_is_named_goes_before_those_found(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "A\tB\n")
    other = put(tmp_path, "other.txt", "Y > B\n")
    assert read_text(tmp_path, "data.csv", "text,label\nx,B\n", taxonomy=other).paths() == [["Y > B"]]
    h = Hierarchy.from_paths(["X > B"])
    assert read_text(tmp_path, "data.csv", "text,label\nx,B\n", taxonomy=h).paths() == [["X > B"]]


def test_the_root_of_the_taxonomy_can_be_named(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "all\tA\nA\tB\n")
    assert read_text(tmp_path, "data.csv", "text,label\nx,B\n", root="all").paths() == [["A > B"]]


def test_parquet_carries_its_own_hierarchy(tmp_path: Path) -> None:
    put(tmp_path, "taxonomy.tsv", "A\tB\n")
    data = Dataset.of(["x"], ["B"], Hierarchy.from_paths(["Q > B"]))
    assert write(data, tmp_path / "data.parquet") == [tmp_path / "data.parquet"]
    assert read(tmp_path / "data.parquet").paths() == [["Q > B"]]


def test_no_taxonomy_is_written_if_none_is_wanted(tmp_path: Path) -> None:
    assert write(ONE, tmp_path / "data.csv", taxonomy=False) == [tmp_path / "data.csv"]
    assert [file.name for file in tmp_path.iterdir()] == ["data.csv"]


def test_a_taxonomy_left_by_an_earlier_file_of_the_same_name_is_not_mistaken_for_the_new_one(tmp_path: Path) -> None:
    write(Dataset.of(["x"], ["B"], Hierarchy.from_paths(["A > B"])), tmp_path / "data.csv")
    data = Dataset.of(["x"], ["Z > B"], Hierarchy.from_paths(["Z > B", "Y > B"]))
    write(data, tmp_path / "data.csv")
    assert read(tmp_path / "data.csv").paths() == [["Z > B"]]


def test_what_was_chosen_is_told(tmp_path: Path) -> None:
    data = read_text(tmp_path, "d.csv", "sku,Title,Description,Category\n1,a,b,x > y\n")
    assert data.choices == {
        "text": "Description",
        "labels": "Category",
        "id": "row numbers",
        "hierarchy": "made of the labels",
        "separator": " > ",
    }
    taxonomy = put(tmp_path, "taxonomy.tsv", "x\ty\n")
    again = read(tmp_path / "d.csv", text=["Title", "Description"], id="sku")
    assert (again.choices["text"], again.choices["id"]) == ("Title + Description", "sku")
    assert again.choices["hierarchy"] == str(taxonomy)
    assert read(tmp_path / "d.csv", taxonomy=data.hierarchy).choices["hierarchy"] == "given"


# Fields and tables of other programs


def lines_of(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_lists_of_lists_are_several_paths_where_lists_are_paths(tmp_path: Path) -> None:
    file = lines_of(
        tmp_path,
        {"text": "a", "labels": [["pet", "dog"], ["work"]]},
        {"text": "b", "labels": ["pet", "cat"]},
        {"text": "c", "labels": ["pet", None]},
    )
    data = read(file, lists="path")
    assert data.paths() == [["work", "pet > dog"], ["pet > cat"], ["pet"]]
    assert data.hierarchy.paths() == ["pet", "work", "pet > dog", "pet > cat"]
    table = tmp_path / "rows.csv"
    table.write_text('text,labels\na,"[[""pet"",""dog""],[""work""]]"\n')
    assert read(table, lists="path").paths() == [["work", "pet > dog"]]


@pytest.mark.parametrize(
    ("labels", "lists", "message"),
    [
        ([["pet", "dog"], "work"], "path", "expected the steps of one path, or a list of paths, found both"),
        ([[["pet"], "dog"]], "path", r"expected the name of a label, found a list \['pet'\]"),
        ([[["pet"], "dog"]], "labels", r"expected the name of a label, found a list \['pet'\]"),
    ],
)
def test_lists_of_neither_labels_nor_paths_are_refused(labels: Any, lists: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match=message):
        read(lines_of(tmp_path, {"text": "a", "labels": labels}), lists=lists)


def test_bytes_in_parquet_are_text(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    columns = {"id": [b"x", b"y"], "text": ["é".encode(), b"b"], "more": [b"one", b"two"]}
    pq.write_table(pa.table({**columns, "label": [[b"A"], [b"A", "ß".encode()]]}), file)
    data = read(file)
    assert (list(data.ids), list(data.texts)) == (["x", "y"], ["é", "b"])
    assert data.names() == [["A"], ["A", "ß"]]
    assert data.extra["more"].to_pylist() == ["one", "two"]
    batches = list(read_batches(file, Hierarchy.flat(["A"]), need_labels=False))
    assert [list(batch.texts) for batch in batches] == [["é", "b"]]
    pq.write_table(pa.table({"text": [b"fine", b"\xff\xfe"], "label": ["A", "B"]}), file)
    with pytest.raises(TreelabelError, match=r"rows\.parquet:2: expected text, found bytes that are not UTF-8"):
        read(file)


PRODIGY = [
    {"text": "a", "label": "X", "answer": "accept"},
    {"text": "b", "label": "X", "answer": "reject"},
    {"text": "c", "label": "Y", "answer": "ignore"},
    {"text": "d", "label": "Y", "answer": "accept"},
]


def test_what_annotators_of_prodigy_turned_down_is_no_label(tmp_path: Path) -> None:
    file, h = lines_of(tmp_path, *PRODIGY), Hierarchy.flat(["X", "Y"])
    told = r"left out 2 rows that annotators did not accept \(answer: reject 1, ignore 1\)"
    with pytest.warns(SkippedRowsWarning, match=told):
        data = read(file)
    assert (list(data.texts), data.names()) == (["a", "d"], [["X"], ["Y"]])
    with pytest.warns(SkippedRowsWarning, match=told):
        assert [batch.names() for batch in read_batches(file, h)] == [[["X"], ["Y"]]]
    with pytest.warns(SkippedRowsWarning, match=told):
        assert [batch.names() for batch in DataFile.of(file).batches(h)] == [[["X"], ["Y"]]]
    # Where no labels are read, a text is a text; and the answers themselves may be what is learned.
    assert [list(batch.texts) for batch in read_batches(file, h, need_labels=False)] == [["a", "b", "c", "d"]]
    assert read(file, labels="answer").names() == [["accept"], ["reject"], ["ignore"], ["accept"]]
    with pytest.raises(TreelabelError, match="no documents left but 1 rows that annotators did not accept"):
        read(lines_of(tmp_path, PRODIGY[1]))


def test_options_that_annotators_of_prodigy_chose_are_labels(tmp_path: Path) -> None:
    options = [{"id": "X", "text": "the X"}, {"id": "Y", "text": "the Y"}]
    rows = [{"text": "a", "options": options, "accept": chosen, "answer": "accept"} for chosen in (["X", "Y"], ["Y"])]
    assert read(lines_of(tmp_path, *rows)).names() == [["X", "Y"], ["Y"]]


@pytest.mark.parametrize("reader", [read, lambda frame: list(read_batches(frame, Hierarchy.flat(["A"])))])
def test_data_frames_are_no_files(reader: Any) -> None:
    with pytest.raises(TreelabelError, match=r"expected the name of a file, found a data frame with columns 'text'"):
        reader(pa.table({"text": ["a"]}))
    with pytest.raises(TreelabelError, match="expected the name of a file, found 3"):
        reader(3)


def test_a_taxonomy_is_a_file_or_a_hierarchy(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match="a file or a Hierarchy, found a dict with the keys 'A'"):
        read(lines_of(tmp_path, {"text": "a", "label": "A"}), taxonomy={"A": []})  # type: ignore[arg-type]


def test_lists_in_the_spelling_of_python_have_a_million_characters_at_most() -> None:
    longest = f"['{'x' * 999_996}']"
    assert labels_of_cell(longest, None, "labels") == ["x" * 999_996]
    assert labels_of_cell(longest.replace("x", "xx", 1), None, "labels") == [longest.replace("x", "xx", 1)]
    assert labels_of_cell(longest.replace("'", '"').replace("x", "xx", 1), None, "labels") == ["x" * 999_997]
