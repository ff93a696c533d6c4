"""What holds for every command: help and tables fit 80 columns, --json and --quiet are there."""

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import Run
from treelabel import make_model, read
from treelabel.cli.app import app
from treelabel.cli.printing import fill, format_table

COMMANDS = sorted(getattr(info.callback, "__name__", "").replace("_", "-") for info in app.registered_commands)
LEAVES = {
    "household appliances and electronics > washing machines and dryers": ["drum", "spin", "laundry", "rinse"],
    "household appliances and electronics > televisions and projectors": ["screen", "remote", "channel", "pixel"],
    "garden and outdoor equipment > lawn mowers and hedge trimmers": ["grass", "blade", "hedge", "petrol"],
    "garden and outdoor equipment > patio furniture and parasols": ["chair", "shade", "table", "cushion"],
}


def write_rows(file: Path, seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text", "label"])
        for row in range(count):
            label = list(LEAVES)[rng.integers(4)]
            # One in twelve is labelled wrongly.
            words = [
                *rng.choice(LEAVES[label], 3),
                "complaint about a delivery that took",
                str(rng.integers(30)),
                "days",
            ]
            writer.writerow([f"d{row}", " ".join(words), list(LEAVES)[rng.integers(4)] if row % 12 == 0 else label])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with data of long labels, and models of them."""
    home = tmp_path_factory.mktemp("shop")
    for seed, (name, count) in enumerate({"train": 240, "test": 80, "new": 80}.items()):
        write_rows(home / f"{name}.csv", seed, count)
    make_model("linear", ngram_range=(1, 1), char_ngram_range=None).fit(read(home / "train.csv")).save(home / "model")
    for name, folder in (("most_frequent", "usual"), ("nothing", "none")):
        make_model(name).fit(read(home / "train.csv")).save(home / folder)
    return home


TABLES = {
    "inspect": "inspect train.csv",
    "inspect a test file": "inspect test.csv --train train.csv",
    "sweep": "sweep train.csv --models most_frequent,nothing --set most_frequent.seed=0,1",
    "evaluate": "evaluate model test.csv --intervals --by-label",
    "compare": "compare model usual none test.csv",
    "fit": "fit train.csv -o other --force",
    "review": "review model new.csv -o queue.csv --force",
    "drift": "drift model new.csv",
    "audit": "audit train.csv",
    "update": "update model new.csv -o newer --train train.csv --compare test.csv --force",
}


def too_wide(text: str, width: int = 80) -> list[str]:
    return [line for line in text.splitlines() if len(line) > width]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(command, "--help")
    assert ended.code == 0
    assert "Usage:" in ended.out
    assert too_wide(ended.out) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_may_be_quiet(run: Run, command: str) -> None:
    for words in ([command, "--help", "--quiet"], ["-q", command, "--help"]):
        ended = run(*words)
        assert (ended.code, ended.err) == (0, "")
        assert "--json" in ended.out


@pytest.mark.parametrize("name", TABLES)
def test_json_is_all_that_is_printed(shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(shop)
    ended = run(*TABLES[name].split(), "--json", "--quiet")
    assert ended.err == ""
    assert ended.json


@pytest.mark.slow
def test_demo_prints_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = run("demo", "--json").json
    assert values["parts"] == {"train": 7016, "valid": 877, "test": 877}
    assert set(values["rules"]["best_leaf"]) == {"leaf_accuracy", "hf1", "micro_f1", "macro_f1", "shortest_path"}
    assert values["rules"]["best_leaf"]["leaf_accuracy"] > 0.5
    assert Path(values["report"]).is_file()
    assert all(values["read_back"].values())


@pytest.mark.parametrize("name", TABLES)
def test_tables_fit_80_columns(shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(*TABLES[name].split())
    assert ended.code == 0, ended.err
    assert ended.out.strip()
    assert too_wide(ended.out) == []


def test_lines_in_a_pipe_stay_whole(shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = run("audit", "train.csv").out
    monkeypatch.setenv("COLUMNS", "70")
    wrapped = run("audit", "train.csv").out
    assert max(map(len, whole.splitlines())) > 100 > 70 >= max(map(len, wrapped.splitlines()))
    assert whole.split() == wrapped.split()


def test_columns_without_room_go_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "16")
    rows = [["model", "first", "second", "third"], ["a", "1", "2", "3"]]
    assert format_table(rows) == [
        *("model  first", "------------", "a      1", ""),
        *("model  second", "-------------", "a      2", ""),
        *("model  third", "------------", "a      3"),
    ]
    monkeypatch.setenv("COLUMNS", "80")
    assert format_table(rows)[0] == "model  first  second  third"


def test_commands_stay_in_one_piece() -> None:
    command = "treelabel convert train.csv moved.csv --cut 2"
    assert fill(f"  -> find more texts, or move them: {command}", 50).splitlines()[-1].strip() == command
