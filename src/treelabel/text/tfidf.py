"""tf-idf of n-grams: from texts to a sparse matrix with rows of length 1."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel, over_rows
from treelabel.core.types import DoubleArray, FloatArray, IntArray, LongArray
from treelabel.text.ngrams import NgramShape, count_range, utf8
from treelabel.text.occurrences import Occurrences

Weighed = tuple[LongArray, IntArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Tfidf:
    """Weights of n-grams as learned from texts; columns are the buckets that enough texts have, most frequent first.

    A text's entry for an n-gram that it has c times is (1 + ln c) (1 + ln((1 + N) / (1 + df))), and its row is scaled
    to length 1; where kinds of n-grams have weights, the part of each kind is scaled to its weight before. Frequent
    columns stand together, so that loops over rows find most of what they need in the cache.

    >>> tfidf = Tfidf.fit(["a b", "b c"], NgramShape())
    >>> tfidf.transform(["b", "d d", ""]).toarray().round(2).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    shape: NgramShape
    buckets: IntArray
    idf: FloatArray

    @classmethod
    def fit(cls, texts: Sequence[str], shape: NgramShape, min_df: int = 1) -> "Tfidf":
        """Learn the columns and their weights from texts; see `fit_transform`.

        Parameters
        ----------
        texts
            The texts.
        shape
            The n-grams to count.
        min_df
            The number of texts that an n-gram must be in.

        Returns
        -------
        Tfidf
        """
        return cls.fit_transform(texts, shape, min_df)[0]

    @classmethod
    def fit_transform(
        cls, texts: Sequence[str], shape: NgramShape, min_df: int = 1
    ) -> "tuple[Tfidf, sparse.csr_array]":
        """Learn from texts and return their matrix, counting n-grams once.

        Parameters
        ----------
        texts : sequence of str
            Texts.
        shape : NgramShape
            Which n-grams to count.
        min_df : int
            Columns are the n-grams of at least this many texts.

        Returns
        -------
        (Tfidf, csr_array of shape (texts, columns))
            What was learned, and the rows of the texts.
        """
        return cls.learn(Occurrences.of(texts, shape), shape, min_df)

    @classmethod
    def learn(cls, found: Occurrences, shape: NgramShape, min_df: int = 1) -> "tuple[Tfidf, sparse.csr_array]":
        """Learn from texts whose n-grams have been counted, and return their matrix.

        Parameters
        ----------
        found : Occurrences
            The n-grams of the texts.
        shape : NgramShape
            The n-grams to take: those counted, or their first kinds.
        min_df : int
            Columns are the n-grams of at least this many texts.

        Returns
        -------
        (Tfidf, csr_array of shape (texts, columns))
            What was learned, and the rows of the texts.
        """
        kept = found.columns(shape, min_df)
        idf = 1 + np.log((1 + len(found.sizes)) / (1 + found.frequencies[kept]))
        made = cls(shape, found.buckets[kept], idf.astype(np.float32))
        column = np.full(len(found.buckets), -1, np.int32)
        column[kept] = np.arange(len(kept))
        ptr = np.concatenate([[0], np.cumsum(found.sizes)])

        def some(start: int, stop: int) -> Weighed:
            part = slice(ptr[start], ptr[stop])
            return made._weigh(found.sizes[start:stop], column[found.numbers[part]], found.counts[part])

        return made, made._joined(some, len(found.sizes), 256)

    def with_singles_by_text(self, rows: sparse.csr_array) -> "tuple[Tfidf, sparse.csr_array]":
        """Put the columns that only one text has in the order of texts, so that loops over rows find them side by side.

        Parameters
        ----------
        rows : csr_array of shape (texts, columns)
            The rows of the texts that were learned from. Their order of entries stays.

        Returns
        -------
        (Tfidf, csr_array of shape (texts, columns))
            The same, with these columns moved.
        """
        shared = int((np.bincount(rows.indices, minlength=self.width) > 1).sum())
        single = rows.indices >= shared
        order = np.concatenate([np.arange(shared), rows.indices[single]])
        indices = rows.indices.copy()
        indices[single] = np.arange(shared, self.width)
        made = Tfidf(self.shape, self.buckets[order], self.idf[order])
        return made, sparse.csr_array((rows.data, indices, rows.indptr), rows.shape)

    def transform(self, texts: Sequence[str]) -> sparse.csr_array:
        """Turn texts into rows; n-grams that were not learned are left out."""
        data, ptr = utf8(texts)
        # Made here, as threads would make it twice.
        slots = self.slots

        def some(start: int, stop: int) -> Weighed:
            sizes, buckets, counts = count_range(data, ptr, self.shape, start, stop)
            return self._weigh(sizes, columns_of(slots, buckets), counts)

        return self._joined(some, len(ptr) - 1, 32)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.buckets)

    @cached_property
    def slots(self) -> LongArray:
        """A table with open addressing from buckets to columns, small enough to stay in the cache."""
        return filled_slots(self.buckets)

    def place(self, bucket: int) -> int:
        """Return the column of a bucket, -1 if it has none."""
        return int(column_of(self.slots, bucket))

    def followed_by(self, more: "Tfidf") -> "Tfidf":
        """Keep these columns, and add those that only the other has."""
        new = ~np.isin(more.buckets, self.buckets)
        buckets, idf = np.concatenate([self.buckets, more.buckets[new]]), np.concatenate([self.idf, more.idf[new]])
        return Tfidf(self.shape, buckets, idf)

    def _weigh(self, sizes: LongArray, columns: IntArray, counts: IntArray) -> Weighed:
        logs = 1 + np.log(np.arange(1, counts.max(initial=1) + 1)).astype(np.float32)
        shape = self.shape
        weights = np.ones(1) if shape.weights is None else np.array(shape.weights)
        return weigh(self.buckets, self.idf, logs, weights, shape.n_features, sizes, columns, counts)

    def _joined(self, some: Callable[[int, int], Weighed], rows: int, least: int) -> sparse.csr_array:
        """Weigh parts of the rows in threads, and put them together."""
        parts = over_rows(some, rows, least=least)
        lengths, indices, values = (np.concatenate([part[which] for part in parts]) for which in range(3))
        row_ptr = np.concatenate([[0], np.cumsum(lengths)])
        if row_ptr[-1] < 1 << 31:
            row_ptr = row_ptr.astype(np.int32)
        return sparse.csr_array((values, indices, row_ptr), (rows, self.width))

    def arrays(self) -> dict[str, Any]:
        """Return what was learned, as arrays to save."""
        return {"buckets": self.buckets, "idf": self.idf}


