"""Documents of a file, a batch at a time: ids, texts, labels by number, and whatever is wrong with a row."""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from treelabel.core.errors import TreelabelError, shorten
from treelabel.core.json_lines import join_texts, text_scalar
from treelabel.core.strings import Strings
from treelabel.core.types import BoolArray, IntArray, LongArray
from treelabel.data.columns import (
    ANSWER,
    NOT_ACCEPTED,
    ColumnChoice,
    Columns,
    as_text,
    between_numbers,
    decode_text,
    labels_of_cell,
    labels_of_value,
    path_of_levels,
)
from treelabel.data.dataset import Dataset
from treelabel.data.io.format import (
    Part,
    Problem,
    ReadOptions,
    TableSource,
    json_column,
)
from treelabel.data.io.tables import open_tables
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import Label
from treelabel.hierarchy.label_matrices import from_ids

OnError = Literal["stop", "skip"]
# Instead of the node of a label: it has none, and: there is no label.
UNKNOWN, NO_LABEL = -1, -2
# Which further columns are kept: none but that of groups, those that hold neither text, labels nor ids, or all.
Extra = Literal["none", "others", "all"]


class SkippedRowsWarning(UserWarning):
    """Says how many rows were left out because `on_error="skip"` was asked for."""


@dataclass
class Problems:
    """Problems of a file: the first stops the reading, or all are counted and the first few reported."""

    file: Path
    on_error: OnError
    skipped: int = 0
    messages: list[str] = field(default_factory=list)
    # Rows that annotators did not accept, which are left out always, by their answer.
    rejected: Counter[str] = field(default_factory=Counter)
    # Where rows come from, which knows the file of each line.
    source: TableSource | None = None

    def locate(self, line: int) -> str:
        """Say where a line stands."""
        return f"{self.file}:{line}" if self.source is None else self.source.locate(line, self.file)

    def report(self, line: int, message: str, kind: type[TreelabelError] = TreelabelError) -> None:
        """Raise an error of a kind that names the line, or remember the message."""
        located = f"{self.locate(line)}: {message}"
        if self.on_error == "stop":
            raise kind(f"{shorten(located, 1500)} (to leave out such rows: --on-error skip)")
        if len(self.messages) < 3:
            self.messages.append(shorten(located, 500))

    def skip(self, problem: Problem) -> None:
        """Report a problem that costs rows."""
        self.report(problem.line, problem.message)
        self.skipped += problem.lines

    def conclude(self, documents: int) -> None:
        """Warn of rows that were left out, and refuse a file of which nothing is left."""
        if documents == 0:
            raise self.nothing_left()
        if self.skipped:
            reasons = "; ".join(self.messages)
            warnings.warn(SkippedRowsWarning(f"{self.file}: skipped {self.skipped:,} rows: {reasons}"), stacklevel=3)
        if self.rejected:
            warnings.warn(SkippedRowsWarning(f"{self.file}: left out {self._not_accepted()}"), stacklevel=3)

    def _not_accepted(self) -> str:
        counts = ", ".join(f"{answer} {count:,}" for answer, count in self.rejected.items())
        return f"{self.rejected.total():,} rows that annotators did not accept (answer: {counts})"

    def nothing_left(self) -> TreelabelError:
        """Make the error for a file without documents."""
        if self.rejected and not self.skipped:
            return TreelabelError(f"{self.file}: no documents left but {self._not_accepted()}")
        if not self.skipped:
            return TreelabelError(f"{self.file}: no documents; the file has no rows, or every line is blank")
        reasons = "; ".join(self.messages)
        return TreelabelError(f"{self.file}: no documents left, as all {self.skipped:,} rows were skipped: {reasons}")


