"""What systems and columns of a study are called, and which way a column is better."""

from collections.abc import Sequence

from treelabel.core.errors import TreelabelError
from treelabel.experiment.spec import Column, Spec, base_metric
from treelabel.metrics import find_metric

_FIELDS = {
    "fit_seconds": "training (s)",
    "score_seconds": "scoring (s)",
    "documents_per_second": "documents/s",
    "peak_memory": "memory (GB)",
    "model_size": "size (MB)",
}


def expanded(names: Sequence[str], spec: Spec) -> list[str]:
    """Name the systems that run: a system with a grid and no selection is one for each combination.

    Parameters
    ----------
    names : sequence of str
        Systems of the spec.
    spec : Spec
        The study.

    Returns
    -------
    list of str
        A combination stands in brackets behind the system's name.
    """
    found: list[str] = []
    for name in names:
        system = spec.systems[name]
        is_many = bool(system.grid) and system.select is None
        found += [f"{name}[{combination}]" for combination in system.combinations] if is_many else [name]
    return found


def system_title(name: str, spec: Spec) -> str:
    """Return what a system is called in tables; names that the spec does not have stay."""
    base, bracket, combination = name.partition("[")
    system = spec.systems.get(base)
    return (system.title if system is not None and system.title else base) + bracket + combination


def data_title(name: str, spec: Spec) -> str:
    """Return what a data set is called in tables; names that the spec does not have stay."""
    return spec.data[name].title or name if name in spec.data else name


def column_title(column: Column) -> str:
    """Return what a column is called.

    >>> column_title(Column(metric="hf1")), column_title(Column(field="model_size"))
    ('hf1', 'size (MB)')
    """
    return column.title or (str(column.metric) if column.field is None else _FIELDS[column.field])


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
