"""Shards and their parts: the bytes of one process, nothing lost and nothing twice after kills, and true summaries."""

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers import Run, put
from tests.models.test_models import SETS
from treelabel import TreelabelError, make_model
from treelabel.cluster import shards
from treelabel.cluster.shards import parse_share, plan_shards, run_here, run_shard, run_shards
from treelabel.operations import bulk
from treelabel.operations.batch_scorer import BatchScorer
from treelabel.operations.bulk import FileJob, predict_file

TEXTS = list(SETS["leaf"].texts)
COUNT = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "model"
    make_model("linear").fit(SETS["leaf"]).save(folder)
    return folder


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Write shards in three formats; return their pattern."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(COUNT):
        texts = TEXTS[number::COUNT]
        ids = [f"{number}-{row}" for row in range(len(texts))]
        if number == 0:
            put(folder, "p0.csv", "id,text\n" + "".join(f"{i},{t}\n" for i, t in zip(ids, texts, strict=True)))
        elif number == 1:
            lines = (json.dumps({"id": i, "text": t}) + "\n" for i, t in zip(ids, texts, strict=True))
            put(folder, "p1.jsonl", "".join(lines))
        else:
            pq.write_table(pa.table({"id": ids, "text": texts}), folder / f"p{number}.parquet")
    return folder / "p*"


def planned(model: Path, pattern: Path, folder: Path) -> list[shards.ShardJob]:
    scorer = BatchScorer(model)
    files = sorted(pattern.parent.iterdir())
    jobs = {file: FileJob(scorer, file, {"need_labels": False}, folder, "jsonl") for file in files}
    return plan_shards(jobs, folder, ".jsonl")


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name[0] != "_"}


def test_parts_are_what_one_process_writes_and_shares_are_all_shards(
    model: Path, inputs: Path, tmp_path: Path, run: Run
) -> None:
    for share in ("1/2", "2/2"):
        ended = run("predict", model, inputs, "-o", tmp_path / "out", "--shard", share)
        assert ended.code == 0, ended.err
    made = parts(tmp_path / "out")
    assert list(made) == [f"p{number}.jsonl" for number in range(COUNT)]
    for file in inputs.parent.iterdir():
        assert run("predict", model, file, "-o", tmp_path / "one.jsonl", "--force").code == 0
        assert made[f"{file.stem}.jsonl"] == (tmp_path / "one.jsonl").read_bytes()
    assert not (tmp_path / "out" / "_attempts").exists()
    assert "there already" in run("predict", model, inputs, "-o", tmp_path / "out", "--shard", "1/2").out
    ended = run("predict", model, inputs, "-o", tmp_path / "out", "--shard", "9/9")
    assert (ended.code, ended.out) == (0, "")
    assert "nothing to do" in ended.err


def test_scores_are_parts_too(model: Path, inputs: Path, tmp_path: Path, run: Run) -> None:
    ended = run("score", model, inputs, "-o", tmp_path / "out", "--shard", "1/1", "--top", "2", "--json")
    assert ended.json["rows"] == len(TEXTS)
    one = inputs.parent / "p3.parquet"
    assert run("score", model, one, "-o", tmp_path / "s.parquet", "--top", "2").code == 0
    assert (tmp_path / "out" / "p3.parquet").read_bytes() == (tmp_path / "s.parquet").read_bytes()


