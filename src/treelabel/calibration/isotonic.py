"""Documents with several paths: one isotonic regression per level, made coherent."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from treelabel.calibration.base import Calibration
from treelabel.calibration.outputs import ABSENT, LEVELS, Outputs
from treelabel.core.compute import BoolArray, DoubleArray, FloatArray, IntArray, kernel
from treelabel.core.errors import TreelabelError
from treelabel.core.schema import Array, Arrays
from treelabel.hierarchy import LabelMatrix
from treelabel.scores import Scores

# The range of margins is divided into so many steps: no probability changes visibly.
STEPS = 400


@dataclass(frozen=True, eq=False)
class Isotonic(Calibration):
    """Each node's probability is an isotonic function of its own margin, one function per level.

    `maps` has a row per level: the smallest and the largest margin, and the probabilities at equal steps between them.
    """

    outputs: Outputs
    maps: DoubleArray

    @classmethod
    def fit(cls, outputs: Outputs, margins: FloatArray, labels: LabelMatrix) -> "Isotonic":
        """Fit the maps; see `Calibration.fit`."""
        # Where nothing is known of a level, its outputs are never taken for true.
        maps = np.tile(np.concatenate([[-1.0, 1.0], np.zeros(STEPS + 1)]), (LEVELS + 1, 1))
        nodes, own, levels = _with_outputs(outputs)
        true = sparse.csc_array(outputs.hierarchy.closure(labels))[:, nodes].toarray()
        for level in np.unique(levels):
            at = np.flatnonzero(levels == level)
            given = margins[:, own[at]]
            known = given > ABSENT
            if known.any():
                maps[level] = fit_isotonic(given[known], true[:, at][known])
        return cls(outputs, maps)

    def scaled(self, factor: float) -> "Isotonic":
        """Return the same maps over a range that is narrower by `factor`."""
        maps = self.maps.copy()
        maps[:, :2] /= factor
        return Isotonic(self.outputs, maps)

    def arrays(self) -> Arrays:
        """Return the fitted parameters, to save."""
        return {"maps": self.maps}

    @staticmethod
    def schema() -> dict[str, Array]:
        """Declare what `arrays` returns."""
        return {"maps": Array("float64", (str(LEVELS + 1), str(STEPS + 3)))}

    @staticmethod
    def check(outputs: Outputs, arrays: Arrays) -> None:
        """Refuse maps without a range of margins, or with values that are no probabilities."""
        maps = arrays["maps"]
        if (maps[:, 0] >= maps[:, 1]).any():
            raise TreelabelError("maps holds a smallest margin that is not below the largest")
        if not ((maps[:, 2:] >= 0) & (maps[:, 2:] <= 1)).all():
            raise TreelabelError("maps holds what is no probability")

    @classmethod
    def of(cls, outputs: Outputs, arrays: Arrays) -> "Isotonic":
        """Make a calibration of what `arrays` returned."""
        return cls(outputs, arrays["maps"])

    def _node_probabilities(self, margins: FloatArray) -> FloatArray:
        h = self.outputs.hierarchy
        nodes, own, levels = self._places
        values = apply_isotonic(margins, nodes, own, levels, self.maps, len(h))
        return Scores(h, values).coherent().dense()

    @cached_property
    def _places(self) -> tuple[IntArray, IntArray, IntArray]:
        return _with_outputs(self.outputs)


def _with_outputs(outputs: Outputs) -> tuple[IntArray, IntArray, IntArray]:
    """Return the nodes that have an output, their outputs, and their levels."""
    has = outputs.node_outputs >= 0
    nodes = outputs.nodes[has]
    return nodes, outputs.node_outputs[has], outputs.levels(nodes)


def fit_isotonic(margins: FloatArray, true: BoolArray) -> DoubleArray:
    """Fit the increasing map from margins to probabilities with the least squared error (isotonic regression).

    Parameters
    ----------
    margins : array of shape (n,)
        Margins.
    true : array of shape (n,)
        Whether each is one of a true label.

    Returns
    -------
    array of shape (STEPS + 3,)
        The smallest and the largest margin, and the probabilities at equal steps between them.
    """
    from sklearn.isotonic import isotonic_regression

    low, high = float(margins.min()), float(margins.max()) + 1e-6
    place = ((margins - low) / (high - low) * STEPS).astype(np.int64)
    total = np.bincount(place, minlength=STEPS + 1).astype(np.float64)
    right = np.bincount(place[true], minlength=STEPS + 1)
    seen = np.flatnonzero(total)
    # Half a document of each kind in all keeps both ends away from 0 and 1, which nothing can be sure of.
    prior = 0.5 / len(margins)
    found = isotonic_regression(
        (right[seen] + prior * total[seen]) / (total[seen] * (1 + 2 * prior)), sample_weight=total[seen]
    )
    fitted: DoubleArray = np.concatenate([[low, high], np.interp(np.arange(STEPS + 1), seen, found)])
    return fitted


@kernel
def apply_isotonic(
    margins: FloatArray, nodes: IntArray, outputs: IntArray, levels: IntArray, maps: DoubleArray, count: int
) -> FloatArray:
    """Map each node's margin by the map of its level, which is linear between its steps: documents x nodes."""
    found = np.zeros((len(margins), count), np.float32)
    last = maps.shape[1] - 3
    for row in range(len(margins)):
        for at in range(len(nodes)):
            fitted = maps[levels[at]]
            place = (margins[row, outputs[at]] - fitted[0]) / (fitted[1] - fitted[0]) * last - 0.5
            place = min(max(place, 0.0), float(last))
            low = min(int(place), last - 1)
            part = place - low
            found[row, nodes[at]] = (1 - part) * fitted[2 + low] + part * fitted[3 + low]
    return found
