"""The command report and fit --report: what they write, how they match documents, what they refuse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import Run
from treelabel import Dataset, Hierarchy, Scores, write

TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])
TRUTH = {"a": ["F"], "b": ["E"], "c": ["D"], "d": ["F"]}
FOUND = {"d": [], "a": ["F"], "b": ["B"], "c": ["C"]}


def write_lines(path: Path, labels: dict[str, list[str]], **more: Any) -> Path:
    rows = [{"id": name, "labels": given, **more} for name, given in labels.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a taxonomy, a truth with texts, predictions and scores."""
    (tmp_path / "taxonomy.tsv").write_text("".join(f"{above}\t{below}\n" for above, below in TREE.edges("Root")))
    write_lines(tmp_path / "truth.jsonl", TRUTH, text="a text of mine")
    write_lines(tmp_path / "found.jsonl", FOUND)
    values = np.random.default_rng(0).random((4, len(TREE)))
    for name, seed in (("one", 0), ("two", 1)):
        rng = np.random.default_rng(seed)
        Scores(TREE, rng.random(values.shape), ids=tuple("dcba")).coherent().save(tmp_path / f"{name}.npz")
    return tmp_path


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_a_report_of_predictions_matched_by_id(folder: Path, run: Run) -> None:
    target = folder / "report.html"
    ended = run("report", "--truth", folder / "truth.jsonl", "--predictions", folder / "found.jsonl", "-o", target)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"{target}: 0.")
    assert ended.out.endswith("MB, open it in a browser\n")
    page = page_of(folder)
    assert "<strong>found.jsonl</strong>" in page
    # Only the document a is exactly right; hf1 is as evaluate has it.
    assert '<p class="value">0.250</p>' in page
    assert '<p class="value">0.542</p>' in page
    assert "a text of mine" in page


@pytest.mark.slow
def test_scores_can_be_listed_behind_one_option(folder: Path, run: Run) -> None:
    arguments = ["report", "--truth", folder / "truth.jsonl", "--scores", folder / "one.npz", folder / "two.npz"]
    arguments += ["--predictions", folder / "found.jsonl", "--train", folder / "truth.jsonl", "--title", "Three"]
    ended = run(*arguments, "--rule", "threshold@0.5", "--figures", folder / "figures", "-o", folder / "report.html")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(f"; figures in {folder / 'figures'}\n")
    page = page_of(folder)
    assert "<title>Three</title>" in page
    assert page.index(">one.npz<") < page.index(">two.npz<") < page.index(">found.jsonl<")
    assert "the difference to one.npz" in page
    assert "threshold@0.5" in page
    assert (folder / "figures" / "precision-recall.pdf").exists()


def test_texts_can_be_left_out(folder: Path, run: Run) -> None:
    arguments = ["report", "--truth", folder / "truth.jsonl", "--scores", folder / "one.npz"]
    assert run(*arguments, "--no-texts", "-o", folder / "report.html").code == 0
    assert "a text of mine" not in page_of(folder)


def test_a_truth_without_texts_will_do(folder: Path, run: Run) -> None:
    write_lines(folder / "bare.jsonl", TRUTH)
    ended = run(
        "report", "--truth", folder / "bare.jsonl", "--scores", folder / "one.npz", "-o", folder / "report.html"
    )
    assert (ended.code, ended.err) == (0, "")
    assert "<blockquote>" not in page_of(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scores", "one.npz"], "expected the folder of a study, or --truth FILE with --scores or --predictions"),
        (["--truth", "truth.jsonl"], "nothing to report on: name the systems by --scores FILE or --predictions FILE"),
        (["--truth", "trut.jsonl", "--scores", "one.npz"], "trut.jsonl: no such file"),
        (["--truth", "truth.jsonl", "--scores", "onne.npz"], "onne.npz: no such file"),
        (["--truth", "truth.jsonl", "--scores", "found.jsonl"], "found.jsonl: is no file of scores"),
        (["--truth", "empty.jsonl", "--scores", "one.npz"], "empty.jsonl"),
        (["--truth", "truth.jsonl", "--predictions", "empty.jsonl"], "empty.jsonl"),
        (
            ["--truth", "truth.jsonl", "--predictions", "other.jsonl"],
            "no prediction for 4 of 4 documents: ids 'a', 'b'",
        ),
        (["--truth", "truth.jsonl", "--scores", "one.npz", "one.npz"], "the same file stands twice"),
        (["--truth", "truth.jsonl", "--scores", "one.npz", "--rule", "optimal:hf2"], "optimal:hf2"),
    ],
)
def test_mistakes_are_one_sentence(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "empty.jsonl").write_text("")
    write_lines(folder / "other.jsonl", {"x": ["F"], "y": ["F"]})
    ended = run("report", *arguments, "-o", "report.html")
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert not (folder / "report.html").exists()


