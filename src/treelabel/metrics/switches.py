"""Switches of metrics: conventions on which libraries differ, written behind a name as in recall@5(empty=zero).

What a switch changes is a function around the metric's own. They compare by what they wrap, so that two evaluators of
the same metric know each other.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.types import DoubleArray
from treelabel.hierarchy.label_matrices import row_sizes
from treelabel.metrics.batch import Batch
from treelabel.scores.score_matrix import Scores

Function = Callable[..., Any]


@dataclass(frozen=True)
class Switch:
    """A convention: its name, what is done by default, the other way, and the function that does it."""

    name: str
    default: str
    other: str
    help: str
    wrap: Callable[[Function], Function]


@dataclass(frozen=True)
class WithNumbers:
    """Pass numbers to a metric by name."""

    of: Callable[..., Any]
    numbers: tuple[tuple[str, float], ...]

    def __call__(self, batch: Batch, *number: float) -> Any:
        """Compute what the metric is made of."""
        return self.of(batch, *number, **dict(self.numbers))


@dataclass(frozen=True)
class ZeroWithoutTruth:
    """Set the value of documents without true labels to 0."""

    of: Function

    def __call__(self, batch: Batch, *number: float) -> DoubleArray:
        """Compute one value per document: shape (documents,)."""
        values = self.of(batch, *number)
        return np.where(row_sizes(batch.truth) > 0, values, 0.0)


@dataclass(frozen=True)
class SkipWithoutTruth:
    """Leave documents without true labels out."""

    of: Function

    def __call__(self, batch: Batch, *number: float) -> DoubleArray:
        """Compute one value per document, NaN where it does not count: shape (documents,)."""
        values = self.of(batch, *number)
        return np.where(row_sizes(batch.truth) > 0, values, np.nan)


@dataclass(frozen=True)
class RankZeros:
    """Rank labels with a score of 0 behind all others, by label id."""

    of: Function

    def __call__(self, batch: Batch, *number: float) -> Any:
        """Compute what the metric is made of."""
        key = RankZeros, number
        if key not in batch._tables:
            batch._tables[key] = _with_scores(batch, with_zeros(batch.scores, int(number[0])))
        return self.of(batch._tables[key], *number)


@dataclass(frozen=True)
class CapChildren:
    """Make scores coherent by lowering children to their parents, and not by raising parents."""

    of: Function

    def __call__(self, batch: Batch, *number: float) -> Any:
        """Compute what the metric is made of."""
        if CapChildren not in batch._tables:
            batch._tables[CapChildren] = _with_scores(batch, batch.scores.coherent("min"))
        return self.of(batch._tables[CapChildren], *number)


def _with_scores(batch: Batch, scores: Scores) -> Batch:
    return replace(batch, input_scores=scores, input_closure=batch.closed_truth)


def with_zeros(scores: Scores, k: int) -> Scores:
    """Raise labels with a score of 0 to the smallest normal number, as many as a ranking of k labels can need.

    Whatever labels have scores, the first k labels and these are at least k, and no label with a higher id comes in.

    Parameters
    ----------
    k
        How many labels will be ranked.

    Returns
    -------
    Scores

    >>> from treelabel.hierarchy import Hierarchy
    >>> s = Scores(Hierarchy.flat("abc"), [[0.0, 0.5, 0.0]])
    >>> (with_zeros(s, 1).dense() > 0).tolist(), with_zeros(s, 3).top_k(3).csr().nnz
    ([[True, True, False]], 3)
    """
    count = min(k, len(scores.hierarchy))
    tiny = np.finfo(scores.dtype).tiny
    if not scores.is_sparse:
        values = np.array(scores.values)
        values[:, :count][values[:, :count] == 0] = tiny
        return Scores(scores.hierarchy, values, scores.ids)
    columns = np.tile(np.arange(count, dtype=np.int32), len(scores))
    first = sparse.csr_array(
        (np.full(len(columns), tiny), columns, np.arange(len(scores) + 1) * count), scores.values.shape
    )
    return Scores(scores.hierarchy, scores.values.maximum(first), scores.ids)


SKIP_EMPTY = Switch(
    "empty", "skip", "zero", "documents without true labels: left out, or a value of 0", ZeroWithoutTruth
)
ZERO_EMPTY = Switch(
    "empty", "zero", "skip", "documents without true labels: a value of 0, or left out", SkipWithoutTruth
)
ZEROS = Switch(
    "zeros", "unranked", "ranked", "labels with a score of 0: not predicted, or ranked last by id", RankZeros
)
COHERENT = Switch(
    "coherent", "max", "min", "scores are made coherent: parents raised to children, or children capped", CapChildren
)
