"""The Metric class: additive parts of documents, and a value made of their sums.

Averaging is composition. A mean over documents sums (value, 1); a micro average sums counts and divides once; a macro
average sums counts by label and averages the labels' values. As every metric is a function of sums over documents,
each can be streamed, merged and bootstrapped without knowing which one it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.types import DoubleArray
from treelabel.metrics.batch import Batch, Context
from treelabel.metrics.switches import Switch, WithNumbers

Need = Literal["decisions", "scores", "frequencies", "single label", "tree"]
# Documents x columns matrices, dense or CSR; their column sums are all that a value is made of.
Parts = tuple[Any, ...]
Sums = tuple[Any, ...]
Value = float | dict[str, float]


@dataclass(frozen=True)
class Metric:
    """A metric: how documents contribute, what their sums mean, and what a reader should know about it.

    Either `documents` returns one value per document (NaN: not counted) and the metric is their mean, or `parts`
    returns additive parts and `value` the metric of their sums. Both take the number behind "@", for metrics that have
    one. `over_labels` says that a value is a mean over labels, of counts as `label_counts` returns them: its interval
    depends on the documents of each label. `note` says where other libraries mean something else by the name;
    `switches` are the conventions that can be changed, as in recall@5(empty=zero), and `numbers` the numbers
    with their defaults, as in icm(beta=2.5).
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
    over_labels: bool = False
    numbers: tuple[tuple[str, float], ...] = ()

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
            if value == switch.other and metric.documents is not None:
                metric = replace(metric, documents=switch.wrap(metric.documents))
            elif value == switch.other and metric.parts is not None:
                metric = replace(metric, parts=switch.wrap(metric.parts))
        return metric

    def _with_numbers(self, settings: Mapping[str, Any]) -> "Metric":
        """Return the metric with other numbers."""
        for name, value in settings.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
                raise TreelabelError(f"{self.name}: {name} = {value}, expected a number of at least 0")
        changed = tuple((name, float(settings.get(name, default))) for name, default in self.numbers)
        if changed == self.numbers:
            return self
        if self.documents is not None:
            return replace(self, documents=WithNumbers(self.documents, changed), numbers=changed)
        assert self.parts is not None
        return replace(self, parts=WithNumbers(self.parts, changed), numbers=changed)

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