KILLED = """
import os, pickle, signal, sys
from treelabel.cluster import shards
from treelabel.operations import bulk

STEPS = "sync", "file_sha256", "_write_json", "remove_file"
step, count = int(sys.argv[2]), [0]

def dying(function):
    def wrapper(*arguments, **named):
        count[0] += 1
        if count[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return wrapper

for module, name in ((bulk, "predict_file"), *((shards, name) for name in STEPS)):
    setattr(module, name, dying(getattr(module, name)))
planned = pickle.loads(open(sys.argv[1], "rb").read())
shards.run_shards(planned, shards.run_here)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills processes")
@pytest.mark.slow
def test_a_run_that_was_killed_anywhere_is_gone_on_with_to_the_same_bytes(
    model: Path, inputs: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    assert not run_shards(planned(model, inputs, whole), run_here).failed
    jobs = planned(model, inputs, tmp_path / "out")
    put(tmp_path, "jobs.pickle", pickle.dumps(jobs))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # Each run goes a few steps further than the one before: a shard has five of them.
    for step in (1, 3, 5, 7):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "jobs.pickle"), str(step)]
        assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    finished = sum(map(shards.is_done, jobs))
    assert 0 < finished < COUNT
    summary = run_shards(jobs, run_here)
    assert (summary.skipped, len(summary.results), summary.failed) == (finished, COUNT - finished, [])
    assert parts(tmp_path / "out") == parts(whole)


def test_a_shard_that_cannot_be_read_is_reported_and_the_others_are_done(
    model: Path, inputs: Path, tmp_path: Path, run: Run
) -> None:
    bad = inputs.parent / "p2.parquet"
    good = bad.read_bytes()
    bad.write_bytes(good[: len(good) // 2])
    ended = run("predict", model, inputs, "-o", tmp_path / "out", "--shard", "1/1")
    assert ended.code == 2
    assert "1 of 5 shards have no part" in ended.err
    assert "p2.parquet" in ended.err
    assert "4 new" in ended.out
    assert len(parts(tmp_path / "out")) == COUNT - 1
    reason = json.loads((tmp_path / "out" / "_failed" / "p2.jsonl.json").read_text())
    assert reason["source"] == str(bad)
    bad.write_bytes(good)
    ended = run("predict", model, inputs, "-o", tmp_path / "out", "--shard", "1/1")
    assert "1 new" in ended.out
    assert "4 there already" in ended.out
    assert not list((tmp_path / "out" / "_failed").iterdir())


def test_a_part_that_was_damaged_or_lost_is_made_again(model: Path, inputs: Path, tmp_path: Path) -> None:
    jobs = planned(model, inputs, tmp_path / "out")
    run_shards(jobs, run_here)
    made = parts(tmp_path / "out")
    jobs[0].part.unlink()
    jobs[1].part.write_bytes(made[jobs[1].part.name][:-9])
    jobs[2].marker.write_text("{")
    summary = run_shards(jobs, run_here)
    assert (summary.skipped, len(summary.results)) == (COUNT - 3, 3)
    assert parts(tmp_path / "out") == made


def test_a_full_disk_is_tried_once_more(
    model: Path, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, tries = planned(model, inputs, tmp_path / "out"), list[str]()

    def full(job: FileJob) -> object:
        tries.append(job.texts.name)
        if job.texts.name == "p3.parquet" and tries.count("p3.parquet") == 1:
            raise OSError(28, "No space left on device")
        return predict_file(job)

    monkeypatch.setattr(bulk, "predict_file", full)
    assert not run_shards(jobs, run_here).failed
    assert tries.count("p3.parquet") == 2
    assert len(tries) == COUNT + 1


def test_an_engine_that_loses_shards_is_found_out(model: Path, inputs: Path, tmp_path: Path) -> None:
    jobs = planned(model, inputs, tmp_path / "out")
    rounds: list[int] = []

    def forgetful(some: Sequence[shards.ShardJob]) -> Iterator[shards.ShardResult]:
        rounds.append(len(some))
        return map(run_shard, some[len(rounds) % 2 :])

    assert not run_shards(jobs, forgetful).failed
    assert rounds == [COUNT, 1]
    summary = run_shards(planned(model, inputs, tmp_path / "other"), lambda some: iter(()))
    assert len(summary.failed) == COUNT
    assert json.loads((tmp_path / "other" / "_summary.json").read_text())["new"] == 0


def test_what_cannot_work_is_refused_before_anything_is_read(
    model: Path, inputs: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "out"
    for arguments, expected in (
        (["--shard", "0/4"], "expected a share such as 3/64"),
        (["--shard", "1/2", "--cluster", "auto"], "exclude each other"),
        (["--shard", "1/1", "--rule", "optimal:macro_f1"], "decides on all documents together"),
    ):
        ended = run("predict", model, inputs, "-o", out, *arguments)
        assert ended.code == 2
        assert expected in ended.err
    assert not out.exists()
    assert "name it with -o" in run("predict", model, inputs, "--shard", "1/1").err
    assert run("predict", model, inputs, "-o", out, "--shard", "1/1").code == 0
    ended = run("predict", model, inputs, "-o", out, "--shard", "1/1", "--rule", "threshold@0.3")
    assert ended.code == 2
    assert "was made with another rule: 'best_leaf', now 'threshold@0.3'" in ended.err
    put(inputs.parent, "p1.csv", "text\nthe cat meows\n")
    with pytest.raises(TreelabelError, match=r"would become the part 'p1\.jsonl'"):
        planned(model, inputs, out)
    assert parse_share("2/2") == (2, 2)
