"""A metric on parts of the documents: by a column (language, source, year) or by their true labels, worst part first.

A result that kept its documents is cut, not computed anew. Whether a part differs from the other documents is tested by
drawing as many documents at random, and corrected for the number of parts by Holm's procedure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, LongArray
from treelabel.evaluation.result import Result
from treelabel.evaluation.significance import holm
from treelabel.evaluation.statistics import Interval, weighted_sums
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.metrics.batch import closed_sets
from treelabel.rules.tuned_rule import MISSING

# Parts with a corrected p below this are marked.
MARK_LEVEL = 0.05
# Permutations at least as extreme that are counted; of fewer, the tail of a normal distribution is taken.
FEWEST_EXTREME = 10


@dataclass(frozen=True)
class SliceRow:
    """A part of the documents: the metric on it, its difference to the other documents, and the corrected p of that."""

    name: str
    documents: int
    interval: Interval
    difference: float
    p_value: float


@dataclass(frozen=True)
class SliceTable:
    """A metric on parts of the documents, worst first; `str` is a table, with * where the corrected p is below 0.05.

    `few` counts parts that were left out because they have too few documents, and `note` says what else is to be known.
    """

    metric: str
    by: str
    rows: tuple[SliceRow, ...]
    few: int = 0
    note: str = ""

    def __str__(self) -> str:
        width = max([len(self.by), *(len(row.name) for row in self.rows)])
        lines = [f"{self.by:<{width}}  documents  {self.metric}, and the difference to all others, worst first"]
        for row in self.rows:
            mark = "*" if row.p_value < MARK_LEVEL else ""
            value = f"{row.interval.value:.4f} {'(no interval)' if row.interval.reason else row.interval.ends}"
            lines.append(f"{row.name:<{width}}  {row.documents:>9,}  {value}  {row.difference:+.4f}{mark}")
        notes = [f"* p < {MARK_LEVEL} after Holm's correction over {len(self.rows)} parts."]
        notes += [f"Left out: {self.few:,} with too few documents."] if self.few else []
        notes += [self.note] if self.note else []
        return "\n".join([*lines, *notes])

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values; what is not known is None."""

        def known(value: float) -> float | None:
            return value if np.isfinite(value) else None

        rows = []
        for row in self.rows:
            ends = {
                name: known(each) for name, each in asdict(row.interval).items() if name in ("value", "low", "high")
            }
            tested = {"difference": known(row.difference), "p": known(row.p_value)}
            reason = {"no_interval": row.interval.reason} if row.interval.reason else {}
            rows.append({"name": row.name, "documents": row.documents} | ends | reason | tested)
        return {"metric": self.metric, "by": self.by, "rows": rows, "left_out": self.few, "note": self.note}


def rows_by_value(values: Sequence[Any]) -> dict[str, LongArray]:
    """Return the row numbers of each value; missing ones belong together.

    >>> {name: rows.tolist() for name, rows in rows_by_value(["en", "fr", None, "en"]).items()}
    {'(missing)': [2], 'en': [0, 3], 'fr': [1]}
    """
    names = np.array(
        [MISSING if value is None or value != value or value == "" else str(value) for value in values], object
    )
    kinds, codes = np.unique(names, return_inverse=True)
    return {str(kind): np.flatnonzero(codes == code) for code, kind in enumerate(kinds)}


def rows_by_label(hierarchy: Hierarchy, labels: LabelMatrix, depth: int | None = None) -> dict[str, LongArray]:
    """Return the row numbers of the documents that have each label, ancestors included; several labels count in each.

    Parameters
    ----------
    labels : LabelMatrix, documents x nodes
        The true labels.
    depth : int, optional
        Only labels of this depth.

    Returns
    -------
    dict of arrays
        By the path of the label, for labels that occur.

    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> {name: rows.tolist() for name, rows in rows_by_label(h, h.closure([[0, 0, 1], [0, 1, 0]]), 1).items()}
    {'A': [0], 'C': [1]}
    """
    columns = closed_sets(hierarchy, labels).tocsc()
    if depth is not None and not 1 <= depth <= hierarchy.max_depth:
        raise TreelabelError(f"level {depth}: the hierarchy has levels 1 to {hierarchy.max_depth}")
    nodes = np.flatnonzero((np.diff(columns.indptr) > 0) & (True if depth is None else hierarchy.depth == depth))
    names = hierarchy.paths(nodes)
    return {
        name: columns.indices[columns.indptr[node] : columns.indptr[node + 1]].astype(np.int64)
        for name, node in zip(names, nodes, strict=True)
    }


