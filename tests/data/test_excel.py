"""Excel files as data and as taxonomies: what people do to sheets, what openpyxl does not say, and hostile archives."""

import sys
import warnings
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook, load_workbook

from tests.data.test_formats import AWKWARD, same
from tests.helpers import Run, put
from tests.strategies import examples
from treelabel import Dataset, Hierarchy, TreelabelError, read, read_taxonomy, write, write_taxonomy
from treelabel.core.limits import Limits
from treelabel.data.io import excel
from treelabel.data.io.excel import encoded_text
from treelabel.data.io.format import ReadOptions
from treelabel.data.io.parquet import read_parquet
from treelabel.data.io.sheets import SheetWarning, cell_text, locate_damage, open_sheet
from treelabel.data.io.tables import format_of

PETS = [["text", "label"], ["woof", "dog"], ["meow", "cat"]]
SHEET = "xl/worksheets/sheet1.xml"


def book(path: Path, *tables: Iterable[list[Any]], merge: str | None = None, hide: int | None = None) -> Path:
    made = Workbook()
    made.remove(made.active)
    for number, rows in enumerate(tables):
        sheet = made.create_sheet(f"Sheet {number + 1}")
        for row in rows:
            sheet.append(row)
        if merge is not None:
            sheet.merge_cells(merge)
        if number == hide:
            sheet.sheet_state = "hidden"
    made.save(path)
    return path


