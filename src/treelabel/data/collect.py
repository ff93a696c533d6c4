"""Documents on their way into a Dataset: compact columns that grow a batch at a time."""

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.matrices import checked_csr
from treelabel.core.strings import Strings
from treelabel.core.types import FloatArray, IntArray
from treelabel.data.dataset import Dataset
from treelabel.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import Label
from treelabel.hierarchy.label_matrices import from_ids

# Arrow's own allocator never gives back what arrays needed while they grew, nearly as much again as they hold.
POOL = pa.system_memory_pool()


@dataclass(slots=True)
class Incoming:
    """A row as it was understood; `values` may hold further columns."""

    line: int
    id: str
    text: str
    labels: list[Label]
    values: dict[str, Any]
    features: tuple[IntArray, FloatArray] | None = None


@dataclass(slots=True)
class Collector:
    """Documents read so far: columns in Arrow memory, labels as numbers of distinct label texts.

    `keys` numbers every distinct label, `key_lines` says where it stood first. The hierarchy need not be known before
    all labels are.
    """

    limits: Limits = DEFAULT_LIMITS
    used_columns: frozenset[str] = frozenset()
    columns: set[str] = field(default_factory=set)
    keys: dict[Label, int] = field(default_factory=dict)
    key_lines: list[int] = field(default_factory=list)
    codes: "array[int]" = field(default_factory=lambda: array("i"))
    ends: "array[int]" = field(default_factory=lambda: array("q", [0]))
    ids: list[pa.Array] = field(default_factory=list)
    texts: list[pa.Array] = field(default_factory=list)
    extra: list[dict[str, pa.Array]] = field(default_factory=list)
    features: list[tuple[IntArray, FloatArray]] = field(default_factory=list)
    lines: "array[int]" = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def add(self, batch: list[Incoming]) -> None:
        """Move a batch of documents into compact form."""
        for document in batch:
            for label in document.labels:
                code = self.keys.setdefault(label, len(self.keys))
                if code == len(self.key_lines):
                    self.key_lines.append(document.line)
                self.codes.append(code)
            self.ends.append(len(self.codes))
            self.lines.append(document.line)
        self.ids.append(pa.array([document.id for document in batch], pa.large_string(), memory_pool=POOL))
        self.texts.append(pa.array([document.text for document in batch], pa.large_string(), memory_pool=POOL))
        names = dict.fromkeys(name for document in batch for name in document.values)
        self._check_columns(names, batch)
        self.extra.append(
            {
                name: _column([document.values.get(name) for document in batch])
                for name in names
                if name not in self.used_columns
            }
        )
        self.features.extend(document.features for document in batch if document.features is not None)

    def _check_columns(self, names: Iterable[str], batch: list[Incoming]) -> None:
        """Refuse objects that all have other fields: every field becomes a column of all rows."""
        self.columns.update(names)
        if self.limits.exceeds("columns", len(self.columns)):
            raise TreelabelError(
                f"line {batch[-1].line:,}: {len(self.columns):,} different columns so far; "
                f"{self.limits.hint('columns')}"
            )

    def dataset(self, hierarchy: Hierarchy, nodes: IntArray, features: int | None) -> tuple[Dataset, int]:
        """Put everything together, given the node of every distinct label.

        Documents with a label that has no node (-1) are left out; their number comes second.

        Parameters
        ----------
        hierarchy
            The hierarchy.
        nodes
            The node of every distinct label, -1 for none.
        features
            The number of columns of features; None where there are none.

        Returns
        -------
        (Dataset, int)
            The dataset, and how many documents were left out.
        """
        codes, ends = np.frombuffer(self.codes, np.int32), np.frombuffer(self.ends, np.int64)
        given = nodes[codes]
        data = Dataset(
            Strings(pa.chunked_array(self.ids, pa.large_string())),
            Strings(pa.chunked_array(self.texts, pa.large_string())),
            from_ids(ends, np.maximum(given, 0), len(hierarchy)),
            hierarchy,
            self._extra_columns(),
            None if features is None else _feature_matrix(self.features, features),
            lines=np.array(self.lines, np.int64),
        )
        bad = np.unique(np.searchsorted(ends, np.flatnonzero(given < 0), side="right") - 1)
        return (data[np.setdiff1d(np.arange(len(data)), bad)] if len(bad) else data), len(bad)

    def _extra_columns(self) -> dict[str, pa.ChunkedArray]:
        names = dict.fromkeys(name for batch in self.extra for name in batch)
        sizes = [len(ids) for ids in self.ids]
        return {
            name: _joined([batch.get(name, pa.nulls(size)) for batch, size in zip(self.extra, sizes, strict=True)])
            for name in names
        }


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, memory_pool=POOL)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return _json_column(values)


def _joined(parts: list[pa.Array]) -> pa.ChunkedArray:
    """Join the parts of a column, which may have been taken for different types; what has no common type is JSON."""
    try:
        return pa.concat_tables([pa.table({"": part}) for part in parts], promote_options="permissive").column("")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.chunked_array([_json_column(part.to_pylist()) for part in parts], pa.string())


def _json_column(values: list[Any]) -> pa.Array:
    texts = [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for value in values
    ]
    return pa.array(texts, pa.string(), memory_pool=POOL)


def _feature_matrix(rows: list[tuple[IntArray, FloatArray]], columns: int) -> sparse.csr_array:
    ptr = np.concatenate([[0], np.cumsum([len(indices) for indices, _ in rows], dtype=np.int64)])
    indices = np.concatenate([indices for indices, _ in rows] or [np.empty(0, np.int32)])
    values = np.concatenate([values for _, values in rows] or [np.empty(0, np.float32)])
    matrix = checked_csr((values, indices, ptr), (len(rows), columns), "features")
    matrix.sum_duplicates()
    return matrix
