"""Folds of documents, stratified by label, in which a stack leaves documents out."""

import numpy as np

from treelabel.core.types import LongArray
from treelabel.models.base import Training
from treelabel.selection.training import draw_folds, hold_out

# From this many documents on, one fold is left out instead of each in turn: weights are few.
MANY_DOCUMENTS = 20_000
LEFT_OUT_OF_MANY = 4_000


def make_folds(train: Training, cv: int, seed: int) -> list[LongArray]:
    """Divide documents into folds, stratified by label, or of whole groups where documents have groups.

    One document alone cannot be left out; of very many, one fold is enough.

    Parameters
    ----------
    train : Training
        Documents.
    cv : int
        The number of folds.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    list of arrays of int64
        The documents of each fold.
    """
    documents, rng = len(train), np.random.default_rng(seed)
    if train.groups is not None:
        folds = draw_folds(documents, cv, seed, train.groups)
        if documents >= MANY_DOCUMENTS:
            folds = [hold_out(documents, LEFT_OUT_OF_MANY, seed, train.groups)]
        return [rng.permutation(fold) for fold in folds if len(fold)]
    order = rng.permutation(documents)
    if documents >= MANY_DOCUMENTS:
        return [order[:LEFT_OUT_OF_MANY]]
    terminals = train.hierarchy.most_specific(train.labels)
    first = np.full(documents, -1)
    some = np.diff(terminals.indptr) > 0
    first[some] = terminals.indices[terminals.indptr[:-1][some]]
    dealt = order[np.argsort(first[order], kind="stable")]
    folds = [dealt[start::cv] for start in range(cv)] if documents > 1 else []
    rng = np.random.default_rng(seed)
    return [rng.permutation(fold) for fold in folds if len(fold)]
