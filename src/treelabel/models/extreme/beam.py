"""Beam search down a label tree: only the children of the best clusters are looked at, level by level."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import sparse

from treelabel.core.compute import fast_kernel, kernel, over_rows
from treelabel.core.types import FloatArray, IntArray, LongArray
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.rankers import Rankers

# Documents that are searched for together at most, as each cluster is prepared once for all of them; and the scores of
# children that are kept meanwhile.
BATCH = 4096
BATCH_SCORES = 1 << 23
# A margin above 1 counts this much for each unit: hardly, but it breaks ties.
BEYOND = np.float32(1e-3)
# A cluster is prepared for so many documents or more; fewer look its features up one by one.
WORTH_A_TABLE = 8


@dataclass(frozen=True, eq=False)
class Beam:
    """The state of a search: nodes of a level and their scores, document by document, best first.

    Scores are logarithms: the sum over the levels of -max(0, 1 - margin)^2, which is the squared hinge loss of a yes,
    and of BEYOND x max(0, margin - 1).
    """

    ptr: LongArray
    nodes: IntArray
    scores: FloatArray


def batch_size(tree: LabelTree, width: int) -> int:
    """Return how many documents are searched for together, so that scores of children stay within some megabytes.

    Parameters
    ----------
    width : int
        Nodes of a level that are kept for each document.

    Returns
    -------
    int
    """
    largest = max(int(np.diff(ends).max(initial=1)) for ends in tree.children)
    return max(16, min(BATCH, BATCH_SCORES // (largest * min(width, max(tree.sizes)))))


def search_some(
    features: sparse.csr_array, tree: LabelTree, levels: Sequence[Rankers], width: int, top: int, start: int, stop: int
) -> Beam:
    """Find the best nodes of the last of some levels for documents start..stop; see `search`.

    Parameters
    ----------
    features, tree, levels, width, top
        As in `search`.
    start, stop : int
        The first document, and one past the last.

    Returns
    -------
    Beam
    """
    count = stop - start
    beam = Beam(np.arange(count + 1), np.zeros(count, np.int32), np.zeros(count, np.float32))
    for level, rankers in enumerate(levels):
        most = top if level + 1 == len(levels) else width
        documents = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(beam.ptr))
        offsets, margins = margins_of(features, documents, beam.nodes, tree.children[level], rankers)
        add_losses(margins, offsets, beam.scores)
        beam = Beam(*best_children(beam.ptr, beam.nodes, offsets, tree.children[level], margins, most))
    return beam


def search(
    features: sparse.csr_array, tree: LabelTree, levels: Sequence[Rankers], width: int, top: int
) -> sparse.csr_array:
    """Find the best nodes of documents on the last of some levels of a tree.

    Costs about, per document and level, `width` clusters x features of the document that they know x weights of such a
    feature; labels below other clusters are not touched, so that cost grows with the depth of the tree: with the
    logarithm of the number of labels. Documents are taken in batches, and memory is bounded by these.

    Parameters
    ----------
    features : csr_array of shape (documents, features)
        Documents.
    levels : sequence of Rankers
        The rankers of its first levels, or of all of them.
    width : int
        Nodes of a level that are kept for each document.
    top : int
        Nodes of the last level to keep.

    Returns
    -------
    csr_array of shape (documents, nodes of the last level)
        Logarithms of scores, best first. What is not stored has not been looked at, or is not among the best.
    """
    some = partial(search_some, features, tree, levels, width, top)
    parts = over_rows(some, features.shape[0], least=64, most=batch_size(tree, width))
    sizes = np.concatenate([[0], *(np.diff(part.ptr) for part in parts)])
    nodes, scores = (np.concatenate([getattr(part, name) for part in parts]) for name in ("nodes", "scores"))
    return sparse.csr_array((scores, nodes, np.cumsum(sizes)), (features.shape[0], tree.sizes[len(levels) - 1]))


def margins_of(
    features: sparse.csr_array, documents: IntArray, nodes: IntArray, children: LongArray, rankers: Rankers
) -> tuple[LongArray, FloatArray]:
    """Compute the margins of all children of some nodes, each for a document.

    Parameters
    ----------
    features : csr_array of shape (documents, features)
        Documents.
    documents, nodes : arrays of int32
        Pairs of a document and a node.
    children : array of shape (nodes + 1,)
        The children of each node.

    Returns
    -------
    (array of shape (pairs + 1,), array)
        Where the margins of each pair begin, and the margins.
    """
    offsets = np.concatenate([[0], np.cumsum(np.diff(children)[nodes])])
    order = np.argsort(nodes, kind="stable")
    margins = child_margins(
        features.indptr,
        features.indices,
        features.data,
        features.shape[1],
        documents,
        nodes,
        order,
        offsets,
        children,
        rankers.clusters,
        rankers.features,
        rankers.rows,
        rankers.children,
        rankers.weights,
        rankers.bias,
    )
    return offsets, margins


@kernel
def place_of(features: IntArray, low: int, high: int, feature: int) -> int:
    """Return the place of a feature among the sorted ones from `low` to `high`, or -1."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if features[middle] < feature:
            low = middle + 1
        else:
            high = middle
    return low if low < end and features[low] == feature else -1


