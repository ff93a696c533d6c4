"""Phrases in texts: values by hand, the slow twin on random texts, and identities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.reference_text import find_phrases, singular, words_of
from treelabel.text.phrases import MOST_WORDS, Phrases

WORDS = st.sampled_from(["cat", "cats", "dog", "big", "boxes", "box", "net", "Nets", "glass"])
NAMES = st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=6)
TEXTS = st.lists(
    st.lists(st.one_of(WORDS, st.sampled_from(["\n", "-", "other"])), max_size=14).map(" ".join), max_size=4
)

SINGULARS = {
    "cats": "cat", "shoes": "shoe", "boxes": "box", "axes": "axe", "glasses": "glass", "churches": "church",
    "dishes": "dish", "berries": "berry", "ties": "tie", "oxes": "oxe", "taxes": "tax", "days": "day",
    "houses": "house",
}  # fmt: skip


@pytest.mark.parametrize("plural", SINGULARS)
def test_plurals_are_the_phrase_of_their_singular(plural: str) -> None:
    _, numbers = Phrases.of([SINGULARS[plural], plural, plural.upper()])
    assert numbers.tolist() == [0, 0, 0]
    assert singular(plural) == SINGULARS[plural]


@pytest.mark.parametrize("word", ["glass", "bus", "gas", "tennis", "virus", "as", "cat"])
def test_other_words_stay_as_they_are(word: str) -> None:
    _, numbers = Phrases.of([word, word[:-1]])
    assert numbers.tolist() == [0, 1]
    assert singular(word) == word


def test_the_longest_phrase_counts_unless_it_lies_within_one_that_began_before() -> None:
    phrases, numbers = Phrases.of(["neural network", "network", "network model", "model zoo", "zoo"])
    assert len(phrases) == 5
    assert numbers.tolist() == [0, 1, 2, 3, 4]
    # "network model" reaches further than "neural network"; "model zoo" further than that; "zoo" lies within.
    matches = phrases.find(["A neural network\nmodel zoo, network Networks", "no such thing", ""])
    assert matches.sizes.tolist() == [4, 0, 0]
    assert matches.phrases.tolist() == [0, 2, 3, 1]
    assert matches.counts.tolist() == [1, 1, 1, 2]
    assert matches.first.tolist() == [1, 2, 3, 5]
    assert matches.in_title.tolist() == [1, 1, 0, 0]
    assert matches.words.tolist() == [7, 3, 0]


@given(NAMES, TEXTS)
def test_matches_are_those_of_the_slow_twin(names: list[str], texts: list[str]) -> None:
    phrases, numbers = Phrases.of(names)
    spelled = [" ".join(map(singular, words_of(name))) for name in names]
    assert numbers.tolist() == [list(dict.fromkeys(spelled)).index(each) for each in spelled]
    number = dict(zip(spelled, numbers.tolist(), strict=True))
    matches = phrases.find(texts)
    ptr = np.concatenate([[0], np.cumsum(matches.sizes)])
    for row, text in enumerate(texts):
        expected, words = find_phrases(names, text)
        part = slice(ptr[row], ptr[row + 1])
        assert matches.phrases[part].tolist() == [number[phrase] for phrase in expected]
        got = zip(
            matches.counts[part].tolist(), matches.first[part].tolist(), matches.in_title[part].tolist(), strict=True
        )
        assert list(got) == list(expected.values())
        assert matches.words[row] == words


def test_names_are_cut_after_their_first_words() -> None:
    assert MOST_WORDS == 20
    words = [f"w{number}" for number in range(MOST_WORDS + 1)]
    names = [" ".join(words), " ".join(words[:-1]), " ".join(words[:-2]), "- ."]
    assert Phrases.of(names)[1].tolist() == [0, 0, 1, -1]


def test_every_name_finds_itself_among_many() -> None:
    names = [f"thing {number}" for number in range(5000)]
    phrases, numbers = Phrases.of(names)
    assert numbers.tolist() == list(range(5000))
    assert phrases.find(names).phrases.tolist() == numbers.tolist()
    assert phrases.find([" ".join(names)]).first.tolist() == list(range(0, 10000, 2))
