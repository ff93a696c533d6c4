"""LibSVM's and SVMlight's sparse text: a line is `label,label feature:value feature:value`, without texts or a header.

Features are numbered from 1 on, as LibSVM has it, unless there is a feature 0. Comments behind # are passed over.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import open_input, text_lines
from treelabel.data.io.format import (
    Head,
    Problem,
    ReadOptions,
    Record,
    TableSource,
    WriteOptions,
    parsed_lines,
    parts_of,
)
from treelabel.data.io.xmc import LARGEST, feature_lines, feature_value


def is_libsvm(head: Head) -> bool:
    """Return whether a first line has features, and is not the header of XMC."""
    return any(":" in cell for cell in head.line.partition("#")[0].split()[:3])


def read_libsvm(path: Path, options: ReadOptions) -> TableSource:
    """Read labels, which are numbers, and features; in two passes, as only the end tells how many there are."""
    lowest, highest = 1, 0
    for record in _records(path, options, None):
        if isinstance(record, Record) and record.features is not None and len(record.features[0]):
            lowest, highest = min(lowest, record.features[0].min()), max(highest, record.features[0].max())
    size = int(highest) - int(lowest) + 1
    return TableSource(parts_of(_shifted(path, options, int(lowest)), path, options.limits, size), features=size)


def _shifted(path: Path, options: ReadOptions, lowest: int) -> Iterator[Record | Problem]:
    """Number features from 0 on."""
    for record in _records(path, options, options.seen):
        if isinstance(record, Record) and record.features is not None:
            numbers, values = record.features
            record = record._replace(features=(numbers - np.int32(lowest), values))
        yield record


def _records(path: Path, options: ReadOptions, seen: Callable[[int], None] | None) -> Iterator[Record | Problem]:
    with open_input(path, seen, options.limits) as stream:
        lines = text_lines(stream, path, options.encoding, options.limits)
        yield from (each for each in parsed_lines(lines, parse_line) if each != NOTHING)


NOTHING = Problem(0, "a line of a comment alone")


def parse_line(number: int, line: str) -> Record | Problem:
    """Read the labels and the features of one document.

    >>> record = parse_line(1, "1,3 qid:7 2:0.5 # note")
    >>> record.values["labels"], record.features
    (['1', '3'], (array([2], dtype=int32), array([0.5], dtype=float32)))
    """
    cells = line.partition("#")[0].split()
    if not cells:
        return NOTHING
    head = "" if ":" in cells[0] else cells[0]
    pairs = [cell.split(":") for cell in cells[bool(head) :] if not cell.startswith("qid:")]
    bad = next((pair for pair in pairs if len(pair) != 2 or not pair[0].isdecimal() or int(pair[0]) >= LARGEST), None)
    if bad is not None:
        return Problem(number, f"feature {quote(':'.join(bad))} is not 'number:value'; expected labels, then features")
    labels = [label.removeprefix("+") for label in head.split(",") if label]
    wrong = next((label for label in labels if not label.removeprefix("-").isdecimal()), None)
    if wrong is not None:
        return Problem(number, f"label {quote(wrong)} is not a number")
    try:
        values = np.array([feature_value(pair) for pair in pairs], np.float32)
    except ValueError as error:
        return Problem(number, str(error))
    return Record(number, {"text": "", "labels": labels}, (np.array([int(n) for n, _ in pairs], np.int32), values))


def write_libsvm(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write labels, which are numbers, and features from 1 on; needs a dataset with features."""
    if options.features is None:
        raise TreelabelError(f"{path}: this format holds numeric features, and the data has only texts; use another")
    start = 0
    with open_output(path) as stream:
        for table in tables:
            labels = table.column(options.labels[0]).to_pylist()
            stream.write(feature_lines(labels, options.features[start : start + len(labels)], 1))
            start += len(labels)
