"""Hierarchies made of hierarchies, each with the mapping of labels and scores there and back.

Every new node comes from one old node (its origin); an old label goes to no, one or several new ones. That is enough to
carry label sets both ways and scores both ways, for cutting, pruning, collapsing, "other" leaves and unfolding alike.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, IntArray, LongArray
from treelabel.hierarchy import ancestry
from treelabel.hierarchy.edges import Edges, text_array
from treelabel.hierarchy.label_matrices import (
    LabelMatrix,
    as_labels,
    keep_entries,
    label_matrix,
    renumber_columns,
    row_numbers,
)
from treelabel.hierarchy.numbering import number

ScoreMatrix: TypeAlias = Any  # a dense array or a CSR matrix
# Hierarchy, whose methods call these functions: naming it here would be a circle of imports.
H = TypeVar("H", bound=Any)


@dataclass(frozen=True, eq=False)
class ChangeOf(Generic[H]):
    """An old and a new hierarchy, where each old label goes (old x new matrix), and where each new node comes from.

    >>> from treelabel.hierarchy import Hierarchy
    >>> change = Hierarchy.from_paths(["A > B > C", "D"]).cut(2)
    >>> change.new.paths()
    ['A', 'D', 'A > B']
    >>> change.labels([[0, 0, 0, 1]]).indices.tolist()
    [2]
    """

    old: H
    new: H
    forward: LabelMatrix
    origin: IntArray

    def labels(self, labels: Any) -> LabelMatrix:
        """Carry a label matrix to the new hierarchy; labels that go nowhere are dropped."""
        return as_labels(as_labels(labels, len(self.old)) @ self.forward, len(self.new))

    def scores(self, scores: ScoreMatrix) -> ScoreMatrix:
        """Carry scores to the new hierarchy: every new node takes those of its origin. CSR stays CSR."""
        _check_columns(scores, self.old)
        return _columns(scores, self.origin)

    def scores_back(self, scores: ScoreMatrix) -> ScoreMatrix:
        """Carry scores back: an old node takes the largest score among its new nodes, or 0. CSR stays CSR."""
        _check_columns(scores, self.new)
        if not sparse.issparse(scores):
            back = np.zeros((scores.shape[0], len(self.old)), scores.dtype)
            order = np.argsort(self.origin, kind="stable")
            nodes, first = np.unique(self.origin[order], return_index=True)
            back[:, nodes] = np.maximum.reduceat(_columns(scores, order), first, axis=1)
            return back
        row, column = row_numbers(scores), self.origin[scores.indices]
        order = np.lexsort((column, row))
        key = row[order] * len(self.old) + column[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        data = np.maximum.reduceat(scores.data[order], first) if len(first) else scores.data
        ptr = np.searchsorted(row[order][first], np.arange(scores.shape[0] + 1)).astype(scores.indptr.dtype)
        return sparse.csr_array((data, column[order][first], ptr), (scores.shape[0], len(self.old)))


@dataclass(frozen=True, eq=False)
class OtherLeaves(ChangeOf[H]):
    """The change that adds "other" leaves: only labels at which a document stops move to them."""

    def labels(self, labels: Any) -> LabelMatrix:
        """Move the most specific labels to "other" leaves where there are some; the result holds full paths."""
        return self.new.closure(super().labels(self.old.most_specific(labels)))

    def scores(self, scores: ScoreMatrix) -> ScoreMatrix:
        """Carry scores; an "other" leaf takes what its parent has beyond the sum of its other children, at least 0."""
        moved = super().scores(scores)
        others = np.flatnonzero(self.new.is_leaf & ~self.old.is_leaf[self.origin]).astype(np.int32)
        if len(others) == 0:
            return moved
        above = self.origin[others]
        # In double precision, because single strays by a percent in sums of a million children.
        rest = (scores[:, above] - scores @ self.old.children(above).T.astype(np.float64)).astype(scores.dtype)
        if not sparse.issparse(scores):
            moved[:, others] = np.maximum(rest, 0)
            return moved
        rest = sparse.csr_array(rest)
        rest.data = np.maximum(rest.data, 0)
        stays = sparse.diags_array(np.isin(np.arange(len(self.new)), others, invert=True).astype(scores.dtype))
        to_others = label_matrix(np.arange(len(others) + 1), others, len(self.new)).astype(scores.dtype)
        total = sparse.csr_array(moved @ stays + rest @ to_others)
        total.eliminate_zeros()
        total.sort_indices()
        return total


@dataclass(frozen=True, eq=False)
class CollapsedChains(ChangeOf[H]):
    """The change that collapses chains: what is known of a chain's end is known of the whole chain."""

    def scores_back(self, scores: ScoreMatrix) -> ScoreMatrix:
        """Carry scores back: every node of a chain takes the score of its end, so coherent scores stay coherent."""
        _check_columns(scores, self.new)
        return _columns(scores, self.forward.indices)


