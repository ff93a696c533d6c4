"""X-Transformer: balanced clusters, a matcher of binary targets, rankers behind it, and scores within the beam."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import expit

from tests.helpers import WordVectors, registered
from treelabel import Dataset, Hierarchy, TreelabelError, load_model, make_model
from treelabel.calibration.candidates import CandidateSigmoid
from treelabel.core.stopping import StopSignal
from treelabel.models.check import CASES
from treelabel.models.extreme.cluster_ranking import (
    best_clusters,
    joined_features,
    rank,
    shown_documents,
)
from treelabel.models.extreme.clustering import cluster_count, clusters_of, index_labels, pifa
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.models.extreme.rankers import Solver, train_rankers
from treelabel.models.model_inputs import training_of
from treelabel.neural.network import NetworkSpec
from treelabel.neural.objective import Objective
from treelabel.neural.systems.x_transformer_indexing import MatcherNetwork, read_texts

LABELS = [f"label{number}" for number in range(40)]
FLAT = Hierarchy.flat(LABELS)


def topics(documents: int = 240, seed: int = 0) -> Dataset:
    """Make texts with two labels each; labels of a group of five share a word."""
    rng = np.random.default_rng(seed)
    labels = [rng.choice(40, 2, replace=False) for _ in range(documents)]
    words = [[f"own{label} own{label} group{label // 5} noise{rng.integers(9)}" for label in row] for row in labels]
    texts = [" ".join(row) for row in words]
    return Dataset.of(texts, [[LABELS[label] for label in row] for row in labels], FLAT)


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    torch.set_num_threads(1)
    with registered("words", WordVectors):
        yield


def made(**settings: Any) -> Any:
    usual = {"encoder": "words", "epochs": 10, "n_clusters": 8, "beam_size": 3, "batch_size": 32}
    return make_model("x_transformer", **{**usual, **settings})


# Indexing


@pytest.mark.parametrize(("labels", "clusters"), [(40, 8), (41, 8), (97, 16), (5, 2), (3, 1)])
def test_cluster_sizes_differ_by_one_at_most(labels: int, clusters: int) -> None:
    rng = np.random.default_rng(labels)
    documents = sparse.csr_array(rng.random((300, 20)) * (rng.random((300, 20)) < 0.3), dtype=np.float32)
    own = sparse.csr_array(rng.random((300, labels)) < 0.1)
    tree = index_labels(pifa(documents, own), cluster_count(labels, clusters), seed=0)
    sizes = np.diff(tree.children[1])
    assert tree.sizes == [clusters, labels]
    assert sizes.max() - sizes.min() <= 1
    assert sizes.min() >= 2
    assert sorted(tree.labels.tolist()) == list(range(labels))


def test_labels_of_similar_texts_come_into_one_cluster() -> None:
    # Labels 0 to 4 share a word, 5 to 9 another, and so on.
    texts = [f"own{label} group{label // 5} group{label // 5} group{label // 5}" for label in range(40)] * 3
    model = made(epochs=1).fit(texts, [[LABELS[label]] for label in range(40)] * 3, hierarchy=FLAT)
    tree = model.fitted_.indexings[0].tree
    groups = np.split(tree.labels // 5, tree.children[1][1:-1])
    assert np.mean([len(np.unique(group)) for group in groups]) < 2


# Matching


def matcher_loss(labels: Any, tree: LabelTree) -> torch.Tensor:
    """Return the loss of an untrained matcher on documents with these labels (documents x labels)."""
    gold = clusters_of(tree, sparse.csr_array(labels))
    clusters = Hierarchy.flat(["one", "two"])
    train = training_of(["t"] * gold.shape[0], [[clusters.names[c] for c in row.indices] for row in gold], clusters)
    torch.manual_seed(0)
    network = MatcherNetwork(NetworkSpec(Objective.of(train, "bce"), 4, None, "mean", 0.0))
    vectors = torch.linspace(-1, 1, 4)[None].repeat(gold.shape[0], 1)
    truth = network.prepare(None, gold).batch(np.arange(gold.shape[0]))  # type: ignore[arg-type]
    margins = network.logits((vectors,)).detach()
    expected = torch.clamp(1 - (2 * truth - 1) * margins, min=0).square().mean(1)
    found = network.losses((vectors,), truth, None).detach()  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected)
    return found


def test_two_true_labels_in_a_cluster_count_once() -> None:
    tree = LabelTree((np.array([0, 2]), np.array([0, 2, 4])), np.array([0, 1, 2, 3], np.int32))
    one, two = matcher_loss([[True, False, False, False], [True, True, False, False]], tree)
    assert one == two


def test_the_recall_of_the_matcher_rises_with_training() -> None:
    data = topics()

    def recall(epochs: int) -> float:
        indexing = made(epochs=epochs, learning_rate=1e-2).fit(data).fitted_.indexings[0]
        beam = best_clusters(read_texts(indexing.matcher, data.texts)[1], 3).toarray()
        gold = indexing.tree.above(sparse.csr_array(data.labels))[0].toarray() > 0
        return float((beam & gold).sum() / gold.sum())

    assert recall(15) > max(0.6, recall(1) + 0.1)


# Ranking


def small_rankers(seed: int = 0) -> tuple[sparse.csr_array, sparse.csr_array, LabelTree, Any]:
    rng = np.random.default_rng(seed)
    features = sparse.csr_array(rng.random((80, 12)) * (rng.random((80, 12)) < 0.5), dtype=np.float32)
    labels = sparse.csr_array(rng.random((80, 10)) < 0.2)
    tree = index_labels(pifa(features, labels), 4, seed)
    gold, positive = tree.above(labels)
    rankers = train_rankers(features, gold, positive, tree.children[1], Solver(prune=0.0), None, StopSignal())
    return features, gold, tree, rankers


def test_margins_are_those_of_the_weights_and_only_labels_in_the_beam_have_any() -> None:
    features, _, tree, rankers = small_rankers()
    beam = best_clusters(np.random.default_rng(1).random((80, 4)).astype(np.float32), 2)
    margins = rank(features, beam, tree, rankers)
    dense = np.tile(rankers.bias, (80, 1)).astype(np.float64)
    for cluster in range(4):
        for row in range(rankers.clusters[cluster], rankers.clusters[cluster + 1]):
            for at in range(rankers.rows[row], rankers.rows[row + 1]):
                child = tree.children[1][cluster] + rankers.children[at]
                dense[:, child] += rankers.weights[at] * features.toarray()[:, rankers.features[row]]
    looked_at = beam.toarray()[:, tree.parents(1)]
    stored = np.zeros(looked_at.shape, bool)
    stored[np.repeat(np.arange(80), np.diff(margins.indptr)), margins.indices] = True
    assert np.array_equal(stored, looked_at)
    np.testing.assert_allclose(margins.toarray(), np.where(looked_at, dense, 0), atol=1e-5)


def test_labels_outside_the_beam_have_no_score() -> None:
    data = topics()
    model = made(beam_size=2).fit(data)
    indexing = model.fitted_.indexings[0]
    beam = best_clusters(read_texts(indexing.matcher, data.texts)[1], 2)
    allowed = np.zeros((len(data), 40), bool)
    allowed[:, indexing.tree.labels] = beam.toarray()[:, indexing.tree.parents(1)]
    scores = model.score(data)
    assert scores.is_sparse
    assert not scores.dense()[~allowed].any()
    assert (scores.dense()[allowed] > 0).all()
    assert np.diff(scores.csr().indptr).max() <= 2 * 5


def test_negatives_are_those_of_gold_clusters_of_the_beam_or_of_both() -> None:
    gold = sparse.csr_array(np.array([[1, 0, 0], [0, 1, 0]], bool))
    beam = best_clusters(np.array([[0.1, 0.9, 0.5], [0.2, 0.8, 0.1]], np.float32), 2)
    assert beam.toarray().tolist() == [[False, True, True], [True, True, False]]
    assert np.array_equal(shown_documents(gold, beam, "gold").toarray(), gold.toarray())
    assert np.array_equal(shown_documents(gold, beam, "matcher").toarray(), beam.toarray())
    assert np.array_equal(shown_documents(gold, beam, "both").toarray(), gold.toarray() | beam.toarray())


def test_a_cluster_learns_from_what_the_matcher_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from treelabel.neural.systems import x_transformer

    seen: list[Any] = []

    def watched(features: Any, shown: Any, *rest: Any) -> Any:
        seen.append(shown)
        return train_rankers(features, shown, *rest)

    monkeypatch.setattr(x_transformer, "train_rankers", watched)
    data = topics()
    model = made(negatives="matcher", beam_size=2).fit(data)
    beam = best_clusters(read_texts(model.fitted_.indexings[0].matcher, data.texts)[1], 2)
    # Once for the map to probabilities, without held-out documents, and then from all.
    assert [shown.shape[0] for shown in seen] == [216, 240]
    assert np.array_equal(seen[-1].toarray(), beam.toarray())


def test_tf_idf_and_vectors_count_alike() -> None:
    tfidf = sparse.csr_array(np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]], np.float32))
    found = joined_features(tfidf, np.array([[0.0, 20.0], [1.0, 0.0]], np.float32)).toarray()
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[0.6 * half, 0.8 * half, 0, 0, half], [0, 0, 0, 1, 0]], atol=1e-6)


def test_margins_become_probabilities_by_what_held_out_documents_show() -> None:
    rng = np.random.default_rng(0)
    margins = rng.normal(size=(400, 10))
    true = rng.random((400, 10)) < expit(3 * margins - 2)
    slope, intercept = CandidateSigmoid().fit(sparse.csr_array(margins.astype(np.float32)), sparse.csr_array(true))
    assert abs(slope - 3) < 0.4
    assert abs(intercept + 2) < 0.4
    assert CandidateSigmoid().fit(sparse.csr_array(margins), sparse.csr_array(np.zeros((400, 10), bool))) == (2.0, 0.0)


# The whole


def top_one(model: Any, data: Dataset) -> float:
    best = model.score(data).dense().argmax(axis=1)
    return float(data.labels.toarray()[np.arange(len(data)), best].mean())


def test_it_learns_and_an_ensemble_averages_its_indexings() -> None:
    train, test = topics(), topics(100, seed=1)
    settings = {"epochs": 20, "learning_rate": 1e-2, "beam_size": 4}
    one = made(**settings).fit(train)
    assert top_one(one, test) > 0.7
    both = made(**settings, label_embeddings=("pifa-tfidf", "text-emb")).fit(train)
    assert len(both.fitted_.indexings) == 2
    first, second = (each.tree.labels.tolist() for each in both.fitted_.indexings)
    assert first != second
    tfidf = both.fitted_.tfidf.transform(list(test.texts))
    parts = [each.probabilities(test.texts, tfidf, 4).toarray() for each in both.fitted_.indexings]
    np.testing.assert_allclose(both.score(test).dense(), (parts[0] + parts[1]) / 2, atol=1e-6)
    # The first indexing of an ensemble is the same as alone.
    np.testing.assert_allclose(parts[0], one.score(test).dense(), atol=1e-6)


def test_the_largest_scores_are_those_of_all() -> None:
    data = topics()
    model = made().fit(data)
    whole, found = model.score(data).top_k(3).csr(), model.score(data, top=3).csr()
    assert np.array_equal(whole.indices, found.indices)
    np.testing.assert_allclose(whole.data, found.data, atol=1e-6)


@pytest.mark.slow
def test_a_deadline_leaves_a_model_that_scores() -> None:
    data = topics()
    model = made(epochs=100_000, patience=100_000, label_embeddings=("pifa-tfidf", "pifa-tfidf"))
    model.fit(data, max_seconds=3.0)
    assert model.stopped_ == "deadline"
    assert top_one(model, data) > 0.5


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"label_embeddings": ()}, "label_embeddings"),
        ({"label_embeddings": ("names",)}, "label_embeddings"),
        ({"label_embeddings": ("text-emb",), "encoder": "scratch"}, "knows words already"),
        ({"beam_size": 0}, "beam_size"),
        ({"negatives": "some"}, "negatives"),
        ({"loss": "champ"}, "a loss of its own"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(TreelabelError, match=match):
        made(**settings).fit(topics())


def test_it_is_not_exported() -> None:
    with pytest.raises(TreelabelError, match="no graph"):
        made(epochs=1).fit(topics()).export()


def swap(array: Any) -> Any:
    return array[::-1].copy()


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("0.ranker_clusters", swap, "clusters does not divide"),
        ("0.ranker_rows", swap, "rows does not divide"),
        ("0.ranker_features", swap, "features of a cluster do not rise"),
        ("0.ranker_children", lambda array: np.full_like(array, 39), "a child that its cluster does not have"),
        ("0.tree_labels", np.zeros_like, "each label into one cluster"),
        ("0.tree_children", swap, "tree_children"),
        ("label_nodes", swap, "label_nodes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, change: Any, match: str) -> None:
    model = made(epochs=1).fit(topics())
    values, arrays = model._state()
    schema = model.schema(json.loads(json.dumps(values)))
    schema.check(arrays)
    with pytest.raises(TreelabelError, match=match):
        schema.check({**arrays, name: change(arrays[name])})


def test_features_of_another_width_are_refused(tmp_path: Path) -> None:
    model = made(epochs=1).fit(CASES["leaf"].texts, CASES["leaf"].labels, hierarchy=CASES["leaf"].hierarchy)
    model.save(tmp_path / "model")
    described = json.loads((tmp_path / "model" / "model.json").read_text())
    described["learned"]["indexings"][0]["width"] += 1
    (tmp_path / "model" / "model.json").write_text(json.dumps(described))
    with pytest.raises(TreelabelError, match="rankers are of"):
        load_model(tmp_path / "model")
