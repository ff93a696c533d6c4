"""Label trees: clusters of labels, of clusters, and so on, so that most labels need not be looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Array, Arrays
from treelabel.core.errors import TreelabelError
from treelabel.core.types import IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy

# Levels of a tree at most.
MOST_LEVELS = 64
# Ways to a node of a DAG, on average, with which it is still used as a label tree.
MOST_COPIES = 20


@dataclass(frozen=True, eq=False)
class LabelTree:
    """A tree whose leaves are labels, all of them on its last level; a label may stand in several clusters.

    Parameters
    ----------
    children : tuple of arrays of int64
        One per level: the nodes below node j are children[level][j] to children[level][j + 1], on the next level. The
        first array is [0, nodes of level 1], those below the root.
    labels : array of int32
        The label of each node of the last level.

    >>> tree = LabelTree((np.array([0, 2]), np.array([0, 1, 3])), np.array([7, 5, 6], np.int32))
    >>> tree.depth, tree.sizes, tree.parents(1).tolist()
    (2, [2, 3], [0, 1, 1])
    """

    children: tuple[LongArray, ...]
    labels: IntArray

    @property
    def depth(self) -> int:
        """The number of levels below the root."""
        return len(self.children)

    @property
    def sizes(self) -> list[int]:
        """The number of nodes of each level below the root."""
        return [int(ends[-1]) for ends in self.children]

    def parents(self, level: int) -> LongArray:
        """Return the node above each node of a level."""
        ends = self.children[level]
        return np.repeat(np.arange(len(ends) - 1), np.diff(ends))

    def above(self, labels: sparse.csr_array) -> list[sparse.csr_array]:
        """Return the nodes of each level that are above the labels of documents.

        Parameters
        ----------
        labels : csr_array of shape (documents, labels)
            Labels of documents.

        Returns
        -------
        list of csr_array of shape (documents, nodes of the level)
            Boolean, one per level; the last one has the labels themselves.
        """
        marks = sparse.csr_array((np.ones(labels.nnz, np.float32), labels.indices, labels.indptr), labels.shape)
        count = len(self.labels)
        ones = np.ones(count, np.float32)
        instances = sparse.csr_array((ones, self.labels, np.arange(count + 1)), (count, labels.shape[1]))
        levels = [sparse.csr_array(marks @ instances.T)]
        for level in range(self.depth - 1, 0, -1):
            up = sparse.csr_array(
                (np.ones(self.sizes[level], np.float32), self.parents(level), np.arange(self.sizes[level] + 1)),
                (self.sizes[level], self.sizes[level - 1]),
            )
            levels.insert(0, sparse.csr_array(levels[0] @ up))
        for each in levels:
            each.sort_indices()
        return [sparse.csr_array((each.data > 0, each.indices, each.indptr), each.shape) for each in levels]

    # Saving

    def arrays(self) -> Arrays:
        """Return the tree as arrays to save."""
        return {
            "tree_sizes": np.array([len(ends) for ends in self.children], np.int64),
            "tree_children": np.concatenate(self.children),
            "tree_labels": self.labels,
        }

    @staticmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns; labels are below the size "labels"."""
        return {
            "tree_sizes": Array("int64", ("levels",), 2),
            "tree_children": Array("int64", ("tree_ends",), 0),
            "tree_labels": Array("int32", ("instances",), 0, "labels + -1"),
        }

    @classmethod
    def of(cls, arrays: Arrays) -> "LabelTree":
        """Make a tree of what `arrays` returned; what is no tree is refused."""
        ends = np.cumsum(np.concatenate([[0], arrays["tree_sizes"]]))
        if ends[-1] != len(arrays["tree_children"]):
            raise TreelabelError("tree_sizes does not add up to the length of tree_children")
        parts = tuple(arrays["tree_children"][low:high] for low, high in pairwise(ends))
        above = 1
        for level, part in enumerate(parts):
            if len(part) != above + 1 or part[0] != 0 or (np.diff(part) < 0).any():
                raise TreelabelError(f"tree_children: level {level} does not divide the nodes of the next one")
            above = int(part[-1])
        if above != len(arrays["tree_labels"]):
            raise TreelabelError("tree_labels has another number of labels than the last level has nodes")
        return cls(parts, arrays["tree_labels"])


def tree_of(groups: Sequence[Any]) -> LabelTree:
    """Make a label tree of nested sequences: a number is a label, a sequence a cluster.

    Labels that are less deep than others get clusters of their own above them.

    >>> tree = tree_of([[0, 1], 2])
    >>> [ends.tolist() for ends in tree.children], tree.labels.tolist()
    ([[0, 2], [0, 2, 3]], [0, 1, 2])
    """

    def deep(group: Any) -> int:
        return 0 if isinstance(group, int) else 1 + max(map(deep, group))

    children, level, depth = [], [groups], deep(groups)
    for left in range(depth - 1, -1, -1):
        below = [[part] if isinstance(part, int) or deep(part) < left + 1 else list(part) for part in level]
        children.append(np.cumsum([0, *map(len, below)]).astype(np.int64))
        level = [part for parts in below for part in parts]
    return LabelTree(tuple(children), np.array(level, np.int32))


def hierarchy_tree(hierarchy: Hierarchy, nodes: IntArray) -> LabelTree:
    """Use a hierarchy as the label tree of some of its nodes.

    In a DAG, a label stands below each of its parents. A label that has labels below it stands beside them, in the
    cluster of its own node. Nodes without any of the labels are left out.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or a DAG.
    nodes : array of int32
        The nodes that are labels, by label.

    Returns
    -------
    LabelTree
        Clusters are the inner nodes of the hierarchy.
    """
    if hierarchy.max_depth > MOST_LEVELS:
        raise TreelabelError(
            f"the hierarchy has {hierarchy.max_depth:,} levels, and as a label tree it may have {MOST_LEVELS}; "
            "use tree='clusters'"
        )
    try:
        change = None if hierarchy.is_tree else hierarchy.unfold(MOST_COPIES * len(hierarchy))
    except TreelabelError as error:
        raise TreelabelError(f"{error}; use tree='clusters'") from None
    unfolded = hierarchy if change is None else change.new
    label_of = np.full(len(hierarchy), -1, np.int64)
    label_of[nodes] = np.arange(len(nodes))
    labels = label_of if change is None else label_of[change.origin]
    wanted = labels >= 0
    parent = unfolded.parent_idx[unfolded.parent_ptr[:-1]]
    for node in range(len(unfolded) - 1, -1, -1):
        if wanted[node] and parent[node] >= 0:
            wanted[parent[node]] = True
    groups: dict[int, list[Any]] = {node: [] for node in range(-1, len(unfolded)) if node < 0 or wanted[node]}
    for node in range(len(unfolded) - 1, -1, -1):
        if not wanted[node]:
            continue
        below = groups[node][::-1]
        part = ([int(labels[node])] if labels[node] >= 0 else []) + below
        groups[int(parent[node])].append(part[0] if len(part) == 1 and isinstance(part[0], int) else part)
    return tree_of(groups[-1][::-1])
