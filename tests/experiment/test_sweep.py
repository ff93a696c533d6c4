"""Comparing models by cross-validation: against scikit-learn's folds done by hand, failures, Ctrl-C, the command."""

import errno
import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.helpers import Run as Command
from treelabel import Dataset, Hierarchy, TreelabelError, evaluate, make_model, write
from treelabel.core.atomic_output import atomic_file
from treelabel.core.registry import Lazy
from treelabel.data.sample import load_sample
from treelabel.data.splits import folds, split
from treelabel.experiment import sweep as module
from treelabel.experiment.sweep import Candidate, default_metrics, grid, sweep
from treelabel.models import MODELS
from treelabel.models.baselines import MostFrequent
from treelabel.models.check import CASES

LEAF, MANY, PATH = (
    Dataset.of(CASES[kind].texts, CASES[kind].labels, CASES[kind].hierarchy) for kind in ("leaf", "many", "path")
)
QUICK = {"ngram_range": (1, 1), "char_ngram_range": None, "head": "leaves"}


class Broken(MostFrequent):
    """Fails while it learns."""

    name = "broken"

    def _fit(self, train: Any) -> Any:
        raise RuntimeError("out of luck")


class Interrupted(MostFrequent):
    """Somebody presses Ctrl-C while it learns."""

    name = "interrupted"

    def _fit(self, train: Any) -> Any:
        train.stop.interrupt()
        super()._fit(train)


@pytest.fixture
def oddities() -> Iterator[None]:
    # The place of a lazy row is below treelabel; these classes are put there for a test.
    rows = [Lazy[Any](maker.name, "for tests", f"experiment.sweep:{maker.__name__}") for maker in (Broken, Interrupted)]
    with pytest.MonkeyPatch.context() as patch, MODELS.adding(rows[0]), MODELS.adding(rows[1]):
        patch.setattr(module, "Broken", Broken, raising=False)
        patch.setattr(module, "Interrupted", Interrupted, raising=False)
        yield


def test_values_are_those_of_cross_validation_by_hand() -> None:
    linear, frequent = Candidate("linear", QUICK), Candidate("most_frequent")
    found = sweep(LEAF, [frequent, linear], ["hf1", "macro_f1"], "best_leaf")
    assert [trial.candidate for trial in found.trials] == [linear, frequent]
    held_out = folds(LEAF, 3)
    values, decided = [], dict[int, list[str]]()
    for rows in held_out:
        rest = np.setdiff1d(np.arange(len(LEAF)), rows)
        scores = make_model("linear", **QUICK).fit(LEAF[rest]).score(LEAF[rows])
        result = evaluate(LEAF[rows], scores=scores, rule="best_leaf", metrics=["hf1"])
        values.append(result["hf1"])
        decided |= dict(
            zip(rows.tolist(), make_model("linear", **QUICK).fit(LEAF[rest]).predict(LEAF[rows]), strict=True)
        )
    best = found.trials[0]
    assert best.by_fold["hf1"] == pytest.approx(values)
    assert best.half_width("hf1") == pytest.approx(stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / math.sqrt(3))
    order = np.concatenate(held_out).tolist()
    whole = evaluate(
        LEAF[order], [decided[row] for row in order], metrics=["hf1", "macro_f1"], hierarchy=LEAF.hierarchy
    )
    assert best.result["hf1"] == pytest.approx(whole["hf1"])
    assert best.result["macro_f1"] == pytest.approx(whole["macro_f1"])
    assert found.difference is not None
    assert found.difference.difference == pytest.approx(best.result["hf1"] - found.trials[1].result["hf1"])
    assert found.trials[1].p_value < 0.05
    assert best.megabytes > 0
    assert best.documents_per_second > 0


