import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from tests.experiment.small import SPEC, write_study
from treelabel import TreelabelError, evaluate, make_model
from treelabel.experiment import code_version
from treelabel.experiment.data_sets import load_parts
from treelabel.experiment.plan import load_runs, make_plan, progress_of
from treelabel.experiment.results import Results, Run
from treelabel.experiment.running import RunOptions, encoder_of, run_study
from treelabel.experiment.spec_reader import parse_spec, read_spec
from treelabel.experiment.stored_scores import load_stored_scores

COMMAND = """
[systems.{name}]
command = ["{{python}}", "-c", '''{program}''', "{{train}}", "{{test}}", "{{output}}"]
writes = "{writes}"
{more}
"""


def study(folder: Path, text: str = SPEC, systems: Sequence[str] | None = None, **options: Any) -> Results:
    """Run all systems of a spec, or only these: each run is a process that takes seconds to begin."""
    plan = make_plan(read_spec(write_study(folder, text)), systems=systems)
    return run_study(plan, folder / "results", RunOptions(**options))


def only(results: Results, system: str, seed: int = 0) -> Run:
    return next(run for run in results.runs if (run.system, run.seed) == (system, seed))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return study(tmp_path_factory.mktemp("study"), keep_scores=True)


@pytest.mark.slow
def test_values_are_those_of_the_model_itself(done: Results) -> None:
    assert done.folder is not None
    parts = load_parts(done.spec.data["small"], done.spec.folder, 0)
    for seed in (0, 1):
        model = make_model("linear", ngram_range=(1, 1), char_ngram_range=(3, 3), head="nodes", seed=seed)
        scores = model.fit(parts.train).score(parts.test)
        run = only(done, "linear", seed)
        for rule, metrics in (("best_leaf", ["leaf_accuracy", "hf1_auc"]), ("threshold@0.5", ["hf1", "macro_f1"])):
            result = evaluate(parts.test, scores=scores, rule=rule, metrics=metrics, train_frequencies=parts.train)
            for metric in metrics:
                assert run.value(metric, rule) == pytest.approx(result[metric], abs=1e-12)
    assert len(done.of("small", "linear")) == 2
    assert len(done.of("small", "frequent")) == 1


@pytest.mark.slow
def test_results_have_what_intervals_need_later(done: Results) -> None:
    run = only(done, "linear")
    result = done.result(run, "threshold@0.5")
    assert result is not None
    assert result["macro_f1"] == run.value("macro_f1")
    assert result["hf1"] == pytest.approx(run.value("hf1"), abs=1e-12)
    low, high = run.judged[1].intervals["hf1"]
    found = result.interval("hf1", resamples=500)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    total, count = run.judged[0].sums["leaf_accuracy"][0]
    assert total / count == run.value("leaf_accuracy")
    assert run.fit_seconds > 0
    assert run.peak_memory > 1e7
    assert run.model_bytes > 100
    assert {"python", "numpy", "scikit-learn"} <= set(run.versions)


@pytest.mark.parametrize(
    "damage", ["value", "value with its checksum", "cut run", "cut parts", "no parts", "other parts"]
)
@pytest.mark.slow
def test_a_result_that_was_altered_is_done_again(done: Results, tmp_path: Path, damage: str) -> None:
    assert done.folder is not None
    folder = tmp_path / "copy"
    shutil.copytree(done.folder, folder)
    plan = make_plan(done.spec)
    assert set(progress_of(plan, folder).states.values()) == {"done"}
    one, other = only(done, "linear"), only(done, "frequent")
    file, parts = folder / "runs" / f"{one.key}.json", folder / "parts" / f"{one.key}.npz"
    raised = replace(one.judged[0], values={**one.judged[0].values, "leaf_accuracy": 0.999})
    if damage == "value":
        text = file.read_text()
        file.write_text(text.replace(f'"leaf_accuracy": {one.value("leaf_accuracy")}', '"leaf_accuracy": 0.999'))
        assert file.read_text() != text
    elif damage == "value with its checksum":
        file.write_text(replace(one, judged=(raised, *one.judged[1:])).to_json())
    elif damage == "other parts":
        shutil.copy(folder / "parts" / f"{other.key}.npz", parts)
    elif damage == "no parts":
        parts.unlink()
    else:
        cut = file if damage == "cut run" else parts
        cut.write_bytes(cut.read_bytes()[:-20])
    states = {cell.key: state for cell, state in progress_of(plan, folder).states.items()}
    assert {key for key, state in states.items() if state != "done"} == {one.key}
    with pytest.raises(TreelabelError):
        use(folder)


