"""Tasks of Ray: of shards, one task per shard, one CPU per task, and the model loaded once in each worker process."""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treelabel.cluster.shards import Engine, ShardJob, ShardResult, run_shard_in_worker
from treelabel.core.errors import TreelabelError, require_extra

_log = logging.getLogger(__name__)

# Seconds without a finished task after which it is said what is missing.
PATIENCE = 30.0
# Seconds that a cluster may take to answer at all.
CONNECTION_TIMEOUT = 10.0
# A task whose worker or node died is run again so often: workers may die every few seconds.
MOST_RETRIES = 100
# Bytes of a worker beside its model, and how much of a model's folder it takes in memory: arrays are compressed there.
WORKER_MEMORY = 400 << 20
MEMORY_OF_FOLDER = 3


@contextmanager
def ray_session(address: str, threads: int = 1) -> Iterator[Any]:
    """Connect to a cluster, and disconnect at the end.

    Every node must have treelabel installed, and see the model, the input and the output under the same paths.

    Parameters
    ----------
    address
        "auto" for the cluster that this machine is part of, or else one of this machine alone; "ray://HOST:PORT" or
        "HOST:PORT" for another.
    threads
        Threads, and CPUs, of each task.

    Yields
    ------
    module
        Ray.
    """
    with require_extra("cluster", "--cluster"):
        import ray
    started = not ray.is_initialized()
    if started:
        _connect(ray, address, threads)
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


@contextmanager
def ray_engine(address: str, threads: int = 1) -> Iterator[Engine]:
    """Run shards on a cluster.

    Parameters
    ----------
    address, threads
        As for `ray_session`.

    Yields
    ------
    Engine
    """
    with ray_session(address, threads) as ray:
        yield lambda shards: _run(ray, shards, threads)


def _connect(ray: Any, address: str, threads: int) -> None:
    # Tasks have one CPU each; what they compute with has as many threads.
    names = ("TREELABEL_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    passed = {name: value for name, value in os.environ.items() if name.startswith("TREELABEL_")}
    environment = {"env_vars": passed | dict.fromkeys(names, str(threads))}
    options = {"runtime_env": environment, "log_to_driver": False, "logging_level": logging.WARNING}
    try:
        _require_reachable(address)
        try:
            ray.init(address=address, **options)
        except ConnectionError:
            if address != "auto":
                raise
            ray.init(include_dashboard=False, **options)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise TreelabelError(
            f"--cluster {address}: cannot be reached: {' '.join(str(error).split())[:200]}; start one with "
            "'ray start --head', and give the address that it prints"
        ) from None
    nodes = alive_nodes(ray)
    cpus = sum(node["Resources"].get("CPU", 0) for node in nodes)
    _log.info("cluster: %s nodes, %g CPUs", len(nodes), cpus)


def _require_reachable(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECTION_TIMEOUT).close()


def alive_nodes(ray: Any) -> list[Any]:
    """Return the nodes that are alive, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]


def needed_memory(folder: Path) -> int:
    """Estimate the bytes that a worker takes, from the size of its model's folder.

    >>> needed_memory(Path("/nowhere")) >> 20
    400
    """
    files = folder.iterdir() if folder.is_dir() else ()
    return WORKER_MEMORY + MEMORY_OF_FOLDER * sum(file.stat().st_size for file in files if file.is_file())


def _run(ray: Any, shards: Sequence[ShardJob], threads: int) -> Iterator[ShardResult]:
    """Run shards as tasks; those whose workers died too often are not yielded."""
    if not shards:
        return
    folder = shards[0].job.model_folder
    memory = needed_memory(folder) if folder is not None else WORKER_MEMORY
    yield from run_remotely(ray, run_shard_in_worker, [(shard,) for shard in shards], threads, memory)


def run_remotely(
    ray: Any, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], threads: int, memory: int
) -> Iterator[Any]:
    """Call a function once for each of some arguments, as tasks on all nodes.

    Parameters
    ----------
    ray
        What `ray_session` yields.
    function
        The function, which all nodes have.
    calls
        The arguments of each call.
    threads, memory
        CPUs and bytes of each task.

    Yields
    ------
    object
        Results as they come; those of calls whose workers died too often, or that failed, are missing, with a warning.
    """
    _refuse_what_cannot_run(ray, threads, memory)
    options = {"num_cpus": threads, "memory": memory, "max_retries": MOST_RETRIES, "scheduling_strategy": "SPREAD"}
    task = ray.remote(function).options(**options)
    waiting = [task.remote(*call) for call in calls]
    yield from _results(ray, waiting, lambda count: _describe_wait(ray, count, threads, memory))


def _results(ray: Any, waiting: list[Any], describe: Callable[[int], str]) -> Iterator[Any]:
    last = time.monotonic()
    while waiting:
        finished, waiting = ray.wait(waiting, num_returns=1, timeout=PATIENCE)
        if not finished and time.monotonic() - last >= PATIENCE:
            _log.warning(describe(len(waiting)))
            last = time.monotonic()
        for reference in finished:
            last = time.monotonic()
            try:
                yield ray.get(reference)
            except ray.exceptions.RayError as error:
                _log.warning("a task was given up: %s", " ".join(str(error).split())[:300])


def _refuse_what_cannot_run(ray: Any, threads: int, memory: int) -> None:
    nodes = [node["Resources"] for node in alive_nodes(ray)]
    if any(node.get("CPU", 0) >= threads and node.get("memory", 0) >= memory for node in nodes):
        return
    shown = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('memory', 0) / 2**20:,.0f} MB" for node in nodes[:5])
    raise TreelabelError(
        f"no node of the cluster can work on a task, which needs {threads} CPU and {memory / 2**20:,.0f} MB; nodes "
        f"have: {shown or 'none is alive'}"
    )


def _describe_wait(ray: Any, waiting: int, threads: int, memory: int) -> str:
    """Say what the cluster has and what is wanted, where nothing is finished for long."""
    nodes, free = alive_nodes(ray), ray.available_resources()
    return (
        f"no task was finished in the last {PATIENCE:.0f} s: {waiting:,} are waiting or being worked on, each needs "
        f"{threads} CPU and {memory / 2**20:,.0f} MB; {len(nodes)} nodes are alive, with {free.get('CPU', 0):g} CPUs "
        f"and {free.get('memory', 0) / 2**20:,.0f} MB free. If these are free and nothing goes on, look at 'ray status'"
    )
