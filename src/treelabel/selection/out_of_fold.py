"""Scores of training documents by models that had not learned from them: every document once, in folds."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.types import LongArray
from treelabel.scores import Scores

# With more scores than this, only the largest of each document are kept.
MOST_SCORES: Final = 1 << 27
KEPT: Final = 100


def out_of_fold(make: Callable[[], Any], data: Any, folds: Sequence[LongArray], progress: bool | None = None) -> Scores:
    """Fit one model per fold to all other documents, and score the fold's by it.

    Parameters
    ----------
    make : callable
        Makes a new model.
    data : Dataset
        Documents with labels; selected by row numbers.
    folds : sequence of arrays of int64
        Row numbers of each fold; together all documents, each once.
    progress : bool, optional
        Whether to show a bar; by default on a terminal.

    Returns
    -------
    Scores
        In the order of the documents; where documents x nodes would not fit, the 100 largest of each.

    >>> from treelabel.hierarchy import Hierarchy
    >>> from treelabel.models.registry import make_model
    >>> from treelabel.models.model_inputs import training_of
    >>> data = training_of(["a", "b", "a", "b"], ["x", "y", "x", "y"], Hierarchy.flat(["x", "y"]))
    >>> halves = [np.array([0, 1]), np.array([2, 3])]
    >>> out_of_fold(lambda: make_model("most_frequent"), data, halves).dense().tolist()
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    """
    rows = np.concatenate(folds) if len(folds) else np.zeros(0, np.int64)
    if not np.array_equal(np.sort(rows), np.arange(len(data.texts))):
        raise TreelabelError(f"the folds hold {len(rows):,} rows, expected each of {len(data.texts):,} once")
    top = KEPT if len(data.texts) * len(data.hierarchy) > MOST_SCORES else None
    parts = []
    with progress_bar("learning fold by fold", len(folds), progress) as told:
        for at, fold in enumerate(folds):
            told(at)
            fitted = make().fit(data[np.setdiff1d(np.arange(len(data.texts)), fold)], progress=False)
            if fitted.stopped_ == "interrupt":
                raise KeyboardInterrupt
            parts.append(fitted.score(_inputs(data, fold), top=top).values)
    back = np.argsort(rows)
    stack: Any = sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
    return Scores(data.hierarchy, stack[back])


def _inputs(data: Any, rows: LongArray) -> Any:
    """Return the texts of documents, or their features where these are all that there is."""
    some = data[rows]
    return some.texts if getattr(some, "features", None) is None else some.features