def use(folder: Path) -> None:
    """Read a folder of results as tables and claims do."""
    loaded = Results.load(folder)
    loaded.require_parts(only(loaded, "linear"))


@pytest.mark.slow
def test_scores_that_were_altered_are_not_judged(done: Results, tmp_path: Path) -> None:
    assert done.folder is not None
    folder = tmp_path / "copy"
    shutil.copytree(done.folder, folder)
    results, run = Results.load(folder), only(done, "linear")
    assert results.scores_file(run) == folder / "scores" / f"{run.key}.npz"
    load_stored_scores(results)
    shutil.copy(folder / "scores" / f"{only(done, 'linear', 1).key}.npz", folder / "scores" / f"{run.key}.npz")
    assert results.scores_file(run) is None
    with pytest.raises(TreelabelError, match="is not what the run wrote"):
        load_stored_scores(results)


@pytest.mark.slow
def test_the_index_has_a_row_for_every_value(done: Results) -> None:
    assert done.folder is not None
    table = pq.read_table(done.folder / "index.parquet")
    assert table.num_rows == 3 * 4
    rows = [row for row in table.to_pylist() if (row["system"], row["seed"], row["metric"]) == ("linear", 1, "hf1")]
    assert rows[0]["value"] == only(done, "linear", 1).value("hf1")


@pytest.mark.slow
def test_systems_that_differ_in_their_names_alone_share_a_run(done: Results) -> None:
    assert done.folder is not None
    text = SPEC + '\n[systems.other]\nmodel = "most_frequent"\nseeds = 1\n'
    runs = load_runs(make_plan(parse_spec(text, done.spec.path)), done.folder)
    assert [cell.system for cell in runs] == ["linear", "frequent", "other", "linear"]
    assert [run.system for run in runs.values()] == ["linear", "frequent", "other", "linear"]


def test_an_embedding_that_takes_too_much_memory_is_not_tried_again(tmp_path: Path) -> None:
    text = SPEC.replace('time_limit = "100s"', 'memory_limit = "1MB"')
    spec = read_spec(write_study(tmp_path, text + '\n[systems.near]\nmodel = "prototype"\nseeds = 1\n'))
    plan = make_plan(spec, systems=["near"])
    assert encoder_of(plan, plan.cells[0]) is not None
    (run,) = run_study(plan, tmp_path / "results", RunOptions()).runs
    assert (run.status, run.reason) == ("memory", "over 1.0 MB")


@pytest.mark.slow
def test_nothing_is_done_twice(done: Results) -> None:
    assert done.folder is not None
    before = {run.key: run.finished for run in done.runs}
    again = run_study(make_plan(done.spec), done.folder, RunOptions())
    assert {run.key: run.finished for run in again.runs} == before


@pytest.mark.slow
def test_an_exported_file_has_all_values(done: Results, tmp_path: Path) -> None:
    done.export(tmp_path / "all.json", "treelabel bench small.toml", [{"claim": "x", "value": float("nan")}])
    loaded = Results.load(tmp_path / "all.json")
    assert loaded.command == "treelabel bench small.toml"
    assert [run.value("hf1") for run in loaded.runs] == [run.value("hf1") for run in done.runs]
    assert loaded.verdicts[0]["value"] == "nan"
    assert loaded.spec.systems == done.spec.systems


