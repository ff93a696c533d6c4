"""Linear heads: what they minimise, what their outputs stand for, and what becomes of them."""

from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.svm import LinearSVC

from tests.helpers import load_model, make_model, registered
from treelabel import Dataset, Hierarchy, TreelabelError, evaluate, load_sample, split
from treelabel.calibration import path_softmax
from treelabel.calibration.contract import OutputSpace
from treelabel.calibration.path_kernels import powers
from treelabel.core.compute import in_threads, kernel
from treelabel.core.sparse_product import SparseWeights
from treelabel.core.stopping import StopSignal
from treelabel.hierarchy.label_ids import encode
from treelabel.models.base import Model
from treelabel.models.check import CASES, CHECKS, DAG, TREE, fit_case, it_learns
from treelabel.models.linear import model as linear
from treelabel.models.linear.conditional import sigmoid_groups, softmax_groups, train_groups
from treelabel.models.linear.descent import TrainingRows, train_hinge
from treelabel.models.linear.heads import HEADS, fit_head
from treelabel.models.linear.pruned_weights import WeightCollector
from treelabel.models.linear.vector_blocks import BLOCK, add_multiples, add_products
from treelabel.models.linear.vector_instructions import LANES
from treelabel.models.model_inputs import training_of
from treelabel.models.profile import replace_rows
from treelabel.models.sparse_featurizer import SparseFeaturizer
from treelabel.selection import feature_choice
from treelabel.selection.feature_choice import shape_of
from treelabel.text import NgramShape, Tfidf

NEVER = StopSignal()


@pytest.fixture(scope="module")
def sample() -> Dataset:
    return load_sample()[::6]


@pytest.fixture(scope="module")
def features(sample: Dataset) -> sparse.csr_array:
    return Tfidf.fit_transform(sample.texts, NgramShape())[1]


def outputs_of(train: Any, **settings: bool) -> OutputSpace:
    return OutputSpace.of(train.hierarchy, train.labels, multiple_paths=train.regime == "multi_path", **settings)


def learned(rows: TrainingRows, outputs: int, train: Any) -> WeightCollector:
    """Run a trainer and gather all it learns."""
    collector = WeightCollector(len(rows.held), rows.features.shape[1], outputs)
    train(collector.take)
    return collector


def with_bias(x: Any) -> Any:
    return sparse.csr_array(sparse.hstack([x, np.ones((x.shape[0], 1))]))


def hinge_loss(x: Any, y: Any, w: Any, cost: float) -> float:
    return float(0.5 * (w**2).sum() + cost * (np.maximum(0, 1 - y * (x @ w)) ** 2).sum())


def cross_entropies(w: Any, losses: Any) -> float:
    return float(0.5 * (w**2).sum() + 10 * losses.sum())


def lowest(loss: Any, x: Any, start: Any, errors: Any) -> float:
    """Find the minimum with a library, from where ours ended."""

    def flat(w: Any) -> tuple[float, Any]:
        shaped = w.reshape(start.shape)
        return loss(shaped), (shaped - 10 * (x.T @ errors(shaped))).ravel()

    return float(minimize(flat, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300}).fun)


def stacked(collector: WeightCollector, output: int) -> Any:
    weights = collector.weights()[:, [output]].toarray().ravel()
    return np.append(weights, collector.bias[output]).astype(np.float64)


# What is minimised


