"""The names of the n-grams of one text: the words and characters behind the buckets that `ngrams` counts.

Nothing here is fast, and nothing is stored: names come from the text in question, so a model need not keep any.
"""

from itertools import groupby

from treelabel.text.ngrams import (
    BOUNDARY,
    CHAR_SEED,
    CODE_POINT,
    LONGEST_UNSPACED,
    PRIME,
    SPREAD,
    UNSPACED,
    WORD_SEED,
    NgramShape,
    character_table,
)

_MASK = (1 << 64) - 1


def named_ngrams(text: str, shape: NgramShape) -> dict[str, int]:
    """Return the n-grams of a text and their buckets; characters end in | where their word does, and in ~ elsewhere.

    Parameters
    ----------
    shape : NgramShape
        Which n-grams to name.

    Returns
    -------
    dict
        Buckets by name.

    >>> list(named_ngrams("Ab cd", NgramShape(ngram_range=(1, 2), char_ngram_range=(3, 3))))
    ['ab', 'cd', 'ab cd', '|ab~', '~ab|', '|cd~', '~cd|']
    >>> list(named_ngrams("T恤衫", NgramShape(ngram_range=(1, 2))))
    ['t', '恤', '恤衫', '衫']
    """
    runs = _runs(text)
    buckets: dict[str, int] = {}
    short_words, long_words, short_chars, long_chars = shape.lengths
    apart = shape.weights is not None
    for is_unspaced, words in runs:
        if is_unspaced:
            parts = [part for word in words for part in _unspaced_parts(word)] if long_words else []
            buckets |= {_spell(part): _bucket(_hash_codes(int(WORD_SEED), part), shape.n_features) for part in parts}
            continue
        hashes = [_hash_codes(int(WORD_SEED), word) for word in words]
        for length in range(short_words, long_words + 1):
            kind = (length - short_words if apart else 0) * shape.n_features
            for first in range(len(words) - length + 1):
                name = " ".join(_spell(word) for word in words[first : first + length])
                buckets[name] = kind + _bucket(_hash_words(hashes[first : first + length]), shape.n_features)
    kind = (shape.kinds - 1) * shape.n_features
    for word in (word for _, words in runs for word in words):
        marked = [BOUNDARY, *word, BOUNDARY]
        for size in range(short_chars, long_chars + 1):
            for first in range(len(marked) - size + 1):
                part = marked[first : first + size]
                inner = "".join(chr(code) for code in part if code != BOUNDARY)
                name = ("|" if part[0] == BOUNDARY else "~") + inner + ("|" if part[-1] == BOUNDARY else "~")
                buckets[name] = kind + _bucket(_hash_codes(int(CHAR_SEED), part), shape.n_features)
    return buckets


def _runs(text: str) -> list[tuple[bool, list[list[int]]]]:
    """Return the words of a text as lower-case code points, as long as they are of scripts with blanks or without."""
    table = character_table()
    codes = [int(table[ord(character)]) if ord(character) < len(table) else ord(character) for character in text]
    kinds = groupby(codes, lambda code: 0 if code == 0 else 2 if code >= UNSPACED else 1)
    words = [(kind == 2, [code & CODE_POINT for code in run]) for kind, run in kinds if kind]
    return [(is_unspaced, [word for _, word in run]) for is_unspaced, run in groupby(words, lambda word: word[0])]


def _unspaced_parts(word: list[int]) -> list[list[int]]:
    """Return the n-grams of a word of an unspaced script."""
    ends = range(1, LONGEST_UNSPACED + 1)
    return [word[first : first + size] for first in range(len(word)) for size in ends if first + size <= len(word)]


def _spell(codes: list[int]) -> str:
    return "".join(map(chr, codes))


def _hash_codes(seed: int, codes: list[int]) -> int:
    for code in codes:
        seed = (seed ^ code) * int(PRIME) & _MASK
    return seed


def _hash_words(words: list[int]) -> int:
    """Hash an n-gram of words, given the hash of each."""
    mixed = words[0]
    for word in words[1:]:
        mixed = (mixed * int(PRIME) & _MASK ^ word) * int(PRIME) & _MASK
    return mixed


def _bucket(mixed: int, n_features: int) -> int:
    return (((mixed ^ (mixed >> 33)) * int(SPREAD) & _MASK) >> 32) * n_features >> 32