def changed(path: Path, part: str, old: bytes, new: bytes) -> Path:
    """Change a part of a file that is there."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    assert old in parts[part]
    parts[part] = parts[part].replace(old, new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def rows_of(path: Path, sheet: str | None = None, **options: Any) -> list[tuple[int, list[str]]]:
    with open_sheet(path, sheet, **options) as opened:
        return list(opened.rows)


# Reading


def test_a_sheet_is_read_like_a_csv_file(tmp_path: Path) -> None:
    data = read(book(tmp_path / "d.xlsx", PETS))
    assert (list(data.texts), data.names()) == (["woof", "meow"], [["dog"], ["cat"]])
    assert data.choices["sheet"] == "Sheet 1, columns named in row 1"


def test_values_are_what_a_person_sees(tmp_path: Path) -> None:
    values = [
        12,
        12.0,
        0.25,
        True,
        date(2024, 1, 31),
        datetime(2024, 1, 31, 12, 30),
        time(7, 5),
        "0012",
        " a ",
        None,
        1e20,
    ]
    shown = ["12", "12", "0.25", "TRUE", "2024-01-31", "2024-01-31 12:30:00", "07:05:00", "0012", " a ", "", "1e+20"]
    file = book(tmp_path / "d.xlsx", [["text", "label"], *([value, 7] for value in values)])
    data = read(file)
    assert list(data.texts) == shown
    assert data.names() == [["7"]] * len(values)


@pytest.mark.parametrize(("sheet", "texts"), [(None, ["a"]), ("2", ["b"]), ("Sheet 2", ["b"]), ("sheet 3 ", ["c"])])
def test_sheets_have_names_and_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sheet: str | None, texts: list[str]
) -> None:
    file = book(tmp_path / "d.xlsx", *([["text", "label"], [text, "A"]] for text in "abc"))
    caplog.set_level("INFO")
    assert list(read(file, sheet=sheet).texts) == texts
    assert ("the sheet 'Sheet 1' is read, not 'Sheet 2', 'Sheet 3'" in caplog.text) is (sheet is None)


def test_a_hidden_sheet_is_not_the_first(tmp_path: Path) -> None:
    file = book(tmp_path / "d.xlsx", [["text", "label"], ["old", "A"]], PETS, hide=0)
    assert list(read(file).texts) == ["woof", "meow"]


@pytest.mark.parametrize("sheet", ["4", "0", "-1", "nothing", "", "9" * 5000])
def test_an_unknown_sheet_is_refused_with_those_that_there_are(tmp_path: Path, sheet: str) -> None:
    with pytest.raises(
        TreelabelError, match=r"d\.xlsx: has no sheet .*; there are 'Sheet 1', 'Sheet 2'; give a name, or"
    ):
        read(book(tmp_path / "d.xlsx", PETS, PETS), sheet=sheet)


def test_titles_empty_rows_and_empty_columns_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rows: list[list[Any]] = [
        [],
        [None, "Tickets of 2024"],
        [None, "as of", date(2024, 5, 1)],
        [],
        [None, "Nr", "text", None, "label", None],
        [None, 1, "woof", None, "dog"],
        [None, None, None],
        [None, 2, "meow", None, "cat", "a remark"],
    ]
    data = read(book(tmp_path / "d.xlsx", rows), id="Nr")
    assert (list(data.ids), list(data.texts), data.names()) == (["1", "2"], ["woof", "meow"], [["dog"], ["cat"]])
    assert data.extra["column F"].to_pylist() == [None, "a remark"]
    assert list(data.extra) == ["column F"]
    assert "took the names of the columns from row 5 ('Nr', 'text', 'label')" in caplog.text
    assert data.choices["sheet"] == "Sheet 1, columns named in row 5"


def test_the_names_of_columns_are_in_the_first_twenty_rows(tmp_path: Path) -> None:
    pets = [["text", "label", "a", "b", "c"], ["woof", "dog", "x", "x", "x"]]
    data = read(book(tmp_path / "d.xlsx", [*[["a title"]] * 19, *pets]))
    assert (list(data.texts), data.choices["sheet"]) == (["woof"], "Sheet 1, columns named in row 20")
    with pytest.raises(TreelabelError, match="a title"):
        read(book(tmp_path / "d.xlsx", [*[["a title"]] * 20, *pets]))


def test_the_names_of_columns_fill_six_tenths_of_the_widest_row() -> None:
    widest = (9, ["1", "2", "3", "4", "5"])
    assert excel.header_index([(1, ["a", "b", ""]), (2, ["a", "b", "c"]), widest]) == 1
    assert excel.header_index([(1, ["a", "b"]), (2, ["a", "b", "7"]), (3, ["a", "b", "2024-05-01"]), widest]) == 0


def test_values_that_excel_would_change_are_texts() -> None:
    for value in (10**15 - 1, 1 - 10**15, 0.5, True, None, "x", date(1901, 1, 1), datetime(1901, 1, 1, 12)):
        assert excel._cell(value) is value
    for value in (10**15, -(10**15), date(1900, 12, 31), datetime(2024, 1, 1, microsecond=1)):
        assert isinstance(excel._cell(value), str)


def test_messages_have_the_row_that_excel_shows(tmp_path: Path) -> None:
    rows: list[list[Any]] = [["title"], [], ["text", "level1", "level2"], ["a", "A", "B"], [], ["b", None, "B"]]
    with pytest.raises(TreelabelError, match=r"d\.xlsx:6: level 1 is empty, but deeper levels are not"):
        read(book(tmp_path / "d.xlsx", rows))


def test_a_sheet_may_have_no_header(tmp_path: Path) -> None:
    data = read(book(tmp_path / "d.xlsx", PETS[1:]), header=False, text="1", labels="2")
    assert list(data.texts) == ["woof", "meow"]


def test_a_cell_merged_over_rows_counts_for_each(tmp_path: Path) -> None:
    rows: list[list[Any]] = [["label", "text"], ["dog", "woof"], [None, "bark"], [None, "growl"], ["cat", "meow"], []]
    data = read(book(tmp_path / "d.xlsx", rows, merge="A2:A4"))
    assert data.names() == [["dog"], ["dog"], ["dog"], ["cat"]]
    assert data.choices["sheet"].endswith("1 cells merged over rows, with their value in each")
    # What it covers in rows without any text is no document.
    assert len(read(book(tmp_path / "e.xlsx", [*rows[:2], [], rows[4]], merge="A2:A3"))) == 2


def test_formulas_have_their_saved_values_and_those_without_are_told(tmp_path: Path) -> None:
    file = book(
        tmp_path / "d.xlsx", [["text", "label"], ["woof", "=B3"], ["meow", "cat"], ["=A2", "cat"], ["#N/A", "cat"]]
    )
    with pytest.warns(SheetWarning) as told:
        data = read(file)
    assert list(data.texts) == ["woof", "meow", "", ""]
    assert data.names() == [[], ["cat"], ["cat"], ["cat"]]
    assert [str(each.message) for each in told] == [
        f"{file}: taken as empty are 2 cells ('B2', 'A4') with formulas whose values were not saved; open the file in "
        "Excel and save it",
        f"{file}: taken as empty are 1 cells ('A5') with errors of a formula, such as #N/A",
    ]
    changed(file, SHEET, b"<f>B3</f><v />", b"<f>B3</f><v>cat</v>")
    changed(file, SHEET, b'<c r="B2">', b'<c r="B2" t="str">')
    with pytest.warns(SheetWarning, match=r"1 cells \('A4'\) with formulas|1 cells \('A5'\) with errors"):
        assert read(file).names()[0] == ["cat"]


def test_text_of_excel_with_carriage_returns_is_decoded(tmp_path: Path) -> None:
    file = book(tmp_path / "d.xlsx", [["text", "label"], ["a_x000D_\nb", "A"]])
    assert list(read(file).texts) == ["a\r\nb"]


def test_sizes_that_a_sheet_claims_are_not_believed(tmp_path: Path) -> None:
    file = book(tmp_path / "d.xlsx", PETS)
    changed(file, SHEET, b'<dimension ref="A1:B3" />', b'<dimension ref="A1:XFD1048576" />')
    assert rows_of(file) == [(1, ["text", "label"]), (2, ["woof", "dog"]), (3, ["meow", "cat"])]
    changed(file, SHEET, b'<dimension ref="A1:XFD1048576" />', b'<dimension ref="A1" />')
    assert len(read(file)) == 2


# As Excel itself writes it, with texts in a table of their own, one of them with letters in bold.
OF_EXCEL = {
    "[Content_Types].xml": """<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
        <Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
        <Override PartName="/xl/workbook.xml" ContentType=
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>
        <Override PartName="/xl/sharedStrings.xml" ContentType=
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/></Types>""",
    "_rels/.rels": """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
        <Relationship Id="r" Target="xl/workbook.xml" Type=
            "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/></Relationships>""",
    "xl/workbook.xml": """<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">
        <sheets><sheet name="Table" sheetId="1" r:id="s"/></sheets></workbook>""",
    "xl/_rels/workbook.xml.rels": """<Relationships
        xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="s"
            Target="worksheets/sheet1.xml" Type=
            "http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet"/></Relationships>""",
    "xl/sharedStrings.xml": """<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">
        <si><t>text</t></si><si><t>label</t></si>
        <si><r><rPr><b/></rPr><t>wo</t></r><r><t xml:space="preserve">of </t></r></si>
        <si><t>a_x000D_b</t></si></sst>""",
    SHEET: """<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>
        <row r="1" spans="1:2"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>
        <row r="2"><c r="A2" t="s"><v>2</v></c><c r="B2"><v>12</v></c></row>
        <row r="5"><c r="A5" t="s"><v>3</v></c><c r="B5"><f>B2/3</f><v>4.0</v></c></row>
        </sheetData></worksheet>""",
}


