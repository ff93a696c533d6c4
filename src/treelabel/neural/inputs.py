"""The inputs of a network: tokens of a transformer that is trained, or vectors that are known already."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from treelabel.core.types import LongArray

# Batches of similar length are formed among this many batches' worth of documents that stand together by chance.
POOL = 50


class Inputs(Protocol):
    """The documents as a network takes them: `Tokens` or `KnownVectors`."""

    @property
    def lengths(self) -> LongArray:
        """The length of each document."""

    def batch(self, rows: LongArray) -> tuple[Tensor, ...]:
        """Return the tensors that the network takes of some documents."""


@dataclass(frozen=True, eq=False)
class KnownVectors:
    """Documents whose vectors are known: documents × width."""

    values: Tensor

    @property
    def width(self) -> int:
        """The width of a vector."""
        return int(self.values.shape[1])

    @property
    def lengths(self) -> LongArray:
        """Ones: all documents have the same length."""
        return np.ones(len(self.values), np.int64)

    def batch(self, rows: LongArray) -> tuple[Tensor]:
        """Return the rows of some documents."""
        return (self.values[torch.from_numpy(rows)],)


def epoch_batches(lengths: LongArray, batch_size: int, seed: int, epoch: int) -> list[LongArray]:
    """Split documents into batches of similar length, in an order that depends on seed and epoch alone.

    Parameters
    ----------
    lengths
        The length of each document.
    batch_size
        Documents per batch.
    seed
        The seed of the whole training.
    epoch
        The number of the epoch.

    Returns
    -------
    list[LongArray]
        The row numbers of each batch; every document is in one of them.

    >>> [rows.tolist() for rows in epoch_batches(np.array([9, 1, 8, 2]), 2, seed=0, epoch=0)]
    [[2, 0], [1, 3]]
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    pools = (order[start : start + POOL * batch_size] for start in range(0, len(order), POOL * batch_size))
    batches: list[LongArray] = []
    for pool in pools:
        alike = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [alike[start : start + batch_size] for start in range(0, len(alike), batch_size)]
    return [batches[place] for place in rng.permutation(len(batches))]
