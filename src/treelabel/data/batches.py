"""Read a data file a batch at a time, so that memory does not depend on how many rows it has."""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import STANDARD, existing_file
from treelabel.core.progress import progress_bar
from treelabel.core.strings import Strings
from treelabel.data.collect import Collector, Incoming
from treelabel.data.dataset import Dataset
from treelabel.data.fields import FieldChoice, Fields
from treelabel.data.io import BATCH, Format, Problem, ReadOptions, Record, RowSource
from treelabel.data.io.csv_blocks import read_blocks, regular_columns
from treelabel.data.io.parquet import record_batches
from treelabel.data.io.standard import settled
from treelabel.data.read import Problems, find_nodes, understand
from treelabel.hierarchy import Hierarchy, label_matrix

# Batches grow from the first one to their full size by this factor.
GROWTH = 4

_FIELDS = frozenset(each.name for each in fields(FieldChoice)) - {"group"}
_READING = frozenset(each.name for each in fields(ReadOptions)) - {"seen"}
# Options of `read` that reading in batches has, too.
OPTIONS = _FIELDS | _READING | {"format", "sep", "on_error"}


def batch_sizes(size: int, first: int | None = None) -> Iterator[int]:
    """Yield the sizes of batches: the first, then ever larger ones up to `size`.

    Parameters
    ----------
    size
        The largest.
    first
        The first; by default as large.

    Yields
    ------
    int

    >>> list(islice(batch_sizes(100, 10), 5))
    [10, 40, 100, 100, 100]
    """
    now = size if first is None else min(first, size)
    while True:
        yield now
        now = min(size, now * GROWTH)


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
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise TreelabelError(f"reading in batches has no option {unknown[0]!r}")
    if size < 1 or (first is not None and first < 1):
        raise TreelabelError(f"expected batches of at least 1 row, found size={size}, first={first}")
    return _batches(existing_file(path), hierarchy, batch_sizes(size, first), columns, title, progress, options)


def _batches(
    file: Path,
    hierarchy: Hierarchy,
    sizes: Iterator[int],
    columns: bool,
    title: str | None,
    progress: bool | None,
    options: dict[str, Any],
) -> Iterator[Dataset]:
    """Open the file, choose the reader, and say at the end what was left out."""
    bytes_there = None if file == STANDARD else file.stat().st_size
    choice = FieldChoice(**{name: value for name, value in options.items() if name in _FIELDS})
    problems = Problems(file, options.get("on_error", "stop"))
    count = 0
    with ExitStack() as opened:
        how = ReadOptions(**{name: value for name, value in options.items() if name in _READING})
        found, entry = opened.enter_context(settled(file, options.get("format"), how))
        seen = opened.enter_context(progress_bar(title or f"reading {file.name}", bytes_there, progress))
        how = replace(how, seen=seen)
        reader = _Reader(found, entry, how, hierarchy, choice, problems, columns, options.get("sep"))
        for batch in reader.batches(sizes):
            count += len(batch)
            yield batch
    problems.conclude(count)


