"""Which words of a text support the steps of a path, and how much: n-grams of an explanation, put on words."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from treelabel.core.types import IntArray
from treelabel.serve.schemas import StepAnswer

WORD = re.compile(r"\w+")
# N-grams of characters begin and end with one of these: a word begins or ends there, or goes on.
EDGE, INSIDE = "|", "~"
# Words with less than this share of the best word's support are not shown.
LEAST_SHARE = 0.25
MOST_WORDS = 4


@dataclass(frozen=True)
class Segment:
    """A piece of a text. `word` is its number, if it supports a step, and `depth` that of the one it supports most."""

    text: str
    word: int | None = None
    depth: int = 0


@dataclass(frozen=True)
class StepWords:
    """The words that support one step, the strongest first; `numbers` says where they are in the text."""

    supporting: list[str]
    numbers: list[int]


def words_of_steps(
    text: str, steps: Sequence[StepAnswer], depths: IntArray
) -> tuple[list[Segment], dict[int, StepWords]]:
    """Find the words of a text that support the steps of paths.

    Parameters
    ----------
    text
        The text that was explained.
    steps
        The explanation.
    depths : array of shape (nodes,)
        The depth of every node of the hierarchy.

    Returns
    -------
    list of Segment
        The text in pieces.
    dict of StepWords
        By node.

    >>> import numpy as np
    >>> step = {"node": 0, "label": "cat", "probability": 1.0, "supporting": [("~cat|", 0.5)], "opposing": [("a", -1)]}
    >>> segments, words = words_of_steps("A wildcat", [step], np.array([1]))
    >>> [segment.text for segment in segments if segment.word is not None], words[0].supporting
    (['wildcat'], ['wildcat'])
    """
    matches = list(WORD.finditer(text))
    words = [match[0].casefold() for match in matches]
    best: dict[int, tuple[float, int]] = {}
    result = {}
    for step in steps:
        shares = _share_by_word(words, [*step["supporting"], *step["opposing"]])
        result[step["node"]] = listed = _step_words(words, shares)
        for word in listed.numbers:
            best[word] = max(best.get(word, (0.0, 0)), (shares[words[word]], int(depths[step["node"]])))
    return list(_segments(text, matches, best)), result


def _segments(text: str, matches: Sequence[re.Match[str]], best: dict[int, tuple[float, int]]) -> list[Segment]:
    segments, end = [], 0
    for word, (_, depth) in sorted(best.items()):
        start, stop = matches[word].span()
        segments += [Segment(text[end:start]), Segment(text[start:stop], word, depth)]
        end = stop
    return [*segments, Segment(text[end:])]


def _step_words(words: Sequence[str], shares: dict[str, float]) -> StepWords:
    most = max(shares.values(), default=0.0)
    ranked = sorted(shares, key=lambda word: -shares[word])
    supporting = [word for word in ranked if shares[word] > 0 and shares[word] >= LEAST_SHARE * most][:MOST_WORDS]
    return StepWords(supporting, [number for number, word in enumerate(words) if word in supporting])


def _share_by_word(words: Sequence[str], terms: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Add up the contributions of n-grams on the words that hold them; of several words, on each."""
    result: dict[str, float] = defaultdict(float)
    distinct = dict.fromkeys(words)
    for term, share in terms:
        for word in distinct:
            if _holds(word, term):
                result[word] += share
    return result


def _holds(word: str, term: str) -> bool:
    """Return whether an n-gram is, or is part of, a word; a sequence of words is of each of them."""
    if term[0] not in (EDGE, INSIDE):
        # Scripts without blanks between words have n-grams of characters without a mark.
        return word in term.split() or (not term.isascii() and term in word)
    core = term[1:-1]
    if term[0] == EDGE and not word.startswith(core):
        return False
    return core in word if term[-1] == INSIDE else word.endswith(core)
