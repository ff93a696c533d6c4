"""Sums over documents that do not depend on how documents are divided into batches.

A sum is carried as two numbers, `high + low`, with twice the digits of one (Neumaier, 1974); `high` is the exact sum
rounded once. So batches of any size, merged in any order, give the bits that one pass over all documents gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.compute import kernel
from treelabel.core.errors import some
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import row_numbers, row_sizes
from treelabel.metrics.batch import Batch, label_totals
from treelabel.metrics.label_counts import constrained_counts, has_ancestors
from treelabel.metrics.metric import Metric
from treelabel.metrics.shared_formulas import f_beta, precision, recall

Pair = tuple[Any, Any]
# Levels, from the top on, that a headline counts beside what is exactly right.
MOST_LEVELS = 3


def column_sums(part: Any) -> Pair:
    """Sum a documents x columns part by column; counts stay whole numbers.

    Parameters
    ----------
    part : array or sparse array of shape (documents, columns)
        Additive parts of documents.

    Returns
    -------
    (array, array), each of shape (columns,)
        The sums, and what rounding took from each.

    >>> high, low = column_sums(np.array([[1.0], [1e-20]]))
    >>> high.tolist(), low.tolist()
    ([1.0], [1e-20])
    """
    if sparse.issparse(part):
        if part.dtype == np.bool_:
            counts = label_totals(part)
            return counts, np.zeros(part.shape[1])
        return sum_entries(part.indices.astype(np.int32, copy=False), part.data.astype(np.float64), part.shape[1])
    if part.dtype.kind in "iub":
        counted = part.sum(axis=0)
        return counted, np.zeros(counted.shape)
    return sum_rows(np.ascontiguousarray(part.T, np.float64))


def add_sums(one: Pair, two: Pair) -> Pair:
    """Add sums with what rounding took from them.

    Parameters
    ----------
    one, two : (array, array)
        What `column_sums` returned.

    Returns
    -------
    (array, array)
    """
    if one[0].dtype.kind in "iu":
        return one[0] + two[0], one[1]
    total, lost = _two_sum(one[0], two[0])
    return _two_sum(total, one[1] + two[1] + lost)


def stack_parts(pieces: Sequence[Any]) -> Any:
    """Put matrices of consecutive documents on top of each other, dense or sparse."""
    if sparse.issparse(pieces[0]):
        return pieces[0] if len(pieces) == 1 else sparse.vstack(pieces, "csr")
    # Rows first, however they came: what is summed over them rounds by the layout.
    return np.ascontiguousarray(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))


def _two_sum(one: DoubleArray, two: DoubleArray) -> Pair:
    """Return the rounded sum and exactly what rounding took; nothing of what is not finite."""
    total = one + two
    with np.errstate(invalid="ignore"):
        back = total - one
        lost = (one - (total - back)) + (two - back)
    return total, np.where(np.isfinite(total), lost, 0.0)


@kernel
def sum_rows(columns: DoubleArray) -> tuple[DoubleArray, DoubleArray]:
    """Sum every row of a matrix: the sums, and what rounding took from them."""
    high, low = np.zeros(columns.shape[0]), np.zeros(columns.shape[0])
    for index in range(columns.shape[0]):
        total, lost = 0.0, 0.0
        for value in columns[index]:
            more = total + value
            if np.isfinite(more):
                lost += (total - more) + value if abs(total) >= abs(value) else (value - more) + total
            total = more
        high[index] = total + lost if np.isfinite(total) else total
        low[index] = (total - high[index]) + lost if np.isfinite(total) else 0.0
    return high, low


@kernel
def sum_entries(indices: IntArray, values: DoubleArray, columns: int) -> tuple[DoubleArray, DoubleArray]:
    """Sum the stored entries of a sparse matrix by column: the sums, and what rounding took from them."""
    high, low = np.zeros(columns), np.zeros(columns)
    for entry in range(len(indices)):
        index, value = indices[entry], values[entry]
        more = high[index] + value
        if np.isfinite(more):
            low[index] += (
                (high[index] - more) + value if abs(high[index]) >= abs(value) else (value - more) + high[index]
            )
        high[index] = more
    for index in range(columns):
        total = high[index]
        if np.isfinite(total):
            high[index] = total + low[index]
            low[index] += total - high[index]
        else:
            low[index] = 0.0
    return high, low


JUDGED = ("hp", "hr", "hf1")


@dataclass(frozen=True, eq=False)
class Coverage:
    """Counts of documents, of those that got a label, that got a leaf, and that are right by level; they add up.

    `right[d]` documents have just their true labels down to depth d + 1, ancestors included; with the last depth, they
    are exactly right. `label` and `leaf` are shares. `all_documents` and `labelled_documents` are hp, hr and hf1 of all
    documents and of those with a label: a document without one has 0 in all three (unless it has no true label either),
    which is what abstaining costs. They are NaN without sums. `without_truth` documents have no true label.
    """

    documents: int
    with_label: int
    with_leaf: int
    right: tuple[int, ...] = ()
    # Of hp, hr and hf1, over all documents and over those with a label.
    sums: Pair | None = None
    without_truth: int = 0

    @classmethod
    def of(cls, batch: Batch) -> "Coverage":
        """Count the documents of a batch that has decisions."""
        # Ancestors are no leaves, and make no label of none.
        chosen = batch.decisions
        has_label = row_sizes(chosen) > 0
        with_leaf = count_rows_with(chosen.indptr, chosen.indices, batch.hierarchy.is_leaf)
        counts = len(batch), int(has_label.sum()), int(with_leaf)
        abc = batch.unit_overlap
        values = np.stack([precision(abc), recall(abc), f_beta(abc)])
        everywhere = sum_rows(values)
        labelled = everywhere if has_label.all() else sum_rows(values * has_label)
        sums = np.append(everywhere[0], labelled[0]), np.append(everywhere[1], labelled[1])
        return cls(*counts, _right_by_level(batch), sums, int(np.count_nonzero(row_sizes(batch.truth) == 0)))

    def for_report(self, with_values: bool) -> "Coverage":
        """Leave out the values where every document got a label, so that there is nothing to compare, unless wanted."""
        return self if with_values or self.with_label < self.documents else replace(self, sums=None)

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(
            self.documents + other.documents,
            self.with_label + other.with_label,
            self.with_leaf + other.with_leaf,
            tuple(one + two for one, two in zip(self.right, other.right, strict=True)),
            None if self.sums is None or other.sums is None else add_sums(self.sums, other.sums),
            self.without_truth + other.without_truth,
        )

    @property
    def label(self) -> float:
        """The share of documents that got a label; NaN of none."""
        return self.with_label / self.documents if self.documents else float("nan")

    @property
    def leaf(self) -> float:
        """The share of documents that got a leaf; NaN of none."""
        return self.with_leaf / self.documents if self.documents else float("nan")

    @property
    def all_documents(self) -> dict[str, float]:
        """The hp, hr and hf1 of all documents."""
        return self._means(0, self.documents)

    @property
    def labelled_documents(self) -> dict[str, float]:
        """The hp, hr and hf1 of the documents that got a label."""
        return self._means(len(JUDGED), self.with_label)

    def _means(self, first: int, count: int) -> dict[str, float]:
        means = np.full(6, np.nan) if self.sums is None or not count else self.sums[0] / count
        return dict(zip(JUDGED, means[first : first + len(JUDGED)].tolist(), strict=True))

    def headline(self, levels: Sequence[str] = ()) -> str:
        """Say in a sentence how many documents are right, exactly and down to each of the upper levels.

        Parameters
        ----------
        levels
            What the levels are called, from the top on.

        Returns
        -------
        str

        >>> Coverage(100, 97, 97, (91, 82)).headline(["department"])
        '82 of 100 exactly right (82.0%); 91 in the right department (level 1); 3 got no label'
        """
        if not self.documents or not self.right:
            return "no documents to judge"
        *upper, exact = self.right
        shown = []
        for depth, count in enumerate(upper[:MOST_LEVELS], 1):
            if depth <= len(levels):
                shown.append(f"{count:,} in the right {levels[depth - 1]} (level {depth})")
            else:
                shown.append(f"{count:,} right {'at' if depth == 1 else 'down to'} level {depth}")
        parts = [f"{exact:,} of {self.documents:,} exactly right ({exact / self.documents:.1%})", ", ".join(shown)]
        if self.with_label < self.documents:
            parts.append(f"{self.documents - self.with_label:,} got no label")
        if self.without_truth:
            verb = "has" if self.without_truth == 1 else "have"
            parts.append(f"{self.without_truth:,} {verb} no true label, so that any label is wrong")
        return "; ".join(part for part in parts if part)

    def notes(self) -> list[str]:
        """Return lines for people, none where every document got a leaf."""
        if self.with_leaf == self.documents:
            return []
        lines = [f"Labelled: of {self.documents:,} documents, {self.label:.1%} got a label and {self.leaf:.1%} a leaf."]
        if self.sums is not None and 0 < self.with_label < self.documents:
            lines.append(f"{'What abstaining costs':<24}" + "".join(f"{name:<8}" for name in JUDGED).rstrip())
            for what, values in (
                ("all documents", self.all_documents),
                ("those with a label", self.labelled_documents),
            ):
                lines.append(f"  {what:<22}" + "  ".join(f"{values[name]:.4f}" for name in JUDGED))
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the shares and values by name; what is not known is None."""

        def known(values: dict[str, float]) -> dict[str, float | None]:
            return {name: None if np.isnan(value) else value for name, value in values.items()}

        shares = known({"label": self.label, "leaf": self.leaf})
        right = {"right_by_level": list(self.right), "exactly_right": self.right[-1] if self.right else None}
        right["without_true_label"] = self.without_truth
        return {**shares, **right, "all": known(self.all_documents), "answered": known(self.labelled_documents)}


