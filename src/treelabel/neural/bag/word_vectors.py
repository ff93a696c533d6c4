"""Pretrained word vectors as text: a word and its numbers on each line, with or without a first line of sizes."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.inputs import PIECE, existing_file, open_input
from treelabel.core.types import FloatArray, IntArray
from treelabel.text.ngrams import NgramShape, count_ngrams
from treelabel.text.tfidf import Tfidf

BATCH = 10_000


class VectorLine(NamedTuple):
    """One line: its number, its word, and its numbers as text."""

    number: int
    word: str
    numbers: list[bytes]


def read_vectors(path: str | Path, tfidf: Tfidf) -> tuple[IntArray, FloatArray]:
    """Read the vectors of the words that are columns of a Tfidf.

    Words are looked up as texts are read: in lower case, and by bucket. Of lines for the same word the first counts.
    Other words' numbers are counted, but not parsed.

    Parameters
    ----------
    path
        A text file: a word and its numbers on each line, with or without a first line of sizes.
    tfidf
        The words to look for.

    Returns
    -------
    tuple[IntArray, FloatArray]
        The columns of words in the file, and their vectors, columns x vector size.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".vec") as file:
    ...     _ = file.write("2 3\\ncat 1 2 3\\ndog 4 5 6\\n")
    ...     file.flush()
    ...     read_vectors(file.name, Tfidf.fit(["the dog"], NgramShape()))[1].tolist()
    [[4.0, 5.0, 6.0]]
    """
    file = existing_file(path)
    vectors: dict[int, FloatArray] = {}
    lines = _lines(file)
    while batch := list(islice(lines, BATCH)):
        counted = count_ngrams([line.word for line in batch], NgramShape(n_features=tfidf.shape.n_features))
        first = np.cumsum(counted.sizes) - counted.sizes
        for index in np.flatnonzero(counted.sizes == 1).tolist():
            column = tfidf.column_of(int(counted.buckets[first[index]]))
            if column >= 0 and column not in vectors:
                vectors[column] = _numbers(batch[index], file)
    if not vectors:
        raise TreelabelError(f"{file}: has no word of the training texts")
    return np.array(list(vectors), np.int32), np.array(list(vectors.values()), np.float32)


def _lines(file: Path) -> Iterator[VectorLine]:
    """Read lines, each with as many numbers as the first."""
    size = 0
    with open_input(file) as stream:
        # Pieces bound what a file without line ends takes; no vector is as long as one.
        for number, line in enumerate(iter(partial(stream.readline, PIECE), b""), 1):
            fields = line.split()
            if number == 1 and b"\0" in line:
                raise TreelabelError(f"{file}:1: a binary file, expected word vectors as text (.vec)")
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                size = int(fields[1])
                continue
            size = size or len(fields) - 1
            # A word may have spaces inside, as in some published vectors.
            if size < 1 or len(fields) < size + 1:
                expected = f"a word and {size} numbers" if size > 0 else "a word and its numbers"
                raise TreelabelError(f"{file}:{number}: expected {expected}, found {len(fields)} fields")
            word = b" ".join(fields[:-size]).decode("utf-8", "replace")
            yield VectorLine(number, word, fields[-size:])


def _numbers(line: VectorLine, file: Path) -> FloatArray:
    try:
        vector = np.array(line.numbers, np.float32)
    except ValueError:
        raise TreelabelError(
            f"{file}:{line.number}: the vector of {line.word!r} has a value that is no number"
        ) from None
    if not np.isfinite(vector).all():
        raise TreelabelError(f"{file}:{line.number}: the vector of {line.word!r} is not finite")
    return vector
