"""The service: what routes, protocols and the page call."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request

from treelabel.core.compute import worker_thread
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy.hierarchy import SEPARATOR
from treelabel.serve import prediction, served_rules
from treelabel.serve.batching import Batcher
from treelabel.serve.jobs import Job, Jobs
from treelabel.serve.journal import Journal, read_journal
from treelabel.serve.learning import LearningTask
from treelabel.serve.model_store import ModelStore, ServedModel
from treelabel.serve.options import ServeOptions
from treelabel.serve.problems import ProblemError
from treelabel.serve.review_queue import ReviewQueue
from treelabel.serve.schemas import (
    Correction,
    DocumentAnswer,
    FeedbackAnswer,
    LabelRef,
    ModelAnswer,
    ModelSummary,
    PredictSettings,
    ReviewAnswer,
    ScoredDocument,
    StepAnswer,
)
from treelabel.serve.service_metrics import ServiceMetrics
from treelabel.serve.versions import VersionNote

LOG = logging.getLogger(__name__)

Result = TypeVar("Result")


class Service:
    """The models, and what may be asked of them; one for each app (`request.app.state.service`).

    Coroutines score in one worker thread, so that the event loop stays free.
    """

    def __init__(self, folders: Sequence[Path], options: ServeOptions) -> None:
        self.options = options
        self.is_ready = True
        self.store = ModelStore(folders, options.state, served_rules.load_rules(options.rules))
        self.jobs = Jobs()
        self._queues: dict[str, tuple[ServedModel, ReviewQueue]] = {}
        self._reviewing = asyncio.Lock()
        self._journals: dict[str, Journal] = {}
        self._worker = worker_thread()
        self.metrics = ServiceMetrics()
        self._batcher = Batcher(self._worker, options.max_batch, self.metrics)

    async def predict(
        self, served: ServedModel, texts: Sequence[str], settings: PredictSettings | None = None
    ) -> list[DocumentAnswer]:
        """Predict the labels of texts.

        Parameters
        ----------
        served
            What `store.get` returned.
        texts
            The texts; too many are refused with 413.
        settings
            How to decide; by default as the model does.

        Returns
        -------
        list of DocumentAnswer
            One per text.
        """
        self.require_documents(len(texts))
        return await self._batcher.predict(served, texts, settings or PredictSettings())

    async def score(self, served: ServedModel, texts: Sequence[str], k: int) -> list[ScoredDocument]:
        """Return the k likeliest nodes of each text."""
        self.require_documents(len(texts))
        return await self.work(lambda: prediction.top_nodes(served, texts, k))

    async def explain(self, served: ServedModel, text: str, label: LabelRef | None = None) -> list[StepAnswer]:
        """List the words that support and oppose each step to a label; by default to the predicted ones."""
        h = served.model.hierarchy_

        def work() -> list[StepAnswer]:
            if label is not None:
                return prediction.explain_text(served, text, [prediction.find_node(h, label)])
            answer = prediction.predict_documents(served, [text], PredictSettings(explain=True))[0]
            return answer["explanation"] or []

        return await self.work(work)

    async def record(
        self, served: ServedModel, corrections: Sequence[Correction], request_id: str | None = None
    ) -> FeedbackAnswer:
        """Write corrections to the journal of a model; they are on disk when this returns.

        Parameters
        ----------
        served
            What `store.get` returned.
        corrections
            All are written, or none: a label that is unknown, or under the wrong parent, is refused.
        request_id
            Of the request that brought them.

        Returns
        -------
        FeedbackAnswer
        """
        journal, now = self.journal(served.id), datetime.now(UTC).isoformat(timespec="milliseconds")
        head = {"time": now, "version": served.version, "request_id": request_id}
        entries = [{**head, **self._entry(served, correction)} for correction in corrections]
        await journal.append(entries)
        self.metrics.corrections.labels(served.id).inc(len(entries))
        return {"accepted": len(entries), "journal": journal.lines}

    def _entry(self, served: ServedModel, correction: Correction) -> dict[str, Any]:
        """Return a correction as the journal has it: labels are paths, by whatever name they were given."""
        h = served.model.hierarchy_
        nodes = [prediction.find_node(h, label) for label in correction.labels]
        paths = h.paths(nodes) if nodes else []
        if any(prediction.find_node(h, path) != node for path, node in zip(paths, nodes, strict=True)):
            raise TreelabelError(f"a name on the path of a label holds {SEPARATOR!r}; rename it first")
        return {**correction.model_dump(), "labels": paths}

    def journal(self, name: str) -> Journal:
        """Return the journal of a model, opened when it is first needed; 403 if the service does not learn."""
        if not self.options.learn:
            raise ProblemError(403, "this service does not learn: start it with --learn")
        if name not in self._journals:
            self._journals[name] = Journal(self.options.state / name / "journal.jsonl")
        return self._journals[name]

    async def learn(self, served: ServedModel) -> Job:
        """Start to learn from the journal of a model; what comes of it is a version that can be promoted."""
        journal, versions = self.journal(served.id), self.store.versions[served.id]
        note = versions.note(served.version)
        versions.folder.mkdir(parents=True, exist_ok=True)
        task = LearningTask(
            model=str(served.folder),
            journal=str(journal.path),
            lines=journal.lines,
            known_lines=0 if note is None else note.journal_lines,
            output=str(versions.folder),
            train=None if self.options.train is None else str(self.options.train),
            evaluation=None if self.options.evaluation is None else str(self.options.evaluation),
        )
        return self.jobs.start(served.id, task, versions.add_note)

    def versions(self, name: str) -> list[VersionNote]:
        """List the versions of a model that were learned, oldest first."""
        return self.store.versions[name].notes()

    async def promote(self, served: ServedModel, version: str | None = None) -> ServedModel:
        """Make a version of a model current, by default the newest one.

        Parameters
        ----------
        served
            The model as it is now.
        version
            Of `versions`. With an evaluation file it must have been compared with the current one, and not be worse
            beyond chance; 409 is answered otherwise.

        Returns
        -------
        ServedModel
            The model from now on.
        """
        self.journal(served.id)
        versions = self.store.versions[served.id]
        notes = versions.notes()
        if version is None and not notes:
            raise ProblemError(409, "there is no version to promote; POST .../learn makes one")
        chosen = notes[-1].version if version is None else version
        folder, note = versions.folder_of(chosen), versions.note(chosen)
        if self.options.evaluation is not None and note is not None:
            if note.parent != served.version:
                raise ProblemError(409, f"{chosen} was compared with {note.parent}, which is not current; learn anew")
            if not note.passed:
                raise ProblemError(409, f"{chosen} is worse than the current version on the evaluation file")
        # A version that cannot be loaded, or that is not signed where it must be, never becomes current.
        await asyncio.to_thread(ServedModel.load, served.id, folder)
        versions.promote(chosen)
        return await self.reload(served.id)

    async def rollback(self, served: ServedModel) -> ServedModel:
        """Make the version before the current one current again."""
        self.journal(served.id)
        self.store.versions[served.id].roll_back()
        return await self.reload(served.id)

    async def reload(self, name: str) -> ServedModel:
        """Load the current version of a model; requests that are being answered end with the one before."""
        try:
            served = await asyncio.to_thread(self.store.load, name)
        except Exception:
            self.metrics.reloads.labels(name, "failed").inc()
            raise
        self.metrics.reloads.labels(name, "loaded").inc()
        LOG.info("model loaded", extra={"fields": {"model": name, "version": served.version}})
        return served

    async def review(
        self, served: ServedModel, limit: int = 20, texts: Sequence[str] | None = None, precision: float = 0.95
    ) -> ReviewAnswer:
        """Return the texts that are most useful to label next.

        Parameters
        ----------
        served
            What `store.get` returned.
        limit
            How many at most.
        texts
            Texts to rank; by default those of the pool, without those that the journal has.
        precision
            The least share of right ones among suggestions that are safe to accept.

        Returns
        -------
        ReviewAnswer
        """
        if texts is not None:
            self.require_documents(len(texts))
            return (await asyncio.to_thread(ReviewQueue, served, texts, precision)).first(limit)
        pool = self.options.pool
        if pool is None:
            raise ProblemError(409, "this service has no pool of texts: start it with --pool FILE, or POST texts")
        async with self._reviewing:
            if self._queues.get(served.id, (None,))[0] is not served:
                self._queues[served.id] = served, await self._rank(served, pool)
        done = {entry["text"] for entry in read_journal(self.journal(served.id).path)} if self.options.learn else set()
        return self._queues[served.id][1].first(limit, done)

    async def _rank(self, served: ServedModel, pool: Path) -> ReviewQueue:
        try:
            return await asyncio.to_thread(ReviewQueue.of_file, served, pool)
        except TreelabelError as error:
            LOG.error("the pool cannot be read", extra={"fields": {"reason": str(error)}})
            raise ProblemError(503, "the pool of texts cannot be read; the log of the service says why") from None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Look after model folders while the app runs; then finish what is being done."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await self.jobs.close()
            self.close()

    async def _watch(self) -> None:
        """Load model folders that were replaced; one that cannot be loaded leaves the model as it is."""
        while True:
            await asyncio.sleep(self.options.watch_seconds)
            for name in self.store.changed():
                try:
                    await self.reload(name)
                except (TreelabelError, ProblemError, OSError) as error:
                    fields = {"model": name, "reason": str(error)}
                    LOG.error("a model folder cannot be loaded again", extra={"fields": fields})

    async def work(self, function: Callable[[], Result]) -> Result:
        """Run a function in the thread that scores."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, function)

    def require_documents(self, count: int) -> None:
        """Refuse more texts than a request may have."""
        most = self.options.max_documents
        if count > most:
            raise ProblemError(413, f"{count:,} texts in one request; the limit max_documents is {most:,}")

    def summary(self, served: ServedModel) -> ModelSummary:
        """Return a model as the list of models has it."""
        model = served.model
        return {
            "id": served.id,
            "version": served.version,
            "kind": model.name,
            "labels": len(model.hierarchy_),
            "depth": model.hierarchy_.max_depth,
            "rule": model.default_rule,
        }

    def describe(self, served: ServedModel) -> ModelAnswer:
        """Return what is known of a model."""
        model, h = served.model, served.model.hierarchy_
        return {
            **self.summary(served),
            "promise": served_rules.promise_of(served, PredictSettings()),
            "tuned_rules": {name: tuned.measured.get("promise") or tuned.rule for name, tuned in served.rules.items()},
            "leaves": len(h.leaves),
            "level_sizes": h.level_sizes,
            "is_tree": h.is_tree,
            "regime": model.regime_,
            "training_documents": model.profile_.documents,
            "fingerprint": h.fingerprint,
            "evidence": asdict(model.evidence_),
            "summary": model.evidence_.describe(model.default_rule, model.regime_),
            "signature": served.signature,
            "versions": [note.version for note in self.versions(served.id)],
        }

    def close(self) -> None:
        """End the worker; what it is doing is finished."""
        self.is_ready = False
        self._worker.shutdown()
        while self._journals:
            self._journals.popitem()[1].close()


def service_of(request: Request) -> Service:
    """Return the service of the app that answers a request."""
    service: Service = request.app.state.service
    return service


async def find_service(request: Request) -> Service:
    """Return the service as a dependency of routes: `Depends(find_service)`; a plain function would take a thread."""
    return service_of(request)


def request_id_of(request: Request) -> str:
    """Return the id of a request: that of its header X-Request-ID, or one that was made for it."""
    name: str = request.state.request_id
    return name


def answer_head(request: Request, served: ServedModel) -> dict[str, Any]:
    """Return what every answer on texts begins with."""
    return {"model": served.id, "version": served.version, "request_id": request_id_of(request)}
