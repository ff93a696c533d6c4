"""Tables of moves as files, and labels that data bring along."""

from pathlib import Path

import pytest

from tests.helpers import put
from treelabel import Dataset, Hierarchy, Moves, TreelabelError, read_moves
from treelabel.data import with_further_labels


def pairs(file: Path) -> list[tuple[str, str]]:
    return [(move.old, move.new) for move in read_moves(file)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("moves.tsv", "pet > dog\tpet > hound\nfish\t\n"),
        ("moves.tsv", "\ufeffold\tnew\r\npet > dog\tpet > hound\r\n\r\n# gone\r\nfish\r\n"),
        ("moves.csv", "pet > dog,pet > hound\nfish,\n"),
        ("moves.csv", "note;to;from\nspring;pet > hound;pet > dog\n;;fish\n"),
        ("moves.csv", '"pet > dog","pet > hound"\n"fish"\n'),
        ("moves.txt", "From\tTo\tWho\n pet > dog \t pet > hound \tme\nfish\t\tme\n"),
    ],
    ids=["plain", "header", "csv", "columns", "quoted", "text"],
)
def test_a_table_may_be_written_in_many_ways(tmp_path: Path, name: str, content: str) -> None:
    assert pairs(put(tmp_path, name, content)) == [("pet > dog", "pet > hound"), ("fish", "")]


def test_moves_know_their_line(tmp_path: Path) -> None:
    file = put(tmp_path, "moves.tsv", "old\tnew\n# a comment\ndog\thound\n")
    assert read_moves(file)[0].where == f"{file}:3"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no moves"),
        ("# nothing\n", "no moves"),
        ("a\tb\tc\n", r"moves\.tsv:1: 3 columns, expected an old label and a new one"),
        ("a\tb\n\tc\n", r"moves\.tsv:2: no old label before 'c'; new labels need no line"),
        ("a\tb\x1b[2J\n", "control character"),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        read_moves(put(tmp_path, "moves.tsv", content))


def test_a_dataset_is_carried() -> None:
    old, new = Hierarchy.from_paths(["pet > dog", "pet > cat"]), Hierarchy.from_paths(["pet > hound", "pet > cat"])
    data = Dataset.of(["woof", "meow"], ["dog", "cat"], old, groups=["a", "b"])
    moved = data.moved(Moves.of(old, new, [("dog", "hound")]))
    assert moved.paths() == [["pet > hound"], ["pet > cat"]]
    assert moved.groups == ("a", "b")


def test_labels_that_are_not_known_are_added() -> None:
    known = Hierarchy.from_paths(["pet > dog", "pet > cat"])
    own = Hierarchy.from_paths(["dog", "pet > horse", "farm > cow"])
    data = Dataset.of(["woof", "neigh", "moo"], ["dog", "pet > horse", "cow"], own)
    found = with_further_labels(data, known)
    assert found.paths() == [["pet > dog"], ["pet > horse"], ["farm > cow"]]
    assert len(found.hierarchy) == 6


def test_labels_without_a_place_are_not_added() -> None:
    data = Dataset.of(["neigh"], ["horse"], Hierarchy.flat(["horse"]))
    with pytest.raises(TreelabelError, match=r"'horse': new labels without a path.*such as 'pet > dog'"):
        with_further_labels(data, Hierarchy.from_paths(["pet > dog"]))
    assert with_further_labels(data, Hierarchy.flat(["cow"])).hierarchy.names == ("cow", "horse")


def test_labels_are_added_to_a_dag() -> None:
    dag = Hierarchy.from_edges([("pet", "dog"), ("work", "dog")])
    data = Dataset.of(["neigh", "woof"], ["work > horse", "dog"], Hierarchy.from_paths(["work > horse", "dog"]))
    found = with_further_labels(data, dag)
    assert found.names() == [["horse"], ["dog"]]
    assert not found.hierarchy.is_tree
