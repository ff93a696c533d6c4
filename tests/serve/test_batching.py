import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treelabel.core.errors import TreelabelError
from treelabel.serve import batching
from treelabel.serve.batching import Batcher
from treelabel.serve.model_store import ServedModel
from treelabel.serve.prediction import predict_documents
from treelabel.serve.schemas import PredictSettings
from treelabel.serve.service_metrics import ServiceMetrics

TEXTS = ["canvas", "a gene", "the choir", "a quark", "oil and song"]


def test_requests_share_batches_and_get_what_they_would_get_alone(
    topics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ServedModel.load("topics", topics)
    sizes: list[int] = []

    def observed(served: ServedModel, texts: list[str], *rest: object) -> object:
        sizes.append(len(texts))
        return predict_documents(served, texts, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(batching, "predict_documents", observed)
    one, two = PredictSettings(), PredictSettings(k=2)
    together = PredictSettings(rule="optimal:macro_f1")

    async def work(batcher: Batcher) -> list[object]:
        asked = [(text, settings) for settings in (one, two) for text in TEXTS] + [(TEXTS[0], together)] * 2
        requests = [batcher.predict(served, [text], settings) for text, settings in asked]
        wrong = batcher.predict(served, ["a"], PredictSettings(rule="best_leaf", known=["nothing"]))
        results = await asyncio.gather(*requests, wrong, return_exceptions=True)
        assert isinstance(results.pop(), TreelabelError)
        alone = [predict_documents(served, [text], settings) for text, settings in asked]
        assert results == alone
        return list(results)

    with ThreadPoolExecutor(1) as worker:
        asyncio.run(work(Batcher(worker, 1024, ServiceMetrics())))
        # Rules of all documents together are never asked for those of other requests.
        assert sorted(sizes) == [1, 1, 1, 5, 5]
        sizes.clear()
        asyncio.run(work(Batcher(worker, 2, ServiceMetrics())))
        assert max(sizes) == 2
