"""Stacks: the weights are the best there are, learned where parts have not looked, and parts are saved with them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import WordVectors, load_model, make_model, registered
from treelabel import Dataset, Hierarchy, Scores, TreelabelError
from treelabel.calibration.pools import CandidatePool
from treelabel.core.array_schema import Arrays, Schema
from treelabel.core.strings import Strings
from treelabel.models.base import Model, Training
from treelabel.models.check import CASES, TREE, made_up
from treelabel.models.model_inputs import training_of
from treelabel.stack.stratified_folds import make_folds

SETS = {kind: Dataset.of(case.texts, case.labels, case.hierarchy) for kind, case in CASES.items()}


class Parrot(Model):
    """Knows the texts that it has learned by heart, and takes any other for the first of them."""

    name = "parrot"

    def __init__(self, hierarchy: Hierarchy | None = None, seed: int = 0) -> None:
        self.hierarchy = hierarchy
        self.seed = seed

    def _fit(self, train: Training) -> None:
        closed = train.closed_labels.toarray().astype(np.float32)
        self.known_ = dict(zip(train.texts, closed, strict=True))
        self.other_ = 0.9 * closed[0] + 0.1 * closed.mean(axis=0)

    def _score(self, texts: Strings) -> Scores:
        rows = [self.known_.get(text, self.other_) for text in texts]
        return Scores(self.hierarchy_, np.array(rows, np.float32).reshape(len(texts), len(self.hierarchy_)))

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {}

    def _schema(self, values: dict[str, Any]) -> Schema:
        return Schema()

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.known_, self.other_ = {}, np.zeros(len(self.hierarchy_), np.float32)


class Guess(Parrot):
    """Says anything of any text, the same each time."""

    name = "guess"

    def _score(self, texts: Strings) -> Scores:
        h = self.hierarchy_
        seeds = [int.from_bytes(WordVectors().vector(text or "none").tobytes()[:4], "little") for text in texts]
        p = np.array([np.random.default_rng(seed).dirichlet(np.ones(len(h.leaves))) for seed in seeds])
        return Scores.from_leaves(h, h.leaves.tolist(), p.reshape(len(texts), len(h.leaves)))


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    with registered("words", WordVectors):
        yield


def stack(*models: Any, **settings: Any) -> Any:
    return make_model("stack", estimators=models, **settings)


def noisy(count: int, seed: int) -> Dataset:
    """Documents of which one in six has a wrong label: where one part makes no mistake, no other matters."""
    names = ["terrier", "poodle", "cat", "cake", "soup"]
    case = made_up(TREE, [[names[row % 5]] for row in range(count)], seed)
    wrong = np.random.default_rng(seed).random(count) < 1 / 6
    labels = [[names[row % 3]] if wrong[row] else given for row, given in enumerate(case.labels)]
    return Dataset.of(case.texts, labels, TREE)


# Pools


def test_one_part_is_nearly_itself() -> None:
    data = SETS["leaf"]
    alone, stacked = make_model("linear").fit(data), stack("linear").fit(data)
    assert stacked.predict(data) == alone.predict(data)
    assert stacked.score(data).dense() == pytest.approx(alone.score(data).dense(), abs=0.15)


@pytest.mark.parametrize("useless", [Guess(), Parrot()])
def test_a_part_that_knows_nothing_new_counts_for_nothing(useless: Model) -> None:
    model = stack("linear", useless).fit(noisy(200, seed=1))
    linear, other = model.pool_.weights
    assert linear > 0.5
    # By heart the parrot would be the better one by far.
    assert other < 0.25 * linear


def test_with_many_paths_a_part_that_knows_nothing_new_counts_for_nothing() -> None:
    data = SETS["many"]
    weights = stack("linear", Parrot()).fit(data).pool_.weights[1:3]
    assert (weights[:, 1] < 0.35 * weights[:, 0]).all()


# Folds


def test_each_document_is_left_out_once_and_labels_are_spread() -> None:
    data = SETS["leaf"]
    train = training_of(data, None, None)
    parts = make_folds(train, 4, seed=0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(train)))
    ends = train.hierarchy.most_specific(train.labels).indices
    cats = train.hierarchy.names.index("cat")
    assert [int((ends[part] == cats).sum()) for part in parts] == [3, 3, 3, 3]
    assert make_folds(train[[0]], 4, seed=0) == []


def test_of_very_many_documents_one_part_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treelabel.stack.stratified_folds.MANY_DOCUMENTS", 40)
    monkeypatch.setattr("treelabel.stack.stratified_folds.LEFT_OUT_OF_MANY", 10)
    train = training_of(SETS["leaf"], None, None)
    assert [len(part) for part in make_folds(train, 4, seed=0)] == [10]
    monkeypatch.setattr("treelabel.stack.stratified_folds.LEFT_OUT_OF_MANY", 80)
    linear, parrot = stack("linear", Parrot()).fit(noisy(200, seed=1)).pool_.weights
    assert parrot < 0.35 * linear


def test_a_deadline_leaves_parts_that_count_alike() -> None:
    model = stack("linear", "most_frequent").fit(SETS["leaf"], max_seconds=0)
    assert model.pool_.weights.tolist() == [0.5, 0.5]
    assert model.predict(["cat meows softly"]) == [["cat"]]


def test_weights_are_learned_on_validation_data_if_there_are_any() -> None:
    class Counted(Parrot):
        name = "counted"
        fits = 0

        def _fit(self, train: Training) -> None:
            Counted.fits += 1
            super()._fit(train)

    model = stack(Counted(), "linear").fit(noisy(100, seed=1), valid=noisy(100, seed=2))
    assert Counted.fits == 1
    assert model.pool_.weights[0] < 0.35 * model.pool_.weights[1]


# Settings


def test_parts_get_the_encoder_unless_they_say_otherwise() -> None:
    models: Sequence[Any] = ("linear", {"model": "linear", "encoder": None, "char_ngram_range": [3, 4]}, "bag")
    parts = make_model("stack", estimators=models, encoder="words", seed=7)._make_estimators()
    assert [part.get_params().get("encoder") for part in parts] == ["words", None, None]
    assert [part.get_params()["seed"] for part in parts] == [7, 7, 7]
    assert parts[1].get_params()["char_ngram_range"] == (3, 4)


@pytest.mark.slow
def test_what_cannot_be_a_part_is_said() -> None:
    data = SETS["leaf"]
    with pytest.raises(TreelabelError, match="needs estimators="):
        stack().fit(data)
    with pytest.raises(TreelabelError, match="the setting cv is 1, expected a whole number from 2 to 100"):
        stack("linear", cv=1).fit(data)
    with pytest.raises(TreelabelError, match="unknown model 'liner'"):
        stack("liner").fit(data)
    with pytest.raises(TreelabelError, match=r"the setting estimators\[0\] is 3, expected text or a mapping or Model"):
        stack(3).fit(data)


def test_models_and_mappings_are_saved_with_what_they_are(tmp_path: Path) -> None:
    data = SETS["path"]
    parts = make_model("linear", ngram_range=(1, 2)), {"model": "prototype", "encoder": WordVectors(), "shrinkage": 1.0}
    model = stack(*parts, cv=2).fit(data)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.score(data).dense(), model.score(data).dense())
    assert [part.name for part in loaded.estimators_] == ["linear", "prototype"]
    assert loaded.estimators_[0].get_params()["ngram_range"] == (1, 2)


@pytest.mark.slow
def test_without_models_it_is_linear_twice_and_prototype(tmp_path: Path) -> None:
    data = SETS["leaf"]
    model = make_model("stack", encoder="words", cv=2).fit(data)
    assert [part.name for part in model.estimators_] == ["linear", "linear", "prototype"]
    first, second, third = (part.get_params()["encoder"] for part in model.estimators_)
    # The encoder is made once.
    assert first is None
    assert second is third
    assert second.name == "words"
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.score(data).dense(), model.score(data).dense())


def test_the_first_part_that_can_explain_does() -> None:
    data = SETS["leaf"]
    model = stack("most_frequent", "linear", cv=2).fit(data)
    steps = model.explain("the cat meows today")
    assert [step.label for step in steps] == ["pet", "cat"]
    # What is explained, and how likely it is, is what the stack says.
    assert steps[1].p == pytest.approx(model.score(["the cat meows today"]).dense()[0, TREE.names.index("cat")])
    assert [word for word, _ in steps[1].supporting_terms]
    with pytest.raises(TreelabelError, match="the model stack cannot explain"):
        stack("most_frequent", cv=2).fit(data).explain("cat")


def test_two_labels_of_one_name_are_told_apart() -> None:
    h = Hierarchy.from_paths(["pet > other", "food > other"])
    texts, labels = ["dog barks", "cake baked"] * 12, [["pet > other"], ["food > other"]] * 12
    model = stack("linear", cv=2).fit(texts, labels, hierarchy=h)
    steps, scores = model.explain("cake baked"), model.score(["cake baked"]).dense()[0]
    assert [step.p for step in steps] == pytest.approx(
        [scores[h.paths().index(path)] for path in ("food", "food > other")]
    )


def test_the_default_estimators_take_the_best_encoder_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treelabel.stack.model.default_encoder", WordVectors)
    case = CASES["leaf"]
    model = make_model("stack", cv=2).fit(case.texts, case.labels, hierarchy=TREE)
    *linear, prototype = model.estimators_
    encoders = [*(estimator.featurizer_.encoder for estimator in linear), prototype.encoder_]
    assert [None if encoder is None else encoder.name for encoder in encoders] == [None, "words", "words"]


# Very many labels


def many_labels(count: int) -> tuple[Hierarchy, list[str], list[list[str]]]:
    """Texts that name two of very many labels each."""
    names = [f"thing{number}" for number in range(2_500)]
    rng = np.random.default_rng(0)
    labels = [[names[at] for at in rng.choice(300, 2, replace=False)] for _ in range(count)]
    texts = [f"{' and '.join(row)} of word{rng.integers(40)}" for row in labels]
    return Hierarchy.flat(names), texts, labels


def test_very_many_labels_stay_sparse_and_are_saved(tmp_path: Path) -> None:
    h, texts, labels = many_labels(150)
    model = stack("memory", "lexical", cv=2, hierarchy=h).fit(texts, labels)
    assert isinstance(model.pool_, CandidatePool)
    scores = model.score(texts)
    assert scores.is_sparse
    assert scores.csr().nnz <= 200 * len(texts)
    best = model.score(texts, top=2)
    true = training_of(texts, labels, h).closed_labels
    assert best.csr().astype(bool).multiply(true.astype(bool)).sum() > 0.9 * true.nnz
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").score(texts).dense(), scores.dense())


def test_the_usual_parts_depend_on_the_labels() -> None:
    few, many = make_model("stack", encoder="words"), make_model("stack", encoder="words", descriptions={"thing1": "x"})
    assert [part.name for part in few._make_estimators()] == ["linear", "linear", "prototype"]
    many.hierarchy_, many.regime_ = many_labels(1)[0], "multi_path"
    parts = many._make_estimators()
    assert [part.name for part in parts] == ["extreme", "memory", "lexical", "prototype"]
    assert parts[2].descriptions == {"thing1": "x"}
    assert [part.encoder for part in parts if part.name != "lexical"] == [None, "words", "words"]
