"""The table of labels: how often each is found, missed and wrongly predicted, and what is predicted in its place."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from treelabel.core.types import LongArray
from treelabel.evaluation.label_pairs import blocks, equal_pairs
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import (
    LabelMatrix,
    keep_entries,
    matches,
    row_numbers,
)
from treelabel.metrics.batch import label_totals
from treelabel.metrics.overlap import f_beta, precision, recall

# In the place of a label that is confused: nothing as deep was predicted.
NOTHING_AS_DEEP = "(nothing as deep)"


@dataclass(frozen=True)
class LabelRow:
    """A label: its documents in training (None: not known), in the truth and in the predictions, ancestors included.

    `missed` documents have the label and do not get it; `wrong` ones get it and do not have it. `confused_with` is
    what most of the missed ones get in its place: the wrong label of the same depth, or NOTHING_AS_DEEP if they get
    none; None where none is missed.
    """

    label: str
    depth: int
    train: int | None
    true: int
    predicted: int
    missed: int
    wrong: int
    precision: float
    recall: float
    f1: float
    confused_with: str | None
    confused: int


@dataclass
class LabelTable:
    """Counts by label that grow batch by batch; memory grows with the labels and with the pairs that are confused.

    >>> from treelabel.hierarchy.label_ids import encode
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> table = LabelTable(h)
    >>> table.add(*(h.closure(encode(h, rows)) for rows in ([["B"], ["B"], ["C"]], [["C"], ["B"], ["A"]])))
    >>> [(row.label, row.missed, row.wrong, row.confused_with) for row in table.rows()]
    [('A > C', 1, 1, '(nothing as deep)'), ('A > B', 1, 0, 'A > C'), ('A', 0, 0, None)]
    """

    hierarchy: Hierarchy
    train_frequencies: LongArray | None = None
    counts: LongArray = field(init=False)
    # Documents by true label x (nodes + 1) + predicted label + 1.
    instead: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counts = np.zeros((3, len(self.hierarchy)), np.int64)

    def add(self, truth: LabelMatrix, decisions: LabelMatrix) -> None:
        """Count some documents.

        Parameters
        ----------
        truth, decisions : label matrices of shape (documents, nodes)
            With ancestors.
        """
        size = len(self.hierarchy)
        for true, result in blocks(truth, decisions):
            hits = keep_entries(result, matches(true, result))
            self.counts += np.stack([label_totals(each) for each in (result, true, hits)])
            missed = keep_entries(true, ~matches(result, true))
            wrong = keep_entries(result, ~matches(true, result))
            left, right = equal_pairs(self._keys(missed), self._keys(wrong))
            alone = np.setdiff1d(np.arange(missed.nnz), left)
            codes = np.concatenate(
                [
                    missed.indices[left].astype(np.int64) * (size + 1) + wrong.indices[right] + 1,
                    missed.indices[alone].astype(np.int64) * (size + 1),
                ]
            )
            for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
                self.instead[int(code)] = self.instead.get(int(code), 0) + int(count)

    def _keys(self, labels: LabelMatrix) -> LongArray:
        """Return one number for document and depth of every label."""
        levels = self.hierarchy.max_depth + 1
        result: LongArray = row_numbers(labels).astype(np.int64) * levels + self.hierarchy.depth[labels.indices]
        return result

    def rows(self) -> list[LabelRow]:
        """Return the labels that occur anywhere, worst first: most missed and wrong documents, then the lowest F1."""
        h = self.hierarchy
        predicted, true, hits = self.counts
        abc = np.stack([predicted, true, hits], axis=1).astype(np.float64)
        values = [score(abc, if_empty=0.0) for score in (precision, recall, f_beta)]
        known = self.train_frequencies
        occurs = true + predicted + (0 if known is None else known) > 0
        missed, wrong = true - hits, predicted - hits
        order = np.lexsort((np.arange(len(h)), values[2], -(missed + wrong)))
        nodes = order[occurs[order]]
        best = self._most_confused()
        paths = dict(zip(nodes.tolist(), h.paths(nodes), strict=True)) if len(nodes) else {}
        return [
            LabelRow(
                label=paths[node],
                depth=int(h.depth[node]),
                train=None if known is None else int(known[node]),
                true=int(true[node]),
                predicted=int(predicted[node]),
                missed=int(missed[node]),
                wrong=int(wrong[node]),
                precision=float(values[0][node]),
                recall=float(values[1][node]),
                f1=float(values[2][node]),
                confused_with=self._instead(best.get(node), paths),
                confused=best.get(node, (0, 0))[1],
            )
            for node in nodes.tolist()
        ]

    def _most_confused(self) -> dict[int, tuple[int, int]]:
        """The label that most documents get in the place of each, the lowest id among equals, and how many do."""
        size, result = len(self.hierarchy) + 1, dict[int, tuple[int, int]]()
        for code in sorted(self.instead):
            node, count = code // size, self.instead[code]
            if count > result.get(node, (0, 0))[1]:
                result[node] = code % size - 1, count
        return result

    @staticmethod
    def _instead(result: tuple[int, int] | None, paths: dict[int, str]) -> str | None:
        if result is None:
            return None
        return paths[result[0]] if result[0] >= 0 else NOTHING_AS_DEEP

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return pa.Table.from_pylist(list(self.to_json()), schema=_SCHEMA)

    def to_json(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as JSON values."""
        return (vars(row) for row in self.rows())

    def __str__(self) -> str:
        return table_text(self.rows())


_SCHEMA = pa.schema(
    {
        "label": pa.string(),
        "depth": pa.int64(),
        "train": pa.int64(),
        "true": pa.int64(),
        "predicted": pa.int64(),
        "missed": pa.int64(),
        "wrong": pa.int64(),
        "precision": pa.float64(),
        "recall": pa.float64(),
        "f1": pa.float64(),
        "confused_with": pa.string(),
        "confused": pa.int64(),
    }
)
_WIDTH = 50


def table_text(rows: list[LabelRow], most: int = 20) -> str:
    """Write the first rows of the table for people.

    Parameters
    ----------
    rows
        What `LabelTable.rows` returned.
    most
        How many labels to show.

    Returns
    -------
    str
    """
    with_train = any(row.train is not None for row in rows)
    shown = [(row, _end(row.label), _confusion(row)) for row in rows[:most]]
    width = max([5, *(len(label) for _, label, _ in shown)])
    train = f"{'train':>8}" if with_train else ""
    lines = [f"{'label':<{width}}{train}{'true':>8}{'pred.':>8}{'prec.':>7}{'rec.':>7}{'F1':>7}  most confused with"]
    for row, label, confused in shown:
        train = f"{row.train or 0:>8,}" if with_train else ""
        counts = f"{row.true:>8,}{row.predicted:>8,}{row.precision:>7.3f}{row.recall:>7.3f}{row.f1:>7.3f}"
        lines.append(f"{label:<{width}}{train}{counts}  {confused}".rstrip())
    if len(rows) > most:
        lines.append(f"... and {len(rows) - most:,} more labels")
    return "\n".join(lines)


def _end(path: str) -> str:
    """Keep the end of a long path, which tells labels apart."""
    return path if len(path) <= _WIDTH else f"...{path[3 - _WIDTH :]}"


def _confusion(row: LabelRow) -> str:
    return "" if row.confused_with is None else f"{_end(row.confused_with)} ({row.confused:,})"
