"""Shards on a simulated cluster of Ray: workers, nodes and the driver die, and nothing is lost or done twice."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.test_distributed_fit import state_of
from tests.cluster.test_shards import parts
from tests.helpers import Run
from tests.models.test_models import SETS
from treelabel import TreelabelError, load_model, load_sample, make_model
from treelabel.cluster import ray_engine
from treelabel.cluster.distributed_fit import learning_on_ray
from treelabel.cluster.shards import RunSummary, ShardJob, plan_shards, run_here, run_shards
from treelabel.hierarchy.label_ids import decode
from treelabel.operations.batch_scorer import BatchScorer
from treelabel.operations.bulk import FileJob

# Ray then binds to the loopback interface alone; read when it is imported, also by the processes that it starts.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
# Workers are as important as the tests beside them; by default they give way to everything else.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

COUNT, ROWS = 12, 4_000
SMALL_DISK = 4_096
PETS = [("woof woof", "pet > dog"), ("meow meow", "pet > cat")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start two nodes of two logical CPUs each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(num_cpus=2)
    made.wait_for_nodes()
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model, shards, and the parts that one process makes of them."""
    folder = tmp_path_factory.mktemp("ray")
    make_model("linear").fit(SETS["leaf"]).save(folder / "model")
    (folder / "in").mkdir()
    texts = list(SETS["leaf"].texts)
    for number in range(COUNT):
        rows = pa.table({"text": [f"{texts[row % len(texts)]} {number} {row}" for row in range(ROWS)]})
        pq.write_table(rows, folder / "in" / f"s{number:02}.parquet")
    assert not run_shards(planned(folder, "whole"), run_here).failed
    return folder


def planned(home: Path, name: str) -> list[ShardJob]:
    scorer = BatchScorer(home / "model")
    files = sorted((home / "in").iterdir())
    jobs = {file: FileJob(scorer, file, {"need_labels": False}, home / name, "jsonl") for file in files}
    return plan_shards(jobs, home / name, ".jsonl")


def on_ray(cluster: Any, home: Path, name: str) -> RunSummary:
    with ray_engine.ray_engine(cluster.address) as engine:
        return run_shards(planned(home, name), engine)


def workers(function: str = "run_shard") -> list[psutil.Process]:
    """Return the processes that work on shards, or on something else."""
    every = psutil.process_iter(["cmdline"])
    return [process for process in every if f"ray::{function}" in " ".join(process.info["cmdline"] or ())]