def test_vectors_of_sixteen_multiply_and_add_as_numpy_does() -> None:
    assert LANES == BLOCK
    rng = np.random.default_rng(0)
    idx, val = rng.integers(0, 50, 30).astype(np.int32), rng.normal(size=30).astype(np.float32)
    weights, vector = rng.normal(size=(50, BLOCK)).astype(np.float32), rng.normal(size=BLOCK).astype(np.float32)

    @kernel
    def multiply(idx: Any, val: Any, weights: Any, found: Any) -> None:
        add_products(idx, val, np.int64(3), np.int64(20), weights, found)

    @kernel
    def add(idx: Any, val: Any, weights: Any, change: Any) -> None:
        add_multiples(idx, val, np.int64(3), np.int64(20), weights, change)

    found = vector.copy()
    multiply(idx, val, weights, found)
    assert found == pytest.approx(vector + val[3:20] @ weights[idx[3:20]], abs=1e-5)
    expected = weights.copy()
    np.add.at(expected, idx[3:20], val[3:20, None] * vector)
    add(idx, val, weights, vector)
    assert weights == pytest.approx(expected, abs=1e-5)


def test_hinge_outputs_reach_the_minimum_that_liblinear_finds(sample: Dataset, features: sparse.csr_array) -> None:
    train = training_of(sample, None, None)
    outputs = outputs_of(train)
    targets = outputs.targets(train.labels)
    rows = TrainingRows(features, [np.arange(0, 240)], max_iter=40)
    found = learned(rows, outputs.count, lambda take: train_hinge(rows, targets, 3.0, take, NEVER, lambda done: None))
    x = with_bias(features)
    for output in (0, 7, outputs.count - 1):
        y = np.where(targets[:, [output]].toarray().ravel(), 1, -1)
        peer = LinearSVC(C=3.0, fit_intercept=False, tol=1e-6, max_iter=10_000).fit(x, y).coef_.ravel()
        least = hinge_loss(x, y, peer, 3.0)
        assert least <= hinge_loss(x, y, stacked(found, output), 3.0) * 1.0001 <= least * 1.01


def test_held_documents_are_scored_by_what_the_others_teach(sample: Dataset, features: sparse.csr_array) -> None:
    train = training_of(sample, None, None)
    outputs = outputs_of(train)
    targets, held = outputs.targets(train.labels), np.arange(0, 240)
    rows = TrainingRows(features, [held[:100], held[100:]], max_iter=40)
    found = learned(rows, outputs.count, lambda take: train_hinge(rows, targets, 3.0, take, NEVER, lambda done: None))
    x, y = with_bias(features), np.where(targets[:, [0]].toarray().ravel(), 1, -1)
    for fold in rows.folds:
        others = np.setdiff1d(np.arange(len(y)), fold)
        peer = LinearSVC(C=3.0, fit_intercept=False, tol=1e-6, max_iter=10_000).fit(x[others], y[others])
        assert found.margins[fold, 0] == pytest.approx(peer.decision_function(x[fold]), abs=0.05)


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.slow
def test_sibling_groups_reach_the_minimum_of_logistic_regression(
    sample: Dataset, features: sparse.csr_array, tau: float
) -> None:
    # Twenty classes without any order among them: more than one block.
    names = [f"class {sum(map(ord, row[0])) % 20}" for row in sample.paths()]
    train = training_of(list(sample.texts), names, Hierarchy.flat(sorted(set(names))))
    outputs = outputs_of(train, shared=False)
    (group,) = softmax_groups(outputs, train, tau)
    assert len(group.outputs) > BLOCK
    rows = TrainingRows(features, [np.arange(0, 100)], max_iter=100)
    found = learned(
        rows, outputs.count, lambda take: train_groups(rows, [group], True, 10.0, take, NEVER, lambda done: None)
    )
    x, y = with_bias(features[group.rows]), group.true.argmax(axis=1)

    def loss(w: Any) -> float:
        logits = x @ w + group.offsets
        return cross_entropies(w, np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(y)), y])

    ours = np.stack([stacked(found, output) for output in group.outputs], axis=1)
    shares = (group.true.sum(axis=0) + 1) / (len(y) + len(group.outputs))
    assert group.offsets == pytest.approx(tau * np.log(shares), abs=1e-5)
    least = lowest(loss, x, ours, lambda w: group.true - softmax(x @ w + group.offsets, axis=1))
    assert least <= loss(ours) * 1.0001 <= least * 1.01


