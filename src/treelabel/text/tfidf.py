"""tf-idf of n-grams: from texts to a sparse matrix with rows of length 1.

The distinct n-grams of texts are numbered as they first occur, so that all that follows looks them up by small numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel, over_rows, with_room
from treelabel.core.types import BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from treelabel.text.ngrams import NgramShape, count_ngrams, count_range, utf8

WeightedRows = tuple[LongArray, IntArray, FloatArray]
# The slots of a table before it is known how many buckets there are.
FIRST_SLOTS = 4096
# What is divided by where a sum is 0.
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Occurrences:
    """The n-grams of texts: those of each text by number and count, and of each number its bucket.

    Parameters
    ----------
    shape : NgramShape
        The n-grams that were counted.
    sizes : array of shape (texts,)
        The number of distinct n-grams of each text.
    numbers, counts : arrays of shape (sum of sizes,)
        The n-grams of one text after the other, and how often the text has each.
    buckets, frequencies : arrays of shape (distinct n-grams,)
        The bucket of each, and how many texts have it.
    """

    shape: NgramShape
    sizes: LongArray
    numbers: IntArray
    counts: IntArray
    buckets: IntArray
    frequencies: LongArray

    @classmethod
    def of(cls, texts: Sequence[str], shape: NgramShape) -> "Occurrences":
        """Count the n-grams of texts.

        Parameters
        ----------
        shape
            The n-grams to count.

        Returns
        -------
        Occurrences

        >>> ngrams = Occurrences.of(["a b", "b b"], NgramShape())
        >>> ngrams.numbers.tolist(), ngrams.counts.tolist(), ngrams.frequencies.tolist()
        ([0, 1, 1], [1, 1, 2], [1, 2])
        """
        sizes, listed, counts = count_ngrams(texts, shape)
        numbers, buckets, _ = number_buckets(listed, FIRST_SLOTS)
        # Every text lists a bucket once.
        return cls(shape, sizes, numbers, counts, buckets, np.bincount(numbers, minlength=len(buckets)))

    def columns(self, shape: NgramShape, min_df: int) -> LongArray:
        """Return the numbers of the n-grams that enough texts have, most frequent first, else by bucket.

        Parameters
        ----------
        shape
            The n-grams that are wanted: those counted, or their first kinds.
        min_df
            The number of texts that an n-gram must be in.

        Returns
        -------
        array
        """
        numbers: LongArray = np.flatnonzero((self.frequencies >= min_df) & (self.buckets < shape.buckets))
        frequencies = self.frequencies[numbers]
        bits = (shape.buckets - 1).bit_length()
        return numbers[sorted_order((frequencies.max(initial=0) - frequencies) << bits | self.buckets[numbers])]


def sorted_order(keys: LongArray) -> LongArray:
    """Return the order that sorts whole numbers from 0 on, by 16 bits at a time: NumPy counts these, which is faster.

    >>> sorted_order(np.array([1 << 40, 7, 70_000])).tolist()
    [1, 2, 0]
    """
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in range(16, int(keys.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((keys[order] >> shift).astype(np.uint16), kind="stable")]
    return order


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
    def learn(cls, ngrams: Occurrences, shape: NgramShape, min_df: int = 1) -> "tuple[Tfidf, sparse.csr_array]":
        """Learn from texts whose n-grams have been counted, and return their matrix.

        Parameters
        ----------
        ngrams : Occurrences
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
        chosen = ngrams.columns(shape, min_df)
        idf = 1 + np.log((1 + len(ngrams.sizes)) / (1 + ngrams.frequencies[chosen]))
        tfidf = cls(shape, ngrams.buckets[chosen], idf.astype(np.float32))
        column = np.full(len(ngrams.buckets), -1, np.int32)
        column[chosen] = np.arange(len(chosen))
        ptr = np.concatenate([[0], np.cumsum(ngrams.sizes)])

        def weigh_range(start: int, stop: int) -> WeightedRows:
            part = slice(ptr[start], ptr[stop])
            return tfidf._weigh(ngrams.sizes[start:stop], column[ngrams.numbers[part]], ngrams.counts[part])

        return tfidf, tfidf._matrix(weigh_range, len(ngrams.sizes), 256)

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
        moved = Tfidf(self.shape, self.buckets[order], self.idf[order])
        return moved, sparse.csr_array((rows.data, indices, rows.indptr), rows.shape)

    def transform(self, texts: Sequence[str]) -> sparse.csr_array:
        """Turn texts into rows; n-grams that were not learned are left out."""
        data, ptr = utf8(texts)
        # Made here, as threads would make it twice.
        slots = self.slots

        def weigh_range(start: int, stop: int) -> WeightedRows:
            sizes, buckets, counts = count_range(data, ptr, self.shape, start, stop)
            return self._weigh(sizes, columns_of(slots, buckets), counts)

        return self._matrix(weigh_range, len(ptr) - 1, 32)

    def keep_ngrams(self, rows: sparse.csr_array, kept: BoolArray) -> sparse.csr_array:
        """Leave n-grams out of rows, as if they had not been learned; each kind of them gets its length again.

        Parameters
        ----------
        rows : csr_array of shape (texts, columns or more)
            Columns behind those of n-grams are of other features, which keep their values.
        kept : array of bool
            Which entries of the rows to keep.

        Returns
        -------
        csr_array of the same shape

        >>> tfidf, rows = Tfidf.fit_transform(["a b", "b c"], NgramShape())
        >>> tfidf.keep_ngrams(rows, tfidf.idf[rows.indices] < tfidf.idf.max()).toarray().tolist()
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
        """
        weights = np.ones(1) if self.shape.weights is None else np.array(self.shape.weights)
        kinds = len(weights)
        # Other features are of one kind more.
        kind = np.full(rows.shape[1], kinds, np.int64)
        kind[: self.width] = self.buckets // self.shape.n_features if kinds > 1 else 0
        row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))

        def squares(row: LongArray, columns: IntArray, values: FloatArray) -> DoubleArray:
            place, size = row * (kinds + 1) + kind[columns], rows.shape[0] * (kinds + 1)
            sums = np.asarray(np.bincount(place, values.astype(np.float64) ** 2, size), np.float64)
            return sums.reshape(-1, kinds + 1)

        before = squares(row, rows.indices, rows.data)
        row, columns, values = row[kept], rows.indices[kept], rows.data[kept]
        after = squares(row, columns, values)
        # Of what n-grams have in all, each kind that is left gets the share of its weight.
        shares = np.where(after[:, :kinds] > 0, weights**2, 0.0)
        shares *= (before[:, :kinds].sum(axis=1) / np.maximum(shares.sum(axis=1), TINY))[:, None]
        scales = np.ones_like(after)
        scales[:, :kinds] = np.sqrt(shares / np.maximum(after[:, :kinds], TINY))
        ptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows.shape[0]))]).astype(rows.indptr.dtype)
        values = (values * scales[row, kind[columns]]).astype(np.float32)
        return sparse.csr_array((values, columns, ptr), rows.shape)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.buckets)

    @cached_property
    def slots(self) -> LongArray:
        """A table with open addressing from buckets to columns, small enough to stay in the cache."""
        # At most a third full, so that few buckets are looked for in a second slot.
        return number_buckets(self.buckets, max(64, 1 << (3 * len(self.buckets) - 1).bit_length()))[2]

    def column_of(self, bucket: int) -> int:
        """Return the column of a bucket, -1 if it has none."""
        return int(column_of(self.slots, bucket))

    def followed_by(self, more: "Tfidf") -> "Tfidf":
        """Keep these columns, and add those that only the other has."""
        new = ~np.isin(more.buckets, self.buckets)
        buckets, idf = np.concatenate([self.buckets, more.buckets[new]]), np.concatenate([self.idf, more.idf[new]])
        return Tfidf(self.shape, buckets, idf)

    def _weigh(self, sizes: LongArray, columns: IntArray, counts: IntArray) -> WeightedRows:
        logs = 1 + np.log(np.arange(1, counts.max(initial=1) + 1)).astype(np.float32)
        shape = self.shape
        weights = np.ones(1) if shape.weights is None else np.array(shape.weights)
        return weigh(self.buckets, self.idf, logs, weights, shape.n_features, sizes, columns, counts)

    def _matrix(self, weigh_range: Callable[[int, int], WeightedRows], rows: int, least: int) -> sparse.csr_array:
        """Weigh parts of the rows in threads, and put them together."""
        parts = over_rows(weigh_range, rows, least=least)
        lengths, indices, values = (np.concatenate([part[which] for part in parts]) for which in range(3))
        row_ptr = np.concatenate([[0], np.cumsum(lengths)])
        if row_ptr[-1] < 1 << 31:
            row_ptr = row_ptr.astype(np.int32)
        return sparse.csr_array((values, indices, row_ptr), (rows, self.width))

    def arrays(self) -> dict[str, Any]:
        """Return what was learned, as arrays to save."""
        return {"buckets": self.buckets, "idf": self.idf}


