"""Names of metrics and columns in studies: parts in brackets, the spelling of results, and which way is better."""

from treelabel.core.errors import TreelabelError
from treelabel.metrics.registry import find_metric

# Columns that are not metrics, and what they are called.
FIELD_TITLES = {
    "fit_seconds": "training (s)",
    "score_seconds": "scoring (s)",
    "documents_per_second": "documents/s",
    "peak_memory": "memory (GB)",
    "model_size": "size (MB)",
}


def base_metric(name: str) -> str:
    """Return the metric that a part belongs to.

    >>> base_metric("macro_f1_by_depth[2]")
    'macro_f1_by_depth'
    """
    return name.partition("[")[0]


def is_higher_better(metric: str) -> bool:
    """Whether more of a metric or field is better; what is neither counts as something of which it is.

    >>> [is_higher_better(name) for name in ("hamming", "macro_f1_by_depth[1]", "fit_seconds", "a program's value")]
    [False, True, False, True]
    """
    if metric in FIELD_TITLES:
        return metric == "documents_per_second"
    try:
        return find_metric(base_metric(metric)).higher_is_better
    except TreelabelError:
        return True


def spelled_metric(name: str) -> str:
    """Spell a metric as results do; what is no metric, such as the name of a program's value, stays.

    >>> spelled_metric("precision@5.0"), spelled_metric("macro_f1_by_depth[1]"), spelled_metric("ICM/error rate")
    ('precision@5', 'macro_f1_by_depth[1]', 'ICM/error rate')
    """
    base, bracket, part = name.partition("[")
    try:
        return find_metric(base).name + bracket + part
    except TreelabelError:
        return name
