"""The commands of models: fit, score, predict, explain."""

import json
from pathlib import Path

import pytest

from tests.helpers import Run
from tests.models.test_models import SETS
from treelabel import Scores, load_model, make_model, write
from treelabel.models.check import TREE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(SETS["leaf"], tmp_path / "train.jsonl")
    return tmp_path


@pytest.fixture
def fitted(folder: Path, run: Run) -> Path:
    ended = run(
        "fit", folder / "train.jsonl", "-o", folder / "model", "--set", "C=2", "--set", "char_ngram_range=(2, 3)"
    )
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{folder / 'model'}: linear, 49 documents, 8 nodes, ")
    return folder


def test_fit_learns_what_the_library_learns(fitted: Path) -> None:
    loaded = load_model(fitted / "model")
    assert loaded.get_params()["char_ngram_range"] == (2, 3)
    direct = make_model("linear", C=2, char_ngram_range=(2, 3)).fit(SETS["leaf"])
    texts = list(SETS["leaf"].texts)
    assert (loaded.score(texts).dense() == direct.score(texts).dense()).all()


def test_score_and_predict_write_what_decide_and_evaluate_read(fitted: Path, run: Run) -> None:
    files = fitted / "model", fitted / "train.jsonl"
    assert run("score", *files, "-o", fitted / "scores.npz").code == 0
    assert Scores.load(fitted / "scores.npz", TREE).ids == tuple(SETS["leaf"].ids)
    assert run("predict", *files, "-o", fitted / "found.jsonl").code == 0
    assert run("decide", fitted / "scores.npz", "--rule", "best_leaf", "-o", fitted / "same.jsonl").code == 0
    assert (fitted / "found.jsonl").read_text() == (fitted / "same.jsonl").read_text()
    judged = run("evaluate", fitted / "train.jsonl", fitted / "found.jsonl", "--metrics", "hf1", "--json").json
    assert judged["values"]["hf1"] > 0.9


def test_scores_can_be_cut_to_the_largest(fitted: Path, run: Run) -> None:
    run("score", fitted / "model", fitted / "train.jsonl", "-o", fitted / "few.parquet", "--top", "3")
    assert Scores.load(fitted / "few.parquet").csr().nnz == 3 * 49


def test_predict_takes_texts_without_labels_and_prints(fitted: Path, run: Run) -> None:
    (fitted / "new.csv").write_text("id,text\nx,the cat meows softly\ny,qqq zzz\n")
    sure, unsure = load_model(fitted / "model").score(["the cat meows softly", "qqq zzz"]).dense().max(axis=1)
    between = str((sure + unsure) / 2)
    ended = run("predict", fitted / "model", fitted / "new.csv", "--rule", "threshold@0.4", "--unknown", between)
    assert ended.code == 0, ended.err
    first, second = (json.loads(line) for line in ended.out.splitlines())
    assert first["id"] == "x"
    assert first["labels"][0]["path"] == "pet > cat"
    assert second == {"id": "y", "labels": [], "closed": True, "unknown": True}


def test_explain_prints_words_for_each_step(fitted: Path, run: Run) -> None:
    ended = run("explain", fitted / "model", "the cat meows")
    assert ended.out.splitlines()[0].startswith("pet  p ")
    assert "~meo~" in ended.out
    assert {line.split()[0] for line in ended.out.splitlines() if line.startswith("  ")} == {"supporting", "opposing"}
    stored = run("explain", fitted / "model", "the cat meows", "--json").json
    assert [step["label"] for step in stored] == ["pet", "cat"]
    assert stored[1].keys() == {"label", "p", "supporting_terms", "opposing_terms"}


def test_explain_shows_every_label_that_is_predicted(tmp_path: Path, run: Run) -> None:
    words = {"joy": "happy smile", "fear": "ghost dark", "love": "kiss heart"}
    pairs = [(one, two) for one in words for two in words if one < two]
    rows = [(f"{words[one]} {words[two]}", f"{one}|{two}") for one, two in pairs] + [
        (text, name) for name, text in words.items()
    ]
    lines = [f"{text} {index},{labels}" for index, (text, labels) in enumerate(rows * 8)]
    (tmp_path / "train.csv").write_text("\n".join(["text,labels", *lines]))
    assert run("fit", tmp_path / "train.csv", "-o", tmp_path / "model", "--label-sep", "|").code == 0
    steps = run("explain", tmp_path / "model", "happy smile kiss heart", "--json").json
    assert {step["label"] for step in steps} == {"joy", "love"}
    assert [step["p"] for step in steps] == sorted((step["p"] for step in steps), reverse=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "train.jsonl", "-o", "new", "--model", "liner"], "did you mean linear?"),
        (["fit", "train.jsonl", "-o", "new", "--set", "costs=1"], "has no setting 'costs'"),
        (["fit", "train.jsonl", "-o", "new", "--set", "C"], "expected name=value, such as C=1"),
        (["fit", "trian.jsonl", "-o", "new"], "did you mean train.jsonl?"),
        (["predict", "modle", "train.jsonl"], "modle: no such folder"),
        (["predict", ".", "train.jsonl"], "no model folder"),
        (["score", "model", "train.jsonl", "-o", "nowhere/scores.npz"], "the folder nowhere does not exist"),
    ],
)
def test_what_is_wrong_is_said(
    fitted: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(fitted)
    before = sorted(fitted.iterdir())
    ended = run(*arguments)
    assert ended.code == 2
    assert said in ended.err
    assert sorted(fitted.iterdir()) == before


def test_models_are_listed_with_their_settings(run: Run) -> None:
    listed = run("models")
    assert listed.code == 0
    for name in ("linear", "bag", "zero_shot", "conditional_softmax", "win_log", "nodes"):
        assert name in listed.out
    assert "head=auto" in listed.out
    assert "settings: treelabel models hgclr" in listed.out
    one = run("models", "hgclr").out
    assert one.startswith("hgclr ")
    assert "learning_rate=" in one or "pip install" in one
    assert "linear" not in one
    assert "did you mean hgclr?" in run("models", "hgclt").err
    told = run("models", "--json").json
    assert told["models"]["linear"]["settings"]["head"] == "auto"
    assert set(told["losses"]) >= {"bce", "win_raw"}
    assert told["loss_params"]["bce"] == {}
    assert told["loss_params"]["champ"]["beta"]["default"] == 0.2


def test_fit_takes_a_validation_file(folder: Path, run: Run) -> None:
    write(SETS["leaf"][::2], folder / "valid.jsonl")
    ended = run("fit", folder / "train.jsonl", "-o", folder / "model", "--valid", folder / "valid.jsonl")
    assert ended.code == 0, ended.err
    ended = run("fit", folder / "train.jsonl", "-o", folder / "other", "--valid", folder / "nowhere.jsonl")
    assert ended.code == 2
    assert "nowhere.jsonl" in ended.err
    assert not (folder / "other").exists()
