"""Rows of vectors, scaled to one length."""

import numpy as np
import pytest
from scipy import sparse

from treelabel.core.matrices import join_features, normalize_rows

RNG = np.random.default_rng(0)
ROWS = (RNG.normal(size=(40, 12)) * (RNG.random((40, 12)) < 0.3)).astype(np.float32)
ROWS[3] = 0


@pytest.mark.parametrize("length", [1.0, 0.6])
def test_rows_have_the_length_that_is_asked_for_or_none(length: float) -> None:
    found = normalize_rows(ROWS, length)
    assert found.dtype == np.float32
    for row, given in zip(found, ROWS, strict=True):
        size = sum(float(value) ** 2 for value in given) ** 0.5
        expected = [length * float(value) / size if size else 0.0 for value in given]
        np.testing.assert_allclose(row, expected, rtol=1e-6)


@pytest.mark.parametrize("length", [1.0, 0.6])
def test_a_sparse_matrix_is_scaled_like_a_dense_one_and_stays_as_sparse(length: float) -> None:
    given = sparse.csr_array(ROWS)
    found = normalize_rows(given, length)
    assert found.nnz == given.nnz
    np.testing.assert_allclose(found.toarray(), normalize_rows(ROWS, length), rtol=1e-6)


def test_joined_rows_have_length_one_where_both_parts_have_values() -> None:
    both = join_features(sparse.csr_array(ROWS), np.ones((40, 5), np.float32), 0.25).toarray()
    squares = (both**2).sum(axis=1)
    has_words = ROWS.any(axis=1)
    np.testing.assert_allclose(squares[has_words], 1, rtol=1e-6)
    np.testing.assert_allclose(squares[~has_words], 0.25, rtol=1e-6)