def test_a_file_as_excel_writes_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.xlsx", "w") as archive:
        for name, content in OF_EXCEL.items():
            archive.writestr(name, content)
    data = read(tmp_path / "d.xlsx")
    assert list(data.texts) == ["woof ", "a\rb"]
    assert data.names() == [["12"], ["4"]]


# Refusals


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], ": the sheet 'Sheet 1' is empty; expected a row with column names"),
        ([["text", "label"]], ": no documents; the file has no rows"),
        ([["text", "text"], ["a", "A"]], ":1: the column 'text' stands twice in the header"),
        (
            [["a", "b"], ["c", "d"]],
            ":2: no column looks like the text; columns are 'a' (1 different words, such as 'c'), 'b'",
        ),
    ],
)
def test_sheets_that_are_no_table_are_refused(tmp_path: Path, rows: list[list[Any]], message: str) -> None:
    file = book(tmp_path / "d.xlsx", rows)
    with pytest.raises(TreelabelError) as refused:
        read(file)
    assert f"{file}{message}" in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an .xlsx file"),
        (b"text,label\na,A\n", "not an .xlsx file"),
        (
            bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 512,
            "is an old Excel file (.xls) or has a password; open it in Excel",
        ),
    ],
)
def test_what_is_no_xlsx_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(TreelabelError) as refused:
        read(put(tmp_path, "d.xlsx", content))
    assert f"d.xlsx: {message}" in str(refused.value)


