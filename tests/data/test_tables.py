"""Tables as CSV and Excel: read back by others and by treelabel, with nothing that a spreadsheet would run."""

import csv
import io
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from treelabel import TreelabelError
from treelabel.data.io import excel
from treelabel.data.io.annif import is_annif
from treelabel.data.io.cells import MARKER, escape, restored_row
from treelabel.data.io.csv import CsvEncoder
from treelabel.data.io.format import Head, WriteOptions
from treelabel.data.io.tables import write_tables

CELLS = st.one_of(
    st.text(st.sampled_from("ab,;\t\"'\n\r=+-@1.é"), max_size=6), st.sampled_from(["=1+1", "-3.5", "", "'=x", "+49 1"])
)


@examples(100)
@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=6), delimiter=st.sampled_from([",", "\t"]))
def test_csv_is_what_the_csv_module_reads(rows: list[tuple[str, str]], delimiter: str) -> None:
    columns = list(zip(*rows, strict=True)) or [(), ()]
    table = pa.table({"=a": pa.array(columns[0], pa.string()), "b": pa.array(columns[1], pa.string())})
    for escaping in (False, True):
        encoder = CsvEncoder(WriteOptions(escape=escaping, mark=escaping), delimiter)
        text = encoder.encode(table).decode()
        count = encoder.escaped
        header, *read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        assert header == (["'=a", "b", MARKER] if escaping else ["=a", "b"])
        cells = [[escape(cell) if escaping else cell for cell in row] for row in rows]
        assert [row[:2] for row in read] == cells
        if escaping:
            assert count == len("".join(map("".join, cells))) - len("".join(map("".join, rows)))
            restored = [restored_row(dict(zip(["a", "b", MARKER], row, strict=True))) for row in read]
            assert [(row["a"], row["b"]) for row in restored] == rows


def test_values_that_are_no_text_are_written_as_people_read_them() -> None:
    numbers = {"n": [1, None], "x": [0.5, None], "yes": [True, None]}
    table = pa.table({**numbers, "when": [date(2024, 1, 31), None], "tags": [["a", "b"], None]})
    assert CsvEncoder(WriteOptions(resumed=True)).encode(table) == b'1,0.5,true,2024-01-31,"[""a"", ""b""]"\n,,,,\n'


def test_a_row_of_nothing_is_a_row() -> None:
    table = pa.table({"a": pa.array([None, "x"], pa.string())})
    assert CsvEncoder(WriteOptions()).encode(table) == b'a\n""\nx\n'


def excel_rows(file: Path) -> list[list[Any]]:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(file)
    return [[(cell.value, cell.data_type) for cell in row] for row in book.active.iter_rows()]


def test_excel_takes_numbers_as_numbers_and_never_a_formula(tmp_path: Path) -> None:
    table = pa.table({"text": ["=1+1", "a\x01b", None], "p": [0.5, None, 1.0]})
    write_tables([table[:2], table[2:]], tmp_path / "a.xlsx")
    header, *rows = excel_rows(tmp_path / "a.xlsx")
    assert [value for value, _ in header] == ["text", "p"]
    assert rows[0] == [("=1+1", "s"), (0.5, "n")]
    # What a sheet cannot hold is written as Excel writes it.
    assert [row[0][0] for row in rows] == ["=1+1", "a_x0001_b", None]


def test_what_excel_cannot_hold_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openpyxl")
    monkeypatch.setattr(excel, "MOST_ROWS", 3)
    with pytest.raises(TreelabelError, match=r"holds 3 rows .* write \.csv or \.parquet"):
        write_tables([pa.table({"a": ["x"] * 3})], tmp_path / "a.xlsx")
    assert not (tmp_path / "a.xlsx").exists()


def test_a_column_of_marks_is_added_where_a_cell_was_escaped() -> None:
    for cell, expected in (("x", b"a\nx\n"), ("=1", f"a,{MARKER}\n'=1,1\n".encode())):
        assert CsvEncoder(WriteOptions(escape=True, mark=None)).encode(pa.table({"a": [cell]})) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"text": "a", "subjects": [{"uri": "x"}, {"uri": "y"}]}', True),
        ('{"text": "a", "subjects": [{"uri": "x"}, "y"]}', False),
        ('{"text": "a", "subjects": "x"}', False),
        ("a text\t<http://x.org/1> <http://x.org/2>", True),
        ("a text\t<http://x.org/1> two", False),
        ("a text\t ", False),
        ("<http://x.org/0>\t<http://x.org/1>", False),
        ('text,"subject_uris"', True),
        ("text,label", False),
    ],
)
def test_a_corpus_of_annif_is_known_by_its_beginning(text: str, expected: bool) -> None:
    assert is_annif(Head.of(text)) == expected