@dataclass(frozen=True)
class Remarks:
    """Counts that add up over documents.

    `unseen` are the true labels, ancestors included, that the hierarchy of the scores does not have; `with_unseen`
    documents have one. `with_orphan` documents have a predicted label without one of its ancestors.
    """

    documents: int = 0
    unseen: frozenset[int] = frozenset()
    with_unseen: int = 0
    with_orphan: int = 0

    @classmethod
    def of(cls, batch: Batch, metrics: Sequence[Metric]) -> "Remarks":
        """Look at some documents.

        Parameters
        ----------
        batch
            The documents.
        metrics
            What they are judged by: nobody looks for orphans where it makes no difference.

        Returns
        -------
        Remarks
        """
        closed, unseen, with_unseen, with_orphan = batch.closed_truth, np.zeros(0, np.int32), 0, 0
        if batch.known_nodes is not None:
            is_unseen = ~batch.known_nodes[closed.indices]
            unseen, with_unseen = closed.indices[is_unseen], len(np.unique(row_numbers(closed)[is_unseen]))
        if any(metric.parts is constrained_counts for metric in metrics):
            is_orphan = ~has_ancestors(batch.hierarchy, batch.decisions)
            with_orphan = len(np.unique(row_numbers(batch.decisions)[is_orphan]))
        return cls(len(batch), frozenset(np.unique(unseen).tolist()), with_unseen, with_orphan)

    def __add__(self, other: "Remarks") -> "Remarks":
        return Remarks(
            self.documents + other.documents,
            self.unseen | other.unseen,
            self.with_unseen + other.with_unseen,
            self.with_orphan + other.with_orphan,
        )

    def notes(self, hierarchy: Hierarchy) -> list[str]:
        """Return lines for people, none where there is nothing to remark.

        >>> h = Hierarchy.from_paths(["A > B", "A > C"])
        >>> print(*Remarks(10, frozenset([2]), with_unseen=3).notes(h))
        1 label of the truth (3 of 10 documents) is not known to the scores, which are 0 there: 'A > C'.
        """
        notes = []
        if self.unseen:
            what, verb = ("1 label", "is") if len(self.unseen) == 1 else (f"{len(self.unseen):,} labels", "are")
            notes.append(
                f"{what} of the truth ({self.with_unseen:,} of {self.documents:,} documents) {verb} not known to the "
                f"scores, which are 0 there: {some(hierarchy.paths(sorted(self.unseen)))}."
            )
        if self.with_orphan:
            notes.append(
                f"{self.with_orphan:,} of {self.documents:,} documents have predicted labels without their ancestors, "
                "which constrained F1 counts as wrong. If these labels stand for their ancestors too, say so "
                '("closed": true in a prediction file).'
            )
        return notes


