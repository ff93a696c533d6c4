"""Hierarchical cross-entropy, HXE (Bertinetto et al., "Making better mistakes", CVPR 2020, section 3.1)."""

import numpy as np
import torch
from torch import Tensor

from treelabel.neural.losses import maps
from treelabel.neural.losses.leaf_softmax import PathLoss
from treelabel.neural.losses.registry import LossSpec
from treelabel.neural.losses.truth import Truth


class HierarchicalCrossEntropy(PathLoss):
    """The sum over the true path n_1 .. n_k of -lambda(n_d) ln p(n_d | n_d-1), with lambda(n_d) = exp(-alpha d).

    n_0 is the root and n_k the true leaf; p = softmax(s) over the leaves, p(n) the sum over n's leaves, and
    p(n_d | n_d-1) = p(n_d) / p(n_d-1). With alpha = 0 the sum telescopes to plain cross-entropy over the leaves; the
    larger alpha, the more mistakes near the root cost, compared with those near the leaves. That is the authors'
    program (`get_exponential_weighting`); with normalize = 1 weights are divided by the sum of exp(-alpha depth) over
    all nodes, the root's 1 included, as there. Needs a tree and one leaf per document. Computed in double precision.
    """

    weight: Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__(spec)
        h = spec.hierarchy
        weight = np.exp(-spec.params["alpha"] * h.depth)
        if spec.params["normalize"]:
            weight = weight / (1 + weight.sum())
        self.register_buffer("weight", maps.path_table(h, spec.outputs, weight, 0.0), persistent=False)

    def forward(self, logits: Tensor, truth: Truth) -> Tensor:
        """Compute the loss of each document: see `Loss.forward`."""
        s = logits.double()
        row, leaf = truth.true // s.shape[1], truth.true % s.shape[1]
        weight = self.weight.new_zeros(len(s), self.weight.shape[1])
        weight[row] = self.weight[leaf]
        mass = path_masses(s, self.shared_path(logits, truth.true), self.weight.shape[1])
        log_p = (mass[:, 1:] - mass[:, :-1]).masked_fill(weight[:, 1:] == 0, 0.0)
        return -(weight[:, 1:] * log_p).sum(1).to(logits.dtype)


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
        Documents x count; 0 after the end of a path.

    Examples
    --------
    >>> path_masses(torch.zeros(1, 4), torch.tensor([[2, 1, 0, 0]]), 3).exp().tolist()
    [[4.0, 2.0, 1.0]]
    """
    with torch.no_grad():
        largest = logits.new_full((len(logits), count), -torch.inf).scatter_reduce_(1, shared, logits, "amax")
        empty = largest == -torch.inf
    sums = torch.zeros_like(largest).scatter_add(1, shared, (logits - largest.gather(1, shared)).exp())
    # Of leaves that leave the path at each node; -inf where none does, without a gradient through ln 0.
    leaving = (largest + sums.masked_fill(empty, 1.0).log()).masked_fill(empty, -torch.inf)
    ended = empty.flip(1).cumprod(1).flip(1) == 1
    below = torch.ones(count, count, dtype=torch.bool, device=logits.device).triu()
    masses = leaving.unsqueeze(1).masked_fill(~below, -torch.inf).masked_fill(ended.unsqueeze(2), 0.0)
    return torch.logsumexp(masses, 2).masked_fill(ended, 0.0)
