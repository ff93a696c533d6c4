"""tf-idf: values by hand, the slow twin on random texts, and identities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.reference_text import buckets_of, tfidf_rows
from treelabel.core.matrices import join_features
from treelabel.text import NgramShape, Tfidf
from treelabel.text.tfidf import Occurrences, columns_of, number_buckets, sort_row

TEXTS = st.lists(st.lists(st.sampled_from(["a", "b", "cc", "dd", "ddd"]), max_size=8).map(" ".join), max_size=8)
SHAPES = (
    NgramShape(),
    NgramShape((1, 2), None, 1000),
    NgramShape((1, 2), (2, 3), 500, (1.0, 0.5, 2.0)),
    NgramShape(None, (1, 2), 64),
)


def buckets(texts: list[str], shape: NgramShape) -> list[list[int]]:
    apart = shape.weights is not None
    return [buckets_of(text, shape.ngram_range, shape.char_ngram_range, shape.n_features, apart) for text in texts]


def test_weights_by_hand() -> None:
    # Of 3 texts, b is in 2 and a, c in 1: idf(b) = 1 + ln(4/3), idf(a) = 1 + ln 2. "b b a" has b twice.
    tfidf = Tfidf.fit(["a b", "b c", ""], NgramShape())
    b, a = (1 + math.log(2)) * (1 + math.log(4 / 3)), 1 + math.log(2)
    row = tfidf.transform(["b b a"]).toarray()[0]
    # Most frequent first: b is the first column.
    assert row[0] == pytest.approx(b / math.hypot(a, b), abs=1e-6)
    assert sorted(row[1:]) == pytest.approx([0, a / math.hypot(a, b)], abs=1e-6)
    assert tfidf.idf.tolist() == pytest.approx([1 + math.log(4 / 3), a, a], abs=1e-6)
    assert tfidf.width == 3


def test_kinds_have_the_length_of_their_weight() -> None:
    # Words have weight 3 and pairs 4; both are in the first text, and only words in the second.
    shape = NgramShape((1, 2), None, 100, (3.0, 4.0))
    _, rows = Tfidf.fit_transform(["a b", "c"], shape)
    tfidf = Tfidf.fit(["a b", "c"], shape)
    kinds = tfidf.buckets[rows.indices] // 100
    values = rows.toarray()
    assert np.sort(values[0])[-3:] == pytest.approx([0.6 / math.sqrt(2), 0.6 / math.sqrt(2), 0.8], abs=1e-6)
    assert values[1].max() == pytest.approx(1)
    assert sorted(kinds.tolist()) == [0, 0, 0, 1]


@given(TEXTS, TEXTS, st.sampled_from(SHAPES), st.integers(1, 3))
def test_rows_are_those_of_the_slow_twin(train: list[str], texts: list[str], shape: NgramShape, min_df: int) -> None:
    tfidf, rows = Tfidf.fit_transform(train, shape, min_df)
    weights = None if shape.weights is None else list(shape.weights)
    known = buckets(train, shape)
    columns, expected = tfidf_rows(known, known + buckets(texts, shape), shape.n_features, weights, min_df)
    assert tfidf.buckets.tolist() == columns
    got = [*rows.toarray(), *tfidf.transform(texts).toarray()]
    for row, values in zip(got, expected, strict=True):
        assert row == pytest.approx([values.get(b, 0.0) for b in columns], abs=1e-5)


@given(TEXTS, st.sampled_from(SHAPES))
def test_transforming_what_was_learned_gives_the_same_rows_of_length_1(train: list[str], shape: NgramShape) -> None:
    tfidf, rows = Tfidf.fit_transform(train, shape)
    again = tfidf.transform(train)
    assert (again != rows).nnz == 0
    assert again.has_sorted_indices
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    assert lengths == pytest.approx((np.diff(rows.indptr) > 0).astype(float), abs=1e-5)


@given(TEXTS, st.sampled_from(SHAPES), st.lists(st.booleans(), min_size=60, max_size=60))
def test_ngrams_that_are_left_out_were_never_learned(train: list[str], shape: NgramShape, chosen: list[bool]) -> None:
    tfidf, rows = Tfidf.fit_transform(train, shape)
    kept = np.resize(np.array(chosen), tfidf.width)
    fewer = Tfidf(shape, tfidf.buckets[kept], tfidf.idf[kept])
    left = tfidf.keep_ngrams(rows, kept[rows.indices])
    assert left.has_sorted_indices
    assert left.toarray()[:, kept] == pytest.approx(fewer.transform(train).toarray(), abs=1e-6)
    assert not left.toarray()[:, ~kept].any()


def test_other_features_keep_their_values_where_ngrams_are_left_out() -> None:
    tfidf, rows = Tfidf.fit_transform(["a b", "b c"], NgramShape())
    both = join_features(rows, np.array([[3.0, 4.0], [0.0, 1.0]], np.float32), 0.36)
    is_b = tfidf.idf < tfidf.idf.max()
    kept = np.concatenate([is_b, [True, True]])
    assert tfidf.keep_ngrams(both, kept[both.indices]).toarray()[:, [*np.flatnonzero(is_b), 3, 4]] == pytest.approx(
        np.array([[0.8, 0.36, 0.48], [0.8, 0.0, 0.6]])
    )


def test_long_texts_have_sorted_rows() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, 3000, 400)) for _ in range(40)]
    tfidf, rows = Tfidf.fit_transform(texts, NgramShape())
    assert tfidf.width > 256
    for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        assert (np.diff(rows.indices[start:stop]) > 0).all()
    assert (tfidf.transform(texts) != rows).nnz == 0


@pytest.mark.parametrize("width", [1, 2, 64, 255, 256, 257, 65536, 65537, 1 << 20, (1 << 24) + 1])
@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 66, 200])
def test_rows_are_sorted_by_their_columns(width: int, count: int) -> None:
    rng = np.random.default_rng(width + count)
    indices = np.unique(rng.integers(0, width, count, np.int32))
    indices = rng.permutation(np.unique([*indices, *([0, width - 1] if count > 64 else [])])).astype(np.int32)
    values = indices.astype(np.float32) + 0.5
    sort_row(indices, values, width)
    assert (np.diff(indices) > 0).all()
    assert (values == indices.astype(np.float32) + 0.5).all()


def test_buckets_find_their_columns() -> None:
    # Buckets that are equal in their lower bits follow each other in the table.
    buckets = np.array([5, 69, 133, 2**31 - 1, 0, 64, 4096], np.int32)
    tfidf = Tfidf(NgramShape(), buckets, np.ones(7, np.float32))
    columns = columns_of(tfidf.slots, np.array([*buckets.tolist(), 197, 1, 128], np.int32))
    assert columns.tolist() == [0, 1, 2, 3, 4, 5, 6, -1, -1, -1]
    assert len(tfidf.slots) == 64
    assert [tfidf.column_of(133), tfidf.column_of(134)] == [2, -1]


def test_the_first_column_may_be_that_of_bucket_0() -> None:
    # In a table, bucket 0 with the number 0 is 0, which is not the mark of an empty slot.
    # Bucket 2^20 would stand in the same slot of any of these tables.
    listed = np.array([0, 1 << 20, 0, *range(100, 140), 0], np.int32)
    numbers, distinct, slots = number_buckets(listed, 4)
    assert numbers.tolist() == [0, 1, 0, *range(2, 42), 0]
    assert distinct.tolist() == [0, 1 << 20, *range(100, 140)]
    assert columns_of(slots, listed).tolist() == numbers.tolist()
    # It is made four times as large when it is more than half full: 4, 16, 64, 256.
    assert len(slots) == 256
    assert len(number_buckets(np.arange(8, dtype=np.int32), 16)[2]) == 16
    assert len(number_buckets(np.arange(9, dtype=np.int32), 16)[2]) == 64


def test_columns_of_one_text_can_be_put_in_the_order_of_texts() -> None:
    texts = ["shared z one", "two shared y", "x shared three three"]
    tfidf, rows = Tfidf.fit_transform(texts, NgramShape())
    moved, again = tfidf.with_singles_by_text(rows)
    assert again.indices.tolist() == [0, 1, 2, 0, 3, 4, 0, 5, 6]
    assert sorted(moved.buckets.tolist()) == sorted(tfidf.buckets.tolist())
    assert moved.buckets[0] == tfidf.buckets[0]
    assert moved.transform(texts).toarray() == pytest.approx(again.toarray(), abs=1e-6)


def test_columns_of_another_follow() -> None:
    one, two = Tfidf.fit(["a b", "b"], NgramShape()), Tfidf.fit(["b c", "c", "d c"], NgramShape())
    both = one.followed_by(two)
    assert both.buckets[:2].tolist() == one.buckets.tolist()
    assert both.buckets[2:].tolist() == [b for b in two.buckets.tolist() if b not in one.buckets.tolist()]
    assert both.idf.tolist() == [*one.idf.tolist(), *two.idf[~np.isin(two.buckets, one.buckets)].tolist()]


def test_the_first_kinds_can_be_learned_from_all_that_were_counted() -> None:
    texts = ["a b c", "b c", "c d"]
    counted = Occurrences.of(texts, NgramShape((1, 2), (2, 2), 300, (1, 1, 1)))
    words = NgramShape((1, 1), None, 300, (1,))
    some, rows = Tfidf.learn(counted, words, min_df=2)
    alone, alone_rows = Tfidf.fit_transform(texts, words, min_df=2)
    assert some.buckets.tolist() == alone.buckets.tolist()
    assert (rows != alone_rows).nnz == 0
