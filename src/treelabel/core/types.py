"""Array types: the aliases that annotations use, and nothing that runs."""

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
# Scores have the precision they were given in.
ScoreArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]
