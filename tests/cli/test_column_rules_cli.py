"""Rules with a limit for each value of a column, from end to end: tune --by, decide --data, predict, evaluate."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from tests.helpers import Run
from treelabel import Hierarchy, TunedRule, fit, load_model, read
from treelabel.operations.batch_scorer import BatchScorer

WORDS = {"pet > dog": "woof bow", "pet > cat": "meow purr", "farm > cow": "moo", "farm > sheep": "baa"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and validation and test documents of two origins, in one of which most labels are wrong."""
    made = tmp_path_factory.mktemp("columns")
    fit([*WORDS.values()] * 10, [*WORDS] * 10, preset="fast").save(made / "model")
    rows = []
    for row in range(160):
        label, words = [*WORDS.items()][row % 4]
        origin = "web" if row % 8 < 4 else "paper"
        true = label if origin == "web" or row % 16 < 8 else "farm > cow"
        rows.append(f"d{row},{words},{true},{origin}\n")
    for name, some in (("valid", rows[:80]), ("test", rows[80:])):
        (made / f"{name}.csv").write_text("id,text,label,origin\n" + "".join(some))
    (made / "bare.csv").write_text("id,text\nd1,woof\n")
    return made


def test_a_rule_by_a_column_goes_from_tune_to_evaluate(folder: Path, run: Run) -> None:
    rule, test = folder / "sets.json", folder / "test.csv"
    for name in ("valid", "test"):
        assert run("score", folder / "model", folder / f"{name}.csv", "-o", folder / f"{name}.npz").code == 0
    tuned = run(
        *("tune", folder / "valid.csv", folder / "valid.npz", "-o", rule, "--by", "origin"),
        *("--rule", "conformal(coverage=0.9)"),
    )
    assert (tuned.code, tuned.err) == (0, "")
    assert "2 limits, one for each value of origin" in tuned.out
    assert "at least 0.9, within each value of origin" in tuned.out
    assert [line.split()[:2] for line in tuned.out.splitlines()[-2:]] == [["paper", "40"], ["web", "40"]]
    assert TunedRule.load(rule).values == ("paper", "web")

    refused = run("decide", folder / "test.npz", "--rule", rule, "-o", folder / "never.jsonl")
    assert refused.code == 2
    assert "has a limit for each value of the column 'origin'" in refused.err
    assert not (folder / "never.jsonl").exists()
    # The scores' own order counts, not that of the file.
    header, *lines = test.read_text().splitlines(keepends=True)
    (folder / "turned.csv").write_text(header + "".join(reversed(lines)))
    decided = run(
        *("decide", folder / "test.npz", "--rule", rule, "--data", folder / "turned.csv", "-o", folder / "d.jsonl")
    )
    assert decided.code == 0, decided.err
    assert run("predict", folder / "model", test, "--rule", rule, "-o", folder / "p.jsonl").code == 0
    assert (folder / "d.jsonl").read_text() == (folder / "p.jsonl").read_text()
    answers = [json.loads(line) for line in (folder / "p.jsonl").read_text().splitlines()]
    # The extra columns go by the rule, and are written only when they are asked for.
    assert set(answers[0]) <= {"id", "labels", "closed"}
    depths = {
        row % 8 < 4: answer["labels"][0]["path"].count(">") if answer["labels"] else -1
        for row, answer in enumerate(answers)
    }
    assert depths[True] == 1 > depths[False]

    judged = [
        run("evaluate", *what, test, "--rule", rule, "--metrics", "set_coverage,set_size", "--json").json["values"]
        for what in ([folder / "model"],)
    ]
    arguments = ("--rule", rule, "--metrics", "set_coverage,set_size", "--json")
    judged.append(run("evaluate", test, folder / "test.npz", *arguments).json["values"])
    assert judged[0] == judged[1]
    assert judged[0]["set_coverage"] >= 0.9


def test_input_without_the_column_is_refused(folder: Path, run: Run) -> None:
    rule, bare = folder / "bare.json", folder / "bare.csv"
    scores = folder / "valid_scores.npz"
    run("score", folder / "model", folder / "valid.csv", "-o", scores)
    run("tune", folder / "valid.csv", scores, "-o", rule, "--by", "origin", "--rule", "conformal(coverage=0.8)")
    refused = [
        run("predict", folder / "model", bare, "--rule", rule, "-o", folder / "never.jsonl"),
        run("decide", scores, "--rule", rule, "--data", bare, "-o", folder / "never.jsonl"),
        run("tune", folder / "valid.csv", scores, "-o", folder / "x.json", "--by", "colour", "--rule", "conformal@0.9"),
        run("decide", scores, "--rule", "best_leaf", "--data", bare, "-o", folder / "never.jsonl"),
    ]
    said = ["the column 'origin'", "no column 'origin'", "the column 'colour'", "--data is for a rule with a limit"]
    for ended, message in zip(refused, said, strict=True):
        assert ended.code == 2
        assert message in ended.err
    assert not (folder / "never.jsonl").exists()
    assert not (folder / "x.json").exists()


def test_frames_batches_and_datasets_bring_their_column(folder: Path, run: Run) -> None:
    rule = folder / "frames.json"
    run("score", folder / "model", folder / "valid.csv", "-o", folder / "frames.npz")
    run("tune", folder / "valid.csv", folder / "frames.npz", "-o", rule, "--by", "origin", "--rule", "conformal@0.8")
    model, frame = load_model(folder / "model"), pd.read_csv(folder / "test.csv")
    data = read(folder / "test.csv", taxonomy=model.hierarchy_)
    expected = [paths[0] if paths else None for paths in model.predict(data, str(rule), paths=True)]
    assert len(set(expected)) > 2
    found = model.predict_frame(pa.Table.from_pandas(frame.drop(columns="label")), rule=str(rule))
    assert found["path"].to_pylist() == expected
    table = BatchScorer(folder / "model", str(rule))(pa.Table.from_pandas(frame.drop(columns="label")))
    assert table["path"].to_pylist() == expected
    assert isinstance(model.hierarchy_, Hierarchy)
