"""Hashed n-grams: values by hand, the slow twin on random texts, and identities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.reference_text import buckets_of, words_of
from treelabel import TreelabelError
from treelabel.text import NgramShape
from treelabel.text.ngram_names import named_ngrams
from treelabel.text.ngrams import LARGEST_N, MOST_FEATURES, count_ngrams

# Letters of one, two, three and four bytes in UTF-8, some with an upper case of another length; no unspaced scripts.
TEXTS = st.lists(st.text("aabBc1_ क\u07eaäÄßИж\u1e9eⅣ\U00010428\U00010400-.'\n", max_size=40), max_size=6)
SHAPES = (
    NgramShape(),
    NgramShape((1, 3), None, 1000),
    NgramShape((2, 2), None, 7),
    NgramShape(None, (1, 3), 1 << 16),
    NgramShape((1, 2), (2, 4), 999, weights=(1.0, 0.5, 2.0)),
    NgramShape((2, 3), (3, 3), 1 << 22),
)


def test_buckets_are_those_of_saved_models() -> None:
    # A model stores buckets, so a text must have the same ones in every version.
    words = count_ngrams(["a cat sat"], NgramShape((1, 2))).buckets
    assert words.tolist() == [2654134, 2565284, 2648922, 3232841, 2316249]
    characters = count_ngrams(["ab"], NgramShape(None, (2, 3), 1 << 10)).buckets
    assert characters.tolist() == [267, 905, 847, 960, 484]


def test_words_are_runs_of_letters_digits_and_underscores_in_lower_case() -> None:
    # "a_1" twice, whatever its case; "b" once: counts in the order in which n-grams first occur.
    counted = count_ngrams(["a_1-b A_1", "", "B"], NgramShape())
    assert counted.sizes.tolist() == [2, 0, 1]
    assert counted.counts.tolist() == [2, 1, 1]
    assert counted.buckets[1] == counted.buckets[2] != counted.buckets[0]


def test_characters_lie_within_a_word_with_a_boundary_at_either_end() -> None:
    # |ab|: of 2, "|a", "ab", "b|"; of 3, "|ab", "ab|"; of 4, "|ab|" itself; nothing longer.
    for n, expected in ((2, 3), (3, 2), (4, 1), (5, 0)):
        assert count_ngrams(["ab"], NgramShape(None, (n, n))).sizes.tolist() == [expected]
    assert count_ngrams(["ab cd"], NgramShape(None, (2, 5))).sizes.tolist() == [12]


@given(TEXTS, st.sampled_from(SHAPES))
def test_counts_are_those_of_the_slow_twin(texts: list[str], shape: NgramShape) -> None:
    counted = count_ngrams(texts, shape)
    ptr = np.concatenate([[0], np.cumsum(counted.sizes)])
    assert len(counted.sizes) == len(texts)
    for row, text in enumerate(texts):
        listed = buckets_of(
            text, shape.ngram_range, shape.char_ngram_range, shape.n_features, shape.weights is not None
        )
        distinct = list(dict.fromkeys(listed))
        assert counted.buckets[ptr[row] : ptr[row + 1]].tolist() == distinct
        assert counted.counts[ptr[row] : ptr[row + 1]].tolist() == [listed.count(each) for each in distinct]


@given(TEXTS, st.sampled_from(SHAPES))
def test_names_are_those_of_the_buckets(texts: list[str], shape: NgramShape) -> None:
    for text in texts:
        assert set(named_ngrams(text, shape).values()) == set(count_ngrams([text], shape).buckets.tolist())


def test_many_texts_are_counted_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefghij"), rng.integers(0, 30))) for _ in range(300)]
    shape = NgramShape((1, 3), (1, 4))
    together, alone = count_ngrams(texts, shape), [count_ngrams([text], shape) for text in texts]
    for field in ("sizes", "buckets", "counts"):
        assert getattr(together, field).tolist() == np.concatenate([getattr(each, field) for each in alone]).tolist()


def test_all_words_are_n_grams_of_one_word() -> None:
    text = "one two, three. FOUR four"
    assert count_ngrams([text], NgramShape((1, 1))).counts.sum() == len(words_of(text)) == 5
    assert count_ngrams([text], NgramShape((5, 5))).counts.tolist() == [1]
    assert count_ngrams([text], NgramShape((6, 6))).counts.tolist() == []


@given(st.integers(1, 5), st.integers(1, 4096))
def test_buckets_are_below_their_number(n: int, n_features: int) -> None:
    buckets = count_ngrams(["alpha beta gamma delta epsilon zeta"], NgramShape((1, n), None, n_features)).buckets
    assert buckets.min() >= 0
    assert buckets.max() < n_features


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ngram_range": (2, 1)}, "2 to 1; expected the shortest length, then the longest"),
        ({"ngram_range": (0, 1)}, "ngram_range of n-grams: 0, expected a whole number from 1 to 100"),
        ({"char_ngram_range": (1, LARGEST_N + 1)}, "char_ngram_range of n-grams: 101, expected"),
        ({"ngram_range": (1, 2, 3)}, "expected the shortest and the longest length"),
        ({"n_features": 0}, "n_features of n-grams: 0, expected a whole number from 1 to 2,147,483,648"),
        ({"ngram_range": (1, 2), "weights": (1, 1), "n_features": MOST_FEATURES}, "from 1 to 1,073,741,824"),
        ({"weights": (1.0, 1.0)}, "expected 1 numbers above 0"),
        ({"weights": (0.0,)}, "expected 1 numbers above 0"),
    ],
)
def test_shapes_that_cannot_be_counted_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        NgramShape(**settings)  # type: ignore[arg-type]
    assert NgramShape((LARGEST_N, LARGEST_N), n_features=MOST_FEATURES).buckets == MOST_FEATURES


def test_kinds_are_counted_apart_where_they_have_weights() -> None:
    apart = NgramShape((1, 2), (3, 4), 100, (1, 1, 1))
    assert (apart.kinds, apart.buckets, apart.lengths) == (3, 300, (1, 2, 3, 4))
    assert apart.parts == [("words", 1, 1), ("words", 2, 2), ("characters", 3, 4)]
    assert NgramShape((1, 2), (3, 4), 100).kinds == 1
    assert NgramShape((1, 1), None, 100, (2,)).is_start_of(apart)
    assert not NgramShape((1, 1), None, 99, (2,)).is_start_of(apart)
    assert not NgramShape((2, 2), None, 100, (2,)).is_start_of(apart)
    assert not apart.is_start_of(NgramShape((1, 1), None, 100, (2,)))
    # Words of two letters end in the second kind of buckets, characters in the third.
    kinds = count_ngrams(["abc def"], apart).buckets // 100
    assert sorted(kinds.tolist()) == [0, 0, 1, *[2] * 10]
