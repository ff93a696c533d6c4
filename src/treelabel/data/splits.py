"""Splits of datasets: random, stratified, by group or time, folds, few examples per class."""

from collections.abc import Mapping
from typing import Final, Literal, get_args

import numpy as np
import pyarrow as pa
from scipy import sparse

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.data.dataset import Dataset, values_of_column
from treelabel.data.equal_texts import text_codes, units
from treelabel.hierarchy.label_matrices import LabelMatrix, row_numbers, row_sizes

SplitBy = Literal["random", "stratified", "group", "time"]
# How much the size of a part counts beside the frequency of one label in it. Much more than 1, as rare labels, which
# no part can have its share of, would otherwise draw all their groups to the largest part.
SIZE_WEIGHT: Final = 10.0


def split(
    data: Dataset,
    parts: Mapping[str, float],
    by: SplitBy = "stratified",
    column: str | None = None,
    seed: int = 0,
    group: str | None = None,
    keep_duplicates: bool = True,
) -> dict[str, Dataset]:
    """Divide a dataset into named parts.

    Documents of one group are never divided, if `group` or the dataset says what their groups are, and neither are
    those with the same text, so that nothing is tested on what it was trained on.

    - random: any document anywhere.
    - stratified: every leaf in about its share in each part. A leaf with too few documents for all parts has them in
      the first part before any other, so nothing is tested that was never trained. Documents with several labels count
      for their rarest. With groups, every label has about its share in each part as far as whole groups allow.
    - group: stratified, with the groups in `column` if that is given.
    - time: sorted by `column`, the earliest in the first part; equal values stay together.

    Parameters
    ----------
    data : Dataset
        What to divide.
    parts : mapping of str to float
        Names and shares, which must sum to 1.
    by : "random", "stratified", "group" or "time"
        How documents are assigned.
    column : str, optional
        The column of the group or the time.
    seed : int
        Seed of the random numbers.
    group : str, optional
        The column whose equal values stay together; by default that of the dataset. A split by time takes none.
    keep_duplicates : bool
        Whether documents with the same text, case and spacing aside, stay together. A split by time divides them.

    Returns
    -------
    dict of str to Dataset
        Documents keep their order inside a part.

    >>> from treelabel.data.sample import load_sample
    >>> {name: len(part) for name, part in split(load_sample(), {"train": 0.8, "test": 0.2}).items()}
    {'train': 7016, 'test': 1754}
    """
    shares = np.array(list(parts.values()), np.float64)
    if len(shares) < 2 or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise TreelabelError(f"expected at least two shares above 0 that sum to 1, found {dict(parts)}")
    rng = np.random.default_rng(seed)
    if by not in get_args(SplitBy):
        raise TreelabelError(f"unknown way to split {by!r}; expected random, stratified, group or time")
    group_column = group if group is not None else data.group
    if by == "group":
        group_column = column if column is not None else group_column
    if (by == "group" and group_column is None) or (by == "time" and column is None):
        listed = ", ".join(data.extra) or "none besides id, text and labels"
        raise TreelabelError(f"splitting by {by} needs the name of a column; there are: {listed}")
    whole = _units(data, group_column, by, keep_duplicates)
    if whole is not None:
        assigned = _whole_units(data, whole, by, shares, rng)
    elif by == "random":
        assigned = _by_order(rng.permutation(len(data)), shares)
    elif by == "stratified":
        assigned = _deal_by_label(data, shares, rng)
        _move_rare_to_first(data, assigned, rng)
    else:
        assigned = _by_time(*_column_codes(data, str(column), as_time=True), shares)
    return {name: data[np.flatnonzero(assigned == index)] for index, name in enumerate(parts)}


def folds(data: Dataset, count: int = 3, seed: int = 0, keep_duplicates: bool = False) -> list[LongArray]:
    """Divide documents into folds for cross-validation, each with about its share of every label.

    Unlike `split`, no fold is favoured with the rare labels. Documents of one group are in one fold.

    Parameters
    ----------
    data : Dataset
        What to divide.
    count : int
        The number of folds.
    seed : int
        Seed of the random numbers.
    keep_duplicates : bool
        Whether documents with the same text are in one fold, too.

    Returns
    -------
    list of arrays of int64
        Row numbers of each fold, increasing.

    >>> from treelabel.data.sample import load_sample
    >>> [len(rows) for rows in folds(load_sample(), 3)]
    [2924, 2923, 2923]
    """
    if count < 2:
        raise TreelabelError(f"expected at least 2 folds, found {count}")
    rng, shares = np.random.default_rng(seed), np.full(count, 1 / count)
    whole = _units(data, data.group, "stratified", keep_duplicates)
    assigned = (
        _deal_by_label(data, shares, rng) if whole is None else _whole_units(data, whole, "stratified", shares, rng)
    )
    sizes = np.bincount(assigned, minlength=count)
    if not sizes.all():
        what = "documents" if data.group is None else f"groups of column {data.group!r}"
        raise TreelabelError(f"there are too few {what} for {count} folds")
    return [np.flatnonzero(assigned == fold).astype(np.int64) for fold in range(count)]


