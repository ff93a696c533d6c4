"""Sums of probabilities: those of every level are the number of true labels, whatever makes nodes coherent."""

import numpy as np
import pytest

from treelabel import Hierarchy
from treelabel.calibration.contract import ABSENT, LEVELS, MarginCalibration, OutputSpace
from treelabel.calibration.isotonic import Isotonic
from treelabel.calibration.level_sums import fit_level_shifts, level_sums, shift_columns, shift_odds
from treelabel.calibration.path_softmax import PathSoftmax
from treelabel.calibration.siblings import SiblingSigmoid
from treelabel.core.types import FloatArray
from treelabel.hierarchy import LabelMatrix, label_matrix

TREE = Hierarchy.from_paths([f"{top} > {top}{low}" for top in "ABCD" for low in range(6)])
DAG = Hierarchy.from_edges(
    [(top, f"{top}{low}") for top in "ABCD" for low in range(6)]
    + [("A", "B0"), ("B", "C1"), ("C", "D2"), ("A", "D3")]
    + [(f"{top}0", f"{top}0{end}") for top in "ABCD" for end in "xy"]
)


def drawn(h: Hierarchy, documents: int = 600, seed: int = 0) -> tuple[OutputSpace, FloatArray, LabelMatrix]:
    """Draw documents with two leaves each and margins that tell little, so that many children look likely."""
    rng = np.random.default_rng(seed)
    leaves = np.flatnonzero(h.is_leaf).astype(np.int32)
    pairs = np.sort(np.array([rng.choice(leaves, 2, replace=False) for _ in range(documents)]), axis=1)
    labels = label_matrix(2 * np.arange(documents + 1), pairs.ravel().astype(np.int32), len(h))
    outputs = OutputSpace.of(h, labels, multiple_paths=True, shared=False)
    true = outputs.targets(labels).toarray()
    return outputs, (true + 0.8 * rng.normal(size=true.shape) - 1).astype(np.float32), labels


def sums_of(calibration: MarginCalibration, margins: FloatArray) -> list[float]:
    p, depth = calibration.probabilities(margins), calibration.outputs.hierarchy.depth
    return [float(p[:, depth == level].sum(dtype=np.float64)) for level in range(1, int(depth.max()) + 1)]


@pytest.mark.parametrize("kind", [Isotonic, SiblingSigmoid])
@pytest.mark.parametrize("h", [TREE, DAG], ids=["tree", "dag"])
def test_sums_of_levels_are_true(kind: type[MarginCalibration], h: Hierarchy) -> None:
    outputs, margins, labels = drawn(h)
    plain = kind(outputs).fit(margins, labels)
    matched = plain.match_sums(margins, labels)
    closed = h.closure(labels)
    true = [int((h.depth[closed.indices] == level).sum()) for level in range(1, h.max_depth + 1)]
    # The prior and the bounds of shifts leave some of it where conditional probabilities are nearly 1.
    assert sums_of(matched, margins) == pytest.approx(true, rel=0.005 if kind is Isotonic else 0.01)
    if h is DAG:
        assert max(abs(a / b - 1) for a, b in zip(sums_of(plain, margins), true, strict=True)) > 0.02
    p = matched.probabilities(margins)
    above = h.parent_idx >= 0
    assert (p[:, h.parent_idx[above]] >= p[:, h.edge_child[above]] - 1e-6).all()
    # What is matched already is left as it is.
    again = matched.match_sums(margins, labels)
    assert sums_of(again, margins) == pytest.approx(sums_of(matched, margins), rel=0.01)


def test_one_path_needs_no_shifts() -> None:
    outputs, margins, labels = drawn(TREE)
    plain = PathSoftmax(outputs)
    assert plain.match_sums(margins, labels) is plain


def test_a_shift_by_hand() -> None:
    """Two documents at p = 1/5 of which one is true: odds of 1/4 become 1, but for the prior."""
    h = Hierarchy.flat(["A"])
    labels = label_matrix([0, *np.arange(1, 501), *[500] * 500], np.zeros(500, np.int32), 1)
    outputs = OutputSpace.of(h, labels, multiple_paths=True)
    margins, p = np.zeros((1000, 1), np.float32), np.full((1000, 1), 0.2, np.float32)
    shifts = fit_level_shifts(lambda each: shift_columns(p, np.exp(each[[1]])), outputs, margins, labels)
    assert shifts[1] == pytest.approx(np.log(4), abs=0.02)
    assert not shifts[[0, *range(2, LEVELS + 1)]].any()


def test_few_documents_shift_little_and_unknown_labels_do_not_count() -> None:
    h = Hierarchy.flat(["A", "B"])
    labels = label_matrix([0, 2, 4], np.array([0, 1, 0, 1], np.int32), 2)
    outputs = OutputSpace.of(h, labels, multiple_paths=True, shared=False)
    p = np.full((2, 2), 0.5, np.float32)

    def shift(margins: FloatArray) -> float:
        fitted = fit_level_shifts(lambda each: shift_columns(p, np.exp(each[[1, 1]])), outputs, margins, labels)
        return float(fitted[1])

    known = np.zeros((2, 2), np.float32)
    assert 0 < shift(known) < 2
    half_known = known.copy()
    half_known[:, 1] = ABSENT
    assert 0 < shift(half_known) < shift(known)
    assert shift(np.full((2, 2), ABSENT, np.float32)) == 0


def test_sums_are_those_of_loops() -> None:
    rng = np.random.default_rng(0)
    p, known = rng.random((5, 4)).astype(np.float32), rng.random((5, 3)) < 0.5
    nodes, levels = np.array([0, 2, 3], np.int32), np.array([1, 1, 2], np.int32)
    sums, slopes = level_sums(p, known, nodes, levels, 3)
    for level in range(3):
        chosen = [float(p[r, nodes[c]]) for r in range(5) for c in range(3) if known[r, c] and levels[c] == level]
        assert sums[level] == pytest.approx(sum(chosen))
        assert slopes[level] == pytest.approx(sum(value * (1 - value) for value in chosen))


def test_odds_are_multiplied() -> None:
    p = np.random.default_rng(0).random((3, 4)).astype(np.float32)
    shifted = shift_columns(p, np.array([1.0, 2.0, 0.5, 4.0]))
    assert shifted / (1 - shifted) == pytest.approx(p / (1 - p) * np.array([1.0, 2.0, 0.5, 4.0]), rel=1e-4)
    assert shift_odds(p.astype(np.float64), np.log([1.0, 2.0, 0.5, 4.0])) == pytest.approx(shifted, abs=1e-6)
