"""Decisions: closed label sets, and the hierarchy they belong to."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from treelabel.core.types import BoolArray
from treelabel.hierarchy import Hierarchy, LabelMatrix
from treelabel.hierarchy.labels import decode
from treelabel.hierarchy.sets import keep_entries, row_numbers, row_sizes


@dataclass(frozen=True, eq=False, repr=False)
class Decisions:
    """The label sets that were chosen for documents; `csr` is the matrix, `rule` what made it.

    Sets are closed, unless the rule was told not to: `closed` is None then, and where nobody knows. `unknown` marks
    documents on which the rule abstained.

    >>> from treelabel.hierarchy.labels import encode
    >>> h = Hierarchy.from_paths(["A > B"])
    >>> d = Decisions(h, h.closure(encode(h, ["B"])))
    >>> d.names(), d.paths()
    ([['A', 'B']], [['A > B']])
    """

    hierarchy: Hierarchy
    csr: LabelMatrix
    ids: tuple[str, ...] | None = None
    rule: str | None = None
    unknown: BoolArray | None = None
    closed: bool | None = None

    def __len__(self) -> int:
        return int(self.csr.shape[0])

    def __getitem__(self, rows: Any) -> "Decisions":
        """Select documents by slice, boolean mask or row numbers."""
        # numpy takes an empty list for floats.
        chosen = rows if isinstance(rows, slice) else np.asarray(rows, None if np.size(rows) else np.int64)
        picked = np.atleast_1d(np.arange(len(self))[chosen])
        ids = None if self.ids is None else tuple(self.ids[row] for row in picked.tolist())
        unknown = None if self.unknown is None else self.unknown[picked]
        return Decisions(self.hierarchy, self.csr[picked], ids, self.rule, unknown, self.closed)

    def __repr__(self) -> str:
        unknown = "" if self.unknown is None else f", {int(self.unknown.sum()):,} unknown"
        return f"Decisions({len(self):,} documents, {self.csr.nnz:,} labels{unknown}, rule {self.rule})"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the hierarchy."""
        return self.hierarchy.fingerprint

    @cached_property
    def closed_rows(self) -> BoolArray:
        """Mark the documents whose sets hold the ancestors of their labels."""
        if self.closed:
            return np.ones(len(self), np.bool_)
        whole = self.hierarchy.closure(self.csr)
        same: BoolArray = row_sizes(whole) == row_sizes(self.csr)
        return same

    def without(self, empty: BoolArray) -> "Decisions":
        """Take the labels of some documents away, and mark these as unknown.

        Parameters
        ----------
        empty : array of shape (documents,)
            Which ones.

        Returns
        -------
        Decisions
        """
        kept = keep_entries(self.csr, ~empty[row_numbers(self.csr)])
        unknown = empty if self.unknown is None else self.unknown | empty
        return Decisions(self.hierarchy, kept, self.ids, self.rule, unknown, self.closed)

    @cached_property
    def most_specific(self) -> LabelMatrix:
        """The labels that are no ancestor of another."""
        return self.hierarchy.most_specific(self.csr)

    def names(self) -> list[list[str]]:
        """Return all predicted names of each document, ancestors included if the sets are closed."""
        return decode(self.hierarchy, self.csr)

    def paths(self) -> list[list[str]]:
        """Return the full paths of the most specific labels of each document."""
        return decode(self.hierarchy, self.most_specific, paths=True)
