"""Several files under one hierarchy."""

from pathlib import Path

import pytest

import treelabel as tl


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_files_without_a_taxonomy_share_the_labels_of_all(tmp_path: Path) -> None:
    train = written(tmp_path, "train.csv", "text,label\na,x > y\nb,x > z\n")
    test = written(tmp_path, "test.csv", "text,label\nc,w > y\nd,x > z\n")
    one, two = tl.read_together([train, test])
    assert one.hierarchy == two.hierarchy
    assert sorted(one.hierarchy.paths()) == ["w", "w > y", "x", "x > y", "x > z"]
    assert (one.paths(), two.paths()) == ([["x > y"], ["x > z"]], [["w > y"], ["x > z"]])
    assert two.describe(one).documents_with_unseen_labels == 1


def test_a_taxonomy_beside_one_of_the_files_is_taken_for_all(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    train = written(tmp_path / "there", "train.csv", "text,label\na,y\n")
    written(tmp_path / "there", "taxonomy.tsv", "x\ty\nx\tz\n")
    test = written(tmp_path, "test.csv", "text,label\nb,z\n")
    one, two = tl.read_together([test, train])
    assert one.hierarchy == two.hierarchy
    assert one.hierarchy.paths() == ["x", "x > y", "x > z"]


def test_the_command_line_describes_a_test_file_with_new_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from treelabel.cli import main

    train = written(tmp_path, "train.csv", "text,label\na,x\nb,y\n")
    test = written(tmp_path, "test.csv", "text,label\nc,z\nd,x\n")
    with pytest.raises(SystemExit) as stopped:
        main(["inspect", str(test), "--train", str(train), "--json"])
    assert stopped.value.code == 0
    assert '"documents_with_unseen_labels": 1' in capsys.readouterr().out
