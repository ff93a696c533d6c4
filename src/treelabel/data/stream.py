"""Read a data file some documents at a time, as often as needed: memory does not grow with the documents."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import existing_file
from treelabel.core.json_text import number_of
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.progress import progress_bar
from treelabel.core.types import BoolArray, IntArray
from treelabel.data.collect import Collector, Incoming
from treelabel.data.dataset import Dataset
from treelabel.data.fields import FieldChoice, Fields
from treelabel.data.io import BATCH, Problem, ReadOptions, Record, RowSource, format_to_read
from treelabel.data.read import OnError, Problems, find_nodes, hierarchy_of_labels, understand
from treelabel.data.taxonomy.sibling_taxonomy import find_sibling_taxonomy, read_sibling_taxonomy
from treelabel.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import Label
from treelabel.hierarchy.union import unite_trees

# Takes the values of a row and which columns are read; returns the further columns to keep.
Columns = Callable[[dict[str, Any], Fields], dict[str, Any]]


@dataclass(frozen=True)
class DataFile:
    """A data file that is read in batches: where it is, and the options of `read` that say how."""

    path: Path
    choice: FieldChoice
    sep: str | None = None
    root: str | None = None
    format: str | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    on_error: OnError = "stop"
    progress: bool | None = None
    # The file of the hierarchy, if nobody named it: see `find_nodes`.
    beside: Path | None = None

    @classmethod
    def of(
        cls,
        path: str | Path,
        sep: str | None = None,
        root: str | None = None,
        format: str | None = None,  # noqa: A002  what users call it
        encoding: str = "utf-8",
        delimiter: str | None = None,
        header: bool = True,
        quotes: bool = True,
        on_error: OnError = "stop",
        limits: Limits = DEFAULT_LIMITS,
        progress: bool | None = None,
        sheet: str | None = None,
        **choice: Any,
    ) -> "DataFile":
        """Take the options of `read`, but for the taxonomy.

        Parameters
        ----------
        path, sep, root, format, encoding, delimiter, header, quotes, on_error, limits, progress, sheet
            As for `read`.
        **choice
            Those of `read` that choose columns: text, labels, id, label_sep, lists, need_text, need_labels, group.

        Returns
        -------
        DataFile
        """
        if "" in (sep, choice.get("label_sep")):
            raise TreelabelError("a separator must be at least one character; without one it is guessed")
        options = ReadOptions(encoding, delimiter, header, quotes, None, limits, sheet)
        return cls(existing_file(path), FieldChoice(**choice), sep, root, format, options, on_error, progress)

    def batches(
        self, hierarchy: Hierarchy, size: int = BATCH, texts: bool = False, columns: Columns | None = None
    ) -> Iterator[Dataset]:
        """Read the file once.

        Parameters
        ----------
        hierarchy : Hierarchy
            Where labels are looked up.
        size : int
            Documents of a batch at most.
        texts : bool
            Whether to keep the texts; else they are empty.
        columns : callable, optional
            Tells the further columns to keep of a row; by default none but that of groups.

        Yields
        ------
        Dataset
        """
        problems, known, documents = Problems(self.path, self.on_error), dict[Label, int](), 0
        with self._opened() as source:
            for fields, rows in _batches(source, self.choice, problems, size):
                incoming: list[Incoming] = []
                for row in rows:
                    understand(row, fields, documents, incoming, problems)
                documents += len(incoming)
                for each in incoming:
                    self._strip(each, fields, texts, columns)
                collector = Collector(self.options.limits)
                collector.add(incoming)
                nodes = self._nodes(hierarchy, collector, known, problems)
                data, left_out = collector.dataset(hierarchy, nodes, source.features)
                problems.skipped += left_out
                yield data if self.choice.group is None else replace(data, group=self.choice.group)
        problems.conclude(documents)

    def _strip(self, row: Incoming, fields: Fields, texts: bool, columns: Columns | None) -> None:
        """Drop of a row what nobody asked for."""
        kept = {} if columns is None else columns(row.values, fields)
        if fields.group is not None:
            kept[fields.group] = row.values.get(fields.group)
        row.values = kept
        if not texts:
            row.text = ""

    def _nodes(self, hierarchy: Hierarchy, batch: Collector, known: dict[Label, int], problems: Problems) -> IntArray:
        """Find the nodes of a batch's labels; what was found before is known."""
        new = Collector(keys={}, key_lines=[])
        for label, code in batch.keys.items():
            if label not in known:
                new.keys[label] = len(new.keys)
                new.key_lines.append(batch.key_lines[code])
        known.update(zip(new.keys, find_nodes(hierarchy, new, self.sep, problems, self.beside).tolist(), strict=True))
        return np.array([known[label] for label in batch.keys], np.int32)

    def labels(self) -> dict[Label, int]:
        """Read the file for its labels alone: every label, with the number of its documents."""
        keys: dict[Label, int] = {}
        # What is wrong with rows is told when they are read for good.
        problems = Problems(self.path, "skip")
        with self._opened() as source:
            for fields, rows in _batches(source, self.choice, problems, BATCH):
                incoming: list[Incoming] = []
                for row in rows:
                    understand(row, fields, 0, incoming, problems)
                for label in (label for each in incoming for label in each.labels):
                    keys[label] = keys.get(label, 0) + 1
        return keys

    def hierarchy_within(self) -> Hierarchy | None:
        """Return the hierarchy that the file itself has, if its format has one."""
        with self._opened() as source:
            return source.hierarchy

    @contextmanager
    def _opened(self) -> Iterator[RowSource]:
        with progress_bar(f"reading {self.path.name}", self.path.stat().st_size, self.progress) as seen:
            options = replace(self.options, seen=seen)
            yield format_to_read(self.path, self.format, options).read(self.path, options)


