"""Latent semantic analysis: a value by hand, the full decomposition on random texts, and an identity."""

import numpy as np
import pytest

from treelabel.core.strings import Strings
from treelabel.text import NgramShape, Tfidf
from treelabel.text.lsa import Lsa


def random_texts(seed: int, count: int = 30) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcdefghijkl"), 6)) for _ in range(count)]


def test_texts_without_a_word_in_common_are_orthogonal() -> None:
    lsa, rows = Lsa.fit_transform(Strings.of(["a", "b", "a"]), 2, NgramShape(), 1, 0)
    assert rows @ rows.T == pytest.approx(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]]), abs=1e-3)
    assert lsa.transform(Strings.of(["unknown", "", "b b"])) @ rows.T == pytest.approx(
        np.array([[0, 0, 0], [0, 0, 0], [0, 1, 0]]), abs=1e-3
    )


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_rows_are_those_of_the_full_decomposition(columns: int) -> None:
    texts = random_texts(3)
    dense = Tfidf.fit_transform(texts, NgramShape())[1].toarray().astype(np.float64)
    right = np.linalg.svd(dense, full_matrices=False)[2][:columns].T
    expected = dense @ right
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    lsa, rows = Lsa.fit_transform(Strings.of(texts), columns, NgramShape(), 1, 0)
    assert lsa.vectors.shape == (dense.shape[1], columns)
    # Singular vectors are known up to their signs, inner products of rows exactly.
    assert rows @ rows.T == pytest.approx(expected @ expected.T, abs=5e-3)


def test_all_singular_vectors_change_no_inner_product() -> None:
    texts = random_texts(4)
    sparse_rows = Tfidf.fit_transform(texts, NgramShape(), 1)[1].toarray()
    lsa, rows = Lsa.fit_transform(Strings.of(texts), 1000, NgramShape(), 1, 0)
    assert rows @ rows.T == pytest.approx(sparse_rows @ sparse_rows.T, abs=5e-3)
    assert lsa.transform(Strings.of(texts)) == pytest.approx(rows, abs=1e-6)
    # Half precision, as it is saved.
    assert (lsa.vectors == lsa.vectors.astype(np.float16)).all()
