"""Leaf softmax: one softmax over all leaves, and cross-entropy with the true leaf."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelabel.neural.losses import maps
from treelabel.neural.losses.base import Loss, Tables
from treelabel.neural.losses.layout import leaves_below
from treelabel.neural.losses.registry import LossSpec
from treelabel.neural.losses.truth import Truth


class LeafSoftmax(Loss):
    """Cross-entropy over the leaves, -ln p(y), with p = softmax(s) and y the true leaf. P(n) = the sum over n's leaves.

    Takes a tree or a DAG, and one leaf per document; a document without labels costs nothing.
    """

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        below = leaves_below(spec.hierarchy, spec.outputs)
        self.leaves = Tables(maps.leaf_slices(below.indptr, below.indices, spec.output_of_node))

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute the loss of each document: see `Loss.forward`."""
        return functional.cross_entropy(logits, truth.classes(logits), reduction="none")

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the sums of the softmax over the leaves of nodes."""
        return maps.sums_of_leaves(logits, *self.leaves)


class PathLoss(LeafSoftmax):
    """A softmax over the leaves of a tree, judged by the path to the true leaf."""

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        h = spec.hierarchy
        above, below = h.ancestors(spec.outputs), leaves_below(h, spec.outputs)
        first = below.indices[below.indptr[:-1]]
        last = first + np.diff(below.indptr)
        arrays = (above.indptr, first[above.indices], last[above.indices])
        self.above = Tables(torch.from_numpy(array.astype(np.int64)) for array in arrays)

    def shared_path(self, logits: Tensor, true: Tensor) -> Tensor:
        """Count the nodes of the path to the true leaf that each leaf is below; the true leaf is below itself.

        A node's leaves are a slice: the count is a running sum of 1 where the slice of one of the true leaf's ancestors
        begins and -1 after its end.

        Parameters
        ----------
        logits
            Documents x outputs.
        true
            Positions of true outputs in documents x outputs, at most one per document.

        Returns
        -------
        Tensor
            Documents x outputs; 0 for documents without labels.
        """
        ptr, first, last = self.above
        outputs = logits.shape[1]
        row, leaf = true // outputs, true % outputs
        start, sizes = ptr[leaf], ptr[leaf + 1] - ptr[leaf]
        of_leaf = torch.repeat_interleave(sizes)
        index = torch.arange(len(of_leaf), device=true.device) + (start - sizes.cumsum(0) + sizes)[of_leaf]
        begins = row[of_leaf] * (outputs + 1)
        change = logits.new_zeros(len(logits) * (outputs + 1))
        change.index_add_(0, begins + first[index], torch.ones_like(index, dtype=change.dtype))
        change.index_add_(0, begins + last[index], torch.full_like(index, -1, dtype=change.dtype))
        shared = change.view(len(logits), outputs + 1).cumsum(1)[:, :-1].long().contiguous()
        shared.view(-1)[true] += 1
        return shared