def _batches(
    source: RowSource, choice: FieldChoice, problems: Problems, size: int
) -> Iterator[tuple[Fields, list[Record]]]:
    """Yield rows with the columns to read, which are chosen with as many rows in view as `read` has."""
    begin = list(islice(source.rows, BATCH))
    good = [row for row in begin if isinstance(row, Record)]
    if not good:
        rest = source.rows
        while not good and (more := list(islice(rest, BATCH))):
            begin += more
            good = [row for row in more if isinstance(row, Record)]
    rows = chain(begin, source.rows)
    fields = None
    if good:
        columns = dict.fromkeys(name for row in good for name in row.values)
        fields = choice.among(list(columns), f"{problems.file}:{good[0].line}")
    while batch := list(islice(rows, size)):
        for row in batch:
            if isinstance(row, Problem):
                problems.skip(row.line, row.message, row.lines)
        if fields is not None:
            yield fields, [row for row in batch if isinstance(row, Record)]


def with_hierarchy(
    files: Sequence[DataFile], taxonomy: str | Path | Hierarchy | None = None
) -> tuple[list[DataFile], Hierarchy, bool]:
    """Find the hierarchy of files that belong together, as `read_together` does, without holding their documents.

    Parameters
    ----------
    files : sequence of DataFile
        The files.
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
        where = Path(taxonomy)
        known = read_sibling_taxonomy(where, first.root, first.options.encoding, first.options.limits)[0]
        return list(files), known, False
    within = [file.hierarchy_within() for file in files]
    alone = [file.path for file, own in zip(files, within, strict=True) if own is None]
    beside = next(filter(None, map(find_sibling_taxonomy, alone)), None)
    if beside is not None:
        h, _ = read_sibling_taxonomy(beside, first.root, first.options.encoding, first.options.limits)
        others = [own for own in within if own is not None and own != h]
        return [replace(file, beside=beside) for file in files], unite_trees([h, *others]) if others else h, False
    every = [file.labels() if own is None else {} for file, own in zip(files, within, strict=True)]
    # As in `read_together`: the file with the most labels in it says how labels are understood.
    largest = max(range(len(files)), key=lambda at: sum(every[at].values()))
    guessed = hierarchy_of_labels(every[largest], first.sep, files[largest].path).sep if every[largest] else None
    # No label has a line break, so that as a separator it keeps all labels whole.
    sep = guessed or first.sep or ("\n" if len(files) > 1 and every[largest] else None)
    found = [
        hierarchy_of_labels(labels, sep, file.path).hierarchy if own is None else own
        for file, labels, own in zip(files, every, within, strict=True)
    ]
    same = all(each == found[0] for each in found)
    is_of_labels = all(own is None for own in within)
    return [replace(file, sep=sep) for file in files], found[0] if same else unite_trees(found), is_of_labels


@dataclass(frozen=True)
class PredictionFile:
    """A file of predictions: the columns of a table that `predict` wrote, all None of any other file.

    The input's own columns stand before those of `predict`, under names that may be more usual for labels.
    """

    path: Path
    labels: str | None = None
    numbers: str | None = None

    @classmethod
    def of(cls, path: Path, limits: Limits = DEFAULT_LIMITS) -> "PredictionFile":
        """Look at the columns of a file.

        Parameters
        ----------
        path
            A file of predictions.
        limits
            Limits of reading.

        Returns
        -------
        PredictionFile
        """
        options, columns = ReadOptions(limits=limits), list[str]()
        # What is wrong with the file is told by who reads it.
        with suppress(TreelabelError, OSError):
            rows = format_to_read(path, None, options).read(path, options).rows
            columns = next((list(row.values) for row in rows if isinstance(row, Record)), [])
        for at in reversed(range(len(columns) - 2)):
            if all(_is_column(*pair) for pair in zip(columns[at:], ("predicted", "path", "p"), strict=False)):
                several = at + 3 < len(columns) and _is_column(columns[at + 3], "all_p")
                return cls(path, columns[at + 1], columns[at + 3] if several else None)
        return cls(path)

    @property
    def is_closed(self) -> bool:
        """Whether its labels stand for their ancestors: those of a table that `predict` wrote do."""
        return self.labels is not None

    def options(self, label_sep: str | None) -> dict[str, Any]:
        """Return the options of reading it; several labels of a cell are separated as its numbers are, or as given."""
        if self.labels is None:
            return {"labels": None, "label_sep": label_sep}
        return {"labels": self.labels, "numbers": self.numbers}

    def closed_rows(self, data: Dataset) -> BoolArray:
        """Mark the documents whose labels stand for all their ancestors too: a column "closed" may say so."""
        if "closed" not in data.extra:
            return np.full(len(data), self.is_closed)
        told = data.extra["closed"].to_pylist()
        return np.array([self.is_closed if value is None else is_closed(value) for value in told], np.bool_)


def _is_column(name: str, kind: str) -> bool:
    """Return whether a column may be the one that `predict` calls so, where that name was not taken, or else."""
    return name.rstrip("_").removeprefix("predicted_") == kind


def prediction_columns(values: dict[str, Any], fields: Fields) -> dict[str, Any]:
    """Keep of a row of predictions whether its labels stand for their ancestors too, and how sure the surest is.

    Parameters
    ----------
    values
        The values of the row by column.
    fields
        The columns that are read.

    Returns
    -------
    dict
        "closed" and "p", each None where nothing is known.

    >>> fields = Fields((), ("labels",), "id")
    >>> prediction_columns({"labels": [{"label": "A", "p": 0.5}, {"label": "B", "p": 0.75}], "closed": True}, fields)
    {'closed': True, 'p': 0.75}
    """
    column = values.get(fields.labels[0]) if len(fields.labels) == 1 else None
    listed = column if isinstance(column, list) else []
    found = [number_of(each.get("p")) for each in listed if isinstance(each, dict)] or [number_of(values.get("p"))]
    known = [p for p in found if p is not None]
    return {"closed": values.get("closed"), "p": max(known) if known else None}


def is_closed(value: Any) -> bool:
    """Return whether a value, as JSON or as a cell, says that labels are closed."""
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "1", "yes"))
