"""Learning on a cluster: blocks of outputs of `linear`, and sub-trees of `extreme`, as tasks of Ray."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treelabel.cluster.job_files import JobFiles, StoredJob, load_job
from treelabel.cluster.ray_engine import WORKER_MEMORY, alive_nodes, ray_session, run_remotely
from treelabel.core.errors import TreelabelError
from treelabel.core.learning_tasks import Executor, LearningJob, executed_by

# Groups of tasks for each CPU: more of them are better balanced, fewer cost less.
GROUPS_PER_CPU = 4


def learn_tasks(stored: StoredJob, tasks: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Do some tasks of a job in this process."""
    job = load_job(stored)
    return [(task, job.learn(task)) for task in tasks]


def balanced_groups(tasks: Sequence[Any], costs: Sequence[float], most: int) -> list[list[Any]]:
    """Divide tasks into consecutive groups of about equal cost.

    Consecutive clusters of a label tree have consecutive children, so that such a group is a part of the tree.

    Parameters
    ----------
    tasks, costs
        Tasks, and what each costs.
    most
        How many groups at most.

    Returns
    -------
    list of lists

    >>> balanced_groups("abcdef", [5, 1, 1, 1, 1, 1], 2)
    [['a'], ['b', 'c', 'd', 'e', 'f']]
    """
    groups: list[list[Any]] = [[] for _ in range(most)]
    total, before = sum(costs) or 1.0, 0.0
    for task, cost in zip(tasks, costs, strict=True):
        # By the middle of each task, so that a large one takes a group of its own.
        groups[min(most - 1, int(most * (before + cost / 2) / total))].append(task)
        before += cost
    return [group for group in groups if group]


@contextmanager
def ray_executor(address: str, folder: Path) -> Iterator[Executor]:
    """Connect to a cluster that does the tasks of a fit; everything else is done here.

    The arrays of a job, features among them, are written to the folder once and mapped into the memory of the workers.
    Results are put together here, and nothing is saved before all are there. Tasks whose workers or nodes die are done
    again.

    Parameters
    ----------
    address
        As for `ray_session`.
    folder
        A folder for the arrays, which all nodes see; it is removed in the end.

    Yields
    ------
    Executor
        For `treelabel.core.learning_tasks.executed_by`.
    """
    with ray_session(address) as ray:
        files = JobFiles(folder)
        try:
            yield lambda *arguments: _execute(ray, files, *arguments)
        finally:
            files.close()


@contextmanager
def learning_on_ray(address: str, folder: Path) -> Iterator[None]:
    """Within this block, models learn on a cluster: see `ray_executor`."""
    with ray_executor(address, folder) as executor, executed_by(executor):
        yield


def _execute(
    ray: Any,
    files: JobFiles,
    job: LearningJob,
    tasks: Sequence[Any],
    costs: Sequence[float],
    take: Callable[[Any, Any], object],
    done: Callable[[int], object],
) -> None:
    stored = files.store(job)
    nodes = alive_nodes(ray)
    cpus = max(1, int(sum(node["Resources"].get("CPU", 0) for node in nodes)))
    calls = [(stored, group) for group in balanced_groups(tasks, costs, GROUPS_PER_CPU * cpus)]
    # All workers of a node share the mapped arrays.
    memory = WORKER_MEMORY + stored.size * len(nodes) // cpus
    count = 0
    for results in run_remotely(ray, learn_tasks, calls, 1, memory):
        for task, result in results:
            take(task, result)
            count += 1
            done(count)
    if count < len(tasks):
        raise TreelabelError(
            f"{len(tasks) - count:,} of {len(tasks):,} tasks of the fit failed on the cluster; nothing was written. "
            f"Every node must see {files.folder}, and have the same version of treelabel"
        )