def _right_by_level(batch: Batch) -> tuple[int, ...]:
    """Count the documents whose decisions are just the truth down to each depth, ancestors included."""
    h, truth, decisions = batch.hierarchy, batch.closed_truth, batch.closed_decisions
    wrong_from = count_first_differences(truth.indptr, truth.indices, decisions.indptr, decisions.indices, h.depth)
    return tuple((len(batch) - np.cumsum(wrong_from)[1:]).tolist())


@kernel
def count_rows_with(ptr: IntArray, nodes: IntArray, wanted: BoolArray) -> int:
    """Count the rows that have at least one of the wanted nodes, looking at the deepest first."""
    count = 0
    for row in range(len(ptr) - 1):
        for entry in range(ptr[row + 1] - 1, ptr[row] - 1, -1):
            if wanted[nodes[entry]]:
                count += 1
                break
    return count


@kernel
def count_first_differences(
    ptr: IntArray, nodes: IntArray, other_ptr: IntArray, others: IntArray, depth: IntArray
) -> LongArray:
    """Count rows by the least depth of a node that only one of two sets has; equal sets do not count.

    Nodes are numbered level by level, so the first place where two sorted rows differ has the least depth.
    """
    counts = np.zeros(1 + (depth.max() if len(depth) else 0), np.int64)
    for row in range(len(ptr) - 1):
        entry, other, end, other_end = ptr[row], other_ptr[row], ptr[row + 1], other_ptr[row + 1]
        while entry < end and other < other_end and nodes[entry] == others[other]:
            entry, other = entry + 1, other + 1
        if entry < end and (other == other_end or nodes[entry] < others[other]):
            counts[depth[nodes[entry]]] += 1
        elif other < other_end:
            counts[depth[others[other]]] += 1
    return counts
