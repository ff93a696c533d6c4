"""Calibrations: what they have in common, temperatures, and that the largest probabilities are those of the whole."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import log_softmax

from treelabel import Hierarchy, Scores
from treelabel.calibration import contract, isotonic
from treelabel.calibration import path_kernels as kernels
from treelabel.calibration.contract import ABSENT, LEVELS, MarginCalibration, OutputSpace
from treelabel.calibration.isotonic import Isotonic, apply_isotonic, competes, fit_isotonic, margin_calibration
from treelabel.calibration.likelihood import (
    fit_beta,
    fit_mixture_weight,
    fit_softmax,
    fit_softmax_temperature,
    fit_temperature,
)
from treelabel.calibration.path_softmax import PathSoftmax, possible_terminals
from treelabel.calibration.siblings import SiblingSigmoid, SiblingSoftmax
from treelabel.core.array_schema import Schema
from treelabel.core.sparse_product import SparseWeights, known_margins
from treelabel.core.types import FloatArray
from treelabel.hierarchy import LabelMatrix, label_matrix
from treelabel.hierarchy.label_ids import encode
from treelabel.models.check import CASES
from treelabel.models.model_inputs import training_of
from treelabel.selection.training import Training

# Which kinds of labels each calibration is for.
KINDS = {
    "path_softmax": ("leaf", "path", "DAG"),
    "isotonic": ("many", "DAG"),
    "sibling_softmax": ("leaf", "path"),
    "sibling_sigmoid": ("leaf", "path", "many", "DAG"),
}
MAKERS: dict[str, type[MarginCalibration]] = {
    "path_softmax": PathSoftmax,
    "isotonic": Isotonic,
    "sibling_softmax": SiblingSoftmax,
    "sibling_sigmoid": SiblingSigmoid,
}
SMALL = Hierarchy.from_paths(["A > A1", "A > A2", "B > B1", "B > B2"])
PAIRS = [(name, kind) for name, kinds in KINDS.items() for kind in kinds]


def documents(kind: str) -> Training:
    case = CASES[kind]
    return training_of(case.texts, case.labels, case.hierarchy)


def margins_of(outputs: OutputSpace, labels: LabelMatrix) -> FloatArray:
    """Margins that know the truth, with noise."""
    true = outputs.targets(labels).toarray()
    noise = np.random.default_rng(0).normal(size=true.shape)
    return np.asarray(2.0 * true - 1 + 0.7 * noise, np.float32)


def fitted(name: str, kind: str) -> tuple[MarginCalibration, FloatArray]:
    train = documents(kind)
    shared = not name.startswith("sibling")
    outputs = OutputSpace.of(train.hierarchy, train.labels, multiple_paths=train.regime == "multi_path", shared=shared)
    margins = margins_of(outputs, train.labels)
    return MAKERS[name](outputs).fit(margins, train.labels), margins


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_probabilities_are_coherent_and_better_than_none(name: str, kind: str) -> None:
    calibration, margins = fitted(name, kind)
    train = documents(kind)
    p = calibration.probabilities(margins)
    assert p.shape == (len(train), len(train.hierarchy))
    assert Scores(train.hierarchy, p).is_coherent()
    true = train.closed_labels.toarray().astype(bool)
    squares = ((p - true) ** 2).mean()
    assert squares < ((true.mean(axis=0) - true) ** 2).mean()


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_what_is_saved_is_declared_and_gives_the_same(name: str, kind: str) -> None:
    calibration, margins = fitted(name, kind)
    arrays, neutral = dict(calibration.arrays()), type(calibration)(calibration.outputs)
    Schema(neutral.parameters).check(arrays)
    neutral.check(arrays)
    again = neutral.restore(arrays)
    assert np.array_equal(again.probabilities(margins), calibration.probabilities(margins))


@pytest.mark.parametrize(("name", "kind"), PAIRS)
@pytest.mark.parametrize("top", [1, 2, 100])
def test_the_largest_are_those_of_the_whole(name: str, kind: str, top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "THREAD_SCORES", 1)
    calibration, margins = fitted(name, kind)
    h = calibration.outputs.hierarchy
    whole = Scores(h, calibration.probabilities(margins)).top_k(top).csr()
    # Documents whose features are their margins: weights of 1 hand these on.
    width = margins.shape[1]
    weights = SparseWeights(sparse.eye_array(width, dtype=np.float32, format="csr"), np.zeros(width, np.float32))
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
    again = type(calibration)(calibration.outputs).fit(margins, documents(kind).labels)
    assert np.isfinite(again.probabilities(margins)).all()


def test_the_calibration_that_suits_the_labels() -> None:
    assert margin_calibration(multiple_paths=True) is Isotonic
    assert margin_calibration(multiple_paths=False) is PathSoftmax


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


def test_beta_calibration_finds_the_bend_and_little_data_change_little() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, 20_000)
    odds = 0.5 * np.log(p) - 0.8 * np.log1p(-p) - 0.3
    true = rng.random(len(p)) < 1 / (1 + np.exp(-odds))
    assert fit_beta(p, true) == pytest.approx((0.5, 0.8, -0.3), abs=0.06)
    assert fit_beta(p[:3], true[:3]) == pytest.approx((1, 1, 0), abs=0.3)
    assert fit_beta(p[:0], true[:0]) == (1, 1, 0)


@pytest.mark.parametrize("kind", KINDS["path_softmax"])
@pytest.mark.parametrize("beta", [(0.3, 0.2, -1.0), (2.0, 3.0, 1.0), (0.0, 0.0, -4.0)])
def test_the_likeliest_terminal_is_calibrated_and_stays_the_likeliest(kind: str, beta: tuple[float, ...]) -> None:
    calibration, margins = fitted("path_softmax", kind)
    assert isinstance(calibration, PathSoftmax)
    h, terminals = calibration.outputs.hierarchy, calibration.outputs.terminals
    # Without the uniform distribution, terminals are all that there is.
    plain = replace(calibration, uniform_weights=np.zeros(LEVELS + 1), beta=np.array([1.0, 1.0, 0.0]))
    plain = replace(plain, level_weights=np.eye(LEVELS + 1)[0], mixture=np.array([1.0, 0.2, 0.3]))
    bent = replace(plain, beta=np.array(beta))
    paths = calibration.outputs.paths.toarray().astype(np.float64)
    before, after = (_of_terminals(each, margins) for each in (plain, bent))
    rows, best = np.arange(len(before)), before.argmax(axis=1)
    own, others = before[rows, best], np.sort(before, axis=1)[:, -2]
    expected = 1 / (1 + np.exp(-(beta[0] * np.log(own) - beta[1] * np.log1p(-own) + beta[2])))
    expected = np.maximum(expected, others / (1 - own + others))
    assert after.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert after[rows, best] == pytest.approx(expected, rel=1e-3)
    assert np.array_equal(after.argmax(axis=1), best)
    after[rows, best] = before[rows, best] = 0
    assert after == pytest.approx(before * ((1 - expected) / (1 - own))[:, None], abs=1e-4)
    p = bent.probabilities(margins)
    assert Scores(h, p).is_coherent()
    after[rows, best] = expected
    assert p == pytest.approx(np.minimum(after @ paths, 1), abs=1e-4)
    assert len(terminals) == after.shape[1]


def _of_terminals(calibration: PathSoftmax, margins: FloatArray) -> Any:
    """Score terminals alone, as is done where there are very many nodes."""
    found = np.empty((len(margins), len(calibration.outputs.terminals)), np.float32)
    how = calibration._sums._replace(terminals=np.zeros(0, np.int32))
    kernels.score_paths(*known_margins(margins), calibration._softmax, how, 0, len(margins), found)
    return found.astype(np.float64)


def test_the_best_leaf_is_as_sure_as_it_is_right_where_likelihood_asks_for_something_else() -> None:
    rng = np.random.default_rng(0)
    h = Hierarchy.from_paths([f"{top} > {top}{low}" for top in "ABC" for low in range(4)])
    ends = np.flatnonzero(h.is_leaf).astype(np.int32)
    labels = label_matrix(np.arange(4001), ends[rng.integers(0, len(ends), 4000)], len(h))
    outputs = OutputSpace.of(h, labels)
    true = outputs.targets(labels).toarray()
    # Most documents are easy, and some are of a label that their margins speak against.
    wrong = rng.random(4000) < 0.07
    said = np.where(wrong[:, None], rng.permutation(true), true)
    margins = (2.0 * said - 1 + 0.3 * rng.normal(size=said.shape)).astype(np.float32)
    p = PathSoftmax(outputs).fit(margins, labels).probabilities(margins)[:, ends]
    right = labels.toarray()[:, ends][np.arange(4000), p.argmax(axis=1)]
    sure = p.max(axis=1)
    assert sure.mean() == pytest.approx(right.mean(), abs=0.01)
    for some in np.array_split(np.argsort(sure), 4):
        assert sure[some].mean() == pytest.approx(right[some].mean(), abs=0.03)


def test_paths_compete_where_there_are_several_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    h = Hierarchy.flat(["a", "b", "c"])
    one, two = (OutputSpace.of(h, label_matrix(np.arange(count + 1), np.arange(count), 3)) for count in (1, 2))
    assert (competes(one), competes(two)) == (False, True)
    monkeypatch.setattr(isotonic, "MANY_NODES", 3)
    assert competes(two)
    monkeypatch.setattr(isotonic, "MANY_NODES", 2)
    assert not competes(two)


def test_what_is_certain_stays_certain() -> None:
    h = Hierarchy.flat(["only", "other"])
    outputs = OutputSpace.of(h, label_matrix([0, 1], [0], 2))
    labels = label_matrix(np.arange(101), np.zeros(100, np.int32), 2)
    margins = np.ones((100, 1), np.float32)
    assert (PathSoftmax(outputs).fit(margins, labels).probabilities(margins)[:, 0] > 0.99).all()
    outputs = OutputSpace.of(h, label_matrix([0, 1, 2], [0, 1], 2))
    plain = PathSoftmax(outputs, np.eye(LEVELS + 1)[0], np.array([1.0, 1.0, 0.0]), np.zeros(LEVELS + 1))
    margins = np.array([[100.0, 0], [16, 0], [12, 0], [8, 0], [1, 0]], np.float32)
    p = replace(plain, beta=np.array([0.5, 0.1, 0.0])).probabilities(margins)
    assert p.sum(axis=1) == pytest.approx(1, abs=1e-4)
    assert p[0, 0] == 1
    assert (np.diff(p[:, 0]) < 0).all()


def test_calibration_finds_what_margins_were_made_with() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 4000, 6)).astype(np.float32)
    logits = 3.0 * one + 0.7 * two
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    true = (p.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1)
    weights = fit_softmax(np.stack([one, two], axis=2), true[:, None] == np.arange(6), np.zeros(6))
    assert weights == pytest.approx([3.0, 0.7], abs=0.25)
    margins = rng.normal(size=20_000).astype(np.float32)
    hits = rng.random(20_000) < 1 / (1 + np.exp(-2 * margins))
    evidence = np.array([-1.0, 0.0, 1.0])
    mapped = apply_isotonic(evidence, np.zeros(3, np.int32), fit_isotonic(margins, hits)[None])
    assert mapped == pytest.approx(1 / (1 + np.exp([2.0, 0.0, -2.0])), abs=0.05)
    assert fit_mixture_weight(np.full(1000, 0.0), np.full(1000, 0.5)) == pytest.approx(1.0)
    assert fit_mixture_weight(np.full(1000, 1.0), np.full(1000, 0.0)) == pytest.approx(0.0, abs=1e-6)


def test_labels_that_exclude_each_other_are_not_all_promised() -> None:
    rng = np.random.default_rng(0)
    h = Hierarchy.flat([f"l{number}" for number in range(30)])
    outputs = OutputSpace.of(h, label_matrix(np.arange(31), np.arange(30), 30), multiple_paths=True)

    def drawn(count: int) -> tuple[Any, Any]:
        logits = rng.normal(size=(count, 30)) * 2
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        true = (p.cumsum(axis=1) < rng.random((count, 1))).sum(axis=1).clip(0, 29)
        # What a text says of all its labels at once is seen in its margins, and means nothing.
        margins = (logits / 4 + rng.normal(size=(count, 1))).astype(np.float32)
        return margins, label_matrix(np.arange(count + 1), true.astype(np.int32), 30)

    margins, labels = drawn(3000)
    calibration = Isotonic(outputs).fit(margins, labels)
    fresh, truth = drawn(3000)
    p = calibration.probabilities(fresh)
    assert p.sum(axis=1).mean() == pytest.approx(1.0, abs=0.03)
    # By margins alone, texts of which all margins are high would be promised several labels.
    high = fresh.mean(axis=1) > np.quantile(fresh.mean(axis=1), 0.9)
    assert p[high].sum(axis=1).mean() == pytest.approx(1.0, abs=0.1)
    best = p.max(axis=1)
    right = truth.toarray()[np.arange(3000), p.argmax(axis=1)]
    for some in np.array_split(np.argsort(best), 5):
        assert best[some].mean() == pytest.approx(right[some].mean(), abs=0.06)


def test_what_a_fold_lacks_is_its_own_affair() -> None:
    outputs = OutputSpace.of(SMALL, encode(SMALL, [["A1"], ["A2"], ["B1"], ["B2"]]))
    margins = np.zeros((2, outputs.count), np.float32)
    at = int(outputs.terminal_outputs[np.searchsorted(outputs.terminals, SMALL.names.index("A1"))])
    margins[0, at] = ABSENT
    rows, marks = possible_terminals(outputs, margins, encode(SMALL, [["A1"], ["A1"]]))
    names = {
        int(row): [SMALL.names[outputs.terminals[t]] for t in np.flatnonzero(mark)]
        for row, mark in zip(rows, marks, strict=True)
    }
    assert names == {0: ["A2"], 1: ["A1"]}
