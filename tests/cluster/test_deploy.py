"""Files of deploy/: what they run works, nothing runs as root or writes where it need not, and shapes are right."""

import json
import os
import re
import shlex
import shutil
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

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"
LOCKED = {
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder like /data, and a program treelabel that runs this code."""
    folder = tmp_path_factory.mktemp("data")
    make_model("linear").fit(SETS["leaf"]).save(folder / "model")
    (folder / "in").mkdir()
    for number in range(2):
        pq.write_table(pa.table({"text": list(SETS["leaf"].texts)[number::2]}), folder / "in" / f"s{number}.parquet")
    program = folder / "bin" / "treelabel"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m treelabel "$@"\n')
    program.chmod(0o755)
    return folder


def run_shell(home: Path, arguments: list[str], **environment: str) -> None:
    paths = {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        arguments, env={**os.environ, **paths, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec["containers"])


@pytest.mark.slow
def test_pods_of_an_indexed_job_share_the_files(home: Path) -> None:
    job = load("kubernetes/indexed-job.yaml")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    count, pod = job["spec"]["completions"], job["spec"]["template"]["spec"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = containers(pod)
    assert container["securityContext"] == LOCKED
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    (line,) = container["args"]
    assert f"/{count}" in line
    for index in range(2):
        command = [*container["command"], line.replace("/data", str(home))]
        run_shell(home, command, JOB_COMPLETION_INDEX=str(index))
    assert list(parts(home / "out")) == ["s0.jsonl", "s1.jsonl"]
    shutil.rmtree(home / "out")


@pytest.mark.slow
def test_the_array_of_slurm_shares_the_files(home: Path) -> None:
    script = ["sh", str(DEPLOY / "slurm.sh"), str(home / "model"), str(home / "in" / "*.parquet"), str(home / "out")]
    for index in ("1", "2"):
        run_shell(home, script, SLURM_ARRAY_TASK_ID=index, SLURM_ARRAY_TASK_COUNT="2")
    assert list(parts(home / "out")) == ["s0.jsonl", "s1.jsonl"]
    shutil.rmtree(home / "out")


def test_a_job_of_kuberay_has_the_shape_that_its_operator_reads() -> None:
    job = load("kubernetes/rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:2] == ["treelabel", "predict"]
    assert words[-2:] == ["--cluster", "auto"]
    cluster = job["spec"]["rayClusterSpec"]
    head, (group,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert head["rayStartParams"]["num-cpus"] == "0", "no shard runs beside the driver"
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert int(group["rayStartParams"]["num-cpus"]) >= 2
    for each in (head, group):
        # Values of rayStartParams are text.
        assert all(isinstance(value, str) for value in each["rayStartParams"].values())
        pod = each["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = containers(pod)
        assert container["securityContext"] == LOCKED
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    pins = (DEPLOY.parent / "constraints.txt").read_text()
    assert f"\nray=={cluster['rayVersion']}\n" in pins


def test_ray_accepts_the_description_of_a_cluster() -> None:
    ray: Any = pytest.importorskip("ray")
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.validate(load("cluster.yaml"), schema)


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cluster"])
def test_images_are_made_of_pins_and_run_as_nobody(name: str) -> None:
    text = (DEPLOY / name).read_text()
    joined = re.sub(r"\\\n", " ", text)
    steps = [line for line in joined.splitlines() if line and not line.startswith("#")]
    for line in steps:
        if line.startswith("RUN "):
            subprocess.run(["sh", "-n", "-c", line.removeprefix("RUN ")], check=True)
    assert any("--constraint /source/constraints.txt" in line for line in steps)
    last = max(index for index, line in enumerate(steps) if line.startswith("FROM "))
    assert "USER treelabel" in steps[last:], "the image runs as root"
    assert not any(line.startswith(("COPY . ", "ADD ")) for line in steps[last:]), "the source is in the image"
    # What is written goes to a folder that is mounted.
    cache = re.search(r"TREELABEL_CACHE=(/tmp|/state)", joined)
    assert cache is not None


@pytest.mark.parametrize("name", ["slurm.sh", "spark-submit.sh"])
def test_scripts_are_shell(name: str) -> None:
    subprocess.run(["sh", "-n", str(DEPLOY / name)], check=True)
