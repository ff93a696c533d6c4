"""Findings about documents with the same text: in one file with the same or other labels, and in training and test."""

import numpy as np

from treelabel.core.errors import quote, shorten
from treelabel.core.types import LongArray
from treelabel.data.checks.finding import EXAMPLES, Finding, Inspected, counted, labels_of, place, share


def repeated(codes: LongArray, label_sets: LongArray) -> tuple[LongArray, LongArray]:
    """Find documents with the text of an earlier one.

    Parameters
    ----------
    codes : array of shape (documents,)
        Numbers of texts; -1 for empty ones, which repeat nothing.
    label_sets : array of shape (documents,)
        Numbers of label sets.

    Returns
    -------
    (array of shape (documents,), array of shape (documents,))
        The first document with the same text and label set as each, and the first with the same text: itself, where
        it is the first.

    >>> repeated(np.array([0, 0, 0, -1, -1]), np.array([7, 8, 7, 7, 7]))[0].tolist()
    [0, 1, 0, 3, 4]
    >>> repeated(np.array([0, 0, 0, -1, -1]), np.array([7, 8, 7, 7, 7]))[1].tolist()
    [0, 0, 0, 3, 4]
    """
    alone = np.where(codes < 0, codes.max(initial=-1) + 1 + np.arange(len(codes)), codes)
    pairs = np.stack([alone, label_sets], axis=1)
    return _firsts(pairs), _firsts(pairs[:, :1])


def _firsts(keys: LongArray) -> LongArray:
    order = np.lexsort((np.arange(len(keys)), *keys.T))
    ordered = keys[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[np.flatnonzero(is_new)][np.cumsum(is_new) - 1] if len(order) else order
    return first


def find_copies(inspected: Inspected) -> Finding | None:
    """Find documents with the text and the labels of an earlier one."""
    if inspected.data.features is not None:
        return None
    same, _ = repeated(inspected.codes, inspected.label_sets)
    rows = np.flatnonzero(same != np.arange(len(same)))
    if not len(rows):
        return None
    return Finding(
        "copies",
        len(rows),
        f"{share(len(rows), len(same), 'repeat')} the text and the labels of an earlier one",
        tuple(
            f"{inspected.where(row)} as {inspected.where(int(same[row]))}: {_start(inspected.data.texts[row])}"
            for row in rows[:EXAMPLES].tolist()
        ),
        "--fix OUT keeps the first of each; split keeps copies together",
        is_fixed=True,
    )


def find_contradictions(inspected: Inspected) -> Finding | None:
    """Find texts that stand in the file several times, with different labels."""
    if inspected.data.features is not None:
        return None
    same, first = repeated(inspected.codes, inspected.label_sets)
    # A document that is the first of its text and labels, but not of its text, has other labels than that one.
    other = np.flatnonzero((same == np.arange(len(same))) & (first != same))
    if not len(other):
        return None
    texts = np.unique(first[other])
    rows = int(np.isin(first, texts).sum())
    return Finding(
        "contradictions",
        rows,
        f"{counted(len(texts), 'text has', 'texts have')} different labels in different rows ({rows:,} documents)",
        tuple(
            f"{inspected.where(int(first[row]))}: {inspected.given(int(first[row]))}, but {inspected.where(row)}: "
            f"{inspected.given(row)} for {_start(inspected.data.texts[row])}"
            for row in other[:EXAMPLES].tolist()
        ),
        "decide which is right: treelabel audit FILE ranks them; or, if a text may have several labels, join them: "
        "treelabel convert FILE OUT --deduplicate",
        is_serious=True,
    )


def find_shared_texts(inspected: Inspected) -> Finding | None:
    """Find texts that are in the training data, too."""
    train = inspected.train
    if train is None or inspected.data.features is not None:
        return None
    known, first = np.unique(inspected.train_codes, return_index=True)
    codes = inspected.codes
    shared = np.flatnonzero((codes >= 0) & np.isin(codes, known))
    if not len(shared):
        return None

    def told(row: int) -> str:
        there = int(first[np.searchsorted(known, codes[row])])
        own, learned = inspected.given(row), labels_of(train, there)
        labels = own if own == learned else f"{own}, in training {learned}"
        text = _start(inspected.data.texts[row])
        return f"{inspected.where(row)} is {place(train, there)} of training: {text} ({labels})"

    return Finding(
        "shared_texts",
        len(shared),
        f"{len(shared):,} of {len(codes):,} texts {'is' if len(shared) == 1 else 'are'} in the training data, too, "
        "where a model sees their labels",
        tuple(told(row) for row in shared[:EXAMPLES].tolist()),
        "treelabel convert FILE OUT --without TRAIN leaves them out; treelabel split keeps duplicates together",
        is_serious=True,
    )


def _start(text: str) -> str:
    return quote(shorten(" ".join(text.split()), 60))
