"""A metric on parts of the documents: by a column (language, source, year) or by their true labels, worst part first.

A result that kept its documents is cut, not computed anew. Whether a part differs from the other documents is tested by
drawing as many documents at random, and corrected for the number of parts by Holm's procedure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.types import LongArray
from treelabel.evaluation.result import Result
from treelabel.evaluation.significance import holm
from treelabel.evaluation.statistics import Interval
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.metrics.batch import closed_sets
from treelabel.rules.tuned_rule import value_name

# Parts with a corrected p below this are marked.
MARK_LEVEL = 0.05
# Parts that a table for people has; JSON has all.
MOST_SHOWN = 40
# Documents that random parts hold at a time.
BLOCK = 500_000
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

    `few` counts parts that were left out because they have fewer than `least` documents, and `note` says what else is
    to be known.
    """

    metric: str
    by: str
    rows: tuple[SliceRow, ...]
    few: int = 0
    note: str = ""
    least: int = 5

    def __str__(self) -> str:
        if not self.rows:
            return f"{self.by}: {self.few:,} parts, none with {self.least} documents or more, so nothing is judged."
        shown = self.rows[:MOST_SHOWN]
        width = max([len(self.by), *(len(row.name) for row in shown)])
        lines = [f"{self.by:<{width}}  documents  {self.metric}, and the difference to all others, worst first"]
        lines += [f"{row.name:<{width}}  {row.documents:>9,}  {_describe_row(row)}".rstrip() for row in shown]
        more = len(self.rows) - len(shown)
        notes = [f"... and {more:,} better parts (--json has all)."] if more else []
        tested = sum(not np.isnan(row.p_value) for row in self.rows)
        notes += [f"* p < {MARK_LEVEL} after Holm's correction over {tested:,} parts."] if tested else []
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


def _describe_row(row: SliceRow) -> str:
    """Write the value of a part, its interval, and its difference to the others, if there are any."""
    if np.isnan(row.interval.value):
        return "(no value: no document counts)"
    mark = "*" if row.p_value < MARK_LEVEL else ""
    difference = "" if np.isnan(row.difference) else f"{row.difference:+.4f}{mark}"
    return f"{row.interval.value:.4f} {'(no interval)' if row.interval.reason else row.interval.ends}  {difference}"


def rows_by_value(values: Sequence[Any]) -> dict[str, LongArray]:
    """Return the row numbers of each value; missing ones belong together, and a list counts as a whole.

    >>> {name: rows.tolist() for name, rows in rows_by_value(["en", "fr", None, ["en", "fr"], "en"]).items()}
    {'(missing)': [2], 'en': [0, 4], 'en, fr': [3], 'fr': [1]}
    """
    kinds, codes = np.unique(np.array(list(map(value_name, values)), object), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(codes, minlength=len(kinds)))[:-1]) if len(kinds) else []
    return {str(kind): rows for kind, rows in zip(kinds, parts, strict=True)}


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
    progress: bool | None = False,
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
    progress : bool, optional
        Whether to show a progress bar; None where somebody looks.

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
    for part, rows in slices.items():
        _require_rows(part, rows, result.count)
    kept = {part: np.asarray(rows, np.int64) for part, rows in slices.items() if len(rows) >= least}
    is_tested = result.groups is None
    alone = replace(result, metrics=[row], parts={row.key: result.parts[row.key]}, sums={row.key: result.sums[row.key]})
    results = []
    with progress_bar("parts", len(kept), progress) as done:
        for number, (part, rows) in enumerate(kept.items()):
            interval = part_of(alone, rows).interval(name, resamples=resamples, seed=seed)
            compared = _against_others(result.parts[row.key], value, rows, resamples if is_tested else 0, seed)
            results.append((part, len(rows), interval, *compared))
            done(number + 1, part)
    corrected = holm([p for *_, p in results]).tolist() if results else []
    table = [SliceRow(*each[:4], p) for each, p in zip(results, corrected, strict=True)]
    sign = 1 if row.higher_is_better else -1
    table.sort(key=lambda each: (np.isnan(each.interval.value), sign * each.interval.value, -each.documents, each.name))
    note = "" if is_tested else "Not tested: documents of a group are not independent."
    return SliceTable(name, by, tuple(table), len(slices) - len(kept), note, least)


def _require_rows(part: str, rows: LongArray, documents: int) -> None:
    """Refuse what are no row numbers, each once: a mask would be taken for rows 0 and 1."""
    given = np.asarray(rows)
    if given.ndim == 1 and (given.dtype.kind in "iu" or not len(given)):
        inside = given[(given >= 0) & (given < documents)]
        if len(np.unique(inside)) == len(given):
            return
    ends = f" from {given.min()} to {given.max()}" if given.dtype.kind in "iu" and given.size else ""
    raise TreelabelError(
        f"part {part!r}: expected numbers of rows from 0 to {documents - 1:,}, each once, found an array of "
        f"{given.dtype} {given.shape}{ends}"
    )


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

    drawn = np.array([difference(inside) for inside in _random_parts(parts, len(rows), resamples, seed)])
    known = drawn[np.isfinite(drawn)]
    extreme = int(np.sum(np.abs(known) >= abs(observed) * (1 - 1e-9)))
    counted = (extreme + 1) / (len(known) + 1)
    spread = float(known.std()) if len(known) else 0.0
    if extreme >= FEWEST_EXTREME or spread == 0:
        return observed, counted
    # So few are as far out that the number of draws, and not the data, would set p.
    tail = 2 * float(scipy.special.ndtr(-abs(observed - known.mean()) / spread))
    return observed, min(counted, tail)


def _random_parts(parts: tuple[Any, ...], size: int, times: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Sum additive parts over so many documents, drawn without replacement: as much work as documents are drawn."""
    rng, documents = np.random.default_rng(seed), parts[0].shape[0]
    doubles = [part.astype(np.float64) if sparse.issparse(part) else np.asarray(part, np.float64) for part in parts]
    block = max(1, min(times, BLOCK // max(size, *(part.shape[1] for part in parts))))
    for begin in range(0, times, block):
        count = min(block, times - begin)
        chosen = np.concatenate([rng.choice(documents, size, replace=False) for _ in range(count)])
        inside = sparse.csr_array((np.ones(len(chosen)), chosen, np.arange(count + 1) * size), (count, documents))
        sums = [inside @ part for part in doubles]
        yield from zip(*(each.toarray() if sparse.issparse(each) else each for each in sums), strict=True)
