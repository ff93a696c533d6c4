"""Matrices: sparse ones from outside checked before compiled loops follow them, rows scaled to one length.

Compiled loops follow row pointers and column numbers anywhere. scipy's own check skips matrices whose last row pointer
is 0, however wild the others are, so it is not enough.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, FloatArray

LARGEST_INT32 = np.iinfo(np.int32).max


def checked_csr(
    parts: tuple[Any, Any, Any], shape: tuple[int, int], what: str, finite: bool = False
) -> sparse.csr_array:
    """Make a CSR matrix of arrays that come from outside, refusing any that a compiled loop could not survive.

    Parameters
    ----------
    parts : (data, indices, indptr)
        Arrays as scipy takes them.
    shape : (rows, columns)
        What the matrix must fit.
    what : str
        What the message calls the matrix, with its file where there is one.
    finite : bool
        Whether NaN and infinity are refused too.

    Returns
    -------
    csr_array
        With int32 indices and pointers where they fit.

    >>> checked_csr(([1.0], [3], [0, 1]), (1, 3), "scores")
    Traceback (most recent call last):
    treelabel.core.errors.TreelabelError: scores: column 3 in row 0, but there are 3 columns, 0 to 2
    """
    data, indices, indptr = (np.asarray(part) for part in parts)
    require_compressed(data, indices, indptr, shape, what)
    if data.ndim != 1 or data.dtype.kind not in "biuf":
        raise TreelabelError(f"{what}: values of type {data.dtype} and shape {data.shape}, expected a list of numbers")
    if finite and not np.isfinite(data).all():
        index = int(np.argmin(np.isfinite(data)))
        raise TreelabelError(f"{what}: value {index} is {data[index]}, expected finite numbers")
    kind = np.int32 if max(len(data), *shape) <= LARGEST_INT32 else np.int64
    return sparse.csr_array((data, indices.astype(kind, copy=False), indptr.astype(kind, copy=False)), shape)


def require_compressed(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: tuple[int, int], what: str
) -> None:
    """Check the arrays of a CSR matrix of this shape (or of a CSC matrix, with the shape turned round).

    Parameters
    ----------
    data, indices, indptr
        The arrays of the matrix.
    shape
        Its rows and columns.
    what
        How messages call it.
    """
    rows, columns = shape
    for name, array in (("indices", indices), ("indptr", indptr)):
        # An empty list becomes an array of floats.
        if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
            raise TreelabelError(
                f"{what}: {name} of type {array.dtype} and shape {array.shape}, expected a list of integers"
            )
    if len(indptr) != rows + 1:
        raise TreelabelError(f"{what}: {len(indptr):,} row pointers for {rows:,} rows, expected one more than rows")
    if indptr[0] != 0 or indptr[-1] != len(indices) or len(data) != len(indices):
        raise TreelabelError(
            f"{what}: row pointers go from {indptr[0]} to {indptr[-1]}, expected 0 to the number of entries; there are "
            f"{len(indices):,} column numbers and {len(data):,} values"
        )
    # Compared rather than subtracted: differences of extreme numbers wrap round.
    falling = indptr[1:] < indptr[:-1]
    if falling.any():
        row = int(np.argmax(falling))
        raise TreelabelError(f"{what}: row {row} ends at {indptr[row + 1]}, before its start at {indptr[row]}")
    if len(indices) and not (indices.min() >= 0 and indices.max() < columns):
        entry = int(np.argmax((indices < 0) | (indices >= columns)))
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise TreelabelError(
            f"{what}: column {indices[entry]} in row {row}, but there are {columns:,} columns, 0 to {columns - 1:,}"
        )


def require_sound(matrix: Any, what: str) -> None:
    """Check a scipy matrix of any format before scipy converts it, which trusts its index arrays.

    Formats that have none (DIA, LIL, DOK) are checked by whoever uses what they are converted to.

    Parameters
    ----------
    matrix
        A scipy matrix or array.
    what
        How messages call it.
    """
    rows, columns = matrix.shape
    if matrix.format == "csr":
        require_compressed(matrix.data, matrix.indices, matrix.indptr, (rows, columns), what)
    elif matrix.format == "csc":
        require_compressed(matrix.data, matrix.indices, matrix.indptr, (columns, rows), what)
    elif matrix.format == "bsr":
        height, width = matrix.data.shape[1:] if matrix.data.ndim == 3 and matrix.data.size else (1, 1)
        blocks = (rows // height, columns // width)
        require_compressed(matrix.data, matrix.indices, matrix.indptr, blocks, what)
    elif matrix.format == "coo":
        for axis, coordinates in enumerate(matrix.coords):
            size = matrix.shape[axis]
            if len(coordinates) != len(matrix.data) or (
                len(coordinates) and not (coordinates.min() >= 0 and coordinates.max() < size)
            ):
                raise TreelabelError(f"{what}: entries outside the {rows:,} rows x {columns:,} columns")


def sound_csr(matrix: Any, what: str, dtype: Any = None) -> sparse.csr_array:
    """Bring a scipy matrix of any format to CSR; one whose index arrays are broken is refused.

    Parameters
    ----------
    matrix
        A scipy matrix or array.
    what
        How messages call it.
    dtype
        The type that the values get; None keeps theirs.

    Returns
    -------
    csr_array

    >>> sound_csr(sparse.csc_array([[0.0, 2.0]]), "scores").indices.tolist()
    [1]
    """
    require_sound(matrix, what)
    made = sparse.csr_array(matrix, dtype=dtype)
    if matrix.format in ("dia", "lil", "dok"):
        require_sound(made, what)
    return made


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


def entries(matrix: Any, rows: Any, columns: Any) -> DoubleArray:
    """Return the entries of a dense or sparse matrix at these rows and columns, 0 where a sparse one has none.

    >>> entries(sparse.csr_array([[0.5, 0.0]]), [0, 0], [0, 1]).tolist(), entries(np.ones((1, 2)), [0], [1]).tolist()
    ([0.5, 0.0], [1.0])
    """
    if not len(rows):
        return np.zeros(0)
    result = matrix[rows, columns]
    return np.asarray(result.toarray() if sparse.issparse(result) else result, np.float64).ravel()


def join_features(rows: sparse.csr_array, dense: FloatArray, share: float) -> sparse.csr_array:
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

    >>> both = join_features(sparse.csr_array(np.array([[2.0, 0.0]])), np.array([[3.0, 4.0]]), 0.36)
    >>> both.toarray().astype(float).round(2).tolist()
    [[0.8, 0.0, 0.36, 0.48]]
    """
    left = normalize_rows(rows, np.sqrt(1 - share))
    right = sparse.csr_array(normalize_rows(dense, np.sqrt(share)).astype(np.float32))
    return sparse.csr_array(sparse.hstack([left, right]), dtype=np.float32)
