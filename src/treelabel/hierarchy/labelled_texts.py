"""Texts with labels in a hierarchy: what a dataset and the training data of a model have in common."""

from functools import cached_property

import numpy as np

from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.hierarchy.label_matrices import LabelMatrix


class LabelledTexts:
    """A base for frozen dataclasses that have these three fields: one text and one row of labels per document."""

    texts: Strings
    labels: LabelMatrix
    hierarchy: Hierarchy

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def closed(self) -> LabelMatrix:
        """The labels with all their ancestors."""
        return self.hierarchy.closure(self.labels)

    @cached_property
    def frequencies(self) -> LongArray:
        """The number of documents that carry each node, ancestors included."""
        return np.bincount(self.closed.indices, minlength=len(self.hierarchy)).astype(np.int64)
