"""Sums that carry what rounding takes from them: exact, whatever the batches, and what is not finite stays so."""

import math

import numpy as np
import pytest
from scipy import sparse

from treelabel.evaluation.sums import add_sums, column_sums


def in_batches(part: np.ndarray, size: int) -> np.ndarray:
    total = column_sums(part[:size])
    for start in range(size, len(part), size):
        total = add_sums(total, column_sums(part[start : start + size]))
    return np.asarray(total[0])


@pytest.mark.parametrize("size", [1, 7, 500, 5000])
def test_sums_are_exact_in_batches_of_any_size(size: int) -> None:
    rng = np.random.default_rng(0)
    part = rng.normal(size=(5000, 3)) * 10.0 ** rng.integers(-12, 12, (5000, 3))
    expected = [math.fsum(column) for column in part.T.tolist()]
    assert in_batches(part, size).tolist() == expected
    assert part.sum(axis=0).tolist() != expected


def test_sums_of_sparse_parts_are_exact_too() -> None:
    rng = np.random.default_rng(1)
    part = sparse.random_array((2000, 5), density=0.3, rng=rng, format="csr")
    expected = [math.fsum(part[:, [at]].toarray().ravel().tolist()) for at in range(5)]
    assert column_sums(part)[0].tolist() == expected


def test_counts_stay_whole_numbers() -> None:
    marks = sparse.csr_array(np.array([[True, False], [True, True]]))
    total = add_sums(column_sums(marks), column_sums(marks))
    assert total[0].dtype == np.int64
    assert total[0].tolist() == [4, 2]
    assert column_sums(np.ones((3, 1), np.int64))[0].tolist() == [3]


def test_what_is_infinite_or_undefined_stays_so() -> None:
    part = np.array([[np.inf, np.nan, 1.0], [1.0, 1.0, 1.0]])
    for found in (column_sums(part)[0], in_batches(part, 1), column_sums(sparse.csr_array(part))[0]):
        assert found[0] == np.inf
        assert np.isnan(found[1])
        assert found[2] == 2
