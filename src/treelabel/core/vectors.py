"""Rows of vectors."""

from typing import Any

import numpy as np
from scipy import sparse


def normalize_rows(matrix: Any, length: float = 1.0) -> Any:
    """Scale the rows of a matrix to the same Euclidean length; rows of zeros stay as they are.

    Parameters
    ----------
    matrix : array or sparse array of shape (rows, columns)
        The vectors.
    length : float
        The length that each of them is to have.

    Returns
    -------
    array or csr_array of shape (rows, columns)

    >>> normalize_rows(np.array([[0.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    >>> normalize_rows(np.array([[3.0, 4.0]]), length=2.0).tolist()
    [[1.2, 1.6]]
    >>> normalize_rows(sparse.csr_array([[0, 4], [0, 0]])).toarray().tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    if not sparse.issparse(matrix):
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        unit = matrix / np.where(lengths > 0, lengths, 1)
        return unit if length == 1 else length * unit
    rows = sparse.csr_array(matrix)
    sizes = np.diff(rows.indptr)
    # Values alone are squared: products of sparse matrices take several times their memory.
    squares = np.add.reduceat(rows.data * rows.data, rows.indptr[:-1][sizes > 0]) if rows.nnz else rows.data[:0]
    lengths = np.zeros(len(sizes), np.sqrt(squares).dtype)
    lengths[sizes > 0] = np.sqrt(squares)
    scale = length / np.where(lengths > 0, lengths, 1)
    return sparse.csr_array((rows.data * np.repeat(scale, sizes), rows.indices.copy(), rows.indptr), rows.shape)
