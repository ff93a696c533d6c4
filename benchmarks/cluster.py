"""Shards on simulated nodes of Ray, against plain processes of the same number that share the files by --shard.

    python benchmarks/cluster.py                                   # 1e5 and 1e6 rows, 1, 2 and 4 nodes
    python benchmarks/cluster.py --rows 100000 --nodes 1           # smaller
    python benchmarks/cluster.py --features words                  # a model that does next to nothing for a row

Rows are made of two texts of the embedded sample, drawn at random, and a number, so that no two are the same, in
Parquet files; the model is the default one, linear over words, pairs of words and characters. A node has two logical
CPUs, so that 1, 2 and 4 nodes are 2, 4 and 8 processes that predict, each with one thread. Both sides start their
processes, load the model in each, and write the same parts; the cluster itself is there already. They run in turns, so
that a busy machine slows both down alike, and the best of `--repeats` counts. The nodes share one machine: the ratio
says what Ray costs, and nothing of how more machines would be faster.

Claim: with the most rows, on one node, Ray takes at most 15% longer than the processes. Memory is the peak of one
worker; bytes are what workers read and write themselves, as nothing but the names of files passes through Ray.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import ROOT, Claim, report, users_environment

from treelabel import load_sample, make_model

MOST_OVERHEAD = 1.15
CPUS = 2
# Files of an input; so many that 8 processes have about as much to do each.
SHARDS = 32
FEATURES: dict[str, dict[str, Any]] = {
    "default": {"ngram_range": (1, 2), "char_ngram_range": (4, 4)},
    "words": {"ngram_range": (1, 1), "char_ngram_range": None},
}
ONE_THREAD = dict.fromkeys(("TREELABEL_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# Ray then binds to the loopback interface alone, and its workers do not give way to other processes (they have a
# niceness of 15 otherwise, and plain processes none).
LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}


def make_input(folder: Path, rows: int) -> None:
    """Write random texts of the sample to files."""
    texts = np.asarray(list(load_sample().texts), dtype=object)
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(SHARDS):
        count = rows * (number + 1) // SHARDS - rows * number // SHARDS
        ids = pa.array(np.arange(count) + rows * number // SHARDS).cast(pa.string())
        halves = texts[rng.integers(0, len(texts), count)], texts[rng.integers(0, len(texts), count)]
        joined = [f"{one} {two} {row}" for row, (one, two) in enumerate(zip(*halves, strict=True))]
        table = pa.table({"id": ids, "text": joined})
        pq.write_table(table, folder / f"part-{number:03}.parquet")


def command(home: Path, source: Path, *more: str) -> list[str]:
    """Return the command that predicts all files of a folder."""
    files = [str(home / "model"), str(source / "*.parquet"), "-o", str(home / "out")]
    return [sys.executable, "-m", "treelabel", "predict", *files, "--json", *more]


def run_processes(home: Path, source: Path, count: int) -> tuple[float, dict[str, Any]]:
    """Run plain processes, each with a share of the files: the seconds, and the sums of what they report."""
    shutil.rmtree(home / "out", ignore_errors=True)
    environment, begun = users_environment(ROOT / "src", **ONE_THREAD), time.perf_counter()
    started = [
        subprocess.Popen(
            command(home, source, "--shard", f"{each + 1}/{count}"), env=environment, stdout=subprocess.PIPE
        )
        for each in range(count)
    ]
    outputs = [process.communicate()[0] for process in started]
    took = time.perf_counter() - begun
    return took, _joined([json.loads(output) for output in outputs])


def run_ray(home: Path, source: Path, address: str) -> tuple[float, dict[str, Any]]:
    """Run the same on a cluster."""
    shutil.rmtree(home / "out", ignore_errors=True)
    environment, begun = users_environment(ROOT / "src", **ONE_THREAD, **LOCAL), time.perf_counter()
    ended = subprocess.run(
        command(home, source, "--cluster", address), env=environment, stdout=subprocess.PIPE, check=True
    )
    took = time.perf_counter() - begun
    return took, _joined([json.loads(ended.stdout)])


def _joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    peak = max(each["peak_memory_of_a_worker"] for each in reports)
    sums = {name: sum(each[name] for each in reports) for name in ("rows", "bytes", "new")}
    return {**sums, "peak": peak, "failed": [one for each in reports for one in each["failed"]]}


def measure(home: Path, rows: int, nodes: int, repeats: int) -> dict[str, Any]:
    """Measure both sides, in turns, on a cluster that is started for it."""
    os.environ.update(LOCAL)
    from ray.cluster_utils import Cluster

    source = home / f"in-{rows}"
    if not source.is_dir():
        make_input(source, rows)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": CPUS, "include_dashboard": False})
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=CPUS)
    cluster.wait_for_nodes()
    plain, ray = [], []
    try:
        for _ in range(repeats):
            plain.append(run_processes(home, source, CPUS * nodes))
            ray.append(run_ray(home, source, cluster.address))
    finally:
        cluster.shutdown()
    for _, numbers in (*plain, *ray):
        assert numbers["rows"] == rows, numbers
        assert numbers["new"] == SHARDS, numbers
    read = sum(file.stat().st_size for file in source.iterdir())
    best, other = min(ray, key=lambda each: each[0]), min(plain, key=lambda each: each[0])
    return {
        "rows": rows,
        "nodes": nodes,
        "processes": CPUS * nodes,
        "ray_seconds": best[0],
        "plain_seconds": other[0],
        "ratio": best[0] / other[0],
        "ray_worker_mb": best[1]["peak"] / 2**20,
        "plain_process_mb": other[1]["peak"] / 2**20,
        "read_mb": read / 2**20,
        "written_mb": best[1]["bytes"] / 2**20,
    }


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--nodes", default="1,2,4")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--features", choices=list(FEATURES), default="default")
    chosen = parser.parse_args()
    rows, nodes = ([int(float(each)) for each in text.split(",")] for text in (chosen.rows, chosen.nodes))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_model("linear", **FEATURES[chosen.features]).fit(load_sample()).save(home / "model")
        # Loops are compiled, and the caches warm, before anything is measured.
        make_input(home / "in-0", SHARDS)
        run_processes(home, home / "in-0", 1)
        results = []
        for count in rows:
            for each in nodes if count == max(rows) else nodes[:1]:
                result = measure(home, count, each, chosen.repeats)
                print(json.dumps({name: round(value, 3) for name, value in result.items()}), flush=True)
                results.append(result)
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    last = next(each for each in results if each["rows"] == max(rows))
    ratio = last["ratio"]
    claim = Claim(
        f"predict {max(rows):,} rows on {last['nodes']} node of Ray",
        f"{last['ray_seconds']:.1f} s",
        f"{last['processes']} processes {last['plain_seconds']:.1f} s",
        1 / ratio,
        f"<= {MOST_OVERHEAD - 1:.0%} longer",
        ratio <= MOST_OVERHEAD,
    )
    return 0 if report("Shards on a cluster", [claim]) else 1


if __name__ == "__main__":
    sys.exit(main())
