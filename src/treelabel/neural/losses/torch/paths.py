"""Losses over the leaves of a tree that look at the path to the true leaf, in torch."""

from abc import ABC

import numpy as np
import torch
from torch import Tensor

from treelabel.core.types import DoubleArray
from treelabel.hierarchy import row_numbers
from treelabel.neural.losses.leaf_softmax import LeafSoftmax
from treelabel.neural.losses.torch.leaf_softmax import TorchLeafSoftmax


class TorchPathLoss(TorchLeafSoftmax, ABC):
    """A softmax over the leaves of a tree, judged by the path to the true leaf."""

    def __init__(self, loss: LeafSoftmax) -> None:
        super().__init__(loss)
        above = (torch.from_numpy(array.astype(np.int64)) for array in loss.ancestor_leaves)
        self.above = self._keep("above", above)

    def shared_path(self, logits: Tensor, true: Tensor) -> Tensor:
        """Count the nodes of the path to the true leaf that each leaf is below; the true leaf is below itself.

        A node's leaves are a slice: the count is a running sum of 1 where the slice of one of the true leaf's ancestors
        begins and -1 after its end.

        Parameters
        ----------
        logits
            Documents x outputs.
        true
            Positions of what is true in documents x outputs, at most one per document.

        Returns
        -------
        Tensor
            Documents x outputs; 0 for documents without labels.
        """
        ptr, first, last = self._kept(self.above)
        outputs = logits.shape[1]
        row, leaf = true // outputs, true % outputs
        start, sizes = ptr[leaf], ptr[leaf + 1] - ptr[leaf]
        turn = torch.repeat_interleave(sizes)
        at = torch.arange(len(turn), device=true.device) + (start - sizes.cumsum(0) + sizes)[turn]
        begins = row[turn] * (outputs + 1)
        change = logits.new_zeros(len(logits) * (outputs + 1))
        change.index_add_(0, begins + first[at], torch.ones_like(at, dtype=change.dtype))
        change.index_add_(0, begins + last[at], torch.full_like(at, -1, dtype=change.dtype))
        found = change.view(len(logits), outputs + 1).cumsum(1)[:, :-1].long().contiguous()
        found.view(-1)[true] += 1
        return found


def path_table(loss: LeafSoftmax, of_node: DoubleArray, of_root: float) -> Tensor:
    """Lay the values of nodes out along the path to each leaf: the root's, those of its ancestors, and its own.

    Parameters
    ----------
    loss
        A loss over the leaves of a tree.
    of_node
        The value of every node.
    of_root
        The value of the root.

    Returns
    -------
    Tensor
        Outputs x (1 + depth of the tree), 0 after the end of a path.

    Examples
    --------
    >>> from treelabel.hierarchy import Hierarchy
    >>> path_table(LeafSoftmax(Hierarchy.from_paths(["A > B", "C"])), np.array([1.0, 2.0, 3.0]), 9.0).tolist()
    [[9.0, 1.0, 3.0], [9.0, 2.0, 0.0]]
    """
    h = loss.hierarchy
    above = h.ancestors(loss.outputs)
    found = np.zeros((len(loss.outputs), h.max_depth + 1))
    found[:, 0] = of_root
    found[row_numbers(above), h.depth[above.indices]] = of_node[above.indices]
    found[np.arange(len(found)), h.depth[loss.outputs]] = of_node[loss.outputs]
    return torch.from_numpy(found)
