"""What a measure is: additive parts of documents, and a value made of their sums.

Averaging is composition. A mean over documents sums (value, 1); a micro average sums counts and divides once; a macro
average sums counts by label and averages the labels' values. As every measure is a function of sums over documents,
each can be streamed, merged and bootstrapped without knowing which one it is.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from treelabel.core.compute import DoubleArray
from treelabel.core.errors import TreelabelError
from treelabel.metrics.batch import Batch, Context

Need = Literal["decisions", "scores", "frequencies", "single label", "tree"]
# Documents x columns matrices, dense or CSR; their column sums are all that a value is made of.
Parts = tuple[Any, ...]
Sums = tuple[Any, ...]
Value = float | dict[str, float]


@dataclass(frozen=True)
class Metric:
    """A measure: how documents contribute, what their sums mean, and what a reader should know about it.

    Either `documents` gives one value a document (NaN: not counted) and the measure is their mean, or `parts` gives
    additive parts and `value` the measure of their sums. Both take the number behind "@", for measures that have one.
    """

    name: str
    help: str
    paper: str
    needs: frozenset[Need]
    higher_is_better: bool = True
    documents: Callable[[Batch, float], DoubleArray] | None = None
    parts: Callable[[Batch, float], Parts] | None = None
    value: Callable[[Sums, Context, float], Value] | None = None
    parameter: str | None = None
    default: float = 0.0

    @property
    def key(self) -> tuple[Any, float]:
        """Measures with the same key share their parts."""
        return (self.documents or self.parts, self.default)

    def parts_of(self, batch: Batch) -> Parts:
        """Compute the additive parts of documents."""
        if self.documents is None:
            assert self.parts is not None
            return self.parts(batch, self.default)
        values = self.documents(batch, self.default)
        known = ~np.isnan(values)
        # Each column in one piece of memory: numpy sums those fast, and pairwise, which loses fewer digits.
        return (np.array([np.where(known, values, 0.0), known]).T,)

    def value_of(self, sums: Sums, context: Context) -> Value:
        """Turn sums over documents into the measure's value; NaN where there are no documents."""
        if self.documents is not None:
            total, count = sums[0]
            return float(total / count) if count else float("nan")
        assert self.value is not None
        return self.value(sums, context, self.default)


def find_metric(name: str, table: Mapping[str, Metric]) -> Metric:
    """Find a measure by name; "precision@5" is the row "precision@k" with k = 5, "hf_beta@2" has beta = 2."""
    if name in table and table[name].parameter is None:
        return table[name]
    base, at, number = name.partition("@")
    row = next((entry for entry in table.values() if entry.name.partition("@")[0] == base and entry.parameter), None)
    if row is None:
        import difflib

        close = difflib.get_close_matches(name, table, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "'treelabel metrics' lists them"
        raise TreelabelError(f"unknown measure {name!r}; {hint}")
    try:
        parameter = float(number) if at and number != row.parameter else row.default
    except ValueError:
        parameter = math.nan
    if not 0 < parameter < math.inf or (row.parameter == "k" and parameter != int(parameter)):
        raise TreelabelError(f"{name!r}: expected a number above 0 behind @, such as {base}@{row.default:g}")
    return replace(row, name=f"{base}@{parameter:g}" if at or row.name.endswith("@k") else name, default=parameter)
