"""Data files and files of predictions read a batch at a time: memory does not grow with the documents."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treelabel.core.errors import TreelabelError
from treelabel.core.json_text import number_of
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.types import BoolArray, DoubleArray, IntArray
from treelabel.data.columns import ColumnChoice
from treelabel.data.dataset import Dataset
from treelabel.data.documents import DocumentReader, Extra, OnError, Problems, resize_batches
from treelabel.data.io.format import BATCH, ReadOptions, batch_sizes, json_column
from treelabel.data.io.tables import existing_data, format_to_read, open_tables
from treelabel.data.read import find_nodes, hierarchy_of_labels
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy, read_sibling_taxonomy
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import Label
from treelabel.hierarchy.union import unite_trees

_CHOICE = frozenset(each.name for each in fields(ColumnChoice))
_READING = frozenset(each.name for each in fields(ReadOptions)) - {"seen", "select"}


@dataclass(frozen=True)
class DataFile:
    """A data file that is read in batches: where it is, and the options of `read` that say how."""

    path: Path
    choice: ColumnChoice
    sep: str | None = None
    root: str | None = None
    format: str | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    on_error: OnError = "stop"
    progress: bool | None = None
    # The file of the hierarchy, if nobody named it: see `find_nodes`.
    sibling: Path | None = None
    language: str = "en"

    @classmethod
    def of(cls, path: str | Path, **options: Any) -> "DataFile":
        """Take the options of `read`, but for the taxonomy."""
        if "" in (options.get("sep"), options.get("label_sep")):
            raise TreelabelError("a separator must be at least one character; without one it is guessed")
        choice = ColumnChoice(**{name: options.pop(name) for name in _CHOICE & options.keys()})
        reading = ReadOptions(**{name: options.pop(name) for name in _READING & options.keys()})
        unknown = sorted(options.keys() - {"sep", "root", "format", "on_error", "progress", "language"})
        if unknown:
            raise TreelabelError(f"reading in batches has no option {unknown[0]!r}")
        return cls(existing_data(path), choice, options=reading, **options)

    def batches(
        self,
        hierarchy: Hierarchy,
        size: int = BATCH,
        first: int | None = None,
        extra: Extra = "none",
        title: str | None = None,
    ) -> Iterator[Dataset]:
        """Read the file once.

        Parameters
        ----------
        hierarchy : Hierarchy
            Where labels are looked up.
        size : int
            Documents of a batch at most.
        first : int, optional
            Documents of the first batch, if it is to be there sooner; batches grow from there to `size`.
        extra : "none", "others" or "all"
            Which further columns `Dataset.extra` has.
        title : str, optional
            What the progress bar says.

        Yields
        ------
        Dataset
            Never an empty one, unless rows with unknown labels were left out.
        """
        problems = Problems(self.path, self.on_error)
        reader = self._reader(problems, extra, title)
        nodes: IntArray = np.zeros(0, np.int32)
        for batch in resize_batches(reader.batches(), batch_sizes(size, first)):
            new = list(reader.keys)[len(nodes) :]
            lines = reader.key_lines[len(nodes) :]
            nodes = np.append(nodes, find_nodes(hierarchy, new, lines, self.sep, problems, self.sibling))
            data, left_out = batch.dataset(hierarchy, nodes)
            problems.skipped += left_out
            chosen = reader.columns
            about = ({}, {}) if chosen is None else (chosen.summary(), chosen.reading())
            yield replace(data, choices=about[0], reading=about[1], group=self.choice.group)
        problems.conclude(reader.count)

    def _reader(self, problems: Problems, extra: Extra, title: str | None = None) -> DocumentReader:
        return DocumentReader(self.path, self.choice, self.options, self.format, problems, extra, title, self.progress)

    def labels(self) -> dict[Label, int]:
        """Read the file for its labels alone: every label, with the number of its documents."""
        # What is wrong with rows is reported when they are read for good.
        reader = self._reader(Problems(self.path, "skip"), "none")
        counts: IntArray = np.zeros(0, np.int64)
        for batch in reader.batches():
            counts = np.append(counts, np.zeros(len(reader.keys) - len(counts), np.int64))
            counts += np.bincount(batch.codes, minlength=len(counts))
        return dict(zip(reader.keys, counts.tolist(), strict=True))

    def hierarchy_within(self) -> Hierarchy | None:
        """Return the hierarchy that the file itself has, if its format has one."""
        with open_tables(self.path, self.options, self.format) as source:
            return source.hierarchy


def read_batches(
    path: str | Path,
    hierarchy: Hierarchy,
    size: int = BATCH,
    first: int | None = None,
    columns: bool = False,
    title: str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Iterator[Dataset]:
    """Read a file of texts a batch at a time; any format in FORMATS, also compressed, or - for standard input.

    The rows, ids and texts are those that `read` finds, in the same order.

    Parameters
    ----------
    path : str or Path
        The file.
    hierarchy : Hierarchy
        Where labels are looked up, if they are read (`need_labels`).
    size : int
        The rows of a batch.
    first : int, optional
        The rows of the first batch, if it is to be there sooner; batches grow from there to `size`.
    columns : bool
        Whether `Dataset.extra` has all columns of the file as they are there, in their order: those of Parquet files of
        their own types, others as text.
    title : str, optional
        What the progress bar says.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal.
    **options
        Those of `read`: text, labels, id, sep, format, label_sep, lists, encoding, delimiter, header, quotes, on_error,
        need_text, need_labels, limits.

    Yields
    ------
    Dataset
        Never an empty one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "texts.csv")
    ...     _ = file.write_text("text\\none\\ntwo\\nthree\\n")
    ...     [list(batch.texts) for batch in read_batches(file, Hierarchy.flat(["A"]), 2, need_labels=False)]
    [['one', 'two'], ['three']]
    """
    file = DataFile.of(path, progress=progress, **options)
    if size < 1 or (first is not None and first < 1):
        raise TreelabelError(f"expected batches of at least 1 row, found size={size}, first={first}")
    batches = file.batches(hierarchy, size, first, "all" if columns else "none", title)
    return _with_columns(file, batches) if columns else batches


def _with_columns(file: DataFile, batches: Iterator[Dataset]) -> Iterator[Dataset]:
    """Cast all batches to the columns of the first, as text unless the format has types."""
    is_typed = "types" in format_to_read(file.path, file.format, file.options).holds
    names: list[str] | None = None
    for data in batches:
        names = list(data.extra) if names is None else names
        late = next((name for name in data.extra if name not in names), None)
        if late is not None:
            warnings.warn(
                f"{file.path}: the column {late!r} is in none of the first rows, so that it is not kept", stacklevel=2
            )
        columns = {name: data.extra.get(name, pa.chunked_array([pa.nulls(len(data))])) for name in names}
        yield replace(data, extra=columns if is_typed else {name: _texts(each) for name, each in columns.items()})


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as text; what is no text is JSON."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.large_string())
    return pa.chunked_array([json_column(column.to_pylist())])


def with_hierarchy(
    files: Sequence[DataFile], taxonomy: str | Path | Hierarchy | None = None
) -> tuple[list[DataFile], Hierarchy, bool]:
    """Find the hierarchy of files that belong together, as `read_together` does, without holding their documents.

    Parameters
    ----------
    files : sequence of DataFile
        At least one.
    taxonomy : str, Path or Hierarchy, optional
        The hierarchy, or a file with one; by default what is beside one of the files, or made of all their labels.

    Returns
    -------
    (list of DataFile, Hierarchy, bool)
        The files with the separator of paths, if one was guessed; the hierarchy; whether it was made of the labels.
    """
    if isinstance(taxonomy, Hierarchy):
        return list(files), taxonomy, False
    first = files[0]
    if taxonomy is not None:
        return list(files), _read_taxonomy(Path(taxonomy), first), False
    within = [file.hierarchy_within() for file in files]
    alone = [file.path for file, inner in zip(files, within, strict=True) if inner is None]
    sibling = next(filter(None, map(find_sibling_taxonomy, alone)), None)
    if sibling is not None:
        h = _read_taxonomy(sibling, first)
        others = [inner for inner in within if inner is not None and inner != h]
        return [replace(file, sibling=sibling) for file in files], unite_trees([h, *others]) if others else h, False
    every = [file.labels() if inner is None else {} for file, inner in zip(files, within, strict=True)]
    # As in `read_together`: the file with the most labels in it says how labels are understood.
    largest = max(range(len(files)), key=lambda number: sum(every[number].values()))
    guessed = hierarchy_of_labels(every[largest], first.sep, files[largest].path).sep if every[largest] else None
    # No label has a line break, so that as a separator it keeps all labels whole.
    sep = guessed or first.sep or ("\n" if len(files) > 1 and every[largest] else None)
    hierarchies = [
        hierarchy_of_labels(labels, sep, file.path).hierarchy if inner is None else inner
        for file, labels, inner in zip(files, every, within, strict=True)
    ]
    is_of_labels = all(inner is None for inner in within)
    same = all(each == hierarchies[0] for each in hierarchies)
    return (
        [replace(file, sep=sep) for file in files],
        hierarchies[0] if same else unite_trees(hierarchies),
        is_of_labels,
    )


def _read_taxonomy(file: Path, data: DataFile) -> Hierarchy:
    """Read the taxonomy of a data file."""
    return read_sibling_taxonomy(file, data.root, data.options.encoding, data.options.limits, data.language)[0]


# Predictions


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
