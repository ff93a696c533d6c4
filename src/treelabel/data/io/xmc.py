"""The sparse text format of the extreme classification repository: numbered labels and features, no texts.

The first line says `documents features labels`; then one line per document, `label,label feature:value feature:value`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy import sparse

from treelabel.core.atomic_output import open_output
from treelabel.core.errors import TreelabelError, quote
from treelabel.core.inputs import UndecodableLine, open_input, text_lines
from treelabel.core.limits import Limits
from treelabel.core.types import FloatArray, IntArray
from treelabel.data.io.format import Problem, ReadOptions, Record, TableSource, WriteOptions, parts_of
from treelabel.hierarchy.hierarchy import Hierarchy

# Nodes and features are numbered in 32 bits.
LARGEST = 2**31 - 1
LARGEST_VALUE = float(np.finfo(np.float32).max)


def read_xmc(path: Path, options: ReadOptions) -> TableSource:
    """Read numbered labels into a flat hierarchy named "0", "1", ..., and features into a sparse matrix."""
    with open_input(path, limits=options.limits) as stream:
        header = next(text_lines(stream, path, options.encoding, options.limits), "")
    count, features, labels = _sizes(header, path, options.limits)
    hierarchy = Hierarchy.flat([str(label) for label in range(labels)])
    records = _records(path, options, count, features, labels)
    return TableSource(parts_of(records, path, options.limits, features), hierarchy, features)


def _sizes(header: str, path: Path, limits: Limits) -> tuple[int, int, int]:
    """Read the numbers of documents, features and labels, refusing those that no array could have."""
    sizes = header.split()
    if len(sizes) != 3 or not all(size.isdecimal() and len(size) <= 18 for size in sizes):
        raise TreelabelError(
            f"{path}:1: expected 'documents features labels', three numbers, found {quote(header.strip())}"
        )
    count, features, labels = map(int, sizes)
    for what, size in (("features", features), ("labels", labels)):
        if size > LARGEST:
            raise TreelabelError(f"{path}:1: the header promises {size:,} {what}; at most {LARGEST:,} can be read")
    if limits.exceeds("labels", labels):
        raise TreelabelError(f"{path}:1: the header promises {labels:,} labels; {limits.hint('labels')}")
    return count, features, labels


def _records(path: Path, options: ReadOptions, count: int, features: int, labels: int) -> Iterator[Record | Problem]:
    number = 1
    with open_input(path, options.seen, options.limits) as stream:
        lines = text_lines(stream, path, options.encoding, options.limits)
        next(lines)
        for number, line in enumerate(lines, 2):
            if isinstance(line, UndecodableLine):
                yield Problem(number, line)
                continue
            try:
                names, pairs = parse_line(line, features, labels)
                yield Record(number, {"text": "", "labels": names}, pairs)
            except ValueError as error:
                yield Problem(number, str(error))
    if number - 1 != count:
        raise TreelabelError(
            f"{path}:1: the header promises {count:,} documents, the file has {number - 1:,}; is it cut short?"
        )


def parse_line(line: str, features: int, labels: int) -> tuple[list[str], tuple[IntArray, FloatArray]]:
    """Read the labels and the features of one document.

    Parameters
    ----------
    line
        The line of the document.
    features
        The number of features; larger numbers are refused.
    labels
        The number of labels; larger numbers are refused.

    Returns
    -------
    (list of str, (array, array))
        The labels, and the numbers and values of the features.

    >>> parse_line("0,3 1:0.5 7:2", 10, 4)
    (['0', '3'], (array([1, 7], dtype=int32), array([0.5, 2. ], dtype=float32)))
    """
    head, *pairs = line.rstrip("\r\n").split(" ")
    if ":" in head:
        head, pairs = "", [head, *pairs]
    names = head.split(",") if head else []
    wrong = next((label for label in names if not label.isdecimal() or int(label) >= labels), None)
    if wrong is not None:
        raise ValueError(f"label {quote(wrong)} is not a number from 0 to {labels - 1}")
    split = [pair.split(":") for pair in pairs if pair]
    bad = next((pair for pair in split if len(pair) != 2 or not pair[0].isdecimal() or int(pair[0]) >= features), None)
    if bad is not None:
        raise ValueError(f"feature {quote(':'.join(bad))} is not 'number:value' with a number from 0 to {features - 1}")
    values = np.array([feature_value(pair) for pair in split], np.float32)
    return names, (np.array([int(pair[0]) for pair in split], np.int32), values)


def feature_value(pair: list[str]) -> float:
    """Read the value of a feature, which single precision must hold."""
    try:
        value = float(pair[1])
    except ValueError:
        raise ValueError(f"the value of feature {quote(':'.join(pair))} is not a number") from None
    if not abs(value) <= LARGEST_VALUE:
        raise ValueError(f"the value of feature {quote(':'.join(pair))} is not a finite number of single precision")
    return value


def write_xmc(path: Path, tables: Iterable[pa.Table], options: WriteOptions) -> None:
    """Write labels, which are numbers, and features; needs a dataset with features."""
    if options.features is None or options.hierarchy is None:
        raise TreelabelError(f"{path}: this format holds numeric features, and the data has only texts; use another")
    documents, features = options.features.shape
    start = 0
    with open_output(path) as stream:
        stream.write(f"{documents} {features} {len(options.hierarchy)}\n".encode())
        for table in tables:
            labels = table.column(options.labels[0]).to_pylist()
            stream.write(feature_lines(labels, options.features[start : start + len(labels)]))
            start += len(labels)


def feature_lines(labels: list[list[str]], features: sparse.csr_array, first: int = 0) -> bytes:
    """Write a line per document, with features numbered from `first` on."""
    lines = []
    for row, numbers in enumerate(labels):
        entries = slice(features.indptr[row], features.indptr[row + 1])
        pairs = zip(features.indices[entries], features.data[entries], strict=True)
        lines.append(" ".join([",".join(numbers), *(f"{feature + first}:{value:.9g}" for feature, value in pairs)]))
    return "".join(f"{line}\n" for line in lines).encode()
