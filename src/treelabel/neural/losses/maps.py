"""From logits to the probabilities of all nodes: pure functions in log space, which torch.onnx can export.

Logits are documents x outputs. The hierarchy is given as index tensors, made once by the functions at the end of the
file. Nothing loops over nodes or groups of siblings: only over levels, or over powers of two.
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import label_matrix, row_numbers


def group_log_softmax(logits: Tensor, tables: Iterable[Tensor], group: Tensor) -> Tensor:
    """Compute a log-softmax in every group of outputs: s_n - ln of the sum over n's group of e^s.

    Parameters
    ----------
    logits
        Documents x outputs.
    tables, group
        From `group_tables`.

    Returns
    -------
    Tensor
        Documents x outputs.

    Examples
    --------
    >>> tables, group = group_tables(np.array([0, 2, 3]))
    >>> group_log_softmax(torch.zeros(1, 3), tables, group).exp().tolist()
    [[0.5, 0.5, 1.0]]
    """
    pad_rows = functional.pad(logits, (0, 1), value=-torch.inf)
    largest, sums = [], []
    for table in tables:
        members = pad_rows.index_select(1, table.flatten()).reshape(-1, *table.shape)
        largest.append(members.amax(-1))
        sums.append((members - largest[-1].unsqueeze(-1)).exp().sum(-1).log())
    # Large logits are subtracted from one another first, for beside them the digits of the sums would be lost.
    return (logits - torch.cat(largest, 1).index_select(1, group)) - torch.cat(sums, 1).index_select(1, group)


def sums_along_paths(values: Tensor, jumps: Tensor) -> Tensor:
    """Add up the values of every node and its ancestors in a tree.

    Every turn doubles the length of the path that is summed (pointer jumping), so that there are log2(depth) turns.

    Parameters
    ----------
    values
        Documents x nodes.
    jumps
        From `ancestor_jumps`.

    Returns
    -------
    Tensor
        Documents x nodes.

    Examples
    --------
    >>> sums_along_paths(torch.tensor([[1.0, 2.0, 4.0]]), ancestor_jumps(np.array([-1, 0, 1]), 3)).tolist()
    [[1.0, 3.0, 7.0]]
    """
    total = functional.pad(values, (0, 1))
    for ancestor in jumps:
        total = total + total.index_select(1, ancestor)
    return total[:, :-1]


def down_levels(
    local: Tensor, of_root: float, parents: Iterable[Tensor], join: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Compute join(the smallest of a node's parents, its local value) for every node, level by level.

    Parameters
    ----------
    local
        A value of every node, documents x nodes.
    of_root
        The value of the root.
    parents
        From `parent_tables`.
    join
        Takes the smallest of the parents and the local value.

    Returns
    -------
    Tensor
        Documents x nodes.

    Examples
    --------
    >>> parents = parent_tables(Hierarchy.from_edges([("A", "C"), ("B", "C")]))
    >>> down_levels(torch.tensor([[-1.0, -2.0, -3.0]]), 0.0, parents, torch.add).tolist()
    [[-1.0, -2.0, -5.0]]
    """
    known = torch.full_like(local[:, :1], of_root)
    for table in parents:
        first = known.shape[1] - 1
        above = known.index_select(1, table.flatten())
        smallest = above if table.shape[1] == 1 else above.reshape(-1, *table.shape).amin(-1)
        known = torch.cat([known, join(smallest, local[:, first : first + len(table)])], 1)
    return known[:, 1:]


def sums_of_leaves(logits: Tensor, slices: Tensor, order: Tensor, output: Tensor) -> Tensor:
    """Sum the softmax over the leaves of every node.

    Sums are differences of one running sum, in double precision; leaves are taken as they are, however small.

    Parameters
    ----------
    logits
        Documents x leaves.
    slices, order, output
        From `leaf_slices`.

    Returns
    -------
    Tensor
        Documents x nodes.

    Examples
    --------
    >>> slices, order, output = leaf_slices(np.array([0, 2, 3, 4]), np.array([0, 1, 0, 1]), np.array([-1, 0, 1]))
    >>> sums_of_leaves(torch.zeros(1, 2), slices, order, output).tolist()
    [[1.0, 0.5, 0.5]]
    """
    p = torch.softmax(logits.double(), 1)
    ordered = p.index_select(1, order) if len(order) else p
    running = functional.pad(ordered.cumsum(1), (1, 0))
    sums = running.index_select(1, slices[1]) - running.index_select(1, slices[0])
    alone = p.index_select(1, output.clamp(min=0))
    return torch.where(output >= 0, alone, sums.clamp(0, 1)).to(logits.dtype)


