"""Common to all formats: what is read (Arrow tables with the lines of their rows), what is written, and the options."""

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse

from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.inputs import STANDARD, UndecodableLine, suffixes
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.matrices import checked_csr
from treelabel.core.types import BoolArray, FloatArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy

BATCH = 8192
# Of a pipe, whose writer may wait for an answer, the first batch is one row; batches grow by this factor.
GROWTH = 4
# Arrow's own allocator never gives back what arrays needed while they grew, nearly as much again as they hold.
POOL = pa.system_memory_pool()


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that cannot be read, and why; it may take further lines with it."""

    line: int
    message: str
    lines: int = 1


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading that depend on the format.

    `seen` gets the number of bytes read so far. `select` gets the names of all columns and returns those to read; a
    format that cannot leave out columns ignores it.
    """

    encoding: str = "utf-8"
    delimiter: str | None = None
    header: bool = True
    quotes: bool = True
    seen: Callable[[int], None] | None = None
    limits: Limits = DEFAULT_LIMITS
    sheet: str | None = None
    select: Callable[[Sequence[str]], Collection[str]] | None = None


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a file: columns of any types, the line (or row number) of each, and rows that are unreadable.

    `absent` marks the rows that do not have a column at all, as JSON objects may. `mixed` has the values of columns
    whose values share no type, and which are JSON text in the table.
    """

    table: pa.Table
    lines: LongArray
    problems: Sequence[Problem] = ()
    absent: Mapping[str, BoolArray] = field(default_factory=dict)
    mixed: Mapping[str, list[Any]] = field(default_factory=dict)
    features: sparse.csr_array | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def values(self, name: str) -> list[Any]:
        """Return the values of a column as Python objects."""
        values: list[Any] = self.mixed.get(name) or self.table.column(name).to_pylist()
        return values

    def names_of(self, row: int) -> list[str]:
        """Return the columns that a row has."""
        return [name for name in self.table.column_names if name not in self.absent or not self.absent[name][row]]

    def is_absent(self, name: str) -> BoolArray:
        """Mark the rows without a column."""
        if name not in self.table.column_names:
            return np.ones(len(self), np.bool_)
        return self.absent.get(name, np.zeros(len(self), np.bool_))


@dataclass(frozen=True)
class TableSource:
    """The rows of a file, with the hierarchy and the number of features if the file itself has them.

    `choices` says for people what the reader had to choose, once all rows are read.
    """

    parts: Iterator[Part]
    hierarchy: Hierarchy | None = None
    features: int | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    # Of several files, the number of the line before the first of each: see `locate`.
    files: Sequence[tuple[int, Path]] = ()

    def locate(self, line: int, path: Path) -> str:
        """Say where a line stands: in the file itself, or in which of several, whose lines are numbered through.

        >>> TableSource(iter(()), files=[(0, Path("a.csv")), (7, Path("b.csv"))]).locate(9, Path("*.csv"))
        'b.csv:2'
        """
        index = bisect_left(self.files, line, key=lambda pair: pair[0]) - 1
        if index < 0:
            return f"{path}:{line}"
        before, file = self.files[index]
        return f"{file}:{line - before}"


@dataclass(frozen=True)
class WriteOptions:
    """Options of writing that depend on the format.

    `text` and `labels` name columns, of a text and of lists of labels. `escape` makes cells that a spreadsheet would
    run harmless, and `mark` adds a column that counts them (see `cells`), where it is None if the first table has any.
    `hierarchy` and `features` are those of all documents, for formats that hold them. `resumed` leaves out what stands
    only at the beginning of a file. `agent` says who suggests the labels, where they are no truth but predictions with
    a column `scores`. `label_texts` are all labels, as they are written.
    """

    text: str = "text"
    labels: Sequence[str] = ()
    escape: bool = False
    mark: bool | None = False
    hierarchy: Hierarchy | None = None
    features: sparse.csr_array | None = None
    sheet: str = "data"
    resumed: bool = False
    agent: str | None = None
    label_texts: Sequence[str] = ()


@dataclass
class TableEncoder:
    """Turns tables into bytes that make a file, one behind the other; `escaped` counts the cells escaped so far."""

    options: WriteOptions
    escaped: int = 0

    def encode(self, table: pa.Table) -> bytes:
        """Return the bytes of a table."""
        raise NotImplementedError


@dataclass(frozen=True)
class Format:
    """A file format: its endings, how to read and write it, and what of a document it holds.

    A format whose files can grow at their end has an `encoder`; others have `write`, which needs all tables. Where a
    format has several forms, `lacks` says what that of an ending does not hold.
    """

    name: str
    endings: tuple[str, ...]
    read: Callable[[Path, ReadOptions], TableSource]
    help: str
    holds: frozenset[str]
    encoder: Callable[[WriteOptions], TableEncoder] | None = None
    write: Callable[[Path, Iterable[pa.Table], WriteOptions], None] | None = None
    # The extra to install, and its module, if the format needs one.
    extra: tuple[str, str] | None = None
    # How the first line of a file begins, where that tells the format: a regular expression.
    begins: str | None = None
    # Endings that it shares with other formats, and whether a file that begins like this is of this one.
    shared: tuple[str, ...] = ()
    recognizes: "Callable[[Head], bool] | None" = None
    lacks: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def ending(self) -> str:
        """The usual ending of its files, empty for a folder."""
        return self.endings[0] if self.endings else ""

    def held_in(self, path: Path) -> frozenset[str]:
        """Return what a file of the format holds."""
        return self.holds - self.lacks.get(suffixes(path)[0], frozenset())

    def require_extra(self) -> None:
        """Refuse to write a format whose module is not installed."""
        if self.extra is not None:
            with require_extra(self.extra[0], f"writing {self.endings[0]}"):
                import_module(self.extra[1])


class Head(NamedTuple):
    """The beginning of a file: its first line, and its first object if it holds JSON."""

    line: str
    values: dict[str, Any] | None

    @classmethod
    def of(cls, text: str) -> "Head":
        """Take the first line and the first object off the beginning of a text.

        >>> Head.of('[\\n {"text": "a"}, {"te')
        Head(line='[', values={'text': 'a'})
        """
        text = text.removeprefix("\ufeff").lstrip()
        line = text.partition("\n")[0].rstrip("\r")
        start = text[1:].lstrip() if text[:1] == "[" else text
        try:
            values = json.JSONDecoder().raw_decode(start)[0] if start[:1] == "{" else None
        except (ValueError, RecursionError):
            values = None
        return cls(line, values if isinstance(values, dict) else None)


# Formats that are read record by record


class Record(NamedTuple):
    """One row: its line (or row number), its values by column, and numeric features if it has them."""

    line: int
    values: dict[str, Any]
    features: tuple[IntArray, FloatArray] | None = None


def parsed_lines(lines: Iterable[str], parse: Callable[[int, str], Record | Problem]) -> Iterator[Record | Problem]:
    """Parse the lines of a file with one document per line; blank ones are passed over.

    Parameters
    ----------
    lines : iterable of str
        From `text_lines`.
    parse : callable
        Gets the number of a line, from 1 on, and the line.

    Yields
    ------
    Record or Problem
        One for each line that is not blank.

    >>> list(parsed_lines(["a", " "], lambda number, line: Record(number, {"text": line})))
    [Record(line=1, values={'text': 'a'}, features=None)]
    """
    for number, line in enumerate(lines, 1):
        if isinstance(line, UndecodableLine):
            yield Problem(number, line)
        elif line.strip():
            yield parse(number, line)


def converted_records(
    records: Iterable[Record | Problem], convert: Callable[[dict[str, Any]], dict[str, Any]]
) -> Iterator[Record | Problem]:
    """Convert the values of records; what cannot be converted (ValueError) is a problem of its row.

    >>> list(converted_records([Record(7, {"a": "x"})], lambda values: {"a": int(values["a"])}))
    [Problem(line=7, message="invalid literal for int() with base 10: 'x'", lines=1)]
    """
    for record in records:
        if isinstance(record, Problem):
            yield record
            continue
        try:
            yield record._replace(values=convert(record.values))
        except ValueError as error:
            yield Problem(record.line, str(error))


def batch_sizes(size: int, first: int | None = None) -> Iterator[int]:
    """Yield the sizes of batches: the first (by default as large as all), then ever larger ones up to `size`.

    >>> list(islice(batch_sizes(100, 10), 5))
    [10, 40, 100, 100, 100]
    """
    now = size if first is None else min(first, size)
    while True:
        yield now
        now = min(size, now * GROWTH)


def parts_of(
    records: Iterator[Record | Problem], path: Path, limits: Limits, features: int | None = None
) -> Iterator[Part]:
    """Make tables of records.

    Parameters
    ----------
    records
        Rows, and problems in their place.
    path
        The file; one row at a time comes from standard input at first, as whoever types or pipes waits for an answer.
    limits
        How many columns there may be: each field of an object becomes a column of all rows.
    features
        The number of features, if records have any.

    Yields
    ------
    Part
    """
    columns: set[str] = set()
    for size in batch_sizes(BATCH, 1 if path == STANDARD else None):
        batch = list(islice(records, size))
        if not batch:
            return
        part = _part(batch, features)
        columns.update(part.table.column_names)
        if limits.exceeds("columns", len(columns)):
            raise TreelabelError(
                f"line {part.lines[-1]:,}: {len(columns):,} different columns so far; {limits.hint('columns')}"
            )
        yield part


def _part(batch: Sequence[Record | Problem], features: int | None) -> Part:
    records = [each for each in batch if isinstance(each, Record)]
    problems = [each for each in batch if isinstance(each, Problem)]
    names = list(dict.fromkeys(chain.from_iterable(record.values for record in records)))
    is_regular = all(len(record.values) == len(names) for record in records)
    columns, mixed, absent = dict[str, pa.Array](), dict[str, list[Any]](), dict[str, BoolArray]()
    for name in names:
        values = [record.values.get(name) for record in records]
        try:
            columns[name] = pa.array(values, memory_pool=POOL)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            columns[name], mixed[name] = json_column(values), values
        if not is_regular:
            absent[name] = np.array([name not in record.values for record in records], np.bool_)
    lines = np.array([record.line for record in records], np.int64)
    matrix = None if features is None else _feature_matrix(records, features)
    return Part(pa.table(columns), lines, problems, absent, mixed, matrix)


def json_column(values: Iterable[Any]) -> pa.Array:
    """Write values as texts: a text as it is, None as null, anything else as JSON."""
    texts = [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for value in values
    ]
    return pa.array(texts, pa.large_string(), memory_pool=POOL)


def _feature_matrix(records: Sequence[Record], columns: int) -> sparse.csr_array:
    rows = [record.features for record in records if record.features is not None]
    ptr = np.concatenate([[0], np.cumsum([len(indices) for indices, _ in rows], dtype=np.int64)])
    indices = np.concatenate([indices for indices, _ in rows] or [np.empty(0, np.int32)])
    values = np.concatenate([values for _, values in rows] or [np.empty(0, np.float32)])
    matrix = checked_csr((values, indices, ptr), (len(rows), columns), "features")
    matrix.sum_duplicates()
    return matrix