@pytest.mark.slow
def test_what_judges_may_change_without_learning_again(
    done: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert done.folder is not None
    plan = make_plan(done.spec)
    assert set(progress_of(plan, done.folder).states.values()) == {"done"}
    real = code_version.code_hash
    for module, state in (("treelabel.evaluation.evaluator", "judge"), ("treelabel.metrics.overlap", "todo")):
        monkeypatch.setattr(
            code_version, "code_hash", lambda name, changed=module: "other" if name == changed else real(name)
        )
        assert set(progress_of(plan, done.folder).states.values()) == {state}
    monkeypatch.undo()
    more = done.spec.text.replace('"hf1", "macro_f1"', '"hf1", "macro_f1", "hp"')
    asked = make_plan(read_spec(write_study(tmp_path, more)))
    assert set(progress_of(asked, done.folder).states.values()) == {"judge"}
    judged = run_study(asked, done.folder, RunOptions())
    assert only(judged, "linear").value("hp") > 0.5
    assert only(judged, "linear").fit_seconds == only(done, "linear").fit_seconds


@pytest.mark.slow
def test_failures_are_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    text = SPEC + '\n[systems.broken]\nmodel = "bag"\nparams = {loss = "nope"}\n'
    text += COMMAND.format(name="crash", program="import sys; sys.exit('no luck')", writes="scores", more="seeds = 1")
    systems = ["linear", "broken", "crash"]
    results = study(tmp_path, text, systems)
    assert only(results, "broken").status == "failed"
    assert only(results, "crash").reason == "the command failed (exit 1): no luck"
    assert only(results, "linear").is_done
    assert results.problem("small", "crash").startswith("failed: the command failed")
    plan = make_plan(results.spec, systems=systems)
    assert len(progress_of(plan, tmp_path / "results").cells("failed")) == 3
    assert len(progress_of(plan, tmp_path / "results", retry=True).cells("todo")) == 3


@pytest.mark.slow
def test_runs_that_take_too_much_are_ended_and_marked(tmp_path: Path) -> None:
    sleep = COMMAND.format(
        name="slow",
        program="import subprocess, time; subprocess.Popen(['sleep', '54321']); time.sleep(99)",
        writes="scores",
        more='seeds = 1\ntime_limit = "3s"',
    )
    greedy = COMMAND.format(
        name="greedy",
        program="import time; kept = bytearray(700_000_000); time.sleep(99)",
        writes="scores",
        more='seeds = 1\nmemory_limit = "500MB"',
    )
    results = study(tmp_path, SPEC + sleep + greedy, ["linear", "slow", "greedy"])
    assert (only(results, "slow").status, only(results, "slow").reason) == ("timeout", "over 3.0 s")
    assert (only(results, "greedy").status, only(results, "greedy").reason) == ("memory", "over 500.0 MB")
    assert only(results, "linear", 1).is_done
    assert not [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "54321"]]


PREDICT = """
import json, sys
train, test, output = sys.argv[1:4]
label = json.loads(open(train).readline())["labels"][0]
with open(output, "w") as out:
    for line in open(test):
        row = json.loads(line)
        assert not row["labels"], "test labels are shown"
        out.write(json.dumps({"id": row["id"], "labels": %s}) + "\\n")
"""


