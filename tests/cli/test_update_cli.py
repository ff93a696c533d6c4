"""The command update, and convert with a table of moves."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import Run, put
from treelabel import Dataset, Hierarchy, Scores, load_model, read, read_taxonomy, write, write_taxonomy
from treelabel.models.check import CASES, TREE

NEW = Hierarchy.from_paths(["pet > dog > fox terrier", "pet > dog > poodle", "pet > cat", "food > cake", "food > soup"])
MERGED = Hierarchy.from_paths(
    ["pet > dog > terrier", "pet > dog > poodle", "pet > cat", "food > sweet", "food > bread"]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    case = CASES["leaf"]
    write(Dataset.of(case.texts, case.labels, TREE), tmp_path / "train.jsonl")
    write_taxonomy(NEW, tmp_path / "new.tsv")
    write_taxonomy(MERGED, tmp_path / "merged.tsv")
    put(tmp_path, "moves.tsv", "old\tnew\nterrier\tfox terrier\n")
    put(tmp_path, "merges.csv", "cake,sweet\nsoup,food > sweet\n")
    put(
        tmp_path,
        "more.csv",
        "text,label\nrye bread with a crust,bread\nsweet rolls of bread,bread\na sweet tart,sweet\n",
    )
    return tmp_path


@pytest.fixture
def model(folder: Path, run: Run) -> Path:
    ended = run("fit", folder / "train.jsonl", "-o", folder / "model", "--set", "ngram_range=(1, 1)")
    assert ended.code == 0, ended.err
    return folder / "model"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_taxonomy_alone_renames_labels(folder: Path, model: Path, run: Run) -> None:
    before = contents(model)
    ended = run(
        "update", model, "-o", folder / "model2", "--taxonomy", folder / "new.tsv", "--moves", folder / "moves.tsv"
    )
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[1] == "labels: 1 renamed"
    assert load_model(folder / "model2").hierarchy_ == read_taxonomy(folder / "new.tsv")
    assert contents(model) == before


def test_new_texts_and_labels_are_learned_and_changes_told(folder: Path, model: Path, run: Run) -> None:
    ended = run(
        *("update", model, folder / "more.csv", "-o", folder / "model2", "--train", folder / "train.jsonl"),
        *("--taxonomy", folder / "merged.tsv", "--moves", folder / "merges.csv"),
        *("--compare", folder / "train.jsonl", "--changes", folder / "changes.csv"),
    )
    assert ended.code == 0, ended.err
    assert f"{folder / 'model2'}: linear, 52 documents, 8 nodes" in ended.out
    assert "labels: 2 merged, 1 new" in ended.out
    assert "13 because the label was merged with others" in ended.out
    with (folder / "changes.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows
    assert all(row["new"] == row["expected"] == "food > sweet" for row in rows if row["why"] == "merged")
    assert load_model(folder / "model2").predict(["rye bread with a crust"]) == [["bread"]]


def test_labels_of_new_texts_may_be_added(folder: Path, model: Path, run: Run) -> None:
    new = put(folder, "new.csv", "text,label\nbarks at bread,food > bread\nbread,food > bread\nmeows,cat\n")
    unknown = run("update", model, new, "-o", folder / "model2", "--train", folder / "train.jsonl", "--sep", " > ")
    assert unknown.code == 2
    assert "new.csv:2: unknown label 'food > bread'" in unknown.err
    assert "give the new hierarchy with --taxonomy, or --add-labels" in unknown.err
    ended = run(
        "update", model, new, "-o", folder / "model2", "--train", folder / "train.jsonl", "--sep", " > ", "--add-labels"
    )
    assert ended.code == 0, ended.err
    assert "labels: 1 new" in ended.out
    assert "food > bread" in load_model(folder / "model2").hierarchy_.paths()


def test_the_original_file_may_have_the_new_labels_already(folder: Path, model: Path, run: Run) -> None:
    options = "--taxonomy", folder / "merged.tsv", "--moves", folder / "merges.csv"
    assert run("convert", folder / "train.jsonl", folder / "moved.jsonl", *options).code == 0
    more = folder / "more.csv"
    for train, output in (("train", "one"), ("moved", "two")):
        ended = run("update", model, more, "-o", folder / output, "--train", folder / f"{train}.jsonl", *options)
        assert ended.code == 0, ended.err
    texts = ["a sweet tart", "the cat meows"]
    one, two = (load_model(folder / name).score(texts).dense() for name in ("one", "two"))
    assert (one == two).all()


def documents_of(model: Path) -> int:
    return int(json.loads((model / "model.json").read_text())["profile"]["documents"])


def test_a_second_update_forgets_nothing_of_the_first(folder: Path, model: Path, run: Run) -> None:
    """Count documents over two updates; training data that lack reviewed texts are refused with both numbers."""
    one = put(folder, "one.csv", "body,kind\nmeows at night,cat\npurrs and meows,cat\n")
    two = put(folder, "two.csv", "body,kind\nbarks at noon,terrier\n")
    train, columns = folder / "train.jsonl", ("--text", "body", "--labels", "kind")
    first = run("update", model, one, "-o", folder / "m1", "--train", train, *columns)
    assert first.code == 0, first.err
    assert "linear, 51 documents" in first.out
    assert f"calibration, rule and held-out quality are those of {model}" in first.out
    lacking = run("update", folder / "m1", two, "-o", folder / "m2", "--train", train, *columns)
    assert lacking.code == 2
    assert "learned from 51 documents, of which 2 are missing in the 49 of the training data" in lacking.err
    assert not (folder / "m2").exists()
    files = "--train", train, "--train", one, *columns
    second = run("update", folder / "m1", two, "-o", folder / "m2", *files, "--save-train", folder / "all.jsonl")
    assert second.code == 0, second.err
    assert "linear, 52 documents" in second.out
    assert "all.jsonl: 52 documents" in second.out
    three = put(folder, "three.csv", "body,kind\nbarks at dusk,terrier\n")
    third = run("update", folder / "m2", three, "-o", folder / "m3", "--train", folder / "all.jsonl", *columns)
    assert third.code == 0, third.err
    assert [documents_of(folder / name) for name in ("model", "m1", "m2", "m3")] == [49, 51, 52, 53]
    saved, known = read(folder / "all.jsonl", taxonomy=TREE), list(read(train, taxonomy=TREE).texts)
    assert list(saved.texts) == [*known, "meows at night", "purrs and meows", "barks at noon"]
    forgetful = run("update", folder / "m1", two, "-o", folder / "m4", "--train", train, *columns, "--forget")
    assert forgetful.code == 0, forgetful.err
    assert documents_of(folder / "m4") == 50


def test_saved_training_data_have_the_new_labels(folder: Path, model: Path, run: Run) -> None:
    options = "--taxonomy", folder / "merged.tsv", "--moves", folder / "merges.csv", "--train", folder / "train.jsonl"
    target = folder / "all.csv"
    ended = run("update", model, folder / "more.csv", "-o", folder / "m1", *options, "--save-train", target)
    assert ended.code == 0, ended.err
    saved = read(target, taxonomy=load_model(folder / "m1").hierarchy_)
    assert len(saved) == 52
    assert {name for row in saved.names() for name in row} == {"terrier", "poodle", "cat", "sweet", "bread"}
    assert len(set(saved.ids)) == 52
    again = run("update", model, folder / "more.csv", "-o", folder / "m2", *options, "--save-train", target)
    assert "all.csv is there already" in again.err
    new = put(folder, "new.csv", "text,label\nrye,bread\n")
    after = run("update", folder / "m1", new, "-o", folder / "m3", "--train", target)
    assert after.code == 0, after.err
    assert documents_of(folder / "m3") == 53


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to update: give NEW"),
        (["more.csv"], "the model linear has to learn the old texts again"),
        (["--moves", "moves.tsv"], "nothing to update"),
        (["more.csv", "--moves", "moves.tsv"], "--moves needs --taxonomy"),
        (["--taxonomy", "new.tsv"], "1 label of the old taxonomy is neither in the new one nor among the moves: "),
        (["--taxonomy", "merged.tsv", "--moves", "merges.csv"], "name the file that it was trained on with --train"),
        (["more.csv", "--taxonomy", "new.tsv", "--add-labels"], "cannot both say what the new labels are"),
        (["more.csv", "--changes", "c.csv"], "--changes needs --compare"),
        (["more.csv", "--train", "gone.jsonl"], "gone.jsonl: no such file"),
        (["more.csv", "--save-train", "all.csv"], "--save-train needs --train"),
        (["more.csv", "--train", "train.jsonl", "--save-train", "train.jsonl"], "choose another output"),
        (["more.csv", "--train", "train.jsonl", "--save-train", "all"], "cannot tell the format by the ending ''"),
        (["more.csv", "--train", "train.jsonl", "--save-train", "all.xmc"], "holds no texts, which the next update"),
        (["more.csv", "-o", "model"], "is the model to update, which stays as it is"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_missing_is_said(
    folder: Path, model: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    if arguments[:1] == ["more.csv"]:
        put(folder, "more.csv", "text,label\nmeows,cat\n")
    ended = run("update", model, *([] if "-o" in arguments else ["-o", "model2"]), *arguments)
    assert ended.code == 2
    assert message in ended.err
    assert not (folder / "model2").exists()


def test_a_model_is_replaced_by_force_only(folder: Path, model: Path, run: Run) -> None:
    arguments = (
        "update",
        model,
        "-o",
        folder / "model2",
        "--taxonomy",
        folder / "new.tsv",
        "--moves",
        folder / "moves.tsv",
    )
    assert run(*arguments).code == 0
    ended = run(*arguments)
    assert ended.code == 2
    assert "replace it with --force" in ended.err
    assert run(*arguments, "--force").code == 0


# convert --moves


def test_data_are_carried(folder: Path, run: Run) -> None:
    options = "--taxonomy", folder / "merged.tsv", "--moves", folder / "merges.csv"
    ended = run("convert", folder / "train.jsonl", folder / "moved.csv", *options)
    assert ended.code == 0, ended.err
    moved = read(folder / "moved.csv")
    assert {name for row in moved.names() for name in row} == {"terrier", "poodle", "cat", "sweet"}
    assert len(moved) == 49


def test_data_that_know_their_own_labels_alone_are_carried(folder: Path, run: Run) -> None:
    put(folder, "few.csv", "text,label\nwoof,pet > dog > terrier\n")
    (folder / "sub").mkdir()
    few = put(folder / "sub", "few.csv", "text,label\nwoof,pet > dog > terrier\n")
    ended = run("convert", few, folder / "out.jsonl", "--taxonomy", folder / "new.tsv", "--moves", folder / "moves.tsv")
    assert ended.code == 0, ended.err
    assert read(folder / "out.jsonl").names() == [["fox terrier"]]


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_scores_are_carried(folder: Path, model: Path, run: Run, ending: str) -> None:
    options = "--taxonomy", folder / "merged.tsv", "--moves", folder / "merges.csv"
    file = folder / f"scores{ending}"
    assert run("score", model, folder / "train.jsonl", "-o", file).code == 0
    ended = run("convert", file, folder / f"moved{ending}", *options)
    assert ended.code == 0, ended.err
    before, after = Scores.load(file), Scores.load(folder / f"moved{ending}")
    h = after.hierarchy
    both = before.dense()[:, [TREE.names.index(name) for name in ("cake", "soup")]].sum(axis=1)
    assert after.dense()[:, h.names.index("sweet")] == pytest.approx(both, abs=1e-6)
    assert after.is_coherent()
    assert after.ids == before.ids


def test_predictions_are_carried(folder: Path, model: Path, run: Run) -> None:
    options = "--taxonomy", folder / "merged.tsv", "--moves", folder / "merges.csv"
    assert run("predict", model, folder / "train.jsonl", "-o", folder / "found.jsonl").code == 0
    for more in ([], ["--old-taxonomy", model / "hierarchy.json", "--force"]):
        ended = run("convert", folder / "found.jsonl", folder / "moved.jsonl", *options, *more)
        assert ended.code == 0, ended.err
        old, new = ((folder / name).read_text().splitlines() for name in ("found.jsonl", "moved.jsonl"))
        for before, after in zip(map(json.loads, old), map(json.loads, new), strict=True):
            assert before["id"] == after["id"]
            (one,), (two,) = before["labels"], after["labels"]
            expected = "food > sweet" if one["label"] in ("cake", "soup") else one["path"]
            assert (two["path"], two["p"]) == (expected, one["p"])
    judged = run("evaluate", folder / "train.jsonl", folder / "found.jsonl", "--metrics", "hf1", "--json").json
    assert judged["values"]["hf1"] > 0.9


def test_several_predicted_labels_become_one(folder: Path, run: Run) -> None:
    both = [{"label": name, "path": f"food > {name}", "p": p} for name, p in (("cake", 0.5), ("soup", 0.25))]
    lines = [
        {"id": "exclusive", "labels": both, "closed": True},
        {"id": "independent", "labels": [{**each, "p": 0.75} for each in both]},
        {"id": "without p", "labels": [{"label": each["label"], "path": each["path"]} for each in both]},
        {"id": "closed", "labels": [{"label": "food", "path": "food", "p": 0.75}, *both]},
        {"id": "none", "labels": [], "unknown": True},
    ]
    put(folder, "found.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    options = "--taxonomy", folder / "merged.tsv", "--moves", folder / "merges.csv"
    assert run("convert", folder / "found.jsonl", folder / "moved.jsonl", *options).code == 0
    made = [json.loads(line) for line in (folder / "moved.jsonl").read_text().splitlines()]
    sweet = {"label": "sweet", "path": "food > sweet"}
    assert made[0] == {"id": "exclusive", "labels": [{**sweet, "p": 0.75}], "closed": True}
    assert made[1]["labels"] == [{**sweet, "p": 0.9375}]
    assert made[2]["labels"] == [sweet]
    assert made[3]["labels"] == [{"label": "food", "path": "food", "p": 0.75}, {**sweet, "p": 0.75}]
    assert made[4] == lines[4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--moves", "moves.tsv"], "--moves needs --taxonomy"),
        (["--old-taxonomy", "new.tsv"], "--old-taxonomy belongs to --moves"),
        (["--moves", "moves.tsv", "--taxonomy", "new.tsv", "--cut", "1"], "--cut and --moves cannot both change"),
        (["--moves", "merges.csv", "--taxonomy", "new.tsv"], "merges.csv:1: the new taxonomy has no such label: "),
        (["--moves", "gone.tsv", "--taxonomy", "new.tsv"], "gone.tsv: no such file"),
    ],
    ids=["taxonomy", "old", "cut", "wrong", "gone"],
)
def test_convert_says_what_is_missing(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    ended = run("convert", "train.jsonl", "out.jsonl", *arguments)
    assert ended.code == 2
    assert message in ended.err
    assert not (folder / "out.jsonl").exists()


def test_top_scores_stay_sparse(folder: Path, run: Run) -> None:
    scores = Scores(TREE, np.eye(len(TREE), dtype=np.float32)).coherent().top_k(3)
    scores.save(folder / "top.npz")
    options = "--taxonomy", folder / "new.tsv", "--moves", folder / "moves.tsv"
    assert run("convert", folder / "top.npz", folder / "moved.npz", *options).code == 0
    moved = Scores.load(folder / "moved.npz")
    assert moved.is_sparse
    assert moved.csr().nnz == scores.csr().nnz


def test_predictions_without_a_number_are_moved_as_they_are(tmp_path: Path, run: Run) -> None:
    (tmp_path / "old.tsv").write_text("path\npet > dog\npet > cat\n")
    (tmp_path / "new.tsv").write_text("path\npet > hound\npet > cat\n")
    (tmp_path / "moves.tsv").write_text("dog\thound\n")
    labels = ('{"label": "dog", "p": null}', '{"label": "dog", "p": "0.5"}')
    (tmp_path / "p.jsonl").write_text("".join(f'{{"id": "1", "labels": [{label}]}}\n' for label in labels))
    ended = run(
        *("convert", tmp_path / "p.jsonl", tmp_path / "q.jsonl", "--moves", tmp_path / "moves.tsv"),
        *("--taxonomy", tmp_path / "new.tsv", "--old-taxonomy", tmp_path / "old.tsv"),
    )
    assert ended.code == 0, ended.err
    moved = [json.loads(line)["labels"] for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    hound = {"label": "hound", "path": "pet > hound"}
    assert moved == [[hound], [{**hound, "p": 0.5}]]
