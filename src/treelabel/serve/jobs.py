"""Jobs: what the service does in processes of their own, one after another."""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal, cast

from treelabel.core.child_python import child_python
from treelabel.core.errors import quote, shorten
from treelabel.serve.learning import LearningTask
from treelabel.serve.problems import ProblemError
from treelabel.serve.schemas import JobAnswer
from treelabel.serve.versions import VersionNote

LOG = logging.getLogger(__name__)
# Jobs that are remembered.
MOST_JOBS = 1_000


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Job:
    """A job: the model that learns, how far it is, the version that it made, or why it failed."""

    id: str
    model: str
    status: Literal["running", "done", "failed"] = "running"
    created: str = field(default_factory=_now)
    finished: str | None = None
    version: str | None = None
    passed: bool | None = None
    evaluation: dict[str, float] | None = None
    error: str | None = None

    @property
    def answer(self) -> JobAnswer:
        """The job as JSON."""
        return cast("JobAnswer", asdict(self))


class Jobs:
    """The jobs since the service was started."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def list(self) -> list[Job]:
        """List the jobs, the newest first."""
        return list(self._jobs.values())[::-1]

    def get(self, name: str) -> Job:
        """Return a job, or answer 404."""
        try:
            return self._jobs[name]
        except KeyError:
            raise ProblemError(404, f"there is no job {quote(name)}; GET /v1/jobs lists them") from None

    def start(self, model: str, task: LearningTask, finish: Callable[[VersionNote], None]) -> Job:
        """Start to learn; one model has one job at a time, and 409 is answered to a second.

        Parameters
        ----------
        model
            The name of the model.
        task
            For the process.
        finish
            Is called with the note of the version that was made.

        Returns
        -------
        Job
        """
        busy = next((job for job in self._jobs.values() if job.model == model and job.status == "running"), None)
        if busy is not None:
            raise ProblemError(409, f"the model is learning already: job {busy.id}")
        job = Job(uuid.uuid4().hex[:12], model)
        self._jobs = {**dict([*self._jobs.items()][1 - MOST_JOBS :]), job.id: job}
        self._tasks[job.id] = asyncio.create_task(self._run(job, task, finish))
        return job

    async def _run(self, job: Job, task: LearningTask, finish: Callable[[VersionNote], None]) -> None:
        try:
            note = await _learn(task)
            finish(note)
            ended = replace(job, status="done", version=note.version, passed=note.passed, evaluation=note.evaluation)
        except ProblemError as error:
            ended = replace(job, status="failed", error=error.detail)
        except asyncio.CancelledError:
            ended = replace(job, status="failed", error="the service was stopped")
        finally:
            self._tasks.pop(job.id, None)
        self._jobs[job.id] = replace(ended, finished=_now())
        LOG.info("job", extra={"fields": {"job": job.id, "model": job.model, "status": ended.status}})

    async def close(self) -> None:
        """End what is running."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


async def _learn(task: LearningTask) -> VersionNote:
    """Run the process."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *child_python("-m", "treelabel.serve.learning"), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        output, _ = await process.communicate(json.dumps(asdict(task)).encode())
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    try:
        answer = json.loads(output)
    except ValueError:
        raise ProblemError(500, f"the process that learns ended with code {process.returncode}") from None
    if "error" in answer:
        raise ProblemError(422, shorten(answer["error"], 500))
    return VersionNote(**answer)
