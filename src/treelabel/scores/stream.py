"""Read score files some documents at a time: memory does not grow with the documents."""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from treelabel.core.errors import TreelabelError, locate_errors
from treelabel.core.inputs import existing_file
from treelabel.core.matrices import checked_csr
from treelabel.core.npz import Npz, one_sentence, open_npz
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.scores.score_files import (
    NPZ,
    WHAT,
    check_shapes,
    load_scores,
    npz_hierarchy,
    open_parquet,
    parquet_hierarchy,
    parquet_rows,
    score_ending,
)
from treelabel.scores.score_matrix import Scores

# Numbers of a batch that are held at a time, unless a size is given.
BATCH_SCORES = 1 << 22
CHUNK = 1 << 20
# A text of a JSON list with what stands before it.
_TEXT = re.compile(r'\s*([\[,])\s*("(?:[^"\\]|\\.)*")', re.DOTALL)
_END = re.compile(r"\s*(\[\s*)?\]\s*\Z")


class ScoreFile:
    """A score file: its hierarchy is read at once, its scores as often as asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = existing_file(path)
        self._is_npz = score_ending(self.path) == NPZ
        with one_sentence(self.path, WHAT), locate_errors(self.path):
            self.hierarchy = self._hierarchy()

    def _hierarchy(self) -> Hierarchy:
        if not self._is_npz:
            return parquet_hierarchy(open_parquet(self.path), self.path)
        with open_npz(self.path, WHAT) as stored:
            return npz_hierarchy(stored, self.path)

    def batches(self, size: int | None = None) -> Iterator[Scores]:
        """Read the scores once.

        Parameters
        ----------
        size : int, optional
            Documents of a batch at most; by default as many as have some four million scores.

        Yields
        ------
        Scores
        """
        count = max(1, BATCH_SCORES // max(1, len(self.hierarchy))) if size is None else size
        with one_sentence(self.path, WHAT), locate_errors(self.path):
            yield from self._npz(count) if self._is_npz else self._parquet(count)

    def _npz(self, size: int) -> Iterator[Scores]:
        with open_npz(self.path, WHAT) as stored, ExitStack() as streams:
            check_shapes(stored.headers, len(self.hierarchy), None, self.path)
            if "values" in stored and stored.headers["values"].is_fortran:
                # Columns first: no row is whole before the end.
                whole = Scores(*load_scores(self.path))
                yield from (whole[start : start + size] for start in range(0, len(whole), size))
                return
            ids = _ids(streams.enter_context(stored.open_array("ids")))
            read = _dense if "values" in stored else _sparse
            for values in read(stored, streams, len(self.hierarchy), size):
                yield Scores(self.hierarchy, values, None if ids is None else tuple(islice(ids, values.shape[0])))
            if ids is not None and next(ids, None) is not None:
                raise TreelabelError("damaged: more ids than documents")

    def _parquet(self, size: int) -> Iterator[Scores]:
        stored = open_parquet(self.path)
        has_ids = not stored.schema_arrow.field("id").nullable
        # Arrow holds on to what it has read of a file until a reading of row groups is over.
        for group in range(stored.metadata.num_row_groups):
            for batch in stored.iter_batches(batch_size=size, row_groups=[group]):
                ids, values = parquet_rows(batch, len(self.hierarchy), self.path)
                yield Scores(self.hierarchy, values, tuple(ids) if has_ids else None)


def _reader(stored: Npz, streams: ExitStack, name: str) -> Callable[[int], Any]:
    """Return what reads the next numbers of an array."""
    stream, dtype = streams.enter_context(stored.open_array(name)), stored.headers[name].dtype
    return lambda count: np.frombuffer(stream.read(count * dtype.itemsize), dtype)


def _dense(stored: Npz, streams: ExitStack, columns: int, size: int) -> Iterator[Any]:
    """Read rows of all scores."""
    read, documents = _reader(stored, streams, "values"), stored.headers["values"].shape[0]
    for start in range(0, documents, size):
        count = min(size, documents - start)
        yield read(count * columns).reshape(count, columns)


def _sparse(stored: Npz, streams: ExitStack, columns: int, size: int) -> Iterator[Any]:
    """Read rows of the scores that are stored."""
    pointers, nodes, values = (_reader(stored, streams, name) for name in ("indptr", "indices", "data"))
    documents, left = stored.headers["indptr"].shape[0] - 1, stored.headers["data"].shape[0]
    ptr = pointers(1).astype(np.int64)
    for start in range(0, documents, size):
        count = min(size, documents - start)
        ptr = np.concatenate([ptr[-1:], pointers(count).astype(np.int64)])
        entries = int(ptr[-1] - ptr[0])
        if ptr[0] + left != stored.headers["data"].shape[0] or not 0 <= entries <= left:
            raise TreelabelError(f"damaged: rows {start:,} to {start + count:,} have {entries:,} of {left:,} scores")
        left -= entries
        yield checked_csr((values(entries), nodes(entries), ptr - ptr[0]), (count, columns), "scores")
    if left:
        raise TreelabelError(f"damaged: {left:,} scores belong to no document")


def _ids(stream: IO[bytes]) -> Iterator[str] | None:
    """Read stored ids one by one, or None where there are none."""
    # The header of the array has been read; what follows is JSON.
    first = stream.read(4)
    return None if first == b"null" else _texts(stream, first)


def _texts(stream: IO[bytes], first: bytes) -> Iterator[str]:
    """Parse a JSON list of texts without holding more than a piece of it."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    held, offset, is_first, is_over = decoder.decode(first), 0, True, False
    while True:
        match = _TEXT.match(held, offset)
        if match is not None and (match[1] == "[") == is_first:
            yield json.loads(match[2])
            offset, is_first = match.end(), False
        elif not is_over:
            piece = stream.read(CHUNK)
            is_over = not piece
            held, offset = held[offset:] + decoder.decode(piece, final=is_over), 0
        elif _END.match(held, offset):
            return
        else:
            raise ValueError("ids are no list of texts")
