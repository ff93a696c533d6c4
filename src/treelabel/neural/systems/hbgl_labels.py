"""The global stage of HBGL: label embeddings learn the hierarchy itself, before any text is seen.

Labels are masked in sequences of labels, and predicted from their parents and children. Everything is linear in the
number of labels: a sequence has at most LONGEST of them, and scores over all labels are computed in pieces.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.progress import progress_bar
from treelabel.core.stopping import StopSignal, held_interrupt
from treelabel.core.types import LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.neural.losses.layout import NodeGroups
from treelabel.neural.processes import agree_to_stop

# The most labels in one sequence: attention is quadratic in it, whatever the size of the hierarchy.
LONGEST = 256
# The most tokens in one pass, and the most scores at once: what bounds memory.
PASS_TOKENS = 2048
PIECE_SCORES = 2**22
# One in so many seconds of a limited time is the labels': of a whole run they are a small part.
GLOBAL_SHARE = 5
# The spread of vectors that nothing is known of, as in BERT.
SPREAD = 0.02


# Attention over label vectors alone, without a text: from vectors (n × S × width), the level of each position (S), and
# whether a position (row) attends to another (column), to hidden states, n × S × width.
Encode = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class GlobalStage:
    """The settings of the global stage.

    Parameters
    ----------
    steps
        Steps of AdamW, each over one sequence of labels; every label is in a sequence at least once, so that a large
        hierarchy takes at least as many steps as it has sub-trees. 0 leaves the stage out.
    learning_rate
        The learning rate, constant.
    mask
        The share of labels that are masked.
    batch_size
        How many copies of the sequence are masked, each anew, in a step.
    """

    steps: int
    learning_rate: float
    mask: float
    batch_size: int


class LabelHead(nn.Module):
    """Label embeddings, as inputs and as outputs: transform(h) · Eᵀ + bias; the last row of E is "end".

    `mask` is the vector of what is to be predicted, and `root` that of [CLS], which stands for the root.

    Parameters
    ----------
    width
        The width of hidden states.
    nodes
        The number of labels.
    name_vectors
        The word vectors of each name, whose sum a label starts from; None where weights will be loaded.
    """

    root: Tensor

    def __init__(self, width: int, nodes: int, name_vectors: Sequence[Tensor] | None) -> None:
        super().__init__()
        spread, start = SPREAD, torch.zeros(nodes, width)
        if name_vectors is not None:
            pieces = torch.cat([*name_vectors]).detach().float()
            spread = float(pieces.std()) if len(pieces) else SPREAD
            start = torch.stack([pieces.detach().float().sum(0) for pieces in name_vectors]).to(start.device)
        marks = torch.randn(3, width) * spread
        self.register_buffer("root", marks[0], persistent=False)
        self.mask = nn.Parameter(marks[1])
        self.embeddings = nn.Parameter(torch.cat([start, marks[2:]]))
        linear = nn.Linear(width, width)
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
        self.transform = nn.Sequential(linear, nn.GELU(), nn.LayerNorm(width))
        # About one label is true at each level.
        self.bias = nn.Parameter(torch.full((nodes + 1,), -math.log(nodes + 1)))

    def forward(self, hidden: Tensor, labels: Tensor | slice = slice(None)) -> Tensor:
        """Return the scores of some labels.

        Parameters
        ----------
        hidden
            Hidden states, ... × width.
        labels
            Their numbers; all, and "end" last, by default.

        Returns
        -------
        Tensor
            ... × labels.
        """
        return functional.linear(self.transform(hidden), self.embeddings[labels], self.bias[labels])


def subtrees(hierarchy: Hierarchy, longest: int, rng: np.random.Generator) -> Iterator[LongArray]:
    """Cover a hierarchy with connected sub-trees below the root, at random.

    Labels are put in depth-first order, with the children of each label shuffled, and cut into pieces; each piece is
    completed by the ancestors of its first label, which connect it: the parent of any other label is in the piece or
    among them. In a DAG the first parent of a label counts here.

    Parameters
    ----------
    longest
        The most labels in a sub-tree, but never fewer than there are levels.
    rng
        Shuffles children.

    Yields
    ------
    LongArray
        The sorted ids of a sub-tree; the whole hierarchy where it is not larger than `longest`.

    >>> h = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
    >>> [sorted(h.names[i] for i in found) for found in subtrees(h, 5, np.random.default_rng(0))]
    [['A', 'B', 'C', 'D', 'E']]
    """
    count, longest = len(hierarchy), max(longest, hierarchy.max_depth)
    if count <= longest:
        yield np.arange(count)
        return
    above = hierarchy.parent_idx[hierarchy.parent_ptr[:-1]].astype(np.int64)
    order, start = depth_first(above, rng), 0
    while start < count:
        way = [int(above[order[start]])]
        while way[-1] >= 0:
            way.append(int(above[way[-1]]))
        stop = start + longest - (len(way) - 1)
        yield np.sort(np.concatenate([np.array(way[:-1], np.int64), order[start:stop]]))
        start = stop


def depth_first(above: LongArray, rng: np.random.Generator) -> LongArray:
    """Return the nodes of a forest in depth-first order, siblings shuffled; `above` has the parents, -1 for none."""
    below: list[list[int]] = [[] for _ in range(len(above) + 1)]
    for node in rng.permutation(len(above)).tolist():
        below[above[node]].append(node)
    result, waiting = [], below[-1]
    while waiting:
        node = waiting.pop()
        result.append(node)
        waiting += below[node]
    return np.array(result, np.int64)


def edge_attention(hierarchy: Hierarchy, nodes: LongArray) -> Tensor:
    """Return who attends to whom among the root and some labels: parents and children to each other, no one to itself.

    Parameters
    ----------
    nodes
        Sorted ids.

    Returns
    -------
    Tensor
        Boolean, (1 + labels) × (1 + labels); the root is first.

    >>> edge_attention(Hierarchy.from_paths(["A > B", "C"]), np.array([0, 1, 2])).int().tolist()
    [[0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    """
    # The root is written -1, so that it sorts first.
    present = np.concatenate([[-1], nodes])
    here = np.isin(hierarchy.edge_child, nodes) & np.isin(hierarchy.parent_idx, present)
    child, parent = (np.searchsorted(present, ends[here]) for ends in (hierarchy.edge_child, hierarchy.parent_idx))
    allowed = torch.zeros(len(present), len(present), dtype=torch.bool)
    allowed[child, parent] = allowed[parent, child] = True
    return allowed


def alike_when_masked(hierarchy: Hierarchy) -> LongArray:
    """Number the groups of labels that cannot be told apart when they are masked: leaves with the same parents."""
    siblings = NodeGroups.of(hierarchy)
    return np.where(hierarchy.is_leaf, siblings.of_node, siblings.parents.shape[1] + np.arange(len(hierarchy)))


def pretrain_labels(
    head: LabelHead,
    encode: Encode,
    hierarchy: Hierarchy,
    stage: GlobalStage,
    stop: StopSignal,
    progress: bool | None = None,
) -> tuple[list[float], bool]:
    """Train label embeddings to predict masked labels of the hierarchy; nothing else is changed.

    Small hierarchies are one sequence. Of larger ones (above 256 labels) each step sees a random connected sub-tree
    with the way to it from the root; sub-trees are drawn so that each pass over them covers every label.

    Parameters
    ----------
    head
        The embeddings, and what goes with them; all parameters but the embeddings are expected to be frozen.
    encode
        Attention over labels.
    stage
        The settings.
    stop
        Whether to end early; of a limited time labels have the share `GLOBAL_SHARE`, and texts the rest.
    progress
        Whether to show a progress bar.

    Returns
    -------
    tuple
        The loss of each step (the binary cross-entropy summed over labels, its mean over masked labels), and whether
        there would have been more steps.
    """
    if not stage.steps or not len(hierarchy):
        return [], False
    # Random numbers follow torch's seed.
    rng = np.random.default_rng(int(torch.randint(2**31, ())))
    optimizer = torch.optim.AdamW([head.embeddings], stage.learning_rate, weight_decay=0.0)
    groups, result = torch.from_numpy(alike_when_masked(hierarchy)), list[float]()
    label_stop = stop.share(GLOBAL_SHARE)
    with progress_bar("learning labels", stage.steps, progress) as done, held_interrupt(label_stop):
        for nodes in sequences(hierarchy, stage.steps, rng):
            if agree_to_stop(label_stop):
                break
            result.append(_step(head, encode, hierarchy, nodes, groups, stage))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done(min(len(result), stage.steps), f"loss {result[-1]:.3f}")
    if label_stop.reason == "interrupt":
        stop.interrupt()
    return result, label_stop.reason is not None


def sequences(hierarchy: Hierarchy, steps: int, rng: np.random.Generator) -> Iterator[LongArray]:
    """Draw the labels of each step: one pass over sub-trees after another, of which the first is always complete.

    Parameters
    ----------
    steps
        How many to draw, or more if a pass takes more.
    rng
        Shuffles.

    Returns
    -------
    Iterator of LongArray
        Sorted ids.
    """
    first = list(subtrees(hierarchy, LONGEST, rng))
    further = (nodes for _ in count() for nodes in subtrees(hierarchy, LONGEST, rng))
    return chain(first, islice(further, max(0, steps - len(first))))


def _step(
    head: LabelHead, encode: Encode, hierarchy: Hierarchy, nodes: LongArray, groups: Tensor, stage: GlobalStage
) -> float:
    """Add the gradient of a step to the embeddings; return its loss."""
    device = head.embeddings.device
    ids, allowed = torch.from_numpy(nodes).to(device), edge_attention(hierarchy, nodes).to(device)
    levels = torch.from_numpy(np.concatenate([[0], hierarchy.depth[nodes]])).long().to(device)
    masked = draw_masks(stage.batch_size, len(nodes), stage.mask)
    count, loss = int(masked.sum()), 0.0
    for copies in torch.split(masked.to(device), max(1, PASS_TOKENS // (len(nodes) + 1))):
        shown = torch.where(copies.unsqueeze(-1), head.mask, head.embeddings[ids])
        root = head.root.expand(len(copies), 1, -1)
        states = head.transform(encode(torch.cat([root, shown], 1), levels, allowed)[:, 1:][copies])
        copy, position = copies.nonzero(as_tuple=True)
        group = groups.to(device)[ids[position]]
        # Masked leaves with the same parents look the same: each of them is an answer for all of them.
        row, other = ((copy.unsqueeze(1) == copy) & (group.unsqueeze(1) == group)).nonzero(as_tuple=True)
        loss += _backward(states, head.embeddings[: len(hierarchy)], row, ids[position[other]], count)
    return loss


def draw_masks(copies: int, labels: int, share: float) -> Tensor:
    """Draw which labels are masked, at least one in each copy: copies × labels."""
    masked = torch.rand(copies, labels) < share
    one = functional.one_hot(torch.randint(labels, (copies,)), labels).bool()
    return masked | (one & ~masked.any(1, keepdim=True))


def _backward(states: Tensor, embeddings: Tensor, row: Tensor, label: Tensor, count: int) -> float:
    """Backpropagate the cross-entropy of states · embeddings over `count`, piece by piece; return it.

    True are the pairs (row of states, label). No more than PIECE_SCORES scores exist at once: the gradient of the
    states is summed over pieces first, and goes through the network once.
    """
    leaf, loss = states.detach().requires_grad_(), 0.0
    piece = max(1, PIECE_SCORES // len(leaf))
    table = embeddings.detach().requires_grad_()
    for start in range(0, len(table), piece):
        scores = leaf @ table[start : start + piece].T
        inside = (label >= start) & (label < start + piece)
        part = functional.softplus(scores).sum() - scores[row[inside], label[inside] - start].sum()
        (part / count).backward()  # type: ignore[no-untyped-call]
        loss += float(part.detach()) / count
    # Labels learn as outputs, and as inputs where any is shown.
    torch.autograd.backward(embeddings, table.grad)
    if states.requires_grad:
        torch.autograd.backward(states, leaf.grad)
    return loss
