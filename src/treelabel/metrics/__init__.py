"""Metrics: pure functions of truth, decisions and scores. The registry METRICS has one row per metric."""

from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.metric import Metric
from treelabel.metrics.registry import METRICS, find_metric

__all__ = ["METRICS", "Batch", "Context", "Metric", "find_metric"]
