"""Common to all formats: rows that come in, documents that go out, and the options of both."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from treelabel.core.inputs import UndecodableLine
from treelabel.core.limits import DEFAULT_LIMITS, Limits
from treelabel.core.types import FloatArray, IntArray
from treelabel.data.dataset import Dataset
from treelabel.hierarchy import Hierarchy, LabelMatrix

BATCH = 8192


class Record(NamedTuple):
    """One record: the line (or row number) it stands on, its values by column, and numeric features if it has them."""

    line: int
    values: dict[str, Any]
    features: tuple[IntArray, FloatArray] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that cannot be used, and why; reading goes on behind it. Sometimes it takes further lines with it."""

    line: int
    message: str
    lines: int = 1


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading that depend on the format. `seen` is told how many bytes have been read."""

    encoding: str = "utf-8"
    delimiter: str | None = None
    header: bool = True
    quotes: bool = True
    seen: Callable[[int], None] | None = None
    limits: Limits = DEFAULT_LIMITS
    sheet: str | None = None


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


@dataclass(frozen=True)
class RowSource:
    """The rows of a file, with the hierarchy and the number of features if the file itself says them.

    `choices` tells people what the reader had to choose, once all rows are read.
    """

    rows: Iterator[Record | Problem]
    hierarchy: Hierarchy | None = None
    features: int | None = None
    choices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """One document on its way out, labels already as text."""

    id: str
    text: str
    labels: list[str]
    extra: dict[str, Any]


@dataclass(frozen=True)
class Output:
    """A file to write: the target, the data, how labels become text, and the names of the columns."""

    path: Path
    data: Dataset
    label_texts: Callable[[LabelMatrix], list[list[str]]]
    text: str = "text"
    labels: str = "labels"
    id: str = "id"
    delimiter: str | None = None
    escape_formulas: bool = False

    def documents(self) -> Iterator[Document]:
        """Yield the documents one by one, never holding more than a batch of them as Python objects."""
        for part in self.data.batches(BATCH):
            columns = {name: column.to_pylist() for name, column in part.extra.items()}
            rows = zip(part.ids, part.texts, self.label_texts(part.labels), strict=True)
            for at, (name, text, labels) in enumerate(rows):
                yield Document(name, text, labels, {column: values[at] for column, values in columns.items()})


@dataclass(frozen=True)
class Format:
    """A file format: its endings, how to read and write it, and what of a document it holds."""

    name: str
    endings: tuple[str, ...]
    read: Callable[[Path, ReadOptions], RowSource]
    write: Callable[[Output], None]
    help: str
    holds: frozenset[str]
