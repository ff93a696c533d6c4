"""Thresholding: a node is predicted if its score reaches t."""

import numpy as np

from treelabel.errors import TreelabelError
from treelabel.hierarchy import LabelMatrix
from treelabel.hierarchy.sets import as_labels, keep_entries
from treelabel.scores import Scores


def threshold(scores: Scores, t: float) -> LabelMatrix:
    """Predict {n : p(n) >= t}; t must be above 0, as what is not stored has score 0.

    >>> from treelabel.hierarchy import Hierarchy
    >>> threshold(Scores(Hierarchy.flat(["A", "B"]), [[0.5, 0.4]]), 0.5).indices.tolist()
    [0]
    """
    if not np.float32(t) > 0:
        raise TreelabelError(f"expected a threshold above 0, found {t:g}; 0 would predict every label")
    columns = len(scores.hierarchy)
    if not scores.is_sparse:
        return as_labels(scores.values >= np.float32(t), columns)
    return keep_entries(scores.values, scores.values.data >= np.float32(t))