@dataclass(frozen=True)
class DocumentBatch:
    """Documents by column; labels are numbers of distinct labels (see `DocumentReader.keys`), row after row."""

    ids: pa.ChunkedArray
    texts: pa.ChunkedArray
    lines: LongArray
    ptr: LongArray
    codes: IntArray
    extra: pa.Table
    features: sparse.csr_array | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, rows: slice) -> "DocumentBatch":
        """Select consecutive documents."""
        start, stop, _ = rows.indices(len(self))
        ptr = self.ptr[start : stop + 1]
        codes = self.codes[ptr[0] : ptr[-1]]
        features = None if self.features is None else self.features[rows]
        columns = self.ids[rows], self.texts[rows], self.lines[rows]
        return DocumentBatch(*columns, ptr - ptr[0], codes, self.extra[start:stop], features)

    @classmethod
    def concat(cls, batches: Sequence["DocumentBatch"]) -> "DocumentBatch":
        """Put batches together, at least one."""
        if len(batches) == 1:
            return batches[0]
        starts = np.cumsum([0, *(len(batch.codes) for batch in batches)])
        ptr = [batch.ptr[1:] + start for batch, start in zip(batches, starts, strict=False)]
        matrices = [batch.features for batch in batches if batch.features is not None]
        return cls(
            pa.chunked_array([chunk for batch in batches for chunk in batch.ids.chunks], pa.large_string()),
            pa.chunked_array([chunk for batch in batches for chunk in batch.texts.chunks], pa.large_string()),
            np.concatenate([batch.lines for batch in batches]),
            np.concatenate([np.zeros(1, np.int64), *ptr]),
            np.concatenate([batch.codes for batch in batches]),
            _concat_tables([batch.extra for batch in batches], [len(batch) for batch in batches]),
            sparse.csr_array(sparse.vstack(matrices, format="csr")) if matrices else None,
        )

    def dataset(self, hierarchy: Hierarchy, nodes: IntArray) -> tuple[Dataset, int]:
        """Make a dataset, given the node of every distinct label.

        Documents with an UNKNOWN label are left out; their number comes second. NO_LABEL is no label.
        """
        labels, ptr = nodes[self.codes], self.ptr
        if (labels == NO_LABEL).any():
            is_label = labels != NO_LABEL
            labels, ptr = labels[is_label], np.append(0, np.cumsum(is_label))[ptr]
        data = Dataset(
            Strings(self.ids),
            Strings(self.texts),
            from_ids(ptr, np.maximum(labels, 0), len(hierarchy)),
            hierarchy,
            dict(zip(self.extra.column_names, self.extra.columns, strict=True)),
            self.features,
            lines=self.lines,
        )
        bad = np.unique(np.searchsorted(ptr, np.flatnonzero(labels == UNKNOWN), side="right") - 1)
        return (data[np.setdiff1d(np.arange(len(data)), bad)] if len(bad) else data), len(bad)


def _concat_tables(tables: Sequence[pa.Table], sizes: Sequence[int]) -> pa.Table:
    """Join tables by column; what a table lacks is null, and what has no common type is JSON."""
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    columns = {}
    for name in names:
        parts = [
            table.column(name) if name in table.column_names else pa.chunked_array([pa.nulls(size)])
            for table, size in zip(tables, sizes, strict=True)
        ]
        try:
            alike = [pa.table({name: part}) for part in parts]
            columns[name] = pa.concat_tables(alike, promote_options="permissive").column(name)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns[name] = pa.chunked_array([json_column(part.to_pylist()) for part in parts])
    return pa.table(columns)


def resize_batches(batches: Iterator[DocumentBatch], sizes: Iterator[int]) -> Iterator[DocumentBatch]:
    """Cut and join batches, so that each has as many documents as asked for."""
    waiting: list[DocumentBatch] = []
    size = next(sizes)
    for batch in batches:
        waiting.append(batch)
        while sum(map(len, waiting)) >= size:
            whole = DocumentBatch.concat(waiting)
            yield whole[:size]
            waiting, size = [whole[size:]], next(sizes)
    if sum(map(len, waiting)):
        yield DocumentBatch.concat(waiting)


