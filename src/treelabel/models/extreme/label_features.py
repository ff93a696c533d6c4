"""Features of labels, by which they are clustered and compared with documents: the mean of their documents."""

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel, over_rows
from treelabel.core.matrices import normalize_rows
from treelabel.core.types import BoolArray, FloatArray, IntArray, LongArray


def pifa(features: sparse.csr_array, labels: sparse.csr_array, most: int = 256) -> sparse.csr_array:
    """Compute the mean of each label's documents, scaled to length 1 (positive instance feature aggregation).

    A label without documents has an empty row. Costs the features of all documents, once for each of their labels.

    Parameters
    ----------
    features : csr_array of shape (documents, features)
        Documents.
    labels : csr_array of shape (documents, labels)
        Their labels.
    most : int
        Features of a label to keep at most, the largest: the others hardly change a cosine.

    Returns
    -------
    csr_array of shape (labels, features)
        float32.

    >>> found = pifa(sparse.csr_array([[1.0, 0], [0, 1]]), sparse.csr_array([[1, 0], [1, 1]]))
    >>> found.toarray().astype(float).round(2).tolist()
    [[0.71, 0.71], [0.0, 1.0]]
    """
    by_label = sparse.csc_array(labels)
    values = features.data.astype(np.float32, copy=False)

    def some(start: int, stop: int) -> tuple[LongArray, IntArray, FloatArray]:
        return sum_rows(
            features.indptr,
            features.indices,
            values,
            by_label.indptr,
            by_label.indices,
            features.shape[1],
            most,
            start,
            stop,
        )

    parts = over_rows(some, labels.shape[1], least=256, most=65_536)
    sizes, idx, val = (np.concatenate([part[which] for part in parts]) for which in range(3))
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    return normalize_rows(sparse.csr_array((val, idx, ptr), (labels.shape[1], features.shape[1])))


@kernel
def sum_rows(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    member_ptr: IntArray,
    members: IntArray,
    width: int,
    most: int,
    start: int,
    stop: int,
) -> tuple[LongArray, IntArray, FloatArray]:
    """Add up the rows of each group's members, and keep the largest sums: their number, places and values."""
    total, touched, seen = np.zeros(width, np.float32), np.empty(width, np.int32), np.zeros(width, np.bool_)
    sizes = np.zeros(stop - start, np.int64)
    found, sums = np.empty(1024, np.int32), np.empty(1024, np.float32)
    used = 0
    for group in range(start, stop):
        count = add_rows(ptr, idx, val, members[member_ptr[group] : member_ptr[group + 1]], total, touched, seen)
        places = touched[:count]
        if count > most:
            order = np.argsort(-np.abs(total[places]))[:most]
            kept = np.sort(places[order])
        else:
            kept = np.sort(places)
        while used + len(kept) > len(found):
            longer, larger = np.empty(2 * len(found), np.int32), np.empty(2 * len(found), np.float32)
            longer[:used], larger[:used] = found[:used], sums[:used]
            found, sums = longer, larger
        for place in kept:
            found[used], sums[used] = place, total[place]
            used += 1
        sizes[group - start] = len(kept)
        for place in places:
            total[place] = 0
            seen[place] = False
    return sizes, found[:used], sums[:used]


@kernel
def add_rows(
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    rows: IntArray,
    total: FloatArray,
    touched: IntArray,
    seen: BoolArray,
) -> int:
    """Add rows to a total, and list the places that are not listed yet; return how many are."""
    count = 0
    for row in rows:
        for at in range(ptr[row], ptr[row + 1]):
            place = idx[at]
            total[place] += val[at]
            if not seen[place]:
                seen[place] = True
                touched[count] = place
                count += 1
    return count
