"""Scores: the probability of every node for every document, dense or top-k sparse, bound to a hierarchy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.errors import TreelabelError, locate_errors
from treelabel.core.types import BoolArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy.hierarchy import Change, Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, label_matrix, rows_of
from treelabel.hierarchy.moves import Moves
from treelabel.hierarchy.union import require_nodes_in
from treelabel.scores import score_kernels as kernels
from treelabel.scores.score_checks import ROUNDING, checked_scores, leaf_ids, numbers, precision


@dataclass(frozen=True, eq=False, repr=False)
class Scores:
    """Node probabilities of n documents, dense n x nodes or CSR (what is not stored is 0).

    Columns are in the order of `hierarchy.names`. float64 stays float64, which tells apart scores that float32 would
    round to the same number; everything else becomes float32. Nothing here turns CSR into dense except `dense()`. Make
    scores with `Scores(hierarchy, matrix)`, `Scores.from_leaves` or `Scores.from_conditional`.

    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> s = Scores.from_leaves(h, ["B", "C", "D"], [[0.5, 0.3, 0.2]])
    >>> s
    Scores(1 documents x 4 nodes, dense)
    >>> s.dense().tolist()
    [[0.8, 0.2, 0.5, 0.3]]
    """

    hierarchy: Hierarchy
    values: Any
    ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        # A frozen value that brings its input to one form does so once, here.
        object.__setattr__(self, "values", checked_scores(self.values, self.hierarchy))
        if self.ids is not None:
            object.__setattr__(self, "ids", tuple(self.ids))
            if len(self.ids) != len(self):
                raise TreelabelError(f"{len(self.ids):,} ids for {len(self):,} rows of scores")
            wrong = next((row for row, name in enumerate(self.ids) if not isinstance(name, str)), None)
            if wrong is not None:
                raise TreelabelError(f"row {wrong}: expected an id that is text, found {self.ids[wrong]!r}")

    # Makers

    @classmethod
    def from_leaves(
        cls,
        hierarchy: Hierarchy,
        leaves: Sequence[str | int] | npt.NDArray[np.integer[Any]],
        values: Any,
        ids: Sequence[str] | None = None,
    ) -> "Scores":
        """Sum leaf probabilities up the hierarchy: p(n) = sum of p(l), l leaf under n.

        In a DAG a leaf counts once for each ancestor, however many ways lead there. Costs documents x leaves x depth;
        CSR the stored entries x depth.

        Parameters
        ----------
        hierarchy : Hierarchy
            Where the leaves are looked up.
        leaves : sequence of str or int
            Names, paths or ids: what the columns of `values` stand for. Leaves that are left out have 0.
        values : array_like or sparse matrix, documents x leaves
            Probabilities.
        ids : sequence of str, optional
            Names of the documents.

        Returns
        -------
        Scores
        """
        nodes = leaf_ids(hierarchy, leaves)
        leaf_values = numbers(values)
        if leaf_values.ndim != 2 or leaf_values.shape[1] != len(nodes):
            raise TreelabelError(f"{len(nodes):,} leaves for {leaf_values.shape} values; expected one column per leaf")
        # Sums are made in double precision: in single, those of a million leaves stray by a percent.
        dtype = precision(leaf_values.dtype)
        path = hierarchy.closure(label_matrix(np.arange(len(nodes) + 1), nodes, len(hierarchy))).astype(np.float64)
        if sparse.issparse(leaf_values):
            summed = (sparse.csr_array(leaf_values) @ path).astype(dtype)
            return cls(hierarchy, summed, None if ids is None else tuple(ids))
        summed = np.empty((len(leaf_values), len(hierarchy)), dtype)
        for rows in _blocks(*summed.shape):
            # The product with a sparse matrix on the right is slow; transposed it streams.
            summed[rows] = (path.T @ leaf_values[rows].T).T
        return cls(hierarchy, summed, None if ids is None else tuple(ids))

    @classmethod
    def from_conditional(cls, hierarchy: Hierarchy, values: Any, ids: Sequence[str] | None = None) -> "Scores":
        """Multiply conditional probabilities P(n | parent) along the path to the root; needs a tree.

        Parameters
        ----------
        hierarchy
            A tree.
        ids
            Names of the documents.

        Returns
        -------
        Scores

        >>> h = Hierarchy.from_paths(["A > B", "A > C"])
        >>> Scores.from_conditional(h, [[0.5, 0.5, 0.25]]).dense().tolist()
        [[0.5, 0.25, 0.125]]
        """
        _ = hierarchy.parent
        conditional = cls(hierarchy, values, None if ids is None else tuple(ids))
        return cls(hierarchy, conditional._change(conditional.values, kernels.MULTIPLY), conditional.ids)

    @classmethod
    def concat(cls, hierarchy: Hierarchy, parts: Sequence[Any]) -> "Scores":
        """Concatenate the values of several groups of documents.

        Parameters
        ----------
        hierarchy : Hierarchy
            The hierarchy of all parts.
        parts : sequence of array_like or sparse matrix, documents x nodes
            There may be none.

        Returns
        -------
        Scores
            CSR if any part is, float64 if any part is.

        >>> h = Hierarchy.flat(["A"])
        >>> Scores.concat(h, [[[0.5]], [[0.25], [1.0]]]).dense().tolist()
        [[0.5], [0.25], [1.0]]
        """
        arrays = [numbers(part) for part in parts]
        arrays = [part.astype(precision(part.dtype), copy=False) for part in arrays]
        if any(sparse.issparse(part) for part in arrays):
            return cls(hierarchy, sparse.vstack([sparse.csr_array(part) for part in arrays], format="csr"))
        return cls(hierarchy, np.concatenate([np.zeros((0, len(hierarchy)), np.float32), *arrays]))

    # What they are

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __repr__(self) -> str:
        rows, nodes = self.values.shape
        kind = f"CSR, {self.values.nnz:,} stored" if self.is_sparse else "dense"
        return f"Scores({rows:,} documents x {nodes:,} nodes, {kind})"

    def __getitem__(self, rows: Any) -> "Scores":
        """Select documents by slice, boolean mask or row numbers."""
        picked = rows
        if not isinstance(rows, slice):
            chosen = np.asarray(rows)
            # numpy takes an empty list for floats.
            picked = np.atleast_1d(np.arange(len(self))[chosen if chosen.size else chosen.astype(np.int64)])
        names = None if self.ids is None else tuple(np.array(self.ids, object)[picked])
        return Scores(self.hierarchy, self.values[picked], names)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values: float32 or float64."""
        result: np.dtype[Any] = self.values.dtype
        return result

    @property
    def is_sparse(self) -> bool:
        """Whether only the larger scores are stored."""
        return bool(sparse.issparse(self.values))

    @cached_property
    def rows(self) -> kernels.StoredRows:
        """The rows as compiled loops take them."""
        return kernels.stored_rows(self.values)

    def dense(self) -> ScoreArray:
        """Return the scores as a dense array, documents x nodes."""
        dense: ScoreArray = self.values.toarray() if self.is_sparse else self.values
        return dense

    def csr(self) -> sparse.csr_array:
        """Return the scores as a CSR matrix; zeros are not stored."""
        return self.values if self.is_sparse else sparse.csr_array(self.values)

    # Between marginal and conditional

    def conditional(self) -> ScoreArray | sparse.csr_array:
        """Divide by the parent: P(n | parent) = p(n) / p(parent), 0 where the parent has 0; needs a tree.

        >>> h = Hierarchy.from_paths(["A > B", "A > C"])
        >>> Scores(h, [[0.5, 0.25, 0.125]]).conditional().tolist()
        [[0.5, 0.5, 0.25]]
        """
        _ = self.hierarchy.parent
        return self._change(self.values, kernels.DIVIDE)

    def _change(self, values: Any, how: int) -> Any:
        """Combine each node with its parents, in a copy of the values if they are those of the scores."""
        changed = values.copy() if values is self.values else values
        kernels.over_stored(kernels.change_rows, kernels.stored_rows(changed), *self.hierarchy.parent_graph, how)
        if sparse.issparse(changed):
            changed.eliminate_zeros()
        return changed

    def look_up(self, labels: LabelMatrix) -> ScoreArray:
        """Look up the score of every stored label of a label matrix with as many rows; what is not stored is 0.

        >>> h = Hierarchy.flat(["A", "B", "C"])
        >>> Scores(h, [[0.25, 0.5, 0.25]]).look_up(label_matrix([0, 2], [0, 1], 3)).tolist()
        [0.25, 0.5]
        """
        return np.concatenate(kernels.over_stored(kernels.look_up, self.rows, *rows_of(labels)))

    # Coherence

    def coherence_gap(self) -> float:
        """Find how far any child is above a parent: max over edges of p(child) - p(parent), 0 if coherent."""
        return max(kernels.over_stored(kernels.largest_gap, self.rows, *self.hierarchy.parent_graph))

    def is_coherent(self, tolerance: float = 1e-6) -> bool:
        """Return whether p(child) <= p(parent) on every edge, up to rounding."""
        return self.coherence_gap() <= tolerance

    def exhaustiveness_gap(self) -> float:
        """Find how far children are from summing to their parent: max abs(p(n) - sum over children), the root having 1.

        Needs a tree. Scores that were cut to the top k, or that let a document stop inside, are not exhaustive.
        """
        parent = self.hierarchy.parent
        nodes = len(self.hierarchy)
        if len(self) == 0:
            return 0.0
        to_parent = sparse.csr_array((np.ones(nodes), (np.arange(nodes), parent + 1)), shape=(nodes, nodes + 1))
        inner = np.flatnonzero(~self.hierarchy.is_leaf)
        parts = [self.values] if self.is_sparse else (self.values[rows] for rows in _blocks(*self.values.shape))
        return max(_exhaustiveness_gap(part, to_parent, inner) for part in parts)

    def is_exhaustive(self, tolerance: float = ROUNDING) -> bool:
        """Return whether the children of every internal node sum to it, up to rounding."""
        return self.exhaustiveness_gap() <= tolerance

    def coherent(self, how: Literal["max", "min"] = "max") -> "Scores":
        """Make scores coherent: raise a node to its largest descendant ("max"), or lower it to its parents ("min").

        "max" returns scores that are coherent already as they are.

        >>> h = Hierarchy.from_paths(["A > B"])
        >>> s = Scores(h, [[0.25, 0.5]])
        >>> s.coherent("max").dense().tolist(), s.coherent("min").dense().tolist()
        ([[0.5, 0.5]], [[0.25, 0.25]])
        """
        if how not in ("max", "min"):
            raise TreelabelError(f"unknown projection {how!r}; expected 'max' or 'min'")
        values = self.values
        if how == "max":
            if self.is_coherent(0):
                return self
            if self.is_sparse:
                # Ancestors that are not stored are to be raised, too.
                closed = self.hierarchy.closure(values != 0)
                values = sparse.csr_array((self.look_up(closed), closed.indices, closed.indptr), closed.shape)
        changed = self._change(values, kernels.MAXIMUM if how == "max" else kernels.MINIMUM)
        return Scores(self.hierarchy, changed, self.ids)

    # Smaller, or elsewhere

    def top_k(self, count: int) -> "Scores":
        """Keep the `count` largest scores above 0 of each document as CSR; equal ones: the lower node ids.

        Parents have lower ids than children, so the top of coherent scores is closed and stays coherent.
        Linear in the scores.

        >>> h = Hierarchy.flat(["A", "B", "C"])
        >>> Scores(h, [[0.25, 0.5, 0.25]]).top_k(2).csr().toarray().tolist()
        [[0.25, 0.5, 0.0]]
        """
        if count < 1:
            raise TreelabelError(f"expected to keep at least 1 score per document, found {count}")
        best = kernels.largest_entries(self.values, min(count, max(1, len(self.hierarchy))))
        return Scores(self.hierarchy, best, self.ids)

    def best(self, allowed: BoolArray) -> IntArray:
        """Find the allowed node with the largest score of each document; the lowest id among equals, -1: none above 0.

        >>> Scores(Hierarchy.flat(["A", "B", "C"]), [[0.5, 0.25, 0.25], [0.5, 0, 0]]).best(np.array([0, 1, 1]) > 0)
        array([ 1, -1], dtype=int32)
        """
        return np.concatenate(kernels.over_stored(kernels.best_nodes, self.rows, allowed))

    def move(self, change: Change | Moves) -> "Scores":
        """Carry scores over to another hierarchy: one made of this one, or a taxonomy that this one became.

        After moves, scores are coherent: see `Moves`.
        """
        self.hierarchy.require_same(change.old.fingerprint, "the change")
        made = Scores(change.new, change.scores(self.values), self.ids)
        return made.coherent("max") if isinstance(change, Moves) else made

    def move_back(self, change: Change) -> "Scores":
        """Carry scores back to the hierarchy that this one was made of."""
        self.hierarchy.require_same(change.new.fingerprint, "the change")
        return Scores(change.old, change.scores_back(self.values), self.ids)

    def under(self, hierarchy: Hierarchy) -> "Scores":
        """Bring scores under a hierarchy that has all their nodes, by path; nodes that they do not know have 0.

        >>> s = Scores(Hierarchy.from_paths(["A > B"]), [[0.5, 0.25]])
        >>> s.under(Hierarchy.from_paths(["A > C", "A > B"])).dense().tolist()
        [[0.5, 0.0, 0.25]]
        """
        if hierarchy == self.hierarchy:
            return self
        where = require_nodes_in(self.hierarchy, hierarchy, "a set of scores")
        shape = (len(self), len(hierarchy))
        if self.is_sparse:
            values: Any = sparse.csr_array((self.values.data, where[self.values.indices], self.values.indptr), shape)
            values.has_sorted_indices = False
            values.sort_indices()
        else:
            values = np.zeros(shape, self.dtype)
            values[:, where] = self.values
        return Scores(hierarchy, values, self.ids)

    # Files

    def save(self, path: str | Path) -> None:
        """Write to `.npz` or `.parquet`, hierarchy included; the file appears whole or not at all."""
        # Files of scores need Parquet's library, which takes longer to load than all of this.
        from treelabel.scores.score_writer import save_scores

        save_scores(Path(path), self.hierarchy, self.values, self.ids)

    @classmethod
    def load(cls, path: str | Path, hierarchy: Hierarchy | None = None) -> "Scores":
        """Read what `save` wrote.

        Parameters
        ----------
        path : str or Path
            A file `.npz` or `.parquet`.
        hierarchy : Hierarchy, optional
            What the scores must have been made for; by default any hierarchy will do.

        Returns
        -------
        Scores
        """
        from treelabel.scores.score_files import load_scores

        with locate_errors(path):
            scores = cls(*load_scores(Path(path)))
        if hierarchy is not None:
            hierarchy.require_same(scores.hierarchy.fingerprint, str(path))
        return scores


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Divide dense rows so that a block in double precision takes some 64 MB."""
    size = max(1, (1 << 23) // max(1, columns))
    return (slice(start, start + size) for start in range(0, rows, size))


def _exhaustiveness_gap(values: Any, to_parent: sparse.csr_array, inner: LongArray) -> float:
    """Compare the sums over children, the root's in column 0, with the inner nodes."""
    is_sparse = sparse.issparse(values)
    summed = values @ to_parent if is_sparse else (to_parent.T @ values.T).T
    top = summed[:, [0]].toarray() if is_sparse else summed[:, 0]
    gap = float(np.abs(top - 1).max())
    return max(gap, float(abs(summed[:, inner + 1] - values[:, inner]).max())) if len(inner) else gap