def test_sigmoids_among_siblings_reach_the_minimum(sample: Dataset, features: sparse.csr_array) -> None:
    train = training_of(sample, None, None)
    outputs = outputs_of(train, shared=False)
    group = sigmoid_groups(outputs, train)[0]
    assert len(group.rows) == len(sample)
    rows = TrainingRows(features, [np.arange(0, 100)], max_iter=100)
    found = learned(
        rows, outputs.count, lambda take: train_groups(rows, [group], False, 10.0, take, NEVER, lambda done: None)
    )
    x = with_bias(features)
    y = group.true[:, 0]

    def loss(w: Any) -> float:
        logits = x @ w
        return cross_entropies(w, np.logaddexp(0, logits) - y * logits)

    ours = stacked(found, int(group.outputs[0]))
    least = lowest(loss, x, ours, lambda w: y - expit(x @ w))
    assert least <= loss(ours) * 1.0001 <= least * 1.01


def test_powers_are_those_of_e() -> None:
    values = np.linspace(-90, 0, 10_001).astype(np.float32)
    found = np.empty_like(values)
    total = powers(values, 0.9, found)
    assert found == pytest.approx(np.exp(0.9 * values.astype(np.float64)), rel=2e-5)
    assert total == pytest.approx(np.exp(0.9 * values.astype(np.float64)).sum(), rel=1e-4)
    powers(np.array([-1e5, 0], np.float32), 2.0, found)
    assert found[:2].tolist() == [0.0, 1.0]


# What outputs stand for


def test_nodes_with_the_same_documents_share_an_output() -> None:
    h = Hierarchy.from_paths(["a > b > c", "a > b > d", "e > f"])
    train = training_of(["1", "2", "3"], [["c"], ["d"], ["f"]], h)
    outputs = outputs_of(train)
    names = {h.names[node]: outputs.output(node) for node in range(len(h))}
    assert names["a"] == names["b"]
    assert names["e"] == names["f"]
    assert len(set(names.values())) == outputs.count == 4
    assert outputs.targets(train.labels)[:, [names["a"]]].toarray().ravel().tolist() == [1, 1, 0]
    assert outputs_of(train, shared=False).count == len(h)


def test_an_inner_terminal_node_has_a_stop_output() -> None:
    train = training_of(["1", "2"], [["dog"], ["terrier"]], TREE)
    outputs = outputs_of(train)
    dog = TREE.names.index("dog")
    own = outputs.terminal_outputs[outputs.terminals.tolist().index(dog)]
    assert own != outputs.output(dog)
    assert outputs.targets(train.labels)[:, [own]].toarray().ravel().tolist() == [1, 0]
    assert outputs.output(TREE.names.index("cake")) == -1


def test_dense_rows_change_nothing() -> None:
    rng = np.random.default_rng(0)
    full = np.where(rng.random((40, 20)) < np.linspace(1, 0.02, 40)[:, None], rng.normal(size=(40, 20)), 0)
    weights = SparseWeights(sparse.csr_array(full.astype(np.float32)), rng.normal(size=20).astype(np.float32))
    x = sparse.random_array((9, 40), density=0.4, rng=rng, dtype=np.float32, format="csr")
    assert 0 < len(weights.dense) < 40
    assert weights.times(x, 2, 9) == pytest.approx((x @ full + weights.bias)[2:], abs=1e-5)


# Heads


@cache
def fitted(head: str, kind: str) -> Model:
    """Return a model that has learned a case: what the battery asks of it changes nothing in it."""
    return fit_case(lambda: make_model(head=head), CASES[kind])


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("head", HEADS)
def test_every_head_stands_the_battery(head: str, check: str, kind: str) -> None:
    if head == "conditional_softmax" and kind in ("many", "DAG"):
        with pytest.raises(TreelabelError, match="use head=conditional_sigmoid or head=nodes"):
            fit_case(lambda: make_model(head=head), CASES[kind])
        return
    promised = head != "conditional_sigmoid" or check != "scores_are_sound" or kind != "leaf"
    if promised:
        CHECKS[check](fitted(head, kind), CASES[kind])


