"""What `fit` is given, `predict` answers: names, paths, lists, numbers, indicator matrices."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from treelabel import Dataset, Hierarchy, TreelabelError, evaluate, load_model, make_model, save_model
from treelabel.models.label_forms import LabelForm, derived_hierarchy, separator_of, take_labels

PATHS = ["animal > cat", "animal > dog", "food > soup", "food > tea"]
TREE = Hierarchy.from_paths(PATHS)


def texts_of(labels: list[str], seed: int = 0) -> list[str]:
    """Make a text of each label; one in four is about another label, so that no model is always right."""
    rng = np.random.default_rng(seed)
    named = [PATHS[rng.integers(len(PATHS))] if rng.random() < 0.25 else label for label in labels]
    return [f"a text about {name.split(' > ')[-1]} number {row}" for row, name in enumerate(named)]


def drawn(rows: int = 48, seed: int = 0) -> tuple[list[str], list[str]]:
    """Draw labels as paths, and texts."""
    labels = [PATHS[which] for which in np.random.default_rng(seed).permutation(np.arange(rows) % len(PATHS))]
    return texts_of(labels, seed), labels


def indicator(labels: list[str], closed: bool) -> Any:
    matrix = np.zeros((len(labels), len(TREE)), np.int64)
    for row, label in enumerate(labels):
        leaf = label.split(" > ")[-1]
        matrix[row, TREE.names.index(leaf)] = 1
        if closed:
            matrix[row, TREE.names.index(label.split(" > ")[0])] = 1
    return matrix


def test_path_labels_make_the_hierarchy_and_are_answered_as_paths() -> None:
    texts, labels = drawn()
    model = make_model("linear").fit(texts, labels)
    assert model.hierarchy_.paths() == ["animal", "food", *PATHS]
    found = model.predict(["cat", "soup"])
    assert isinstance(found, np.ndarray)
    assert found.tolist() == ["animal > cat", "food > soup"]
    assert model.hierarchy is None


@pytest.mark.parametrize("scoring", ["accuracy", None])
@pytest.mark.parametrize("as_path", [True, False])
def test_cross_validated_accuracy_is_what_it_is_by_hand(scoring: str | None, as_path: bool) -> None:
    texts, labels = drawn()
    given = labels if as_path else [label.split(" > ")[-1] for label in labels]
    folds, model = KFold(3), make_model("linear")
    by_hand = []
    for train, test in folds.split(texts):
        fitted = clone(model).fit([texts[row] for row in train], [given[row] for row in train])
        best = fitted.score([texts[row] for row in test]).dense()[:, fitted.hierarchy_.leaves].argmax(axis=1)
        written = fitted.hierarchy_.paths(fitted.hierarchy_.leaves)
        by_hand.append(np.mean([written[which] == given[row] for which, row in zip(best, test, strict=True)]))
    found = cross_val_score(model, texts, given, cv=folds, scoring=scoring)
    assert found.tolist() == by_hand
    assert 0.5 < np.mean(by_hand) < 1


def test_lists_of_paths_are_answered_as_lists_of_paths_and_names_as_names() -> None:
    texts, labels = drawn()
    of_paths = make_model("linear").fit(texts, [[label] for label in labels])
    assert of_paths.predict(["cat"]) == [["animal > cat"]]
    of_names = make_model("linear", hierarchy=TREE).fit(texts, [[label.split(" > ")[-1]] for label in labels])
    assert of_names.predict(["cat"]) == [["cat"]]
    assert of_names.predict(["cat"], paths=True) == of_paths.predict(["cat"], paths=True) == [["animal > cat"]]
    assert (
        of_paths.predict(["cat"], paths=False) == of_paths.predict(["cat"], rule="best_leaf", paths=False) == [["cat"]]
    )


def test_single_names_are_answered_as_an_array_of_names() -> None:
    texts, labels = drawn()
    names = np.array([label.split(" > ")[-1] for label in labels])
    for model in (make_model("linear"), make_model("linear", hierarchy=TREE)):
        found = model.fit(texts, names).predict(texts)
        assert found.dtype.kind == "U"
        assert found.shape == (len(texts),)
        assert accuracy_score(names, found) == model.score(texts, names)
        assert model.predict([]).tolist() == []
    assert make_model("linear").fit(texts, names).hierarchy_.max_depth == 1


def test_a_dataset_is_answered_with_lists_of_names_as_ever() -> None:
    texts, labels = drawn()
    data = Dataset.of(texts, labels, TREE)
    assert make_model("linear").fit(data).predict(["cat"]) == [["cat"]]


def test_other_separators_come_back_as_they_were() -> None:
    texts, labels = drawn()
    slashed = [label.replace(" > ", "/") for label in labels]
    model = make_model("linear", hierarchy=TREE).fit(texts, slashed)
    assert model.predict(["cat"]).tolist() == ["animal/cat"]
    matrix = take_labels(["animal/cat", "food > tea"], TREE)[0]
    assert separator_of(TREE, matrix, ["animal/cat", "food > tea"]) == " > "


@pytest.mark.parametrize("closed", [True, False])
def test_indicator_matrices_are_taken_and_answered(closed: bool) -> None:
    texts, labels = drawn()
    dense = indicator(labels, closed)
    named = make_model("linear", hierarchy=TREE).fit(texts, labels)
    for matrix in (dense, dense.astype(bool), sparse.csr_array(dense), sparse.csr_matrix(dense)):
        model = make_model("linear", hierarchy=TREE).fit(texts, matrix)
        assert (model.score(texts).dense() == named.score(texts).dense()).all()
        found = model.predict(texts)
        assert sparse.issparse(found) == sparse.issparse(matrix)
        assert found.shape == dense.shape
        assert accuracy_score(dense, found) == model.score(texts, matrix) == named.score(texts, labels)
        assert named.score(texts, matrix) == named.score(texts, labels)
        assert evaluate(matrix, decisions=found, hierarchy=TREE, metrics=["hf1"])["hf1"] == pytest.approx(
            evaluate(labels, decisions=named.predict(texts), hierarchy=TREE, metrics=["hf1"])["hf1"]
        )


def test_indicator_matrices_need_a_hierarchy_with_their_columns() -> None:
    with pytest.raises(TreelabelError, match="an indicator matrix needs a hierarchy"):
        make_model("linear").fit(["a", "b"], np.eye(2))
    with pytest.raises(TreelabelError, match="2 columns, but the hierarchy has 6 nodes"):
        make_model("linear", hierarchy=TREE).fit(["a", "b"], np.eye(2))
    with pytest.raises(TreelabelError, match="3 texts, but labels for 2"):
        make_model("linear", hierarchy=TREE).fit(["a", "b", "c"], sparse.eye_array(2, 6).tocsr())


def test_whole_numbers_are_flat_labels_and_come_back_as_numbers() -> None:
    texts, labels = drawn()
    numbers = [10 * PATHS.index(label) for label in labels]
    model = make_model("linear").fit(texts, numbers)
    assert model.hierarchy_.names == ("0", "10", "20", "30")
    assert model.predict(["cat", "tea"]).tolist() == [0, 30]
    assert model.score(texts, numbers) == accuracy_score(numbers, model.predict(texts))


def test_labels_of_the_test_fold_alone_are_wrong_and_no_error() -> None:
    texts, labels = drawn()
    model = make_model("linear").fit(texts, labels)
    assert model.score(["cat", "cat"], ["animal > cat", "plant > rose"]) == 0.5
    with pytest.raises(TreelabelError, match="unknown label"):
        make_model("linear", hierarchy=TREE).fit(texts, labels).score(["cat"], ["plant > rose"])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([None, None], "no document has a label"),
        ([1.5, 2.5], "expected labels that are names"),
        (["", "A"], "names or paths"),
    ],
)
def test_what_makes_no_hierarchy_is_refused(labels: list[Any], message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        make_model("nothing").fit(["a", "b"], labels)


def test_the_form_is_saved_and_older_folders_answer_with_lists(tmp_path: Path) -> None:
    texts, labels = drawn()
    model = make_model("most_frequent").fit(texts, labels)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.form_ == model.form_ == LabelForm("one", " > ", derived=True)
    assert loaded.predict(["a"]).tolist() == model.predict(["a"]).tolist()
    description = tmp_path / "model" / "model.json"
    stored = json.loads(description.read_text())
    del stored["form"]
    description.write_text(json.dumps(stored))
    assert load_model(tmp_path / "model").predict(["a"]) == [[loaded.predict(["a"])[0].split(" > ")[-1]]]
    description.write_text(json.dumps({**stored, "form": {"kind": "any", "sep": None, "closed": 1, "derived": True}}))
    with pytest.raises(TreelabelError, match="damaged: 'form'"):
        load_model(tmp_path / "model")


def test_models_that_have_not_learned_say_so_as_scikit_learn_does() -> None:
    model = make_model("linear")
    for ask in (lambda: model.predict(["a"]), lambda: model.score(["a"]), lambda: save_model(model, "nowhere")):
        with pytest.raises(NotFittedError, match="has not learned anything yet") as refused:
            ask()
        assert isinstance(refused.value, TreelabelError)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    check_is_fitted(model.fit(["a", "b"], ["x", "y"]))
    assert is_classifier(model)


def test_scikit_learn_searches_pipes_and_votes_with_paths() -> None:
    texts, labels = drawn()
    grid = GridSearchCV(make_model("linear"), {"min_df": np.array([1, 2])}, cv=3, scoring="accuracy").fit(texts, labels)
    assert grid.best_score_ > 0.5
    piped = make_pipeline(FunctionTransformer(lambda given: [text.upper() for text in given]), make_model("linear"))
    assert piped.fit(texts, labels).predict(["about soup"]).tolist() == ["food > soup"]
    left_out = cross_val_predict(make_model("linear"), texts, labels, cv=3)
    assert set(left_out) <= set(PATHS)
    models = [(name, make_model(name)) for name in ("linear", "bag", "most_frequent")]
    for voting in ("hard", "soft"):
        found = VotingClassifier(models, voting=voting).fit(texts, labels).predict(["about soup", "about cat"])
        assert found.tolist() == ["food > soup", "animal > cat"]


def test_the_derived_hierarchy_does_not_depend_on_the_order_of_documents() -> None:
    _, labels = drawn()
    assert derived_hierarchy(labels).fingerprint == derived_hierarchy(labels[::-1]).fingerprint
