"""Slow, obvious twins of the fast code: Python sets and dicts, each straight from its definition."""

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from scipy import sparse

from treelabel.hierarchy import LabelMatrix, label_matrix

ROOT = -1


class SlowHierarchy:
    """A hierarchy as a dict from each node to the set of its parents; the virtual root is -1."""

    def __init__(self, parents: Mapping[int, set[int]]) -> None:
        self.parents = {node: set(above) for node, above in parents.items()}

    @cached_property
    def children(self) -> dict[int, set[int]]:
        """The children of every node, and of the root."""
        below: dict[int, set[int]] = {node: set() for node in [ROOT, *self.parents]}
        for node, parents in self.parents.items():
            for parent in parents:
                below[parent].add(node)
        return below

    def ancestors(self, node: int) -> set[int]:
        """All nodes above a node, without the root."""
        found: set[int] = set()
        for parent in self.parents[node] - {ROOT}:
            found |= {parent} | self.ancestors(parent)
        return found

    def descendants(self, node: int) -> set[int]:
        """All nodes that have this one as an ancestor."""
        return {other for other in self.parents if node in self.ancestors(other)}

    def siblings(self, node: int) -> set[int]:
        """The other children of a node's parents, of the root too."""
        found: set[int] = set()
        for parent in self.parents[node]:
            found |= self.children[parent]
        return found - {node}

    def closure(self, labels: Iterable[int]) -> set[int]:
        """The labels with all their ancestors."""
        found: set[int] = set()
        for label in labels:
            found |= {label} | self.ancestors(label)
        return found

    def most_specific(self, labels: Iterable[int]) -> set[int]:
        """The labels that are above no other label of the set."""
        given = set(labels)
        return {label for label in given if not any(self.is_ancestor(label, other) for other in given)}

    def is_ancestor(self, upper: int, lower: int) -> bool:
        """Whether `upper` is a proper ancestor of `lower`."""
        return upper in self.ancestors(lower)

    def longest_depth(self, node: int) -> int:
        """Edges of the longest way from the root."""
        return 0 if node == ROOT else 1 + max(self.longest_depth(parent) for parent in self.parents[node])

    def shortest_depth(self, node: int) -> int:
        """Edges of the shortest way from the root."""
        return 0 if node == ROOT else 1 + min(self.shortest_depth(parent) for parent in self.parents[node])

    def deepest_common_ancestor(self, left: int, right: int) -> int:
        """The deepest node (longest depth) above or equal to both; of equally deep ones the largest; -1 if none."""
        common = self.closure([left]) & self.closure([right])
        return max(common, key=lambda node: (self.longest_depth(node), node), default=ROOT)

    def distance(self, left: int, right: int) -> int:
        """Edges of the shortest way up to some common ancestor, the root included, and down."""
        one, two = self.steps_up(left), self.steps_up(right)
        return min(one[node] + two[node] for node in one.keys() & two.keys())

    def steps_up(self, node: int) -> dict[int, int]:
        """The fewest steps up from a node to itself, each ancestor and the root."""
        steps = {node: 0}
        if node != ROOT:
            for parent in self.parents[node]:
                for above, count in self.steps_up(parent).items():
                    steps[above] = min(steps.get(above, count + 1), count + 1)
        return steps

    @property
    def leaves(self) -> set[int]:
        """The nodes without children."""
        return {node for node in self.parents if not self.children[node]}

    def subtree_size(self, node: int) -> int:
        """The number of distinct nodes at or below a node."""
        return 1 + len(self.descendants(node))

    def ways(self, node: int) -> set[tuple[int, ...]]:
        """All ways down from the root to a node, each as the nodes on it."""
        if node == ROOT:
            return {()}
        return {(*way, node) for parent in self.parents[node] for way in self.ways(parent)}


def matrix_of(rows: list[set[int]], columns: int) -> LabelMatrix:
    """Make a label matrix of label sets."""
    ptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return label_matrix(ptr, [node for row in rows for node in sorted(row)], columns)


def sets_of(matrix: LabelMatrix, columns: int) -> list[set[int]]:
    """Read the label sets of a label matrix, which must be in the one form: boolean, sorted, no duplicates or zeros."""
    assert isinstance(matrix, sparse.csr_array)
    assert matrix.dtype == np.bool_
    assert matrix.indices.dtype == np.int32
    assert matrix.shape[1] == columns
    assert matrix.data.all()
    rows = [
        matrix.indices[start:stop].tolist() for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    ]
    assert all(row == sorted(set(row)) for row in rows)
    return [set(row) for row in rows]