@pytest.mark.parametrize("head", [*HEADS, "auto"])
def test_every_head_learns(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "WORTH_A_HEAD", 20)
    monkeypatch.setattr(feature_choice, "FEWEST", 20)
    it_learns(fit_case(lambda: make_model(head=head), CASES["leaf"]), CASES["leaf"])


def test_sigmoids_need_not_sum_to_their_parent_but_are_coherent() -> None:
    scores = fit_case(lambda: make_model(head="conditional_sigmoid"), CASES["leaf"]).score(CASES["leaf"].texts)
    assert scores.is_coherent()


@pytest.mark.slow
def test_auto_takes_the_head_that_loses_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "WORTH_A_HEAD", 1000)
    words: dict[str, Any] = {"ngram_range": (1, 1), "char_ngram_range": None}
    model = make_model(**words).fit(load_sample())
    losses = {trial.settings.split("head=")[1]: trial.loss for trial in model.evidence_.trials}
    assert sorted(losses) == ["conditional_softmax", "nodes"]
    assert losses[model.head_.head] == min(losses.values())
    assert make_model(**words).fit(load_sample()[:900]).evidence_.trials == ()
    with pytest.raises(TreelabelError, match="linear has no head 'node'; there are: auto, nodes"):
        make_model(head="node").fit(load_sample()[:50])


@pytest.mark.slow
def test_adjusted_logits_help_rare_siblings() -> None:
    train, test = split(load_sample(), {"train": 0.8, "test": 0.2}, seed=0).values()
    plain, adjusted = (
        evaluate(
            test,
            scores=make_model(head="conditional_softmax", tau=tau).fit(train).score(test),
            rule="best_leaf",
            metrics=["macro_f1"],
        )["macro_f1"]
        for tau in (0.0, 1.0)
    )
    assert adjusted > plain


def test_a_validation_set_calibrates_and_is_not_learned() -> None:
    train, valid = split(load_sample()[:2000], {"train": 0.8, "valid": 0.2}, seed=0).values()
    strange = Dataset.of(["qqqq " + text for text in valid.texts], valid.paths(), valid.hierarchy)
    model = make_model().fit(train, valid=strange)
    assert model.featurizer_.tfidf.width == Tfidf.fit(train.texts, model.featurizer_.tfidf.shape).width
    assert model.evidence_.documents == len(valid)
    assert len(model.explain("qqqq")[0].supporting_terms) == 0
    judged = evaluate(valid, scores=model.score(valid), rule="best_leaf", metrics=["leaf_accuracy", "ece"])
    assert judged["leaf_accuracy"] > 0.5
    assert judged["ece"] < 0.1


@pytest.mark.slow
def test_of_very_many_nodes_the_likeliest_terminals_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_sample()[:1500]
    dense = make_model(prune=0).fit(data)
    before = dense.score(data.texts[:50]).dense()
    monkeypatch.setattr(path_softmax, "MANY_NODES", 10)
    monkeypatch.setattr(path_softmax, "TOP_SCORES", 5)
    scores = dense.score(data.texts[:50])
    assert scores.is_sparse
    assert scores.is_coherent()
    assert (scores.dense().argmax(axis=1) == before.argmax(axis=1)).all()
    again = make_model().fit(data)
    assert evaluate(data, decisions=again.predict(data), metrics=["hf1"])["hf1"] > 0.9


# Encoders beside tf-idf


class Letters:
    """Counts letters: features of texts that are no n-grams."""

    name = "letters"
    fingerprint = "letters 1"

    def __init__(self) -> None:
        self.calls: list[int] = []

    def transform(self, texts: Any) -> Any:
        self.calls.append(len(texts))
        return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], float)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Letters:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    return Letters()


