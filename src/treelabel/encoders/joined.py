"""Embeddings beside sparse features, as one sparse matrix."""

import numpy as np
from scipy import sparse

from treelabel.core.matrices import normalize_rows
from treelabel.core.types import FloatArray


def joined(rows: sparse.csr_array, dense: FloatArray, share: float) -> sparse.csr_array:
    """Put dense columns beside sparse ones, both scaled so that every row has length 1.

    Parameters
    ----------
    rows
        Sparse features, n × m.
    dense
        Embeddings, n × width.
    share
        The share of the squared length of a row that embeddings have; sparse features have 1 - share.

    Returns
    -------
    sparse.csr_array
        n × (m + width), float32.

    >>> both = joined(sparse.csr_array(np.array([[2.0, 0.0]])), np.array([[3.0, 4.0]]), 0.36)
    >>> both.toarray().astype(float).round(2).tolist()
    [[0.8, 0.0, 0.36, 0.48]]
    """
    left = normalize_rows(rows, np.sqrt(1 - share))
    right = sparse.csr_array(normalize_rows(dense, np.sqrt(share)).astype(np.float32))
    return sparse.csr_array(sparse.hstack([left, right]), dtype=np.float32)