@dataclass
class DocumentReader:
    """Reads the documents of a file: chooses the columns once, and numbers distinct labels as they come.

    `keys` has the number of every distinct label, `key_lines` where it stood first.
    """

    path: Path
    choice: ColumnChoice
    options: ReadOptions
    format: str | None
    problems: Problems
    extra: Extra = "others"
    title: str | None = None
    progress: bool | None = None
    columns: Columns | None = None
    source: TableSource | None = None
    # Rows that are in memory already, in place of those of the file.
    opened: TableSource | None = None
    count: int = 0
    keys: dict[Label, int] = field(default_factory=dict)
    key_lines: list[int] = field(default_factory=list)

    def batches(self) -> Iterator[DocumentBatch]:
        """Read the file once; a batch is never empty."""
        options = replace(self.options, select=self._select)
        tables = open_tables(self.path, options, self.format, self.title, self.progress)
        with tables if self.opened is None else nullcontext(self.opened) as self.source:
            self.problems.source = self.source
            for part in self.source.parts:
                if self.columns is None and len(part):
                    # JSON objects need not all have the same fields, so a whole batch is in view.
                    self._choose(part.table.column_names, int(part.lines[0]), part.table)
                batch = None if self.columns is None else self._understand(part, self.columns)
                if batch is not None and len(batch):
                    self.count += len(batch)
                    yield batch
                elif batch is None:
                    self._skip(part.problems)

    def _select(self, names: Sequence[str]) -> Sequence[str]:
        """Choose among the columns of a table before its rows are read."""
        if self.extra != "none" or not self.choice.is_clear(names):
            return names
        columns = self._choose(names, 2)
        used = {*columns.text, columns.id, columns.group}
        if columns.need_labels:
            used |= {*columns.labels, columns.numbers, ANSWER}
        return [name for name in names if name in used]

    def _choose(self, names: Sequence[str], line: int, table: pa.Table | None = None) -> Columns:
        if self.columns is None:
            self.columns = self.choice.among(list(names), self.problems.locate(line), table)
        return self.columns

    def _skip(self, problems: Sequence[Problem]) -> None:
        for problem in sorted(problems, key=lambda each: each.line):
            self.problems.skip(problem)

    def _understand(self, part: Part, columns: Columns) -> DocumentBatch:
        """Read the ids, texts and labels of rows; report and leave out those that cannot be used."""
        rows = PartRows(part, self._is_rejected(part, columns))
        names = rows.ids(columns)
        texts = rows.texts(columns)
        lists, which = rows.labels(columns)
        self._skip([*part.problems, *rows.problems()])
        chosen = np.flatnonzero(rows.is_usable)
        ptr, codes = self._number(lists, which[chosen], part.lines[chosen])
        is_all = len(chosen) == len(part)
        take = pa.array(chosen)
        numbers = pa.array(np.arange(self.count, self.count + len(chosen))).cast(pa.large_string())
        names = numbers if names is None else names if is_all else names.take(take)
        ids = pc.if_else(pc.equal(names, text_scalar("")), numbers, names)
        wanted = part.table.select(self._extra_names(part.table.column_names, columns))
        return DocumentBatch(
            pa.chunked_array([ids]),
            pa.chunked_array([texts if is_all else texts.take(take)]),
            part.lines[chosen],
            ptr,
            codes,
            wanted if is_all or not wanted.num_columns else wanted.take(take),
            None if part.features is None else part.features[chosen],
        )

    def _is_rejected(self, part: Part, columns: Columns) -> BoolArray:
        """Mark and count rows whose label an annotator of Prodigy turned down, if labels are read.

        The label of such a row is what was asked about, and not what the text is about.
        """
        none = np.zeros(len(part), np.bool_)
        if not columns.need_labels or ANSWER in columns.labels or ANSWER not in part.table.column_names:
            return none
        answers = [value if isinstance(value, str) else "" for value in part.values(ANSWER)]
        self.problems.rejected.update(answer for answer in answers if answer in NOT_ACCEPTED)
        return none | [answer in NOT_ACCEPTED for answer in answers]

    def _extra_names(self, names: Sequence[str], columns: Columns) -> list[str]:
        if self.extra == "all":
            return list(names)
        if self.extra == "none":
            return [name for name in names if name == columns.group]
        return [name for name in names if name not in columns.names()]

    def _number(self, lists: list[list[Label]], which: LongArray, lines: LongArray) -> tuple[LongArray, IntArray]:
        """Number labels in the order in which they come; return where the labels of each row begin, and their numbers.

        Row i has the labels `lists[which[i]]`.
        """
        used, first = np.unique(which, return_index=True)
        numbers: list[list[int]] = [[] for _ in lists]
        for entry, row in sorted(zip(used.tolist(), first.tolist(), strict=True), key=lambda pair: pair[1]):
            for label in lists[entry]:
                code = self.keys.setdefault(label, len(self.keys))
                if code == len(self.key_lines):
                    self.key_lines.append(int(lines[row]))
                numbers[entry].append(code)
        sizes = np.array([len(each) for each in numbers], np.int64)
        flat = np.array([code for each in numbers for code in each], np.int32)
        starts = np.cumsum(sizes) - sizes
        ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[which])])
        # Where the labels of each row begin in `flat`, and how far into them an entry is.
        within = np.arange(ptr[-1]) - np.repeat(ptr[:-1], sizes[which])
        return ptr, flat[np.repeat(starts[which], sizes[which]) + within]


