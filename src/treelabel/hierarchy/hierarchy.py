"""Hierarchy: a tree or DAG of named labels as frozen integer arrays; how to make one, names and paths."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treelabel.core.errors import TreelabelError
from treelabel.core.html_tables import html_box, html_table
from treelabel.core.plots import draw
from treelabel.core.types import IntArray
from treelabel.hierarchy import change
from treelabel.hierarchy.edges import (
    Edges,
    edges_of_graph,
    edges_of_nested,
    edges_of_pairs,
    edges_of_parents,
    edges_of_paths,
    without_root,
)
from treelabel.hierarchy.identifiers import Identifiers
from treelabel.hierarchy.node_graph import NodeGraph
from treelabel.hierarchy.numbering import NumberedNodes, freeze, number

SEPARATOR = " > "
# Names of a level that notebooks show.
MOST_SHOWN = 6


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy(NodeGraph):
    """A tree or DAG of labels over node ids 0 .. n-1, under a virtual root that is no node (written -1).

    Nodes are numbered level by level: parents come before children, a level is a slice, and in a tree the children of a
    node are consecutive. Depth counts edges from the root (top labels: 1; DAG: the longest way). Make one with
    `from_edges`, `from_parents`, `from_paths`, `from_nested`, `from_networkx`, `flat`, or `treelabel.read_taxonomy`.

    The parents of node i are parent_idx[parent_ptr[i]:parent_ptr[i + 1]], sorted; in a tree parent_idx alone is the
    parent of every node. Names need not be unique, but paths are; `name_array` has them as an Arrow array.
    `identifiers` has the URIs and notations of nodes that come from a vocabulary.

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

    name_array: pa.Array
    identifiers: Identifiers | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _describe(self, node: int) -> str:
        return repr(self.name_array[node].as_py())

    def __repr__(self) -> str:
        kind = "tree" if self.is_tree else "DAG"
        return f"Hierarchy({len(self):,} nodes, {len(self.leaves):,} leaves, depth {self.max_depth}, {kind})"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the levels, and the first labels of each."""
        rows = []
        for depth in range(1, self.max_depth + 1):
            nodes = range(*self.level(depth).indices(len(self)))
            leaves = int(self.is_leaf[self.level(depth)].sum())
            names = ", ".join(self.name_array[node].as_py() for node in nodes[:MOST_SHOWN])
            more = f" and {len(nodes) - MOST_SHOWN:,} more" if len(nodes) > MOST_SHOWN else ""
            rows.append((depth, f"{len(nodes):,}", f"{leaves:,}", names + more))
        return html_box(repr(self), html_table(rows, ("level", "labels", "leaves", "names")))

    # Makers

    @classmethod
    def from_numbered(cls, nodes: NumberedNodes) -> "Hierarchy":
        """Wrap nodes that are numbered already."""
        arrays = freeze(nodes.parent_ptr), freeze(nodes.parent_idx), freeze(nodes.depth)
        return cls(*arrays, nodes.names, nodes.identifiers)

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
        return cls.from_numbered(number(without_root(edges, root), tree))

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
        return cls.from_coded(edges_of_graph(graph), root, tree)

    @classmethod
    def flat(cls, names: Iterable[str]) -> "Hierarchy":
        """Make a hierarchy of one level.

        >>> Hierarchy.flat(["spam", "ham"]).max_depth
        1
        """
        names = list(names)
        return cls.from_parents(np.full(len(names), -1, np.int32), names)

    # Names and paths

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names in order of ids; they need not be unique (see `paths`)."""
        return tuple(self.name_array.to_pylist())

    @cached_property
    def ids_by_name(self) -> dict[str, list[int]]:
        """All ids that bear a name."""
        ids: dict[str, list[int]] = {}
        for node, name in enumerate(self.names):
            ids.setdefault(name, []).append(node)
        return ids

    def with_identifiers(
        self, uris: Iterable[str | None], notations: Iterable[str | None] | None = None
    ) -> "Hierarchy":
        """Return the hierarchy with the URIs and notations by which a vocabulary knows its labels.

        Parameters
        ----------
        uris : iterable of str or None
            One per node, in the order of `names`.
        notations : iterable of str or None, optional
            The same for notations.

        Returns
        -------
        Hierarchy
            With the same fingerprint.

        >>> h = Hierarchy.flat(["cats", "dogs"]).with_identifiers(["http://example.org/1", "http://example.org/2"])
        >>> h.ids_by_identifier["http://example.org/2"]
        [1]
        """
        listed = list(uris)
        identifiers = Identifiers.of(listed, [None] * len(listed) if notations is None else notations)
        if len(listed) != len(self):
            raise TreelabelError(f"{len(listed):,} URIs for {len(self):,} labels; expected one per label, or None")
        return replace(self, identifiers=identifiers)

    @cached_property
    def ids_by_identifier(self) -> dict[str, list[int]]:
        """All ids of a URI or a notation; nothing where there are none."""
        ids: dict[str, list[int]] = {}
        columns = [] if self.identifiers is None else [self.identifiers.uris, self.identifiers.notations]
        for column in columns:
            for node, text in enumerate(column.to_pylist()):
                if text is not None and node not in ids.setdefault(text, []):
                    ids[text].append(node)
        return ids

    @cached_property
    def has_unique_names(self) -> bool:
        """Whether a name alone tells every node apart."""
        return len(self.name_array.unique()) == len(self)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of structure, names and their order, by which scores, models and decisions know their hierarchy.

        >>> Hierarchy.flat(["A", "B"]).fingerprint == Hierarchy.flat(["B", "A"]).fingerprint
        False
        """
        digest = hashlib.sha256(b"treelabel hierarchy 1\n")
        for array in self.parent_graph:
            digest.update(len(array).to_bytes(8, "little") + array.astype("<i4").tobytes())
        for batch in range(0, len(self), 65536):
            for name in self.name_array.slice(batch, 65536).to_pylist():
                encoded = name.encode()
                digest.update(len(encoded).to_bytes(4, "little") + encoded)
        return digest.hexdigest()[:32]

    def require_same(self, fingerprint: str, what: str) -> None:
        """Refuse something that was made for another hierarchy.

        Parameters
        ----------
        fingerprint
            That of the hierarchy it was made for.
        what
            What it is, for the message.
        """
        if fingerprint != self.fingerprint:
            raise TreelabelError(
                f"{what} belongs to another hierarchy (fingerprint {fingerprint[:8]}, here {self.fingerprint[:8]}); "
                "names, their order and the edges must all be the same"
            )

    def path_names(self, node: int) -> list[str]:
        """Return the names from the top label down to a node (DAG: through its last parent, the deepest).

        >>> Hierarchy.from_paths(["A > B"]).path_names(1)
        ['A', 'B']
        """
        return self._path_names(int(self._ids(node)[0]))

    def _path_names(self, node: int) -> list[str]:
        names: list[str] = []
        while node >= 0:
            names.append(self.names[node])
            node = int(self.parent_idx[self.parent_ptr[node + 1] - 1])
        return names[::-1]

    def paths(self, ids: npt.ArrayLike | None = None, sep: str = SEPARATOR) -> list[str]:
        """Return the full path of each node as text.

        Parameters
        ----------
        ids : array_like of int, optional
            The nodes; by default all.
        sep : str
            What stands between the names of a path.

        Returns
        -------
        list of str

        >>> Hierarchy.from_paths(["A > B"]).paths([1], sep="/")
        ['A/B']
        """
        nodes = range(len(self)) if ids is None else self._ids(ids).tolist()
        return [sep.join(self._path_names(node)) for node in nodes]

    def edges(self, root: str | None = None) -> list[tuple[str, str]]:
        """List (parent, child) pairs of names; those of the top labels only if the root gets a name."""
        pairs = zip(self.parent_idx.tolist(), self.edge_child.tolist(), strict=True)
        names = self.names
        return [
            (root if above < 0 else names[above], names[below])  # type: ignore[misc]
            for above, below in pairs
            if above >= 0 or root is not None
        ]

    def plot(self, frequencies: Any = None) -> Any:
        """Draw the levels as rows of boxes, each label under its parent, with names where they fit.

        At most a few thousand boxes are drawn, and what is left out is counted under the plot. A label with several
        parents is drawn under that of its path.

        Parameters
        ----------
        frequencies : Dataset or array of shape (nodes,), optional
            Documents of each label, ancestors included, that make a box wide; by default the leaves under it do.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return draw("a hierarchy", self, frequencies)

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
