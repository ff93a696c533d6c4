"""The truth about documents as a few index tensors: a training set is prepared once, and batches are taken from it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from treelabel.core.types import LongArray
from treelabel.neural.losses.groups import Groups

# A group with more than one in this many outputs is a wide one, so that there are at most this many. Small groups are
# not worth it.
WIDE = 16
LEAST_WIDE = 64


@dataclass(frozen=True, eq=False)
class Batch:
    """The truth about some documents, as positions in tensors that are laid out in one line.

    `true` are positions in documents x outputs, for losses that judge all outputs. Grouped losses have, for each wide
    group, a slice of outputs, in `wide`: the documents that are judged in it, and what is true as positions in these
    documents x the slice. Members of other groups are at the positions `judged` in documents x outputs, ascending, of
    which the places `found` are true; the groups have `sizes`, and belong to the documents `owner`.
    """

    true: Tensor
    wide: tuple[tuple[Tensor, Tensor], ...]
    judged: Tensor
    found: Tensor
    sizes: Tensor
    owner: Tensor


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths: row i is idx[ptr[i]:ptr[i + 1]]."""

    ptr: LongArray
    idx: LongArray

    @classmethod
    def of(cls, ptr: Any, idx: Any) -> "Ragged":
        """Take arrays of any integers.

        Parameters
        ----------
        ptr
            Where rows begin.
        idx
            The entries of all rows.

        Returns
        -------
        Ragged
        """
        return cls(np.asarray(ptr, np.int64), np.asarray(idx, np.int64))

    def take(self, rows: LongArray) -> tuple[LongArray, LongArray]:
        """Put some rows in one line; return for each entry the number of its row among these, and the entry.

        >>> [found.tolist() for found in Ragged.of([0, 2, 3], [7, 8, 9]).take(np.array([1, 0]))]
        [[0, 1, 1], [9, 7, 8]]
        """
        sizes = self.ptr[rows + 1] - self.ptr[rows]
        row = np.repeat(np.arange(len(rows)), sizes)
        return row, self.idx[np.arange(len(row)) + (self.ptr[rows] - np.cumsum(sizes) + sizes)[row]]


@dataclass(frozen=True, eq=False)
class IndexedLabels:
    """The truth about a whole training set: true outputs, and for grouped losses the groups that are judged.

    `groups` are those that each document is judged in, `members` the outputs of each group, and `slices` the wide ones
    among the groups, with their first output and one past their last.
    """

    outputs: int
    true: Ragged
    groups: Ragged
    members: Ragged
    slices: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, outputs: int, true: Ragged) -> "IndexedLabels":
        """Take true outputs alone, for losses that judge all outputs at once.

        Parameters
        ----------
        outputs
            The number of outputs.
        true
            The true outputs of each document.

        Returns
        -------
        IndexedLabels
        """
        return cls(outputs, true, Ragged.of(np.zeros(len(true.ptr)), []), Ragged.of([0], []), ())

    def __len__(self) -> int:
        return len(self.true.ptr) - 1

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> Batch:
        """Return the truth about some documents; takes their true labels, and siblings of these in groups not wide.

        Parameters
        ----------
        rows
            The numbers of the documents.
        device
            Where tensors are put.

        Returns
        -------
        Batch
        """
        row, true = self.true.take(rows)
        owner, group = self.groups.take(rows)
        narrow, below, wide = np.ones(len(group), np.bool_), np.ones(len(true), np.bool_), []
        for number, first, last in self.slices:
            inside, here = (true >= first) & (true < last), group == number
            place = np.searchsorted(owner[here], row[inside]) * (last - first) + true[inside] - first
            wide.append((torch.from_numpy(owner[here]).to(device), torch.from_numpy(place).to(device)))
            narrow, below = narrow & ~here, below & ~inside
        position, owner, group = row * self.outputs + true, owner[narrow], group[narrow]
        of_group, member = self.members.take(group)
        judged = owner[of_group] * self.outputs + member
        if np.any(judged[1:] < judged[:-1]):
            # Only in a DAG, whose groups are not slices; the sizes then still add up to those of documents.
            judged.sort()
        found = np.searchsorted(judged, position[below])
        arrays = (judged, found, np.diff(self.members.ptr)[group], owner)
        tensors = [torch.from_numpy(array).to(device) for array in (position, *arrays)]
        return Batch(tensors[0], tuple(wide), *tensors[1:])


def wide_slices(groups: Groups) -> tuple[tuple[int, int, int], ...]:
    """Find group 0, the top labels, and all wide groups: the number, the first output, and one past the last.

    In a DAG a group need not be a slice of outputs; then it is none of these.
    """
    ptr, members = groups
    sizes = np.diff(ptr)
    wide = (sizes * WIDE >= len(members)) & (sizes >= LEAST_WIDE)
    wide[:1] = True
    found = (
        (int(group), int(members[ptr[group]]), int(members[ptr[group + 1] - 1]) + 1) for group in np.flatnonzero(wide)
    )
    return tuple((group, first, last) for group, first, last in found if last - first == sizes[group])