@dataclass(frozen=True, eq=False)
class UnfoldedGraph(ChangeOf[H]):
    """The change that makes a tree of a DAG: a label goes to the copies that its document supports."""

    def labels(self, labels: Any) -> LabelMatrix:
        """Carry labels to copies: to those with the largest share of their ancestors among the document's labels.

        So a full path picks its own copy, while a closed set goes to all copies, and so does a bare label unless one
        copy hangs right under the root: then the bare label is that copy's full path.
        """
        old = as_labels(labels, len(self.old))
        copies = super().labels(old)
        row = row_numbers(copies)
        share = self._ancestor_share(old, row, copies.indices)
        key = row * len(self.old) + self.origin[copies.indices]
        # The best share among the copies of one label in one row.
        _, label = np.unique(key, return_inverse=True)
        best = np.zeros(label.max(initial=-1) + 1)
        np.maximum.at(best, label, share)
        return keep_entries(copies, share >= best[label])

    def _ancestor_share(self, labels: LabelMatrix, row: LongArray, copy: IntArray) -> npt.NDArray[np.float64]:
        """For each (row, copy): the share of the copy's ancestors whose origin is among the row's labels."""
        above = self.new.ancestors(copy)
        pair = row_numbers(above)
        wanted = row[pair] * len(self.old) + self.origin[above.indices]
        have = row_numbers(labels) * len(self.old) + labels.indices
        hit = np.isin(wanted, have)
        hits = np.bincount(pair[hit], minlength=len(copy))
        # A copy right under the root lacks nothing: alone, its label is a full path.
        return np.where(np.diff(above.indptr) > 0, hits / np.maximum(np.diff(above.indptr), 1), 1.0)


def _columns(scores: ScoreMatrix, ids: npt.NDArray[np.integer[Any]]) -> ScoreMatrix:
    """Select columns, any of them several times; rows stay contiguous in memory, CSR stays sorted."""
    if not sparse.issparse(scores):
        return np.take(scores, ids, axis=1)
    chosen = scores[:, ids]
    chosen.sort_indices()
    return chosen


def _check_columns(scores: ScoreMatrix, hierarchy: Any) -> None:
    if scores.ndim != 2 or scores.shape[1] != len(hierarchy):
        raise TreelabelError(f"scores of shape {scores.shape} do not fit a hierarchy of {len(hierarchy):,} nodes")


def cut(old: H, depth: int) -> ChangeOf[H]:
    """Keep the levels down to a depth."""
    if depth < 1:
        raise TreelabelError(f"cannot cut at depth {depth}: at least one level must stay")
    return _keep(old, old.depth <= depth)


def prune(old: H, keep: IntArray) -> ChangeOf[H]:
    """Keep nodes and all their ancestors."""
    if len(keep) == 0:
        raise TreelabelError("nothing to keep: prune() needs at least one node")
    stays = np.zeros(len(old), np.bool_)
    stays[old.closure(label_matrix([0, len(np.unique(keep))], np.unique(keep), len(old))).indices] = True
    return _keep(old, stays)


def _keep(old: H, stays: BoolArray) -> ChangeOf[H]:
    """Keep marked nodes, whose ancestors are marked too; other labels move to their nearest ancestors that stay."""
    edges = stays[old.edge_child]
    new, new_id = _restrict(old, stays, old.parent_idx[edges], old.edge_child[edges])
    if old.is_tree:
        nearest = ancestry.nearest_marked(old.parent, stays)
        exists = nearest >= 0
        rows = label_matrix(np.concatenate([[0], np.cumsum(exists)]), nearest[exists], len(old))
    else:
        reached = old.closure(sparse.identity(len(old), np.bool_, "csr"))
        rows = old.most_specific(keep_entries(reached, stays[reached.indices]))
    return ChangeOf(old, new, renumber_columns(rows, new_id, len(new)), _origin(new_id, len(new)))


