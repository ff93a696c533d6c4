"""The graph encoder of HGCLR: a layer of Graphormer over the label hierarchy.

Labels start from the vectors of their names, and attend to each other with a bias for the path between them.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.types import IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy

# The scale of BERT's own random weights: a label starts close to its name.
INITIAL_SCALE = 0.02


@dataclass(frozen=True, eq=False)
class LabelPaths:
    """The shortest path between any two labels, up to a common ancestor and down again; the root joins all trees.

    A path is two climbs, one from either end to the node where it turns. There are few climbs (one for each label and
    ancestor), so that the edges of every path are known without being listed for every pair.

    Parameters
    ----------
    distance
        Labels × labels, the number of edges.
    climb
        Labels × labels: the number of the climb from the row's label to where the path to the column's label turns.
    steps
        2 × steps: the number of a climb, and an edge on it, as a position in `Hierarchy.parent_idx`.
    climbs
        The number of climbs.
    """

    distance: IntArray
    climb: IntArray
    steps: LongArray
    climbs: int

    @classmethod
    def of(cls, hierarchy: Hierarchy) -> "LabelPaths":
        """Find the paths of a tree or DAG.

        >>> LabelPaths.of(Hierarchy.from_paths(["A > B", "A > C", "D"])).distance.tolist()
        [[0, 2, 1, 1], [2, 0, 3, 3], [1, 3, 0, 2], [1, 3, 2, 0]]
        """
        steps: list[tuple[int, int]] = []
        turning = defaultdict[int, list[tuple[int, int, int]]](list)
        number = 0
        for node, above in enumerate(climbs_of(hierarchy)):
            for top, edges in above.items():
                turning[top].append((node, number, len(edges)))
                steps += [(number, edge) for edge in edges]
                number += 1
        # Any two labels meet at the root; other nodes only replace what is no shorter, so that of paths of the same
        # length the one that turns at the largest id is taken, from both ends.
        _, numbers, lengths = np.array(turning.pop(-1), np.int32).T
        distance, climb = lengths[:, None] + lengths, np.repeat(numbers[:, None], len(numbers), axis=1)
        for top in sorted(turning):
            nodes, numbers, lengths = np.array(turning[top], np.int32).T
            block, length = np.ix_(nodes, nodes), lengths[:, None] + lengths
            shorter = length <= distance[block]
            distance[block] = np.where(shorter, length, distance[block])
            climb[block] = np.where(shorter, numbers[:, None], climb[block])
        return cls(distance, climb, np.array(steps, np.int64).reshape(-1, 2).T, number)


def climbs_of(hierarchy: Hierarchy) -> Iterator[dict[int, tuple[int, ...]]]:
    """Yield for each label the edges of the shortest way up to itself, to every ancestor and to the root (-1).

    An edge is its position in `Hierarchy.parent_idx`.

    >>> list(climbs_of(Hierarchy.from_paths(["A > B"])))
    [{0: (), -1: (0,)}, {1: (), 0: (1,), -1: (1, 0)}]
    """
    known: dict[int, dict[int, tuple[int, ...]]] = {-1: {-1: ()}}
    for node in range(len(hierarchy)):
        climbs: dict[int, tuple[int, ...]] = {node: ()}
        for edge in range(hierarchy.parent_ptr[node], hierarchy.parent_ptr[node + 1]):
            for top, edges in known[int(hierarchy.parent_idx[edge])].items():
                if top not in climbs or len(edges) + 1 < len(climbs[top]):
                    climbs[top] = (edge, *edges)
        known[node] = climbs
        yield climbs


class PathBias(nn.Module):
    """The spatial and edge encoding of Graphormer: b(i, j) = D[distance of i and j] + the mean of E on their path.

    D has a number for every distance, E one for every edge; all heads share them. Both start at 0.
    """

    distance: Tensor
    climb: Tensor
    steps: Tensor

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        paths = LabelPaths.of(hierarchy)
        self.climbs = paths.climbs
        for name in ("distance", "climb", "steps"):
            self.register_buffer(name, torch.from_numpy(getattr(paths, name)), persistent=False)
        self.by_distance = nn.Parameter(torch.zeros(2 * hierarchy.max_depth + 1))
        self.by_edge = nn.Parameter(torch.zeros(len(hierarchy.parent_idx)))

    def forward(self) -> Tensor:
        """Return the bias, labels × labels."""
        climbed, edge = self.steps
        sums = self.by_edge.new_zeros(self.climbs).index_add(0, climbed, self.by_edge[edge])
        half = sums[self.climb]
        return self.by_distance[self.distance] + (half + half.T) / self.distance.clamp(min=1)


class LabelEncoder(nn.Module):
    """The graph encoder: a vector for every label, of its name, its id and the labels around it.

    Names and ids are added and pass one Graphormer layer: attention with a bias by path, a residual connection and
    LayerNorm. As in the official program, the last and only layer has no feed-forward part.

    Parameters
    ----------
    hierarchy
        The hierarchy of labels.
    width
        The width of word vectors.
    name_vectors
        For each label the word vectors of its name, pieces × width; without them, names are zeros until weights are
        loaded.
    heads
        The number of attention heads, which divides the width.
    """

    names: Tensor

    def __init__(
        self, hierarchy: Hierarchy, width: int, name_vectors: Sequence[Tensor] | None, heads: int = 12
    ) -> None:
        super().__init__()
        self.heads = heads
        names = torch.zeros(len(hierarchy), width)
        for row, pieces in enumerate(name_vectors or ()):
            if len(pieces):
                names[row] = pieces.detach().float().mean(0)
        self.register_buffer("names", names)
        self.ids = nn.Parameter(torch.randn(len(hierarchy), width) * INITIAL_SCALE)
        self.bias = PathBias(hierarchy)
        self.attend = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self) -> Tensor:
        """Return label vectors, labels × width."""
        labels = self.names + self.ids
        query, key, value = (split_heads(part, self.heads) for part in self.attend(labels).chunk(3, dim=-1))
        bias = self.bias().to(query.dtype)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        result: Tensor = self.norm(labels + self.out(mixed.transpose(0, 1).flatten(1)))
        return result


def split_heads(vectors: Tensor, heads: int) -> Tensor:
    """Split vectors (… × positions × width) for attention heads: … × heads × positions × width / heads."""
    return vectors.view(*vectors.shape[:-1], heads, -1).transpose(-3, -2)


def heads_within(width: int, heads: int) -> int:
    """Return the largest number of heads, at most `heads`, that divides the width.

    >>> heads_within(768, 12), heads_within(64, 12), heads_within(300, 8)
    (12, 8, 6)
    """
    return max(count for count in range(1, heads + 1) if width % count == 0)
