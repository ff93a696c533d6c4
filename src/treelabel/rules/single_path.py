"""Rules that choose one node, or one per level: down the tree, or by what most of the probability agrees on."""

import numpy as np

from treelabel.core.compute import kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.types import BoolArray, IntArray, LongArray
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.rules.score_rows import ScoreRows, choose_nodes, choose_sets, single_labels
from treelabel.rules.threshold import whole_number
from treelabel.scores.score_matrix import Scores


def best_leaf(scores: Scores) -> LabelMatrix:
    """Predict the leaf with the largest score; nothing where no leaf has one above 0. Linear in the scores.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> h.names[best_leaf(Scores(h, [[0.6, 0.4, 0.3, 0.3]])).indices[0]]
    'D'
    """
    return single_labels(scores.hierarchy, scores.best(scores.hierarchy.is_leaf))


def best_per_level(scores: Scores) -> LabelMatrix:
    """Predict the node with the largest score at every depth; they need not lie on one path. Linear in the scores."""
    depth = scores.hierarchy.depth
    return choose_sets(scores, lambda rows: best_by_level(depth, rows))


def top_down(scores: Scores, stop: float = 0.0) -> LabelMatrix:
    """Go from the root to the best child, and on, to a leaf or until no child has a score of at least `stop`.

    This chooses the single best class of the paper on a hierarchical loss. Scores are compared as they are: they are
    probabilities of nodes, not given the parent. Linear in the scores.

    Parameters
    ----------
    stop
        The least score of a child that is followed.

    Returns
    -------
    label matrix of shape (documents, nodes)

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> s = Scores(h, [[0.6, 0.4, 0.3, 0.3]])
    >>> h.names[top_down(s).indices[0]], h.names[top_down(s, stop=0.5).indices[0]]
    ('B', 'A')
    """
    if not 0 <= stop <= 1:
        raise TreelabelError(f"stop = {stop:g}, expected a score from 0 to 1")
    graph, least = scores.hierarchy.parent_graph, float(scores.dtype.type(stop))
    return choose_nodes(scores, lambda rows: follow_best_child(*graph, least, rows))


