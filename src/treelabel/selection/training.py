"""Training data: labelled texts, with weights, groups, and when to stop."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.core.errors import TreelabelError
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings, as_list, describe_value
from treelabel.core.types import DoubleArray, LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix
from treelabel.hierarchy.labelled_texts import LabelledTexts, Regime, regime_of


@dataclass(frozen=True, eq=False)
class Training(LabelledTexts):
    """Training data: labelled texts, their regime (see `regime_of`), and when to stop.

    `weights` are those of documents, if they differ; documents with the same number in `groups` belong together, and
    are held out together. `features` are there where data bring numbers instead of texts.
    """

    texts: Strings
    labels: LabelMatrix
    hierarchy: Hierarchy
    valid: "Training | None" = None
    progress: bool | None = None
    stop: StopSignal = field(default_factory=StopSignal)
    # By default that of the labels: never None in an instance.
    regime: Regime = None  # type: ignore[assignment]
    weights: DoubleArray | None = None
    groups: LongArray | None = None
    features: sparse.csr_array | None = None
    # How labels were written outside, which `models.label_forms` knows; None for nodes.
    form: Any = None

    def __post_init__(self) -> None:
        if self.regime is None:
            object.__setattr__(self, "regime", regime_of(self.hierarchy, self.labels))

    def __getitem__(self, rows: Any) -> "Training":
        """Select documents by row numbers; what all documents are like stays as it is."""
        optional = self.weights, self.groups, self.features
        weights, groups, features = (None if each is None else each[rows] for each in optional)
        some = replace(self, texts=self.texts.take(rows), labels=self.labels[rows], valid=None)
        return replace(some, weights=weights, groups=groups, features=features)

    def followed_by(self, more: "Training") -> "Training":
        """Put other documents after these; what all documents are like stays as it is."""
        texts = Strings.of([*self.texts, *more.texts])
        labels = sparse.vstack([self.labels, more.labels], format="csr")
        weights = None if self.weights is None else np.concatenate([self.weights, np.ones(len(more))])
        return replace(self, texts=texts, labels=labels, valid=None, weights=weights, groups=None)

    def with_groups(self, groups: Any) -> "Training":
        """Return the same documents, of which those with equal values in `groups` belong together."""
        names = np.asarray(as_list(groups, "groups"))
        if names.shape != (len(self),):
            raise TreelabelError(f"{len(names):,} groups for {len(self):,} documents; expected one for each")
        numbers: LongArray = np.unique(names, return_inverse=True)[1].astype(np.int64)
        if len(self) and not numbers.any():
            raise TreelabelError(
                f"all documents belong to one group, {str(names[0])[:80]!r}, so that none can be held out without all "
                "others; leave groups out"
            )
        return replace(self, groups=numbers)

    def with_weights(self, sample_weight: Any) -> "Training":
        """Return the same documents with weights; those of weight 0 are left out."""
        try:
            weights = np.asarray(sample_weight, np.float64)
        except (TypeError, ValueError):
            raise TreelabelError(
                f"sample_weight must hold a number per document, found {describe_value(sample_weight)}"
            ) from None
        if weights.shape != (len(self),):
            raise TreelabelError(f"sample_weight has the shape {weights.shape}, but there are {len(self):,} documents")
        if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
            raise TreelabelError("sample_weight must hold numbers from 0 on, some of them above 0")
        return replace(replace(self, weights=weights)[np.flatnonzero(weights)], valid=self.valid)
