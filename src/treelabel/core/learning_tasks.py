"""Learning that is divided into tasks: in threads of this process, or by whoever does them elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from treelabel.core.compute import in_threads, in_worker_thread


class LearningJob(Protocol):
    """Data, and what is learned from them task by task; a copy can be sent to another process."""

    def learn(self, task: Any) -> Any:
        """Do a task."""


# Does tasks elsewhere: gets the job, the tasks, what each of them costs, what takes each task with its result, in any
# order, and what is told how many are done.
Executor = Callable[
    [LearningJob, Sequence[Any], Sequence[float], Callable[[Any, Any], object], Callable[[int], object]], None
]
_executor: ContextVar[Executor | None] = ContextVar("executor", default=None)


@contextmanager
def executed_by(executor: Executor) -> Iterator[None]:
    """Within this block, `run_tasks` has its tasks done by an executor, such as a cluster."""
    token = _executor.set(executor)
    try:
        yield
    finally:
        _executor.reset(token)


def has_executor() -> bool:
    """Return whether `run_tasks` has its tasks done elsewhere."""
    return _executor.get() is not None


def run_tasks(
    job: LearningJob,
    tasks: Sequence[Any],
    take: Callable[[Any, Any], object],
    done: Callable[[int], None] | None = None,
    interrupt: Callable[[], None] | None = None,
    costs: Sequence[float] | None = None,
) -> None:
    """Do all tasks of a job: in threads, or by the executor of `executed_by`; the results are the same.

    Parameters
    ----------
    job
        Does a task.
    tasks
        The tasks, taken in order.
    take
        Called with each task and its result as soon as it is there, in any thread and in any order.
    done, interrupt
        As for `in_threads`.
    costs
        How long each task takes, in any unit; by default all take as long.

    >>> class Squares:
    ...     def learn(self, task):
    ...         return task**2
    >>> results = {}
    >>> run_tasks(Squares(), [2, 3], results.__setitem__)
    >>> results[3]
    9
    """
    executor = _executor.get()
    if executor is None or in_worker_thread():
        in_threads(lambda task: take(task, job.learn(task)), tasks, done, interrupt)
        return
    executor(job, tasks, [1.0] * len(tasks) if costs is None else costs, take, lambda count: done and done(count))