@contextmanager
def meanwhile(work: Callable[[], object], seconds: float) -> Iterator[None]:
    """Do something every few moments in the background, until the block ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_both_nodes_work_and_parts_are_those_of_one_machine(cluster: Any, home: Path) -> None:
    seen: set[int] = set()

    def look() -> None:
        with suppress(psutil.Error):
            seen.update(process.ppid() for process in workers())

    with meanwhile(look, 0.05):
        summary = on_ray(cluster, home, "both")
    assert len(seen) == 2, "one raylet had no worker that ran a shard"
    assert (summary.shards, len(summary.results), summary.failed) == (COUNT, COUNT, [])
    assert summary.to_json()["rows"] == COUNT * ROWS
    assert parts(home / "both") == parts(home / "whole")
    again = on_ray(cluster, home, "both")
    assert (again.skipped, again.results) == (COUNT, ())


def test_workers_that_die_every_moment_lose_nothing(cluster: Any, home: Path) -> None:
    killed: list[int] = []

    def kill() -> None:
        # Now and then a process ends by itself while it is looked at.
        with suppress(psutil.Error):
            for process in workers()[:1] if len(killed) < 6 else ():
                process.kill()
                killed.append(process.pid)

    with meanwhile(kill, 0.3):
        summary = on_ray(cluster, home, "workers")
    assert len(killed) > 1, "workers were not killed: the test shows nothing"
    assert not summary.failed
    assert parts(home / "workers") == parts(home / "whole")


def test_a_node_that_goes_and_another_that_comes_lose_nothing(cluster: Any, home: Path) -> None:
    exchanged: list[Any] = []

    def exchange() -> None:
        if not exchanged and workers():
            exchanged.append(cluster.list_all_nodes()[-1])
            cluster.remove_node(exchanged[0], allow_graceful=False)
            cluster.add_node(num_cpus=2)

    with meanwhile(exchange, 0.1):
        summary = on_ray(cluster, home, "nodes")
    assert exchanged, "no node was removed: the test shows nothing"
    assert not summary.failed
    assert parts(home / "nodes") == parts(home / "whole")


def test_a_driver_that_was_killed_is_started_again(cluster: Any, home: Path) -> None:
    command = [sys.executable, "-m", "treelabel", "predict", str(home / "model"), str(home / "in" / "*.parquet")]
    command += ["-o", str(home / "driver"), "--cluster", cluster.address, "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        done = home / "driver" / "_done"
        while driver.poll() is None and (not done.is_dir() or len(list(done.iterdir())) < 2):
            time.sleep(0.02)
        driver.kill()
        assert driver.wait() == -signal.SIGKILL
    ended = subprocess.run(command, env=environment, check=True, capture_output=True)
    numbers = json.loads(ended.stdout)
    assert numbers["there_already"] >= 2
    assert numbers["there_already"] + numbers["new"] == COUNT
    assert parts(home / "driver") == parts(home / "whole")


def test_a_shard_that_cannot_be_read_is_quarantined_by_the_command(cluster: Any, home: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for file in sorted((home / "in").iterdir())[:3]:
        (tmp_path / "in" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "in" / "s01.parquet").write_bytes(b"PAR1 but not really")
    command = [sys.executable, "-m", "treelabel", "predict", str(home / "model"), str(tmp_path / "in" / "*.parquet")]
    command += ["-o", str(tmp_path / "out"), "--cluster", cluster.address]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "3 shards: 2 new with 8,000 documents, 1 FAILED" in ended.stdout
    assert "1 of 3 shards have no part" in ended.stderr
    assert "s01.parquet" in ended.stderr
    assert list(parts(tmp_path / "out")) == ["s00.jsonl", "s02.jsonl"]


def test_what_no_node_can_run_is_refused_and_waiting_is_explained(
    cluster: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "WORKER_MEMORY", 1 << 50)
    with pytest.raises(TreelabelError, match="no node of the cluster can work on a task, which needs 1 CPU"):
        on_ray(cluster, home, "refused")
    monkeypatch.undo()
    with (
        pytest.raises(TreelabelError, match=r"127\.0\.0\.1:1: cannot be reached"),
        ray_engine.ray_engine("127.0.0.1:1"),
    ):
        pass
    monkeypatch.setattr(ray_engine, "PATIENCE", 0.5)
    said: list[str] = []
    monkeypatch.setattr(ray_engine._log, "warning", lambda text, *_: said.append(text))
    with ray_engine.ray_engine(cluster.address) as engine:
        blocking = ray.remote(lambda seconds: time.sleep(seconds)).options(num_cpus=1)
        waiting = [blocking.remote(3) for _ in range(4)]
        summary = run_shards(planned(home, "waiting")[:1], engine)
        ray.get(waiting)
    assert not summary.failed
    assert any("no task was finished in the last" in text and "0 CPUs" in text for text in said), said


def test_a_node_whose_disk_is_full_loses_nothing(cluster: Any, home: Path) -> None:
    raylet = cluster.list_all_nodes()[-1].all_processes["raylet"][0].process.pid
    limited: set[int] = set()

    def fill() -> None:
        """Let the workers of one node write no more than a few kilobytes to a file."""
        for process in workers():
            with suppress(psutil.Error):
                if process.pid not in limited and process.ppid() == raylet:
                    process.rlimit(psutil.RLIMIT_FSIZE, (SMALL_DISK, SMALL_DISK))
                    limited.add(process.pid)

    with meanwhile(fill, 0.01):
        summary = on_ray(cluster, home, "full")
    assert limited, "no worker had a full disk: the test shows nothing"
    numbers = json.loads((home / "full" / "_summary.json").read_text())
    assert numbers["new"] + len(numbers["failed"]) == COUNT
    made, whole = parts(home / "full"), parts(home / "whole")
    assert made == {name: content for name, content in whole.items() if name in made}
    assert len(made) == numbers["new"]
    assert all("large" in each.problem or "room" in each.problem for each in summary.failed), summary.failed
    # The disk has room again.
    for pid in limited:
        with suppress(psutil.Error):
            psutil.Process(pid).kill()
    again = on_ray(cluster, home, "full")
    assert (again.skipped, again.failed) == (len(made), [])
    assert parts(home / "full") == whole


def test_what_the_cluster_learns_has_the_bits_of_one_machine(cluster: Any, tmp_path: Path) -> None:
    data = load_sample()[:1_500]
    settings: dict[str, dict[str, Any]] = {
        "linear": {"head": "nodes", "ngram_range": (1, 1), "char_ngram_range": None},
        "extreme": {"leaf_size": 10, "n_trees": 1, "validation_fraction": 0.1},
    }
    killed: list[int] = []

    def kill() -> None:
        with suppress(psutil.Error):
            for process in workers("learn_tasks")[:1] if len(killed) < 2 else ():
                process.kill()
                killed.append(process.pid)

    for name, chosen in settings.items():
        alone = make_model(name, **chosen).fit(data, progress=False)
        with meanwhile(kill, 0.5), learning_on_ray(cluster.address, tmp_path / "tasks"):
            shared = make_model(name, **chosen).fit(data, progress=False)
        assert state_of(shared) == state_of(alone)
    assert killed, "no worker was killed: the test shows nothing"
    assert not (tmp_path / "tasks").exists()


def test_a_model_is_judged_by_all_nodes(cluster: Any, home: Path, tmp_path: Path, run: Run) -> None:
    data = SETS["leaf"]
    (tmp_path / "in").mkdir()
    for number in range(3):
        some = data[np.arange(number, len(data), 3)]
        labels = [names[0] for names in decode(data.hierarchy, some.labels, paths=True)]
        rows = pa.table({"text": list(some.texts), "labels": labels})
        pq.write_table(rows, tmp_path / "in" / f"t{number}.parquet")
    command = ["evaluate", home / "model", tmp_path / "in" / "*.parquet", "--sep", " > ", "--intervals", "--json"]
    one = run(*command)
    several = run(*command, "--cluster", cluster.address, "-o", tmp_path / "states")
    assert several.code == 0, several.err
    assert json.loads(several.out) == json.loads(one.out)


def test_torchrun_trains_a_network_on_two_nodes(cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rows = "".join(json.dumps({"text": text, "labels": [label]}) + "\n" for text, label in PETS * 20)
    (tmp_path / "train.jsonl").write_text(rows)
    settings = ["epochs=1", "max_length=8", "batch_size=16"]
    command = [sys.executable, "-m", "treelabel", "fit", "train.jsonl", "-o", "model", "--model", "neural"]
    command += ["--encoder", "scratch", *(part for each in settings for part in ("--set", each))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [*command, "--cluster", cluster.address], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "model: neural, 40 documents" in ended.stdout
    assert load_model(tmp_path / "model").score(["woof"]).dense().shape == (1, 3)
    broken = subprocess.run(
        [*command, "--set", "epochs=-1", "--cluster", cluster.address],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
    )
    assert broken.returncode == 2


STUDY = """
title = "Cells on nodes"
seeds = 1
[data.nouns]
all = "sample"
split = {train = 0.8, test = 0.2}
[systems.linear]
model = "linear"
params = {ngram_range = [1, 1], head = "nodes"}
[systems.most_frequent]
model = "most_frequent"
[[judge]]
rule = "best_leaf"
metrics = ["hf1"]
"""


def test_the_cells_of_a_study_run_on_nodes(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    command = [sys.executable, "-m", "treelabel", "bench", "study.toml", "-o", "results", "--style", "csv"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [*command, "--cluster", cluster.address, "--jobs", "2"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    runs = [json.loads(file.read_text()) for file in (tmp_path / "results" / "runs").glob("*.json")]
    assert sorted(run["status"] for run in runs) == ["done", "done"]
