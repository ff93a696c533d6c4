"""Which epoch was best: the log loss of documents that training does not see."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from treelabel.core.compute import LongArray
from treelabel.models.base import Training
from treelabel.models.linear.heads import log_loss
from treelabel.models.neural.network import Network
from treelabel.models.neural.readers import Reader
from treelabel.models.neural.trainer import Inputs, logits_of
from treelabel.models.objective import Objective

# So many documents x nodes at most, and so many documents at least, are looked at.
MOST_JUDGED = 300_000
FEWEST_JUDGED = 200


@dataclass(frozen=True, eq=False)
class Judged:
    """Documents that tell how good a network is, by the log loss of their labels at the best slope of its logits."""

    data: Training
    inputs: Inputs
    batches: list[LongArray]
    objective: Objective

    @classmethod
    def of(cls, data: Training | None, reader: Reader, objective: Objective, seed: int) -> "Judged | None":
        """Draw so many documents that the loss can judge; without any there is no judge."""
        rows = np.zeros(0, np.int64) if data is None else objective.truth(data, drop=True)[0]
        if data is None or not len(rows):
            return None
        most = max(FEWEST_JUDGED, MOST_JUDGED // max(1, len(data.hierarchy)))
        # By chance: documents are often sorted by their labels.
        shown = data[np.sort(np.random.default_rng(seed).permutation(rows)[:most])]
        if not objective.exhaustive:
            # Sigmoids are judged at all nodes: one node alone would be best at a probability of 1 for everything.
            shown = replace(shown, regime="many")
        inputs = reader.inputs(shown.texts, data.progress)
        return cls(shown, inputs, reader.batches(inputs), objective)

    def __call__(self, network: Network) -> tuple[float, float]:
        """Give the loss, and the slope."""
        logits = logits_of(network, self.batches, self.inputs, len(self.objective.loss.outputs))
        if not np.isfinite(logits).all():
            return np.inf, 1.0

        def loss(log_slope: float) -> float:
            return log_loss(self.objective.scores(np.exp(log_slope) * logits).values, self.data)

        found = optimize.minimize_scalar(loss, bounds=(-3.0, 1.5), method="bounded", options={"xatol": 0.05})
        return float(found.fun), float(np.exp(found.x))
