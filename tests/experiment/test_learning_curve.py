"""Learning curves: the fit of a power law, what twice as many documents bring, and the command."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import Run
from treelabel import Dataset, Hierarchy, TreelabelError, load_sample, write
from treelabel.experiment.learning_curve import EXPONENTS, LearningCurve, fit_power_law, learning_curve

SIZES = [100, 200, 400, 800]


@pytest.mark.parametrize(("a", "b", "c"), [(0.1, 2.0, 0.5), (0.0, 1.5, 0.25), (0.3, 5.0, 1.0)])
def test_a_power_law_is_found_again(a: float, b: float, c: float) -> None:
    found = fit_power_law(SIZES, a + b * np.array(SIZES, float) ** -c)
    assert found == pytest.approx((a, b, c), abs=1e-6)


def test_no_grid_point_fits_better() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        errors = np.sort(rng.random(4))[::-1]
        a, b, c = fit_power_law(SIZES, errors)
        assert min(a, b, c) >= 0
        lost = np.sum((a + b * np.array(SIZES, float) ** -c - errors) ** 2)
        for other_c in (0.05, 0.2, 0.5, 1.0, 2.0):
            for other_a in np.linspace(0, 1, 21):
                for other_b in np.linspace(0, 5, 21):
                    other = np.sum((other_a + other_b * np.array(SIZES, float) ** -other_c - errors) ** 2)
                    assert lost <= other + 1e-9


def test_of_curves_that_fit_equally_well_the_one_that_promises_least_is_taken() -> None:
    # Two points lie on a curve of every exponent up to 1, from which on the floor is above 0.
    a, b, c = fit_power_law([100, 200], np.array([0.4, 0.2]))
    assert a + b * np.array([100.0, 200.0]) ** -c == pytest.approx([0.4, 0.2])
    assert c == EXPONENTS[-1]


def test_two_points_are_no_curve() -> None:
    data = load_sample()
    found = learning_curve(data[np.arange(0, len(data), 150)], "most_frequent", resamples=20)
    assert len(found.points) == 2
    assert math.isnan(found.doubled)
    assert str(found).splitlines()[4].split() == [
        *f"{2 * found.points[-1].documents} not extrapolated: two points do not show how a curve bends".split()
    ]
    assert found.to_json()["doubled"] == {
        "documents": 2 * found.points[-1].documents,
        "value": None,
        "gain": {"value": None, "low": None, "high": None},
    }


def test_what_does_not_learn_gains_nothing() -> None:
    data = load_sample()
    found = learning_curve(data[np.arange(0, len(data), 40)], "nothing", resamples=20)
    assert found.gain.value == 0
    assert found.doubled == found.points[-1].interval.value


def test_an_error_that_does_not_fall_promises_nothing() -> None:
    _, b, _ = fit_power_law(SIZES, np.array([0.2, 0.2, 0.25, 0.3]))
    assert b == 0


@pytest.fixture(scope="module")
def curve() -> LearningCurve:
    data = load_sample()
    return learning_curve(data[np.arange(0, len(data), 4)], metric="leaf_accuracy", resamples=100, ngram_range=(1, 1))


@pytest.mark.slow
def test_more_documents_are_better_and_parts_are_named(curve: LearningCurve) -> None:
    values = [point.interval.value for point in curve.points]
    assert [point.documents for point in curve.points] == [219, 438, 877, 1754]
    assert values[-1] > values[0]
    assert curve.points[0].interval.low < values[0] < curve.points[0].interval.high
    assert curve.gain.low <= curve.gain.value <= curve.gain.high
    assert curve.gain.value > 0
    assert curve.doubled == pytest.approx(values[-1] + curve.gain.value)
    assert all(each.gain > 0 and each.documents >= 5 for each in curve.labels)
    weights = [each.gain * each.documents for each in curve.labels]
    assert weights == sorted(weights, reverse=True)
    assert "    3,508  " in str(curve)
    assert curve.to_json()["doubled"]["documents"] == 3508


def test_what_is_no_curve_is_refused() -> None:
    few = Dataset.of(["a"] * 10, [["x"], ["y"]] * 5, Hierarchy.flat("xy"))
    for documents, told in ((10, "10 documents are"), (1, "1 document is")):
        with pytest.raises(TreelabelError, match=f"{told} too few for a curve; expected 50 or more"):
            learning_curve(few[np.arange(documents)])
    with pytest.raises(TreelabelError, match=r"80 documents are left to learn, of which fewer than two of the parts"):
        learning_curve(Dataset.of(["a"] * 100, [["x"], ["y"]] * 50, Hierarchy.flat("xy")), shares=(0.1, 1.0))
    for name in ("micro_f1", "hamming", "icm"):
        with pytest.raises(TreelabelError, match=f"{name} is no mean of shares"):
            learning_curve(few, metric=name)
    with pytest.raises(TreelabelError, match=r"shares = \[1.0, 0.5\], expected"):
        learning_curve(few, shares=(1.0, 0.5))


@pytest.mark.slow
def test_the_command_prints_the_curve(tmp_path: Path, run: Run) -> None:
    data = load_sample()
    write(data[np.arange(0, len(data), 20)], tmp_path / "train.csv")
    options = ("curve", tmp_path / "train.csv", "--set", "ngram_range=(1,1)", "--metric", "leaf_accuracy")
    stored = run(*options, "--json").json
    assert [point["documents"] for point in stored["points"]] == [44, 88, 176, 351]
    assert stored["doubled"]["documents"] == 702
    told = run(*options, "--labels-shown", "0").out
    assert told.startswith("leaf_accuracy of 88 held-out documents")
    assert "expected: +" in told
    assert "labels that gained" not in told
