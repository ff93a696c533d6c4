"""Counting n-grams: texts become hashed n-grams of words and of characters, at the speed of reading them.

Compiled loops run over the bytes of the texts, in threads. A word is a run of letters, digits and underscores; an
n-gram of characters lies within one word, with a boundary at either end (scikit-learn's "char_wb"). Scripts without
blanks between words (Chinese, Japanese, Thai, ...) form separate runs, whose n-grams of 1 to 3 characters count as
words. An n-gram is known by its hash: the upper bits choose one of `n_features` buckets, and n-grams that share one are
counted together.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treelabel.core.compute import kernel, over_rows, with_room
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import IntArray, LongArray

ByteArray = npt.NDArray[np.uint8]

BOUNDARY = 3
# Added to the code points of scripts that put no blanks between words: letters and marks of these ranges. All planes
# from 0x20000 on up to 0x3FFFF hold ideographs.
UNSPACED = 1 << 24
CODE_POINT = UNSPACED - 1
UNSPACED_SCRIPTS = (
    (0x0E00, 0x0FFF),  # Thai, Lao, Tibetan
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1B7F),  # Tai Tham, Balinese
    (0x3005, 0x30FF),  # ideographic marks and numbers, Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x31A0, 0x31FF),  # the same, extended
    (0x3400, 0x9FFF),  # Chinese characters
    (0xA980, 0xA9FF),  # Javanese, Burmese extended
    (0xAA60, 0xAADF),  # Burmese extended, Tai Viet
    (0xF900, 0xFAFF),  # Chinese characters for compatibility
    (0xFF66, 0xFF9F),  # Katakana of half width
    (0x1AFF0, 0x1B16F),  # Kana, extended
)
# N-grams of characters of these scripts that count as words have at most this length.
LONGEST_UNSPACED = 3
# No n-gram is longer: room for all n-grams of a text is made before they are counted.
LARGEST_N = 100
# Buckets are numbered in 32 bits.
MOST_FEATURES = 1 << 31
WORD_SEED = np.uint64(0x9E3779B97F4A7C15)
CHAR_SEED = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME = np.uint64(0x100000001B3)
SPREAD = np.uint64(0xFF51AFD7ED558CCD)


@dataclass(frozen=True)
class NgramShape:
    """Which n-grams are counted, and in how many buckets.

    Parameters
    ----------
    ngram_range : (int, int) or None
        The shortest and the longest n-grams of words; None for no words.
    char_ngram_range : (int, int) or None
        The shortest and the longest n-grams of characters within words; None for none.
    n_features : int
        The number of buckets that n-grams are hashed to.
    weights : sequence of float or None
        One per kind: words of each length from the shortest on, then characters. Kinds then have `n_features` buckets
        each, and the part of each kind in a row of tf-idf has this length before the row is scaled to 1, as in
        scikit-learn's FeatureUnion. None counts all kinds together, as TfidfVectorizer does.

    >>> NgramShape().ngram_range, NgramShape().n_features == 2**22
    ((1, 1), True)
    """

    ngram_range: tuple[int, int] | None = (1, 1)
    char_ngram_range: tuple[int, int] | None = None
    n_features: int = 1 << 22
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        # Compiled loops make room by these numbers, and trust them.
        for name in ("ngram_range", "char_ngram_range"):
            bounds = getattr(self, name)
            if bounds is None:
                continue
            if not isinstance(bounds, tuple | list) or len(bounds) != 2:
                raise TreelabelError(
                    f"{name} is {bounds!r}, expected the shortest and the longest length, as in (1, 2)"
                )
            _require_whole(name, bounds[1], 1, LARGEST_N)
            _require_whole(name, bounds[0], 1, LARGEST_N)
            if bounds[0] > bounds[1]:
                raise TreelabelError(
                    f"{name} of n-grams: {bounds[0]} to {bounds[1]}; expected the shortest length, then the longest"
                )
            object.__setattr__(self, name, tuple(bounds))
        _require_whole("n_features", self.n_features, 1, MOST_FEATURES // self.kinds)
        if self.weights is not None:
            if len(self.weights) != self.kinds or not all(0 < weight <= 1e3 for weight in self.weights):
                raise TreelabelError(
                    f"weights of n-grams: {self.weights!r}, expected {self.kinds} numbers above 0, one per length of "
                    "words and one of characters"
                )
            object.__setattr__(self, "weights", tuple(float(weight) for weight in self.weights))

    @property
    def kinds(self) -> int:
        """The number of kinds that are counted apart: 1 without weights."""
        return 1 if self.weights is None else len(self.parts)

    @property
    def parts(self) -> list[tuple[str, int, int]]:
        """All kinds, in the order of their buckets where they are counted apart: words of each length, characters."""
        short_words, long_words, short_chars, long_chars = self.lengths
        words = [("words", length, length) for length in range(short_words, long_words + 1)]
        return [*words, ("characters", short_chars, long_chars)] if long_chars else words

    def is_start_of(self, other: "NgramShape") -> bool:
        """Return whether these n-grams are the first kinds of others, in the same buckets.

        >>> [NgramShape().is_start_of(NgramShape((1, 2), weights=weights)) for weights in ((1.0, 0.5), None)]
        [True, False]
        """
        if self.lengths == other.lengths:
            return self.buckets == other.buckets
        apart = self.kinds == len(self.parts) and other.kinds == len(other.parts)
        return apart and self.n_features == other.n_features and self.parts == other.parts[: self.kinds]

    @property
    def buckets(self) -> int:
        """The number of buckets of all kinds."""
        return self.kinds * self.n_features

    @property
    def lengths(self) -> tuple[int, int, int, int]:
        """The ranges of words and of characters; a range of nothing is (1, 0)."""
        return (*(self.ngram_range or (1, 0)), *(self.char_ngram_range or (1, 0)))


def _require_whole(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int | np.integer) or not least <= value <= most:
        raise TreelabelError(f"{name} of n-grams: {value!r}, expected a whole number from {least} to {most:,}")


class NgramCounts(NamedTuple):
    """The buckets of each document, in the order they first occur, and how often each does."""

    sizes: LongArray
    buckets: IntArray
    counts: IntArray


def utf8(texts: Sequence[str]) -> tuple[ByteArray, LongArray]:
    """Return texts as UTF-8, copying as little as possible: those of text i are bytes[ptr[i]:ptr[i + 1]].

    >>> data, ptr = utf8(["ä", "b"])
    >>> data[ptr[0] : ptr[2]].tolist(), np.diff(ptr).tolist()
    ([195, 164, 98], [2, 1])
    """
    column = Strings.of(texts).arrow.combine_chunks()
    column = column if not hasattr(column, "chunks") else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    _, offsets, data = column.buffers()
    if len(column) == 0 or data is None:
        return np.zeros(0, np.uint8), np.zeros(len(column) + 1, np.int64)
    ptr = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, np.uint8), ptr


@cache
def character_table() -> IntArray:
    """Return for every code point of the first four planes its lower case if it belongs to words, and 0 otherwise.

    Those of scripts without blanks have UNSPACED added, and marks such as vowel signs belong to their words.
    """
    table = np.zeros(0x40000, np.int32)
    for code in range(0x20000):
        character = chr(code)
        if character.isalnum() or character == "_":
            lower = character.lower()
            table[code] = ord(lower) if len(lower) == 1 else code
    for first, last in UNSPACED_SCRIPTS:
        for code in range(first, last + 1):
            category = unicodedata.category(chr(code))
            if category[0] in "LM" or category == "Nl":
                table[code] = code + UNSPACED
    table[0x20000:] = np.arange(0x20000, len(table)) + UNSPACED
    return table


def count_ngrams(texts: Sequence[str], shape: NgramShape) -> NgramCounts:
    """Count the n-grams of each text by bucket. Linear in the characters, times the lengths of their n-grams.

    Parameters
    ----------
    shape : NgramShape
        Which n-grams to count.

    Returns
    -------
    NgramCounts
        The buckets of each text and their counts.

    >>> count_ngrams(["a b A", ""], NgramShape()).counts.tolist()
    [2, 1]
    """
    data, ptr = utf8(texts)
    parts = over_rows(lambda start, stop: count_range(data, ptr, shape, start, stop), len(ptr) - 1, least=32)
    return NgramCounts(*(np.concatenate([part[which] for part in parts]) for which in range(3)))


def count_range(data: ByteArray, ptr: LongArray, shape: NgramShape, start: int, stop: int) -> NgramCounts:
    """Count the n-grams of texts start..stop, which are UTF-8.

    Parameters
    ----------
    data
        The bytes of all texts.
    ptr
        Where texts begin in them.
    shape
        The n-grams to count.
    start, stop
        The first text, and the one after the last.

    Returns
    -------
    NgramCounts
    """
    apart = shape.weights is not None
    return NgramCounts(*count_part(data, ptr, character_table(), shape.lengths, shape.n_features, apart, start, stop))


@kernel
def read_characters(data: ByteArray, first: int, last: int, table: IntArray, codes: IntArray) -> int:
    """Decode UTF-8 into what the table has for each code point, 0 for what is not part of a word; return how many.

    Arrow has checked that it is valid.
    """
    used, position = 0, first
    while position < last:
        byte = np.int32(data[position])
        if byte < 0x80:
            code, size = byte, 1
        elif byte < 0xE0:
            code, size = (byte & 0x1F) << 6 | data[position + 1] & 0x3F, 2
        elif byte < 0xF0:
            code, size = (byte & 0x0F) << 12 | (data[position + 1] & 0x3F) << 6 | data[position + 2] & 0x3F, 3
        else:
            code = (
                (byte & 0x07) << 18
                | (data[position + 1] & 0x3F) << 12
                | (data[position + 2] & 0x3F) << 6
                | data[position + 3] & 0x3F
            )
            size = 4
        codes[used] = table[code] if code < len(table) else code
        used += 1
        position += size
    return used


@kernel
def bucket_of(mixed: np.uint64, n_features: int) -> np.int64:
    """Spread a hash over its upper 32 bits, and scale these to a bucket; of 2^b buckets, that is the upper b bits."""
    spread = (mixed ^ (mixed >> np.uint64(33))) * SPREAD
    return np.int64((spread >> np.uint64(32)) * np.uint64(n_features) >> np.uint64(32))


@kernel
def word_end(codes: IntArray, start: int) -> int:
    """Return where the word ends that begins at `start`: before a character of none, or of another kind of script."""
    unspaced, end = codes[start] >= UNSPACED, start + 1
    while end < len(codes) and codes[end] != 0 and (codes[end] >= UNSPACED) == unspaced:
        end += 1
    return end


@kernel
def list_unspaced(codes: IntArray, n_features: int, listed: IntArray, used: int) -> int:
    """List the buckets of the n-grams of a run of an unspaced script, as if they were words, after `used` others."""
    for begin in range(len(codes)):
        word = WORD_SEED
        for end in range(begin, min(begin + LONGEST_UNSPACED, len(codes))):
            word = (word ^ np.uint64(codes[end] & CODE_POINT)) * PRIME
            listed[used] = bucket_of(word, n_features)
            used += 1
    return used


@kernel
def list_words(codes: IntArray, shortest: int, longest: int, n_features: int, apart: bool, listed: IntArray) -> int:
    """List the buckets of all n-grams of words of a text, by length if `apart`; return how many there are.

    N-grams of an unspaced script are those of its characters, stand with the shortest n-grams of words, and end these.
    """
    recent = np.zeros(max(1, longest), np.uint64)
    used, seen, position, last = 0, 0, 0, len(codes)
    while position < last:
        if codes[position] == 0:
            position += 1
            continue
        if codes[position] >= UNSPACED:
            end = word_end(codes, position)
            used = list_unspaced(codes[position:end], n_features, listed, used)
            position, seen = end, 0
            continue
        word = WORD_SEED
        while position < last and 0 < codes[position] < UNSPACED:
            word = (word ^ np.uint64(codes[position])) * PRIME
            position += 1
        # recent[n] is the hash of the last n + 1 words.
        for length in range(min(longest - 1, seen), 0, -1):
            recent[length] = (recent[length - 1] * PRIME ^ word) * PRIME
        recent[0] = word
        seen += 1
        for length in range(shortest - 1, min(longest, seen)):
            kind = length + 1 - shortest if apart else 0
            listed[used] = kind * n_features + bucket_of(recent[length], n_features)
            used += 1
    return used


@kernel
def list_characters(
    codes: IntArray, shortest: int, longest: int, n_features: int, kind: int, listed: IntArray, used: int
) -> int:
    """List the buckets of all n-grams of characters of a text, after `used` others; return how many there are now.

    Theirs begin after those of the kinds before.
    """
    start, last = 0, len(codes)
    while start < last:
        if codes[start] == 0:
            start += 1
            continue
        end = word_end(codes, start)
        # Positions start - 1 and end stand for the boundaries.
        for begin in range(start - 1, end):
            mixed = CHAR_SEED
            for position in range(begin, min(begin + longest, end + 1)):
                code = BOUNDARY if position < start or position >= end else codes[position] & CODE_POINT
                mixed = (mixed ^ np.uint64(code)) * PRIME
                if position - begin + 1 >= shortest:
                    listed[used] = kind * n_features + bucket_of(mixed, n_features)
                    used += 1
        start = end
    return used


@kernel
def count_part(
    data: ByteArray,
    ptr: LongArray,
    characters: IntArray,
    lengths: tuple[int, int, int, int],
    n_features: int,
    apart: bool,
    start: int,
    stop: int,
) -> tuple[LongArray, IntArray, IntArray]:
    """Count the n-grams of texts start..stop by bucket; kinds have separate buckets if they are `apart`."""
    short_words, long_words, short_chars, long_chars = lengths
    size = 0
    for text in range(start, stop):
        size = max(size, ptr[text + 1] - ptr[text])
    # At worst every other byte is a word by itself, or three bytes are a character of three n-grams; and an n-gram of
    # characters begins at each and before the first of a word.
    room = (size // 2 + 1) * max(2, long_words) + (2 * size + 2) * (long_chars - short_chars + 1)
    codes, listed = np.empty(size, np.int32), np.empty(room, np.int32)
    # A small table with open addressing finds what the text has had before; it is never more than half full.
    slots = 64
    while slots < 2 * room:
        slots *= 2
    table = np.full(slots, -1, np.int64)
    touched = np.empty(room, np.int64)
    sizes = np.zeros(stop - start, np.int64)
    buckets, counts = np.empty(max(64, 2 * room), np.int32), np.empty(max(64, 2 * room), np.int32)
    used: int = np.int64(0)  # type: ignore[assignment]
    for text in range(start, stop):
        length = read_characters(data, ptr[text], ptr[text + 1], characters, codes)
        total = 0
        if long_words:
            total = list_words(codes[:length], short_words, long_words, n_features, apart, listed)
        if long_chars:
            kind = long_words - short_words + 1 if apart else 0
            total = list_characters(codes[:length], short_chars, long_chars, n_features, kind, listed, total)
        if used + total > len(buckets):
            buckets, counts = with_room(buckets, used, total), with_room(counts, used, total)
        sizes[text - start] = count_distinct(listed[:total], table, touched, buckets[used:], counts[used:])
        used += sizes[text - start]
    return sizes, buckets[:used], counts[:used]


@kernel
def count_distinct(listed: IntArray, table: LongArray, touched: LongArray, buckets: IntArray, counts: IntArray) -> int:
    """Count equal entries of a list, in the order in which they first occur; return the number of distinct ones."""
    # The table is larger than this text needs; using a part of it that fits keeps it in the cache.
    mask = 63
    while mask < 2 * len(listed):
        mask = 2 * mask + 1
    distinct = 0
    for bucket in listed:
        slot = (bucket * 0x9E3779B1) & mask
        while table[slot] >= 0 and buckets[table[slot]] != bucket:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = distinct
            touched[distinct] = slot
            buckets[distinct] = bucket
            counts[distinct] = 0
            distinct += 1
        counts[table[slot]] += 1
    for number in range(distinct):
        table[touched[number]] = -1
    return distinct