@pytest.mark.parametrize("ending", [".xls", ".xlsb", ".xlsm", ".ods", ".numbers"])
def test_other_spreadsheets_are_refused_with_what_to_do(tmp_path: Path, ending: str) -> None:
    with pytest.raises(TreelabelError, match=rf"d\{ending}: .* cannot be read or written; save it as \.xlsx or as CSV"):
        read(put(tmp_path, f"d{ending}", "x"))


def test_a_compressed_xlsx_is_refused(tmp_path: Path) -> None:
    assert format_of(Path("d.xlsx.gz")).name == "xlsx"
    with pytest.raises(TreelabelError, match=r"an \.xlsx file is compressed already; unpack it"):
        read(put(tmp_path, "d.xlsx.gz", b"x"))
    with pytest.raises(TreelabelError, match=r"an \.xlsx file is compressed already; leave the ending \.gz out"):
        write(AWKWARD, tmp_path / "e.xlsx.gz")
    assert not list(tmp_path.glob("e*"))


def test_a_missing_openpyxl_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = book(tmp_path / "d.xlsx", PETS)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    for use in (lambda: read(file), lambda: write(AWKWARD, tmp_path / "e.xlsx")):
        with pytest.raises(TreelabelError, match=r'ing \.xlsx needs openpyxl: pip install "treelabel\[excel\]"'):
            use()


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    file = book(tmp_path / "d.xlsx", PETS)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/image.bin", b"\0" * 40_000_000)
    with pytest.raises(TreelabelError, match=r"d\.xlsx: its [\d,]+ bytes unpack to 40,0.*the limit ratio is 100;"):
        read(file)
    assert len(read(file, limits=Limits(ratio=None))) == 2
    with pytest.raises(
        TreelabelError, match=r"d\.xlsx: holds more than can be read at once; the limit whole is 1,000,000"
    ):
        read(file, limits=Limits(ratio=None, whole=1_000_000))


def test_entities_are_refused(tmp_path: Path) -> None:
    file = book(tmp_path / "d.xlsx", PETS)
    laughs = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>' + b"<worksheet"
    changed(file, SHEET, b"<worksheet", laughs)
    with pytest.raises(TreelabelError, match=r"d\.xlsx: its XML declares a document type"):
        read(file)


@pytest.mark.slow
def test_rows_far_below_and_cells_too_long_are_refused(tmp_path: Path) -> None:
    file = book(tmp_path / "d.xlsx", PETS)
    changed(file, SHEET, b'<row r="3">', b'<row r="99999999999">')
    with pytest.raises(TreelabelError, match=r"d\.xlsx:1,048,577: more rows than the 1,048,576 that a sheet can have"):
        read(file)
    file = book(tmp_path / "d.xlsx", [*PETS, ["a" * 2000, "dog"]])
    with pytest.raises(TreelabelError, match=r"d\.xlsx:4: a cell is too long; the limit line is 1,000"):
        read(file, limits=Limits(line=1000))
    with pytest.raises(TreelabelError, match=r"d\.xlsx:1: 2 columns; the limit columns is 1"):
        read(file, limits=Limits(columns=1))


@examples(60)
@given(st.integers(0, 5000), st.binary(min_size=1, max_size=8))
def test_damaged_files_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, place: int, noise: bytes) -> None:
    file = book(tmp_path_factory.mktemp("any") / "d.xlsx", PETS)
    content = bytearray(file.read_bytes())
    place %= len(content)
    content[place : place + len(noise)] = noise
    file.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Anything but this error fails the test.
        with suppress(TreelabelError):
            read(file)


@pytest.mark.parametrize("part", [SHEET, "xl/workbook.xml", "xl/styles.xml", "[Content_Types].xml"])
def test_damaged_xml_is_refused(tmp_path: Path, part: str) -> None:
    file = book(tmp_path / "d.xlsx", PETS)
    changed(file, part, b"<", b"<<")
    with pytest.raises(
        TreelabelError, match=r"d\.xlsx: not an \.xlsx file that can be read: .*; the file may be damaged"
    ):
        read(file)


# Writing


def test_everything_comes_back(tmp_path: Path) -> None:
    assert write(AWKWARD, tmp_path / "d.xlsx") == [tmp_path / "d.xlsx"]
    again = read(tmp_path / "d.xlsx")
    assert same(again, AWKWARD)
    assert {name: column.to_pylist()[:4] for name, column in again.extra.items()} == {
        "note": ["n", "", 'q"', ""],
        "count": ["1", "", "-3", "0"],
        "weight": ["0.1", "", "1e+300", "0"],
        "tags": ['["a"]', "[]", "", '["b", "c"]'],
        "nothing": ["", "", "", ""],
    }


