"""The Metric class: additive parts of documents, and a value made of their sums.

Averaging is composition. A mean over documents sums (value, 1); a micro average sums counts and divides once; a macro
average sums counts by label and averages the labels' values. As every metric is a function of sums over documents,
each can be streamed, merged and bootstrapped without knowing which one it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray
from treelabel.hierarchy.label_matrices import row_sizes
from treelabel.metrics.batch import Batch, Context, Parts, Sums, Value
from treelabel.scores.score_matrix import Scores

Function = Callable[..., Any]


@dataclass(frozen=True)
class Switch:
    """A convention: its name, what is done by default, the other way, and what does it: a function and its argument.

    Wrappers and arguments compare equal after a journey between processes, which partial functions and NaN do not.
    """

    name: str
    default: str
    other: str
    help: str
    wrap: Callable[[Function, Any], Function]
    argument: Any


@dataclass(frozen=True)
class WithNumbers:
    """Pass numbers to a metric by name."""

    of: Callable[..., Any]
    numbers: tuple[tuple[str, float], ...]

    def __call__(self, batch: Batch, *number: float) -> Any:
        """Compute what the metric is made of."""
        return self.of(batch, *number, **dict(self.numbers))


@dataclass(frozen=True)
class ValueWithoutTruth:
    """Set the value of documents without true labels to 0 if they count, and else to NaN, which leaves them out."""

    of: Function
    counts: bool

    def __call__(self, batch: Batch, *number: float) -> DoubleArray:
        """Compute one value per document: shape (documents,)."""
        return np.where(row_sizes(batch.truth) > 0, self.of(batch, *number), 0.0 if self.counts else np.nan)


@dataclass(frozen=True)
class OtherScores:
    """Change the scores before a metric looks at them."""

    of: Function
    change: Callable[..., Scores]

    def __call__(self, batch: Batch, *number: float) -> Any:
        """Compute what the metric is made of."""
        key = self.change, number
        if key not in batch._tables:
            scores = self.change(batch.scores, *number)
            batch._tables[key] = replace(batch, input_scores=scores, input_closure=batch.closed_truth)
        return self.of(batch._tables[key], *number)


@dataclass(frozen=True)
class SetsAsGiven:
    """Judge label sets as they are given, without adding ancestors; the argument is not looked at."""

    of: Function
    argument: Any

    def __call__(self, batch: Batch, *number: float) -> Any:
        """Compute what the metric is made of."""
        if SetsAsGiven not in batch._tables:
            batch._tables[SetsAsGiven] = replace(batch, takes_sets_as_given=True)
        return self.of(batch._tables[SetsAsGiven], *number)


@dataclass(frozen=True)
class ChangedValues:
    """Change the value of each document."""

    of: Function
    change: Callable[[DoubleArray], DoubleArray]

    def __call__(self, batch: Batch, *number: float) -> DoubleArray:
        """Compute one value per document: shape (documents,)."""
        return self.change(self.of(batch, *number))


def win_with_root(win: DoubleArray) -> DoubleArray:
    """Return the hierarchical win as its paper defines it, the root counted: 1/2 + win / 2.

    >>> win_with_root(np.array([0.5, 1.0])).tolist()
    [0.75, 1.0]
    """
    return 0.5 + win / 2


def neg_log_win_with_root(lost: DoubleArray) -> DoubleArray:
    """Return -ln of the win with the root, of -ln of that without.

    >>> neg_log_win_with_root(np.array([0.0, np.inf])).round(3).tolist()
    [-0.0, 0.693]
    """
    return -np.log(win_with_root(np.exp(-lost)))


def cap_children(scores: Scores) -> Scores:
    """Make scores coherent by lowering children to their parents, and not by raising parents."""
    return scores.coherent("min")


def with_zeros(scores: Scores, k: float) -> Scores:
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
    count = min(int(k), len(scores.hierarchy))
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


_WITHOUT_TRUTH = "documents without true labels:"
SKIP_EMPTY = Switch("empty", "skip", "zero", f"{_WITHOUT_TRUTH} left out, or a value of 0", ValueWithoutTruth, True)
ZERO_EMPTY = Switch("empty", "zero", "skip", f"{_WITHOUT_TRUTH} a value of 0, or left out", ValueWithoutTruth, False)
_RANKED = "labels with a score of 0: not predicted, or ranked last by id"
ZEROS = Switch("zeros", "unranked", "ranked", _RANKED, OtherScores, with_zeros)
_COHERENT = "scores are made coherent: parents raised to children, or children capped"
COHERENT = Switch("coherent", "max", "min", _COHERENT, OtherScores, cap_children)
_GIVEN = "label sets: ancestors added to both, or as they are given"
GIVEN = Switch("sets", "closed", "given", _GIVEN, SetsAsGiven, None)
_ROOT = "the root: left out, or counted as in the paper, 1/2 + win / 2"
WIN_ROOT = Switch("root", "excluded", "counted", _ROOT, ChangedValues, win_with_root)
LOG_WIN_ROOT = Switch("root", "excluded", "counted", _ROOT, ChangedValues, neg_log_win_with_root)
_AS_SKLEARN = "documents without true labels: a value as in scikit-learn, or left out"
COUNT_EMPTY = Switch("empty", "count", "skip", _AS_SKLEARN, ValueWithoutTruth, False)


Need = Literal["decisions", "scores", "frequencies", "single label", "tree"]


@dataclass(frozen=True)
class Metric:
    """A metric: how documents contribute, what their sums mean, and what a reader should know about it.

    Either `documents` returns one value per document (NaN: not counted) and the metric is their mean, or `parts`
    returns additive parts and `value` the metric of their sums. Both take the number behind "@", for metrics that have
    one. `over_labels` is set where a value is a mean over labels, whose interval depends on the documents of each: of
    parts and a number, it makes sums in which labels with as many documents have the value 1, and others 0.
    `is_share` says that the value of every document lies between 0 and 1, so that something is known of the mean even
    where all documents have the same; where there are parts, that each column of the first one counts the documents of
    a level. `note` says where other libraries mean something else by the name;
    `switches` are the conventions that can be changed, as in recall@5(empty=zero), and `numbers` the numbers with their
    defaults, as in icm(beta=2.5).
    """

    name: str
    help: str
    paper: str
    needs: frozenset[Need]
    higher_is_better: bool = True
    documents: Callable[..., DoubleArray] | None = None
    parts: Callable[..., Parts] | None = None
    value: Callable[[Sums, Context], Value] | None = None
    parameter: str | None = None
    default: float = 0.0
    note: str = ""
    switches: tuple[Switch, ...] = ()
    over_labels: Callable[[Parts, int], Sums] | None = None
    numbers: tuple[tuple[str, float], ...] = ()
    is_share: bool = False

    @property
    def key(self) -> tuple[Any, float]:
        """Metrics with the same key share their parts."""
        return (self.documents or self.parts, self.default)

    @property
    def arguments(self) -> tuple[float, ...]:
        """The input of functions besides the documents: the number behind "@", for metrics that have one."""
        return () if self.parameter is None else (self.default,)

    def with_conventions(self, settings: Mapping[str, Any]) -> "Metric":
        """Return the metric with other conventions; what is no convention of it is refused."""
        allowed = [*(switch.name for switch in self.switches), *dict(self.numbers)]
        for name in settings:
            if name not in allowed:
                raise TreelabelError(f"{self.name} has no setting {name!r}; it has: {', '.join(allowed) or 'none'}")
        metric = self._with_numbers({name: settings[name] for name, _ in self.numbers if name in settings})
        for switch in self.switches:
            value = str(settings.get(switch.name, switch.default))
            if value not in (switch.default, switch.other):
                raise TreelabelError(
                    f"{self.name}: {switch.name} = {value}, expected {switch.default} or {switch.other}"
                )
            if value == switch.other:
                metric = metric._wrap(switch.wrap, switch.argument)
        return metric

    def _with_numbers(self, settings: Mapping[str, Any]) -> "Metric":
        """Return the metric with other numbers."""
        for name, value in settings.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
                raise TreelabelError(f"{self.name}: {name} = {value}, expected a number of at least 0")
        changed = tuple((name, float(settings.get(name, default))) for name, default in self.numbers)
        return self if changed == self.numbers else self._wrap(WithNumbers, changed, numbers=changed)

    def _wrap(self, wrap: Callable[[Function, Any], Function], argument: Any, **changes: Any) -> "Metric":
        """Put a function around the metric's own."""
        if self.documents is not None:
            return replace(self, documents=wrap(self.documents, argument), **changes)
        assert self.parts is not None
        return replace(self, parts=wrap(self.parts, argument), **changes)

    def parts_of(self, batch: Batch) -> Parts:
        """Compute the additive parts of documents."""
        if self.documents is None:
            assert self.parts is not None
            return self.parts(batch, *self.arguments)
        values = self.documents(batch, *self.arguments)
        known = ~np.isnan(values)
        # Each column in one piece of memory: numpy sums those fast, and pairwise, which loses fewer digits.
        return (np.array([np.where(known, values, 0.0), known]).T,)

    def value_of(self, sums: Sums, context: Context) -> Value:
        """Turn sums over documents into the metric's value; NaN where there are no documents.

        Parameters
        ----------
        sums
            The sums of the metric's parts.
        context
            What is known of hierarchy and training.

        Returns
        -------
        Value
        """
        if self.documents is not None:
            total, count = sums[0]
            return float(total / count) if count else float("nan")
        assert self.value is not None
        return self.value(sums, context)

    def compute(self, batch: Batch) -> Value:
        """Compute the metric of some documents at once; `evaluate` does it for many metrics, with intervals.

        >>> from treelabel.metrics.example import example
        >>> from treelabel.metrics.registry import find_metric
        >>> find_metric("hf1").compute(example()), find_metric("precision@2").compute(example())
        (0.5416666666666666, 0.5)
        """
        return self.value_of(
            tuple(np.asarray(part.sum(axis=0)).ravel() for part in self.parts_of(batch)), batch.context
        )