@pytest.mark.parametrize("tfidf", [True, False])
def test_an_encoder_stands_alone_or_beside_tfidf(letters: Letters, tfidf: bool, tmp_path: Path) -> None:
    case = CASES["leaf"]
    model = make_model(encoder=letters, tfidf=tfidf).fit(case.texts, case.labels, hierarchy=TREE)
    true = [tuple(row) for row in case.labels]
    right = np.mean([tuple(found) == row for found, row in zip(model.predict(case.texts), true, strict=True)])
    assert right > 0.8
    # What was encoded once comes from the disk.
    assert sum(letters.calls) == len(set(case.texts))
    model.save(tmp_path / "model")
    with pytest.raises(TreelabelError, match="unknown encoder 'letters'; usable here: "):
        load_model(tmp_path / "model")
    loaded = load_model(tmp_path / "model", encoder=Letters())
    assert np.array_equal(loaded.score(case.texts).dense(), model.score(case.texts).dense())
    other = Letters()
    other.fingerprint = "letters 2"
    with pytest.raises(TreelabelError, match=r"learned with the encoder letters \(letters 1\), but this one is"):
        load_model(tmp_path / "model", encoder=other)
    if not tfidf:
        with pytest.raises(TreelabelError, match="without tf-idf cannot explain"):
            model.explain("a cat")


def test_a_registered_encoder_is_known_by_its_name(letters: Letters, tmp_path: Path) -> None:
    with registered("letters", Letters):
        model = fit_case(lambda: make_model(encoder="letters"), CASES["leaf"])
        model.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
    assert loaded.predict(["the cat meows"]) == model.predict(["the cat meows"])
    assert loaded.get_params()["encoder"] == "letters"