@examples(100)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=5))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    file = tmp_path_factory.mktemp("any") / "d.xlsx"
    h = Hierarchy.flat(["A"])
    write(Dataset.of(texts, [["A"]] * len(texts), h), file)
    assert list(read(file).texts) == texts


@examples(200)
@given(st.text(st.sampled_from("_x0041AFaf5\x0b\r\ufffe"), max_size=30))
def test_encoded_texts_are_decoded(text: str) -> None:
    assert cell_text(encoded_text(text)) == text


def test_nothing_is_run_as_a_formula(tmp_path: Path) -> None:
    texts = ["=1+1", "=cmd|' /C calc'!A0", "+1", "-2", "@SUM(A1)", "#N/A", "\t=1", "'=1"]
    data = Dataset.of(
        texts, [["=A1"]] * len(texts), Hierarchy.flat(["=A1"]), ids=[f"={at}" for at in range(len(texts))]
    )
    write(data, tmp_path / "d.xlsx")
    cells = [cell for row in load_workbook(tmp_path / "d.xlsx").active.iter_rows(min_row=2) for cell in row]
    assert {cell.data_type for cell in cells} == {"s"}
    assert all(cell.quotePrefix for cell in cells if cell.value[:1] == "=")
    again = read(tmp_path / "d.xlsx")
    assert list(again.texts) == texts
    assert list(again.ids) == list(data.ids)


def test_numbers_and_dates_stay_what_they_are(tmp_path: Path) -> None:
    day, moment = date(2024, 1, 31), datetime(2024, 1, 31, 12, 30)
    extra = {
        "day": pa.chunked_array([[day]]),
        "moment": pa.chunked_array([[moment]]),
        "large": pa.chunked_array([[12345678901234567]]),
        "yes": pa.chunked_array([[True]]),
        "old": pa.chunked_array([[date(1800, 1, 1)]]),
    }
    one = Dataset.of(["x"], [["A"]], Hierarchy.flat(["A"]))
    write(Dataset(one.ids, one.texts, one.labels, one.hierarchy, extra), tmp_path / "d.xlsx")
    row = [cell.value for cell in load_workbook(tmp_path / "d.xlsx").active[2]]
    assert row == ["0", "x", "A", datetime(2024, 1, 31), moment, "12345678901234567", True, "1800-01-01"]
    again = read(tmp_path / "d.xlsx").extra
    assert again["day"].to_pylist() == ["2024-01-31"]


def test_more_than_a_sheet_holds_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = Dataset.of(["a", "b" * 32_768], [["A"]] * 2, Hierarchy.flat(["A"]))
    with pytest.raises(
        TreelabelError, match=r"d\.xlsx: row 3 has a text of 32,768 characters, and a cell of Excel holds"
    ):
        write(long, tmp_path / "d.xlsx")
    with pytest.raises(TreelabelError, match="row 2 has a text of 20,000 characters"):
        write(Dataset.of(["😀" * 20_000], [["A"]], Hierarchy.flat(["A"])), tmp_path / "d.xlsx")
    monkeypatch.setattr(excel, "MOST_ROWS", 14)
    with pytest.raises(
        TreelabelError, match=r"d\.xlsx: a sheet of Excel holds 14 rows and .* columns, and this is more; wri"
    ):
        write(AWKWARD, tmp_path / "d.xlsx")
    monkeypatch.undo()
    monkeypatch.setattr(excel, "MOST_COLUMNS", 1)
    with pytest.raises(TreelabelError, match=r"holds 1,048,576 rows and 1 columns, and this is more"):
        write(long[:1], tmp_path / "d.xlsx")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    write(Dataset.of(["b" * 32_767], [["A"]], Hierarchy.flat(["A"])), tmp_path / "d.xlsx")
    assert len(read(tmp_path / "d.xlsx").texts[0]) == 32_767


# Taxonomies

