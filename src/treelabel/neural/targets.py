"""True labels alongside what a loss takes, for networks that look at labels themselves in training."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from treelabel.core.types import LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import PreparedLabels


class NodeTargets(NamedTuple):
    """The truth about some documents: as the loss takes it, and the true nodes (documents × nodes, 1 or 0)."""

    truth: Any
    nodes: Tensor


@dataclass(frozen=True, eq=False)
class PreparedTargets:
    """The labels of a training set, closed under ancestors, alongside what a loss prepared of them."""

    prepared: PreparedLabels
    closed: LabelMatrix

    @classmethod
    def of(cls, loss: Loss, labels: Any) -> "PreparedTargets":
        """Prepare labels, documents × nodes, closed or not."""
        return cls(loss.prepare(labels), loss.hierarchy.closure(labels))

    def __len__(self) -> int:
        return len(self.prepared)

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> NodeTargets:
        """Return the truth about some documents."""
        nodes = torch.from_numpy(self.closed[rows].toarray()).float()
        return NodeTargets(self.prepared.batch(rows, device), nodes.to(device))


@dataclass(frozen=True, eq=False)
class LabelTargets:
    """The true labels of a training set, documents × labels, for networks with a loss of their own."""

    labels: sparse.csr_array

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    def batch(self, rows: LongArray, device: torch.device | str | None = None) -> Tensor:
        """Return the true labels of some documents as ones among zeros, documents × labels."""
        return torch.from_numpy(self.labels[rows].toarray().astype(np.float32)).to(device)
