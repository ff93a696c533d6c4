"""What `fit` is given, `predict` answers: names, paths, lists, numbers, indicator matrices."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
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
from treelabel.models.label_forms import LabelForm
from treelabel.models.model_inputs import derived_hierarchy, separator_of, take_labels

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
    assert model.hierarchy is model.hierarchy_
    assert model.get_params()["hierarchy"] is None
    assert clone(model).hierarchy is None


@pytest.mark.parametrize("scoring", ["accuracy", None])
@pytest.mark.parametrize("as_path", [True, False])
@pytest.mark.slow
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


def test_the_form_is_saved(tmp_path: Path) -> None:
    texts, labels = drawn()
    model = make_model("most_frequent").fit(texts, labels)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.form_ == model.form_ == LabelForm("one", " > ", derived=True)
    assert loaded.predict(["a"]).tolist() == model.predict(["a"]).tolist()
    description = tmp_path / "model" / "model.json"
    stored = json.loads(description.read_text())
    for wrong in ({"kind": "any"}, {"closed": 1}, {"spellings": [1]}):
        description.write_text(json.dumps(stored | {"form": stored["form"] | wrong}))
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


def as_frame(rows: list[tuple[str, ...]]) -> pd.DataFrame:
    return pd.DataFrame({"kind": [row[0] for row in rows], "name": [row[1] for row in rows]})


@pytest.mark.parametrize("given", [None, TREE], ids=["derived", "given"])
def test_tuples_and_columns_of_levels_are_paths(given: Hierarchy | None) -> None:
    texts, labels = drawn()
    rows = [tuple(label.split(" > ")) for label in labels]
    expected = make_model("linear", hierarchy=given).fit(texts, labels)
    forms: list[Any] = [rows, pd.Series(rows), np.array(rows), np.array(rows, object), as_frame(rows)]
    forms.append(pa.table({"kind": [row[0] for row in rows], "name": [row[1] for row in rows]}))
    for levels in forms:
        model = make_model("linear", hierarchy=given).fit(texts, levels)
        assert model.hierarchy_ == expected.hierarchy_
        assert (model.score(texts).dense() == expected.score(texts).dense()).all()
        found = model.predict(texts)
        assert [" > ".join(path) for path in found] == expected.predict(texts).tolist()
        assert model.score(texts, levels) == expected.score(texts, labels)
        assert evaluate(levels, decisions=found, hierarchy=model.hierarchy_, metrics=["hf1"])["hf1"] > 0.5
        assert isinstance(found, list if isinstance(levels, list | pd.Series) else np.ndarray)


def test_paths_in_columns_may_end_early() -> None:
    expected = ["A", "C", "A > B"]
    ragged: list[Any] = [("A", "B"), ("C",)]
    for levels in (
        ragged,
        [("A", "B"), ("C", "")],
        np.array([["A", "B"], ["C", ""]]),
        pd.DataFrame({"a": ["A", "C"], "b": ["B", None]}),
        pd.DataFrame({"a": ["A", "C"], "b": ["B", np.nan]}, dtype=object),
    ):
        assert derived_hierarchy(levels).paths() == expected
    model = make_model("most_frequent").fit(["a", "b", "c"], np.array([["A", "B"], ["C", ""], ["C", ""]]))
    assert model.predict(["d"]).tolist() == [["C", ""]]
    with pytest.raises(TreelabelError, match=r"row 1: expected the names of the levels .* found ''"):
        derived_hierarchy(np.array([["A", "B"], ["", "B"]]))


@pytest.mark.parametrize(
    "labels",
    [
        [["animal", "cat"], ["food", "soup"]],
        [["animal", "cat"], ["animal", "dog"], ["food", "soup"]],
        [["animal", "cat"], ["animal", "dog"], ["tool"]],
        [np.array(["animal", "cat"]), np.array(["animal", "dog"])],
    ],
)
def test_lists_that_look_like_levels_are_refused_with_what_to_pass(labels: list[Any]) -> None:
    texts = ["a", "b", "c"][: len(labels)]
    with pytest.raises(TreelabelError, match="look like the levels of a path") as refused:
        make_model("nothing").fit(texts, labels)
    assert "('animal', 'cat')" in str(refused.value)
    assert "'animal > cat'" in str(refused.value)
    assert make_model("nothing").fit(texts, [set(row) for row in labels]).hierarchy_.max_depth == 1
    assert make_model("nothing").fit(texts, [tuple(row) for row in labels]).hierarchy_.max_depth == 2


@pytest.mark.parametrize(
    "labels",
    [
        [["cat", "soup"], ["cat", "dog"], ["dog", "soup"]],
        [["cat", "soup"], ["soup", "cat"]],
        [["cat"], ["dog"]],
        [["cat"], ["cat", "dog"]],
        [["animal > cat", "tool"], ["animal > cat", "animal > dog"], ["tool"], ["animal > dog", "tool"]],
    ],
)
def test_lists_of_several_labels_are_taken(labels: list[Any]) -> None:
    model = make_model("nothing").fit(["a", "b", "c", "d"][: len(labels)], labels)
    assert set(model.hierarchy_.paths()) >= {label for row in labels for label in row}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"label": ["x", "y"]}, "a dict with the keys 'label'"),
        ([{"label": "x"}, {"label": "y"}], "row 0: expected a label, a list of labels, or a tuple"),
        ("xy", "expected a list of labels, found one label"),
        ({"x", "y"}, "a set, which has no order"),
        (pd.DataFrame({"a": [0, 2], "b": [1, 0]}), "expected the names of the levels of a path, found 0"),
    ],
)
def test_labels_that_would_be_read_as_others_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        make_model("nothing").fit(["a", "b"], labels)


def test_whole_frames_are_no_levels() -> None:
    texts, labels = drawn()
    with pytest.raises(TreelabelError, match="48 documents have 48 different labels in the first one"):
        make_model("nothing").fit(texts, pd.DataFrame({"body": texts, "category": labels}))


def test_numbers_that_are_no_indicators_are_refused() -> None:
    with pytest.raises(TreelabelError, match="holds 0 and 1"):
        make_model("nothing", hierarchy=TREE).fit(["a", "b"], np.array([[0, 1, 2, 3, 4, 5]] * 2))


@pytest.mark.parametrize("ask", ["predict", "score", "predict_proba", "unknown_words", "fit"])
def test_data_frames_are_refused_as_texts(ask: str) -> None:
    texts, labels = drawn()
    model = make_model("linear").fit(texts, labels)
    # A frame has its columns as attributes, as a Dataset has its texts and labels.
    for frame in (pd.DataFrame({"texts": texts, "labels": labels}), pa.table({"texts": texts}), {"texts": texts}):
        with pytest.raises(TreelabelError, match=r"expected a list of texts, found a .* data\['texts'\]"):
            getattr(model, ask)(frame, *([labels] if ask == "fit" else []))
    series = pd.DataFrame({"texts": texts, "labels": labels})
    fitted = make_model("linear").fit(series["texts"], series["labels"])
    assert fitted.predict(series["texts"]).tolist() == model.predict(texts).tolist()


@pytest.mark.parametrize("weights", [["a"], {"a": 1}, [None]])
def test_weights_that_are_no_numbers_are_refused(weights: Any) -> None:
    with pytest.raises(TreelabelError, match="sample_weight"):
        make_model("linear").fit(["a"], ["x"], sample_weight=weights)
