"""Distinct n-grams of texts: numbers, frequencies, and the columns that enough texts have."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from treelabel.text import NgramShape
from treelabel.text.ngrams import count_ngrams
from treelabel.text.tfidf import FIRST_SLOTS, Occurrences, number_buckets, sorted_order

TEXTS = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=12).map(" ".join), max_size=12)


def test_ngrams_are_numbered_as_they_first_occur() -> None:
    ngrams = Occurrences.of(["b a b", "c a", ""], NgramShape())
    assert ngrams.sizes.tolist() == [2, 2, 0]
    assert ngrams.numbers.tolist() == [0, 1, 2, 1]
    assert ngrams.counts.tolist() == [2, 1, 1, 1]
    assert ngrams.frequencies.tolist() == [1, 2, 1]


@given(TEXTS, st.integers(1, 4))
def test_columns_are_those_of_the_slow_twin(texts: list[str], min_df: int) -> None:
    shape = NgramShape((1, 2), (2, 2), 50, (1, 1, 1))
    ngrams, counted = Occurrences.of(texts, shape), count_ngrams(texts, shape)
    df = Counter(counted.buckets.tolist())
    assert ngrams.buckets[ngrams.numbers].tolist() == counted.buckets.tolist()
    assert dict(zip(ngrams.buckets.tolist(), ngrams.frequencies.tolist(), strict=True)) == df
    for wanted in (shape, NgramShape((1, 1), None, 50, (1,)), NgramShape((1, 2), None, 50, (1, 1))):
        expected = [b for b in df if df[b] >= min_df and b < wanted.buckets]
        columns = ngrams.buckets[ngrams.columns(wanted, min_df)].tolist()
        assert columns == sorted(expected, key=lambda b: (-df[b], b))


@given(st.lists(st.integers(0, 2**50), max_size=60))
def test_sorting_by_halves_of_words_is_sorting(keys: list[int]) -> None:
    array = np.array(keys + keys[:5], np.int64)
    assert sorted_order(array).tolist() == np.argsort(array, kind="stable").tolist()


def test_more_buckets_than_the_first_table_holds_are_numbered() -> None:
    rng = np.random.default_rng(1)
    listed = rng.integers(0, 2**31 - 1, 30_000).astype(np.int32)
    listed = np.concatenate([listed, rng.permutation(listed), np.array([0, 2**31 - 1], np.int32)])
    numbers, buckets, _ = number_buckets(listed, FIRST_SLOTS)
    distinct = list(dict.fromkeys(listed.tolist()))
    assert buckets.tolist() == distinct
    assert (buckets[numbers] == listed).all()


def test_the_first_kind_ends_where_the_second_begins() -> None:
    # One bucket for each of three kinds: 0, 1 and 2.
    ngrams = Occurrences.of(["a b"], NgramShape((1, 2), (2, 2), 1, (1, 1, 1)))
    assert ngrams.buckets.tolist() == [0, 1, 2]
    assert ngrams.columns(NgramShape((1, 1), None, 1, (1,)), 1).tolist() == [0]
    assert ngrams.columns(NgramShape((1, 2), None, 1, (1, 1)), 1).tolist() == [0, 1]
