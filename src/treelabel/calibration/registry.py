"""The registry of calibrations."""

from dataclasses import dataclass

from treelabel.calibration.base import Calibration
from treelabel.calibration.isotonic import Isotonic
from treelabel.calibration.path_softmax import PathSoftmax
from treelabel.calibration.siblings import SiblingSigmoid, SiblingSoftmax
from treelabel.core.registry import Registry


@dataclass(frozen=True)
class Row:
    """A row of CALIBRATIONS."""

    name: str
    help: str
    maker: type[Calibration]


_ROWS = (
    Row("path_softmax", "documents with one path: a softmax over terminal nodes, summed up to nodes", PathSoftmax),
    Row("isotonic", "documents with several paths: isotonic regression by level, made coherent", Isotonic),
    Row(
        "sibling_softmax",
        "softmax over siblings with a temperature per level, multiplied along paths",
        SiblingSoftmax,
    ),
    Row("sibling_sigmoid", "Platt scaling per level, multiplied along paths", SiblingSigmoid),
)

CALIBRATIONS: Registry[Row] = Registry("calibration", _ROWS)


def calibration_for(multiple_paths: bool) -> type[Calibration]:
    """Return the calibration of independent margins that suits documents with one path, or with several."""
    return CALIBRATIONS["isotonic" if multiple_paths else "path_softmax"].maker
