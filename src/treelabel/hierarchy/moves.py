"""A taxonomy that changes: where every label of the old one is in the new one.

Labels are renamed, moved, merged, split and deleted, and new ones come; a table of moves says what names alone do not.
Unlike a change of `change.py`, neither hierarchy is made of the other. One value carries label sets, scores, and sums
of what documents have.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.registry import did_you_mean
from treelabel.core.types import DoubleArray, IntArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import UnknownLabelError, find_label
from treelabel.hierarchy.label_matrices import (
    LabelMatrix,
    as_labels,
    keep_entries,
    label_matrix,
    row_numbers,
    row_sizes,
)
from treelabel.hierarchy.move_scores import any_of, are_exclusive, carry_mass

# What became of a label; "path" is one whose ancestors changed, while it is still the same below them.
MoveKind = Literal["same", "path", "renamed", "moved", "merged", "split", "deleted"]
MOVE_KINDS: tuple[MoveKind, ...] = get_args(MoveKind)
# Labels that are gone without a word are listed up to this number, and looked for among so many names.
MOST_LISTED, MOST_COMPARED = 20, 20_000


@dataclass(frozen=True)
class Move:
    """A line of a table of moves: an old label and a new one, names or full paths; "" deletes the old one."""

    old: str
    new: str
    where: str = ""


@dataclass(frozen=True, eq=False)
class Moves:
    """An old and a new hierarchy, and the labels of the new one that each of the old ones became.

    - Label sets: a label goes to its new one. What is known of a label that was split is what its new ones have in
      common, so it goes to their lowest common ancestor; a deleted one goes to what became of its parent, which is
      still true, and a deleted top label to nothing.
    - Scores of labels that exclude each other (children never sum to more than their parent): what each node has beyond
      its children goes to its new label, in equal shares where it was split, up to the parent's where it was deleted;
      then all nodes sum up. So merged labels add, and ancestors are recomputed.
    - Other scores: a merged label has 1 - the product of (1 - p); a split one shares equally among the new ones, and
      their lowest common ancestor has at least the whole; `Scores.move` raises ancestors to their largest descendant.

    Make one with `Moves.of`.

    >>> old = Hierarchy.from_paths(["pet > dog", "pet > cat", "farm > cow"])
    >>> new = Hierarchy.from_paths(["animal > hound", "animal > cat", "animal > cow"])
    >>> moves = Moves.of(old, new, [("pet", "animal"), ("farm", "animal"), ("dog", "hound")])
    >>> moves.labels([[0, 0, 1, 0, 0]]).indices.tolist(), moves.kinds
    ([1], ('merged', 'merged', 'renamed', 'path', 'path'))
    """

    old: Hierarchy
    new: Hierarchy
    targets: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls,
        old: Hierarchy,
        new: Hierarchy,
        rows: "Iterable[Move | tuple[str, str]]" = (),
        partial: bool = False,
    ) -> "Moves":
        """Find every label of the old hierarchy in the new one.

        A label goes where the table says. One that is not in the table stays below what its parent became, if that has
        a child of its name; else where its full path is; else where its name is, if both hierarchies have it once;
        else it is deleted with its parent. What is left over is refused, with names that are near.

        Parameters
        ----------
        old, new : Hierarchy
            The hierarchies.
        rows : iterable of Move or (str, str)
            Old and new labels, names or full paths; "" deletes. Several new ones split a label, several old ones merge.
        partial : bool
            Whether the old hierarchy is but a part, such as the labels of one file, so that rows about others are
            passed over.

        Returns
        -------
        Moves

        >>> Moves.of(Hierarchy.flat(["cat", "dog"]), Hierarchy.flat(["cat", "dogs"]))
        Traceback (most recent call last):
        treelabel.core.errors.TreelabelError: 1 label of the old taxonomy is neither in the new one nor among the moves:
        'dog' (did you mean 'dogs'?); write a line "old<tab>new" for each, or "old<tab>" to delete it
        """
        table = _resolve_table(old, new, [row if isinstance(row, Move) else Move(*row) for row in rows], partial)
        return cls(old, new, tuple(_Resolver(old, new, table).targets()))

    # What became of labels

    @cached_property
    def kinds(self) -> tuple[MoveKind, ...]:
        """The kind of change of each old label."""
        old_paths, new_paths = self.old.paths(), self.new.paths()
        taken = np.bincount([node for targets in self.targets for node in targets], minlength=len(self.new))
        return tuple(self._kind(node, old_paths, new_paths, taken) for node in range(len(self.old)))

    def _kind(self, node: int, old_paths: list[str], new_paths: list[str], taken: npt.NDArray[Any]) -> MoveKind:
        targets = self.targets[node]
        if len(targets) != 1:
            return "split" if targets else "deleted"
        (target,) = targets
        if old_paths[node] == new_paths[target]:
            return "same"
        if taken[target] > 1:
            return "merged"
        stays = set(_new_parents(self.targets, self.old.parents_of(node))) & set(self.new.parents_of(target))
        if self.old.names[node] == self.new.names[target]:
            return "path" if stays else "moved"
        return "renamed" if stays else "moved"

    def counts(self) -> dict[MoveKind, int]:
        """Count the old labels of each kind.

        >>> Moves.of(Hierarchy.flat(["a", "b"]), Hierarchy.flat(["a", "c"]), [("b", "c")]).counts()
        {'same': 1, 'renamed': 1}
        """
        return {kind: self.kinds.count(kind) for kind in MOVE_KINDS if kind in self.kinds}

    @property
    def is_identity(self) -> bool:
        """Whether both hierarchies are the same, and every label stays."""
        return self.old == self.new and self.targets == tuple((node,) for node in range(len(self.old)))

    @cached_property
    def new_labels(self) -> IntArray:
        """The new labels that no old one became."""
        known = np.zeros(len(self.new), np.bool_)
        known[[node for targets in self.targets for node in targets]] = True
        return np.flatnonzero(~known).astype(np.int32)

    # Label sets

    @cached_property
    def forward(self) -> LabelMatrix:
        """The labels that a document with an old label has: old x new."""
        rows: list[list[int]] = []
        for node, targets in enumerate(self.targets):
            if len(targets) == 1:
                rows.append(list(targets))
            elif targets:
                rows.append(common_ancestors(self.new, targets))
            else:
                above = {target for parent in self.old.parents_of(node) if parent >= 0 for target in rows[parent]}
                rows.append(sorted(above))
        flat = [target for row in rows for target in row]
        return label_matrix(np.concatenate([[0], np.cumsum([len(row) for row in rows])]), flat, len(self.new))

    def labels(self, labels: Any) -> LabelMatrix:
        """Carry label sets. Ancestors that a document had among its labels are those of the new labels.

        Parameters
        ----------
        labels : label matrix of shape (documents, old nodes)
            Closed or not.

        Returns
        -------
        label matrix of shape (documents, new nodes)
            Rows that named ancestors of their own labels are closed.
        """
        old = as_labels(labels, len(self.old))
        terminal = self.old.most_specific(old)
        moved = as_labels(terminal @ self.forward, len(self.new))
        wide = row_sizes(old) > row_sizes(terminal)
        if not wide.any():
            return moved
        # Entries that are in both are joined by `as_labels`.
        more = self.new.closure(moved)
        return as_labels(moved + keep_entries(more, wide[row_numbers(more)]), len(self.new))

    # Scores and sums

    @cached_property
    def shares(self) -> sparse.csr_array:
        """Where what ends at an old node goes: old x new; rows sum to 1, to 0 where a top label was deleted."""
        rows: list[dict[int, float]] = []
        for node, targets in enumerate(self.targets):
            rows.append({target: 1 / len(targets) for target in targets})
            above = [rows[parent] for parent in self.old.parents_of(node) if parent >= 0 and rows[parent]]
            if not targets:
                for row in above:
                    for target, share in row.items():
                        rows[node][target] = rows[node].get(target, 0.0) + share / len(above)
        entries = [(node, target, share) for node, row in enumerate(rows) for target, share in row.items()]
        old, new, values = zip(*entries, strict=True) if entries else ((), (), ())
        return sparse.csr_array((np.array(values, np.float64), (old, new)), (len(self.old), len(self.new)))

    def scores(self, scores: Any, exclusive: bool | None = None) -> Any:
        """Carry scores to the new hierarchy; CSR stays CSR. `Scores.move` makes them coherent.

        Parameters
        ----------
        scores : array or csr_array of shape (documents, old nodes)
            Probabilities.
        exclusive : bool, optional
            Whether siblings exclude each other; by default they do if none of them sum to more than their parent.

        Returns
        -------
        array or csr_array of shape (documents, new nodes)

        >>> moves = Moves.of(Hierarchy.flat(["a", "b"]), Hierarchy.flat(["c"]), [("a", "c"), ("b", "c")])
        >>> moves.scores(np.array([[0.5, 0.25]])).tolist(), moves.scores(np.array([[0.75, 0.5]])).tolist()
        ([[0.75]], [[0.875]])
        """
        if scores.ndim != 2 or scores.shape[1] != len(self.old):
            raise TreelabelError(f"scores of shape {scores.shape} do not fit a hierarchy of {len(self.old):,} nodes")
        if are_exclusive(self.old, scores) if exclusive is None else exclusive and self.old.is_tree:
            return carry_mass(self.old, self.new, self.shares, scores)
        return any_of(len(self.new), self._sources, self._wholes, scores)

    @cached_property
    def _sources(self) -> list[tuple[int, int, float]]:
        """The old nodes whose scores a new one is made of, and their shares; none of them below another."""
        by_target: dict[int, list[int]] = {}
        for node, targets in enumerate(self.targets):
            for target in targets:
                by_target.setdefault(target, []).append(node)
        sources = []
        for target, nodes in by_target.items():
            if len(nodes) > 1:
                above, known = self.old.ancestors(nodes), set(nodes)
                nodes = [node for row, node in enumerate(nodes) if not known.intersection(above[[row]].indices)]
            sources += [(node, target, 1 / len(self.targets[node])) for node in nodes]
        return sources

    @cached_property
    def _wholes(self) -> list[tuple[int, int]]:
        """Labels that were split, and the lowest common ancestors of what became of them."""
        split = [(node, targets) for node, targets in enumerate(self.targets) if len(targets) > 1]
        return [(node, above) for node, targets in split for above in common_ancestors(self.new, targets)]

    def residues(self, sums: DoubleArray) -> DoubleArray:
        """Return what each old node has beyond its children, carried to the new nodes.

        Parameters
        ----------
        sums : array of shape (old nodes, columns)
            Sums over the documents of each node.

        Returns
        -------
        array of shape (new nodes, columns)
            Where documents have one path: sums over those that end at a node.
        """
        residues: DoubleArray = self.shares.T @ (sums - _child_sums(self.old).T @ sums)
        return residues

    def sums(self, sums: DoubleArray) -> DoubleArray:
        """Carry sums over the documents of each node: exact where documents have one path, and where nothing moved.

        Where documents have several, one that two labels share is counted once above both as long as their parent
        stays.

        Parameters
        ----------
        sums : array of shape (old nodes, columns)
            Sums, such as those of embeddings.

        Returns
        -------
        array of shape (new nodes, columns)
        """
        total, children = self.residues(sums), sparse.csr_array(_child_sums(self.new).T)
        for level in range(self.new.max_depth - 1, 0, -1):
            nodes = self.new.level(level)
            total[nodes] += children[nodes] @ total
        return total


def common_ancestors(hierarchy: Hierarchy, nodes: Sequence[int]) -> list[int]:
    """Return the most specific nodes that are each of some nodes, or above it; a tree has one at most.

    Parameters
    ----------
    nodes
        At least one node.

    Returns
    -------
    list of int

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> common_ancestors(h, [2, 3]), common_ancestors(h, [0, 2]), common_ancestors(h, [1, 2])
    ([0], [0], [])
    """
    closed = hierarchy.closure(label_matrix(np.arange(len(nodes) + 1), nodes, len(hierarchy)))
    shared = np.flatnonzero(np.bincount(closed.indices, minlength=len(hierarchy)) == len(nodes))
    lowest: list[int] = hierarchy.most_specific(label_matrix([0, len(shared)], shared, len(hierarchy))).indices.tolist()
    return lowest


def _child_sums(hierarchy: Hierarchy) -> sparse.csr_array:
    """Return the matrix that sums over children: values @ it, nodes x nodes."""
    inside = hierarchy.parent_idx >= 0
    edges = hierarchy.edge_child[inside], hierarchy.parent_idx[inside]
    return sparse.csr_array((np.ones(int(inside.sum())), edges), (len(hierarchy), len(hierarchy)))


def _new_parents(targets: Sequence[tuple[int, ...]], parents: Iterable[int]) -> list[int]:
    """Return what became of parents, -1 being the root, which stays."""
    return [target for parent in parents for target in ((-1,) if parent < 0 else targets[parent])]


def _resolve_table(old: Hierarchy, new: Hierarchy, rows: Sequence[Move], partial: bool) -> dict[int, tuple[int, ...]]:
    """Find the labels of a table: the new ones of each old one."""
    table: dict[int, list[int]] = {}
    deleted: dict[int, Move] = {}
    for row in rows:
        where = f"{row.where}: " if row.where else ""
        try:
            node = find_label(old, row.old)
        except UnknownLabelError as error:
            if partial:
                continue
            raise UnknownLabelError(f"{where}the old taxonomy has no such label: {error}") from None
        if not row.new:
            deleted[node] = row
            table.setdefault(node, [])
            continue
        try:
            target = find_label(new, row.new)
        except UnknownLabelError as error:
            raise UnknownLabelError(f"{where}the new taxonomy has no such label: {error}") from None
        if target not in table.setdefault(node, []):
            table[node].append(target)
    both = [row for node, row in deleted.items() if table[node]]
    if both:
        where = f"{both[0].where}: " if both[0].where else ""
        raise TreelabelError(f"{where}{quote(both[0].old)} is deleted here and kept in another line; remove one")
    return {node: tuple(sorted(targets)) for node, targets in table.items()}


class _Resolver:
    """Finds the new labels of all old ones, parents first."""

    def __init__(self, old: Hierarchy, new: Hierarchy, table: dict[int, tuple[int, ...]]) -> None:
        self.old, self.new, self.table = old, new, table
        self.old_paths = old.paths()
        self.node_of_path = {path: node for node, path in enumerate(new.paths())}
        pairs = zip(new.parent_idx.tolist(), new.edge_child.tolist(), strict=True)
        self.child = {(above, new.names[below]): below for above, below in pairs}
        self.taken = {target for targets in table.values() for target in targets}

    def targets(self) -> list[tuple[int, ...]]:
        """Return the new labels of each old one; refuse what is gone without a word."""
        made: list[tuple[int, ...]] = []
        gone: list[int] = []
        unclear: list[tuple[int, list[int]]] = []
        for node in range(len(self.old)):
            targets = self.table.get(node)
            if targets is None:
                choices = self._choices(node, made)
                if len(choices) > 1:
                    unclear.append((node, choices))
                elif not choices and not self._with_parents(node, made):
                    gone.append(node)
                targets = tuple(choices[:1])
            made.append(targets)
        # What is below a label that is gone is gone with it, and one line for the label is enough.
        lost = set(gone)
        first = [node for node in gone if not lost & set(self.old.parents_of(node))]
        if first:
            raise TreelabelError(self._refusal(first))
        if unclear:
            node, choices = unclear[0]
            stands = " and ".join(quote(path) for path in self.new.paths(choices))
            raise TreelabelError(
                f"{quote(self.old_paths[node])} could be {stands} now, as its parent was split; write a line for it"
            )
        return made

    def _choices(self, node: int, made: list[tuple[int, ...]]) -> list[int]:
        name, path = self.old.names[node], self.old_paths[node]
        above = _new_parents(made, self.old.parents_of(node))
        below = sorted({self.child[target, name] for target in above if (target, name) in self.child})
        same = self.node_of_path.get(path)
        if below:
            return [same] if same is not None and same in below else below
        if same is not None:
            return [same]
        elsewhere = self.new.ids_by_name.get(name, [])
        alone = len(self.old.ids_by_name[name]) == len(elsewhere) == 1
        return elsewhere if alone and elsewhere[0] not in self.taken else []

    def _with_parents(self, node: int, made: list[tuple[int, ...]]) -> bool:
        """Return whether a label goes with its parents, all of which were deleted by the table."""
        return all(
            parent >= 0 and not made[parent] and (parent in self.table or self._with_parents(parent, made))
            for parent in self.old.parents_of(node)
        )

    def _refusal(self, gone: list[int]) -> str:
        names = self.new.names[:MOST_COMPARED]
        shown = []
        for node in gone[:MOST_LISTED]:
            hint = did_you_mean(self.old.names[node], names, shown=quote)
            shown.append(quote(self.old_paths[node]) + (f" ({hint})" if hint else ""))
        more = f" and {len(gone) - MOST_LISTED:,} more" if len(gone) > MOST_LISTED else ""
        what = "1 label of the old taxonomy is" if len(gone) == 1 else f"{len(gone):,} labels of the old taxonomy are"
        return (
            f"{what} neither in the new one nor among the moves: {', '.join(shown)}{more}; "
            'write a line "old<tab>new" for each, or "old<tab>" to delete it'
        )
