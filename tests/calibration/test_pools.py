"""Pools of models: weights are the best there are, sparse scores are pooled as dense ones."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from treelabel import Dataset, Hierarchy, Scores, evaluate
from treelabel.calibration.pools import (
    CandidatePool,
    NodePool,
    PathPool,
    fit_sigmoid_weights,
    fit_softmax_weights,
    nearest_terminals,
)
from treelabel.hierarchy.label_ids import decode
from treelabel.models.check import CASES, TREE
from treelabel.models.model_inputs import training_of


def many_labels(count: int) -> tuple[Hierarchy, list[str], list[list[str]]]:
    """Texts that name two of very many labels each."""
    names = [f"thing{number}" for number in range(2_500)]
    rng = np.random.default_rng(0)
    labels = [[names[at] for at in rng.choice(300, 2, replace=False)] for _ in range(count)]
    texts = [f"{' and '.join(row)} of word{rng.integers(40)}" for row in labels]
    return Hierarchy.flat(names), texts, labels


def grid_best(loss: Any, count: int) -> float:
    """The least loss over a grid of weights."""
    steps = np.linspace(0, 2, 21)
    return min(float(loss(np.array(at))) for at in np.stack(np.meshgrid(*[steps] * count), -1).reshape(-1, count))


def test_weights_of_a_softmax_are_the_best_there_are() -> None:
    rng = np.random.default_rng(0)
    near = rng.normal(size=(600, 5, 2)).astype(np.float32)
    logits = near @ np.array([1.2, 0.4])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    true = (p.cumsum(axis=1) < rng.random((600, 1))).sum(axis=1)

    def loss(weights: Any) -> Any:
        z = near @ weights
        return (np.log(np.exp(z).sum(axis=1)) - z[np.arange(600), true]).sum()

    found = fit_softmax_weights(near, true[:, None] == np.arange(5), np.zeros(5))
    assert loss(found) <= grid_best(loss, 2) + 0.5
    assert found == pytest.approx([1.2, 0.4], abs=0.25)


def test_weights_of_sigmoids_are_the_best_there_are() -> None:
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(2000, 2))
    true = rng.random(2000) < 1 / (1 + np.exp(-(0.5 + parts @ [1.5, 0.0])))

    def loss(numbers: Any) -> Any:
        z = numbers[0] + parts @ numbers[1:]
        return (np.logaddexp(0, z) - true * z).sum()

    found = fit_sigmoid_weights(parts, true, np.array([0.0, 0.5, 0.5]), 1)
    assert loss(found) <= grid_best(loss, 3) + 0.5
    assert found == pytest.approx([0.5, 1.5, 0.0], abs=0.2)


def test_the_likeliest_ends_and_one_for_the_rest_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treelabel.calibration.pools.LIKELIEST", 2)
    given = np.array([[5.0, 0.0, 3.0, 1.0, 4.0], [0.0, 2.0, 0.0, 0.0, 0.0]])
    near, offsets = nearest_terminals([given, sparse.csr_array(given / 2)], np.array([3, 1]))
    assert near[0, 0].tolist() == [1.0, 0.5]
    assert sorted(near[0, 1:3, 0].tolist()) == [4.0, 5.0]
    assert near[0, 3].tolist() == [1.5, 0.75]
    assert near[1, :, 0].tolist() == [2.0, 0.0, 0.0, 0.0]
    assert np.exp(offsets).tolist() == pytest.approx([1, 1, 1, 2])


@pytest.mark.parametrize("kind", CASES)
def test_sparse_scores_are_pooled_as_dense_ones(kind: str) -> None:
    case, rng = CASES[kind], np.random.default_rng(0)
    train = training_of(case.texts, case.labels, case.hierarchy)
    true = train.closed_labels.toarray()
    given = [np.clip(0.7 * true + 0.2 * rng.random(true.shape), 0, 1).astype(np.float32) for _ in range(2)]
    given = [np.where(values > 0.1, values, 0) for values in given]
    kept = [sparse.csr_array(values) for values in given]
    pool = (NodePool if train.regime == "multi_path" else PathPool).equal(train.hierarchy, 2, train.labels)
    dense, thin = pool.fit(given, train.labels), pool.fit(kept, train.labels)
    assert thin.weights == pytest.approx(dense.weights, abs=1e-5)
    pooled = dense.probabilities(kept)
    assert sparse.issparse(pooled)
    wide = dense.probabilities(given)
    assert Scores(case.hierarchy, wide).is_coherent()
    stored = pooled.toarray() > 0
    assert stored.any(axis=1).sum() > len(train) / 2
    if train.regime == "multi_path":
        assert pooled.toarray() == pytest.approx(wide, abs=1e-6)
    # Ends that no model speaks of have a little each, which is not stored, and missing in the nodes above them.
    leaves = case.hierarchy.leaves
    assert pooled.toarray()[:, leaves][stored[:, leaves]] == pytest.approx(wide[:, leaves][stored[:, leaves]], abs=1e-6)
    assert pooled.toarray()[stored] == pytest.approx(wide[stored], abs=2e-2)


def test_two_that_know_different_things_know_more_together() -> None:
    rng = np.random.default_rng(0)
    h = Hierarchy.flat(["a", "b", "c", "d"])
    train = training_of(["x"] * 2000, [["abcd"[at]] for at in rng.integers(0, 4, 2000)], h)
    true = train.closed_labels.toarray()
    logits = [2.0 * true + rng.normal(size=true.shape) * 1.4 for _ in range(2)]
    given = [np.exp(z) / np.exp(z).sum(axis=1, keepdims=True) for z in logits]
    pool = PathPool.equal(train.hierarchy, 2, train.labels).fit(
        [values[:1000] for values in given], train.labels[:1000]
    )
    late = train[np.arange(1000, 2000)]
    judged = [
        evaluate(
            Dataset.of(list(late.texts), decode(h, late.labels), h),
            scores=Scores(h, p),
            rule="best_leaf",
            metrics=["leaf_accuracy", "ece"],
        )
        for p in (given[0][1000:], given[1][1000:], pool.probabilities([values[1000:] for values in given]))
    ]
    assert judged[2]["leaf_accuracy"] > max(one["leaf_accuracy"] for one in judged[:2]) + 0.03
    assert judged[2]["ece"] < 0.05


def test_a_path_that_ends_where_none_of_training_does_says_nothing_of_weights() -> None:
    case = CASES["leaf"]
    train = training_of(case.texts, case.labels, case.hierarchy)
    held = training_of(["a", "b"], [["cat"], ["dog"]], case.hierarchy)
    pool = PathPool.equal(train.hierarchy, 2, train.labels)
    values = [np.full((2, len(TREE)), 0.3), np.full((2, len(TREE)), 0.2)]
    assert pool.fit([given[:1] for given in values], held.labels[:1]).weights == pytest.approx(
        pool.fit(values, held.labels).weights
    )


def test_candidates_are_pooled_sparse_as_dense() -> None:
    h, texts, labels = many_labels(80)
    train, rng = training_of(texts, labels, h), np.random.default_rng(1)
    true = train.closed_labels.toarray()
    given = []
    for _ in range(3):
        values = np.clip(0.6 * true * rng.random(true.shape) + 0.2 * rng.random(true.shape), 0, 1)
        given.append(np.where(rng.random(true.shape) < 0.02 + 0.6 * true, values, 0).astype(np.float32))
    kept = [sparse.csr_array(values) for values in given]
    pool = CandidatePool.equal(train.hierarchy, 3, train.labels)
    dense, thin = pool.fit(given, train.labels), pool.fit(kept, train.labels)
    assert thin.coefficients == pytest.approx(dense.coefficients, abs=1e-4)
    pooled = dense.probabilities(kept)
    assert sparse.issparse(pooled)
    assert pooled.toarray() == pytest.approx(dense.probabilities(given), abs=1e-6)
    assert pooled.nnz <= sum(values.nnz for values in kept)
    # Better than each alone: the log loss of candidates.
    assert 0.8 * true.sum() < pooled.sum() < 1.2 * true.sum()


def test_what_a_part_does_not_say_is_no_proof_against_it() -> None:
    h, texts, labels = many_labels(300)
    train, rng = training_of(texts, labels, h), np.random.default_rng(2)
    true = train.closed_labels.toarray()
    # One part knows a third of the labels, and is always right; the other guesses well.
    few = np.where(true & (rng.random(true.shape) < 0.33), 0.95, 0).astype(np.float32)
    guess = np.where(rng.random(true.shape) < np.where(true, 0.9, 0.002), 0.3, 0).astype(np.float32)
    given = [sparse.csr_array(few), sparse.csr_array(guess)]
    pool = CandidatePool.equal(train.hierarchy, 2, train.labels).fit(given, train.labels)
    p = pool.probabilities(given).toarray()
    guessed, sure = (guess > 0) & (few == 0), few > 0
    assert p[guessed].mean() == pytest.approx(true[guessed].mean(), abs=0.03)
    assert p[sure].min() > p[guessed].max()