@kernel
def add_losses(margins: FloatArray, offsets: LongArray, scores: FloatArray) -> None:
    """Turn the margins of children into scores: what their parent has, less the squared hinge loss of each."""
    for pair in range(len(scores)):
        for index in range(offsets[pair], offsets[pair + 1]):
            missing = np.float32(1) - margins[index]
            margins[index] = scores[pair] + (BEYOND * -missing if missing < 0 else -missing * missing)


@fast_kernel
def child_margins(  # noqa: C901
    ptr: IntArray,
    idx: IntArray,
    val: FloatArray,
    width: int,
    documents: IntArray,
    nodes: IntArray,
    order: LongArray,
    offsets: LongArray,
    children: LongArray,
    clusters: LongArray,
    features: IntArray,
    rows: LongArray,
    members: IntArray,
    weights: FloatArray,
    bias: FloatArray,
) -> FloatArray:
    """Compute the margins of all children, cluster by cluster; those of a pair begin at its offset."""
    margins = np.empty(offsets[-1], np.float32)
    table = np.full(width, -1, np.int32)
    first = 0
    while first < len(order):
        cluster = nodes[order[first]]
        last = first
        while last < len(order) and nodes[order[last]] == cluster:
            last += 1
        low, high = clusters[cluster], clusters[cluster + 1]
        tabled = last - first >= WORTH_A_TABLE
        if tabled:
            for position in range(low, high):
                table[features[position]] = position - low
        cluster_bias = bias[children[cluster] : children[cluster + 1]]
        for index in range(first, last):
            pair = order[index]
            out = margins[offsets[pair] : offsets[pair + 1]]
            out[:] = cluster_bias
            document = documents[pair]
            for entry in range(ptr[document], ptr[document + 1]):
                position = table[idx[entry]] + low if tabled else place_of(features, low, high, idx[entry])
                if position >= low:
                    x = val[entry]
                    for weight in range(rows[position], rows[position + 1]):
                        out[members[weight]] += x * weights[weight]
        if tabled:
            for position in range(low, high):
                table[features[position]] = -1
        first = last
    return margins


@kernel
def best_children(
    ptr: LongArray, nodes: IntArray, offsets: LongArray, children: LongArray, margins: FloatArray, most: int
) -> tuple[LongArray, IntArray, FloatArray]:
    """Keep the best children of each document, best first; ties go to the one that comes first."""
    ends = np.zeros(len(ptr), np.int64)
    for document in range(len(ptr) - 1):
        ends[document + 1] = ends[document] + min(most, offsets[ptr[document + 1]] - offsets[ptr[document]])
    best, scores = np.empty(ends[-1], np.int32), np.empty(ends[-1], np.float32)
    for document in range(len(ptr) - 1):
        low, high = offsets[ptr[document]], offsets[ptr[document + 1]]
        size = ends[document + 1] - ends[document]
        values = margins[low:high]
        if size < high - low:
            border = np.partition(values, high - low - size)[high - low - size]
        else:
            border = np.float32(-np.inf)
        taken, above = 0, 0
        names, heights = np.empty(size, np.int32), np.empty(size, np.float32)
        for value in values:
            above += value > border
        equal = size - above
        for pair in range(ptr[document], ptr[document + 1]):
            for index in range(offsets[pair], offsets[pair + 1]):
                if margins[index] > border or (margins[index] == border and equal > 0):
                    equal -= margins[index] == border
                    names[taken] = children[nodes[pair]] + index - offsets[pair]
                    heights[taken] = margins[index]
                    taken += 1
        order = np.argsort(-heights, kind="mergesort")
        best[ends[document] : ends[document + 1]] = names[order]
        scores[ends[document] : ends[document + 1]] = heights[order]
    return ends, best, scores