def collapse_chains(old: H) -> ChangeOf[H]:
    """Drop nodes with a single child that has no other parent; their labels move to the end of the chain."""
    ptr, idx = old.child_graph
    only = np.flatnonzero(np.diff(ptr)[1:] == 1)
    only = only[np.diff(old.parent_ptr)[idx[ptr[only + 1]]] == 1]
    follow = np.full(len(old), -1, np.int32)
    follow[only] = idx[ptr[only + 1]]
    end = ancestry.chain_ends(follow)
    parent = np.where(old.parent_idx >= 0, end[old.parent_idx], np.int32(-1))
    child = end[old.edge_child]
    stays = parent != child
    new, new_id = _restrict(old, follow < 0, parent[stays], child[stays])
    forward = label_matrix(np.arange(len(old) + 1), new_id[end], len(new))
    return CollapsedChains(old, new, forward, _origin(new_id, len(new)))


def _restrict(old: H, stays: BoolArray, parent: IntArray, child: IntArray) -> tuple[H, IntArray]:
    """Make a hierarchy of the nodes that stay, with new edges; also return the new id of each old node, or -1."""
    code = (np.cumsum(stays) - 1).astype(np.int32)
    above = np.where(parent >= 0, code[parent], np.int32(-1)).astype(np.int32)
    identifiers = None if old.identifiers is None else old.identifiers.take(np.flatnonzero(stays))
    numbered = number(Edges(above, code[child], old.name_array.filter(pa.array(stays)), identifiers=identifiers))
    new_id = np.where(stays, numbered.rank[code], np.int32(-1)).astype(np.int32)
    return type(old).from_numbered(numbered), new_id


def _origin(new_id: IntArray, size: int) -> IntArray:
    origin = np.empty(size, np.int32)
    nodes = np.flatnonzero(new_id >= 0)
    origin[new_id[nodes]] = nodes
    return origin


def with_other_leaves(old: H, nodes: IntArray) -> ChangeOf[H]:
    """Add a child "other [name]" to each internal node among `nodes`."""
    above = np.unique(nodes)
    above = above[~old.is_leaf[above]]
    names = [f"other [{old.names[node]}]" for node in above.tolist()]
    taken = [name for name in names if name in old.ids_by_name]
    if taken:
        raise TreelabelError(f"the hierarchy already has a label {taken[0]!r}; rename it first")
    size = len(old) + len(above)
    edges = Edges(
        np.concatenate([old.parent_idx, above]).astype(np.int32),
        np.concatenate([old.edge_child, np.arange(len(old), size)]).astype(np.int32),
        pa.concat_arrays([old.name_array, pa.array(names, old.name_array.type)]),
        # What is added is in no vocabulary.
        identifiers=old.identifiers
        and old.identifiers.take(np.concatenate([np.arange(len(old)), np.full(len(above), -1)])),
    )
    numbered = number(edges)
    new, rank = type(old).from_numbered(numbered), numbered.rank
    target = np.arange(len(old), dtype=np.int32)
    target[above] = np.arange(len(old), size)
    origin = np.empty(size, np.int32)
    origin[rank] = np.concatenate([np.arange(len(old)), above])
    return OtherLeaves(old, new, label_matrix(np.arange(len(old) + 1), rank[target], size), origin)


def unfold(old: H, limit: int) -> ChangeOf[H]:
    """Copy each node of a DAG once for every way from the root to it."""
    # Counted in floats: a ladder of diamonds has more ways than integers can hold, or than anyone wants to print.
    ways: list[float] = []
    for node in range(len(old)):
        ways.append(sum(1.0 if parent < 0 else ways[parent] for parent in old.parents_of(node)))
    size = sum(ways)
    if size > limit:
        shown = f"{size:,.0f}" if size < 1e15 else f"{size:.1e}"
        raise TreelabelError(f"unfolding would make {shown} nodes of {len(old):,}, more than the limit of {limit:,}")
    copies: list[list[int]] = []
    names: list[str] = []
    parent: list[int] = []
    origin: list[int] = []
    for node, name in enumerate(old.names):
        copies.append([])
        for above in old.parents_of(node):
            for way in [-1] if above < 0 else copies[above]:
                copies[node].append(len(names))
                bracket = "root" if way < 0 else names[way]
                names.append(name if ways[node] == 1 else f"{name} [{bracket}]")
                parent.append(way)
                origin.append(node)
    identifiers = None if old.identifiers is None else old.identifiers.take(origin)
    edges = Edges(
        np.array(parent, np.int32),
        np.arange(len(names), dtype=np.int32),
        text_array(names, "name"),
        identifiers=identifiers,
    )
    numbered = number(edges)
    new, rank = type(old).from_numbered(numbered), numbered.rank
    forward = sparse.csr_array((np.ones(len(new), np.bool_), (np.array(origin, np.int32), rank)), (len(old), len(new)))
    from_old = np.empty(len(new), np.int32)
    from_old[rank] = origin
    return UnfoldedGraph(old, new, as_labels(forward, len(new)), from_old)
