"""evaluate: both files in batches, closed predictions, the table of labels, the wrong documents, skipped metrics."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import Run
from treelabel import Dataset, Hierarchy, Scores, evaluate, write
from treelabel.data import data_file
from treelabel.evaluation import streaming
from treelabel.scores import stream as score_stream
from treelabel.scores.stream import ScoreFile

TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])
LEAVES = ["F", "D", "E"]
SIZE = 100


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def drawn(seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[LEAVES[rng.integers(3)]] if rng.random() < 0.9 else [] for _ in range(SIZE)]


TRUTH, FOUND = drawn(0), drawn(1)
IDS = [f"d{row}" for row in range(SIZE)]


def scores(ids: tuple[str, ...] | None = tuple(IDS)) -> Scores:
    leaves = np.random.default_rng(2).dirichlet(np.ones(3), SIZE)
    return Scores.from_leaves(TREE, LEAVES, leaves, ids)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a taxonomy, a truth with texts, training data and a prediction."""
    (tmp_path / "taxonomy.tsv").write_text("".join(f"{above}\t{below}\n" for above, below in TREE.edges("Root")))
    write(Dataset.of([f"text {row}" for row in range(SIZE)], TRUTH, TREE, IDS), tmp_path / "truth.csv", taxonomy=False)
    write(Dataset.of(["x"] * SIZE, drawn(3), TREE, IDS), tmp_path / "train.jsonl", taxonomy=False)
    rows = [
        {"id": name, "labels": [{"label": one, "p": 0.5} for one in row]} for name, row in zip(IDS, FOUND, strict=True)
    ]
    write_lines(tmp_path / "found.jsonl", rows)
    return tmp_path


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read seven documents at a time, and refuse to hold them all."""
    whole = data_file.DataFile.batches
    monkeypatch.setattr(data_file.DataFile, "batches", lambda self, h, size=7, **more: whole(self, h, 7, **more))
    read = score_stream.ScoreFile.batches
    monkeypatch.setattr(score_stream.ScoreFile, "batches", lambda self, size=7: read(self, 7))


def refuse(*_: Any) -> None:
    raise AssertionError("the predictions were held in memory")


@pytest.mark.parametrize("metrics", ["all", "hf1,micro_f1,level_accuracy,icm"])
@pytest.mark.usefixtures("small_batches")
def test_batches_of_seven_give_the_bits_of_the_whole(
    folder: Path, run: Run, metrics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_match_by_id", refuse)
    names = metrics if metrics == "all" else metrics.split(",")
    for train in (None, Dataset.of(["x"] * SIZE, drawn(3), TREE)):
        whole = evaluate(Dataset.of([""] * SIZE, TRUTH, TREE), FOUND, metrics=names, train_frequencies=train)
        more = [] if train is None else ["--train", folder / "train.jsonl"]
        found = run(
            "evaluate", folder / "truth.csv", folder / "found.jsonl", "--metrics", metrics, "--json", *more
        ).json
        assert {name: value for name, value in found.items() if name != "skipped"} == {
            name: value for name, value in json.loads(whole.to_json()).items() if name != "skipped"
        }


@pytest.mark.parametrize("kind", ["dense.npz", "dense.parquet", "sparse.npz", "sparse.parquet"])
@pytest.mark.usefixtures("small_batches")
def test_scores_in_batches_are_decided_and_judged_as_the_whole(
    folder: Path, run: Run, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_match_by_id", refuse)
    given = scores() if kind.startswith("dense") else scores().top_k(3)
    given.save(folder / kind)
    whole = evaluate(Dataset.of([""] * SIZE, TRUTH, TREE, IDS), scores=given, metrics=["hf1", "hf1_auc", "precision@2"])
    asked = "evaluate", folder / "truth.csv", folder / kind, "--metrics", "hf1,hf1_auc,precision@2", "--json"
    assert run(*asked).json == json.loads(whole.to_json())
    ends = {name: [found.low, found.high] for name, found in whole.intervals().items()}
    assert run(*asked, "--intervals").json["intervals"] == ends


@pytest.mark.usefixtures("small_batches")
def test_other_orders_are_matched_by_id_all_the_same(folder: Path, run: Run) -> None:
    expected = run("evaluate", folder / "truth.csv", folder / "found.jsonl", "--json").json
    lines = (folder / "found.jsonl").read_text().splitlines()
    (folder / "turned.jsonl").write_text("\n".join([*reversed(lines), '{"id": "more", "labels": ["F"]}']) + "\n")
    assert run("evaluate", folder / "truth.csv", folder / "turned.jsonl", "--json").json == expected
    order = np.random.default_rng(0).permutation(SIZE)
    scores().save(folder / "s.npz")
    scores()[order].save(folder / "t.parquet")
    one, two = (run("evaluate", folder / "truth.csv", folder / name, "--json").json for name in ("s.npz", "t.parquet"))
    assert one == two


@pytest.mark.usefixtures("small_batches")
def test_documents_that_are_missing_are_named(folder: Path, run: Run) -> None:
    lines = (folder / "found.jsonl").read_text().splitlines()
    (folder / "short.jsonl").write_text("\n".join(lines[:90]) + "\n")
    ended = run("evaluate", folder / "truth.csv", folder / "short.jsonl")
    assert ended.code == 2
    assert "no prediction for 10 of 100 documents: ids 'd90'" in ended.err
    scores(None)[:90].save(folder / "short.npz")
    assert "90 rows without ids for 100 documents" in run("evaluate", folder / "truth.csv", folder / "short.npz").err


def test_the_hierarchy_may_be_made_of_the_labels_of_both_files(tmp_path: Path, run: Run) -> None:
    write_lines(tmp_path / "t.jsonl", [{"id": "a", "labels": ["A > B"]}, {"id": "b", "labels": ["A > C"]}])
    write_lines(tmp_path / "train.jsonl", [{"id": "c", "text": "x", "labels": ["A > D"]}])
    write_lines(tmp_path / "p.jsonl", [{"id": "a", "labels": ["A > B"]}, {"id": "b", "labels": ["A > D"]}])
    found = run(
        "evaluate", tmp_path / "t.jsonl", tmp_path / "p.jsonl", "--train", tmp_path / "train.jsonl", "--json"
    ).json
    assert found["values"]["hf1"] == 0.75
    assert found["fingerprint"] == Hierarchy.from_paths(["A > B", "A > C", "A > D"]).fingerprint


# Closed predictions


def test_closed_predictions_stand_for_their_ancestors(folder: Path, run: Run) -> None:
    rows = [{"id": name, "labels": row} for name, row in zip(IDS, TRUTH, strict=True)]
    asked = "--metrics", "constrained_micro_f1", "--json"
    found = write_lines(folder / "open.jsonl", rows)
    assert run("evaluate", folder / "truth.csv", found, *asked).json["values"]["constrained_micro_f1"] == 0
    found = write_lines(folder / "closed.jsonl", [row | {"closed": True} for row in rows])
    assert run("evaluate", folder / "truth.csv", found, *asked).json["values"]["constrained_micro_f1"] == 1
    half = write_lines(folder / "half.jsonl", [row | {"closed": at < SIZE // 2} for at, row in enumerate(rows)])
    value = run("evaluate", folder / "truth.csv", half, *asked).json["values"]["constrained_micro_f1"]
    assert 0.3 < value < 0.9
    compared = run("compare", folder / "truth.csv", folder / "open.jsonl", folder / "closed.jsonl", *asked).json
    assert "1.0" in json.dumps(compared)
    with (folder / "closed.csv").open("w", newline="") as stream_:
        csv.writer(stream_).writerows(
            [["id", "labels", "closed"], *([n, ";".join(r), "True"] for n, r in zip(IDS, TRUTH, strict=True))]
        )
    assert run("evaluate", folder / "truth.csv", folder / "closed.csv", *asked).json["values"] == {
        "constrained_micro_f1": 1
    }


def test_labels_without_their_ancestors_are_never_wrong_without_a_word(folder: Path, run: Run) -> None:
    rows = [{"id": name, "labels": row} for name, row in zip(IDS, TRUTH, strict=True)]
    found = write_lines(folder / "open.jsonl", rows)
    ended = run("evaluate", folder / "truth.csv", found, "--metrics", "constrained_micro_f1,micro_f1")
    assert "documents have predicted labels without their ancestors, which constrained F1 counts as wrong" in ended.out
    told = run("evaluate", folder / "truth.csv", found, "--metrics", "micro_f1").out
    assert "ancestors" not in told
    stored = run("evaluate", folder / "truth.csv", found, "--metrics", "constrained_micro_f1", "--json").json
    assert "ancestors" in stored["remarks"][0]


# By label, and document by document


def test_the_table_of_labels_is_printed_and_written(folder: Path, run: Run) -> None:
    files = folder / "truth.csv", folder / "found.jsonl", "--train", folder / "train.jsonl"
    ended = run("evaluate", *files, "--by-label", "--by-label-output", folder / "labels.csv")
    assert "most confused with" in ended.out
    assert f"{folder / 'labels.csv'}: 6 labels, worst first" in ended.out
    with (folder / "labels.csv").open(newline="") as stream_:
        rows = list(csv.DictReader(stream_))
    assert len(rows) == 6
    wrong = [int(row["missed"]) + int(row["wrong"]) for row in rows]
    assert wrong == sorted(wrong, reverse=True)
    table = evaluate(TRUTH, FOUND, hierarchy=TREE).labels.to_pylist()
    by_name = {TREE.paths([at])[0]: row for at, row in enumerate(table)}
    for row in rows:
        assert float(row["f1"]) == by_name[row["label"]]["f1"]
        assert int(row["true"]) == by_name[row["label"]]["true"]
    stored = run("evaluate", *files, "--by-label", "--json").json["labels"]
    assert [row["label"] for row in stored] == [row["label"] for row in rows]
    run("evaluate", *files, "--by-label-output", folder / "labels.json")
    assert json.loads((folder / "labels.json").read_text()) == stored


def test_wrong_documents_are_written_worst_first(folder: Path, run: Run) -> None:
    for name in ("errors.csv", "errors.jsonl", "errors.json", "errors.parquet", "errors.tsv.gz"):
        ended = run("evaluate", folder / "truth.csv", folder / "found.jsonl", "--errors", folder / name)
        assert ended.code == 0
        assert f"{folder / name}: " in ended.out
        assert (folder / name).stat().st_size > 0
    rows = [json.loads(line) for line in (folder / "errors.jsonl").read_text().splitlines()]
    differ = [at for at in range(SIZE) if TRUTH[at] != FOUND[at]]
    assert {row["id"] for row in rows} == {IDS[at] for at in differ}
    assert [row["distance"] for row in rows] == sorted((row["distance"] for row in rows), reverse=True)
    first = rows[0]
    at = IDS.index(first["id"])
    assert first["text"] == f"text {at}"
    assert first["true"] == [TREE.paths([TREE.names.index(name)])[0] for name in TRUTH[at]]
    assert first["p"] in (0.5, None)
    assert "documents are wrong" in ended.out
    with (folder / "errors.csv").open(newline="") as stream_:
        cells = next(csv.DictReader(stream_))
    assert cells["true"] == first["true"][0]


def test_probabilities_of_wrong_documents_come_from_scores(folder: Path, run: Run) -> None:
    scores().save(folder / "s.npz")
    run("evaluate", folder / "truth.csv", folder / "s.npz", "--metrics", "hf1_auc", "--errors", folder / "e.jsonl")
    first = json.loads((folder / "e.jsonl").read_text().splitlines()[0])
    at = IDS.index(first["id"])
    node = TREE.names.index(first["predicted"][0].rpartition(" > ")[2])
    assert first["p"] == pytest.approx(float(scores().values[at, node]))


def test_cells_that_a_spreadsheet_would_run_are_escaped(tmp_path: Path, run: Run) -> None:
    write_lines(
        tmp_path / "t.jsonl", [{"id": "a", "text": "=1+1", "labels": ["A"]}, {"id": "b", "text": "x", "labels": ["B"]}]
    )
    write_lines(tmp_path / "p.jsonl", [{"id": "a", "labels": ["B"]}, {"id": "b", "labels": ["A"]}])
    run("evaluate", tmp_path / "t.jsonl", tmp_path / "p.jsonl", "--errors", tmp_path / "e.csv")
    assert "'=1+1" in (tmp_path / "e.csv").read_text()


def test_names_of_outputs_are_refused_before_any_work(folder: Path, run: Run) -> None:
    files = folder / "truth.csv", folder / "found.jsonl"
    for option in ("--errors", "--by-label-output"):
        assert "one of these endings" in run("evaluate", *files, option, folder / "x.doc").err
        assert "choose another output" in run("evaluate", *files, option, folder / "truth.csv").err
        assert "does not exist" in run("evaluate", *files, option, folder / "no" / "x.csv").err


# Metrics that do not apply


def test_a_metric_that_cannot_apply_is_skipped_and_the_reason_is_printed(folder: Path, run: Run) -> None:
    files = folder / "truth.csv", folder / "found.jsonl"
    ended = run("evaluate", *files, "--metrics", "hf1,hf1_auc")
    assert ended.code == 0
    assert ended.out.splitlines()[2].split()[0] == "hf1"
    assert "Skipped hf1_auc: this metric needs scores" in ended.out
    only = run("evaluate", *files, "--metrics", "hf1_auc,ece")
    assert only.code == 2
    assert "none of the metrics applies" in only.err
    assert run("evaluate", *files, "--metrics", "hf1,no_such").code == 2


# Score files


@pytest.mark.parametrize("names", [None, ("a", 'b"\\', "ü\n", "")])
@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("top", [None, 2])
def test_score_files_in_batches_hold_what_was_saved(
    tmp_path: Path, names: tuple[str, ...] | None, ending: str, top: int | None
) -> None:
    given = scores(None)[:4] if names is None else Scores(TREE, scores(None).values[:4], names)
    given = given if top is None else given.top_k(top)
    given.save(tmp_path / f"s.{ending}")
    file = ScoreFile(tmp_path / f"s.{ending}")
    assert file.hierarchy == TREE
    for size in (1, 3, 9, None):
        parts = list(file.batches(size))
        assert [len(part) for part in parts] == {1: [1] * 4, 3: [3, 1]}.get(size or 0, [4])
        assert (np.concatenate([part.dense() for part in parts]) == given.dense()).all()
        assert [name for part in parts for name in part.ids or ()] == list(names or ())


def test_columns_first_and_compressed_score_files_are_read(tmp_path: Path) -> None:
    given = scores()
    given.save(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz") as stored:
        arrays = dict(stored)
    np.savez_compressed(tmp_path / "c.npz", **arrays)
    np.savez(tmp_path / "f.npz", **(arrays | {"values": np.asfortranarray(arrays["values"])}))
    for name in ("c.npz", "f.npz"):
        parts = list(ScoreFile(tmp_path / name).batches(7))
        assert (np.concatenate([part.dense() for part in parts]) == given.dense()).all()


def test_damaged_score_files_are_one_sentence(tmp_path: Path, run: Run, folder: Path) -> None:
    scores().save(tmp_path / "s.npz")
    with np.load(tmp_path / "s.npz") as stored:
        arrays = dict(stored)
    np.savez(tmp_path / "ids.npz", **(arrays | {"ids": np.frombuffer(b'["a", 3]', np.uint8)}))
    np.savez(tmp_path / "few.npz", **(arrays | {"ids": np.frombuffer(b'["a"]', np.uint8)}))
    (tmp_path / "no.npz").write_bytes(b"nothing")
    for name in ("ids.npz", "few.npz", "no.npz"):
        ended = run("evaluate", folder / "truth.csv", tmp_path / name)
        assert ended.code == 2
        assert name in ended.err
        assert "Traceback" not in ended.err


def test_predictions_beside_the_true_labels_are_not_taken_for_the_truth(tmp_path: Path, run: Run) -> None:
    """A table of predict --keep-columns has the labels of its input, too, which would be right in every row."""
    (tmp_path / "truth.csv").write_text("id,text,label\n1,a,A > B\n2,b,A > C\n")
    (tmp_path / "wrong.csv").write_text(
        "id,text,label,predicted,path,p\n1,a,A > B,C,A > C,0.9\n2,b,A > C,B,A > B,0.8\n"
    )
    (tmp_path / "other.csv").write_text((tmp_path / "wrong.csv").read_text())
    for command in ("evaluate", "compare"):
        files = ["wrong.csv", "other.csv"] if command == "compare" else ["wrong.csv"]
        ended = run(command, tmp_path / "truth.csv", *(tmp_path / file for file in files), "--metrics", "leaf_accuracy")
        assert ended.code == 0, ended.err
        assert "0.0000" in ended.out
