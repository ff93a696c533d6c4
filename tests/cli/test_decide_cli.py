"""The commands that decide: decide, tune, rules; what they write, and what they refuse."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import Run
from treelabel import RULES, Hierarchy, Scores, TunedRule, decide, evaluate, read, tune

TREE = Hierarchy.from_paths(["A > C > F", "A > D", "B > E"])
TRUTH = {"a": ["F"], "b": ["E"], "c": ["D"], "d": ["F"]}
VALUES = np.array([[9, 1, 6, 3, 1, 6], [2, 8, 1, 1, 7, 1], [7, 3, 2, 5, 3, 2], [3, 3, 3, 0, 2, 1]]) / 10
SCORES = Scores(TREE, VALUES, tuple(TRUTH))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with scores, their truth and the taxonomy."""
    (tmp_path / "taxonomy.tsv").write_text("".join(f"{above}\t{below}\n" for above, below in TREE.edges("Root")))
    lines = [json.dumps({"id": name, "labels": labels}) for name, labels in TRUTH.items()]
    (tmp_path / "truth.jsonl").write_text("\n".join(lines) + "\n")
    SCORES.save(tmp_path / "scores.npz")
    return tmp_path


def test_decide_prints_one_line_a_document(folder: Path, run: Run) -> None:
    ended = run("decide", folder / "scores.npz", "--rule", "optimal:hf1")
    assert (ended.code, ended.err) == (0, "")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    label = {"label": "F", "path": "A > C > F", "p": 0.6}
    assert lines[0] == {"id": "a", "labels": [label], "closed": True}
    assert [line["id"] for line in lines] == list(TRUTH)


def test_what_decide_writes_is_judged_like_the_rule_itself(folder: Path, run: Run) -> None:
    for rule in ("optimal:hf1", "threshold@0.3", "best_leaf", "top_k(k=2, leaves=true)"):
        ended = run("decide", folder / "scores.npz", "-o", folder / "found.jsonl.gz", "--rule", rule, "--force")
        assert ended.code == 0, ended.err
        found = run("evaluate", folder / "truth.jsonl", folder / "found.jsonl.gz", "--json").json["values"]
        direct = run("evaluate", folder / "truth.jsonl", folder / "scores.npz", "--rule", rule, "--json").json
        assert found == {name: value for name, value in direct["values"].items() if name != "hf1_auc"}


def test_decide_says_how_many_documents_have_no_label(folder: Path, run: Run) -> None:
    out = folder / "found.jsonl"
    ended = run("decide", folder / "scores.npz", "-o", out, "--rule", "best_leaf", "--unknown", "0.5")
    assert ended.out == f"{out}: 4 documents by best_leaf(unknown=0.5), 1 without a label, 1 of them unknown\n"
    last = json.loads(out.read_text().splitlines()[-1])
    assert last == {"id": "d", "labels": [], "closed": True, "unknown": True}


def test_ancestors_are_written_on_request(folder: Path, run: Run) -> None:
    ended = run("decide", folder / "scores.npz", "--rule", "best_leaf", "--all-labels")
    labels = json.loads(ended.out.splitlines()[0])["labels"]
    assert [(entry["label"], entry["p"]) for entry in labels] == [("A", 0.9), ("C", 0.6), ("F", 0.6)]


def test_rules_that_weigh_by_rarity_take_a_training_file(folder: Path, run: Run) -> None:
    refused = run("decide", folder / "scores.npz", "--rule", "optimal:lin")
    assert refused.code == 2
    assert "--train" in refused.err
    ended = run("decide", folder / "scores.npz", "--rule", "optimal:lin", "--train", folder / "truth.jsonl")
    expected = decide(SCORES, "optimal:lin", train_frequencies=read(folder / "truth.jsonl", need_text=False))
    found = [[entry["path"] for entry in json.loads(line)["labels"]] for line in ended.out.splitlines()]
    assert found == expected.paths()


