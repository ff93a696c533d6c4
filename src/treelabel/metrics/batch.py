"""The input of metrics: truth, decisions and scores of some documents, and what is known about the labels."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treelabel.core.compute import LIGHT, join_rows, kernel, over_rows
from treelabel.core.errors import TreelabelError, some
from treelabel.core.types import BoolArray, DoubleArray, IntArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, LabelRows, matches, row_sizes, rows_of
from treelabel.hierarchy.similarity import information_content, information_weights, inverse_propensities
from treelabel.scores.score_matrix import Scores

Table = TypeVar("Table", bound=npt.NDArray[Any])
# Documents x columns matrices, dense or CSR; their column sums are all that a value is made of.
Parts = tuple[Any, ...]
Sums = tuple[Any, ...]
Value = float | dict[str, float]


@dataclass(frozen=True, eq=False)
class Context:
    """The hierarchy, and how often labels occur in the reference (training) documents.

    `closed` counts documents by node, ancestors included (information content, frequency bins). `exclusive` counts
    labels as documents have them, without ancestors (propensities). Both are None if nothing is known. `propensity` is
    (A, B) of the propensity model, `bin_edges` where bins of training frequency begin. `is_from_truth` says that the
    reference documents are the evaluated ones: metrics may look at them, rules may not.
    """

    hierarchy: Hierarchy
    closed: LongArray | None = None
    exclusive: LongArray | None = None
    documents: int | None = None
    propensity: tuple[float, float] = (0.55, 1.5)
    bin_edges: tuple[int, ...] = (1, 10, 100, 1000)
    is_from_truth: bool = False

    @cached_property
    def information(self) -> DoubleArray:
        """The information content of every node, in bits."""
        return information_content(self._known(self.closed), self.reference_documents)

    @cached_property
    def information_weights(self) -> DoubleArray:
        """The information that every node adds to that of its parents."""
        return information_weights(self.hierarchy, self.information)

    @cached_property
    def inverse_propensities(self) -> DoubleArray:
        """The factor by which every node looks rarer in training than it is."""
        return inverse_propensities(self.frequencies, self.reference_documents, *self.propensity)

    @cached_property
    def unit_weights(self) -> DoubleArray:
        """One for every node."""
        return np.ones(len(self.hierarchy))

    @property
    def frequencies(self) -> LongArray:
        """The number of training documents by node, ancestors included."""
        return self._known(self.closed)

    @property
    def exclusive_frequencies(self) -> LongArray:
        """The number of training documents by label, as given."""
        return self._known(self.exclusive)

    @property
    def reference_documents(self) -> int:
        """The number of reference documents."""
        self._known(self.closed)
        if self.documents is None:
            raise TreelabelError("this metric needs the number of training documents; pass train_documents=")
        return self.documents

    def is_same(self, other: "Context") -> bool:
        """Return whether the other knows the same of the reference documents."""
        mine, theirs = (self.closed, self.exclusive), (other.closed, other.exclusive)
        same = all(np.array_equal(one, two) for one, two in zip(mine, theirs, strict=True))  # type: ignore[arg-type]
        settings = (self.documents, self.propensity, self.bin_edges)
        return same and settings == (other.documents, other.propensity, other.bin_edges)

    def _known(self, counts: LongArray | None) -> LongArray:
        if counts is None:
            raise TreelabelError(
                "this metric needs training frequencies; pass train_frequencies= (or a training Dataset)"
            )
        return counts


@dataclass(frozen=True, eq=False)
class Batch:
    """Documents to be judged. Everything that several metrics need is computed once, when first asked for.

    `first` is the number of documents before these, for messages that name a row. `known_nodes` marks the nodes that
    the scores' own hierarchy has, where that is not the one here. `takes_sets_as_given` says that no ancestors are
    added: closed sets are the given ones.
    """

    context: Context
    truth: LabelMatrix
    input_decisions: LabelMatrix | None = None
    input_scores: Scores | None = None
    input_closure: LabelMatrix | None = None
    first: int = 0
    known_nodes: BoolArray | None = None
    takes_sets_as_given: bool = False
    _tables: dict[Any, Any] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return int(self.truth.shape[0])

    @property
    def hierarchy(self) -> Hierarchy:
        """The hierarchy of all labels here."""
        return self.context.hierarchy

    @property
    def decisions(self) -> LabelMatrix:
        """The predicted labels as given."""
        if self.input_decisions is None:
            raise TreelabelError("this metric needs decisions; pass decisions=, or scores= and a rule=")
        return self.input_decisions

    @property
    def scores(self) -> Scores:
        """The scores of all nodes."""
        if self.input_scores is None:
            raise TreelabelError("this metric needs scores; pass scores=")
        return self.input_scores

    @cached_property
    def closed_truth(self) -> LabelMatrix:
        """The true labels with their ancestors."""
        if self.takes_sets_as_given:
            return self.truth
        return closed_sets(self.hierarchy, self.truth) if self.input_closure is None else self.input_closure

    @cached_property
    def closed_decisions(self) -> LabelMatrix:
        """The predicted labels with their ancestors."""
        return self.decisions if self.takes_sets_as_given else closed_sets(self.hierarchy, self.decisions)

    @cached_property
    def is_hit(self) -> BoolArray:
        """Mark the closed decisions that are true, one mark for each stored label."""
        return matches(self.closed_truth, self.closed_decisions)

    @cached_property
    def coherent_scores(self) -> Scores:
        """Scores raised to the largest descendant, so that every threshold makes a closed set."""
        return self.scores.coherent("max")

    def first_columns(self, make: Callable[["Batch", int], Table], k: float) -> Table:
        """Return the first k columns (at most one per label) of a cached table whose columns do not depend on k.

        Parameters
        ----------
        make
            Makes the table with at least this many columns.
        k
            How many columns to return.

        Returns
        -------
        array of shape (documents, at most k)
        """
        count = min(int(k), len(self.hierarchy))
        if make not in self._tables or self._tables[make].shape[1] < count:
            self._tables[make] = make(self, count)
        table: Table = self._tables[make][:, :count]
        return table

    @cached_property
    def unit_overlap(self) -> DoubleArray:
        """(a, b, c) of the closed sets, every node weighing 1."""
        return overlap(self.context.unit_weights, self.closed_truth, self.closed_decisions, self.is_hit)

    @cached_property
    def information_overlap(self) -> DoubleArray:
        """(a, b, c) of the closed sets, every node weighing the information it adds."""
        return overlap(self.context.information_weights, self.closed_truth, self.closed_decisions, self.is_hit)

    @cached_property
    def single_terminals(self) -> tuple[IntArray, IntArray]:
        """The most specific true and predicted node of each document (-1: the root, where nothing was given)."""
        return self._single(self.truth, "true"), self._single(self.decisions, "predicted")

    def _single(self, labels: LabelMatrix, what: str) -> IntArray:
        terminal = self.hierarchy.most_specific(labels)
        sizes = row_sizes(terminal)
        if (sizes > 1).any():
            row = int(np.argmax(sizes > 1))
            where = self.first + row
            names = [
                self.hierarchy.names[node] for node in terminal.indices[terminal.indptr[row] : terminal.indptr[row + 1]]
            ]
            raise TreelabelError(
                f"this metric compares single labels, but row {where} has {len(names)} {what} ones: {some(names)}"
            )
        single = np.full(len(self), -1, np.int32)
        single[sizes == 1] = terminal.indices
        return single


def closed_sets(hierarchy: Hierarchy, labels: LabelMatrix) -> LabelMatrix:
    """Add all ancestors; flat labels have none.

    Returns
    -------
    label matrix of the same shape
    """
    return hierarchy.closure(labels) if hierarchy.max_depth > 1 else labels


def overlap(weights: DoubleArray, truth: LabelMatrix, decisions: LabelMatrix, is_hit: BoolArray) -> DoubleArray:
    """Weigh prediction, truth and both: one row (a, b, c) per document (each column contiguous in memory).

    Parameters
    ----------
    weights : array of shape (nodes,)
        The weight of each node.
    is_hit : array of shape (stored decisions,)
        Marks the decisions that are true.

    Returns
    -------
    array of shape (documents, 3)
    """
    rows = rows_of(truth), rows_of(decisions), is_hit, weights
    parts = over_rows(lambda start, stop: overlap_rows(*rows, start, stop), truth.shape[0], least=LIGHT)
    return np.concatenate(parts, axis=1).T


def set_counts(truth: LabelMatrix, decisions: LabelMatrix, is_hit: BoolArray | None = None) -> Parts:
    """Return predictions, truths and their intersection as label matrices, and a column of ones to count documents.

    `is_hit` marks the decisions that are true, if that is known already.

    Returns
    -------
    tuple of four matrices
    """
    marks = matches(truth, decisions) if is_hit is None else is_hit
    both = sparse.csr_array((marks, decisions.indices, decisions.indptr), decisions.shape)
    return decisions, truth, both, np.ones((truth.shape[0], 1), np.int64)


def label_totals(labels: LabelMatrix) -> LongArray:
    """Count, for every label, the documents that have it: the stored entries that are true, by column."""
    return column_counts(labels.indices, labels.data, labels.shape[1])


def sum_rows(labels: LabelMatrix, values: Any) -> DoubleArray:
    """Sum one value for each stored label by document.

    Returns
    -------
    array of shape (documents,)
    """
    ptr, doubles = labels.indptr.astype(np.int64), np.asarray(values, np.float64)
    sums: DoubleArray = join_rows(lambda start, stop: row_sums(ptr, doubles, start, stop), labels.shape[0], least=65536)
    return sums


@kernel
def overlap_rows(
    true: LabelRows, predicted: LabelRows, is_hit: BoolArray, weights: DoubleArray, start: int, stop: int
) -> DoubleArray:
    """Weigh prediction, truth and what they share, as `hits` marks it: columns (a, b, c) = (w(S), w(Y), w(S & Y))."""
    (true_ptr, true_idx), (pred_ptr, pred_idx) = true, predicted
    result = np.zeros((3, stop - start))
    for row in range(start, stop):
        a, b, c = 0.0, 0.0, 0.0
        for index in range(pred_ptr[row], pred_ptr[row + 1]):
            weight = weights[pred_idx[index]]
            a += weight
            c += weight if is_hit[index] else 0.0
        for index in range(true_ptr[row], true_ptr[row + 1]):
            b += weights[true_idx[index]]
        result[0, row - start] = a
        result[1, row - start] = b
        result[2, row - start] = c
    return result


@kernel
def column_counts(idx: IntArray, marks: BoolArray, columns: int) -> LongArray:
    """Count the marked entries of each column."""
    counts = np.zeros(columns, np.int64)
    for index in range(len(idx)):
        counts[idx[index]] += marks[index]
    return counts


@kernel
def row_sums(ptr: LongArray, values: DoubleArray, start: int, stop: int) -> DoubleArray:
    """Sum the values of each row."""
    sums = np.zeros(stop - start)
    for row in range(start, stop):
        total = 0.0
        for index in range(ptr[row], ptr[row + 1]):
            total += values[index]
        sums[row - start] = total
    return sums
