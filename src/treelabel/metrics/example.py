"""Four documents on which the docstrings of metrics are computed.

hierarchy   A over C and D; B; E   nodes                  A   B   E   C   D
                                   training documents     8   4   0   2   4   of 16, ancestors counted
                                   labels in training     2   4   0   2   4
                                   information, in bits   1   2   4   3   2
                                   weight, in bits        1   2   4   2   1   what a node adds to its parent

document    truth   decision   scores of   A       B       E   C      D
1           C       A                      0.625   0.375   0   0.5    0.125
2           D       C                      0.75    0.25    0   0.5    0.25
3           B       A                      0.625   0.375   0   0.25   0.375
4           none    none                   0.75    0.25    0   0.25   0.5
"""

from collections.abc import Callable

import numpy as np

from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_ids import encode
from treelabel.metrics.batch import Batch, Context, Parts, Sums
from treelabel.scores.score_matrix import Scores


def example_context() -> Context:
    """Return the hierarchy and how often its labels occur in training."""
    hierarchy = Hierarchy.from_paths(["A > C", "A > D", "B", "E"])
    return Context(hierarchy, np.array([8, 4, 0, 2, 4]), np.array([2, 4, 0, 2, 4]), 16)


def example() -> Batch:
    """Return the four documents."""
    context = example_context()
    scores = [[0.375, 0.5, 0.125], [0.25, 0.5, 0.25], [0.375, 0.25, 0.375], [0.25, 0.25, 0.5]]
    return Batch(
        context,
        encode(context.hierarchy, [["C"], ["D"], ["B"], []]),
        encode(context.hierarchy, [["A"], ["C"], ["A"], []]),
        Scores.from_leaves(context.hierarchy, ["B", "C", "D"], scores),
    )


def example_sums(parts: Callable[..., Parts], *arguments: float) -> Sums:
    """Sum additive parts over the four documents; `arguments` is the number behind "@", if there is one."""
    return tuple(np.asarray(part.sum(axis=0)).ravel() for part in parts(example(), *arguments))