def test_without_tfidf_and_encoder_the_best_encoder_that_is_installed_is_taken(
    letters: Letters, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(linear, "default_encoder", Letters)
    model: Any = fit_case(lambda: make_model(tfidf=False), CASES["leaf"])
    assert model.featurizer_.encoder.name == "letters"
    model.save(tmp_path / "model")
    with registered("letters", Letters):
        loaded = load_model(tmp_path / "model")
    assert loaded.predict(["the cat meows"]) == model.predict(["the cat meows"])


def test_what_is_no_encoder_is_refused(letters: Letters) -> None:
    with pytest.raises(TreelabelError, match=r"the setting encoder is .*, expected text or Encoder or null"):
        fit_case(lambda: make_model(encoder=object()), CASES["leaf"])

    class Short(Letters):
        def transform(self, texts: Any) -> Any:
            return np.ones((1, 3))

    with pytest.raises(TreelabelError, match=r"gave an array of shape \(1, 3\) for"):
        fit_case(lambda: make_model(encoder=Short()), CASES["leaf"])


def test_an_interrupted_run_goes_on_where_it_was(letters: Letters, tmp_path: Path) -> None:
    from treelabel.encoders.cached_encoder import CachedEncoder

    class Interrupted(Letters):
        def transform(self, texts: Any) -> Any:
            if "stop" in texts:
                raise KeyboardInterrupt
            return super().transform(texts)

    texts = ["a", "b", "c", "d", "stop", "e"]
    broken = CachedEncoder(Interrupted(), tmp_path, batch_size=2)
    with pytest.raises(KeyboardInterrupt):
        broken.transform(texts)
    again = CachedEncoder(letters, tmp_path, batch_size=2)
    assert again.transform(texts).shape == (6, 26)
    assert letters.calls == [2]
    assert (again.transform([]).shape) == (0, 0)


def test_the_hierarchy_of_a_dag_is_used() -> None:
    scores = fit_case(lambda: make_model(head="conditional_sigmoid"), CASES["DAG"]).score(["dog barks loudly"])
    assert scores.hierarchy == DAG
    assert scores.is_coherent()


# Ctrl-C


def test_ctrl_c_hurries_learning_and_keeps_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed: list[int] = []

    @contextmanager
    def pressing(title: str, total: int, show: bool | None = None) -> Any:
        def done(number: int) -> None:
            pressed.append(number)
            raise KeyboardInterrupt

        yield done

    monkeypatch.setattr("treelabel.models.linear.heads.progress_bar", pressing)
    data = load_sample()[::4]
    hurried = make_model(ngram_range=(1, 1), char_ngram_range=None).fit(data)
    assert pressed == [1]
    assert hurried.stopped_ == "interrupt"
    assert evaluate(data, decisions=hurried.predict(data), metrics=["hf1"])["hf1"] > 0.8


def test_ctrl_c_in_a_trial_ends_all_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[str] = []

    def interrupted(name: str, job: Any) -> Any:
        fits.append(name)
        if len(fits) == 1:
            job.train.stop.interrupt()
        return fit_head(name, job)

    monkeypatch.setattr(linear, "fit_head", interrupted)
    model = make_model().fit(load_sample()[::4])
    # One trial, and then the model itself.
    assert fits == ["nodes", "nodes"]
    assert model.stopped_ == "interrupt"
    assert model.featurizer_.tfidf.shape.ngram_range == (1, 1)


def test_a_second_ctrl_c_gives_up() -> None:
    stop = StopSignal()

    def done(number: int) -> None:
        # What is waited for next is interrupted again.
        monkey.setattr("concurrent.futures.Future.result", lambda self: (_ for _ in ()).throw(KeyboardInterrupt()))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as monkey, pytest.raises(KeyboardInterrupt):
        in_threads(lambda task: None, range(4), done, stop.interrupt)
    assert stop.reason == "interrupt"


# Weights of documents


def test_weights_of_documents_are_those_of_liblinear(sample: Dataset, features: sparse.csr_array) -> None:
    train = training_of(sample, None, None)
    outputs = outputs_of(train)
    targets = outputs.targets(train.labels)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, len(train))
    rows = TrainingRows(features, [np.arange(0, 240)], max_iter=60, weights=weights)
    found = learned(rows, outputs.count, lambda take: train_hinge(rows, targets, 3.0, take, NEVER, lambda done: None))
    x, y = with_bias(features), np.where(targets[:, [7]].toarray().ravel(), 1, -1)

    def loss(w: Any) -> float:
        return float(0.5 * (w**2).sum() + 3.0 * (weights * np.maximum(0, 1 - y * (x @ w)) ** 2).sum())

    svm = LinearSVC(C=3.0, fit_intercept=False, tol=1e-6, max_iter=20_000)
    least = loss(svm.fit(x, y, sample_weight=weights).coef_.ravel())
    assert least <= loss(stacked(found, 7)) * 1.0001 <= least * 1.01


@pytest.mark.parametrize("softmaxed", [True, False])
@pytest.mark.slow
def test_weights_of_documents_count_in_logistic_regression(
    sample: Dataset, features: sparse.csr_array, softmaxed: bool
) -> None:
    train = training_of(sample, None, None)
    outputs = outputs_of(train, shared=False)
    group = (softmax_groups(outputs, train, 0.0) if softmaxed else sigmoid_groups(outputs, train))[0]
    weights = np.random.default_rng(0).uniform(0.2, 3.0, len(train))
    rows = TrainingRows(features, [np.arange(0, 100)], max_iter=100, weights=weights)
    found = learned(
        rows, outputs.count, lambda take: train_groups(rows, [group], softmaxed, 10.0, take, NEVER, lambda done: None)
    )
    x, y, each = with_bias(features[group.rows]), group.true, weights[group.rows]

    def loss(w: Any) -> float:
        z = x @ w
        of_true = (y * z).sum(axis=1)
        whole = np.logaddexp.reduce(z, axis=1) if softmaxed else np.logaddexp(0, z).sum(axis=1)
        return cross_entropies(w, each * (whole - of_true))

    def errors(w: Any) -> Any:
        return each[:, None] * (y - (softmax(x @ w, axis=1) if softmaxed else expit(x @ w)))

    ours = np.stack([stacked(found, output) for output in group.outputs], axis=1)
    least = lowest(loss, x, ours, errors)
    assert least <= loss(ours) * 1.0001 <= least * 1.01


