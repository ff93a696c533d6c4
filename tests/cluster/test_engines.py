"""The scorer in other engines, and shards by Spark: skipped where an engine is not installed (make test-cluster)."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.test_shards import parts
from tests.models.test_models import SETS
from treelabel import make_model
from treelabel.cluster.shards import plan_shards, run_here, run_shards
from treelabel.operations.batch_scorer import BatchScorer
from treelabel.operations.bulk import FileJob

# Ray then binds to the loopback interface alone.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
# And its workers are as important as anything else.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
EXAMPLES = Path(__file__).parents[2] / "examples" / "engines"


def require(*modules: str) -> None:
    """Skip a test where an engine is missing, or the Java that it runs on."""
    for name in modules:
        pytest.importorskip(name)
    if "pyspark" in modules:
        try:
            subprocess.run(["java", "-version"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("Spark needs Java")


@pytest.mark.parametrize("engine", ["dask", "daft", "spark", "ray_data"])
def test_the_example_of_an_engine_runs(engine: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    needed = {"dask": ("dask.dataframe",), "spark": ("pyspark",), "ray_data": ("ray.data",)}
    require(*needed.get(engine, (engine,)))
    if engine == "dask":
        pytest.importorskip("pandas", "2.0")
    script = EXAMPLES / f"score_with_{engine}.py"
    # A cluster of its own, and not one that happens to run here.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAY_ADDRESS": "local"}
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    printed = dict(line.split() for line in ended.stdout.splitlines() if line.startswith("d"))
    assert printed == {"d0": "dog", "d1": "cat", "d2": "cow", "d3": "dog", "d4": "cat", "d5": "cow"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model, shards, and the parts that one process makes of them."""
    folder = tmp_path_factory.mktemp("spark")
    make_model("linear").fit(SETS["leaf"]).save(folder / "model")
    (folder / "in").mkdir()
    texts = list(SETS["leaf"].texts)
    for number in range(4):
        pq.write_table(pa.table({"text": texts[number::4]}), folder / "in" / f"s{number}.parquet")
    files = sorted((folder / "in").iterdir())
    jobs = {
        file: FileJob(BatchScorer(folder / "model"), file, {"need_labels": False}, folder, "jsonl") for file in files
    }
    assert not run_shards(plan_shards(jobs, folder / "whole", ".jsonl"), run_here).failed
    return folder


def test_spark_submit_makes_the_parts_of_one_machine_and_reports_what_fails(home: Path) -> None:
    require("pyspark")
    pyspark: Any = importlib.import_module("pyspark")
    programs = os.pathsep.join([str(Path(pyspark.__file__).parent / "bin"), os.environ["PATH"]])
    files = [str(home / "model"), str(home / "in" / "*.parquet")]
    arguments = ["predict", *files, "-o", str(home / "spark"), "--spark"]
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["PYSPARK_PYTHON"] = sys.executable
    script = str(EXAMPLES.parents[1] / "deploy" / "spark-submit.sh")
    command = ["sh", script, *files, str(home / "spark"), "--json"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout)["new"] == 4
    assert parts(home / "spark") == parts(home / "whole")
    (home / "spark" / "s1.jsonl").unlink()
    (home / "in" / "bad.parquet").write_bytes(b"PAR1 but not really")
    # Without spark-submit: a session of this machine.
    again = subprocess.run(
        [sys.executable, "-m", "treelabel", *arguments, "--json"], env=environment, capture_output=True, text=True
    )
    assert again.returncode == 2
    numbers = json.loads(again.stdout)
    assert (numbers["new"], numbers["there_already"], len(numbers["failed"])) == (1, 3, 1)
    assert "bad.parquet" in again.stderr
    assert parts(home / "spark") == parts(home / "whole")
