"""Rows of vectors."""

from typing import Any

import numpy as np
from scipy import sparse


def normalize_rows(matrix: Any) -> Any:
    """Scale the rows of a dense or sparse matrix to length 1; rows of zeros stay as they are.

    >>> normalize_rows(np.array([[0.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    >>> normalize_rows(sparse.csr_array([[3.0, 4.0]])).toarray().tolist()
    [[0.6, 0.8]]
    """
    if not sparse.issparse(matrix):
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        return matrix / np.where(lengths > 0, lengths, 1)
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    # One product with a diagonal matrix keeps the pattern; dividing would make zeros of it.
    return sparse.csr_array(sparse.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ matrix)