# Index tensors of a hierarchy


def group_tables(ptr: LongArray) -> tuple[list[Tensor], Tensor]:
    """Lay consecutive groups of outputs out in rows, those of about the same size together: 1, 2, 3-4, 5-8 and so on.

    Returns one table per power of two that groups have, padded with the number of outputs, so that all tables together
    are at most twice the outputs; and for every output the position of its group among the rows of all tables.
    """
    sizes = np.diff(ptr)
    power = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    tables, position, used = [], np.empty(len(sizes), np.int64), 0
    for exponent in np.unique(power):
        groups = np.flatnonzero(power == exponent)
        offset = np.arange(1 << int(exponent))
        rows = np.where(offset < sizes[groups, None], ptr[groups, None] + offset, ptr[-1])
        tables.append(torch.from_numpy(rows))
        position[groups] = used + np.arange(len(groups))
        used += len(groups)
    return tables, torch.from_numpy(np.repeat(position, sizes))


def ancestor_jumps(parent: LongArray, depth: int) -> Tensor:
    """Find the ancestors 1, 2, 4 .. steps above every node of a tree, and above the root, which comes last.

    Parameters
    ----------
    parent : array of shape (nodes,)
        The parent of every node, -1 for the root.
    depth
        The depth of the tree.

    Returns
    -------
    Tensor of shape (jumps, nodes + 1)
    """
    nodes = len(parent)
    above = np.append(np.where(parent < 0, nodes, parent), nodes).astype(np.int64)
    jumps = np.empty((max(0, depth - 1).bit_length(), nodes + 1), np.int64)
    for row in jumps:
        row[:] = above
        above = above[above]
    return torch.from_numpy(jumps)


def parent_tables(h: Hierarchy) -> list[Tensor]:
    """List the parents of every level's nodes, as ids + 1 (the root is 0): one table per level.

    Nodes with fewer parents than others of their level repeat their first.
    """
    tables = []
    for depth in range(1, h.max_depth + 1):
        nodes = np.arange(len(h))[h.level(depth)]
        first, last = h.parent_ptr[nodes, None], h.parent_ptr[nodes + 1, None]
        edge = first + np.arange(int((last - first).max()))
        tables.append(torch.from_numpy(h.parent_idx[np.where(edge < last, edge, first)].astype(np.int64) + 1))
    return tables


def leaf_slices(ptr: LongArray, leaves: LongArray, output: LongArray | IntArray) -> tuple[Tensor, Tensor, Tensor]:
    """Locate the leaves of nodes in one line of leaves.

    Parameters
    ----------
    ptr, leaves
        The leaves of node n are leaves[ptr[n]:ptr[n + 1]].
    output
        The output of each node that is a leaf, -1 for others.

    Returns
    -------
    tuple[Tensor, Tensor, Tensor]
        Slices, order and output. Where the leaves of all nodes are consecutive, the line is that of the outputs, and
        the order is empty; else it is all of `leaves`.
    """
    rising = np.diff(leaves) == 1
    rising[ptr[1:-1] - 1] = True
    if rising.all():
        first = leaves[ptr[:-1]]
        slices, order = np.stack([first, first + np.diff(ptr)]), np.zeros(0, np.int64)
    else:
        slices, order = np.stack([ptr[:-1], ptr[1:]]), leaves
    first_last, line, outputs = (torch.from_numpy(np.ascontiguousarray(a, np.int64)) for a in (slices, order, output))
    return first_last, line, outputs


def path_table(h: Hierarchy, leaves: IntArray, of_node: DoubleArray, of_root: float) -> Tensor:
    """Lay the values of nodes out along the path to each leaf of a tree: the root's, its ancestors', and its own.

    Parameters
    ----------
    h
        A tree.
    leaves
        The leaves to lay out, one per row.
    of_node, of_root
        The value of every node, and of the root.

    Returns
    -------
    Tensor
        Leaves x (1 + depth of the tree), 0 after the end of a path.

    Examples
    --------
    >>> h = Hierarchy.from_paths(["A > B", "C"])
    >>> path_table(h, np.array([2, 1]), np.array([1.0, 2.0, 3.0]), 9.0).tolist()
    [[9.0, 1.0, 3.0], [9.0, 2.0, 0.0]]
    """
    paths = h.closure(label_matrix(np.arange(len(leaves) + 1), leaves, len(h)))
    table = np.zeros((len(leaves), h.max_depth + 1))
    table[:, 0] = of_root
    table[row_numbers(paths), h.depth[paths.indices]] = of_node[paths.indices]
    return torch.from_numpy(table)