def test_folds_are_stratified_and_keep_groups() -> None:
    data = load_sample()
    parts = folds(data, 3)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(data)))
    total = np.asarray(data.closed_labels.sum(axis=0)).ravel()
    for rows in parts:
        share = np.asarray(data.closed_labels[rows].sum(axis=0)).ravel()[total > 300] / total[total > 300]
        assert abs(share - 1 / 3).max() < 0.05
    grouped = Dataset.of(LEAF.texts, LEAF.names(), LEAF.hierarchy, groups=[str(row // 7) for row in range(len(LEAF))])
    for rows in folds(grouped, 3):
        assert len(rows) == 7 * len({row // 7 for row in rows.tolist()})
    with pytest.raises(TreelabelError, match="too few groups of column 'group' for 9 folds"):
        folds(grouped, 9)
    with pytest.raises(TreelabelError, match="at least 2 folds"):
        folds(data, 1)
    # Splitting stays as it was.
    assert [len(part) for part in split(data, {"a": 0.8, "b": 0.2}).values()] == [7016, 1754]


def test_metrics_suit_the_labels() -> None:
    assert default_metrics(LEAF)[0] == "leaf_accuracy"
    assert default_metrics(LEAF, "threshold@0.5")[0] == "subset_accuracy"
    assert default_metrics(MANY)[0] == "samples_f1"
    assert default_metrics(PATH)[0] == "hf1"
    odd = Hierarchy.from_paths(["A > B", "A > C"])
    few = Dataset.of(["x"] * 40, [["B"]] * 39 + [["B", "C"]], odd)
    assert default_metrics(few)[0] == "hf1"


def test_what_fails_is_skipped_with_the_reason(oddities: None) -> None:
    found = sweep(LEAF, grid(["broken", "most_frequent"], {}))
    assert found.skipped == {"broken": "RuntimeError: out of luck"}
    assert [trial.candidate.model for trial in found.trials] == ["most_frequent"]
    assert found.difference is None


def test_a_full_disk_costs_no_more_than_the_size_of_models(
    tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(self: MostFrequent, folder: Path, overwrite: bool = False) -> None:
        with atomic_file(folder):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MostFrequent, "save", save)
    found = sweep(LEAF, grid(["most_frequent"], {}))
    assert found.skipped == {}
    assert math.isnan(found.trials[0].megabytes)
    write(LEAF, tmp_path / "train.jsonl")
    ended = run("sweep", tmp_path / "train.jsonl", "--models", "most_frequent")
    assert ended.code == 0
    assert "unknown" in ended.out
    ended = run("sweep", tmp_path / "train.jsonl", "--models", "most_frequent", "--json")
    assert json.loads(ended.out)["trials"][0]["megabytes"] is None


def test_ctrl_c_leaves_what_is_done(oddities: None) -> None:
    found = sweep(LEAF, grid(["most_frequent", "interrupted", "nothing"], {}))
    assert [trial.candidate.model for trial in found.trials] == ["most_frequent"]
    assert (found.left, found.skipped) == (2, {})


def test_equal_models_cannot_be_told_apart() -> None:
    found = sweep(LEAF, [Candidate("most_frequent"), Candidate("most_frequent", {"seed": 5})], ["hamming"])
    assert found.trials[1].p_value == 1
    found = sweep(LEAF, grid(["nothing", "most_frequent"], {}), ["hamming"], "threshold@0.3")
    # Less of it is better.
    assert found.trials[0].result["hamming"] <= found.trials[1].result["hamming"]


def test_the_command_prints_a_table_and_how_to_fit_the_winner(
    tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    write(LEAF, tmp_path / "train.jsonl")
    quick = ["--set", "linear.ngram_range=(1, 1)", "--set", "char_ngram_range=None", "--set", "linear.C=0.5,1"]
    ended = run("sweep", tmp_path / "train.jsonl", "--models", "most_frequent,linear", *quick, "--seed", "1")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split()[:5] == ["model", "leaf_accuracy", "hf1", "macro_f1", "hf1_auc"]
    assert lines[2].startswith("linear ngram_range=(1, 1) char_ngram_range=None C=")
    assert lines[4].startswith("most_frequent ")
    words = shlex.split(lines[-1])
    assert words[:2] == ["treelabel", "fit"]
    words[words.index("-o") + 1] = str(tmp_path / "model")
    assert run(*words[1:]).code == 0
    assert (tmp_path / "model").is_dir()
    stored = run(
        "sweep", tmp_path / "train.jsonl", "--models", "most_frequent,nothing", "--lists", "path", "--json"
    ).json
    assert stored["command"].endswith("--lists path")
    assert [each["model"] for each in stored["trials"]] == ["most_frequent", "nothing"]
    assert len(stored["trials"][0]["values"]["hf1"]["folds"]) == 3


def test_skipped_models_and_rules_are_told(tmp_path: Path, run: Command, oddities: None) -> None:
    write(MANY, tmp_path / "train.jsonl")
    told = run("sweep", tmp_path / "train.jsonl", "--models", "broken,nothing,interrupted", "--rule", "threshold@0.4")
    assert "skipped broken: RuntimeError: out of luck" in told.out
    assert "interrupted: 1 of 3 not judged" in told.out
    assert told.out.rstrip().endswith("treelabel predict model NEW --rule threshold@0.4")
    failed = run("sweep", tmp_path / "train.jsonl", "--models", "broken")
    assert (failed.code, failed.out) == (2, "")
    assert "no model could be judged: broken: RuntimeError: out of luck" in failed.err
    assert run("sweep", tmp_path / "train.jsonl", "--models", "interrupted").code == 130


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--models", "liner"], "did you mean linear?"),
        (["--models", ","], "--models names no model"),
        (["--models", "linear", "--set", "linear.c=1"], "has no setting 'c'"),
        (["--models", "linear", "--set", "bag.C=1"], "'bag' is not among --models"),
        (["--models", "nothing", "--set", "CC=1"], "no model has the setting 'CC'"),
        (["--set", "C"], "expected name=value,value"),
        (["--set", "C="], "expected name=value,value"),
        (["--metrics", "hf2"], "unknown metric 'hf2'"),
        (["--metrics", "all"], "name the metrics"),
        (["--rule", "best_leav"], "did you mean best_leaf or"),
        (["--models", "nothing", "--cv", "1"], "at least 2 folds"),
        (["--models", "nothing", "--cv", "50"], "too few documents for 50 folds"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, run: Command, arguments: list[str], said: str) -> None:
    write(LEAF, tmp_path / "train.jsonl")
    ended = run("sweep", tmp_path / "train.jsonl", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1
