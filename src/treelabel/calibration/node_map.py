"""Documents with several paths: each node's probability is a rising function of its own output, made coherent."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from treelabel.calibration.fitting import STEPS, fit_monotone, rising
from treelabel.calibration.outputs import LEVELS, Outputs
from treelabel.core.compute import DoubleArray, FloatArray, IntArray
from treelabel.core.errors import TreelabelError
from treelabel.models.base import Training
from treelabel.models.linear.descent import ABSENT
from treelabel.models.schema import Array, Arrays
from treelabel.scores import Scores


@dataclass(frozen=True, eq=False)
class NodeMap:
    """One rising map for each level, from outputs to probabilities."""

    outputs: Outputs
    maps: DoubleArray

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, held: Training) -> "NodeMap":
        """Learn the maps from documents held out of training."""
        # Where nothing is known of a level, its outputs are never taken for true.
        maps = np.tile(np.concatenate([[-1.0, 1.0], np.zeros(STEPS + 1)]), (LEVELS + 1, 1))
        nodes, of_nodes, levels = _with_outputs(outputs)
        true = sparse.csc_array(held.closed)[:, nodes].toarray()
        for level in np.unique(levels):
            at = np.flatnonzero(levels == level)
            given = margins[:, of_nodes[at]]
            known = given > ABSENT
            if known.any():
                maps[level] = fit_monotone(given[known], true[:, at][known])
        return cls(outputs, maps)

    def arrays(self) -> Arrays:
        """What is learned, to save."""
        return {"maps": self.maps}

    @staticmethod
    def declared() -> dict[str, Array]:
        """Declare what `arrays` gives."""
        return {"maps": Array("float64", (str(LEVELS + 1), str(STEPS + 3)))}

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse maps without a range of margins, or to what is no probability."""
        maps = arrays["maps"]
        if (maps[:, 0] >= maps[:, 1]).any():
            raise TreelabelError("maps holds a smallest margin that is not below the largest")
        if not ((maps[:, 2:] >= 0) & (maps[:, 2:] <= 1)).all():
            raise TreelabelError("maps holds what is no probability")

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "NodeMap":
        """Take back what `arrays` gave."""
        return cls(outputs, arrays["maps"])

    def probabilities(self, margins: FloatArray) -> Any:
        """Turn outputs into the probabilities of all nodes."""
        h = self.outputs.hierarchy
        nodes, of_nodes, levels = self._places
        values = rising(margins, nodes, of_nodes, levels, self.maps, len(h))
        return Scores(h, values).coherent().values

    @cached_property
    def _places(self) -> tuple[IntArray, IntArray, IntArray]:
        return _with_outputs(self.outputs)


def _with_outputs(outputs: Outputs) -> tuple[IntArray, IntArray, IntArray]:
    """The nodes that have an output, their outputs, and their levels."""
    has = outputs.of_nodes >= 0
    nodes = outputs.nodes[has]
    return nodes, outputs.of_nodes[has], outputs.levels(nodes)