def _units(data: Dataset, group: str | None, by: SplitBy, keep_duplicates: bool) -> LongArray | None:
    """Number what must not be divided: groups, and documents with the same text; None if all stand alone."""
    if group is not None and by == "time":
        raise TreelabelError(
            f"a split by time would divide the groups of column {group!r}; split by time without groups, or by group"
        )
    groups = None if group is None else _column_codes(data, group, as_time=False)[0]
    if not keep_duplicates or by == "time" or data.features is not None:
        return groups
    codes = text_codes(data.texts)[0]
    has_copies = len(codes) and np.bincount(codes[codes >= 0], minlength=1).max() > 1
    return units(codes, groups) if has_copies else groups


def _whole_units(
    data: Dataset, whole: LongArray, by: SplitBy, shares: DoubleArray, rng: np.random.Generator
) -> LongArray:
    return (
        fill_parts(whole, shares, rng) if by == "random" else fill_parts_alike(whole, data.closed_labels, shares, rng)
    )


def _by_order(order: LongArray, shares: DoubleArray) -> LongArray:
    """Assign the first documents of an order to the first part, and so on, with exact sizes."""
    ends = np.round(np.cumsum(shares) * len(order)).astype(np.int64)
    assigned = np.empty(len(order), np.int64)
    assigned[order] = np.searchsorted(ends, np.arange(len(order)), side="right").clip(max=len(shares) - 1)
    return assigned


def _deal_by_label(data: Dataset, shares: DoubleArray, rng: np.random.Generator) -> LongArray:
    key = rarest_label(data)
    h = data.hierarchy
    parent = np.where(key >= 0, h.parent_idx[h.parent_ptr[np.maximum(key, 0)]], -1) if len(h) else key
    # Neighbours in this order share a label, or a parent: rare leaves are spread evenly together with their siblings.
    order = np.lexsort((rng.random(len(data)), key, parent))
    assigned = np.empty(len(data), np.int64)
    # Documents go to parts in turn, always to the part that is furthest behind its share; the first wins ties. Part p
    # gets its j-th document when (j - 1/2) / share is due; sorting the due times deals to all parts at once.
    sizes = np.floor(shares * len(data)).astype(np.int64) + 1
    due = np.concatenate([(np.arange(size) + 0.5) / share for size, share in zip(sizes, shares, strict=True)])
    part = np.repeat(np.arange(len(shares)), sizes)
    assigned[order] = part[np.lexsort((part, due))][: len(data)]
    return assigned


def rarest_label(data: Dataset) -> LongArray:
    """Return the rarest most specific label of each document (-1: none)."""
    terminal = data.hierarchy.most_specific(data.labels)
    frequency = np.bincount(terminal.indices, minlength=len(data.hierarchy))
    order = np.lexsort((terminal.indices, frequency[terminal.indices], row_numbers(terminal)))
    key = np.full(len(data), -1, np.int64)
    some = row_sizes(terminal) > 0
    key[some] = terminal.indices[order][terminal.indptr[:-1][some]]
    return key


def _move_rare_to_first(data: Dataset, assigned: LongArray, rng: np.random.Generator) -> None:
    """Swap documents so that every most specific label has one in the first part; sizes do not change."""
    terminal = data.hierarchy.most_specific(data.labels)
    rows = row_numbers(terminal)
    held = np.bincount(terminal.indices[assigned[rows] == 0], minlength=len(data.hierarchy))
    labels, first = np.unique(terminal.indices, return_index=True)
    missing = held[labels] == 0
    donors = iter(rng.permutation(np.flatnonzero(assigned == 0)).tolist())

    def labels_of(row: int) -> IntArray:
        labels: IntArray = terminal.indices[terminal.indptr[row] : terminal.indptr[row + 1]]
        return labels

    for label, taken in zip(labels[missing].tolist(), rows[first[missing]].tolist(), strict=True):
        if held[label]:
            continue
        donor = next((row for row in donors if (held[labels_of(row)] > 1).all()), None)
        if donor is None:
            return
        held[labels_of(donor)] -= 1
        held[labels_of(taken)] += 1
        assigned[donor], assigned[taken] = assigned[taken], 0


def _column_codes(data: Dataset, column: str, as_time: bool) -> tuple[LongArray, LongArray]:
    """Number the values of a column, and rank them in their order."""
    values = values_of_column(data, column, "split by")
    if as_time and pa.types.is_string(values.type) | pa.types.is_large_string(values.type):
        values = _times(values, column)
    try:
        coded = values.dictionary_encode()
        order = pa.compute.array_sort_indices(coded.dictionary).to_numpy()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise TreelabelError(f"cannot split by column {column!r}: its values are of type {values.type}") from None
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return coded.indices.to_numpy().astype(np.int64), rank


def _times(values: pa.Array, column: str) -> pa.Array:
    """Read times that were written as text: numbers, or dates that begin with the year."""
    times = pa.compute.utf8_trim_whitespace(values)
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return times.cast(kind)
        except pa.ArrowInvalid:
            continue
    raise TreelabelError(
        f"cannot sort by column {column!r}: expected numbers or dates such as 2024-01-31, found {times[0]}"
    )