def test_tune_writes_a_rule_that_decide_and_evaluate_take(folder: Path, run: Run) -> None:
    tuned_file = folder / "tuned.json"
    ended = run("tune", folder / "truth.jsonl", folder / "scores.npz", "-o", tuned_file, "--rule", "micro_f1")
    truth = read(folder / "truth.jsonl", need_text=False)
    expected = tune(truth, SCORES, "micro_f1")
    assert TunedRule.load(tuned_file) == expected
    reached = expected.measured["micro_f1"]
    assert ended.out == (
        f"{tuned_file}: threshold; micro_f1 {reached:.4f} on the 4 documents it was tuned on, likely less on others\n"
    )
    stored = run(
        "evaluate",
        folder / "truth.jsonl",
        folder / "scores.npz",
        "--rule",
        tuned_file,
        "--metrics",
        "micro_f1",
        "--json",
    ).json
    assert stored["values"]["micro_f1"] == pytest.approx(reached)
    best = max(evaluate(truth, scores=SCORES, rule=f"threshold@{t / 100}")["micro_f1"] for t in range(1, 100))
    assert reached == pytest.approx(best)


@pytest.fixture
def sure(folder: Path) -> tuple[Path, Path]:
    """Write a truth and scores of 400 documents, of which half are sure of what is right."""
    values = np.zeros((400, len(TREE)))
    values[::2, [0, 2, 5]] = [0.9, 0.8, 0.75]
    values[1::2, [0, 3]] = [0.7, 0.4]
    Scores(TREE, values).save(folder / "sure.npz")
    lines = [json.dumps({"labels": ["F" if at % 2 == 0 else "C"]}) for at in range(400)]
    (folder / "sure.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "sure.jsonl", folder / "sure.npz"


def test_tune_finds_a_required_precision_and_tells_what_others_cost(
    sure: tuple[Path, Path], folder: Path, run: Run
) -> None:
    rule = "back_off(precision=0.93)"
    stored = run("tune", *sure, "-o", folder / "sure.json", "--rule", rule, "--json").json
    assert stored["rule"] == "back_off"
    assert stored["measured"]["precision"] >= 0.93
    assert [row["required precision"] for row in stored["table"]] == [0.8, 0.85, 0.9, 0.93, 0.95, 0.98, 0.99]
    shown = run("tune", *sure, "-o", folder / "sure.json", "--rule", rule, "--force").out.splitlines()
    assert shown[0] == f"{folder / 'sure.json'}: back_off; least scores of levels 1, 2, ...: 0.7000, never, 0.7500"
    assert shown[2].split()[:3] == ["required", "with", "a"]
    assert shown[6].split()[:5] == ["0.93", "100.0%", "50.0%", "2.00", "1.0000"]
    # The 160 documents that test without an error promise no 0.98.
    assert shown[8].split() == ["0.98", "0.0%", "0.0%", "-", "-"]
    assert shown[-1] == "400 documents in 5 folds, each by thresholds found on the others"
    assert TunedRule.load(folder / "sure.json").settings["t"] == pytest.approx([0.7, 2, 0.75])


def test_tune_finds_sets_that_cover_and_says_what_they_promise(folder: Path, run: Run) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(3, 0.5), 300)
    leaves = rng.choice(3, 300)
    true = [TREE.names[TREE.leaves[leaf]] for leaf in leaves]
    scores = Scores.from_leaves(TREE, TREE.leaves, p / 2 + np.eye(3)[leaves] / 2, ids=[f"d{row}" for row in range(300)])
    scores.save(folder / "valid.npz")
    lines = [json.dumps({"id": f"d{row}", "labels": [label]}) for row, label in enumerate(true)]
    (folder / "valid.jsonl").write_text("\n".join(lines) + "\n")
    tuned = folder / "sets.json"
    rules = {"conformal(coverage=0.8, nodes=2)": "cover the true label with a probability of at least 0.8"}
    rules["risk_control(at_least=0.8)"] = "in expectation, at least 0.8 of a document's true labels are predicted"
    for rule, promise in rules.items():
        ended = run("tune", folder / "valid.jsonl", folder / "valid.npz", "-o", tuned, "--rule", rule, "--force")
        assert (ended.code, ended.err) == (0, "")
        assert promise in ended.out
        assert "measured, on documents not used for it" in ended.out
        judged = run(
            "evaluate",
            folder / "valid.jsonl",
            folder / "valid.npz",
            "--rule",
            tuned,
            "--metrics",
            "set_coverage,hr",
            "--json",
        )
        assert judged.json["values"]["set_coverage"] >= 0.8
    assert TunedRule.load(tuned).settings["at_least"] == 0.8
    refused = run("tune", folder / "valid.jsonl", folder / "valid.npz", "-o", tuned, "--rule", "conformal@2", "--force")
    assert refused.code == 2
    assert "coverage = 2, expected a share above 0 and below 1" in refused.err


