"""Which documents are held out together: folds of a random order, or of whole groups."""

import numpy as np

from treelabel.core.types import LongArray


def draw_folds(documents: int, count: int, seed: int, groups: LongArray | None = None) -> list[LongArray]:
    """Divide documents into folds of about the same size, at random.

    Parameters
    ----------
    documents : int
        The number of documents.
    count : int
        Folds at most; there are no empty ones, unless there is but one document or group.
    seed : int
        Seed of the order.
    groups : array of shape (documents,) or None
        Numbers from 0 on; documents with the same number come into the same fold.

    Returns
    -------
    list of arrays of int64
        Row numbers, increasing.

    >>> [fold.tolist() for fold in draw_folds(4, 2, 0, np.array([0, 1, 1, 0]))]
    [[0, 3], [1, 2]]
    """
    unit = np.arange(documents) if groups is None else groups
    sizes = np.bincount(unit)
    order = np.random.default_rng(seed).permutation(len(sizes))
    order = order[sizes[order] > 0]
    # Large groups first, each to the fold that is smallest so far; where all are alike, that deals them out in turn.
    order = order[np.argsort(-sizes[order], kind="stable")]
    count = max(1, min(count, len(order)))
    fold_of, filled = np.zeros(len(sizes), np.int64), np.zeros(count)
    if groups is None:
        fold_of[order] = np.arange(len(order)) % count
    else:
        for group in order.tolist():
            fold_of[group] = int(np.argmin(filled))
            filled[fold_of[group]] += sizes[group]
    if count == 1:
        return [np.zeros(0, np.int64)]
    return [np.flatnonzero(fold_of[unit] == fold).astype(np.int64) for fold in range(count)]


def hold_out(documents: int, wanted: int, seed: int, groups: LongArray | None = None) -> LongArray:
    """Draw documents to hold out: as many as are wanted, or whole groups of about as many; one is always left.

    Parameters
    ----------
    documents : int
        The number of documents.
    wanted : int
        How many to hold out.
    seed : int
        Seed of the order.
    groups : array of shape (documents,) or None
        Documents with the same number are held out together. Groups that would exceed what is wanted by more than a
        quarter are passed over; where there are no others, the smallest one is held out.

    Returns
    -------
    array of int64
        Row numbers, increasing.

    >>> hold_out(5, 2, 0).tolist(), hold_out(1, 1, 0).tolist()
    ([2, 4], [])
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        drawn: LongArray = np.sort(rng.permutation(documents)[: min(wanted, documents - 1)])
        return drawn
    sizes = np.bincount(groups)
    order = rng.permutation(len(sizes))
    # The last group stays, whatever is wanted.
    order = order[sizes[order] > 0][:-1]
    taken, count = [], 0
    for group in order.tolist():
        # A large group may be most of the documents; there are others.
        if count < wanted and count + sizes[group] <= wanted + max(1, wanted // 4):
            taken.append(group)
            count += int(sizes[group])
    if not taken and wanted > 0 and len(order):
        taken = [int(order[np.argmin(sizes[order])])]
    found: LongArray = np.flatnonzero(np.isin(groups, taken)).astype(np.int64)
    return found