def _by_time(codes: LongArray, rank: LongArray, shares: DoubleArray) -> LongArray:
    """Cut the sorted values at the shares; a value is whole in the part where its middle document falls."""
    position = rank[codes]
    sizes = np.bincount(position)
    middle = np.cumsum(sizes) - sizes / 2
    ends = np.cumsum(shares) * len(codes)
    return np.searchsorted(ends, middle, side="right").clip(max=len(shares) - 1)[position]


def per_class(data: Dataset, count: int = 1, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Draw `count` random documents of each class (most specific label) and return (these, all others).

    The few-shot setting of "A hierarchical loss and its problems": at most one training sample per class. Documents
    with several labels count for their rarest; those without labels are among the others.

    Parameters
    ----------
    data
        A dataset.
    count
        How many documents of each class to draw.
    seed
        Draws the same documents again.

    Returns
    -------
    (Dataset, Dataset)
    """
    if data.group is not None:
        raise TreelabelError(
            f"drawing documents per class would divide the groups of column {data.group!r}; read the data without "
            "groups"
        )
    if count < 1:
        raise TreelabelError(f"expected at least 1 document per class, found {count}")
    key = rarest_label(data)
    order = np.lexsort((np.random.default_rng(seed).random(len(data)), key))
    ordered = key[order]
    first = np.searchsorted(ordered, ordered)
    taken = np.zeros(len(data), np.bool_)
    taken[order] = (np.arange(len(data)) - first < count) & (ordered >= 0)
    return data[np.flatnonzero(taken)], data[np.flatnonzero(~taken)]


# Groups, each whole in one part


def fill_parts(groups: LongArray, shares: DoubleArray, rng: np.random.Generator) -> LongArray:
    """Assign documents to parts by their groups: the largest first, each to the part furthest behind its size.

    Groups are numbered from 0, and those of the same size are ordered at random.

    >>> fill_parts(np.array([0, 0, 0, 1, 2]), np.array([0.6, 0.4]), np.random.default_rng(0)).tolist()
    [0, 0, 0, 1, 1]
    """
    sizes = np.bincount(groups)
    left = shares * len(groups)
    part = np.empty(len(sizes), np.int64)
    for group in _largest_first(sizes, rng).tolist():
        part[group] = int(np.argmax(left))
        left[part[group]] -= sizes[group]
    return part[groups]


def fill_parts_alike(
    groups: LongArray, labels: LabelMatrix, shares: DoubleArray, rng: np.random.Generator
) -> LongArray:
    """Assign documents to parts by their groups so that each part has about its share of every label.

    The largest group first, each goes to the part in which it adds least to the sum over labels and parts of
    (documents there - documents expected there)^2 / documents expected there, the sizes of parts included. This is the
    idea of scikit-learn's StratifiedGroupKFold, for parts of any shares and documents with several labels. Costs
    parts x labels of all groups.

    Groups are numbered from 0, and those of the same size are ordered at random.

    >>> labels = sparse.csr_array(np.array([[1, 0], [1, 0], [0, 1], [0, 1]], bool))
    >>> fill_parts_alike(np.arange(4), labels, np.array([0.5, 0.5]), np.random.default_rng(0)).tolist()
    [1, 0, 0, 1]
    """
    sizes = np.bincount(groups)
    member = sparse.csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))), (len(sizes), len(groups)))
    counts = sparse.csr_array(member @ labels.astype(np.float64))
    total = np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.float64)
    order = _largest_first(sizes, rng)
    ptr = counts.indptr.astype(np.int64)
    part = assign(ptr, counts.indices.astype(np.int32), counts.data, total, sizes.astype(np.int64), shares, order)
    return part[groups]


def _largest_first(sizes: LongArray, rng: np.random.Generator) -> LongArray:
    order = rng.permutation(len(sizes))
    return order[np.argsort(-sizes[order], kind="stable")]


@kernel
def assign(
    ptr: LongArray,
    nodes: IntArray,
    counts: DoubleArray,
    total: DoubleArray,
    sizes: LongArray,
    shares: DoubleArray,
    order: LongArray,
) -> LongArray:
    """Assign each group to the part in which it adds least to the squared distances from what is expected."""
    held = np.zeros((len(shares), len(total)))
    filled = np.zeros(len(shares))
    documents = sizes.sum()
    part = np.zeros(len(sizes), np.int64)
    for group in order:
        least = np.inf
        for index in range(len(shares)):
            expected = shares[index] * documents
            rise = SIZE_WEIGHT * sizes[group] * (2 * (filled[index] - expected) + sizes[group]) / expected
            for entry in range(ptr[group], ptr[group + 1]):
                expected = shares[index] * total[nodes[entry]]
                rise += counts[entry] * (2 * (held[index, nodes[entry]] - expected) + counts[entry]) / expected
            if rise < least:
                least, part[group] = rise, index
        filled[part[group]] += sizes[group]
        for entry in range(ptr[group], ptr[group + 1]):
            held[part[group], nodes[entry]] += counts[entry]
    return part
