"""Which labels are taken for which: between siblings, and across the tree by distance."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from treelabel.core.types import LongArray
from treelabel.evaluation.error_analysis import blocks, equal_pairs, nearest, ranges
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix, keep_entries, matches, row_numbers

if TYPE_CHECKING:
    from treelabel.report.systems import ReportSystem


@dataclass(frozen=True)
class Confusion:
    """A true label, the label that was predicted in its place, and how many documents that happened to.

    `distance` counts the edges between the two; `true_documents` the documents that have the true label.
    """

    true: int
    predicted: int
    documents: int
    distance: int
    true_documents: int


@dataclass(frozen=True, eq=False)
class SiblingTable:
    """The children of a node (-1: the root) that are most confused: true ones in rows, predicted ones in columns.

    `counts` has in its diagonal the documents in which the child was found, elsewhere those of `sibling_counts`.
    `siblings` counts all children of the node.
    """

    parent: int
    children: LongArray
    counts: LongArray
    total: int
    siblings: int


# Siblings


def sibling_counts(hierarchy: Hierarchy, truth: LabelMatrix, decisions: LabelMatrix) -> sparse.csr_array:
    """Count documents in which a true label is missing and a sibling of it is predicted that is not true.

    Siblings share a parent, which may be the root.

    Parameters
    ----------
    hierarchy : Hierarchy
        A tree or DAG.
    truth, decisions : LabelMatrix, documents x nodes
        With ancestors.

    Returns
    -------
    csr_array of shape (nodes, nodes)
        The documents by true label (row) and predicted sibling (column).

    >>> from treelabel.hierarchy.label_ids import encode
    >>> h = Hierarchy.from_paths(["A > B", "A > C"])
    >>> truth, found = (h.closure(encode(h, rows)) for rows in ([["B"], ["B"]], [["C"], ["B"]]))
    >>> sibling_counts(h, truth, found).toarray().tolist()
    [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    """
    size = len(hierarchy)
    total = sparse.csr_array((size, size), dtype=np.int64)
    for true, result in blocks(truth, decisions):
        missed = _with_parents(hierarchy, keep_entries(true, ~matches(result, true)))
        wrong = _with_parents(hierarchy, keep_entries(result, ~matches(true, result)))
        left, right = equal_pairs(missed[0], wrong[0])
        # Siblings with two common parents are still confused only once in a document.
        triples = np.unique(np.stack([missed[1][left], missed[2][left], wrong[2][right]]), axis=1)
        ones = np.ones(triples.shape[1], np.int64)
        total = total + sparse.csr_array((ones, (triples[1], triples[2])), shape=(size, size))
    return total


def _with_parents(hierarchy: Hierarchy, labels: LabelMatrix) -> tuple[LongArray, LongArray, LongArray]:
    """Return one number for document and parent, the document, and the node, for every parent of every label."""
    nodes, rows = labels.indices.astype(np.int64), row_numbers(labels).astype(np.int64)
    low, sizes = hierarchy.parent_ptr[nodes].astype(np.int64), np.diff(hierarchy.parent_ptr)[nodes].astype(np.int64)
    parents = hierarchy.parent_idx[ranges(low, sizes)]
    rows, nodes = np.repeat(rows, sizes), np.repeat(nodes, sizes)
    return rows * (len(hierarchy) + 1) + parents + 1, rows, nodes


def sibling_confusions(system: "ReportSystem", counts: sparse.csr_array, most: int = 25) -> list[Confusion]:
    """List the siblings that are confused in most documents; `counts` are those of `sibling_counts`.

    Parameters
    ----------
    counts : array
        The counts that `sibling_counts` returned.
    most : int
        How many to list at most.

    Returns
    -------
    list of Confusion
    """
    pairs = counts.tocoo()
    return _largest(system, pairs.row, pairs.col, pairs.data, pairs.data, most)


def sibling_tables(
    system: "ReportSystem", counts: sparse.csr_array, most: int = 6, most_children: int = 8
) -> list[SiblingTable]:
    """Make tables of the parents whose children are most confused.

    Parameters
    ----------
    system : System
        What was judged.
    counts : csr_array of shape (nodes, nodes)
        What `sibling_counts` returned.
    most, most_children : int
        Tables, and children in each.

    Returns
    -------
    list of SiblingTable
        The most confused first; parents with a single child have none.
    """
    h = system.hierarchy
    pairs = counts.tocoo()
    # A pair of a DAG counts for the last parent of the true label, by which its path is written.
    above = h.parent_idx[h.parent_ptr[1:] - 1][pairs.row]
    totals = np.bincount(above + 1, weights=pairs.data, minlength=len(h) + 1)
    tables = []
    above_all, children_of = h.parent_idx, np.repeat(np.arange(len(h)), np.diff(h.parent_ptr))
    for place in np.argsort(-totals, kind="stable")[:most].tolist():
        if totals[place] == 0:
            break
        mine = above == place - 1
        involved = np.bincount(pairs.row[mine], pairs.data[mine], len(h))
        involved += np.bincount(pairs.col[mine], pairs.data[mine], len(h))
        children = np.argsort(-involved, kind="stable")[:most_children]
        children = np.sort(children[involved[children] > 0])
        table = counts[children][:, children].toarray()
        np.fill_diagonal(table, system.label_counts[children, 2])
        siblings = len(np.unique(children_of[above_all == place - 1]))
        tables.append(SiblingTable(place - 1, children, table, int(totals[place]), siblings))
    return tables


# Across the tree


def far_confusions(system: "ReportSystem", most: int = 25) -> list[Confusion]:
    """List the confusions that cost most: edges between the two labels times documents.

    A most specific predicted label that is not true, nor an ancestor of a true one, is confused with the true label
    of the document that is nearest to it. Documents without a true label do not count.

    Parameters
    ----------
    most : int
        How many to list at most.

    Returns
    -------
    list of Confusion
    """
    h, size = system.hierarchy, len(system.hierarchy)
    total: dict[int, int] = {}
    for true, result in blocks(system.truth, system.decisions):
        ends, predicted = h.most_specific(true), h.most_specific(result)
        wrong = keep_entries(predicted, ~matches(true, predicted))
        near, _ = nearest(h, wrong, ends)
        codes = near[near >= 0] * size + wrong.indices[near >= 0]
        for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
            total[int(code)] = total.get(int(code), 0) + int(count)
    codes = np.array(sorted(total), np.int64)
    counts = np.array([total[code] for code in codes.tolist()], np.int64)
    edges = h.distance(codes // size, codes % size) if len(codes) else np.zeros(0, np.int64)
    return _largest(system, codes // size, codes % size, counts, counts * edges, most)


def _largest(
    system: "ReportSystem", true: LongArray, predicted: LongArray, documents: LongArray, cost: LongArray, most: int
) -> list[Confusion]:
    """Make confusions of the pairs of largest cost; the lower ids among equals."""
    kept = np.lexsort((predicted, true, -cost))[:most]
    true, predicted, documents = true[kept], predicted[kept], documents[kept]
    edges = system.hierarchy.distance(true, predicted) if len(kept) else documents
    held = system.label_counts[true, 1]
    columns = (true, predicted, documents, edges, held)
    return [Confusion(*map(int, row)) for row in zip(*(column.tolist() for column in columns), strict=True)]
