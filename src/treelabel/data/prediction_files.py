"""Files of predictions, as JSON Lines or as tables that `predict` wrote: which labels they hold, and how certain."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.json_text import number_of
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.types import BoolArray, DoubleArray
from treelabel.data.data_file import DataFile
from treelabel.data.dataset import Dataset
from treelabel.data.documents import OnError
from treelabel.data.io.format import ReadOptions
from treelabel.data.io.tables import open_tables
from treelabel.hierarchy.hierarchy import Hierarchy


@dataclass(frozen=True)
class PredictionFile:
    """A file of predictions. In a table that `predict` wrote, `is_table`, labels stand for their ancestors, too."""

    file: DataFile
    is_table: bool = False

    @classmethod
    def of(
        cls, path: Path, label_sep: str | None = None, on_error: OnError = "stop", limits: Limits = DEFAULT_LIMITS
    ) -> "PredictionFile":
        """Look at the columns of a file.

        The input's own columns stand before those of `predict`, under names that may be more usual for labels. Several
        labels of a cell are separated as their numbers are; in other files, by `label_sep`.
        """
        columns = list[str]()
        # What is wrong with the file is reported by who reads it.
        with suppress(TreelabelError, OSError), open_tables(path, ReadOptions(limits=limits)) as source:
            columns = next((part.table.column_names for part in source.parts if len(part)), [])
        options: dict[str, Any] = {"on_error": on_error, "limits": limits, "need_text": False}
        for index in reversed(range(len(columns) - 2)):
            if all(map(_is_column, columns[index:], ("predicted", "path", "p"))):
                several = index + 3 < len(columns) and _is_column(columns[index + 3], "all_p")
                numbers = columns[index + 3] if several else None
                return cls(DataFile.of(path, labels=columns[index + 1], numbers=numbers, **options), True)
        return cls(DataFile.of(path, label_sep=label_sep, **options))

    def batches(self, hierarchy: Hierarchy) -> Iterator[tuple[Dataset, BoolArray, DoubleArray]]:
        """Read the file once.

        Yields
        ------
        (Dataset, array of bool, array of float64)
            Documents, which of them have labels that stand for their ancestors, too, and the probability of the
            likeliest label of each (NaN: not known).
        """
        for data in self.file.batches(hierarchy, extra="all"):
            yield data, self._closed_rows(data), self._probabilities(data)

    def _closed_rows(self, data: Dataset) -> BoolArray:
        if "closed" not in data.extra:
            return np.full(len(data), self.is_table)
        values = data.extra["closed"].to_pylist()
        return np.array([self.is_table if value is None else is_closed(value) for value in values], np.bool_)

    def _probabilities(self, data: Dataset) -> DoubleArray:
        numbers = data.extra["p"].to_pylist() if "p" in data.extra else [None] * len(data)
        # Labels of several columns are levels, and stand under none of these names.
        column = data.extra.get(data.choices["labels"])
        labels = [None] * len(data) if column is None else column.to_pylist()
        pairs = zip(labels, numbers, strict=True)
        return np.array([likeliest(listed, number) for listed, number in pairs], np.float64)


def _is_column(name: str, kind: str) -> bool:
    """Return whether a column may be the one that `predict` calls so, where that name was not taken, or else."""
    return name.rstrip("_").removeprefix("predicted_") == kind


def likeliest(labels: Any, number: Any) -> float:
    """Return the largest probability of labels, or else that of the row; NaN if there is none.

    >>> likeliest([{"label": "A", "p": 0.5}, {"label": "B", "p": 0.75}], None), likeliest(["A"], "0.25")
    (0.75, 0.25)
    """
    listed = labels if isinstance(labels, list) else []
    values = [number_of(each.get("p")) for each in listed if isinstance(each, dict)] or [number_of(number)]
    return max((p for p in values if p is not None), default=float("nan"))


def is_closed(value: Any) -> bool:
    """Return whether a value, as JSON or as a cell, says that labels are closed."""
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "1", "yes"))
