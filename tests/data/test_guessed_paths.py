"""Labels that are paths although nobody said so: the separator is found and told, or labels stay whole."""

from pathlib import Path

import pytest

from tests.helpers import Run, put, read_text
from treelabel import Hierarchy, TreelabelError, read_together

SHOP = ["food/dairy/milk", "food/dairy/cheese", "food/meat", "home/garden", "home/kitchen", "home/bath", "home"]
EMOTIONS = ["joy|love", "anger|joy", "love|anger", "joy", "love", "anger|fear", "fear|joy"]


def table(labels: list[str]) -> str:
    return "text,label\n" + "".join(f"text {at},{label}\n" for at, label in enumerate(labels))


@pytest.mark.parametrize("separator", ["/", " / ", ">", "::", "\\", "|"])
def test_paths_make_a_tree_and_the_separator_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, separator: str
) -> None:
    caplog.set_level("INFO")
    data = read_text(tmp_path, "d.csv", table([label.replace("/", separator) for label in SHOP]))
    assert data.paths() == [[label.replace("/", " > ")] for label in SHOP]
    assert data.choices["separator"] == separator
    assert f"labels are taken as paths separated by {separator!r}" in caplog.text


@pytest.mark.parametrize("labels", [EMOTIONS, ["TCP/IP", "A/B testing", "R&D / ops", "TCP/UDP", "law"]])
def test_other_labels_stay_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture, labels: list[str]) -> None:
    caplog.set_level("INFO")
    data = read_text(tmp_path, "d.csv", table(labels))
    assert (data.names(), data.hierarchy.max_depth) == ([[label] for label in labels], 1)
    assert "separator" not in data.choices
    assert caplog.text == ""


def test_what_is_said_is_done(tmp_path: Path) -> None:
    assert read_text(tmp_path, "d.csv", table(SHOP), sep=" > ").hierarchy.max_depth == 1
    assert read_text(tmp_path, "d.csv", table(SHOP), sep="/").hierarchy.max_depth == 3
    assert read_text(tmp_path, "d.csv", table(EMOTIONS), label_sep="|").names()[0] == ["joy", "love"]


def test_a_taxonomy_decides_before_any_guess(tmp_path: Path) -> None:
    flat = Hierarchy.flat(SHOP)
    data = read_text(tmp_path, "d.csv", table(SHOP), taxonomy=flat)
    assert data.hierarchy == flat
    assert "separator" not in data.choices
    tree = Hierarchy.from_paths(label.split("/") for label in SHOP)
    assert read_text(tmp_path, "d.csv", table(SHOP), taxonomy=tree).paths()[0] == ["food > dairy > milk"]


def test_a_path_with_an_empty_name_is_an_unknown_label(tmp_path: Path) -> None:
    many = [f"food/{at}x" for at in range(30)] + [f"home/{at}y" for at in range(30)]
    with pytest.raises(TreelabelError, match=r"d\.csv:62: unknown label 'food//x'"):
        read_text(tmp_path, "d.csv", table([*many, "food//x"]))


@pytest.mark.parametrize("order", [1, -1])
def test_files_that_are_read_together_are_understood_alike(tmp_path: Path, order: int) -> None:
    files = [put(tmp_path, "test.csv", table(SHOP[:1])), put(tmp_path, "train.csv", table(SHOP))][::order]
    test, train = read_together(files)[::order]
    assert test.hierarchy == train.hierarchy
    assert test.paths() == [["food > dairy > milk"]]
    # A few rows that happen to look like paths do not decide for many that do not.
    few, many = ["joy|a", "joy|b", "love|c", "love|d", "fear|e", "fear|f"], [*EMOTIONS, *"abcdefghijk"]
    files = [put(tmp_path, "test.csv", table(few)), put(tmp_path, "train.csv", table(many))][::order]
    test, train = read_together(files)[::order]
    assert test.names()[0] == ["joy|a"]
    assert test.hierarchy.max_depth == 1


def test_the_command_line_says_it_in_one_line(tmp_path: Path, run: Run) -> None:
    file = put(tmp_path, "d.csv", table(SHOP).encode("utf-16"))
    ended = run("inspect", file)
    assert ended.code == 0
    assert ended.err == f"treelabel: note: {file}: labels are taken as paths separated by '/' (--sep says otherwise)\n"
    assert "'/' in labels, guessed (--sep says otherwise)" in ended.out
    assert run("inspect", file, "--sep", "/").err == ""
    assert run("inspect", file, "--json").json["choices"]["separator"] == "/"


def test_inspect_says_how_a_taxonomy_is_read(tmp_path: Path, run: Run) -> None:
    content = "ID;Parent ID;Name\n1;;Crème\n2;1;Brûlée\n".encode("cp1252")
    file = put(tmp_path, "taxonomy.csv", content)
    noted = run("inspect", file)
    assert (noted.code, "taxonomy.csv: is not UTF-8, and was read as cp1252" in noted.err) == (0, True)
    ended = run("inspect", file, "--encoding", "cp1252")
    told = " ".join(ended.out.split())
    assert "parents in the column 'Parent ID', which are called by 'ID', names in 'Name'" in told
    assert run("convert", file, tmp_path / "out.taxonomy.tsv", "--encoding", "cp1252").code == 0
    assert (tmp_path / "out.taxonomy.tsv").read_text(encoding="utf-8") == "Root\tCrème\nCrème\tBrûlée\n"
    data = put(tmp_path, "d.csv", "text,label\nx,Brûlée\n".encode("cp1252"))
    assert "names in 'Name'" in run("inspect", data, "--encoding", "cp1252").out
