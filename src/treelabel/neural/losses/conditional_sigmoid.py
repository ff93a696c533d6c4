"""Conditional sigmoid: a sigmoid for every node given its parents."""

from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.types import DoubleArray, IntArray, LongArray
from treelabel.neural.losses.base import Truth
from treelabel.neural.losses.bce import Bce
from treelabel.neural.losses.groups import GroupedLoss, Groups
from treelabel.neural.losses.parents import smallest_of_parents


class ConditionalSigmoid(Bce, GroupedLoss):
    """Binary cross-entropy over the nodes whose parents are all true: w_n = 1 there, and 0 elsewhere.

    P(n) = sigmoid(s_n) P(parent); in a DAG the least likely parent counts, for a true node has only true parents. Takes
    any labels (several paths, paths that end inside, none) and any hierarchy.

    >>> from treelabel.hierarchy import Hierarchy
    >>> loss = ConditionalSigmoid(Hierarchy.from_paths(["A > B"]))
    >>> loss.loss([[0.0, 0.0]], [[0, 0]]).round(3).tolist(), loss.probabilities([[0.0, 0.0]]).tolist()
    ([0.693], [[0.5, 0.25]])
    """

    name = "conditional_sigmoid"
    coherent = True

    def weights(self, truth: Truth) -> DoubleArray:
        """Return 1 for the nodes whose parents are all true and 0 for others: documents x nodes."""
        (ptr, idx), (opened_ptr, opened) = self.groups, self.open_groups(truth)
        is_open = np.zeros((len(truth), len(ptr) - 1))
        is_open[np.repeat(np.arange(len(truth)), np.diff(opened_ptr)), opened] = 1.0
        found = np.empty(truth.closed.shape)
        found[:, idx] = np.repeat(is_open, np.diff(ptr), axis=1)
        return found

    def probabilities(self, logits: npt.ArrayLike) -> DoubleArray:
        """Return sigmoid(s_n) P(parent): documents x nodes."""
        h, p = self.hierarchy, super().probabilities(logits)
        for depth in range(2, h.max_depth + 1):
            nodes, of_parents = smallest_of_parents(h, depth, p, 1.0)
            p[:, nodes] *= of_parents
        return p

    @property
    def groups(self) -> Groups:
        """The nodes with the same parents."""
        return self._groups[0]

    def open_groups(self, truth: Truth) -> tuple[LongArray, IntArray]:
        """Return the groups whose parents are all true; the top labels, group 0, always are."""
        parents = self._groups[1]
        needed = np.bincount(parents.indices, minlength=parents.shape[1])
        found = sparse.csr_array(truth.closed.astype(np.int32) @ parents)
        found.data *= found.data == needed[found.indices]
        found.eliminate_zeros()
        found.sort_indices()
        opened = np.insert(found.indices, found.indptr[:-1], 0).astype(np.int32)
        return (found.indptr + np.arange(len(found.indptr))).astype(np.int64), opened

    @cached_property
    def _groups(self) -> tuple[Groups, sparse.csr_array]:
        """The nodes with the same parents, and the parents of each group (nodes x groups)."""
        h = self.hierarchy
        members: dict[tuple[int, ...], list[int]] = {}
        for node in range(len(h)):
            parents = h.parent_idx[h.parent_ptr[node] : h.parent_ptr[node + 1]].tolist()
            members.setdefault(tuple(parents), []).append(node)
        ptr = np.concatenate([[0], np.cumsum([len(group) for group in members.values()])])
        idx = np.concatenate([*members.values()]).astype(np.int32)
        pairs = [(node, group) for group, parents in enumerate(members) for node in parents if node >= 0]
        row, column = np.array(pairs, np.int64).reshape(-1, 2).T
        of_group = sparse.csr_array((np.ones(len(row), np.int32), (row, column)), (len(h), len(members)))
        return Groups(ptr, idx), of_group
