"""Three documents on which the docstrings of metrics are computed.

hierarchy   A over C and D; B               (nodes A B C D, of 8 training documents 4 4 2 2)
document    truth   decision   scores of C D B
1           C       C          0.5   0.25  0.25
2           B       A          0.25  0.25  0.5
3           D       C          0.5   0.25  0.25
"""

from collections.abc import Callable

import numpy as np

from treelabel.hierarchy import Hierarchy
from treelabel.hierarchy.labels import encode
from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.metric import Parts, Sums
from treelabel.scores import Scores


def example_context() -> Context:
    """The hierarchy and how often its labels occur in training."""
    counts = np.array([4, 4, 2, 2])
    return Context(Hierarchy.from_paths(["A > C", "A > D", "B"]), counts, counts, 8)


def example() -> Batch:
    """The three documents."""
    context = example_context()
    scores = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]
    return Batch(
        context,
        encode(context.hierarchy, ["C", "B", "D"]),
        encode(context.hierarchy, ["C", "A", "C"]),
        Scores.from_leaves(context.hierarchy, ["C", "D", "B"], scores),
    )


def example_sums(parts: Callable[[Batch, float], Parts], parameter: float = 0) -> Sums:
    """The sums of additive parts over the three documents.

    Parameters
    ----------
    parts
        Returns the additive parts of a batch.
    parameter
        The number behind "@" in the metric's name.

    Returns
    -------
    tuple of sums
    """
    return tuple(np.asarray(part.sum(axis=0)).ravel() for part in parts(example(), parameter))
