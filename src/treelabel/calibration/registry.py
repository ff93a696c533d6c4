"""The registry of calibrations: which map turns which evidence into coherent probabilities."""

from dataclasses import dataclass
from typing import Literal, cast

from treelabel.calibration.candidates import CandidateCalibration, CandidateIsotonic, CandidateSoftmax
from treelabel.calibration.contract import Calibration, MarginCalibration
from treelabel.calibration.isotonic import Isotonic
from treelabel.calibration.path_softmax import PathSoftmax
from treelabel.calibration.pools import CandidatePool, NodePool, PathPool, Pool
from treelabel.calibration.siblings import SiblingSigmoid, SiblingSoftmax
from treelabel.core.registry import Registry

# With more nodes and several paths, a pool only looks at the largest scores of each model.
MANY_LABELS = 2_000


@dataclass(frozen=True)
class CalibrationRow:
    """A row of CALIBRATIONS: its name and help, the evidence that it takes, and its class."""

    name: str
    help: str
    evidence: Literal["margins", "candidates", "models"]
    maker: type[Calibration]


_ROWS = (
    CalibrationRow(
        "path_softmax", "one path: a softmax over terminal nodes, summed up to nodes", "margins", PathSoftmax
    ),
    CalibrationRow("isotonic", "several paths: isotonic regression by level, made coherent", "margins", Isotonic),
    CalibrationRow(
        "sibling_softmax",
        "softmax over siblings with a temperature per level, multiplied along paths",
        "margins",
        SiblingSoftmax,
    ),
    CalibrationRow("sibling_sigmoid", "Platt scaling per level, multiplied along paths", "margins", SiblingSigmoid),
    CalibrationRow(
        "candidate_softmax", "one path: powers of evidence and a prior over paths", "candidates", CandidateSoftmax
    ),
    CalibrationRow(
        "candidate_isotonic", "several paths: isotonic regression by level", "candidates", CandidateIsotonic
    ),
    CalibrationRow("path_pool", "one path: a log-linear pool of models over terminal nodes", "models", PathPool),
    CalibrationRow("node_pool", "several paths: a logistic regression of models by level", "models", NodePool),
    CalibrationRow(
        "candidate_pool", "several of very many labels: only what some model names", "models", CandidatePool
    ),
)

CALIBRATIONS: Registry[CalibrationRow] = Registry("calibration", _ROWS)


def margin_calibration(name: str) -> type[MarginCalibration]:
    """Return the calibration of margins with this name."""
    return cast("type[MarginCalibration]", CALIBRATIONS[name].maker)


def calibration_for(multiple_paths: bool) -> type[MarginCalibration]:
    """Return the calibration of independent margins that suits documents with one path, or with several."""
    return margin_calibration("isotonic" if multiple_paths else "path_softmax")


def candidate_calibration(multiple_paths: bool) -> type[CandidateCalibration]:
    """Return the calibration of candidates that suits documents with one path, or with several."""
    return CandidateIsotonic if multiple_paths else CandidateSoftmax


def pool_calibration(multiple_paths: bool, nodes: int) -> type[Pool]:
    """Return the pool of models that suits documents with one path, or with several of so many nodes."""
    if not multiple_paths:
        return PathPool
    return CandidatePool if nodes > MANY_LABELS else NodePool
