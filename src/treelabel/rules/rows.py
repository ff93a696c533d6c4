"""Walking over scores: one document after another, each the nodes with a score above 0, parents first.

Dense and CSR scores look the same to a rule's compiled loop: row pointers, node ids and values. Dense ones are brought
to that form some rows at a time, so that memory stays small.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from treelabel.core.compute import SUMMED_ROWS, over_rows, sum_rows
from treelabel.core.types import DoubleArray, IntArray, LongArray, ScoreArray
from treelabel.hierarchy import Hierarchy, LabelMatrix, label_matrix
from treelabel.hierarchy.sets import from_sizes
from treelabel.rules.kernels.rows import above_zero
from treelabel.scores import Scores

Part = TypeVar("Part")
# Called with row pointers, nodes and scores, and the first and one past the last row to work on.
Work = Callable[[LongArray, IntArray, ScoreArray, int, int], Part]

# Dense scores are brought to rows in blocks of this many numbers.
BLOCK = 1 << 19


def over_scores(scores: Scores, work: Work[Part], least: int = 256) -> list[Part]:
    """Call `work` on consecutive parts of the documents, in threads; results come back in order.

    Parameters
    ----------
    scores
        The scores.
    work
        Called with row pointers, nodes and values of scores above 0, and the first and last row.
    least
        The least number of documents that are worth a thread.

    Returns
    -------
    list
    """
    if scores.is_sparse:
        ptr = scores.values.indptr.astype(np.int64)
        return over_rows(
            lambda start, stop: work(ptr, scores.values.indices, scores.values.data, start, stop), len(scores), least
        )
    step = max(1, BLOCK // max(1, len(scores.hierarchy)))

    def blocks(start: int, stop: int) -> list[Part]:
        parts = []
        # An empty range of documents is one empty block, so that there is always a part to join.
        for low in range(start, max(stop, start + 1), step):
            high = min(low + step, stop)
            parts.append(work(*above_zero(scores.values, low, high), 0, high - low))
        return parts

    return [part for parts in over_rows(blocks, len(scores), min(least, step)) for part in parts]


def sum_scores(scores: Scores, work: Work[DoubleArray]) -> DoubleArray:
    """Sum over documents what `work` returns for some of them: the same bits with any number of threads.

    Parameters
    ----------
    scores
        The scores.
    work
        As in `over_scores`; returns sums.

    Returns
    -------
    array
    """
    values = scores.values
    if scores.is_sparse:
        ptr = values.indptr.astype(np.int64)
        return sum_rows(lambda start, stop: work(ptr, values.indices, values.data, start, stop), len(scores))
    step = max(1, min(SUMMED_ROWS, BLOCK // max(1, len(scores.hierarchy))))
    return sum_rows(lambda low, high: work(*above_zero(values, low, high), 0, high - low), len(scores), step)


def sets_of(scores: Scores, work: Work[tuple[IntArray, LongArray]]) -> LabelMatrix:
    """Join the sets that `work` chooses: concatenated node ids, sorted within a document, and the sizes of the sets.

    Parameters
    ----------
    scores
        The scores.
    work
        As in `over_scores`.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    parts = over_scores(scores, work)
    nodes, sizes = (np.concatenate([part[which] for part in parts]) for which in (0, 1))
    return from_sizes(nodes, sizes, len(scores.hierarchy))


def nodes_of(scores: Scores, work: Work[IntArray]) -> LabelMatrix:
    """Join the single nodes that `work` chooses, -1 being none.

    Parameters
    ----------
    scores
        The scores.
    work
        As in `over_scores`.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    return single_labels(scores.hierarchy, np.concatenate(over_scores(scores, work)))


def single_labels(hierarchy: Hierarchy, nodes: IntArray) -> LabelMatrix:
    """Make label sets of one node per document, -1 being none.

    Parameters
    ----------
    hierarchy
        The hierarchy.
    nodes : array of shape (documents,)

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    some = nodes >= 0
    return label_matrix(np.concatenate([[0], np.cumsum(some)]), nodes[some], len(hierarchy))
