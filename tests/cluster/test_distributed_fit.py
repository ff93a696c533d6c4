"""Learning by tasks that other processes do: the same bits as in threads."""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.test_models import SETS
from treelabel import load_sample, make_model
from treelabel.cluster import job_files
from treelabel.cluster.distributed_fit import balanced_groups, learn_tasks
from treelabel.cluster.job_files import JobFiles, load_job
from treelabel.core.learning_tasks import executed_by
from treelabel.core.stopping import StopSignal
from treelabel.models.base import Model
from treelabel.models.extreme import rankers

WORDS = {"ngram_range": (1, 1), "char_ngram_range": None}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("linear", {"head": "nodes", **WORDS}, "sample"),
    ("linear", {"head": "conditional_softmax", **WORDS}, "leaf"),
    ("linear", {"head": "conditional_sigmoid", **WORDS}, "many"),
    ("extreme", {"leaf_size": 10, "n_trees": 2, "validation_fraction": 0.1}, "sample"),
    ("extreme", {"leaf_size": 2, "n_trees": 1, "negatives": "both", "propensity": 0.5}, "many"),
    ("svm", {"validation_fraction": 0.1}, "sample"),
]
DATA = {**SETS, "sample": load_sample()[:600]}


def state_of(model: Model) -> dict[str, bytes]:
    return {name: np.asarray(array).tobytes() for name, array in model._state()[1].items()}


@pytest.fixture
def small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put nearly all arrays into files."""
    monkeypatch.setattr(job_files, "LEAST_BYTES", 64)


@pytest.mark.usefixtures("small_arrays")
@pytest.mark.parametrize(("name", "settings", "data"), CASES)
def test_what_tasks_learn_from_files_in_any_order_has_the_bits_of_threads(
    name: str, settings: dict[str, Any], data: str, tmp_path: Path
) -> None:
    files, runs = JobFiles(tmp_path / "tasks"), list[int]()

    def execute(
        job: Any,
        tasks: Sequence[Any],
        costs: Sequence[float],
        take: Callable[[Any, Any], object],
        done: Callable[[int], object],
    ) -> None:
        stored = files.store(job)
        groups = balanced_groups(tasks, costs, 3)
        runs.append(len(groups))
        for group in reversed(groups):
            for task, result in pickle.loads(pickle.dumps(learn_tasks(stored, group))):
                take(task, result)
        done(len(tasks))

    alone = make_model(name, **settings).fit(DATA[data], progress=False)
    with executed_by(execute):
        shared = make_model(name, **settings).fit(DATA[data], progress=False)
    assert max(runs) > 1, "nothing was divided: the test shows nothing"
    assert state_of(shared) == state_of(alone)
    files.close()
    assert not (tmp_path / "tasks").exists()


def test_arrays_that_stay_are_written_once_and_can_be_written_to(tmp_path: Path) -> None:
    files = JobFiles(tmp_path / "tasks")
    features, other = np.arange(1 << 15, dtype=np.float64), np.ones(1 << 15)
    first = files.store((features, other, [1]))
    assert len(first.arrays) == 2
    second = files.store((features, features[:4], [2]))
    assert second.arrays == first.arrays[:1]
    assert sorted(tmp_path.joinpath("tasks").iterdir()) == sorted([second.body, *second.arrays])
    loaded, few, _ = load_job(second)
    loaded[0] = -1
    assert loaded.flags.writeable
    assert few.tolist() == [0, 1, 2, 3]
    assert load_job.__wrapped__(second)[0][0] == 0, "a process wrote to what others read"
    # What a run left that was killed.
    JobFiles(tmp_path / "tasks")
    assert not list((tmp_path / "tasks").iterdir())


def test_a_deadline_is_the_time_that_is_left_in_another_process() -> None:
    assert not pickle.loads(pickle.dumps(StopSignal()))
    assert pickle.loads(pickle.dumps(StopSignal(0.0))).reason is None
    assert bool(pickle.loads(pickle.dumps(StopSignal(0.0))))
    stopped = StopSignal()
    stopped.interrupt()
    assert pickle.loads(pickle.dumps(stopped)).reason == "interrupt"


def test_large_clusters_are_several_tasks() -> None:
    assert rankers._pieces(1, np.array([0, 5, 5 + 40])) == [(1, 5, 21), (1, 21, 37), (1, 37, 45)]
    assert len(rankers._pieces(0, np.array([0, 100_000]))) <= rankers.MOST_PIECES + 1


def test_groups_are_all_tasks_in_their_order() -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 7, 100):
        costs = rng.random(count).tolist()
        groups = balanced_groups(range(count), costs, 8)
        assert [task for group in groups for task in group] == list(range(count))
        assert len(groups) <= 8
