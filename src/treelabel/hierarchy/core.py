"""Hierarchy: a tree or DAG of named labels; how to make one, its names and paths, and other hierarchies made of it."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treelabel.core.compute import IntArray
from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import build
from treelabel.hierarchy.nested import edges_of_nested
from treelabel.hierarchy.structure import Structure, frozen

if TYPE_CHECKING:
    from treelabel.hierarchy.change import Change

SEPARATOR = " > "


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy(Structure):
    """A tree or DAG of labels over node ids 0 .. n-1, under a virtual root that is no node (written -1).

    Nodes are numbered level by level: parents come before children, a level is a slice, and in a tree the children of a
    node are consecutive. Depth counts edges from the root (top labels: 1; DAG: the longest way). Make one with
    `from_edges`, `from_parents`, `from_paths`, `from_nested`, `from_networkx`, `flat`, or `treelabel.read_taxonomy`.

    Queries take an id or an array of ids and answer with label matrices (one row an id, one column a node), so that
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

    name_array: pa.Array = field(metadata={"help": "names as an Arrow array; `names` gives them as a tuple"})

    # Makers

    @classmethod
    def _of(cls, numbered: build.Numbered) -> "Hierarchy":
        ptr, idx, depth = numbered.parent_ptr, numbered.parent_idx, numbered.depth
        return cls(frozen(ptr), frozen(idx), frozen(depth), numbered.names)

    @classmethod
    def from_coded(cls, edges: build.Edges, root: str | None = "", tree: bool = False) -> "Hierarchy":
        """Make a hierarchy of edges that are already coded as integers (for readers of formats)."""
        return cls._of(build.number(build.without_root(edges, root), tree))

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[str, str]],
        root: str | None = None,
        nodes: Iterable[str] = (),
        tree: bool = False,
    ) -> "Hierarchy":
        """Make a hierarchy of (parent, child) pairs of names; a name is one node, however often it occurs.

        `root` names the node that stands for the virtual root. Without it, a single top node called "Root" (in any
        case) is taken for it; `root=""` keeps even that as a label. Other nodes without a parent hang under the root.
        `nodes` may name labels without edges. `tree=True` refuses a label with two parents.
        Linear in nodes and edges.

        >>> Hierarchy.from_edges([("root", "A"), ("A", "B")], root="root").names
        ('A', 'B')
        """
        return cls.from_coded(build.edges_of_pairs(edges, nodes), root, tree)

    @classmethod
    def from_parents(
        cls,
        parents: Mapping[str, str | Sequence[str] | None] | Sequence[int] | IntArray,
        names: Sequence[str] | None = None,
        tree: bool = False,
    ) -> "Hierarchy":
        """Make a hierarchy of a mapping label -> parent(s), or of parent numbers (-1: none) and names.

        >>> Hierarchy.from_parents({"A": None, "B": "A", "C": "A"}).parent.tolist()
        [-1, 0, 0]
        >>> Hierarchy.from_parents([-1, 0, 0], names=["A", "B", "C"]).names
        ('A', 'B', 'C')
        """
        return cls.from_coded(build.edges_of_parents(parents, names), tree=tree)

    @classmethod
    def from_paths(cls, paths: Iterable[str | Sequence[str]], sep: str = SEPARATOR) -> "Hierarchy":
        """Make a tree of label paths, strings to split at `sep` or sequences of names.

        Paths tell nodes apart: "Other" under A and "Other" under B are two nodes with one name.

        >>> Hierarchy.from_paths(["A > Other", "B > Other"]).paths()
        ['A', 'B', 'A > Other', 'B > Other']
        """
        split = (split_path(path, sep) if isinstance(path, str) else path for path in paths)
        return cls.from_coded(build.edges_of_paths(split))

    @classmethod
    def from_nested(cls, tree: Any, root: str | None = None) -> "Hierarchy":
        """Make a tree of nested dicts and lists, or of {"name": ..., "children": [...]} objects.

        >>> Hierarchy.from_nested({"A": {"B": {}, "C": ["D"]}}).paths()
        ['A', 'A > B', 'A > C', 'A > C > D']
        """
        return cls.from_coded(edges_of_nested(tree), root)

    @classmethod
    def from_networkx(cls, graph: Any, root: str | None = None, tree: bool = False) -> "Hierarchy":
        """Make a hierarchy of a networkx DiGraph whose edges go from parent to child; nodes are named by `str`."""
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

    # What it is

    def __repr__(self) -> str:
        kind = "tree" if self.is_tree else "DAG"
        return f"Hierarchy({len(self):,} nodes, {len(self.leaves):,} leaves, depth {self.max_depth}, {kind})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

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

    @cached_property
    def has_unique_names(self) -> bool:
        """Whether a name alone tells every node apart."""
        return len(self.name_array.unique()) == len(self)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of structure, names and their order: what scores, models and decisions carry to know their hierarchy.

        >>> Hierarchy.flat(["A", "B"]).fingerprint == Hierarchy.flat(["B", "A"]).fingerprint
        False
        """
        digest = hashlib.sha256(b"treelabel hierarchy 1\n")
        for array in (self.parent_ptr, self.parent_idx):
            digest.update(len(array).to_bytes(8, "little") + array.astype("<i4").tobytes())
        for batch in range(0, len(self), 65536):
            for name in self.name_array.slice(batch, 65536).to_pylist():
                encoded = name.encode()
                digest.update(len(encoded).to_bytes(4, "little") + encoded)
        return digest.hexdigest()[:32]

    def _called(self, node: int) -> str:
        return repr(self.names[node])

    def require_same(self, fingerprint: str, what: str) -> None:
        """Refuse something that was made for another hierarchy."""
        if fingerprint != self.fingerprint:
            raise TreelabelError(
                f"{what} belongs to another hierarchy (fingerprint {fingerprint[:8]}, here {self.fingerprint[:8]}); "
                "names, their order and the edges must all be the same"
            )

    # Names and paths

    def path_names(self, node: int) -> list[str]:
        """Give the names from the top label down to a node (DAG: through its last parent, the deepest).

        >>> Hierarchy.from_paths(["A > B"]).path_names(1)
        ['A', 'B']
        """
        return self._path_names(int(self._ids(node)[0]))

    def _path_names(self, node: int) -> list[str]:
        found: list[str] = []
        while node >= 0:
            found.append(self.names[node])
            node = int(self.parent_idx[self.parent_ptr[node + 1] - 1])
        return found[::-1]

    def paths(self, ids: npt.ArrayLike | None = None, sep: str = SEPARATOR) -> list[str]:
        """Give the full path of each node as text.

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

    # Other hierarchies made of this one; each comes with the mapping there and back

    def cut(self, depth: int) -> "Change":
        """Keep the levels down to a depth; deeper labels move to their ancestor there."""
        from treelabel.hierarchy import change

        return change.cut(self, depth)

    def prune(self, keep: npt.ArrayLike) -> "Change":
        """Keep the given nodes and their ancestors; other labels move to their nearest kept ancestor."""
        from treelabel.hierarchy import change

        return change.prune(self, self._ids(keep))

    def with_other_leaves(self, nodes: npt.ArrayLike) -> "Change":
        """Give each internal node among `nodes` a child "other [name]" for documents that stop at it."""
        from treelabel.hierarchy import change

        return change.with_other_leaves(self, self._ids(nodes))

    def unfold(self, limit: int = 10_000_000) -> "Change":
        """Make a DAG a tree: one copy of a node for every way to it, named by its parent in brackets."""
        from treelabel.hierarchy import change

        return change.unfold(self, limit)

    def collapse_chains(self) -> "Change":
        """Drop every node whose only child has no other parent, so that each step down is a choice."""
        from treelabel.hierarchy import change

        return change.collapse_chains(self)


def split_path(path: str, sep: str) -> list[str]:
    """Split a label path and strip its parts.

    >>> split_path("A >B > C", ">")
    ['A', 'B', 'C']
    """
    return [part.strip() for part in path.split(sep)]
