"""Hierarchical cross-entropy in torch; see `neural.losses.hierarchical_cross_entropy`."""

import torch
from torch import Tensor
from torch.nn import functional

from treelabel.neural.losses.hierarchical_cross_entropy import HierarchicalCrossEntropy
from treelabel.neural.losses.torch.base import LossAndGradient
from treelabel.neural.losses.torch.batches import Batch
from treelabel.neural.losses.torch.paths import TorchPathLoss, path_table


class TorchHierarchicalCrossEntropy(TorchPathLoss):
    """Cross-entropy along the path to the true leaf, weighted by depth; computed in double precision."""

    def __init__(self, loss: HierarchicalCrossEntropy) -> None:
        super().__init__(loss)
        (self.weight,) = self._keep("weight", [path_table(loss, loss.weight, 0.0)])

    def _loss_and_gradient(self, logits: Tensor, batch: Batch) -> LossAndGradient:
        s, shared = logits.double(), self.shared_path(logits, batch.true)
        table = self.get_buffer(self.weight)
        weight = table.new_zeros(len(s), table.shape[1])
        weight[batch.true // s.shape[1]] = table[batch.true % s.shape[1]]
        mass = path_masses(s, shared, table.shape[1])
        log_p = (mass[:, 1:] - mass[:, :-1]).masked_fill(weight[:, 1:] == 0, 0.0)
        # The gradient of leaf A is the sum of q_m p(A | n_m) over the nodes n_m of the path that it is below, with
        # q_m = lambda_m+1 - lambda_m: above 0 for the root alone, as weights fall, and -lambda for the true leaf.
        q = functional.pad(weight, (0, 1)).diff()
        log_q = torch.logcumsumexp((q.neg().log() - mass).masked_fill(q >= 0, -torch.inf), 1)
        gradient = q[:, :1] * (s - mass[:, :1]).exp() - (s + log_q.gather(1, shared)).exp()
        return -(weight[:, 1:] * log_p).sum(1).to(logits.dtype), gradient.to(logits.dtype)


def path_masses(logits: Tensor, shared: Tensor, count: int) -> Tensor:
    """Compute ln of the sum of e^s over the leaves of each node on the path to the true leaf, from the root down.

    Parameters
    ----------
    logits
        Documents x leaves.
    shared
        The number of nodes of that path, without the root, that each leaf is below.
    count
        One more than the depth of the tree.

    Returns
    -------
    Tensor
        Documents x count; -inf after the end of a path.

    Examples
    --------
    >>> path_masses(torch.zeros(1, 4), torch.tensor([[2, 1, 0, 0]]), 3).exp().tolist()
    [[4.0, 2.0, 1.0]]
    """
    largest = logits.new_full((len(logits), count), -torch.inf).scatter_reduce_(1, shared, logits, "amax")
    sums = torch.zeros_like(largest).scatter_add_(1, shared, (logits - largest.gather(1, shared)).exp())
    at_node = torch.where(sums > 0, largest + sums.log(), -torch.inf)
    return torch.logcumsumexp(at_node.flip(1), 1).flip(1)
