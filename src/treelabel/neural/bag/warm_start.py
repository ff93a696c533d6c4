"""Going on from what a bag model has learned before."""

from dataclasses import dataclass

from treelabel.core.errors import TreelabelError
from treelabel.core.types import FloatArray
from treelabel.neural.bag.sgd import BagWeights
from treelabel.neural.objective import Objective
from treelabel.text.ngrams import NgramShape
from treelabel.text.tfidf import Tfidf


@dataclass(frozen=True, eq=False)
class WarmStart:
    """The objective, the n-grams and the vectors of an earlier fit."""

    objective: Objective
    tfidf: Tfidf
    inputs: FloatArray
    outputs: FloatArray

    def require_same(self, objective: Objective, shape: NgramShape) -> None:
        """Refuse to go on with another hierarchy, loss or shape of n-grams.

        Parameters
        ----------
        objective
            The objective of the fit that is to go on.
        shape
            Its n-grams.
        """
        known = self.objective
        objective.hierarchy.require_same(known.hierarchy.fingerprint, "what the model has learned before")
        before, now = ((one.name, *ngram_settings(of)) for one, of in ((known, self.tfidf.shape), (objective, shape)))
        if before != now:
            names = ("the loss", "ngram_range", "n_features")
            was, wanted = (
                ", ".join(f"{name} {value}" for name, value in zip(names, each, strict=True)) for each in (before, now)
            )
            raise TreelabelError(
                f"warm_start goes on with {was}, but now it is {wanted}; use the same, or warm_start=False"
            )

    def copy_to(self, weights: BagWeights) -> None:
        """Begin with the vectors that are known, and with those of the outputs if these are the same."""
        if weights.inputs.shape[1] != self.inputs.shape[1]:
            raise TreelabelError(
                f"warm_start goes on with vector_size {self.inputs.shape[1]}, but now it is {weights.inputs.shape[1]}"
            )
        weights.inputs[: len(self.inputs) - 1] = self.inputs[:-1]
        weights.inputs[-1] = self.inputs[-1]
        if weights.outputs.shape == self.outputs.shape:
            weights.outputs[:] = self.outputs


def ngram_settings(shape: NgramShape) -> tuple[tuple[int, int], int]:
    """Return a shape of n-grams as the settings ngram_range and n_features."""
    return (1, shape.lengths[1]), shape.n_features
