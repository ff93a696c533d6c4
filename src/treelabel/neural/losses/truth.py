"""The truth about documents as a few index tensors: a training set is prepared once, and batches are taken from it."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from treelabel.core.types import LongArray
from treelabel.neural.losses.layout import Ragged

# A group with more than one in this many outputs is a wide one, so that there are at most this many. Small groups are
# not worth it.
WIDE = 16
LEAST_WIDE = 64


class PreparedLabels(Protocol):
    """The labels of a training set, ready for batches to be taken from."""

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> Any:
        """Return the truth about the documents `rows`, on a device, as the loss that prepared it takes it."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The truth about some documents.

    `true` are positions of true outputs in documents x outputs, flattened. Conditional losses also have, for each wide
    group, a slice of outputs, in `wide`: the documents that are judged in it, and what is true as positions in these
    documents x the slice. Members of other groups have the positions `members` in documents x outputs, ascending; of
    these the ones at `true_members` are true; the groups have `sizes`, and belong to the documents `owner`.
    """

    true: Tensor
    wide: tuple[tuple[Tensor, Tensor], ...]
    members: Tensor
    true_members: Tensor
    sizes: Tensor
    owner: Tensor

    def dense(self, logits: Tensor) -> Tensor:
        """Return 1 for true outputs and 0 for others, of the shape and type of the logits."""
        result = torch.zeros_like(logits)
        result.view(-1).index_fill_(0, self.true, 1)
        return result

    def label_mask(self, logits: Tensor) -> Tensor:
        """Return 1 for documents with a true output and 0 for others: shape (documents, 1)."""
        return logits.new_zeros(len(logits), 1).index_fill_(0, self.true // logits.shape[1], 1)

    def classes(self, logits: Tensor) -> Tensor:
        """Return the true output of each document that has one, else -100, which `cross_entropy` ignores."""
        return class_indices(self.true, logits)


def class_indices(true: Tensor, logits: Tensor) -> Tensor:
    """Return the true output of each document, -100 without one; `true` are positions in documents x outputs."""
    result = torch.full((len(logits),), -100, device=logits.device)
    result[true // logits.shape[1]] = true % logits.shape[1]
    return result


@dataclass(frozen=True, eq=False)
class IndexedLabels:
    """The truth about a whole training set: true outputs, and for conditional losses the groups that are judged.

    `groups` are those that each document is judged in, `members` the outputs of each group, and `slices` the wide ones
    among the groups, with their first output and one past their last.
    """

    outputs: int
    true: Ragged
    groups: Ragged
    members: Ragged
    slices: tuple[tuple[int, int, int], ...]

    @classmethod
    def without_groups(cls, outputs: int, true: Ragged) -> "IndexedLabels":
        """Take true outputs alone, for losses that judge all outputs at once."""
        return cls(outputs, true, Ragged.of(np.zeros(len(true.ptr)), []), Ragged.of([0], []), ())

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> Truth:
        """Return the truth about some documents; takes their true labels, and siblings of these in groups not wide."""
        row, true = self.true.take(rows)
        owner, group = self.groups.take(rows)
        narrow, below, wide = np.ones(len(group), np.bool_), np.ones(len(true), np.bool_), []
        for number, first, last in self.slices:
            inside, here = (true >= first) & (true < last), group == number
            position = np.searchsorted(owner[here], row[inside]) * (last - first) + true[inside] - first
            wide.append((torch.from_numpy(owner[here]).to(device), torch.from_numpy(position).to(device)))
            narrow, below = narrow & ~here, below & ~inside
        position, owner, group = row * self.outputs + true, owner[narrow], group[narrow]
        of_group, member = self.members.take(group)
        members = owner[of_group] * self.outputs + member
        if np.any(members[1:] < members[:-1]):
            # Only in a DAG, whose groups are not slices; the sizes then still add up to those of documents.
            members.sort()
        true_members = np.searchsorted(members, position[below])
        arrays = (members, true_members, self.members.sizes[group], owner)
        tensors = [torch.from_numpy(array).to(device) for array in (position, *arrays)]
        return Truth(tensors[0], tuple(wide), *tensors[1:])


def wide_slices(groups: Ragged) -> tuple[tuple[int, int, int], ...]:
    """Find group 0, the top labels, and all wide groups: the number, the first output, and one past the last.

    In a DAG a group need not be a slice of outputs; then it is none of these.
    """
    ptr, members, sizes = groups.ptr, groups.idx, groups.sizes
    wide = (sizes * WIDE >= len(members)) & (sizes >= LEAST_WIDE)
    wide[:1] = True
    slices = (
        (int(group), int(members[ptr[group]]), int(members[ptr[group + 1] - 1]) + 1) for group in np.flatnonzero(wide)
    )
    return tuple((group, first, last) for group, first, last in slices if last - first == sizes[group])


@dataclass(frozen=True, eq=False)
class LabelTargets:
    """The true labels of a training set, documents × labels, for networks with a loss of their own."""

    labels: sparse.csr_array

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> Tensor:
        """Return the true labels of some documents as ones among zeros, documents × labels."""
        return torch.from_numpy(self.labels[rows].toarray().astype(np.float32)).to(device)