@pytest.mark.slow
def test_commands_are_judged_like_models(tmp_path: Path) -> None:
    text = SPEC + COMMAND.format(name="names", program=PREDICT % "[label]", writes="predictions", more="seeds = 1")
    text += COMMAND.format(
        name="scores",
        program=PREDICT % '[{"label": label, "p": 0.75}]',
        writes="scores",
        more='seeds = 1\ncombine = "sum"',
    )
    values = "import json, sys; json.dump({'values': {'a/b': 0.5}}, open(sys.argv[3], 'w'))"
    text += COMMAND.format(name="values", program=values, writes="values", more="seeds = 1")
    results = study(tmp_path, text, ["names", "scores", "values"])
    names, scores = only(results, "names"), only(results, "scores")
    assert names.is_done, names.reason
    assert scores.is_done, scores.reason
    assert names.value("leaf_accuracy") == scores.value("leaf_accuracy") == 0.25
    assert names.value("hf1", "threshold@0.5") == scores.value("hf1", "threshold@0.5") == 0.375
    assert any("hf1_auc needs scores" in note for note in names.notes)
    assert only(results, "values").value("a/b") == 0.5


@pytest.mark.slow
def test_a_grid_is_chosen_from_on_held_out_documents_once(tmp_path: Path) -> None:
    text = SPEC.replace(
        'title = "linear"\nmodel = "linear"',
        'grid = {C = [1e-6, 1.0]}\nselect = {metric = "leaf_accuracy", rule = "best_leaf"}\nmodel = "linear"',
    )
    results = study(tmp_path, text, ["linear"])
    runs = [only(results, "linear", seed) for seed in (0, 1)]
    assert all(run.chosen is not None and run.chosen["C"] in (1e-6, 1.0) for run in runs)
    assert runs[0].chosen == runs[1].chosen
    assert any("the best of 2 by leaf_accuracy" in note for note in runs[0].notes)
    assert len(list((tmp_path / "results" / "choices").iterdir())) == 1


