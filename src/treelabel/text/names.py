"""The n-grams of one text by name: what stands behind the buckets that `ngrams` counts.

Nothing here is fast, and nothing is stored: names come from the text that is asked about, so a model need not keep any.
"""

from treelabel.text.ngrams import BOUNDARY, PIECE_SEED, PRIME, SPREAD, WORD_SEED, NgramShape, character_table

_MASK = (1 << 64) - 1


def named_ngrams(text: str, shape: NgramShape) -> dict[str, int]:
    """Give the n-grams of a text and their buckets; a piece ends in | where its word does, else in ~.

    >>> list(named_ngrams("Ab cd", NgramShape(words=2, pieces=(3, 3))))
    ['ab', 'cd', 'ab cd', '|ab~', '~ab|', '|cd~', '~cd|']
    """
    words = _words(text)
    found: dict[str, int] = {}
    hashes = [_hashed(int(WORD_SEED), word) for word in words]
    for length in range(1, shape.words + 1):
        for first in range(len(words) - length + 1):
            name = " ".join("".join(map(chr, word)) for word in words[first : first + length])
            found[name] = _bucket(_run(hashes[first : first + length]), shape.bits)
    low, high = shape.pieces or (1, 0)
    for word in words:
        marked = [BOUNDARY, *word, BOUNDARY]
        for size in range(low, high + 1):
            for first in range(len(marked) - size + 1):
                piece = marked[first : first + size]
                inner = "".join(chr(code) for code in piece if code != BOUNDARY)
                name = ("|" if piece[0] == BOUNDARY else "~") + inner + ("|" if piece[-1] == BOUNDARY else "~")
                found[name] = _bucket(_hashed(int(PIECE_SEED), piece), shape.bits)
    return found


def _words(text: str) -> list[list[int]]:
    """The words of a text as lower-case code points."""
    table = character_table()
    words: list[list[int]] = [[]]
    for character in text:
        code = ord(character)
        lower = int(table[code]) if code < len(table) else code
        if lower:
            words[-1].append(lower)
        elif words[-1]:
            words.append([])
    return [word for word in words if word]


def _hashed(seed: int, codes: list[int]) -> int:
    for code in codes:
        seed = (seed ^ code) * int(PRIME) & _MASK
    return seed


def _run(words: list[int]) -> int:
    """The hash of words in a row."""
    mixed = words[0]
    for word in words[1:]:
        mixed = (mixed * int(PRIME) & _MASK ^ word) * int(PRIME) & _MASK
    return mixed


def _bucket(mixed: int, bits: int) -> int:
    return ((mixed ^ (mixed >> 33)) * int(SPREAD) & _MASK) >> (64 - bits)