@dataclass
class _Reader:
    """A file on its way into batches: by columns as far as it has them, else row by row."""

    file: Path
    entry: Format
    options: ReadOptions
    hierarchy: Hierarchy
    choice: FieldChoice
    problems: Problems
    columns: bool
    sep: str | None
    fields: Fields | None = None
    names: list[str] = field(default_factory=list)
    count: int = 0

    def batches(self, sizes: Iterator[int]) -> Iterator[Dataset]:
        """Yield batches of these sizes."""
        held: list[pa.Table] = []
        goal = next(sizes)
        for table in self._tables():
            if table is None:
                break
            held.append(table)
            while sum(map(len, held)) >= goal:
                whole = pa.concat_tables(held)
                yield self._of_table(whole[:goal])
                held, goal = [whole[goal:]], next(sizes)
        else:
            if held and sum(map(len, held)):
                yield self._of_table(pa.concat_tables(held))
            return
        # Rows that were read by column and not given out come again.
        source = self.entry.read(self.file, self.options)
        yield from self._by_rows(source, chain([goal], sizes), self.count)

    # By columns

    def _tables(self) -> Iterator[pa.Table | None]:
        """Yield parts of the file by column; None at the end says that what follows has to be read row by row."""
        if self.choice.need_labels or self.file == STANDARD:
            yield None
        elif self.entry.name in ("csv", "tsv"):
            header = regular_columns(self.file, self.options)
            if header is None:
                yield None
                return
            chosen = self._choose(header[0], 2)
            wanted = header[0] if self.columns else [name for name in header[0] if name in {*chosen.text, chosen.id}]
            yield from read_blocks(self.file, self.options, *header, wanted)
        elif self.entry.name == "parquet":
            for batch in record_batches(self.file, self.options):
                fields = self.fields or self._choose(batch.schema.names, 1)
                if not all(_is_text(batch.schema.field(name).type) for name in fields.text):
                    yield None
                    return
                if fields.id is not None and not _is_name(batch.schema.field(fields.id).type):
                    yield None
                    return
                yield pa.Table.from_batches([batch])
        else:
            yield None

    def _choose(self, names: list[str], line: int) -> Fields:
        self.names = names
        self.fields = self.choice.among(names, f"{self.file}:{line}")
        return self.fields

    def _of_table(self, table: pa.Table) -> Dataset:
        """Make a batch of columns."""
        fields = self.fields or self._choose(table.column_names, 1)
        texts = [_strings(table.column(name)) for name in fields.text]
        joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, _text("\n"))
        ids = pa.array(np.arange(self.count, self.count + len(table))).cast(pa.large_string())
        if fields.id is not None:
            given = _strings(table.column(fields.id))
            ids = pc.if_else(pc.equal(given, _text("")), ids, given)
        self.count += len(table)
        extra = {name: table.column(name) for name in table.column_names} if self.columns else {}
        none = label_matrix(np.zeros(len(table) + 1, np.int64), np.zeros(0, np.int32), len(self.hierarchy))
        return Dataset(Strings.of(ids), Strings.of(joined), none, self.hierarchy, extra)

    # By rows

    def _by_rows(self, source: RowSource, sizes: Iterator[int], taken: int) -> Iterator[Dataset]:
        rows: Iterator[Record | Problem] = islice(source.rows, taken, None)
        if self.fields is None:
            # As for `read`: JSON objects need not all have the same fields. Whoever types or pipes waits for less.
            size = next(sizes)
            looked = list(islice(rows, size if self.file == STANDARD else BATCH))
            good = [row for row in looked if isinstance(row, Record)]
            if good:
                self._choose(list(dict.fromkeys(name for row in good for name in row.values)), good[0].line)
            rows, sizes = chain(looked, rows), chain([size], sizes)
        for size in sizes:
            # A batch has as many documents, whatever was left out before them.
            batch = self._understood(rows, size)
            if not batch:
                return
            yield self._of_rows(batch, source.features)

    def _understood(self, rows: Iterator[Record | Problem], size: int) -> list[Incoming]:
        batch: list[Incoming] = []
        for row in rows:
            if isinstance(row, Problem):
                self.problems.skip(row.line, row.message, row.lines)
                continue
            # A file of nothing but bad rows at its beginning.
            fields = self.fields or self._choose(list(row.values), row.line)
            understand(row, fields, self.count, batch, self.problems)
            if len(batch) == size:
                break
        return batch

    def _of_rows(self, batch: list[Incoming], features: int | None) -> Dataset:
        """Make a batch of rows; where labels are read, those with an unknown one are left out if that was asked for."""
        self.count += len(batch)
        collector = Collector(self.options.limits)
        collector.add([replace(row, values=self._own(row.values)) for row in batch])
        nodes = find_nodes(self.hierarchy, collector, self.sep, self.problems)
        data, left_out = collector.dataset(self.hierarchy, nodes, features)
        self.problems.skipped += left_out
        extra = {name: data.extra[name].cast(pa.large_string()) for name in self.names} if self.columns else {}
        return replace(data, extra=extra)

    def _own(self, values: Mapping[str, Any]) -> dict[str, str | None]:
        """Return the columns of a row as text."""
        if not self.columns:
            return {}
        late = next((name for name in values if name not in self.names), None)
        if late is not None:
            warnings.warn(
                f"{self.file}: the column {late!r} is in none of the first rows, so that it is not kept", stacklevel=2
            )
        return {name: _written(values.get(name)) for name in self.names}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_name(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_integer(kind))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _strings(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as text, nothing being empty."""
    return pc.fill_null(column.combine_chunks().cast(pa.large_string()), _text(""))


def _written(value: Any) -> str | None:
    """Write a value as it stands in a CSV file: what is no text is JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
