"""Files that are repaired in place: what is not mended stays as it is, and every change is listed."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers import Run
from treelabel import read

OPENPYXL = pytest.importorskip("openpyxl")


def changes(target: Path) -> list[list[str]]:
    with target.with_name(f"{target.name}.changes.csv").open(newline="") as stream:
        return list(csv.reader(stream))[1:]


def test_a_windows_file_keeps_delimiter_encoding_quotes_and_columns(tmp_path: Path, run: Run) -> None:
    lines = [
        "nr;Text;Bereich;Klasse;Preis",
        '1;"süß; ""fein""";Essen;Kuchen;1,50',
        '2;"eine\r\nzweite Zeile";essen;Kuchen;2,50',
        "3;;Essen;Brot;3,50",
        "4;Roggen;Essen;Brot;4,50",
        "5;roggen;Essen;Brot;5,50",
        "6;Dinkel;Essen;Brot ;6,50",
    ]
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes("\r\n".join([*lines, ""]).encode("cp1252"))
    named = ("--text", "Text", "--labels", "Bereich,Klasse", "--encoding", "cp1252")
    ended = run("inspect", source, *named, "--fix", target)
    assert ended.code == 0, ended.err
    lines[2] = '2;"eine\r\nzweite Zeile";Essen;Kuchen;2,50'
    left = [line for line in lines if not line.startswith(("3;", "5;"))]
    assert target.read_bytes() == "\r\n".join([*left, ""]).encode("cp1252")
    assert changes(target) == [
        ["3", "Bereich", "essen", "Essen"],
        ["5", "", "no text", "left out"],
        ["7", "", "copy of an earlier text", "left out"],
    ]


def test_paths_lists_and_several_labels_keep_their_form(tmp_path: Path, run: Run) -> None:
    rows = ["a,Food/Tea", "b,food/tea", "c,Food/Tea|Food/Cake", "d,Food/Cake|food/tea", "e,Home/Lamp", "f,Home/Rug"]
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("\n".join(["text,label", *rows]))
    assert run("inspect", source, "--sep", "/", "--label-sep", "|", "--fix", target).code == 0
    rows[1], rows[3] = "b,Food/Tea", "d,Food/Cake|Food/Tea"
    assert target.read_text() == "\n".join(["text,label", *rows])


def test_json_lines_keep_their_other_fields(tmp_path: Path, run: Run) -> None:
    first = '{"text":"a", "labels":["Tea","Cake"],  "meta": {"x": [1, 2]}}'
    rows = [first, json.dumps({"text": "b", "labels": ["TEA"], "n": 1}), json.dumps({"text": " ", "labels": ["Tea"]})]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join([*rows, json.dumps({"text": "c", "labels": ["Tea"]})]) + "\n")
    assert run("inspect", source, "--fix", target).code == 0
    written = target.read_text().splitlines()
    assert written[0] == first
    assert json.loads(written[1]) == {"text": "b", "labels": ["Tea"], "n": 1}
    assert len(written) == 3


def test_parquet_keeps_types(tmp_path: Path, run: Run) -> None:
    table = pa.table({"text": ["a", "b", "b"], "label": ["x", "X", "x"], "n": pa.array([1, 2, 3], pa.int16())})
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(table, source)
    assert run("inspect", source, "--fix", target).code == 0
    again = pq.read_table(target)
    assert again.schema == table.schema
    assert again.to_pydict() == {"text": ["a", "b"], "label": ["x", "x"], "n": [1, 2]}


def test_excel_keeps_other_sheets_and_formats(tmp_path: Path, run: Run) -> None:
    book = OPENPYXL.Workbook()
    sheet = book.active
    for row in (["text", "level1", "level2"], ["a", "Food", "Tea"], ["b", "food", "Tea"], ["", "Food", "Tea"]):
        sheet.append(row)
    sheet.append(["c", "Food", "Cake"])
    sheet["A1"].font = OPENPYXL.styles.Font(bold=True)
    book.create_sheet("notes")["A1"] = "keep me"
    source, target = tmp_path / "in.xlsx", tmp_path / "out.xlsx"
    book.save(source)
    assert run("inspect", source, "--fix", target).code == 0
    again = OPENPYXL.load_workbook(target)
    assert again["notes"]["A1"].value == "keep me"
    assert again.worksheets[0]["A1"].font.bold
    assert read(target).paths() == [["Food > Tea"], ["Food > Tea"], ["Food > Cake"]]


def test_other_formats_are_written_anew(tmp_path: Path, run: Run) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text,label\na,x\nb,X\n")
    assert run("inspect", source, "--fix", tmp_path / "out.jsonl").code == 0
    assert not (tmp_path / "out.jsonl.changes.csv").exists()


def test_spellings_are_no_conflicts(tmp_path: Path, run: Run) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text,label\na,x\na,X\nb,y\nb,z\n")
    findings = {each["kind"]: each for each in run("inspect", source, "--json").json["findings"]}
    assert findings["contradictions"]["count"] == 2
    assert findings["spellings"]["count"] == 1