@kernel
def number_buckets(listed: IntArray, size: int) -> tuple[IntArray, IntArray, LongArray]:
    """Number buckets in the order in which they first occur: the number of each entry, all buckets, and a table.

    The table has open addressing, begins with `size` slots, a power of 2, and is never more than half full: bucket x
    2^32 + number at the slot of its lower bits or the next free one; -1 where empty.
    """
    numbers, buckets = np.empty(len(listed), np.int32), np.empty(1024, np.int32)
    slots = np.full(size, -1, np.int64)
    # Of literals, numba would compile `with_room` once more.
    distinct: int = np.int64(0)  # type: ignore[assignment]
    one: int = np.int64(1)  # type: ignore[assignment]
    for entry in range(len(listed)):
        bucket = np.int64(listed[entry])
        mask = len(slots) - 1
        slot = bucket & mask
        while slots[slot] >= 0 and slots[slot] >> 32 != bucket:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            if distinct == len(buckets):
                buckets = with_room(buckets, distinct, one)
            buckets[distinct] = bucket
            slots[slot] = bucket << 32 | distinct
            distinct += 1
        numbers[entry] = slots[slot] & 0xFFFFFFFF
        if 2 * distinct > len(slots):
            slots = enlarge_table(slots)
    return numbers, buckets[:distinct], slots


