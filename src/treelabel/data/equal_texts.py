"""Which documents have the same text, case and spacing aside; and which belong together by that and by their group."""

from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.strings import Strings, text_digests
from treelabel.core.types import LongArray


def text_codes(*columns: Strings) -> list[LongArray]:
    """Number the texts of one or several columns: equal ones alike in all columns, -1 for empty ones.

    Parameters
    ----------
    *columns
        Columns of texts.

    Returns
    -------
    list of arrays of shape (texts,)
        One per column.

    >>> [codes.tolist() for codes in text_codes(Strings.of(["a", "b", "A "]), Strings.of(["", "b"]))]
    [[0, 1, 0], [-1, 1]]
    """
    digests = np.concatenate([text_digests(texts) for texts in columns])
    codes = np.where(digests.any(axis=1), _firsts(digests), -1)
    # The first of equal texts gives them their place in the order of the numbers.
    numbers = np.full(len(codes), -1, np.int64)
    numbers[codes >= 0] = np.unique(codes[codes >= 0], return_inverse=True)[1]
    return np.split(numbers, np.cumsum([len(texts) for texts in columns])[:-1])


def units(codes: LongArray, groups: LongArray | None = None) -> LongArray:
    """Number the documents that must not be divided: equal texts, and those of a group, and what hangs together so.

    Parameters
    ----------
    codes : array of shape (documents,)
        From `text_codes`; documents with -1 stand alone.
    groups : array of shape (documents,) or None
        The group of each document, numbered from 0.

    Returns
    -------
    array of shape (documents,)
        Numbers from 0 on.

    >>> units(np.array([0, 1, 0, -1])).tolist()
    [0, 1, 0, 2]
    >>> units(np.array([0, 1, 0, -1]), np.array([0, 0, 1, 2])).tolist()
    [0, 0, 0, 1]
    """
    count = len(codes)
    alone = codes < 0
    texts = codes.copy()
    texts[alone] = codes.max(initial=-1) + 1 + np.arange(int(alone.sum()))
    if groups is None:
        return number_in_order(texts)
    # Documents, texts and groups are nodes of one graph, whose connected components are the units.
    shape = (count, int(texts.max(initial=-1)) + 1 + int(groups.max(initial=-1)) + 1)
    columns = np.concatenate([texts, groups + texts.max(initial=-1) + 1])
    member = sparse.csr_array((np.ones(2 * count, np.int8), (np.tile(np.arange(count), 2), columns)), shape)
    graph = sparse.block_array([[None, member], [member.T, None]], format="csr")
    # It brings solvers along, which every command would wait for.
    from scipy.sparse import csgraph

    return number_in_order(csgraph.connected_components(graph, directed=False)[1][:count])


def number_in_order(numbers: LongArray) -> LongArray:
    """Number values anew, in the order in which they first occur."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def first_occurrences(codes: LongArray, label_sets: LongArray) -> tuple[LongArray, LongArray]:
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

    >>> first_occurrences(np.array([0, 0, 0, -1, -1]), np.array([7, 8, 7, 7, 7]))[0].tolist()
    [0, 1, 0, 3, 4]
    >>> first_occurrences(np.array([0, 0, 0, -1, -1]), np.array([7, 8, 7, 7, 7]))[1].tolist()
    [0, 0, 0, 3, 4]
    """
    alone = np.where(codes < 0, codes.max(initial=-1) + 1 + np.arange(len(codes)), codes)
    pairs = np.stack([alone, label_sets], axis=1)
    return _firsts(pairs), _firsts(pairs[:, :1])


def _firsts(keys: Any) -> LongArray:
    """Return the first row that is equal to each."""
    order = np.lexsort((np.arange(len(keys)), *keys.T))
    ordered = keys[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.empty(len(order), np.int64)
    first[order] = order[np.flatnonzero(is_new)][np.cumsum(is_new) - 1] if len(order) else order
    return first
