"""The contract of an encoder: anything that maps texts to a dense matrix."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt


@runtime_checkable
class Encoder(Protocol):
    """Anything that maps texts to a dense matrix.

    `name` finds the encoder again when a saved model is loaded. `fingerprint` identifies everything that its numbers
    depend on: weights, length, pooling. Two encoders with the same fingerprint return the same rows.
    """

    name: str
    fingerprint: str

    def transform(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Return one row of floats per text."""