def slice_table(
    result: Result,
    slices: Mapping[str, LongArray],
    metric: str | None = None,
    by: str = "slice",
    least: int = 5,
    resamples: int = 1000,
    seed: int = 0,
) -> SliceTable:
    """Judge parts of the documents by one metric, with intervals, and test each against all other documents.

    Parameters
    ----------
    result : Result
        With documents kept.
    slices : mapping of str to int array
        The row numbers of each part, as `rows_by_value` and `rows_by_label` return them.
    metric : str, optional
        A metric of the result, or a part of one; by default its first.
    by : str
        What the parts are called.
    least : int
        How many documents a part must have.
    resamples, seed : int
        As for `Result.interval`; also how many random parts of the same size are drawn for p.

    Returns
    -------
    SliceTable

    >>> from treelabel import evaluate
    >>> h = Hierarchy.flat("ab")
    >>> result = evaluate([["a"]] * 40, [["a"]] * 20 + [["a"], ["b"]] * 10, hierarchy=h, metrics=["hf1"])
    >>> table = slice_table(result, rows_by_value(["en"] * 20 + ["fr"] * 20))
    >>> [(row.name, row.interval.value, row.p_value < 0.01) for row in table.rows]
    [('fr', 0.5, True), ('en', 1.0, True)]
    """
    name = metric or next(iter(result.values))
    row, value = result.value_function(name)
    kept = {part: rows for part, rows in slices.items() if len(rows) >= least}
    is_tested = result.groups is None
    results = []
    for part, rows in kept.items():
        interval = part_of(result, rows).interval(name, resamples=resamples, seed=seed)
        compared = _against_others(result.parts[row.key], value, rows, resamples if is_tested else 0, seed)
        results.append((part, len(rows), interval, *compared))
    corrected = holm([p for *_, p in results]).tolist() if results else []
    table = [SliceRow(*each[:4], p) for each, p in zip(results, corrected, strict=True)]
    sign = 1 if row.higher_is_better else -1
    table.sort(key=lambda each: (np.isnan(each.interval.value), sign * each.interval.value, -each.documents, each.name))
    note = "" if is_tested else "Not tested: documents of a group are not independent."
    return SliceTable(name, by, tuple(table), len(slices) - len(kept), note)


def part_of(result: Result, rows: LongArray) -> Result:
    """Return the result of some documents alone, as if the others had not been judged."""
    parts = {key: tuple(part[rows] for part in each) for key, each in result.parts.items()}
    sums = {key: tuple(np.asarray(part.sum(axis=0)).ravel() for part in each) for key, each in parts.items()}
    groups = None if result.groups is None else tuple(result.groups[row] for row in rows.tolist())
    return replace(result, parts=parts, sums=sums, count=len(rows), groups=groups, coverage=None)


def _against_others(
    parts: tuple[Any, ...], value: Any, rows: LongArray, resamples: int, seed: int
) -> tuple[float, float]:
    """Return the difference of a part to all other documents, and its p by random parts of the same size."""
    documents = parts[0].shape[0]
    total = tuple(np.asarray(part.sum(axis=0)).ravel().astype(np.float64) for part in parts)

    def difference(inside: tuple[Any, ...]) -> float:
        return float(value(inside) - value(tuple(every - some for every, some in zip(total, inside, strict=True))))

    if len(rows) == documents:
        return float("nan"), float("nan")
    observed = difference(tuple(np.asarray(part[rows].sum(axis=0)).ravel().astype(np.float64) for part in parts))
    if not resamples or not np.isfinite(observed):
        return observed, float("nan")

    def draw(rng: np.random.Generator, size: int, count: int) -> DoubleArray:
        weights = np.zeros((size, count))
        for row in weights:
            row[rng.choice(count, len(rows), replace=False)] = 1.0
        return weights

    drawn = np.array([difference(inside) for inside in weighted_sums(parts, draw, resamples, seed)])
    known = drawn[np.isfinite(drawn)]
    extreme = int(np.sum(np.abs(known) >= abs(observed) * (1 - 1e-9)))
    counted = (extreme + 1) / (len(known) + 1)
    spread = float(known.std()) if len(known) else 0.0
    if extreme >= FEWEST_EXTREME or spread == 0:
        return observed, counted
    # So few are as far out that the number of draws, and not the data, would set p.
    tail = 2 * float(scipy.special.ndtr(-abs(observed - known.mean()) / spread))
    return observed, min(counted, tail)
