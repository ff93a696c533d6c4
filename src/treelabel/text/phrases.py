"""Phrases in texts: many names, each of some words, compiled into one hash table and found in one pass over a text.

Words are those of `ngrams`, in lower case and in the singular, as far as English endings tell; each character of a
script without blanks is a word. A phrase is known by the hash of its words. Every beginning of a phrase is in the table
too, so that a text is followed no further than some phrase goes: the cost of a text is that of its words, however many
phrases there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from treelabel.core.compute import kernel, over_rows, with_room
from treelabel.core.types import IntArray, LongArray
from treelabel.text.ngrams import (
    PRIME,
    SPREAD,
    UNSPACED,
    WORD_SEED,
    ByteArray,
    character_table,
    read_characters,
    utf8,
    word_end,
)

# Names of more words are cut: nobody repeats them word by word.
MOST_WORDS = 20
LINE_BREAK = 10


class PhraseMatches(NamedTuple):
    """The phrases of texts: how many distinct ones each has, and then for each of these, text by text, what it is.

    `counts` is how often it occurs, `first` the number of words before its first occurrence, and `in_title` 1 if that
    is in the first line of the text, else 0. `words` are the words of each text.
    """

    sizes: LongArray
    phrases: IntArray
    counts: IntArray
    first: IntArray
    in_title: IntArray
    words: IntArray


@dataclass(frozen=True, eq=False)
class Phrases:
    """Phrases as hashes: `keys` are those of all beginnings, rising, and `ids` the phrase that ends there, or -1.

    >>> phrases, numbers = Phrases.of(["Neural networks", "network", "neural network", "."])
    >>> numbers.tolist()
    [0, 1, 0, -1]
    >>> phrases.find(["Networks, and a neural network"]).phrases.tolist()
    [1, 0]
    """

    keys: LongArray
    ids: IntArray

    @classmethod
    def of(cls, names: Sequence[str]) -> tuple["Phrases", IntArray]:
        """Compile names.

        Parameters
        ----------
        names : sequence of str
            The names, of which several may be the same phrase.

        Returns
        -------
        (Phrases, array of int32)
            The phrases, and the number of each name's, -1 where it has no word.
        """
        data, ptr = utf8(names)
        parts = over_rows(partial(hash_beginnings, data, ptr, character_table()), len(ptr) - 1, least=4096)
        sizes, hashes = (np.concatenate([part[which] for part in parts]) for which in range(2))
        ends = np.cumsum(sizes)
        whole = hashes[ends[sizes > 0] - 1]
        # Numbered in the order in which they come.
        distinct, first, back = np.unique(whole, return_index=True, return_inverse=True)
        rank = np.empty(len(distinct), np.int32)
        rank[np.argsort(first)] = np.arange(len(distinct), dtype=np.int32)
        numbers = np.full(len(sizes), -1, np.int32)
        numbers[sizes > 0] = rank[back]
        keys = np.unique(hashes)
        ids = np.full(len(keys), -1, np.int32)
        ids[np.searchsorted(keys, distinct)] = rank
        return cls(keys, ids), numbers

    def __len__(self) -> int:
        return int(self.ids.max(initial=-1)) + 1

    @cached_property
    def _table(self) -> tuple[LongArray, IntArray]:
        return fill_table(self.keys, self.ids)

    def find(self, texts: Sequence[str]) -> PhraseMatches:
        """Find phrases in texts, the longest that begins at each word, unless it lies within one that began before."""
        data, ptr = utf8(texts)
        some = partial(find_phrases, data, ptr, character_table(), *self._table, len(self))
        parts = over_rows(some, len(ptr) - 1, least=64)
        return PhraseMatches(*(np.concatenate([part[which] for part in parts]) for which in range(6)))


@kernel
def singular(codes: IntArray, start: int, stop: int) -> tuple[int, int]:
    """Tell where the singular of a word ends, and what its last letter becomes (0: it stays)."""
    size = stop - start
    if size < 4 or codes[stop - 1] != ord("s"):
        return stop, 0
    before = codes[stop - 2]
    if before == ord("s") or before == ord("u") or before == ord("i"):
        return stop, 0
    if before == ord("e") and size > 4:
        third, fourth = codes[stop - 3], codes[stop - 4]
        if third == ord("i"):
            return stop - 2, ord("y")
        hissing = third == ord("x") or (third == ord("s") and fourth == ord("s"))
        if hissing or (third == ord("h") and (fourth == ord("c") or fourth == ord("s"))):
            return stop - 2, 0
    return stop - 1, 0


@kernel
def hash_words(codes: IntArray, used: int, hashes: LongArray, known: int) -> int:
    """Hash the words of a text in the singular, after `known` others; return how many there are now."""
    position = 0
    while position < used:
        if codes[position] == 0:
            position += 1
            continue
        start = position
        position = position + 1 if codes[position] >= UNSPACED else word_end(codes[:used], position)
        stop, last = singular(codes, start, position)
        word = WORD_SEED
        for letter in range(start, stop):
            code = last if last != 0 and letter == stop - 1 else codes[letter]
            word = (word ^ np.uint64(code)) * PRIME
        hashes[known] = np.int64(word >> np.uint64(1))
        known += 1
    return known


@kernel
def extend_hash(phrase: np.int64, word: np.int64) -> np.int64:
    """Hash a phrase with one more word behind it; never 0, which marks free slots of the table."""
    mixed = (np.uint64(phrase) * PRIME ^ np.uint64(word)) * SPREAD
    return np.int64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(2)) + 1


@kernel
def hash_beginnings(
    data: ByteArray, ptr: LongArray, characters: IntArray, start: int, stop: int
) -> tuple[LongArray, LongArray]:
    """Hash the beginnings of names: how many each has, and all of them; the last of a name is the name itself."""
    size = 0
    for name in range(start, stop):
        size = max(size, ptr[name + 1] - ptr[name])
    codes, words = np.empty(size, np.int32), np.empty(size, np.int64)
    sizes, hashes = np.zeros(stop - start, np.int64), np.empty(MOST_WORDS * (stop - start), np.int64)
    used = 0
    for name in range(start, stop):
        length = read_characters(data, ptr[name], ptr[name + 1], characters, codes)
        count = min(MOST_WORDS, hash_words(codes, length, words, 0))
        phrase = np.int64(1)
        for word in range(count):
            phrase = extend_hash(phrase, words[word])
            hashes[used] = phrase
            used += 1
        sizes[name - start] = count
    return sizes, hashes[:used]


@kernel
def fill_table(keys: LongArray, ids: IntArray) -> tuple[LongArray, IntArray]:
    """Make a table with open addressing: keys, 0 where it is free, and their phrases."""
    size = 64
    while size < 3 * len(keys):
        size *= 2
    table, phrases = np.zeros(size, np.int64), np.full(size, -1, np.int32)
    for entry in range(len(keys)):
        slot = keys[entry] & (size - 1)
        while table[slot] != 0:
            slot = (slot + 1) & (size - 1)
        table[slot], phrases[slot] = keys[entry], ids[entry]
    return table, phrases


@kernel
def slot_of(table: LongArray, key: np.int64) -> np.int64:
    """Find the slot of a key, -1 if it is not there."""
    mask = len(table) - 1
    slot = key & mask
    while table[slot] != 0:
        if table[slot] == key:
            return np.int64(slot)
        slot = (slot + 1) & mask
    return np.int64(-1)


@kernel
def longest_phrase(words: LongArray, start: int, count: int, table: LongArray, ids: IntArray) -> tuple[int, int]:
    """Find the longest phrase that begins with a word: its number (-1: none), and where it ends."""
    phrase, best, end = np.int64(1), -1, start
    for position in range(start, count):
        phrase = extend_hash(phrase, words[position])
        slot = slot_of(table, phrase)
        if slot < 0:
            break
        if ids[slot] >= 0:
            best, end = ids[slot], position + 1
    return best, end


@kernel
def find_phrases(
    data: ByteArray,
    ptr: LongArray,
    characters: IntArray,
    table: LongArray,
    ids: IntArray,
    phrases: int,
    start: int,
    stop: int,
) -> tuple[LongArray, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Find the phrases of texts start..stop: the parts of `PhraseMatches`."""
    size = 0
    for text in range(start, stop):
        size = max(size, ptr[text + 1] - ptr[text])
    codes, words, seen = np.empty(size, np.int32), np.empty(size, np.int64), np.full(phrases, -1, np.int64)
    sizes, lengths = np.zeros(stop - start, np.int64), np.zeros(stop - start, np.int32)
    phrase_ids, counts = np.empty(64, np.int32), np.empty(64, np.int32)
    first, in_title = np.empty(64, np.int32), np.empty(64, np.int32)
    used = 0
    for text in range(start, stop):
        middle = ptr[text]
        while middle < ptr[text + 1] and data[middle] != LINE_BREAK:
            middle += 1
        title = hash_words(codes, read_characters(data, ptr[text], middle, characters, codes), words, 0)
        length = read_characters(data, middle, ptr[text + 1], characters, codes)
        count = hash_words(codes, length, words, title)
        if used + count > len(phrase_ids):
            phrase_ids, counts = with_room(phrase_ids, used, count), with_room(counts, used, count)
            first, in_title = with_room(first, used, count), with_room(in_title, used, count)
        begin, covered = used, 0
        for word in range(count):
            phrase, end = longest_phrase(words, word, count, table, ids)
            if phrase < 0 or end <= covered:
                continue
            covered = end
            if seen[phrase] < begin:
                seen[phrase] = used
                phrase_ids[used], counts[used], first[used], in_title[used] = phrase, 0, word, 1 if word < title else 0
                used += 1
            counts[seen[phrase]] += 1
        sizes[text - start], lengths[text - start] = used - begin, count
    return sizes, phrase_ids[:used], counts[:used], first[:used], in_title[:used], lengths