@pytest.mark.parametrize("head", HEADS)
def test_a_document_of_weight_0_is_as_if_it_were_not_there(head: str) -> None:
    case = CASES["leaf"]
    weights = np.array([1.0] * 40 + [0.0] * (len(case.texts) - 40))
    one = make_model(head=head, hierarchy=TREE).fit(case.texts, case.labels, sample_weight=weights)
    two = make_model(head=head, hierarchy=TREE).fit(case.texts[:40], case.labels[:40])
    assert np.array_equal(one.score(case.texts).dense(), two.score(case.texts).dense())


@pytest.mark.parametrize("head", HEADS)
def test_equal_weights_change_nothing(head: str) -> None:
    case = CASES["leaf"]
    one = make_model(head=head, hierarchy=TREE).fit(case.texts, case.labels, sample_weight=np.ones(len(case.texts)))
    two = make_model(head=head, hierarchy=TREE).fit(case.texts, case.labels)
    assert np.array_equal(one.score(case.texts).dense(), two.score(case.texts).dense())


def test_heavy_documents_are_believed() -> None:
    texts, labels = ["woof"] * 20, [["terrier"], ["poodle"]] * 10
    for heavy, light, weights in (("terrier", "poodle", [5.0, 0.5] * 10), ("poodle", "terrier", [0.5, 5.0] * 10)):
        model = make_model("linear", hierarchy=TREE, max_iter=300).fit(texts, labels, sample_weight=weights)
        steps = (model.explain("woof", TREE.names.index(name))[-1] for name in (heavy, light))
        one, two = (sum(value for _, value in [*step.supporting_terms, *step.opposing_terms]) for step in steps)
        assert one > two


def test_weights_that_cannot_be_meant_are_refused() -> None:
    case = CASES["leaf"]
    model = make_model("linear", hierarchy=TREE)
    with pytest.raises(TreelabelError, match=r"sample_weight has the shape \(3,\), but there are 49 documents"):
        model.fit(case.texts, case.labels, sample_weight=[1, 2, 3])
    for wrong in (-1.0, np.nan, 0.0):
        with pytest.raises(TreelabelError, match="sample_weight must hold numbers from 0 on, some of them above 0"):
            model.fit(case.texts, case.labels, sample_weight=np.full(len(case.texts), wrong))
    with pytest.raises(TreelabelError, match="the model nothing cannot weigh documents; leave sample_weight out"):
        make_model("nothing", hierarchy=TREE).fit(case.texts, case.labels, sample_weight=np.ones(len(case.texts)))


def test_the_most_frequent_labels_are_those_of_heavy_documents() -> None:
    model = make_model("most_frequent", hierarchy=TREE).fit(["a", "b"], ["cat", "cake"], sample_weight=[3, 1])
    names = dict(zip(TREE.names, model.score(["c"]).dense()[0].tolist(), strict=True))
    assert (names["cat"], names["cake"], names["soup"]) == (0.75, 0.25, 0.0)


# Texts without a known word


@pytest.mark.parametrize("several", [False, True])
def test_a_text_without_known_words_gets_the_shares_of_training(several: bool) -> None:
    tree = Hierarchy.from_paths(["A > a", "A > b", "B > c"])
    leaves = [["a"], ["a"], ["b"], ["a", "c"] if several else ["c"]] * 20
    texts = [" ".join(f"word{label} more{label}" for label in row) for row in leaves]
    model = make_model("linear", ngram_range=(1, 1), char_ngram_range=None).fit(texts, leaves, hierarchy=tree)
    expected = [1.0, 0.25, 0.75, 0.25, 0.25] if several else [0.75, 0.25, 0.5, 0.25, 0.25]
    unknown = ["zzz", texts[0], "qqq xxx", ""]
    dense = model.score(unknown).dense()
    assert [dense[row].tolist() for row in (0, 2, 3)] == [expected] * 3
    assert (dense[1] == model.score(texts[:1]).dense()[0]).all()
    assert not np.allclose(dense[1], expected, atol=0.1)
    top = model.score(unknown, top=2)
    assert top.is_sparse
    largest = sorted(expected, reverse=True)[:2]
    assert sorted(top.csr()[[0]].data.tolist(), reverse=True) == largest
    assert top.csr()[[1]].nnz <= 2


