"""The names of the n-grams of one text: the words and characters behind the buckets that `ngrams` counts.

Nothing is stored: names come from the text in question, so a model need not keep any.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from treelabel.text.ngrams import (
    CODE_POINT,
    LONGEST_UNSPACED,
    UNSPACED,
    NgramShape,
    character_table,
    list_characters,
    list_words,
    read_characters,
    utf8,
)


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
    data, ptr = utf8([text])
    codes = np.empty(len(data), np.int32)
    codes = codes[: read_characters(data, ptr[0], ptr[1], character_table(), codes)]
    # Words and whether their script puts no blanks between them.
    runs = groupby(codes.tolist(), lambda code: min(code, 1) + (code >= UNSPACED))
    words = [("".join(chr(code & CODE_POINT) for code in run), kind == 2) for kind, run in runs if kind]
    short_words, long_words, short_chars, long_chars = shape.lengths
    named_words = list(_word_names(words, short_words, long_words)) if long_words else []
    names = named_words + [name for word, _ in words for name in _character_names(word, short_chars, long_chars)]
    # Names come in the order in which the compiled loops list their buckets.
    listed, apart = np.empty(len(names), np.int32), shape.weights is not None
    if long_words:
        list_words(codes, short_words, long_words, shape.n_features, apart, listed)
    if long_chars:
        kind = long_words - short_words + 1 if apart else 0
        list_characters(codes, short_chars, long_chars, shape.n_features, kind, listed, len(named_words))
    return dict(zip(names, listed.tolist(), strict=True))


def _word_names(words: Sequence[tuple[str, bool]], shortest: int, longest: int) -> Iterator[str]:
    recent: list[str] = []
    for word, is_unspaced in words:
        if is_unspaced:
            recent = []
            for first in range(len(word)):
                yield from (word[first:end] for end in range(first + 1, min(first + LONGEST_UNSPACED, len(word)) + 1))
        else:
            recent.append(word)
            yield from (" ".join(recent[-size:]) for size in range(shortest, min(longest, len(recent)) + 1))


def _character_names(word: str, shortest: int, longest: int) -> Iterator[str]:
    # Between two boundaries, of which the first has the position 0.
    last = len(word) + 2
    for first in range(last - 1):
        for end in range(first + shortest, min(first + longest, last) + 1):
            yield ("~" if first else "|") + word[max(first - 1, 0) : end - 1] + ("|" if end in (1, last) else "~")
