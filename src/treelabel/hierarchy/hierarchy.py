"""Hierarchy: a tree or DAG of named labels; how to make one, and other hierarchies made of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from treelabel.core.errors import TreelabelError
from treelabel.core.types import IntArray
from treelabel.hierarchy import build, change
from treelabel.hierarchy.edges import (
    Edges,
    edges_of_nested,
    edges_of_pairs,
    edges_of_parents,
    edges_of_paths,
    without_root,
)
from treelabel.hierarchy.named import SEPARATOR, NamedStructure


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy(NamedStructure):
    """A tree or DAG of labels over node ids 0 .. n-1, under a virtual root that is no node (written -1).

    Nodes are numbered level by level: parents come before children, a level is a slice, and in a tree the children of a
    node are consecutive. Depth counts edges from the root (top labels: 1; DAG: the longest way). Make one with
    `from_edges`, `from_parents`, `from_paths`, `from_nested`, `from_networkx`, `flat`, or `treelabel.read_taxonomy`.

    Queries take an id or an array of ids and answer with label matrices (one row per id, one column per node), so that
    every set of nodes in the library has the same form.

    >>> h = Hierarchy.from_edges([("animal", "dog"), ("animal", "cat"), ("dog", "hound")])
    >>> h
    Hierarchy(4 nodes, 2 leaves, depth 3, tree)
    >>> h.names
    ('animal', 'dog', 'cat', 'hound')
    >>> h.depth.tolist(), h.leaves.tolist()
    ([1, 2, 2, 3], [2, 3])
    >>> h.ancestors([3]).indices.tolist()
    [0, 1]
    """

    def __repr__(self) -> str:
        kind = "tree" if self.is_tree else "DAG"
        return f"Hierarchy({len(self):,} nodes, {len(self.leaves):,} leaves, depth {self.max_depth}, {kind})"

    # Makers

    @classmethod
    def from_coded(cls, edges: Edges, root: str | None = "", tree: bool = False) -> "Hierarchy":
        """Make a hierarchy of edges that are already coded as integers (for readers of formats).

        Parameters
        ----------
        root
            As for `from_edges`.
        tree
            Whether a node with several parents is refused.

        Returns
        -------
        Hierarchy
        """
        return cls._of(build.number(without_root(edges, root), tree))

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[str, str]],
        root: str | None = None,
        nodes: Iterable[str] = (),
        tree: bool = False,
    ) -> "Hierarchy":
        """Make a hierarchy of (parent, child) pairs of names; a name is one node, however often it occurs.

        Linear in nodes and edges.

        Parameters
        ----------
        edges : iterable of (str, str)
            Nodes without a parent hang under the root.
        root : str, optional
            The node that stands for the virtual root. By default a single top node called "Root" (in any case) is
            taken for it; "" keeps even that as a label.
        nodes : iterable of str
            Labels that may have no edge.
        tree : bool
            Whether to refuse a label with two parents.

        Returns
        -------
        Hierarchy

        >>> Hierarchy.from_edges([("root", "A"), ("A", "B")], root="root").names
        ('A', 'B')
        """
        return cls.from_coded(edges_of_pairs(edges, nodes), root, tree)

    @classmethod
    def from_parents(
        cls,
        parents: Mapping[str, str | Sequence[str] | None] | Sequence[int] | IntArray,
        names: Sequence[str] | None = None,
        tree: bool = False,
    ) -> "Hierarchy":
        """Make a hierarchy of a mapping label -> parent(s), or of parent numbers (-1: none) and names.

        Parameters
        ----------
        parents
            The parents of each node.
        names
            The names of the nodes, where parents are numbers.
        tree
            Whether a node with several parents is refused.

        Returns
        -------
        Hierarchy

        >>> Hierarchy.from_parents({"A": None, "B": "A", "C": "A"}).parent.tolist()
        [-1, 0, 0]
        >>> Hierarchy.from_parents([-1, 0, 0], names=["A", "B", "C"]).names
        ('A', 'B', 'C')
        """
        return cls.from_coded(edges_of_parents(parents, names), tree=tree)

    @classmethod
    def from_paths(cls, paths: Iterable[str | Sequence[str]], sep: str = SEPARATOR) -> "Hierarchy":
        """Make a tree of label paths, strings to split at `sep` or sequences of names.

        Paths tell nodes apart: "Other" under A and "Other" under B are two nodes with one name.

        Parameters
        ----------
        paths
            The paths; every beginning of one is a node.
        sep
            What separates names in a string.

        Returns
        -------
        Hierarchy

        >>> Hierarchy.from_paths(["A > Other", "B > Other"]).paths()
        ['A', 'B', 'A > Other', 'B > Other']
        """
        split = (split_path(path, sep) if isinstance(path, str) else path for path in paths)
        return cls.from_coded(edges_of_paths(split))

    @classmethod
    def from_nested(cls, tree: Any, root: str | None = None) -> "Hierarchy":
        """Make a tree of nested dicts and lists, or of {"name": ..., "children": [...]} objects.

        Parameters
        ----------
        root
            As for `from_edges`.

        Returns
        -------
        Hierarchy

        >>> Hierarchy.from_nested({"A": {"B": {}, "C": ["D"]}}).paths()
        ['A', 'A > B', 'A > C', 'A > C > D']
        """
        return cls.from_coded(edges_of_nested(tree), root)

    @classmethod
    def from_networkx(cls, graph: Any, root: str | None = None, tree: bool = False) -> "Hierarchy":
        """Make a hierarchy of a networkx DiGraph whose edges go from parent to child; nodes are named by `str`.

        Parameters
        ----------
        root
            As for `from_edges`.
        tree
            Whether a node with several parents is refused.

        Returns
        -------
        Hierarchy
        """
        if not graph.is_directed():
            raise TreelabelError("the graph has no directions; expected a DiGraph with edges from parent to child")
        names = {node: str(node) for node in graph.nodes}
        if len(set(names.values())) < len(names):
            raise TreelabelError("two nodes of the graph have the same text as a name; rename them first")
        pairs = [(names[above], names[below]) for above, below in graph.edges()]
        return cls.from_edges(pairs, root, names.values(), tree)

    @classmethod
    def flat(cls, names: Iterable[str]) -> "Hierarchy":
        """Make a hierarchy of one level.

        >>> Hierarchy.flat(["spam", "ham"]).max_depth
        1
        """
        names = list(names)
        return cls.from_parents(np.full(len(names), -1, np.int32), names)

    # Other hierarchies made of this one, each with the mapping there and back

    def cut(self, depth: int) -> "Change":
        """Keep the levels down to a depth; deeper labels move to their ancestor there."""
        return change.cut(self, depth)

    def prune(self, keep: npt.ArrayLike) -> "Change":
        """Keep the given nodes and their ancestors; other labels move to their nearest kept ancestor."""
        return change.prune(self, self._ids(keep))

    def with_other_leaves(self, nodes: npt.ArrayLike) -> "Change":
        """Add a child "other [name]" to each internal node among `nodes`, for documents that stop at it."""
        return change.with_other_leaves(self, self._ids(nodes))

    def unfold(self, limit: int = 10_000_000) -> "Change":
        """Make a DAG a tree: one copy of a node for every way to it, named by its parent in brackets."""
        return change.unfold(self, limit)

    def collapse_chains(self) -> "Change":
        """Drop every node whose only child has no other parent, so that each step down is a choice."""
        return change.collapse_chains(self)


Change: TypeAlias = change.ChangeOf[Hierarchy]


def split_path(path: str, sep: str) -> list[str]:
    """Split a label path and strip its parts.

    Parameters
    ----------
    sep
        What separates its parts.

    Returns
    -------
    list of str

    >>> split_path("A >B > C", ">")
    ['A', 'B', 'C']
    """
    return [part.strip() for part in path.split(sep)]
