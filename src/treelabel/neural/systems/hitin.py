"""HiTIN (Zhu et al., ACL 2023): a tree isomorphism network over the coding tree of the labels.

*Network*: a text vector becomes one feature per label; features are summed up the coding tree, level by level, and the
logits are linear in what the levels hold (`TreeIsomorphismOutputs`, which says what differs from the paper). *Loss*:
any of LOSSES, by default binary cross-entropy, and a recursive regulariser.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.types import LongArray
from treelabel.core.validation import Between
from treelabel.models.settings import NonNegative, Width
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.registry import LossSpec
from treelabel.neural.model import NeuralModel
from treelabel.neural.network import DROPOUT, Network, NetworkSpec
from treelabel.neural.systems.hitin_coding_tree import CodingTree, coding_tree
from treelabel.neural.training_arguments import Recipe, make_recipes

NodePooling = Literal["sum", "mean", "max"]

# Labels whose features are held at once while the largest ones are looked for.
_AT_ONCE = 256


class TreeIsomorphismOutputs(nn.Module):
    """Logits from the nodes of a coding tree, in place of `Outputs`.

    The text vector x becomes y = hidden(x), and the feature of label l is scale_l · y + shift_l. The paper copies x
    once for each label and mixes the copies by a matrix of labels × labels. As all copies are the same, only the sums
    of its rows matter (but for dropout between the two), and these are learned here: linear in labels, not quadratic.
    The functions are the same, training is not: a sum of many weights moves faster than one weight does. It follows,
    for the paper as for us, that which label stands where in the tree makes no difference to what can be learned; only
    the shape of the tree does.

    A node of the next level is the sum of its children, then a linear layer, batch norm, ReLU, and the three once more.
    All nodes of a level, labels included, are pooled to one vector. The logits are linear in the vectors of all levels
    side by side, which is the same as a linear layer for every level, summed.

    The official program also has BERT's pooling layer, and dropout of 0.5.

    Features of labels are never held for all labels, those of groups are: memory is texts × the largest level above the
    labels × `hidden_size`.

    Parameters
    ----------
    width
        The width of text vectors.
    outputs
        The number of logits.
    tree
        The coding tree of the labels.
    hidden_size
        The width of features of labels and groups.
    pooling
        How the nodes of a level become one vector.
    dropout
        The share of the text vector, and of pooled vectors, that is dropped in training.

    >>> from treelabel import Hierarchy
    >>> from treelabel.neural.systems.hitin_coding_tree import coding_tree
    >>> tree = coding_tree(Hierarchy.from_edges([("A", "a"), ("A", "b"), ("B", "c")]))
    >>> outputs = TreeIsomorphismOutputs(4, 5, tree, hidden_size=8)
    >>> outputs(torch.ones(2, 4)).shape, outputs.linear.weight.shape
    (torch.Size([2, 5]), torch.Size([5, 24]))
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        tree: CodingTree,
        hidden_size: int,
        pooling: NodePooling = "sum",
        dropout: float = DROPOUT,
    ) -> None:
        super().__init__()
        self.width, self.sizes = width, tree.sizes
        self.pooling: NodePooling = pooling
        labels = tree.sizes[0]
        for level, above in enumerate(tree.parents):
            # The tree is made of the hierarchy, and need not be stored with the weights.
            self.register_buffer(f"parents_{level}", torch.tensor(above, dtype=torch.long), persistent=False)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(width, hidden_size)
        # As the sums of the rows of torch's linear layers are distributed, and as their biases.
        self.scale = nn.Parameter(torch.randn(labels) / math.sqrt(3))
        self.shift = nn.Parameter((2 * torch.rand(labels) - 1) / math.sqrt(labels))
        self.levels = nn.ModuleList(_level(hidden_size) for _ in tree.parents)
        self.linear = nn.Linear(len(tree.sizes) * hidden_size, outputs)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits, texts × outputs."""
        text = self.hidden(self.dropout(vectors))
        pooled, sums = [self._pooled_labels(text)], self._sums_of_labels(text)
        for number, level in enumerate(self.levels):
            nodes = level(sums)
            pooled.append(_pool_nodes(nodes, self.pooling))
            if number + 1 < len(self.levels):
                sums = sum_children(nodes, self.get_buffer(f"parents_{number + 1}"), self.sizes[number + 2])
        logits: Tensor = self.linear(self.dropout(torch.cat(pooled, dim=1)))
        return logits

    def _sums_of_labels(self, text: Tensor) -> Tensor:
        """Return the sums of label features at level 1, texts × groups × hidden: Σ scale · y + Σ shift."""
        factors = torch.stack([self.scale, self.shift], dim=1)[None]
        scale, shift = sum_children(factors, self.get_buffer("parents_0"), self.sizes[1])[0].unbind(dim=1)
        return text[:, None] * scale[:, None] + shift[:, None]

    def _pooled_labels(self, text: Tensor) -> Tensor:
        """Return the pooled features of labels, texts × hidden."""
        if self.pooling == "sum":
            return text * self.scale.sum() + self.shift.sum()
        if self.pooling == "mean":
            return text * self.scale.mean() + self.shift.mean()
        largest = self._largest_labels(text)
        return text * self.scale[largest] + self.shift[largest]

    @torch.no_grad()
    def _largest_labels(self, text: Tensor) -> Tensor:
        """Return the label whose feature is the largest, for every text and every place of the vector."""
        values, labels = [], []
        for start in range(0, len(self.scale), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            value, label = (text[..., None] * self.scale[part] + self.shift[part]).max(dim=-1)
            values.append(value)
            labels.append(label + start)
        best = torch.stack(values).argmax(dim=0, keepdim=True)
        return torch.stack(labels).gather(0, best)[0]


class HitinNetwork(Network):
    """The network of HiTIN: an encoder, one vector per text, and a tree isomorphism network over the labels.

    Parameters
    ----------
    spec
        What the network is made of.
    settings
        Those of the system.
    """

    edges: Tensor

    def __init__(self, spec: NetworkSpec, settings: "Hitin") -> None:
        tree, width = coding_tree(spec.hierarchy, settings.height), settings.tree_size
        outputs = TreeIsomorphismOutputs(spec.width, spec.outputs, tree, width, settings.tree_pooling, spec.dropout)
        super().__init__(spec.backbone, spec.pooling, outputs)
        # Losses here are sums over outputs, and the weight stands beside a mean.
        self.recursive_regularization = settings.recursive_regularization * spec.outputs
        self.register_buffer("edges", torch.from_numpy(output_edges(spec.objective.spec)), persistent=False)

    def penalty(self, loss: Loss) -> Tensor:
        """Return the cost of the output weights: that of the loss, and the recursive regulariser."""
        weight = self.outputs.linear.weight
        child, parent = self.edges
        apart = (weight[child] - weight[parent]).square().sum()
        result: Tensor = loss.penalty(weight) + self.recursive_regularization / 2 * apart
        return result


def output_edges(loss: LossSpec) -> LongArray:
    """Return the outputs of all children and of their parents, 2 × edges; edges without two outputs are left out.

    >>> from treelabel import Hierarchy
    >>> from treelabel.neural.losses.registry import LOSSES
    >>> output_edges(LOSSES["bce"].bind(Hierarchy.from_paths(["A > B", "A > C", "D"]), None, {})).tolist()
    [[2, 3], [0, 0]]
    """
    h, output = loss.hierarchy, loss.output_of_node.astype(np.int64)
    real = h.parent_idx >= 0
    both = np.stack([output[h.edge_child[real]], output[h.parent_idx[real]]])
    return both[:, (both >= 0).all(axis=0)]


class NodeNorm(nn.BatchNorm1d):
    """Batch norm of features, texts × nodes × width, over all nodes of all texts.

    A single node of a single text, as at the root in a batch of one, has no variance: it is normalised by the running
    statistics, which stay as they are.
    """

    def forward(self, features: Tensor) -> Tensor:
        """Return normalised features."""
        rows = features.reshape(-1, self.num_features)
        if self.training and len(rows) == 1:
            known = (self.running_mean, self.running_var, self.weight, self.bias)
            return functional.batch_norm(rows, *known, eps=self.eps).reshape(features.shape)
        return super().forward(rows).reshape(features.shape)


def sum_children(nodes: Tensor, parents: Tensor, groups: int) -> Tensor:
    """Sum the features of the nodes of every group.

    Parameters
    ----------
    nodes
        Features, texts × nodes × width.
    parents
        The group of every node.
    groups
        The number of groups.

    Returns
    -------
    Tensor
        Texts × groups × width.

    >>> sum_children(torch.tensor([[[1.0], [2.0], [4.0]]]), torch.tensor([0, 1, 0]), 2).tolist()
    [[[5.0], [2.0]]]
    """
    zeros = nodes.new_zeros(nodes.shape[0], groups, nodes.shape[2])
    return zeros.index_add(1, parents, nodes)


def _level(width: int) -> nn.Sequential:
    # The norm after a linear layer takes off any bias of it.
    return nn.Sequential(
        nn.Linear(width, width, bias=False),
        NodeNorm(width),
        nn.ReLU(),
        nn.Linear(width, width, bias=False),
        NodeNorm(width),
        nn.ReLU(),
    )


def _pool_nodes(nodes: Tensor, pooling: NodePooling) -> Tensor:
    """Pool features, texts × nodes × width, to one vector per text."""
    if pooling == "sum":
        return nodes.sum(dim=1)
    return nodes.mean(dim=1) if pooling == "mean" else nodes.amax(dim=1)


@dataclass(eq=False, repr=False)
class Hitin(NeuralModel):
    """HiTIN (Zhu et al., ACL 2023): a tree isomorphism network over the coding tree of the labels.

    The labels are put into a coding tree of a given height by minimising its structural entropy. The vector of a text
    becomes a feature of every label; features are summed up the tree, level by level, and logits are linear in what
    the levels hold. `TreeIsomorphismOutputs` says what differs from the paper. With mode="head", the vector is the
    embedding of a frozen encoder, and nothing else differs.

    Settings that all systems have: see `NeuralModel` and `TrainingArguments`.

    Parameters
    ----------
    height
        The height of the coding tree.
    tree_size
        The width of features in the tree; the paper has that of the encoder, which costs a CPU minutes per epoch.
    tree_pooling
        How the nodes of a level become one vector.
    recursive_regularization
        The weight of |W_child - W_parent|^2 / 2 over the output weights of all edges whose ends have outputs, beside a
        loss that is a mean over labels, as in the official program.
    """

    name = "hitin"
    network_type = HitinNetwork
    recipes = make_recipes(Recipe(30, 128, 5e-3), 2e-5, hidden=1e-3, outputs=1e-3)

    height: Annotated[int, Between(1, 100)] = 2
    tree_size: Width = 128
    tree_pooling: NodePooling = "sum"
    recursive_regularization: NonNegative = 0.0