PATHS = ["food", "pet", "pet > cat", "pet > dog", "pet > dog > poodle"]
TABLES: dict[str, list[list[Any]]] = {
    "edges": [["pet", "dog"], ["pet", "cat"], ["dog", "poodle"], ["food", None]],
    "ids": [
        ["ID", "Parent", "Name"],
        [1, None, "pet"],
        [2, 1, "dog"],
        [3, 1, "cat"],
        [4, 2, "poodle"],
        [5, None, "food"],
    ],
    "titled": [
        ["Our labels"],
        [],
        [None, "Level 1", "Level 2", "Level 3"],
        [None, "pet", "dog", "poodle"],
        [None, "pet", "cat"],
        [None, "food"],
    ],
    "outline": [
        ["Level 1", "Level 2", "Level 3"],
        ["pet"],
        [None, "dog"],
        [None, None, "poodle"],
        [None, "cat"],
        ["food"],
    ],
    "paths": [["Path"], ["pet/dog/poodle"], ["pet/cat"], ["pet/dog"], ["food"], ["pet"]],
}


@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES)
def test_taxonomies_in_sheets(tmp_path: Path, rows: list[list[Any]]) -> None:
    file = book(tmp_path / "t.xlsx", rows)
    assert sorted(read_taxonomy(file, sep="/" if rows[0] == ["Path"] else None).paths()) == PATHS


def test_a_taxonomy_comes_back_from_a_sheet_and_is_found_beside_the_data(tmp_path: Path) -> None:
    h = Hierarchy.from_paths([*PATHS, "pet > =1+1", "pet > 12"])
    write_taxonomy(h, tmp_path / "d.taxonomy.xlsx")
    assert read_taxonomy(tmp_path / "d.taxonomy.xlsx") == h
    data = read(book(tmp_path / "d.xlsx", [["text", "label"], ["woof", "dog"], ["one", 12]]))
    assert data.hierarchy == h
    assert data.choices["taxonomy"] == "parents in the column 'parent', labels in 'child'"


# On the command line


def test_convert_split_and_sample_write_sheets(tmp_path: Path, run: Run) -> None:
    file = book(tmp_path / "d.xlsx", PETS, [["text", "label"], *([f"text {at}", "AB"[at % 2]] for at in range(20))])
    ended = run("convert", file, tmp_path / "d.csv", "--sheet", "2", "--no-write-taxonomy")
    assert (ended.code, ended.err) == (0, "")
    assert run("convert", tmp_path / "d.csv", tmp_path / "e.xlsx").code == 0
    assert len(read(tmp_path / "e.xlsx")) == 20
    assert (
        run("split", tmp_path / "e.xlsx", tmp_path / "parts", "--to-format", "xlsx", "--parts", "a=0.5,b=0.5").code == 0
    )
    assert [len(read(tmp_path / "parts" / f"{name}.xlsx")) for name in "ab"] == [10, 10]
    ended = run("inspect", file)
    assert ended.code == 0
    assert "sheet" in ended.out
    assert "treelabel: note:" in ended.err
    ended = run("inspect", file, "--sheet", "x")
    assert (ended.code, "has no sheet 'x'" in ended.err) == (2, True)


def test_what_a_reader_says_of_damage_is_one_line_of_200_characters(tmp_path: Path) -> None:
    said = f"can be read: ValueError: a {'b' * 186}; the file"
    with pytest.raises(TreelabelError, match=said), locate_damage(tmp_path / "d.xlsx"):
        raise ValueError("a\n" + "b" * 300)


def test_progress_is_the_share_of_rows_in_the_bytes_of_the_file(tmp_path: Path) -> None:
    seen: list[int] = []
    file = book(tmp_path / "d.xlsx", [["text", "label"], ["a", "A"], ["b", "A"], ["c", "B"]])
    assert len(list(excel.read_excel(file, ReadOptions(seen=seen.append)).parts)) == 1
    size = file.stat().st_size
    assert seen == [size * 2 // 4, size * 3 // 4, size]
    seen.clear()
    pq.write_table(pa.table({"text": ["a", "b", "c", "d"]}), tmp_path / "d.parquet", row_group_size=3)
    parts = list(read_parquet(tmp_path / "d.parquet", ReadOptions(seen=seen.append)).parts)
    assert [part.lines.tolist() for part in parts] == [[1, 2, 3], [4]]
    size = (tmp_path / "d.parquet").stat().st_size
    assert seen == [size * 3 // 4, size]
