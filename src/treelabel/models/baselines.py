"""Models that know nothing of texts: what any other must beat."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from treelabel.core.array_schema import Array, Arrays, Schema
from treelabel.core.strings import Strings
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.settings import Seed
from treelabel.scores.score_matrix import Scores


@dataclass(eq=False, repr=False)
class Nothing(Model):
    """No text has any label: every score is 0. Where most texts have none, few metrics see that it knows nothing.

    >>> Nothing(Hierarchy.flat(["A", "B"])).fit(["a text"], [["A"]]).predict(["another"])
    [[]]
    """

    name = "nothing"
    exhaustive: ClassVar[bool] = False

    hierarchy: Hierarchy | None = None
    seed: Seed = 0

    @property
    def default_rule(self) -> str:
        """A threshold of 0.5, which no label reaches."""
        return "threshold"

    def _fit(self, train: Training) -> None:
        """There is nothing to learn."""

    def _score(self, texts: Strings) -> Scores:
        return Scores(self.hierarchy_, sparse.csr_array((len(texts), len(self.hierarchy_)), dtype=np.float32))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {}

    def _schema(self, values: dict[str, Any]) -> Schema:
        return Schema()

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        """There was nothing to save."""


@dataclass(eq=False, repr=False)
class MostFrequent(Model):
    """Every text has the labels of training in their training shares.

    >>> model = MostFrequent(Hierarchy.flat(["A", "B"])).fit(["a", "b", "c", "d"], ["A", "B", "B", "B"])
    >>> model.score(["another"]).dense().tolist(), model.predict(["another"]).tolist()
    ([[0.25, 0.75]], ['B'])
    """

    name = "most_frequent"
    takes_sample_weight = True

    hierarchy: Hierarchy | None = None
    seed: Seed = 0

    def _fit(self, train: Training) -> None:
        if train.weights is None:
            self.shares_ = (train.frequencies / len(train)).astype(np.float32)
        else:
            self.shares_ = np.minimum(train.closed.T @ train.weights / train.weights.sum(), 1).astype(np.float32)

    def _score(self, texts: Strings) -> Scores:
        return Scores(self.hierarchy_, np.tile(self.shares_, (len(texts), 1)))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"shares": self.shares_}

    def _schema(self, values: dict[str, Any]) -> Schema:
        shares = Array("float32", ("nodes",), 0, 1)
        return Schema({"shares": shares}, sizes={"nodes": len(self.hierarchy_)})

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.shares_ = arrays["shares"]
