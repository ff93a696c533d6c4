"""Micro-batching: while texts are scored, requests that come in wait, and go together then."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from treelabel.rules.decisions import Decisions
from treelabel.rules.registry import RuleSpec
from treelabel.serve.model_store import ServedModel
from treelabel.serve.prediction import predict_documents
from treelabel.serve.schemas import DocumentAnswer, PredictSettings
from treelabel.serve.served_rules import rule_of
from treelabel.serve.service_metrics import ServiceMetrics


@dataclass(eq=False)
class _Group:
    """Requests with the same model and settings, whose texts are predicted together."""

    served: ServedModel
    settings: PredictSettings
    rule: RuleSpec
    texts: list[str] = field(default_factory=list)
    answers: list[tuple[slice, asyncio.Future[list[DocumentAnswer]]]] = field(default_factory=list)

    def add(self, texts: Sequence[str]) -> asyncio.Future[list[DocumentAnswer]]:
        """Add a request."""
        answer: asyncio.Future[list[DocumentAnswer]] = asyncio.get_running_loop().create_future()
        self.answers.append((slice(len(self.texts), len(self.texts) + len(texts)), answer))
        self.texts += texts
        return answer


class Batcher:
    """Predicts in one worker thread. A request that comes when it is idle waits for nobody."""

    def __init__(self, worker: Executor, most: int, metrics: ServiceMetrics) -> None:
        self._worker, self._most, self._metrics = worker, most, metrics
        self._waiting: dict[tuple[int, str], _Group] = {}
        self._running: asyncio.Task[None] | None = None

    async def predict(
        self, served: ServedModel, texts: Sequence[str], settings: PredictSettings
    ) -> list[DocumentAnswer]:
        """Predict the labels of texts, perhaps together with those of other requests.

        Parameters
        ----------
        served
            A model.
        texts
            Those of one request.
        settings
            How to decide.

        Returns
        -------
        list of DocumentAnswer
            One per text.
        """
        key = id(served), settings.model_dump_json(include=SETTINGS)
        group = self._waiting.get(key)
        if group is None or len(group.texts) + len(texts) > self._most or group.rule.rule.of_all:
            group = _Group(served, settings, rule_of(served, settings))
            # One that is full, or decides on all its documents together, shares with nobody.
            key = key if key not in self._waiting else (id(group), "")
            self._waiting[key] = group
        answer = group.add(texts)
        self._metrics.queue.inc(len(texts))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            group = self._waiting.pop(next(iter(self._waiting)))
            self._metrics.queue.dec(len(group.texts))
            try:
                documents = await asyncio.get_running_loop().run_in_executor(self._worker, self._work(group))
            except Exception as error:
                for _, answer in group.answers:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for rows, answer in group.answers:
                if not answer.done():
                    answer.set_result(documents[rows])

    def _work(self, group: _Group) -> Callable[[], list[DocumentAnswer]]:
        def count(decisions: Decisions) -> None:
            self._metrics.count_batch(group.served, decisions)

        return lambda: predict_documents(group.served, group.texts, group.settings, group.rule, count)


# A request has texts, too, which tell nothing of how to decide.
SETTINGS = set(PredictSettings.model_fields)
