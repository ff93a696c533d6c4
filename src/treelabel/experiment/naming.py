"""Names of systems and columns of a study for people to read, and which way a column is better."""

from collections.abc import Sequence

from treelabel.core.errors import TreelabelError
from treelabel.experiment.spec import Column, Spec, base_metric, spelled_metric
from treelabel.metrics import find_metric

_FIELDS = {
    "fit_seconds": "training (s)",
    "score_seconds": "scoring (s)",
    "documents_per_second": "documents/s",
    "peak_memory": "memory (GB)",
    "model_size": "size (MB)",
}


def system_title(name: str, spec: Spec) -> str:
    """Return what a system is called in tables; names that the spec does not have stay.

    Parameters
    ----------
    name : str
        A system.
    spec : Spec
        The study.

    Returns
    -------
    str
    """
    return spec.systems[name].title or name if name in spec.systems else name


def data_title(name: str, spec: Spec) -> str:
    """Return what a data set is called in tables; names that the spec does not have stay.

    Parameters
    ----------
    name : str
        A data set.
    spec : Spec
        The study.

    Returns
    -------
    str
    """
    return spec.data[name].title or name if name in spec.data else name


def column_titles(columns: Sequence[Column]) -> list[str]:
    """Return what columns are called; those of one name have their rules behind it.

    >>> column_titles([Column(metric="hf1", rule="best_leaf"), Column(field="model_size")])
    ['hf1', 'size (MB)']
    >>> column_titles([Column(metric="hf1", rule="best_leaf"), Column(metric="hf1", rule="optimal:hf1")])
    ['hf1, best_leaf', 'hf1, optimal:hf1']
    """
    titles = [each.title or (str(each.metric) if each.field is None else _FIELDS[each.field]) for each in columns]
    return [
        f"{title}, {column.rule}" if titles.count(title) > 1 and column.rule is not None else title
        for title, column in zip(titles, columns, strict=True)
    ]


def is_higher_better(metric: str) -> bool:
    """Whether more of a metric or field is better; what is neither counts as something of which it is.

    >>> [is_higher_better(name) for name in ("hamming", "macro_f1_by_depth[1]", "fit_seconds", "a program's value")]
    [False, True, False, True]
    """
    if metric in _FIELDS:
        return metric == "documents_per_second"
    try:
        return find_metric(base_metric(metric)).higher_is_better
    except TreelabelError:
        return True


def spelled_name(metric: str) -> str:
    """Spell a metric as results do; what is no metric, such as the name of a program's value, stays.

    >>> spelled_name("precision@5.0"), spelled_name("ICM/error rate")
    ('precision@5', 'ICM/error rate')
    """
    try:
        return spelled_metric(metric)
    except TreelabelError:
        return metric
