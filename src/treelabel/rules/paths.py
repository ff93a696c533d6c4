"""Rules that choose one node, or one per level: down the tree, or by what most of the probability agrees on."""

from treelabel.core.errors import TreelabelError
from treelabel.hierarchy import LabelMatrix
from treelabel.rules.kernels import paths as kernels
from treelabel.rules.rows import nodes_of, sets_of, single_labels
from treelabel.rules.threshold import whole_number
from treelabel.scores import Scores


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
    return sets_of(scores, lambda *rows: kernels.best_by_level(depth, *rows))


def top_down(scores: Scores, stop: float = 0.0) -> LabelMatrix:
    """Go from the root to the best child, and on, to a leaf or until no child has a score of at least `stop`.

    This chooses the single best class of the paper on a hierarchical loss. Scores are compared as they are: they are
    probabilities of nodes, not given the parent. Linear in the scores.

    Parameters
    ----------
    scores
        The scores.
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
    ptr, idx = scores.hierarchy.parent_ptr, scores.hierarchy.parent_idx
    least = float(scores.dtype.type(stop))
    return nodes_of(scores, lambda *rows: kernels.follow_best_child(ptr, idx, least, *rows))


def beam(scores: Scores, width: int = 5) -> LabelMatrix:
    """Go down level by level, keeping the `width` best children of kept nodes; predict the best leaf reached.

    In a tree width 1 is `top_down`; with coherent scores a width of all nodes is `best_leaf`, if a leaf has a
    score. Linear in the scores but for sorting each level.

    Parameters
    ----------
    scores
        The scores.
    width
        How many nodes of a level are kept.

    Returns
    -------
    label matrix of shape (documents, nodes)
    """
    h, kept = scores.hierarchy, whole_number(width, "width")
    return nodes_of(scores, lambda *rows: kernels.beam(h.parent_ptr, h.parent_idx, h.depth, h.is_leaf, kept, *rows))


def majority(scores: Scores) -> LabelMatrix:
    """Predict the deepest node with a score above one half: where most of the probability agrees. Linear.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> h.names[majority(Scores(h, [[0.7, 0.3, 0.4, 0.3]])).indices[0]]
    'A'
    """
    depth = scores.hierarchy.depth
    return nodes_of(scores, lambda *rows: kernels.deepest_above(depth, 0.5, *rows))


def plurality(scores: Scores) -> LabelMatrix:
    """Predict the deepest node that is likelier than every node that excludes it (not above it, not below).

    Needs a tree. Linear in the scores.

    >>> from treelabel.hierarchy import Hierarchy
    >>> h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    >>> h.names[plurality(Scores(h, [[0.7, 0.3, 0.4, 0.3]])).indices[0]]
    'B'
    """
    parent = scores.hierarchy.parent
    return nodes_of(scores.coherent(), lambda *rows: kernels.deepest_without_rival(parent, *rows))