def test_inputs_are_not_replaced(folder: Path, run: Run) -> None:
    ended = run(
        "report", "--truth", folder / "truth.jsonl", "--scores", folder / "one.npz", "-o", folder / "truth.jsonl"
    )
    assert ended.code == 2
    assert "is what is to be read" in ended.err


# fit --report


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """Write documents that are easy to learn, in groups of five."""
    words = {"F": "fish water", "D": "dog bark", "E": "elephant trunk"}
    rows = [(name, f"{word} {at}") for at in range(40) for name, word in words.items()]
    groups = [f"group {at // 5}" for at in range(len(rows))]
    data = Dataset.of([text for _, text in rows], [[name] for name, _ in rows], TREE, groups=groups)
    write(data, tmp_path / "train.jsonl")
    return tmp_path / "train.jsonl"


@pytest.mark.parametrize("group", [None, "group"])
@pytest.mark.slow
def test_fit_reports_documents_that_were_not_learned(train: Path, run: Run, group: str | None) -> None:
    folder = train.parent
    grouped = [] if group is None else ["--group", group]
    ended = run("fit", train, "-o", folder / "model", "--report", folder / "report.html", *grouped)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1].startswith(f"{folder / 'report.html'}: ")
    assert (folder / "model").is_dir()
    page = page_of(folder)
    whole = ", whole groups of them," if group else ""
    held = 25 if group else 24
    assert f"These {held} documents were drawn at random{whole} from the 120 training documents." in page
    assert f"learned from the other {120 - held}; the saved one learned from all." in page
    assert f"{held} documents, 6 labels" in page


def test_fit_refuses_a_report_that_could_not_be_written_before_it_learns(train: Path, run: Run) -> None:
    folder = train.parent
    for target, message in (
        (folder, "is a folder"),
        (folder / "no" / "r.html", "does not exist; make it first"),
        (train, "is what is to be read"),
    ):
        ended = run("fit", train, "-o", folder / "model", "--report", target)
        assert ended.code == 2
        assert message in ended.err
        assert not (folder / "model").exists()


def test_too_few_documents_for_a_report_do_not_cost_the_model(tmp_path: Path, run: Run) -> None:
    write(Dataset.of(["a", "b"] * 4, [["F"], ["E"]] * 4, TREE), tmp_path / "few.jsonl")
    ended = run("fit", tmp_path / "few.jsonl", "-o", tmp_path / "model", "--report", tmp_path / "report.html")
    assert ended.code == 2
    assert "8 documents are too few to hold any out for a report; the model was saved" in ended.err
    assert (tmp_path / "model").is_dir()


def altered(folder: Path, **arrays: Any) -> None:
    with np.load(folder / "one.npz") as stored:
        np.savez(folder / "wrong.npz", **{**stored, **arrays})


OTHER = Hierarchy.from_paths(["A > C > F", "A > D", "B > G"])
WRONG_FILES: dict[str, tuple[Callable[[Path, Any], Any], str]] = {
    "no number": (lambda folder, p: altered(folder, values=np.where(p == p.max(), np.nan, p)), "score nan is not a"),
    "endless": (lambda folder, p: altered(folder, values=np.where(p == p.max(), np.inf, p)), "score inf is not a"),
    "beyond 1": (lambda folder, p: altered(folder, values=p + 2), "is not a probability in [0, 1]"),
    "rows that ids lack": (lambda folder, p: altered(folder, values=p[:3]), "do not fit 6 nodes and 4 ids"),
    "other labels": (lambda folder, p: Scores(OTHER, p, tuple("dcba")).save(folder / "wrong.npz"), "another hierarchy"),
    "few rows": (lambda folder, p: Scores(TREE, p[:3]).save(folder / "wrong.npz"), "3 rows without ids for 4"),
    "no rows": (lambda folder, p: Scores(TREE, p[:0]).save(folder / "wrong.npz"), "0 rows without ids for 4"),
    "half": (lambda folder, p: (folder / "wrong.npz").write_bytes((folder / "one.npz").read_bytes()[:300]), "damaged"),
    "nothing": (lambda folder, p: (folder / "wrong.npz").write_bytes(b""), "damaged"),
}


@pytest.mark.parametrize("kind", WRONG_FILES)
def test_wrong_scores_are_told_with_their_file_and_leave_the_old_report(folder: Path, run: Run, kind: str) -> None:
    make, told = WRONG_FILES[kind]
    make(folder, Scores.load(folder / "one.npz").dense())
    (folder / "report.html").write_text("old")
    arguments = ["--scores", folder / "one.npz", folder / "wrong.npz", "-o", folder / "report.html"]
    ended = run("report", "--truth", folder / "truth.jsonl", *arguments, "--figures", folder / "figures", "--force")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"treelabel: {folder / 'wrong.npz'}")
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1
    assert page_of(folder) == "old"
    assert not (folder / "figures").exists()
