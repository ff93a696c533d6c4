"""Columns that are told from each other by what they hold, and values that stand for a missing label."""

import logging
from pathlib import Path

import pytest

from tests.helpers import read_text
from treelabel import Hierarchy, TreelabelError, read
from treelabel.hierarchy.separators import offer_separator

COMPLAINTS = [
    "the parcel never came to my door",
    "I was charged twice for one order",
    "my card does not work abroad any more",
    "the app closes whenever I open it",
    "nobody answers the phone in the shop",
    "please send me a new invoice for March",
]


def table(folder: Path, names: str, rows: list[str]) -> Path:
    file = folder / "data.csv"
    file.write_text("\n".join([names, *rows]) + "\n", encoding="utf-8")
    return file


def test_text_labels_and_ids_are_found_by_what_they_hold(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f"K{i},{['post', 'bank'][i % 2]},{COMPLAINTS[i]},{i / 3:.2f}" for i in range(6)]
    with caplog.at_level(logging.INFO):
        data = read(table(tmp_path, "case_nr,dept,complaint,weight", rows))
    assert list(data.texts) == COMPLAINTS
    assert sorted(data.hierarchy.names) == ["bank", "post"]
    assert list(data.ids) == [f"K{i}" for i in range(6)]
    assert list(data.extra) == ["weight"]
    assert "the text is taken from the column 'complaint'" in caplog.text
    assert "the labels are taken from 'dept'" in caplog.text


def test_a_column_called_description_may_hold_the_labels(tmp_path: Path) -> None:
    rows = [f"{['lost', 'late'][i % 2]},{COMPLAINTS[i]}" for i in range(6)]
    data = read(table(tmp_path, "description,complaint", rows), labels="description")
    assert list(data.texts) == COMPLAINTS
    assert read(table(tmp_path, "label,description", rows)).choices["text"] == "description"


def test_options_go_before_content(tmp_path: Path) -> None:
    rows = [f"{['post', 'bank'][i % 2]},{COMPLAINTS[i]},{COMPLAINTS[-i]} and more" for i in range(6)]
    assert read(table(tmp_path, "dept,short,long", rows)).choices["text"] == "long"
    assert read(table(tmp_path, "dept,short,long", rows), text="short").choices["text"] == "short"


def test_several_columns_of_few_values_are_asked_about(tmp_path: Path) -> None:
    rows = [f"{['a', 'b'][i % 2]},{['x', 'y', 'z'][i % 3]},{COMPLAINTS[i]}" for i in range(6)]
    with pytest.raises(
        TreelabelError, match=r"several columns may hold the labels: 'dept' \(2 different words"
    ) as told:
        read(table(tmp_path, "dept,kind,complaint", rows))
    assert "--labels dept,kind" in str(told.value)
    assert read(table(tmp_path, "dept,kind,complaint", rows), labels=["dept", "kind"]).hierarchy.max_depth == 2


def test_what_there_is_is_listed_where_nothing_looks_like_a_text(tmp_path: Path) -> None:
    rows = [f"{i},{['a', 'b'][i % 2]}" for i in range(6)]
    with pytest.raises(TreelabelError, match=r"'n' \(6 different numbers, such as '0'\), 'kind' \(2 different words"):
        read(table(tmp_path, "n,kind", rows))


def test_too_few_rows_tell_nothing(tmp_path: Path) -> None:
    rows = [f"{['post', 'bank'][i % 2]},{COMPLAINTS[i]}" for i in range(4)]
    with pytest.raises(TreelabelError, match="no column looks like the text"):
        read(table(tmp_path, "dept,complaint", rows))


def test_chinese_texts_have_no_blanks(tmp_path: Path) -> None:
    texts = [
        "我的包裹还没有送到家里",
        "银行卡在国外不能使用了",
        "请给我寄一张新的发票吧",
        "没有人接商店的电话啊",
        "应用一打开就自己关闭",
    ]
    rows = [f"{['a', 'b'][i % 2]},{text}" for i, text in enumerate(texts)]
    assert list(read(table(tmp_path, "dept,said", rows)).texts) == texts


@pytest.mark.parametrize("missing", ["n/a", "N/A", "-", "unknown", "Unknown", "?", "null"])
def test_what_stands_for_a_missing_label_is_none(
    tmp_path: Path, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = table(tmp_path, "text,label", ["one,A", f"two,{missing}", "three,B"])
    with caplog.at_level(logging.INFO):
        data = read(file)
    assert data.names() == [["A"], [], ["B"]]
    assert f"the label {missing!r} is taken for a missing one" in caplog.text


def test_levels_end_where_they_are_missing(tmp_path: Path) -> None:
    data = read(table(tmp_path, "text,level1,level2", ["one,A,B", "two,A,n/a", "three,-,-"]))
    assert data.paths() == [["A > B"], ["A"], []]


def test_a_taxonomy_with_such_a_name_keeps_it(tmp_path: Path) -> None:
    file = table(tmp_path, "text,label", ["one,A", "two,unknown"])
    assert read(file, taxonomy=Hierarchy.flat(["A", "unknown"])).names() == [["A"], ["unknown"]]


def test_labels_that_are_all_missing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError, match="all labels are 'n/a', '-', which stand for missing ones"):
        read(table(tmp_path, "text,label", ["one,n/a", "two,-"]))


def test_prefixes_are_offered_as_paths(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = ["DESC:manner", "DESC:reason", "DESC:def", "NUM:count", "NUM:date", "LOC:city", "LOC:other"]
    file = table(tmp_path, "text,label", [f"t{i},{label}" for i, label in enumerate(labels)])
    with caplog.at_level(logging.INFO):
        assert read(file).hierarchy.max_depth == 1
    assert "labels such as 'DESC:manner' look like paths; --sep ':' reads them so" in caplog.text
    assert read(file, sep=":").hierarchy.level_sizes == [3, 7]
    assert offer_separator(["10:30", "11:30", "12:30", "10:45"]) is None


@pytest.mark.parametrize("mark", [":", "--"])
def test_four_labels_are_the_fewest_that_offer_a_separator(mark: str) -> None:
    labels = [f"{top}{mark}{name}" for top, names in (("a", "xy"), ("b", "zw")) for name in names]
    assert offer_separator(labels) == mark
    assert offer_separator(labels[:3]) is None


@pytest.mark.parametrize(
    "date", ["2024-01-{:02}", "2024-01-{:02} 10:30:00", "2024-01-{:02}T10:30:00Z", "{}.1.24", "1/{}/2024"]
)
def test_dates_are_no_labels(tmp_path: Path, date: str) -> None:
    rows = [f"a text of words {row},{'xy'[row % 2]},{date.format(row % 9 + 1)}" for row in range(40)]
    data = read_text(tmp_path, "d.csv", "\n".join(["remark,kind,day", *rows]))
    assert data.choices["labels"] == "kind"