def test_rows_are_replaced_alike_in_dense_and_sparse_scores() -> None:
    values, prior = np.arange(12, dtype=np.float32).reshape(3, 4) / 12, np.array([0.5, 0.25, 0.125, 0.5], np.float32)
    rows = np.array([False, True, False])
    dense = replace_rows(values, rows, prior, None)
    assert (dense == [values[0], prior, values[2]]).all()
    assert (replace_rows(sparse.csr_array(values), rows, prior, 9).toarray() == dense).all()
    some = replace_rows(sparse.csr_array(values), rows, prior, 3).toarray()
    assert some[1].tolist() == [0.5, 0.25, 0, 0.5]
    assert replace_rows(values, rows & False, prior, None) is values


@pytest.mark.parametrize("min_df", [1, 2])
def test_held_out_documents_are_written_as_new_ones(min_df: int) -> None:
    texts = ["a b c", "a b d", "a c", "b d e", "a e f f"]
    featurizer, rows = SparseFeaturizer.fit(
        training_of(texts, list("xyxyx"), None), shape_of((1, 2), None, 256), min_df, None, 0.5
    )
    assert featurizer.tfidf is not None
    folds = [np.array([1, 4]), np.array([0])]
    held = featurizer.held_rows(rows, folds, min_df).toarray()
    expected = []
    for fold in folds:
        others = np.setdiff1d(np.arange(5), fold)
        known = (rows[others].toarray() > 0).sum(axis=0) >= min_df
        fewer = Tfidf(featurizer.tfidf.shape, featurizer.tfidf.buckets[known], featurizer.tfidf.idf[known])
        row = np.zeros((len(fold), rows.shape[1]))
        row[:, known] = fewer.transform([texts[number] for number in fold]).toarray()
        expected.append(row)
    assert held == pytest.approx(np.concatenate(expected), abs=1e-6)


@pytest.mark.parametrize(("documents", "head"), [(700, "nodes"), (700, "conditional_sigmoid"), (3_200, "nodes")])
@pytest.mark.slow
def test_probabilities_of_texts_with_words_of_their_own_sum_to_the_truth(documents: int, head: str) -> None:
    """Half the words of every text are in no other one: new texts have nothing like them."""
    rng = np.random.default_rng(0)
    names = [f"{top} > {top}{low}" for top in "ABC" for low in range(4)]

    def draw(count: int) -> tuple[list[str], list[list[str]]]:
        labels = [rng.choice(12, 1 + int(rng.random() < 0.3), replace=False) for _ in range(count)]
        words = [[f"w{label * 3 + rng.integers(0, 5)}" for label in some] for some in labels]
        unique = [[f"u{number}" for number in rng.integers(0, 1 << 40, 3)] for _ in range(count)]
        return [" ".join([*a, *b]) for a, b in zip(words, unique, strict=True)], [
            [names[label] for label in some] for some in labels
        ]

    texts, labels = draw(documents)
    model = make_model("linear", head=head, ngram_range=(1, 1), char_ngram_range=None).fit(texts, labels)
    texts, labels = draw(4_000)
    true = model.hierarchy_.closure(encode(model.hierarchy_, labels)).nnz
    assert model.score(texts).dense().sum(dtype=np.float64) == pytest.approx(true, rel=0.05)
