"""Every model of MODELS through one battery, and what the linear model promises."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline

from tests.helpers import WordVectors, registered
from treelabel import (
    MODELS,
    Dataset,
    Scores,
    TreelabelError,
    evaluate,
    load_model,
    load_sample,
    make_model,
    split,
)
from treelabel.core.strings import Strings
from treelabel.models.base import Model, Training
from treelabel.models.baselines import MostFrequent
from treelabel.models.check import CASES, CHECKS, DAG, TREE, check_model, fit_case, it_learns, made_up
from treelabel.text import NgramShape, Tfidf
from treelabel.text.ngram_names import named_ngrams
from treelabel.text.ngrams import count_ngrams

SETS: dict[str, Dataset] = {kind: Dataset.of(case.texts, case.labels, case.hierarchy) for kind, case in CASES.items()}
# Those that learn from texts; the others are held to everything else.
LEARNERS = ["linear", "bag", "prototype", "memory", "lexical", "stack"]

# Few epochs over small vectors, and few and quick parts of a stack: what the battery asks for does not depend on them.
QUICK = {"model": "prototype", "parent_prior_strength": 1.0, "label_prior_strength": 1.0}
NEEDED: dict[str, dict[str, Any]] = {
    "prototype": {"encoder": "words"},
    "tuned_prototype": {"encoder": "words"},
    "stack": {"encoder": "words", "cv": 2, "estimators": ("linear", QUICK)},
    "attention_xml": {"encoder": "words", "epochs": 2, "lstm_size": 8, "mlp_size": 8},
    "light_xml": {"encoder": "words", "epochs": 2},
    "neural": {"encoder": "words", "epochs": 2},
    "hitin": {"encoder": "words", "epochs": 2},
    "hgclr": {"encoder": "words", "epochs": 2},
    "hbgl": {"encoder": "words", "epochs": 2, "global_steps": 5},
    "aplc_xlnet": {"encoder": "words", "epochs": 2},
    "x_transformer": {"encoder": "words", "epochs": 2},
}


def make(name: str, **settings: Any) -> Model:
    """Make a model with what it cannot do without."""
    return make_model(name, **NEEDED.get(name, {}), **settings)


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    with registered("words", WordVectors):
        yield


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@cache
def fitted(name: str, kind: str) -> Model:
    """Return a model that has learned a case: what the battery asks of it changes nothing in it."""
    return fit_case(lambda: make(name, seed=3), CASES[kind])


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.slow
def test_every_model_stands_the_battery(name: str, check: str, kind: str) -> None:
    CHECKS[check](fitted(name, kind), CASES[kind])


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_learns_what_words_mean(name: str, kind: str) -> None:
    it_learns(fit_case(lambda: make(name), CASES[kind]), CASES[kind])


def test_a_model_that_breaks_a_promise_is_found_out() -> None:
    class Wrong(MostFrequent):
        def _score(self, texts: Strings) -> Scores:
            return Scores(self.hierarchy_, np.linspace(0, 1, len(self.hierarchy_))[None].repeat(len(texts), 0))

    check_model(MostFrequent, learns=False)
    with pytest.raises(AssertionError, match=r"scores_are_sound \(leaf\): a node is likelier than its parent"):
        check_model(Wrong, learns=False)
    with pytest.raises(AssertionError, match=r"it_learns \(leaf\): hF1 on what it has learned is 0"):
        check_model(MostFrequent)


def test_a_model_may_refuse_some_kinds_of_labels_but_not_all() -> None:
    class Choosy(MostFrequent):
        takes = ("single_path",)

        def _fit(self, train: Training) -> None:
            if train.regime not in self.takes:
                raise TreelabelError("one leaf a document is needed")
            super()._fit(train)

    assert check_model(Choosy, learns=False) == ("path", "many")
    with pytest.raises(AssertionError, match=r"every kind of labels was refused: .*one leaf a document is needed"):
        check_model(type("Nothing", (Choosy,), {"takes": ()}), learns=False)


@pytest.mark.parametrize("name", LEARNERS)
def test_labels_never_seen_in_training_do_no_harm(name: str) -> None:
    case = made_up(TREE, [["terrier"], ["cat"]] * 10)
    model = fit_case(lambda: make(name), case)
    assert set(map(tuple, model.predict(case.texts))) == {("terrier",), ("cat",)}


@pytest.mark.parametrize("name", LEARNERS)
def test_one_document_is_enough_to_begin(name: str) -> None:
    model = make(name).fit(["woof"], [["terrier"]], hierarchy=TREE)
    assert model.predict(["woof"]) == [["terrier"]]
    assert model.predict(["woof"], paths=True) == [["pet > dog > terrier"]]


@pytest.mark.slow
def test_ids_of_a_dataset_go_with_its_scores(name: str) -> None:
    data = SETS["leaf"]
    assert make(name).fit(data).score(data).ids == tuple(data.ids)


@pytest.mark.slow
def test_a_model_is_an_estimator_of_scikit_learn(name: str) -> None:
    data = SETS["leaf"]
    texts, labels = np.array(list(data.texts), object), np.array([row[0] for row in data.paths()], object)
    model = make(name, hierarchy=TREE)
    copied = clone(model.set_params(seed=5))
    assert copied.get_params()["seed"] == 5
    folds = KFold(3, shuffle=True, random_state=0)
    least = 0.8 if name in LEARNERS else -1.0
    assert cross_val_score(model, texts, labels, cv=folds).mean() > least
    whole = Pipeline([("model", model)]).fit(texts, labels)
    # One label per text in, one label per text out.
    assert whole.predict(texts[:2]).tolist() == model.fit(texts, labels).predict(texts[:2]).tolist()
    search = GridSearchCV(model, {"seed": [0, 1]}, cv=folds).fit(texts, labels)
    assert search.best_score_ > least


@pytest.mark.slow
def test_what_is_wrong_with_training_data_is_said(name: str) -> None:
    model = make(name)
    with pytest.raises(TreelabelError, match="has not learned anything yet"):
        model.score(["a"])
    with pytest.raises(TreelabelError, match="no documents to learn from"):
        model.fit([], [], hierarchy=TREE)
    with pytest.raises(TreelabelError, match="no document has a label"):
        model.fit(["a"], [[]], hierarchy=TREE)
    with pytest.raises(TreelabelError, match="2 texts, but labels for 1"):
        model.fit(["a", "b"], [["cat"]], hierarchy=TREE)
    with pytest.raises(TreelabelError, match="needs a hierarchy"):
        model.fit(["a"], np.ones((1, 2), np.int64))
    with pytest.raises(TreelabelError, match="expected a Dataset, or texts and labels"):
        model.fit(["a"])
    with pytest.raises(TreelabelError, match="labels were given twice"):
        model.fit(SETS["leaf"], [["cat"]])
    with pytest.raises(TreelabelError, match="belongs to another hierarchy"):
        make(name, hierarchy=DAG).fit(SETS["leaf"])
    with pytest.raises(TreelabelError, match=r"put it into a list: \[text\]"):
        model.fit(SETS["leaf"]).score("a text")


def test_unknown_models_and_settings_are_told() -> None:
    with pytest.raises(TreelabelError, match="unknown model 'liner'; did you mean linear"):
        make_model("liner")
    with pytest.raises(TreelabelError, match=r"the model linear has no setting 'maxiter'; did you mean max_iter\?"):
        make_model("linear", maxiter=1)
    with pytest.raises(TreelabelError, match=r"the model linear has no setting 'zzz'; there are: .*C"):
        make_model("linear", zzz=1)


# Model folders


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make_model("linear").fit(SETS["leaf"]).save(tmp_path / "model")
    return tmp_path / "model"


def changed(folder: Path, **values: Any) -> None:
    file = folder / "model.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_a_damaged_or_foreign_folder_is_refused(saved: Path, tmp_path: Path) -> None:
    def refused(match: str) -> None:
        with pytest.raises(TreelabelError, match=match):
            load_model(saved)

    whole = (saved / "arrays.npz").read_bytes()
    (saved / "arrays.npz").write_bytes(whole[:-100])
    refused("arrays.npz is not what was saved")
    (saved / "arrays.npz").unlink()
    refused("arrays.npz is missing")
    (saved / "arrays.npz").write_bytes(whole)
    changed(saved, version=2)
    refused("a model of version 2")
    changed(saved, version=1, settings=3)
    refused("'settings' is missing or of the wrong kind")
    changed(saved, kind="something else")
    refused("no model of treelabel")
    (saved / "model.json").write_text("{")
    refused("damaged")
    (saved / "model.json").unlink()
    refused("no model folder")
    with pytest.raises(TreelabelError, match="no such folder"):
        load_model(tmp_path / "nowhere")


def test_saving_replaces_a_model_and_nothing_else(saved: Path, tmp_path: Path) -> None:
    make_model("linear").fit(SETS["path"]).save(saved, overwrite=True)
    assert load_model(saved).predict(["dog barks loudly"]) == [["dog"]]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(TreelabelError, match="exists and is no model folder"):
        make_model("linear").fit(SETS["path"]).save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["mine", "model"]
    with pytest.raises(TreelabelError, match="call fit before save"):
        make_model("linear").save(tmp_path / "early")


def test_a_model_folder_holds_no_words_of_its_texts(saved: Path) -> None:
    for file in saved.iterdir():
        content = file.read_bytes()
        assert b"barks" not in content
        assert b"word17" not in content


# The linear model


def test_the_sample_is_learned_well_and_probabilities_mean_what_they_say() -> None:
    train, test = split(load_sample(), {"train": 0.8, "test": 0.2}, seed=0).values()
    scores = make_model("linear").fit(train).score(test)
    result = evaluate(test, scores=scores, rule="best_leaf", metrics=["leaf_accuracy", "hf1_auc", "ece"])
    assert result["leaf_accuracy"] > 0.82
    assert result["hf1_auc"] > 0.92
    assert result["ece"] < 0.05


def test_a_deadline_gives_a_model_all_the_same() -> None:
    data = SETS["leaf"]
    hurried = make_model("linear").fit(data, max_seconds=0)
    assert evaluate(data, decisions=hurried.predict(data), metrics=["hf1"])["hf1"] > 0.5


def test_explain_names_the_words_that_decide() -> None:
    model = make_model("linear").fit(SETS["leaf"])
    steps = model.explain("the cat meows today")
    assert [step.label for step in steps] == ["pet", "cat"]
    assert {name for name, _ in steps[1].supporting_terms} >= {"meows", "cat"}
    assert all(value < 0 for step in steps for _, value in step.opposing_terms)
    assert steps[0].p >= steps[1].p


# Features


SHAPES = (
    NgramShape(),
    NgramShape((1, 3)),
    NgramShape((2, 3)),
    NgramShape(None, (1, 2)),
    NgramShape((1, 1), (2, 4)),
    NgramShape((1, 2), (3, 5), 1 << 18),
    NgramShape((1, 2), (3, 5), 100_003),
)


@pytest.mark.parametrize("shape", SHAPES)
def test_named_ngrams_are_those_that_are_counted(shape: NgramShape) -> None:
    for text in ("The cat, the CAT; a_b 42", "Ärger 日本語 i̇stanbul \U00020000x", "", "a"):
        counted = count_ngrams([text], shape)
        assert set(counted.buckets.tolist()) == set(named_ngrams(text, shape).values())
    assert count_ngrams(["b a b"], NgramShape()).counts.tolist() == [2, 1]


def test_tfidf_weighs_as_scikit_learn_does() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = list(load_sample().texts[:400])
    ours = Tfidf.fit_transform(texts, NgramShape((1, 2), n_features=1 << 30))[1]
    theirs = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b").fit_transform(texts)
    assert ours.nnz == theirs.nnz
    assert abs((ours @ ours.T) - (theirs @ theirs.T)).max() < 1e-5


def test_rare_ngrams_are_left_out_on_request() -> None:
    texts = ["a b", "a c", "a d d"]
    assert Tfidf.fit(texts, NgramShape()).width == 4
    assert Tfidf.fit(texts, NgramShape(), min_df=2).width == 1
    assert Tfidf.fit(texts, NgramShape(), min_df=2).transform(["d a"]).toarray().tolist() == [[1.0]]


# Models that know little


def test_the_most_frequent_labels_are_predicted_by_their_shares() -> None:
    data = SETS["leaf"]
    scores = make_model("most_frequent").fit(data).score(["anything"])
    assert scores.dense()[0] == pytest.approx(data.frequencies / len(data))


def test_names_alone_are_a_start() -> None:
    data = SETS["leaf"]
    model = make_model("zero_shot").fit(["no text"], [["soup"]], hierarchy=TREE)
    assert model.predict(["a curly poodle", "some hot soup, please", "cakes"]) == [["poodle"], ["soup"], ["cake"]]
    assert evaluate(data, decisions=model.predict(data), metrics=["hf1"])["hf1"] > 0.8