def test_a_precision_that_cannot_be_promised_is_refused(folder: Path, run: Run) -> None:
    arguments = ["-o", folder / "sure.json", "--rule", "back_off(precision=0.9)"]
    ended = run("tune", folder / "truth.jsonl", folder / "scores.npz", *arguments)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "no thresholds reach a precision of 0.9 with a confidence of 0.9 on 4 validation documents" in ended.err


def test_a_tuned_rule_is_refused_with_another_hierarchy(folder: Path, run: Run) -> None:
    run("tune", folder / "truth.jsonl", folder / "scores.npz", "-o", folder / "tuned.json")
    Scores(Hierarchy.flat(["A", "B"]), [[0.5, 0.5]]).save(folder / "other.npz")
    ended = run("decide", folder / "other.npz", "--rule", folder / "tuned.json", "-o", folder / "never.jsonl")
    assert ended.code == 2
    assert "another hierarchy" in ended.err or "different hierarchy" in ended.err
    assert not (folder / "never.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["decide", "scores.npz", "--rule", "optimal:hf"], "did you mean optimal:hf1"),
        (["decide", "scores.npz", "--rule", "hf1"], "did you mean optimal:hf1"),
        (["decide", "scores.npz", "--rule", "threshold@x"], "expected a number behind @, such as threshold@0.5"),
        (["decide", "scores.npz", "--rule", "top_k(n=3)"], "no setting 'n'; it has: k, leaves, closed, unknown"),
        (["decide", "scores.npz", "--rule", "back_off(precision=0.9)"], "has to be measured on validation data"),
        (["decide", "scores.npz", "--rule", "truth.json"], "no such file; did you mean truth.jsonl?"),
        (["decide", "scores.npz", "--unknown", "2"], "unknown = 2, expected a score above 0 and at most 1"),
        (["decide", "scores.np"], "no such file; did you mean scores.npz?"),
        (["decide", "scores.npz", "--train", "truth.jsonl", "--taxonomy", "taxonomy.tsv"], "scores know"),
        (
            ["tune", "truth.jsonl", "scores.npz", "-o", "x.json", "--rule", "hf1"],
            "cannot tune 'hf1'; expected macro_f1",
        ),
        (["tune", "truth.jsonl", "scores.npz", "-o", "x.json", "--rule", "back_off@0.5"], "t is what is to be found"),
    ],
)
def test_what_is_wrong_is_said(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    ended = run(*arguments)
    assert ended.code == 2
    assert said in ended.err
    assert sorted(folder.iterdir()) == before


def test_rules_lists_every_rule(run: Run) -> None:
    text = run("rules").out
    stored = run("rules", "--json").json
    assert list(stored) == list(RULES)
    assert all(name in text for name in RULES)
    assert stored["optimal:hf1"]["exact"] is True
    assert stored["optimal:icm"]["settings"] == {"alpha": 2.0, "beta": 3.0, "closed": True, "unknown": None}


def test_nothing_is_written_over_what_is_read(folder: Path, run: Run) -> None:
    truth, scores = folder / "truth.jsonl", folder / "scores.npz"
    before = truth.read_bytes(), scores.read_bytes()
    for arguments in (
        ["decide", scores, "-o", scores],
        ["decide", scores, "--rule", "optimal:lin", "--train", truth, "-o", truth],
        ["tune", truth, scores, "-o", truth],
    ):
        ended = run(*arguments)
        assert ended.code == 2
        assert "would be replaced" in ended.err
    assert (truth.read_bytes(), scores.read_bytes()) == before
    refused = run("decide", scores, "-o", folder / "found.csv")
    assert "predictions are JSON Lines; expected a name that ends in .jsonl" in refused.err
