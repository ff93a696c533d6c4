"""Training and test data as separate files without a taxonomy, and tables that predict wrote, are judged."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import Run
from treelabel import Scores, make_model, read, save_model


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="") as stream_:
        csv.writer(stream_).writerows([["id", "text", "category"], *rows])
    return path


@pytest.fixture
def separate(tmp_path: Path) -> Path:
    """Make training and test files of paths, a model of the first, and its scores and predictions of the second."""
    words = {"A > x": "apple pear", "A > y": "melon grape", "B > z": "car truck", "B > w": "bus tram"}
    rows = [[f"n{at}", f"{words[label]} {at}", label] for at, label in enumerate(list(words) * 6)]
    write_csv(tmp_path / "train.csv", rows)
    tested = [("apple pear", "A > x"), ("car truck", "B > new"), ("melon grape", "A > y"), ("bus tram", "B > w")]
    write_csv(tmp_path / "test.csv", [[f"t{at}", *row] for at, row in enumerate(tested)])
    model = make_model("linear", seed=0).fit(read(tmp_path / "train.csv"))
    scores = model.score([text for text, _ in tested])
    Scores(scores.hierarchy, scores.values, ("t0", "t1", "t2", "t3")).save(tmp_path / "scores.npz")
    save_model(model, tmp_path / "model")
    return tmp_path


@pytest.mark.filterwarnings("default:.*not known to the scores")
@pytest.mark.slow
def test_scores_of_a_model_are_judged_by_a_test_file_of_its_own(separate: Path, run: Run) -> None:
    truth, scores, train = separate / "test.csv", separate / "scores.npz", separate / "train.csv"
    asked = "--metrics", "hf1,micro_f1,macro_f1", "--rule", "best_leaf"
    for more in ((), ("--train", train)):
        ended = run("evaluate", truth, scores, *asked, *more)
        assert ended.code == 0
        assert ended.err.startswith("next: treelabel report --truth ")
        assert "1 label of the truth (1 of 4 documents) is not known to the scores, which are 0 there: 'B > new'" in (
            ended.out
        )
        values = run("evaluate", truth, scores, *asked, *more, "--json").json["values"]
        # By hand: of A, B, x, y, z, w and new all but z and new have F1 1.
        assert values == pytest.approx({"hf1": 3.5 / 4, "micro_f1": 7 / 8, "macro_f1": 5 / 7})
    run("decide", scores, "-o", separate / "found.jsonl", "--rule", "best_leaf")
    compared = run("compare", truth, scores, separate / "found.jsonl", "--train", train, *asked)
    assert "scores.npz: 1 label of the truth" in compared.out
    assert run("report", "--truth", truth, "--scores", scores, "--train", train, "-o", separate / "r.html").code == 0
    assert "B &gt; new" in (separate / "r.html").read_text()
    tuned = run("tune", truth, scores, "-o", separate / "tuned.json", "--rule", "micro_f1")
    assert "not known to the scores, so that no rule can predict them: 'B > new'" in tuned.err
    assert run("evaluate", truth, scores, "--rule", separate / "tuned.json").code == 0


def test_predictions_of_labels_that_the_truth_does_not_have_are_taken_along(separate: Path, run: Run) -> None:
    for name in ("found.jsonl", "found.csv", "found.parquet"):
        run("predict", separate / "model", separate / "test.csv", "-o", separate / name, "--rule", "best_leaf")
        asked = "--metrics", "hf1,macro_f1,constrained_micro_f1", "--json"
        ended = run("evaluate", separate / "test.csv", separate / name, *asked)
        assert "1 predicted label is not among those of the truth: 'B > z'" in ended.err
        values = ended.json["values"]
        assert values == pytest.approx({"hf1": 3.5 / 4, "macro_f1": 5 / 7, "constrained_micro_f1": 7 / 8})
    wrong = write_lines(separate / "wrong.jsonl", [{"id": "t0", "labels": ["nothing"]}])
    assert "unknown label 'nothing'" in run("evaluate", separate / "test.csv", wrong).err


def test_scores_of_another_taxonomy_are_refused(separate: Path, run: Run) -> None:
    (separate / "tax.tsv").write_text("Root\tA\nRoot\tB\nB\tx\nA\ty\nA\tz\nB\tw\nB\tnew\n")
    for command in ("evaluate", "compare"):
        files = [separate / "scores.npz"] * (1 if command == "evaluate" else 2)
        ended = run(command, separate / "test.csv", *files, "--taxonomy", separate / "tax.tsv")
        assert ended.code == 2


@pytest.mark.parametrize("options", [[], ["--keep-columns"]])
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_own_tables_are_read_whatever_separates_labels_of_the_truth(
    separate: Path, run: Run, ending: str, options: list[str]
) -> None:
    truth = write_csv(separate / "several.csv", [["t0", "apple car", "A > x|B > z"], ["t1", "bus tram", "B > w"]])
    found = separate / f"found.{ending}"
    ask = "predict", separate / "model", truth, "--rule", "threshold@0.01", "-o"
    run(*ask, found, *options)
    run(*ask, separate / "found.jsonl")
    asked = "--label-sep", "|", "--metrics", "hf1,micro_f1,constrained_micro_f1", "--json"
    lines = run("evaluate", truth, separate / "found.jsonl", *asked).json["values"]
    assert run("evaluate", truth, found, *asked).json["values"] == lines
    assert lines["constrained_micro_f1"] == lines["micro_f1"] > 0


def test_several_labels_of_a_cell_are_told_from_an_unknown_label(separate: Path, run: Run) -> None:
    truth = write_csv(separate / "several.csv", [["t0", "apple car", "A > x|B > z"], ["t1", "bus tram", "B > w"]])
    (separate / "other.csv").write_text("id,labels\nt0,A > x;B > z\nt1,B > w\n")
    told = run("evaluate", truth, separate / "other.csv", "--label-sep", "|").err
    assert "these are several labels with ';' between them; say so (--label-sep ';')" in told