@kernel
def enlarge_table(slots: LongArray) -> LongArray:
    """Make a table four times as large."""
    larger = np.full(4 * len(slots), -1, np.int64)
    mask = len(larger) - 1
    for entry in slots:
        if entry >= 0:
            slot = (entry >> 32) & mask
            while larger[slot] >= 0:
                slot = (slot + 1) & mask
            larger[slot] = entry
    return larger


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
    columns = np.empty(len(buckets), np.int32)
    for entry in range(len(buckets)):
        columns[entry] = column_of(slots, buckets[entry])
    return columns


@kernel
def sort_row(indices: IntArray, values: FloatArray, width: int) -> None:
    """Sort a row by its indices, which are below `width`: a long one by a byte at a time, from the last one on."""
    count = len(indices)
    if count > 64:
        keys, carried = np.empty(count, np.int32), np.empty(count, np.float32)
        starts, shift = np.empty(257, np.int64), 0
        while width > 1 << shift:
            starts[:] = 0
            for entry in range(count):
                starts[(indices[entry] >> shift & 255) + 1] += 1
            for digit in range(256):
                starts[digit + 1] += starts[digit]
            for entry in range(count):
                digit = indices[entry] >> shift & 255
                keys[starts[digit]], carried[starts[digit]] = indices[entry], values[entry]
                starts[digit] += 1
            for entry in range(count):
                indices[entry], values[entry] = keys[entry], carried[entry]
            shift += 8
        return
    for entry in range(1, count):
        index, value, hole = indices[entry], values[entry], entry
        while hole > 0 and indices[hole - 1] > index:
            indices[hole], values[hole] = indices[hole - 1], values[hole - 1]
            hole -= 1
        indices[hole], values[hole] = index, value


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
    of the buckets, which are listed for each column.
    """
    lengths = np.zeros(len(sizes), np.int64)
    indices, values = np.empty(len(columns), np.int32), np.empty(len(columns), np.float32)
    kinds, squares = len(weights), np.zeros(len(weights))
    kind_of, scales = np.zeros(len(columns), np.int8), np.zeros(len(weights), np.float32)
    used, position = 0, 0
    for row in range(len(sizes)):
        first = used
        squares[:] = 0.0
        for _ in range(sizes[row]):
            column = columns[position]
            if column >= 0:
                value = logs[counts[position] - 1] * idf[column]
                kind = buckets[column] // n_features if kinds > 1 else 0
                squares[kind] += value * value
                indices[used], values[used], kind_of[used] = column, value, kind
                used += 1
            position += 1
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