def beam(scores: Scores, width: int = 5) -> LabelMatrix:
    """Go down level by level, keeping the `width` best children of kept nodes; predict the best leaf reached.

    In a tree width 1 is `top_down`; with coherent scores a width of all nodes is `best_leaf`, if a leaf has a
    score. Linear in the scores but for sorting each level.

    Parameters
    ----------
    width
        How many nodes of a level are kept.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    h = scores.hierarchy
    arguments = *h.parent_graph, h.depth, h.is_leaf, whole_number(width, "width")
    return choose_nodes(scores, lambda rows: beam_search(*arguments, rows))


def majority(scores: Scores) -> LabelMatrix:
    """Predict the deepest node with a score above one half: where most of the probability agrees. Linear.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> h.names[majority(Scores(h, [[0.7, 0.3, 0.4, 0.3]])).indices[0]]
    'A'
    """
    depth = scores.hierarchy.depth
    return choose_nodes(scores, lambda rows: deepest_above(depth, 0.5, rows))


def plurality(scores: Scores) -> LabelMatrix:
    """Predict the deepest node that is likelier than every node that excludes it (not above it, not below).

    Needs a tree. Linear in the scores.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> h.names[plurality(Scores(h, [[0.7, 0.3, 0.4, 0.3]])).indices[0]]
    'B'
    """
    parent = scores.hierarchy.parent
    return choose_nodes(scores.coherent(), lambda rows: deepest_without_rival(parent, rows))


@kernel
def best_by_level(depth: IntArray, rows: ScoreRows) -> tuple[IntArray, LongArray]:
    """Find the node with the largest score at each depth."""
    ptr, nodes, values, start, stop = rows
    result = np.empty(ptr[stop] - ptr[start], np.int32)
    sizes = np.empty(stop - start, np.int64)
    used = 0
    for row in range(start, stop):
        begin, level = used, -1
        best = np.float32(0)
        for index in range(ptr[row], ptr[row + 1]):
            if depth[nodes[index]] != level:
                level = depth[nodes[index]]
                best = values[index]
                result[used] = nodes[index]
                used += 1
            elif values[index] > best:
                best = values[index]
                result[used - 1] = nodes[index]
        sizes[row - start] = used - begin
    return result[:used], sizes


@kernel
def follow_best_child(parent_ptr: IntArray, parent_idx: IntArray, least: float, rows: ScoreRows) -> IntArray:
    """Go from the root to the child with the largest score, while that is at least `least`; return where this ends."""
    ptr, nodes, values, start, stop = rows
    total = len(parent_ptr) - 1
    # The best child of every node, the root standing last; entries are valid only if their stamp is this row's.
    child = np.empty(total + 1, np.int32)
    score = np.empty(total + 1, values.dtype)
    stamp = np.full(total + 1, -1, np.int64)
    result = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        for index in range(ptr[row], ptr[row + 1]):
            node = nodes[index]
            for edge in range(parent_ptr[node], parent_ptr[node + 1]):
                above = parent_idx[edge] if parent_idx[edge] >= 0 else total
                if stamp[above] != row or values[index] > score[above]:
                    stamp[above] = row
                    child[above] = node
                    score[above] = values[index]
        node = total
        while stamp[node] == row and score[node] >= least:
            node = child[node]
            result[row - start] = node
    return result


@kernel
def has_parent_in_beam(parent_ptr: IntArray, parent_idx: IntArray, beam_row: LongArray, row: int, node: int) -> bool:
    """Return whether a node hangs under the root or under a node that this row kept."""
    for edge in range(parent_ptr[node], parent_ptr[node + 1]):
        if parent_idx[edge] < 0 or beam_row[parent_idx[edge]] == row:
            return True
    return False


@kernel
def beam_search(
    parent_ptr: IntArray, parent_idx: IntArray, depth: IntArray, is_leaf: BoolArray, width: int, rows: ScoreRows
) -> IntArray:
    """Keep the `width` best nodes of each level among the children of kept ones; return the best leaf that was kept.

    Where no leaf was kept, because the row holds none below the kept nodes, the best of the deepest kept nodes.
    """
    ptr, nodes, values, start, stop = rows
    beam_row = np.full(len(depth), -1, np.int64)
    result = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        leaf, inner, inner_depth = -1, -1, 0
        index, end = ptr[row], ptr[row + 1]
        while index < end:
            level = depth[nodes[index]]
            last = index
            while last < end and depth[nodes[last]] == level:
                last += 1
            open_nodes = np.empty(last - index, np.int64)
            count = 0
            for position in range(index, last):
                open_nodes[count] = position
                count += has_parent_in_beam(parent_ptr, parent_idx, beam_row, row, nodes[position])
            # A stable sort by falling score leaves equal ones in the order of their ids.
            order = np.argsort(-values[open_nodes[:count]], kind="mergesort")
            for rank in range(min(width, count)):
                position = open_nodes[order[rank]]
                beam_row[nodes[position]] = row
                if is_leaf[nodes[position]]:
                    if leaf < 0 or values[position] > values[leaf]:
                        leaf = position
                elif level > inner_depth:
                    inner, inner_depth = position, level
            index = last
        best = leaf if leaf >= 0 else inner
        if best >= 0:
            result[row - start] = nodes[best]
    return result


@kernel
def deepest_above(depth: IntArray, least: float, rows: ScoreRows) -> IntArray:
    """Find the deepest node with a score above `least`."""
    ptr, nodes, values, start, stop = rows
    result = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        best, deepest = np.float32(0), 0
        for index in range(ptr[row], ptr[row + 1]):
            level = depth[nodes[index]]
            if values[index] > least and (level > deepest or values[index] > best):
                best, deepest = values[index], level
                result[row - start] = nodes[index]
    return result


@kernel
def deepest_without_rival(parent: IntArray, rows: ScoreRows) -> IntArray:
    """Go to the best child for as long as it is likelier than every sibling met on the way; return where this ends.

    With coherent scores no node off the way is likelier than the sibling it lies under.
    """
    ptr, nodes, values, start, stop = rows
    total = len(parent)
    # The best child of every node and the score of the second best; entries count only if their stamp is this row's.
    child = np.empty(total + 1, np.int32)
    first, second = np.empty(total + 1, values.dtype), np.empty(total + 1, values.dtype)
    stamp = np.full(total + 1, -1, np.int64)
    result = np.full(stop - start, -1, np.int32)
    for row in range(start, stop):
        for index in range(ptr[row], ptr[row + 1]):
            above = parent[nodes[index]] if parent[nodes[index]] >= 0 else total
            if stamp[above] != row:
                stamp[above] = row
                child[above], first[above], second[above] = nodes[index], values[index], 0
            elif values[index] > first[above]:
                second[above] = first[above]
                child[above], first[above] = nodes[index], values[index]
            else:
                second[above] = max(second[above], values[index])
        node, rival = total, np.float32(0)
        while stamp[node] == row:
            rival = max(rival, second[node])
            if first[node] <= rival:
                break
            node = child[node]
            result[row - start] = node
    return result
