"""Losses that judge groups of outputs, and of a document only the groups that its labels open."""

from abc import abstractmethod
from typing import NamedTuple

from treelabel.core.types import IntArray, LongArray
from treelabel.neural.losses.base import Loss, Truth


class Groups(NamedTuple):
    """Groups of outputs: those of group g are idx[ptr[g]:ptr[g + 1]]. Group 0 holds the top labels."""

    ptr: LongArray
    idx: IntArray


class GroupedLoss(Loss):
    """A loss with one output per node that judges groups of siblings: a document costs the groups along its paths."""

    @property
    @abstractmethod
    def groups(self) -> Groups:
        """The groups of outputs; every output is in one."""

    @abstractmethod
    def open_groups(self, truth: Truth) -> tuple[LongArray, IntArray]:
        """Return the groups that documents are judged in: those of document i are idx[ptr[i]:ptr[i + 1]], ascending."""
