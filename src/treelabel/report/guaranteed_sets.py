"""Sets with a guarantee: whether they reach on these documents what was asked for, as a whole and in parts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from treelabel.core.types import DoubleArray, LongArray
from treelabel.evaluation.document_slices import rows_by_value
from treelabel.evaluation.statistics import Interval, binomial_interval
from treelabel.hierarchy.label_matrices import LabelMatrix, row_sizes
from treelabel.metrics.batch import Batch
from treelabel.metrics.sets import set_coverage, set_depth, set_nodes, set_size
from treelabel.metrics.shared_formulas import STANDARD_ERRORS
from treelabel.report.systems import ReportSystem
from treelabel.rules.registry import guarantee_of

# Parts of one kind that are shown: those with the most documents.
MOST_PARTS = 12
# What is measured of a document, by the metric that risk_control controls.
MEASURES = {
    "recall": "the share of a document's true labels that are predicted",
    "info_recall": "the share of a document's true labels that are predicted, each counted once",
    "precision": "the share of a document's predicted labels that are true, of documents with a label",
    "correct": "whether no predicted label is false, of documents with a label",
}


@dataclass(frozen=True)
class SetPart:
    """Some of the documents: what they reach, and the mean size of their sets."""

    name: str
    documents: int
    reached: Interval
    size: float


@dataclass(frozen=True)
class GuaranteedSets:
    """The share that a rule was asked for, what is measured, and what the documents and their parts reach.

    `nodes` and `depth` are means of sets. `parts` has a table for each kind of part, by its name; `unit` is what sizes
    count.
    """

    asked: float | None
    measure: str
    unit: str
    whole: SetPart
    nodes: float
    depth: float
    parts: Mapping[str, Sequence[SetPart]]


def is_covering(rule: str) -> bool:
    """Return whether the sets of a rule, as a result names it, cover a true label, the empty one being the root."""
    return guarantee_of(rule) == "coverage"


def guaranteed_sets(
    system: ReportSystem, column: str | None = None, values: Sequence[Any] = ()
) -> GuaranteedSets | None:
    """Judge the sets of a system by what its rule guarantees; None for other rules.

    Parameters
    ----------
    system
        A system that was judged.
    column, values
        The column that the rule goes by, and its value of each document.

    Returns
    -------
    GuaranteedSets or None
    """
    if guarantee_of(system.rule) is None:
        return None
    covers = is_covering(system.rule)
    found = re.search(r"(?:coverage=|at_least=|@)([\d.eE+-]+)", system.rule)
    sets = system.hierarchy.most_specific(system.decisions)
    batch = Batch(system.result.context, system.truth, system.decisions)
    if covers:
        measure, reached, sizes = (
            "whether a predicted node is true, or is the root",
            set_coverage(batch),
            set_size(batch),
        )
    else:
        metric = re.search(r"metric=(\w+)", system.rule)
        name = "recall" if metric is None else metric[1]
        measure, reached, sizes = MEASURES[name], _controlled(system, name), row_sizes(sets).astype(np.float64)
    part = partial(_part, reached, sizes, covers or bool(np.isin(reached[~np.isnan(reached)], (0, 1)).all()))
    parts = {"Level of the most specific node": _by_level(part, system, sets)}
    parts["True top label"] = _by_top_label(part, system)
    if column is not None:
        parts[column] = [part(name, rows) for name, rows in rows_by_value(values).items()]
    return GuaranteedSets(
        None if found is None else float(found[1]),
        measure,
        "leaves" if covers else "labels",
        part("all", np.arange(len(reached))),
        _mean(set_nodes(batch)),
        _mean(set_depth(batch)),
        {name: _most(some) for name, some in parts.items()},
    )


def _mean(values: DoubleArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _controlled(system: ReportSystem, metric: str) -> DoubleArray:
    """Return the value of each document that risk_control controls; NaN of a document that says nothing."""
    if metric in ("recall", "info_recall"):
        return np.where(row_sizes(system.truth) > 0, system.result.documents["hr"], 1.0)
    precision = np.where(row_sizes(system.decisions) > 0, system.result.documents["hp"], np.nan)
    return precision if metric == "precision" else np.where(np.isnan(precision), np.nan, precision == 1)


def _part(reached: DoubleArray, sizes: DoubleArray, are_shares_of_one: bool, name: str, rows: LongArray) -> SetPart:
    """Measure some documents: by an exact interval where each is right or wrong, else by the normal one."""
    known = rows[~np.isnan(reached[rows])]
    some = reached[known]
    if are_shares_of_one:
        interval = binomial_interval(int(some.sum()), len(some))
    else:
        mean = _mean(some)
        half = STANDARD_ERRORS * float(some.std(ddof=1)) / np.sqrt(len(some)) if len(some) > 1 else float("nan")
        interval = Interval(mean, max(0.0, mean - half), min(1.0, mean + half))
    return SetPart(name, len(known), interval, _mean(sizes[known]))


def _by_level(part: Any, system: ReportSystem, sets: LabelMatrix) -> list[SetPart]:
    depth = np.zeros(sets.shape[0], np.int64)
    np.maximum.at(depth, np.repeat(np.arange(len(depth)), row_sizes(sets)), system.hierarchy.depth[sets.indices])
    nothing = "root: anything" if is_covering(system.rule) else "nothing"
    names = {int(level): str(level) if level else nothing for level in np.unique(depth)}
    return [part(name, np.flatnonzero(depth == level)) for level, name in names.items()]


def _by_top_label(part: Any, system: ReportSystem) -> list[SetPart]:
    h = system.hierarchy
    tops = system.truth.tocsc()
    nodes = range(h.level_sizes[0] if len(h) else 0)
    rows = {h.names[node]: tops.indices[tops.indptr[node] : tops.indptr[node + 1]] for node in nodes}
    return [part(name, some) for name, some in rows.items() if len(some)]


def _most(parts: list[SetPart]) -> list[SetPart]:
    """Keep the parts with the most documents, in their order."""
    least = sorted((each.documents for each in parts), reverse=True)[:MOST_PARTS]
    return [each for each in parts if each.documents and each.documents >= least[-1]][:MOST_PARTS]
