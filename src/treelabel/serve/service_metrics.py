"""Metrics of the service for Prometheus, in a registry of each app."""

import threading
from collections.abc import Iterable

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from treelabel.core.types import DoubleArray
from treelabel.rules.decisions import Decisions
from treelabel.serve.model_store import ServedModel

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# After so many texts, what was predicted before counts half.
HALF_LIFE = 10_000


class ServiceMetrics:
    """Counters and histograms; `LabelShares` has what models predicted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names = ["method", "route", "status"]
        self._requests = Counter("treelabel_requests", "Requests", names, registry=self.registry)
        self._seconds = Histogram(
            "treelabel_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=self.registry
        )
        self.queue = Gauge("treelabel_queue_texts", "Texts that wait to be scored", registry=self.registry)
        self._batch = Histogram("treelabel_batch_texts", "Texts scored at once", buckets=TEXTS, registry=self.registry)
        self._texts = Counter("treelabel_texts", "Texts predicted", ["model"], registry=self.registry)
        self._abstained = Counter("treelabel_abstained", "Texts without a label", ["model"], registry=self.registry)
        self.corrections = Counter("treelabel_corrections", "Corrections accepted", ["model"], registry=self.registry)
        self.reloads = Counter(
            "treelabel_reloads", "Model folders loaded again", ["model", "result"], registry=self.registry
        )
        self._shares = LabelShares()
        self.registry.register(self._shares)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered; status 499 is a client that went away."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, served: ServedModel, decisions: Decisions) -> None:
        """Count texts that were predicted together."""
        sizes = np.diff(decisions.csr.indptr)
        self._batch.observe(len(sizes))
        self._texts.labels(served.id).inc(len(sizes))
        self._abstained.labels(served.id).inc(int((sizes == 0).sum()))
        self._shares.add(served, decisions)

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self.registry)


class LabelShares(Collector):
    """How the labels of each level are distributed in predictions, against training documents."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[ServedModel, DoubleArray]] = {}
        self._lock = threading.Lock()

    def add(self, served: ServedModel, decisions: Decisions) -> None:
        """Count the predicted labels, ancestors included; another version of a model begins anew."""
        with self._lock:
            known, counts = self._counts.get(served.id, (None, None))
            if counts is None or known is not served:
                counts = np.zeros(len(decisions.hierarchy))
                self._counts[served.id] = served, counts
            counts *= 0.5 ** (len(decisions) / HALF_LIFE)
            counts += np.bincount(decisions.csr.indices, minlength=len(counts))

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Compute the total variation of each level: half the sum of the absolute differences of shares."""
        family = GaugeMetricFamily(
            "treelabel_label_share_drift",
            "Total variation between the label shares of predictions and of training, by level",
            labels=["model", "level"],
        )
        with self._lock:
            copies = [(served, counts.copy()) for served, counts in self._counts.values()]
        for served, counts in copies:
            h, frequencies = served.model.hierarchy_, served.model.profile_.frequencies
            for depth in range(1, h.max_depth + 1):
                now, then = counts[h.level(depth)], frequencies[h.level(depth)].astype(np.float64)
                # A level without labels, in predictions or in training, has no shares.
                if now.sum() > 0 and then.sum() > 0:
                    family.add_metric(
                        [served.id, str(depth)], float(np.abs(now / now.sum() - then / then.sum()).sum() / 2)
                    )
        yield family
