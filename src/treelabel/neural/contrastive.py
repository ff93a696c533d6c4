"""The contrastive loss of texts in a hierarchy: those of one label attract each other, siblings are told apart.

This is the supervised contrastive loss (Khosla et al. 2020), one term per level of the hierarchy: at level d, texts
that share a node of depth d are positives. A flat hierarchy has one term, which is the loss of the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from treelabel.core.types import FloatArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.selection.training import Training

TEMPERATURE = 0.07
# A batch has texts of so many labels, so many of each.
LABELS, TEXTS = 16, 4
# Labels of one parent that come into a batch together, at most.
SIBLINGS = 4


def contrastive_loss(vectors: Tensor, positives: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Compute the mean over texts of -sum_j w_ij ln softmax_j(z_i z_j / temperature) / sum_j w_ij, j != i.

    Parameters
    ----------
    vectors
        Vectors of length 1, texts × width.
    positives
        w, from 0 on, texts × texts; the diagonal does not count. Texts without a positive are negatives alone.
    temperature
        Divides cosines.

    Returns
    -------
    Tensor
        The loss; 0 where no text has a positive.

    >>> loss = contrastive_loss(torch.eye(2), torch.ones(2, 2))
    >>> float(loss)
    0.0
    """
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    logits = (vectors @ vectors.T / temperature).masked_fill(itself, -torch.inf)
    log_p = torch.log_softmax(logits, 1).masked_fill(itself, 0.0)
    weights = positives.masked_fill(itself, 0.0)
    total = weights.sum(1)
    has_positive = total > 0
    losses = -(weights * log_p).sum(1) / total.clamp(min=1e-12)
    return losses[has_positive].sum() / has_positive.sum().clamp(min=1)


def level_loss(vectors: Tensor, levels: Sequence[tuple[float, Tensor]]) -> Tensor:
    """Compute the weighted mean of the contrastive losses of levels, each with its weight and positives."""
    losses = [weight * contrastive_loss(vectors, positives) for weight, positives in levels]
    return torch.stack(losses).sum() / sum(weight for weight, _ in levels)


@dataclass(frozen=True, eq=False)
class TreeBatches:
    """Draws batches of texts, and says which of them belong together.

    Parameters
    ----------
    closed
        The labels of texts and all above these.
    terminal
        The most specific label of each text; -1 for texts that have several or none, which are drawn by the first.
    parent
        A number per label; labels with the same number are siblings.
    depth
        The depth of each node.
    """

    closed: LabelMatrix
    terminal: LongArray
    parent: LongArray
    depth: LongArray

    @classmethod
    def of(cls, train: Training) -> "TreeBatches":
        """Prepare the documents of training data; those without a label are never drawn."""
        h = train.hierarchy
        terminals = h.most_specific(train.labels)
        first = np.full(len(train), -1, np.int64)
        some = np.diff(terminals.indptr) > 0
        first[some] = terminals.indices[terminals.indptr[:-1][some]]
        parent = np.full(len(h), -1, np.int64)
        known = h.parent_idx >= 0
        parent[h.edge_child[known]] = h.parent_idx[known]
        return cls(train.closed_labels, first, parent, np.asarray(h.depth, np.int64))

    def draw(self, seed: int, step: int) -> LongArray:
        """Draw the texts of a step: labels by families of siblings, and some texts of each; the same for each seed."""
        rng = np.random.default_rng([seed, step])
        labels = np.unique(self.terminal[self.terminal >= 0])
        chosen: list[int] = []
        for label in rng.permutation(labels).tolist():
            if len(chosen) >= LABELS:
                break
            if label in chosen:
                continue
            family = labels[(self.parent[labels] == self.parent[label]) & (labels != label)]
            siblings = [each for each in rng.permutation(family).tolist() if each not in chosen]
            chosen += [label, *siblings[: SIBLINGS - 1]]
        rows = [rng.permutation(np.flatnonzero(self.terminal == label))[:TEXTS] for label in chosen[:LABELS]]
        return np.concatenate(rows)

    def levels(self, rows: LongArray) -> list[tuple[float, Tensor]]:
        """Return the weight and the positives of every level at which some texts belong together."""
        closed = self.closed[rows].astype(np.float32)
        result = []
        for level in range(1, int(self.depth.max(initial=1)) + 1):
            nodes = closed[:, np.flatnonzero(self.depth == level)]
            shared: FloatArray = (nodes @ nodes.T).toarray() > 0
            if np.triu(shared, 1).any():
                result.append((1.0, torch.from_numpy(shared.astype(np.float32))))
        return result
