"""Calibrations: what they have in common, temperatures, and that the largest probabilities are those of the whole."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import log_softmax

from treelabel import Scores
from treelabel.calibration import base
from treelabel.calibration.base import Calibration
from treelabel.calibration.outputs import ABSENT, Outputs
from treelabel.calibration.path_softmax import GROWTH
from treelabel.calibration.registry import CALIBRATIONS, calibration_for
from treelabel.calibration.temperature import fit_softmax_temperature, fit_temperature
from treelabel.core.compute import FloatArray
from treelabel.core.schema import Schema
from treelabel.core.sparse_product import Weights
from treelabel.hierarchy import LabelMatrix
from treelabel.models.base import Training, training_of
from treelabel.models.check import CASES

# Which kinds of labels each calibration is for.
KINDS = {
    "path_softmax": ("leaf", "path", "DAG"),
    "isotonic": ("many", "DAG"),
    "sibling_softmax": ("leaf", "path"),
    "sibling_sigmoid": ("leaf", "path", "many", "DAG"),
}
PAIRS = [(name, kind) for name in CALIBRATIONS for kind in KINDS[name]]


def documents(kind: str) -> Training:
    case = CASES[kind]
    return training_of(case.texts, case.labels, case.hierarchy)


def margins_of(outputs: Outputs, labels: LabelMatrix) -> FloatArray:
    """Margins that know the truth, with noise."""
    true = outputs.targets(labels).toarray()
    noise = np.random.default_rng(0).normal(size=true.shape)
    return np.asarray(2.0 * true - 1 + 0.7 * noise, np.float32)


def fitted(name: str, kind: str) -> tuple[Calibration, FloatArray]:
    train = documents(kind)
    shared = not name.startswith("sibling")
    outputs = Outputs.of(train.hierarchy, train.labels, multiple_paths=train.regime == "multi_path", shared=shared)
    margins = margins_of(outputs, train.labels)
    return CALIBRATIONS[name].maker.fit(outputs, margins, train.labels), margins


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_probabilities_are_coherent_and_better_than_none(name: str, kind: str) -> None:
    calibration, margins = fitted(name, kind)
    train = documents(kind)
    p = calibration.probabilities(margins)
    assert p.shape == (len(train), len(train.hierarchy))
    assert Scores(train.hierarchy, p).is_coherent()
    true = train.closed.toarray().astype(bool)
    squares = ((p - true) ** 2).mean()
    assert squares < ((true.mean(axis=0) - true) ** 2).mean()


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_what_is_saved_is_declared_and_gives_the_same(name: str, kind: str) -> None:
    calibration, margins = fitted(name, kind)
    kind_of, arrays = type(calibration), dict(calibration.arrays())
    Schema(kind_of.schema()).check(arrays)
    kind_of.check(calibration.outputs, arrays)
    again = kind_of.of(calibration.outputs, arrays)
    assert np.array_equal(again.probabilities(margins), calibration.probabilities(margins))


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_more_documents_never_make_a_calibration_surer(name: str, kind: str) -> None:
    calibration, margins = fitted(name, kind)
    p = calibration.probabilities(margins)
    assert np.array_equal(calibration.for_more_documents(1.0).probabilities(margins), p)
    fewer = calibration.for_more_documents(0.5).probabilities(margins)
    assert fewer.max(axis=1).mean() <= p.max(axis=1).mean() + 1e-6
    if name == "path_softmax":
        assert fewer == pytest.approx(calibration.probabilities(np.float32(0.5**GROWTH) * margins), abs=1e-4)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@pytest.mark.parametrize("top", [1, 2, 100])
def test_the_largest_are_those_of_the_whole(name: str, kind: str, top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "THREAD_SCORES", 1)
    calibration, margins = fitted(name, kind)
    h = calibration.outputs.hierarchy
    whole = Scores(h, calibration.probabilities(margins)).top_k(top).csr()
    # Documents whose features are their margins: weights of 1 hand these on.
    width = margins.shape[1]
    weights = Weights(sparse.eye_array(width, dtype=np.float32, format="csr"), np.zeros(width, np.float32))
    features = sparse.csr_array(margins)
    for found in (calibration.probabilities(margins, top), calibration.probabilities_of(features, weights, top)):
        assert sparse.issparse(found)
        assert np.array_equal(found.indptr, whole.indptr)
        assert np.array_equal(found.indices, whole.indices)
        assert found.data == pytest.approx(whole.data, abs=1e-6)
    assert calibration.probabilities_of(features, weights) == pytest.approx(
        calibration.probabilities(margins), abs=1e-6
    )


def test_no_documents_have_no_probabilities() -> None:
    for name, kind in PAIRS:
        calibration, margins = fitted(name, kind)
        assert calibration.probabilities(margins[:0]).shape == (0, len(calibration.outputs.hierarchy))
        assert calibration.probabilities(margins[:0], 3).shape == (0, len(calibration.outputs.hierarchy))


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_outputs_that_have_learned_nothing_are_left_out(name: str, kind: str) -> None:
    calibration, margins = fitted(name, kind)
    margins[:, 0] = ABSENT
    again = type(calibration).fit(calibration.outputs, margins, documents(kind).labels)
    assert np.isfinite(again.probabilities(margins)).all()


def test_the_calibration_that_suits_the_labels() -> None:
    assert calibration_for(multiple_paths=True) is CALIBRATIONS["isotonic"].maker
    assert calibration_for(multiple_paths=False) is CALIBRATIONS["path_softmax"].maker
    assert all(row.help for row in CALIBRATIONS.values())


# Temperature


def test_a_temperature_is_the_best_there_is() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3000, 5)).astype(np.float32)
    p = np.exp(log_softmax(2.5 * logits, axis=1))
    true = (p.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    found = fit_softmax_temperature(logits, true)

    def loss(inverse: float) -> float:
        return -float(log_softmax(inverse * logits.astype(float), axis=1)[np.arange(3000), true].mean())

    assert found == pytest.approx(2.5, abs=0.2)
    assert loss(found) <= min(loss(inverse) for inverse in np.linspace(0.1, 6, 200)) + 1e-6


def test_outputs_that_do_not_exist_count_for_nothing() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 3)).astype(np.float32)
    true = rng.integers(0, 3, 200)
    wider = np.concatenate([logits, np.full((200, 2), -np.inf, np.float32)], axis=1)
    assert fit_softmax_temperature(wider, true) == pytest.approx(fit_softmax_temperature(logits, true))


def test_a_temperature_keeps_to_its_bounds() -> None:
    asked: list[Any] = []

    def loss(inverse: float) -> float:
        asked.append(inverse)
        return inverse

    found = fit_temperature(loss, bounds=(-1.0, 1.5), tolerance=0.01)
    assert found.inverse == pytest.approx(np.exp(-1.0), rel=0.05)
    assert found.loss == pytest.approx(found.inverse)
    assert min(asked) >= np.exp(-1.0)
    assert max(asked) <= np.exp(1.5)
