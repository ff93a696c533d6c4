"""Tables of hierarchies: short rows, ids as floats, and titles above the header of a sheet."""

from pathlib import Path

import pytest

from tests.helpers import put
from treelabel import TreelabelError, read_taxonomy


@pytest.mark.parametrize("row", ["2", "2,dog"])
def test_a_row_without_all_columns_of_the_header_is_refused(tmp_path: Path, row: str) -> None:
    file = put(tmp_path, "t.csv", f"id,name,parent_id\n1,pet,\n{row}\n")
    with pytest.raises(TreelabelError, match=r"t.csv:3: . fields, too few for the header's columns"):
        read_taxonomy(file)


@pytest.mark.parametrize("nothing", ["", "0", "0.0", "-1", "-1.0", "NULL", "n/a", "-"])
def test_what_stands_for_no_parent_makes_a_top_label(tmp_path: Path, nothing: str) -> None:
    file = put(tmp_path, "t.csv", f"id,name,parent_id\n1,pet,{nothing}\n2,dog,1.0\n")
    assert read_taxonomy(file).paths() == ["pet", "pet > dog"]


@pytest.mark.parametrize("titles", [0, 1, 3, 19])
def test_titles_above_the_header_of_a_sheet_are_left_out(tmp_path: Path, titles: int) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = [[f"title {number}"] for number in range(titles)]
    for row in [*rows, ["parent", "child"], ["pet", "dog"], ["pet", "cat"]]:
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    assert read_taxonomy(tmp_path / "t.xlsx").paths() == ["pet", "pet > dog", "pet > cat"]