@dataclass
class PartRows:
    """Rows of a table on their way to documents: those that cannot be used are marked, with the reason."""

    part: Part
    is_rejected: BoolArray
    reasons: dict[int, str] = field(default_factory=dict)

    @property
    def is_usable(self) -> BoolArray:
        """Mark the rows that are documents."""
        usable = ~self.is_rejected
        usable[list(self.reasons)] = False
        return usable

    def problems(self) -> list[Problem]:
        """Return what is wrong with rows, but for those that were rejected anyway."""
        rows = ((row, reason) for row, reason in self.reasons.items() if not self.is_rejected[row])
        return [Problem(int(self.part.lines[row]), reason) for row, reason in rows]

    def ids(self, columns: Columns) -> pa.Array | None:
        """Read ids; those of rows without one are empty, and None stands for no ids at all."""
        if columns.id is None or columns.id not in self.part.table.column_names:
            return None
        return self._texts(columns.id, lambda value: decode_text(value) if isinstance(value, bytes) else _name(value))

    def texts(self, columns: Columns) -> pa.Array:
        """Read texts; those of several columns are joined by line breaks."""
        texts = [self._texts(name, as_text) for name in columns.text if self._require(name)]
        if not texts:
            return pa.array([""] * len(self.part), pa.large_string())
        return join_texts([part for text in texts for part in ("\n", text)][1:]) if len(texts) > 1 else texts[0]

    def labels(self, columns: Columns) -> tuple[list[list[Label]], LongArray]:
        """Read labels: lists of them, and which list each row has. The same few labels stand in row after row."""
        if not columns.need_labels or not columns.labels:
            return [[]], np.zeros(len(self.part), np.int64)
        every = np.arange(len(self.part))
        missing = [name for name in columns.labels if not self._require(name)]
        if missing:
            return [[]], every * 0
        if len(columns.labels) > 1:
            levels = zip(*(self.part.values(name) for name in columns.labels), strict=True)
            return self._convert(levels, path_of_levels, []), every
        (name,) = columns.labels
        lists, sep = columns.lists, columns.label_sep
        if columns.numbers is not None:
            numbers = self.part.values(columns.numbers) if columns.numbers in self.part.table.column_names else None
            pairs = zip(self.part.values(name), numbers or [None] * len(every), strict=True)
            return self._convert(pairs, lambda pair: _labels(pair[0], between_numbers(pair[1]), lists), []), every
        if not self._is_text(name):
            return self._convert(self.part.values(name), lambda value: _labels(value, sep, lists), []), every
        encoded = self.part.table.column(name).combine_chunks().dictionary_encode()
        which = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        cells = [*encoded.dictionary.to_pylist(), ""]
        wrong: dict[int, str] = {}
        entries = _convert_values(cells, lambda cell: labels_of_cell(cell, sep, lists), [], wrong)
        for row in np.flatnonzero(np.isin(which, list(wrong))).tolist():
            self.reasons.setdefault(row, wrong[int(which[row])])
        return entries, which

    def _require(self, name: str) -> bool:
        """Note the rows that do not have a column; return whether any row has it."""
        is_absent = self.part.is_absent(name)
        for row in np.flatnonzero(is_absent).tolist():
            listed = ", ".join(shorten(other, 40) for other in self.part.names_of(row)[:50])
            self.reasons.setdefault(row, f"no value for {name!r}; the row has {listed or 'nothing'}")
        return name in self.part.table.column_names

    def _is_text(self, name: str) -> bool:
        kind = self.part.table.schema.field(name).type
        return name not in self.part.mixed and (pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def _texts(self, name: str, convert: Any) -> pa.Array:
        column = self.part.table.column(name).combine_chunks()
        if self._is_text(name) or (pa.types.is_integer(column.type) and name not in self.part.mixed):
            return pc.fill_null(column.cast(pa.large_string()), text_scalar(""))
        return pa.array(self._convert(self.part.values(name), convert, ""), pa.large_string())

    def _convert(self, values: Any, convert: Any, default: Any) -> list[Any]:
        return _convert_values(values, convert, default, self.reasons)


def _convert_values(values: Any, convert: Any, default: Any, reasons: dict[int, str]) -> list[Any]:
    """Convert values one by one; note why it cannot be done, and take the default."""
    results = []
    for row, value in enumerate(values):
        try:
            results.append(convert(value))
        except ValueError as error:
            reasons.setdefault(row, str(error))
            results.append(default)
    return results


def _labels(value: Any, sep: str | None, lists: Any) -> list[Label]:
    value = decode_text(value) if isinstance(value, bytes) else value
    return labels_of_cell(value, sep, lists) if isinstance(value, str) else labels_of_value(value, lists)


def _name(value: Any) -> str:
    return "" if value is None else str(value)
