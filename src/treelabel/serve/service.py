"""The service: what routes, protocols and the page call."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request

from treelabel.core.compute import worker_thread
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy.hierarchy import SEPARATOR
from treelabel.serve import prediction
from treelabel.serve.batching import Batcher
from treelabel.serve.journal import Journal
from treelabel.serve.model_store import ModelStore, ServedModel
from treelabel.serve.options import ServeOptions
from treelabel.serve.problems import ProblemError
from treelabel.serve.schemas import (
    Correction,
    DocumentAnswer,
    FeedbackAnswer,
    LabelRef,
    ModelAnswer,
    ModelSummary,
    PredictSettings,
    ScoredDocument,
    StepAnswer,
)
from treelabel.serve.service_metrics import ServiceMetrics

Result = TypeVar("Result")


class Service:
    """The models, and what may be asked of them; one for each app (`request.app.state.service`).

    Coroutines score in one worker thread, so that the event loop stays free.
    """

    def __init__(self, folders: Sequence[Path], options: ServeOptions) -> None:
        self.options = options
        self.is_ready = True
        self.store = ModelStore(folders)
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
            "leaves": len(h.leaves),
            "level_sizes": h.level_sizes,
            "is_tree": h.is_tree,
            "regime": model.regime_,
            "training_documents": model.profile_.documents,
            "fingerprint": h.fingerprint,
            "evidence": asdict(model.evidence_),
            "summary": model.evidence_.describe(model.default_rule, model.regime_),
            "signature": served.signature,
            "versions": [served.version],
        }

    def close(self) -> None:
        """End the worker; what it is doing is finished."""
        self.is_ready = False
        self._worker.shutdown()
        for journal in self._journals.values():
            journal.close()


def service_of(request: Request) -> Service:
    """Return the service of the app that answers a request."""
    service: Service = request.app.state.service
    return service


def request_id_of(request: Request) -> str:
    """Return the id of a request: that of its header X-Request-ID, or one that was made for it."""
    name: str = request.state.request_id
    return name


def answer_head(request: Request, served: ServedModel) -> dict[str, Any]:
    """Return what every answer on texts begins with."""
    return {"model": served.id, "version": served.version, "request_id": request_id_of(request)}