@kernel
def filled_slots(buckets: IntArray) -> LongArray:
    """Fill the table: bucket x 2^32 + column at the slot of its lower bits or the next free one; -1 where empty."""
    size = 64
    while size < 3 * len(buckets):
        size *= 2
    slots = np.full(size, -1, np.int64)
    for column in range(len(buckets)):
        slot = buckets[column] & (size - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        slots[slot] = np.int64(buckets[column]) << 32 | column
    return slots


@kernel
def column_of(slots: LongArray, bucket: int) -> np.int64:
    """Find the column of a bucket, or -1."""
    mask = len(slots) - 1
    slot = bucket & mask
    while slots[slot] >= 0:
        if slots[slot] >> 32 == bucket:
            return np.int64(slots[slot] & 0xFFFFFFFF)
        slot = (slot + 1) & mask
    return np.int64(-1)


@kernel
def columns_of(slots: LongArray, buckets: IntArray) -> IntArray:
    """Find the columns of buckets, -1 where there is none."""
    found = np.empty(len(buckets), np.int32)
    for at in range(len(buckets)):
        found[at] = column_of(slots, buckets[at])
    return found


@kernel
def sort_row(indices: IntArray, values: FloatArray, width: int) -> None:
    """Sort a row by its indices, which are below `width`: a long one by a byte at a time, from the last one on."""
    count = len(indices)
    if count > 64:
        keys, carried = np.empty(count, np.int32), np.empty(count, np.float32)
        starts, shift = np.empty(257, np.int64), 0
        while width > 1 << shift:
            starts[:] = 0
            for at in range(count):
                starts[(indices[at] >> shift & 255) + 1] += 1
            for digit in range(256):
                starts[digit + 1] += starts[digit]
            for at in range(count):
                digit = indices[at] >> shift & 255
                keys[starts[digit]], carried[starts[digit]] = indices[at], values[at]
                starts[digit] += 1
            for at in range(count):
                indices[at], values[at] = keys[at], carried[at]
            shift += 8
        return
    for at in range(1, count):
        index, value, place = indices[at], values[at], at
        while place > 0 and indices[place - 1] > index:
            indices[place], values[place] = indices[place - 1], values[place - 1]
            place -= 1
        indices[place], values[place] = index, value


@kernel
def weigh(
    buckets: IntArray,
    idf: FloatArray,
    logs: FloatArray,
    weights: DoubleArray,
    n_features: int,
    sizes: LongArray,
    columns: IntArray,
    counts: IntArray,
) -> tuple[LongArray, IntArray, FloatArray]:
    """Turn the counts by column of each row into weights, sorted, in rows of length 1; a column of -1 is left out.

    The part of each kind of n-grams has the length of its weight before; there is one kind for each `n_features`
    of the buckets, which are given for each column.
    """
    lengths = np.zeros(len(sizes), np.int64)
    indices, values = np.empty(len(columns), np.int32), np.empty(len(columns), np.float32)
    kinds, squares = len(weights), np.zeros(len(weights))
    kind_of, scales = np.zeros(len(columns), np.int8), np.zeros(len(weights), np.float32)
    used, at = 0, 0
    for row in range(len(sizes)):
        first = used
        squares[:] = 0.0
        for _ in range(sizes[row]):
            place = columns[at]
            if place >= 0:
                value = logs[counts[at] - 1] * idf[place]
                kind = buckets[place] // n_features if kinds > 1 else 0
                squares[kind] += value * value
                indices[used], values[used], kind_of[used] = place, value, kind
                used += 1
            at += 1
        total = 0.0
        for kind in range(kinds):
            total += weights[kind] ** 2 if squares[kind] > 0 else 0.0
        for kind in range(kinds):
            scales[kind] = weights[kind] / np.sqrt(squares[kind] * total) if squares[kind] > 0 else 0.0
        for entry in range(first, used):
            values[entry] *= scales[kind_of[entry]]
        sort_row(indices[first:used], values[first:used], len(idf))
        lengths[row] = used - first
    return lengths, indices[:used], values[:used]
