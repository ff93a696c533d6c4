"""A model judged on a file in one command, and read as its training data were: no option is said twice."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import Run, put
from treelabel import evaluate, load_model, make_model, read

PLACES = ["south", "north", "west", "east", "city", "coast"]
WORDS = {
    ("animal", "dog"): ["bark", "leash", "puppy", "bone"],
    ("animal", "cat"): ["purr", "whisker", "kitten", "mouse"],
    ("plant", "tree"): ["oak", "branch", "leaf", "forest"],
    ("plant", "moss"): ["damp", "rock", "spore", "shade"],
}


def write_rows(file: Path, seed: int, count: int, encoding: str = "cp1252", unseen: str | None = None) -> Path:
    rng = np.random.default_rng(seed)
    with file.open("w", newline="", encoding=encoding) as stream:
        writer = csv.writer(stream, delimiter=";")
        writer.writerow(["case", "remark", "kingdom", "kind", "place"])
        for row in range(count):
            kingdom, kind = list(WORDS)[rng.integers(4)]
            words = [*rng.choice(WORDS[kingdom, kind], 3), "für", str(rng.integers(1000))]
            kind = unseen if unseen is not None and row % 5 == 0 else kind
            writer.writerow([f"r{row}", " ".join(words), kingdom, kind, PLACES[rng.integers(6)]])
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("shop")
    write_rows(home / "train.csv", 0, 200)
    write_rows(home / "test.csv", 1, 60)
    write_rows(home / "unseen.csv", 2, 50, unseen="lichen")
    return home


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    how: dict[str, Any] = {"text": "remark", "labels": ["kingdom", "kind"], "encoding": "cp1252"}
    make_model("linear", ngram_range=(1, 1), char_ngram_range=None).fit(read(folder / "train.csv", **how)).save(
        folder / "model"
    )
    make_model("most_frequent").fit(read(folder / "train.csv", **how)).save(folder / "usual")
    return folder / "model"


def test_a_model_remembers_how_its_data_were_read(model: Path) -> None:
    loaded = load_model(model)
    assert loaded.reading_ == {
        "text": ["remark"],
        "labels": ["kingdom", "kind"],
        "id": ["case"],
        "encoding": "cp1252",
    }
    assert "für" not in (model / "model.json").read_text(encoding="utf-8")


def test_evaluate_takes_a_model_and_a_file(folder: Path, model: Path, run: Run) -> None:
    code, shown, _ = run("evaluate", str(model), str(folder / "test.csv"), "--json")
    assert code == 0
    stored = json.loads(shown)
    loaded = load_model(model)
    test = read(folder / "test.csv", text="remark", labels=["kingdom", "kind"], encoding="cp1252")
    expected = evaluate(
        test, scores=loaded.score(test), rule=loaded.default_rule, train_frequencies=loaded.profile_.frequencies
    )
    assert stored["values"]["hf1"] == expected["hf1"]
    assert stored["rule"] == loaded.default_rule
    exact = round(expected["subset_accuracy"] * 60)
    assert stored["coverage"]["exactly_right"] == exact
    code, shown, _ = run("evaluate", str(model), str(folder / "test.csv"))
    assert shown.startswith(f"{exact} of 60 exactly right")
    assert "in the right kingdom (level 1)" in shown.splitlines()[0]


def test_texts_that_a_model_learned_from_are_pointed_out(folder: Path, model: Path, run: Run) -> None:
    for command in (("evaluate", model), ("compare", model, folder / "usual")):
        shown = " ".join(run(*command, folder / "train.csv").err.split())
        assert "model learned from 200 of these 200 texts" in shown
    assert "usual learned from 200" in shown
    # Texts are drawn at random, so that both files may hold the same one.
    learned = set(read(folder / "train.csv", text="remark", labels="kind", encoding="cp1252").texts)
    test = list(read(folder / "test.csv", text="remark", labels="kind", encoding="cp1252").texts)
    count = sum(text in learned for text in test)
    shown = run("evaluate", model, folder / "test.csv").err
    assert (f"learned from {count} of these 60" in shown) == (count > 0)


def test_labels_that_training_never_saw_are_counted_and_named(folder: Path, model: Path, run: Run) -> None:
    code, shown, _ = run("evaluate", str(model), str(folder / "unseen.csv"))
    assert code == 0
    assert "10 of 50 documents" in shown
    assert "lichen'" in shown
    exact = int(shown.split(" of 50 exactly right")[0])
    assert exact <= 40


@pytest.mark.slow
def test_models_are_compared_and_reported_on_labels_that_training_never_saw(
    folder: Path, model: Path, run: Run, tmp_path: Path
) -> None:
    files = str(model), str(folder / "usual"), str(folder / "unseen.csv")
    alone = json.loads(run("evaluate", files[0], files[2], "--metrics", "hf1,macro_f1", "--json").out)["values"]
    code, shown, told = run("compare", *files, "--resamples", "20", "--json")
    assert code == 0, told
    compared = json.loads(shown)["metrics"]
    assert {name: compared[name]["model"]["value"] for name in alone} == pytest.approx(alone)
    assert "model: 2 labels of the truth (10 of 50 documents)" in run("compare", *files, "--resamples", "20").out
    pytest.importorskip("matplotlib")
    code, _, told = run("report", *files, "-o", str(tmp_path / "report.html"))
    assert code == 0, told
    assert "lichen" in (tmp_path / "report.html").read_text()


def test_what_stands_where_a_label_is_missing_is_no_label(run: Run, tmp_path: Path) -> None:
    rows = [("damp rock", "moss"), ("oak leaf", "tree"), ("bark bone", "n/a")] * 10
    for name, part in (("train.csv", rows), ("test.csv", rows[:9])):
        with (tmp_path / name).open("w", newline="") as stream:
            csv.writer(stream).writerows([("text", "label"), *part])
    assert run("fit", tmp_path / "train.csv", "-o", tmp_path / "model").code == 0
    code, shown, told = run("evaluate", tmp_path / "model", tmp_path / "test.csv", "--by-label")
    assert code == 0, told
    assert "'n/a' is taken for a missing one" in told
    assert "3 have no true label, so that any label is wrong" in shown.splitlines()[0]
    assert "not known" not in shown
    assert "n/a" not in shown
    (tmp_path / "foreign.csv").write_text("text,label\npurr,X\npurr,n/a\n")
    assert (
        "knows none of the 1 labels, such as 'X'" in run("evaluate", tmp_path / "model", tmp_path / "foreign.csv").err
    )


@pytest.mark.parametrize("command", ["predict", "score", "drift", "review"])
def test_other_commands_need_no_options_either(
    folder: Path, model: Path, run: Run, tmp_path: Path, command: str
) -> None:
    output = {"score": ["-o", str(tmp_path / "s.npz")], "review": ["-o", str(tmp_path / "queue.csv")]}
    code, shown, told = run(command, str(model), str(folder / "test.csv"), *output.get(command, []))
    assert code in (0, 3), told
    if command == "predict":
        assert json.loads(shown.splitlines()[0])["id"] == "r0"


def test_a_file_that_differs_is_read_by_guessing_and_it_is_said(
    folder: Path, model: Path, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "other.csv"
    file.write_text("text\npurr whisker\n")
    code, shown, told = run("predict", str(model), str(file))
    assert code == 0
    assert '"cat"' in shown
    assert "no column 'remark', which held the text when the model was trained" in told


def test_utf8_is_not_taken_for_another_encoding(model: Path, run: Run, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "new.csv", 3, 20, "utf-8")
    code, _, told = run("evaluate", str(model), str(file))
    assert code == 0
    assert "is UTF-8, not cp1252" in told


def test_foreign_labels_are_refused(model: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "foreign.csv"
    file.write_text("case;remark;kingdom;kind\n1;purr;X;Y\n")
    code, _, told = run("evaluate", str(model), str(file))
    assert code == 2
    assert "the model knows none of the 1 labels" in told


def test_models_are_compared_on_a_file(folder: Path, model: Path, run: Run) -> None:
    code, shown, told = run("compare", str(model), str(folder / "usual"), str(folder / "test.csv"), "--resamples", "50")
    assert code == 0, told
    assert shown.splitlines()[0].split() == ["model", "usual"]
    code, _, told = run("compare", str(model), str(folder / "usual"))
    assert code == 2
    assert "expected a data file with the true labels last" in told


def test_a_model_in_the_wrong_place_is_pointed_out(folder: Path, model: Path, run: Run, tmp_path: Path) -> None:
    test, none = str(folder / "test.csv"), str(tmp_path / "none")
    ended = run("evaluate", test, str(model))
    assert (ended.code, f"{model} is a model, which stands first" in ended.err) == (2, True)
    ended = run("report", none, test, "-o", str(tmp_path / "report.html"))
    assert (ended.code, f"{none}: no model folder" in ended.err) == (2, True)
    ended = run("evaluate", str(tmp_path), test)
    assert (ended.code, "a model is a folder with a model.json" in ended.err) == (2, True)


@pytest.mark.slow
def test_reports_take_models(folder: Path, model: Path, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "report.html"
    code, _, told = run("report", str(model), str(folder / "usual"), str(folder / "test.csv"), "-o", str(page))
    assert code == 0, told
    assert "exactly right" in page.read_text()


def test_update_says_better_or_worse_with_an_interval_and_labels(
    folder: Path, model: Path, run: Run, tmp_path: Path
) -> None:
    weak = write_rows(tmp_path / "weak.csv", 5, 24)
    reading = ["--labels", "kingdom,kind", "--encoding", "cp1252"]
    assert run("fit", str(weak), "-o", str(tmp_path / "weak"), *reading).code == 0
    files = [str(folder / "train.csv"), "-o", str(tmp_path / "new"), "--train", str(weak)]
    ended = run("update", str(tmp_path / "weak"), *files, "--compare", str(folder / "test.csv"))
    assert ended.code == 0, ended.err
    (line,) = [line for line in ended.out.splitlines() if "documents with labels the new model is" in line]
    assert line.startswith("on 60 documents with labels the new model is ")
    before, after = (evaluate_model(run, tmp_path / name, folder) for name in ("weak", "new"))
    assert f"hF1 {before:.4f} -> {after:.4f}, difference {after - before:+.4f} [" in line
    assert "next: treelabel evaluate" in ended.err
    assert "next: " not in run("update", str(tmp_path / "weak"), *files, "--force", "--quiet").err


def evaluate_model(run: Run, model: Path, folder: Path) -> float:
    stored = json.loads(run("evaluate", str(model), str(folder / "test.csv"), "--json").out)
    value: float = stored["values"]["hf1"]
    return value


def test_summaries_can_be_json(folder: Path, model: Path, run: Run, tmp_path: Path) -> None:
    output = tmp_path / "predictions.csv"
    stored = json.loads(run("predict", str(model), str(folder / "test.csv"), "-o", str(output), "--json").out)
    assert stored["documents"] == 60
    assert stored["written"] == str(output)
    fitted = json.loads(
        run(
            "fit",
            str(folder / "train.csv"),
            "-o",
            str(tmp_path / "m"),
            "--json",
            "--labels",
            "kind",
            "--encoding",
            "cp1252",
        ).out
    )
    assert fitted["documents"] == 200
    assert fitted["evidence"]["documents"] > 0


def test_models_are_compared_by_the_frequencies_that_they_counted(folder: Path, model: Path, run: Run) -> None:
    compared = ["compare", model, folder / "usual", folder / "test.csv", "--resamples", "9"]
    alone, with_file = run(*compared), run(*compared, "--train", folder / "train.csv")
    assert alone.code == with_file.code == 0
    assert "macro-F1 by frequency in training" in alone.out
    assert alone.out == with_file.out


def test_no_option_is_needed_for_cp1252(folder: Path, tmp_path: Path, run: Run) -> None:
    reading = ["--labels", "kingdom,kind"]
    code, _, told = run("inspect", folder / "train.csv", *reading)
    assert code == 0
    assert "train.csv: is not UTF-8, and was read as cp1252 (200 characters beyond ASCII, such as 'für')" in told
    assert "--encoding overrides" in told
    code, _, told = run("fit", folder / "train.csv", "-o", tmp_path / "model", "--model", "most_frequent", *reading)
    assert code == 0
    assert "read as cp1252" in told
    assert load_model(tmp_path / "model").reading_["encoding"] == "cp1252"
    # The model remembers it, so nothing is said.
    code, _, told = run("predict", tmp_path / "model", folder / "test.csv", "-o", tmp_path / "p.csv", "--keep-columns")
    assert code == 0
    assert "cp1252" not in told
    assert "für" in (tmp_path / "p.csv").read_text(encoding="utf-8")


def test_files_of_a_command_may_be_encoded_differently(folder: Path, tmp_path: Path, run: Run) -> None:
    in_utf8 = write_rows(tmp_path / "train.csv", 0, 100, "utf-8")
    reading = ["--labels", "kingdom,kind"]
    assert run("fit", in_utf8, "-o", tmp_path / "model", "--model", "most_frequent", *reading).code == 0
    code, _, told = run(
        *("update", tmp_path / "model", folder / "test.csv", "-o", tmp_path / "newer"),
        *("--train", in_utf8, "--save-train", tmp_path / "all.jsonl"),
    )
    assert code == 0, told
    assert "test.csv: is not UTF-8, and was read as cp1252" in told
    assert (tmp_path / "all.jsonl").read_text(encoding="utf-8").count("für") == 160
    # Read as one, both must have one encoding.
    code, _, told = run("inspect", folder / "test.csv", "--train", in_utf8, *reading)
    assert code == 2
    assert "name its encoding (--encoding cp1252" in told


def test_what_is_not_clearly_cp1252_is_refused_with_the_option(tmp_path: Path, run: Run) -> None:
    rows = "".join(f"{text},{label}\n" for text, label in [("Привет как дела", "x"), ("Хорошо", "y")] * 5)
    file = tmp_path / "d.csv"
    file.write_bytes(f"text,label\n{rows}".encode("cp1251"))
    ended = run("inspect", file)
    assert ended.code == 2
    assert "is not utf-8; save the file as UTF-8, or name its encoding" in ended.err
    assert run("inspect", file, "--encoding", "cp1251").code == 0


def test_of_several_columns_that_may_hold_the_text_none_is_guessed_for_a_model(run: Run, tmp_path: Path) -> None:
    rows = [
        f"the parcel number {row} came late again,please look at order {row} in the system soon" for row in range(9)
    ]
    new = put(tmp_path, "new.csv", "message,internal note\n" + "\n".join(rows) + "\n")
    train = put(tmp_path, "train.csv", "text,label\n" + "a late parcel,A\na wrong bill,B\n" * 9)
    assert run("fit", train, "-o", tmp_path / "made", "--model", "most_frequent").code == 0
    ended = run("predict", tmp_path / "made", new)
    assert ended.code == 2
    assert "has no column 'text', which the model learned from, and several" in ended.err
    assert "'message', 'internal note'; say which" in ended.err
    assert run("predict", tmp_path / "made", new, "--text", "message").code == 0


def test_a_file_without_labels_is_no_truth(folder: Path, model: Path, run: Run, tmp_path: Path) -> None:
    rows = (folder / "test.csv").read_text(encoding="cp1252").splitlines()
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(";".join(row.split(";")[:2]) for row in rows), encoding="cp1252")
    for command in (["evaluate", model, bare], ["compare", model, folder / "usual", bare], ["report", model, bare]):
        ended = run(*command, *(["-o", tmp_path / "page.html"] if command[0] == "report" else []))
        assert ended.code == 2, ended.out
        assert "none of the 60 documents has a label" in ended.err
    assert not (tmp_path / "page.html").exists()
