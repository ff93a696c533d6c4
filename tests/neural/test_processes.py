"""Several processes that train one network: every system ends, and knows the same in all of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Fits one model after another in each process; labels are drawn at random, so that patience runs out.
CODE = """
import json
import os
import sys
import numpy as np
import torch
from tests.helpers import WordVectors, registered
from treelabel.models import make_model
from treelabel.models.check import CASES

torch.set_num_threads(1)
case, told = CASES["leaf"], []
texts, labels = case.texts * 3, case.labels * 3
with registered("words", WordVectors):
    for name, seconds, settings in json.loads(sys.argv[1]):
        print(name, settings, file=sys.stderr, flush=True)
        rng = np.random.default_rng(settings["seed"])
        given = [labels[row] for row in rng.permutation(len(labels))]
        model = make_model(name, **settings)
        # Clocks of processes differ: the second one has a deadline of its own.
        limit = None if seconds is None else seconds[int(os.environ["RANK"])]
        model.fit(texts, given, hierarchy=case.hierarchy, max_seconds=limit, progress=False)
        scores = model.score(case.texts).dense().tolist()
        stages = [[stage.steps, stage.planned, stage.stopped] for stage in model.evidence_.stages]
        told.append([name, model.losses_, model.stopped_, model.default_rule, stages, scores])
with open(os.path.join(sys.argv[2], os.environ["RANK"]), "w") as stream:
    json.dump(told, stream)
"""

HEAD = {"encoder": "words", "patience": 1, "batch_size": 32, "seed": 0, "epochs": 20}
SCRATCH = {**HEAD, "encoder": "scratch", "max_length": 8}
TREE = {"max_flat_labels": 2, "cluster_size": 2}
LATE = {"batch_size": 4, "epochs": 100_000, "patience": 100_000}

# What is fitted: a model, the seconds that each process allows it, and its settings.
Job = tuple[str, tuple[float, float] | None, dict[str, Any]]
SYSTEMS: list[Job] = [
    ("neural", None, HEAD),
    ("hgclr", None, SCRATCH),
    ("hbgl", None, {**SCRATCH, "global_steps": 5}),
    ("attention_xml", None, {**SCRATCH, **TREE}),
    ("light_xml", None, {**SCRATCH, **TREE}),
    ("aplc_xlnet", None, SCRATCH),
    ("x_transformer", None, HEAD),
]
BATCH_NORM: list[Job] = [("hitin", None, {**HEAD, "batch_size": 16, "seed": seed}) for seed in range(3)]
# Both of an early clock in one process alone: the first one's counts, and it is no Ctrl-C.
CLOCKS: list[Job] = [
    ("neural", (1.0, 1e6), {**HEAD, **LATE}),
    ("neural", (1e6, 0.001), {**HEAD, **LATE, "epochs": 2}),
    ("hbgl", (1.0, 1e6), {**SCRATCH, **LATE, "global_steps": 1_000_000}),
]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Any]]]:
    """Fit all models in the same two processes, which take longer to begin than to learn; return what both know."""
    found = in_two_processes([*SYSTEMS, *BATCH_NORM, *CLOCKS], tmp_path_factory.mktemp("processes"))
    ends = len(SYSTEMS), len(SYSTEMS) + len(BATCH_NORM)
    return {"systems": found[: ends[0]], "batch norm": found[ends[0] : ends[1]], "clocks": found[ends[1] :]}


def in_two_processes(jobs: list[Job], folder: Path) -> list[list[Any]]:
    """Fit models in two processes, one after another; return what both know of each. A deadlock fails by the clock."""
    script = folder / "fit.py"
    script.write_text(CODE)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "TREELABEL_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    arguments = [*run, str(script), json.dumps(jobs), str(folder)]
    errors = folder / "errors"
    with errors.open("w") as stream:
        process = subprocess.Popen(arguments, env=environment, cwd=folder, stderr=stream)
        try:
            code = process.wait(timeout=300)
        except subprocess.TimeoutExpired:
            # It ends the processes that it has started, which wait for each other; killed, it would leave them behind.
            process.terminate()
            code = process.wait(timeout=60)
    assert code == 0, errors.read_text()[-3000:]
    first, second = (json.loads((folder / rank).read_text()) for rank in ("0", "1"))
    assert first == second
    found: list[list[Any]] = first
    return found


@pytest.mark.slow
def test_every_system_ends_with_the_same_weights_in_two_processes(known: dict[str, list[list[Any]]]) -> None:
    for (name, _, settings), found in zip(SYSTEMS, known["systems"], strict=True):
        assert found[0] == name
        assert found[2] is None
        # Patience has run out.
        assert len(found[1]) < settings["epochs"], name


@pytest.mark.slow
def test_batch_norm_of_each_process_does_not_part_them(known: dict[str, list[list[Any]]]) -> None:
    """Validation losses differed by the statistics of own batches, and patience ran out in one process alone."""
    assert max(len(each[1]) for each in known["batch norm"]) < 20


@pytest.mark.slow
def test_a_deadline_comes_for_all_by_the_clock_of_the_first(known: dict[str, list[list[Any]]]) -> None:
    found = known["clocks"]
    assert [each[2] for each in found] == ["deadline", None, "deadline"]
    labels, texts = found[2][4]
    assert labels[2]
    assert texts[2]
    assert texts[0] >= 1
