"""Distinct n-grams of texts, numbered as they first occur, so that all that follows looks them up by small numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treelabel.core.compute import kernel, with_room
from treelabel.core.types import IntArray, LongArray
from treelabel.text.ngrams import NgramShape, count_ngrams


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
        numbers, buckets = number_buckets(listed)
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


@kernel
def number_buckets(listed: IntArray) -> tuple[IntArray, IntArray]:
    """Number buckets in the order in which they first occur; return the number of each entry, and all buckets."""
    numbers, buckets = np.empty(len(listed), np.int32), np.empty(1024, np.int32)
    # A table with open addressing, never more than half full: bucket x 2^32 + number, -1 where empty.
    slots = np.full(4096, -1, np.int64)
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
    return numbers, buckets[:distinct]


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