@pytest.mark.slow
def test_a_budget_gives_every_row_the_same_seeds(tmp_path: Path) -> None:
    sleepy = COMMAND.format(
        name="sleepy", program="import time; time.sleep(2)\n" + PREDICT % "[label]", writes="predictions", more=""
    )
    results = study(tmp_path, SPEC.replace("seeds = 2", "seeds = 50") + sleepy, ["linear", "sleepy"], budget=9.0)
    seeds = {name: len(results.of("small", name)) for name in ("linear", "sleepy")}
    assert seeds["linear"] == seeds["sleepy"]
    assert 1 <= seeds["linear"] < 50


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    file = write_study(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("x")
    with pytest.raises(TreelabelError, match=r"no folder of results \(it has thesis\.tex\)"):
        run_study(make_plan(read_spec(file)), tmp_path / "thesis", RunOptions())
    assert [each.name for each in (tmp_path / "thesis").iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_a_damaged_run_is_done_again(done: Results, tmp_path: Path) -> None:
    assert done.folder is not None
    plan = make_plan(done.spec)
    cell = plan.cells[0]
    text = (done.folder / "runs" / f"{cell.key}.json").read_text()
    (tmp_path / "runs").mkdir()
    for name in ("parts", "contexts"):
        shutil.copytree(done.folder / name, tmp_path / name)
    for damage in (
        "",
        "{",
        json.dumps({"format": "x"}),
        text.replace('"seed": 0', '"seed": "0"'),
        text.replace("[", ""),
    ):
        (tmp_path / "runs" / f"{cell.key}.json").write_text(damage)
        assert progress_of(plan, tmp_path).states[cell] == "todo"
    (tmp_path / "runs" / f"{cell.key}.json").write_text(text)
    assert progress_of(plan, tmp_path).states[cell] == "done"


@pytest.mark.slow
def test_a_placeholder_for_a_part_that_is_not_there_is_told(tmp_path: Path) -> None:
    text = COMMAND.format(name="typo", program="", writes="scores", more="seeds = 1").replace("{train}", "{valid}")
    results = study(tmp_path, SPEC + text, ["typo"])
    assert only(results, "typo").reason == "the command of typo has {valid}, but the data set has none"


def _values(folder: Path) -> list[tuple[Any, ...]]:
    return [
        (run.data, run.system, run.seed, run.status, [(each.rule, dict(each.values)) for each in run.judged])
        for run in Results.load(folder).runs
    ]


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_results(tmp_path: Path) -> None:
    file = write_study(tmp_path)
    command = [sys.executable, "-m", "treelabel", "bench", str(file)]
    subprocess.run([*command, "-o", str(tmp_path / "whole")], check=True, capture_output=True)
    killed = tmp_path / "killed"
    for seconds in (0.5, 1.0, 1.5, 2.5, 3.5):
        started = subprocess.Popen([*command, "-o", str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        started.kill()
        started.wait()
    deadline = time.monotonic() + 20
    while (left := _workers(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, "workers outlived the study"
    subprocess.run([*command, "-o", str(killed)], check=True, capture_output=True)
    assert _values(killed) == _values(tmp_path / "whole")
    assert not [each for each in killed.rglob("*") if each.name.startswith(".treelabel-")]


def _workers(folder: Path) -> list[int]:
    """Workers whose job names a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "treelabel.experiment.worker" in line and str(folder) in line[-1]:
            found.append(process.pid)
    return found


HEARING = """
import signal
from treelabel.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_workers_and_keeps_what_is_done(tmp_path: Path, number: signal.Signals) -> None:
    sleepy = COMMAND.format(
        name="sleepy", program="import time; time.sleep(60)", writes="predictions", more="seeds = 1"
    )
    file = write_study(tmp_path, SPEC + sleepy)
    command = [sys.executable, "-m", "treelabel", "bench", str(file), "-o", str(tmp_path / "r")]
    # A shell without job control starts what is in the background deaf to Ctrl-C.
    command = [sys.executable, "-c", HEARING, *command[3:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            deadline = time.monotonic() + 60
            while len(list((tmp_path / "r" / "runs").glob("*.json"))) < 2 and time.monotonic() < deadline:
                time.sleep(0.1)
            os.kill(started.pid, number)
            _, told = started.communicate(timeout=30)
        finally:
            started.kill()
    assert started.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], told
    assert "Traceback" not in told
    assert len(list((tmp_path / "r" / "runs").glob("*.json"))) >= 2
    assert not _workers(tmp_path)


def test_two_studies_do_not_write_one_folder(tmp_path: Path) -> None:
    sleepy = COMMAND.format(
        name="sleepy", program="import time; time.sleep(30)", writes="predictions", more="seeds = 1"
    )
    file = write_study(tmp_path, SPEC + sleepy)
    command = [sys.executable, "-m", "treelabel", "bench", str(file), "-o", str(tmp_path / "r")]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "r" / "spec.toml").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(TreelabelError, match="another process is running a study there"):
            run_study(make_plan(read_spec(file)), tmp_path / "r", RunOptions())
    finally:
        first.terminate()
        first.wait()


ENCODED = """
title = "encoders"
seeds = 1
[data.sample]
all = "sample"
[systems.a]
model = "neural"
params = {encoder = "minilm"}
[systems.b]
model = "hitin"
params = {encoder = "minilm", max_length = 64}
[systems.c]
model = "hgclr"
params = {encoder = "minilm", max_length = 64, mode = "head"}
[systems.d]
model = "hbgl"
params = {encoder = "minilm", mode = "all"}
[systems.e]
model = "hbgl"
[systems.f]
model = "neural"
params = {encoder = "scratch"}
[systems.g]
model = "linear"
[[judge]]
rule = "best_leaf"
metrics = ["leaf_accuracy"]
"""


def test_what_runs_share_of_an_encoder_is_computed_before_them(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(ENCODED)
    plan = make_plan(read_spec(tmp_path / "study.toml"))
    found = {cell.system: encoder_of(plan, cell) for cell in plan.cells}
    assert found == {
        "a": ("minilm", False),
        "b": ("minilm(max_length=64)", False),
        "c": ("minilm(max_length=64)", True),
        "d": None,
        "e": ("", True),
        "f": None,
        "g": None,
    }
