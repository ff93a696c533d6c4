"""Hierarchy: a tree or DAG of named labels as frozen integer arrays; how to make one, and the queries on it."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from treelabel.core.compute import join_rows
from treelabel.core.errors import TreelabelError
from treelabel.core.html_tables import html_box, html_table
from treelabel.core.plots import draw
from treelabel.core.types import BoolArray, IntArray, LongArray
from treelabel.hierarchy import ancestry, change, label_matrices
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
from treelabel.hierarchy.label_matrices import LabelMatrix, as_labels, label_matrix, map_rows, take_rows
from treelabel.hierarchy.numbering import NumberedNodes, freeze, group_by, number

SEPARATOR = " > "
# Names of a level that notebooks show.
MOST_SHOWN = 6


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy:
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

    parent_ptr: IntArray
    parent_idx: IntArray
    depth: IntArray
    name_array: pa.Array
    identifiers: Identifiers | None = None

    def __len__(self) -> int:
        return len(self.depth)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

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

    @cached_property
    def is_tree(self) -> bool:
        """Whether every node has exactly one parent, the root counted."""
        return len(self.parent_idx) == len(self)

    @property
    def parent(self) -> IntArray:
        """The parent of every node, -1 for top labels; only a tree has it."""
        if not self.is_tree:
            node = int(np.argmax(np.diff(self.parent_ptr) > 1))
            raise TreelabelError(
                f"this needs a tree, but the hierarchy is a DAG: {self.names[node]!r} has "
                f"{self.parent_ptr[node + 1] - self.parent_ptr[node]} parents; make it a tree with unfold()"
            )
        return self.parent_idx

    @property
    def parent_graph(self) -> tuple[IntArray, IntArray]:
        """The parents of every node: those of n are idx[ptr[n]:ptr[n + 1]], -1 being the root."""
        return self.parent_ptr, self.parent_idx

    # Levels, leaves, sizes

    @property
    def max_depth(self) -> int:
        """The depth of the deepest level (0 without nodes)."""
        return int(self.depth[-1]) if len(self) else 0

    @cached_property
    def level_ptr(self) -> LongArray:
        """Where levels begin: the nodes of depth d are the ids level_ptr[d - 1] .. level_ptr[d] - 1."""
        return freeze(np.searchsorted(self.depth, np.arange(1, self.max_depth + 2)).astype(np.int64))

    def level(self, depth: int) -> slice:
        """Return the nodes at a depth as a slice of ids.

        >>> Hierarchy.from_paths(["A > B", "A > C"]).level(2)
        slice(1, 3, None)
        """
        if not 1 <= depth <= self.max_depth:
            raise TreelabelError(f"depth {depth} is not in the hierarchy, whose levels are 1 to {self.max_depth}")
        return slice(int(self.level_ptr[depth - 1]), int(self.level_ptr[depth]))

    @property
    def level_sizes(self) -> list[int]:
        """Count the nodes of each level, from depth 1 on."""
        return np.diff(self.level_ptr).tolist() if len(self) else []

    @cached_property
    def child_graph(self) -> tuple[IntArray, IntArray]:
        """The children of every node: those of n are idx[ptr[n + 1]:ptr[n + 2]], and idx[:ptr[1]] the top labels.

        In a tree idx is 0, 1, 2, ... and ptr alone has the children as slices of ids.
        """
        ptr, edges = group_by(self.parent_idx + np.int32(1), len(self) + 1)
        return freeze(ptr), freeze(self.edge_child[edges])

    @cached_property
    def edge_child(self) -> IntArray:
        """The child of every edge; its parent is the entry of `parent_idx` at the same place."""
        return freeze(np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.parent_ptr)))

    @cached_property
    def is_leaf(self) -> BoolArray:
        """Mark nodes without children."""
        return freeze(np.equal(np.diff(self.child_graph[0])[1:], 0))

    @cached_property
    def leaves(self) -> IntArray:
        """Ids of the nodes without children."""
        return freeze(np.flatnonzero(self.is_leaf).astype(np.int32))

    @cached_property
    def subtree_sizes(self) -> IntArray:
        """Count each node with its distinct descendants; linear in a tree, in a DAG as long as the answer."""
        if self.is_tree:
            return freeze(ancestry.subtree_sizes(self.parent))
        down = self.descendants(np.arange(len(self)))
        return freeze((np.diff(down.indptr) + 1).astype(np.int32))

    @cached_property
    def shortest_depth(self) -> IntArray:
        """Edges of the shortest way from the root; in a tree the same as `depth`."""
        return self.depth if self.is_tree else freeze(ancestry.shortest_depths(*self.parent_graph))

    # Relations of single nodes

    def _ids(self, ids: npt.ArrayLike, lowest: int = 0) -> IntArray:
        nodes = np.atleast_1d(np.asarray(ids))
        if nodes.ndim != 1 or (len(nodes) and nodes.dtype.kind not in "iu"):
            raise TreelabelError(f"expected node ids, found an array of {nodes.dtype} {nodes.shape}")
        if len(nodes) and not (lowest <= nodes.min() and nodes.max() < len(self)):
            wrong = nodes[(nodes < lowest) | (nodes >= len(self))][0]
            raise TreelabelError(f"node id {wrong} is out of range: the hierarchy has ids {lowest} to {len(self) - 1}")
        return nodes.astype(np.int32, copy=False)

    def parents_of(self, node: int) -> list[int]:
        """List the parents of one node, sorted; -1 is the root.

        >>> Hierarchy.from_edges([("A", "B"), ("A", "C"), ("B", "C")]).parents_of(2)
        [0, 1]
        """
        parents: list[int] = self.parent_idx[self.parent_ptr[node] : self.parent_ptr[node + 1]].tolist()
        return parents

    def parents(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the parents of each node; top labels have an empty row."""
        nodes = self._ids(ids)
        ptr, flat = take_rows(*self.parent_graph, nodes)
        real = flat >= 0
        counts = np.concatenate([[0], np.cumsum(real)])
        return label_matrix(counts[ptr], flat[real], len(self))

    def children(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the children of each node (-1: the top labels)."""
        ptr, idx = self.child_graph
        return label_matrix(*take_rows(ptr, idx, self._ids(ids, lowest=-1) + np.int32(1)), len(self))

    def siblings(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the other children of each node's parents.

        >>> h = Hierarchy.from_paths(["A > C", "A > D", "B > E"])
        >>> h.siblings([2, 4]).toarray().astype(int).tolist()
        [[0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]
        """
        nodes = self._ids(ids)
        ptr, above = take_rows(*self.parent_graph, nodes)
        child_ptr, child_idx = self.child_graph
        flat_ptr, flat = take_rows(child_ptr, child_idx, above + np.int32(1))
        row = np.repeat(np.arange(len(nodes)), np.diff(flat_ptr[ptr]))
        other = flat != nodes[row]
        others = sparse.coo_array((np.ones(other.sum(), np.bool_), (row[other], flat[other])), (len(nodes), len(self)))
        return as_labels(others.tocsr(), len(self))

    def ancestors(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the ancestors of each node, without itself and the root; as long as the answer."""
        return self.closure(self.parents(ids))

    def descendants(self, ids: npt.ArrayLike) -> LabelMatrix:
        """List the descendants of each node, without itself (-1: all nodes); as long as the answer."""
        ptr, idx = self.child_graph
        return map_rows(label_matrices.reach, (ptr[1:], idx), self.children(ids))

    def is_ancestor(self, upper: npt.ArrayLike, lower: npt.ArrayLike) -> BoolArray:
        """Mark the pairs in which `upper` is a proper ancestor of `lower`; in a tree, constant time per pair.

        Parameters
        ----------
        upper, lower : node ids
            Numbers or arrays of the same shape.

        Returns
        -------
        array of bool

        >>> h = Hierarchy.from_paths(["A > B > C", "D"])
        >>> h.is_ancestor([0, 1, 2], [3, 2, 2]).tolist()
        [True, False, False]
        """
        above, below = self._pairs(upper, lower)
        if self.is_tree:
            rank, sizes = self._preorder, self.subtree_sizes
            # One unsigned comparison does for both ends of rank[above] < rank[below] < rank[above] + size.
            inside: BoolArray = (rank[below] - rank[above] - 1).view(np.uint32) < (sizes[above] - 1).view(np.uint32)
            return inside
        pairs = *self.parent_graph, above, below
        reached = join_rows(lambda start, stop: ancestry.dag_is_ancestor(*pairs, start, stop), len(above))
        proper: BoolArray = reached & (above != below)
        return proper

    def lowest_common_ancestor(self, left: npt.ArrayLike, right: npt.ArrayLike) -> IntArray:
        """Find the deepest node above or equal to both nodes of each pair; -1 is the root.

        In a tree a pair costs the logarithm of the nodes, whatever the depth; in a DAG the ancestors of the pair (of
        equally deep ones, the largest id).

        Parameters
        ----------
        left, right : node ids
            Numbers or arrays of the same shape.

        Returns
        -------
        array of node ids

        >>> h = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
        >>> h.lowest_common_ancestor([4, 4, 4], [3, 2, 1]).tolist()
        [0, 2, -1]
        """
        one, two = self._pairs(left, right)
        if not self.is_tree:
            return self._dag_meet(one, two)[0]
        pairs = self._heads, self.parent, one, two
        met: IntArray = join_rows(lambda start, stop: ancestry.tree_meet(*pairs, start, stop), len(one))
        return met

    def distance(self, left: npt.ArrayLike, right: npt.ArrayLike) -> IntArray:
        """Count the edges of the shortest way up and down again between the nodes of each pair.

        Parameters
        ----------
        left, right : node ids
            Numbers or arrays of the same shape; -1 is the root.

        Returns
        -------
        array of int

        >>> h = Hierarchy.from_paths(["A > B > C", "A > D", "E"])
        >>> h.distance([4, 4, 4], [3, 2, 1]).tolist()
        [3, 1, 4]
        """
        one, two = self._pairs(left, right)
        if not self.is_tree:
            return self._dag_meet(one, two)[1]
        met = self.lowest_common_ancestor(one, two)
        return self.depth[one] + self.depth[two] - 2 * np.where(met >= 0, self.depth[met], 0).astype(np.int32)

    def _dag_meet(self, one: IntArray, two: IntArray) -> tuple[IntArray, IntArray]:
        pairs = *self.parent_graph, one, two
        met, length = join_rows(lambda start, stop: ancestry.dag_meet(*pairs, start, stop), len(one))
        return met, length

    def _pairs(self, left: npt.ArrayLike, right: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        one, two = self._ids(left), self._ids(right)
        if len(one) != len(two) and 1 not in (len(one), len(two)):
            raise TreelabelError(
                f"expected pairs of node ids, found {len(one):,} on the left and {len(two):,} on the right"
            )
        if len(one) != len(two):
            # Copies, as numpy warns of arrays that were broadcast.
            one, two = (each.copy() for each in np.broadcast_arrays(one, two))
        return one, two

    @cached_property
    def _heads(self) -> IntArray:
        return ancestry.heavy_path_heads(self.parent, self.subtree_sizes)

    @cached_property
    def _preorder(self) -> IntArray:
        return ancestry.preorder(self.parent, self.subtree_sizes)

    # Label sets

    def closure(self, labels: Any) -> LabelMatrix:
        """Add to each row all ancestors of its labels: cl(S) = union of A(s).

        Takes and returns a label matrix, documents x nodes. Costs the size of the result; rows run on all cores.

        >>> h = Hierarchy.from_paths(["A > B", "C"])
        >>> h.closure([[0, 0, 1], [0, 1, 0]]).toarray().astype(int).tolist()
        [[1, 0, 1], [0, 1, 0]]
        """
        rows = as_labels(labels, len(self))
        if self.is_tree:
            return map_rows(label_matrices.close_in_tree, (self.parent, self.max_depth), rows)
        return map_rows(label_matrices.reach, self.parent_graph, rows)

    def most_specific(self, labels: Any) -> LabelMatrix:
        """Drop from each row the labels that are ancestors of another label of the row."""
        return map_rows(label_matrices.keep_most_specific, self.parent_graph, as_labels(labels, len(self)))

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
