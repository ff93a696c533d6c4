"""What users of scikit-learn expect: predict_proba, classes_, nested settings, tags, and the HTML of notebooks."""

from pathlib import Path
from typing import Any, assert_type

import joblib
import numpy as np
import numpy.typing as npt
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import RocCurveDisplay, accuracy_score, log_loss, make_scorer, roc_auc_score, top_k_accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from tests.models.test_models import SETS
from treelabel import Dataset, Hierarchy, Scores, TreelabelError, load_model, make_model
from treelabel.hierarchy.label_ids import encode
from treelabel.models.check import TREE


@pytest.mark.parametrize("name", ["leaf", "path"])
def test_probabilities_of_classes_sum_to_1_where_documents_have_one_path(name: str) -> None:
    data = SETS[name]
    model = make_model("linear").fit(data)
    p, scores = model.predict_proba(list(data.texts)), model.score(list(data.texts))
    assert p.shape == (len(data), len(model.classes_))
    assert np.allclose(p.sum(axis=1), 1, atol=1e-5)
    assert (p >= 0).all()
    h = data.hierarchy
    names = list(model.classes_)
    assert names == sorted(names)
    assert {h.names[leaf] for leaf in h.leaves} <= set(names)
    leaf = int(h.leaves[0])
    assert np.allclose(p[:, names.index(h.names[leaf])], scores.dense()[:, leaf])


def test_paths_that_end_inside_have_classes_of_their_own() -> None:
    data = SETS["path"]
    h = data.hierarchy
    model = make_model("linear").fit(data)
    inner = [h.names[node] for node in model.stop_nodes_]
    assert inner
    assert set(inner) <= set(model.classes_)
    node = h.names.index(inner[0])
    scores = model.score(list(data.texts)).dense().astype(np.float64)
    children = scores[:, h.parent == node].sum(axis=1)
    found = model.predict_proba(list(data.texts))[:, list(model.classes_).index(inner[0])]
    assert np.allclose(found, np.maximum(scores[:, node] - children, 0), atol=1e-6)


def test_with_several_paths_all_labels_are_classes() -> None:
    data = SETS["many"]
    model = make_model("linear").fit(data)
    assert list(model.classes_) == list(data.hierarchy.names)
    assert (model.predict_proba(list(data.texts)) == model.score(list(data.texts)).dense()).all()


def test_classes_are_saved(tmp_path: object) -> None:
    model = make_model("most_frequent").fit(SETS["path"])
    model.save(f"{tmp_path}/model")
    loaded = load_model(f"{tmp_path}/model")
    assert list(loaded.classes_) == list(model.classes_)
    assert (loaded.predict_proba(["a"]) == model.predict_proba(["a"])).all()


def test_names_that_two_labels_share_are_told_apart_by_their_paths() -> None:
    h = Hierarchy.from_paths(["A > other", "B > other"])
    model = make_model("most_frequent").fit(["x", "y"], ["A > other", "B > other"], hierarchy=h)
    assert list(model.classes_) == ["A > other", "B > other"]


SORTED = Hierarchy.from_paths(["animal > cat", "animal > dog", "food > soup", "food > tea"])


def in_sorted_leaves(rows: int, seed: int) -> tuple[list[str], list[str]]:
    """Make texts of the leaves of SORTED, with their labels in random order."""
    leaves = [SORTED.names[leaf] for leaf in SORTED.leaves]
    labels = [leaves[which] for which in np.random.default_rng(seed).permutation(np.arange(rows) % len(leaves))]
    return [f"a text about {label} number {row}" for row, label in enumerate(labels)], labels


@pytest.mark.parametrize("as_path", [False, True])
def test_cross_val_predict_gives_the_probabilities_of_documents_left_out(as_path: bool) -> None:
    texts, labels = in_sorted_leaves(36, seed=0)
    given = [SORTED.paths([SORTED.names.index(label)])[0] if as_path else label for label in labels]
    model, folds = make_model("linear", hierarchy=SORTED), KFold(3)
    found = cross_val_predict(model, texts, np.array(given), cv=folds, method="predict_proba")
    for train, test in folds.split(texts):
        fitted = clone(model).fit([texts[row] for row in train], [given[row] for row in train])
        assert np.allclose(found[test], fitted.predict_proba([texts[row] for row in test]))


@pytest.mark.parametrize(
    ("hierarchy", "keep", "why"),
    [
        (SORTED, 3, "they are 0 to 2, but the hierarchy has 4 leaves"),
        (Hierarchy.from_paths(["animal > dog", "animal > cat", "food > soup", "food > tea"]), 4, "not in sorted order"),
        (Hierarchy.from_paths(["x > cat", "b > dog", "c > soup", "d > tea"]), 4, "not in sorted order"),
    ],
    ids=["a leaf without documents", "leaves in another order", "paths in another order than names"],
)
def test_codes_that_may_stand_for_other_labels_are_refused_with_a_way_that_works(
    hierarchy: Hierarchy, keep: int, why: str
) -> None:
    texts, labels = in_sorted_leaves(36, seed=1)
    names = sorted(set(labels))[:keep]
    rows = [row for row, label in enumerate(labels) if label in names]
    texts, labels = [texts[row] for row in rows], [labels[row] for row in rows]
    model, folds = make_model("linear", hierarchy=hierarchy), KFold(3)
    with pytest.raises(TreelabelError, match=why) as refused:
        cross_val_predict(model, texts, np.array(labels), cv=folds, method="predict_proba")
    assert "cross_val_predict(model, texts, params={'labels': labels}, method='predict_proba')" in str(refused.value)
    found = cross_val_predict(model, texts, params={"labels": labels}, cv=folds, method="predict_proba")
    assert [names[column] for column in found.argmax(axis=1)] == labels


@pytest.mark.parametrize("codes", [[0, 99], [-1, 3]])
def test_codes_of_no_class_are_refused(codes: list[int]) -> None:
    with pytest.raises(TreelabelError, match=f"they are {codes[0]} to {codes[1]}, but the hierarchy has 4 leaves"):
        make_model("linear", hierarchy=SORTED).fit(["a", "b"], np.array(codes))


def test_models_are_classifiers_and_show_themselves() -> None:
    model = make_model("linear", seed=3)
    assert is_classifier(model)
    assert repr(model) == "Linear(seed=3)"
    assert "<b>Linear (not fitted)</b>" in model._repr_html_()
    fitted = make_model("most_frequent").fit(SETS["leaf"])
    assert "<b>MostFrequent (fitted)</b>" in fitted._repr_html_()
    assert repr(clone(model)) == repr(model)


def test_a_grid_searches_over_settings_of_models_within_a_stack() -> None:
    data: Dataset = SETS["leaf"]
    rows = np.arange(0, len(data), 2)
    stack = make_model("stack", hierarchy=TREE, estimators=("linear", "most_frequent"), cv=2)
    grid = GridSearchCV(stack, {"linear__min_df": [1, 3]}, cv=KFold(2), refit=True)
    grid.fit(list(data[rows].texts), np.array([name for [name] in data[rows].names()]))
    assert grid.best_params_["linear__min_df"] in (1, 3)
    fitted = grid.best_estimator_
    assert fitted.get_params()["linear__min_df"] == grid.best_params_["linear__min_df"]
    assert fitted.estimators_[0].get_params()["min_df"] == grid.best_params_["linear__min_df"]
    with pytest.raises(TreelabelError, match="did you mean min_df"):
        stack.set_params(linear__mindf=1)


def test_models_vote_with_others_by_their_probabilities() -> None:
    texts, labels = in_sorted_leaves(36, seed=2)
    ours = [(name, make_model(name, hierarchy=SORTED)) for name in ("linear", "most_frequent")]
    peer = make_pipeline(TfidfVectorizer(), LogisticRegression())
    voting = VotingClassifier([*ours, ("peer", peer)], voting="soft").fit(texts, labels)
    mean = np.mean([each.predict_proba(texts) for each in voting.estimators_], axis=0)
    assert np.allclose(voting.predict_proba(texts), mean)
    assert list(voting.predict(texts)) == labels


def test_score_is_typed_by_what_it_is_given() -> None:
    texts, labels = in_sorted_leaves(12, seed=3)
    model = make_model("linear", hierarchy=SORTED).fit(texts, labels)
    assert_type(model.score(texts), Scores)
    assert_type(model.score(texts, top=2), Scores)
    assert_type(model.score(texts, labels), float)
    assert isinstance(model.score(texts), Scores)
    assert model.score(texts, labels) == np.mean(
        [label == found for label, found in zip(labels, model.predict(texts), strict=True)]
    )


def test_tags_say_what_scikit_learn_may_expect() -> None:
    tags = make_model("linear").__sklearn_tags__()
    assert tags.estimator_type == "classifier"
    assert tags.target_tags.required
    assert tags.classifier_tags.multi_label
    assert tags.input_tags.string


# Paths of uneven depth, one of which ends inside: sorted, they are in another order than their names or their levels.
UNEVEN = ["animal > cat > siamese", "animal > cat", "tool", "food > soup", "animal > dog > poodle > toy"]


def uneven(rows: int = 100, paths: list[str] = UNEVEN, noise: float = 0.0) -> tuple[list[str], npt.NDArray[np.str_]]:
    """Draw labels as paths, and texts with three words of their label; a share of them has those of any label."""
    rng = np.random.default_rng(0)
    labels = np.array([paths[which] for which in rng.permutation(np.arange(rows) % len(paths))])
    shown = [int(rng.integers(len(paths))) if rng.random() < noise else paths.index(label) for label in labels]
    return [f"a{which} b{which} c{which} number{row % 7}" for row, which in enumerate(shown)], labels


def brier(labels: npt.NDArray[np.str_], p: npt.NDArray[np.float64]) -> float:
    return float(np.mean(((labels[:, None] == np.unique(labels)) - p) ** 2))


BRIER = make_scorer(brier, response_method="predict_proba")
TOP_2 = make_scorer(top_k_accuracy_score, response_method="predict_proba", k=2)


@pytest.mark.parametrize("name", ["linear", "svm", "bag"])
@pytest.mark.parametrize(
    ("scoring", "expected"), [("neg_log_loss", 0), ("roc_auc_ovr", 1), (TOP_2, 1), (BRIER, 0)], ids=str
)
@pytest.mark.slow
def test_probability_scorers_are_right_for_paths_of_uneven_depth(name: str, scoring: object, expected: float) -> None:
    texts, labels = uneven()
    for estimator in (make_model(name), make_pipeline(FunctionTransformer(), make_model(name))):
        found = cross_val_score(estimator, texts, labels, cv=3, scoring=scoring)
        assert np.allclose(found, expected, atol=0.001)


@pytest.mark.parametrize("form", ["paths", "names", "numbers"])
def test_classes_are_the_labels_as_given_sorted(form: str, tmp_path: Path) -> None:
    texts, paths = uneven()
    # Names in the reverse order of the numbers, of which 10 comes behind 9.
    numbers = np.array([12 - UNEVEN.index(path) for path in paths])
    names = np.array([path.split(" > ")[-1] for path in paths])
    labels = {"paths": paths, "names": names, "numbers": numbers}[form]
    h = Hierarchy.from_paths([*UNEVEN, "food > unseen"]) if form == "names" else None
    model = make_model("linear").fit(texts, labels, hierarchy=h)
    model.save(tmp_path / "model")
    for each in (model, load_model(tmp_path / "model")):
        assert each.classes_.dtype.kind == labels.dtype.kind
        assert each.classes_.tolist() == np.unique(labels).tolist()
        p = each.predict_proba(texts)
        assert np.allclose(p.sum(axis=1), 1, atol=1e-12)
        assert each.classes_[p.argmax(axis=1)].tolist() == labels.tolist() == each.predict(texts).tolist()
        assert log_loss(labels, p) < 0.001


def test_an_inner_node_has_the_probability_that_the_path_ends_there() -> None:
    h = Hierarchy.from_paths(["A > B", "A > C", "D"])
    model = make_model("most_frequent").fit(list("abcdefgh"), ["A"] * 3 + ["A > B"] * 4 + ["D"], hierarchy=h)
    assert model.classes_.tolist() == ["A", "A > B", "D"]
    assert np.allclose(model.predict_proba(["a"]), [[3 / 8, 4 / 8, 1 / 8]])


def test_a_document_without_any_probability_may_have_any_class() -> None:
    model = make_model("nothing").fit(["a", "b"], ["x", "y"])
    assert model.predict_proba(["a"]).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("closed", [True, False])
def test_columns_of_an_indicator_matrix_have_probabilities_of_their_own(closed: bool) -> None:
    texts, labels = uneven()
    h = Hierarchy.from_paths(UNEVEN)
    nodes = h.closure(encode(h, labels)) if closed else encode(h, labels)
    matrix = nodes.toarray().astype(int)
    model = make_model("linear", hierarchy=h).fit(texts, matrix)
    assert model.classes_.tolist() == list(h.names)
    p = model.predict_proba(texts)
    assert p.shape == matrix.shape
    assert np.allclose(p, matrix, atol=0.001)
    scores = cross_val_score(
        model, texts, matrix, cv=3, scoring=make_scorer(roc_auc_score, average="micro", response_method="predict_proba")
    )
    assert np.allclose(scores, 1)


@pytest.mark.parametrize("ensemble", [True, False])
def test_scikit_learn_calibrates_models(ensemble: bool) -> None:
    texts, labels = uneven()
    calibrated = CalibratedClassifierCV(make_model("linear"), cv=3, ensemble=ensemble).fit(texts, labels)
    assert calibrated.classes_.tolist() == sorted(UNEVEN)
    assert calibrated.predict(texts).tolist() == labels.tolist()


@pytest.mark.slow
def test_two_classes_have_thresholds_and_roc_curves() -> None:
    # By name the second class would be the first.
    texts, labels = uneven(80, ["animal > cat", "aardvark"], noise=0.2)
    model = make_model("linear")
    tuned = TunedThresholdClassifierCV(model, cv=3, scoring="balanced_accuracy").fit(texts, labels)
    assert tuned.best_score_ > 0.8
    assert (tuned.predict(texts) == labels).mean() > 0.8
    assert (cross_val_score(model, texts, labels, cv=3, scoring="roc_auc") > 0.8).all()
    drawn = RocCurveDisplay.from_estimator(model.fit(texts, labels), texts, labels)
    assert drawn.roc_auc > 0.8
    assert "animal > cat" in str(drawn.ax_.get_xlabel())


def test_a_grid_is_searched_by_log_loss() -> None:
    texts, labels = uneven(noise=0.2)
    grid = GridSearchCV(make_model("linear"), {"min_df": [1, 2]}, scoring="neg_log_loss", cv=3).fit(texts, labels)
    # Even the shares of the labels alone have -log(1/5).
    assert -np.log(5) < grid.best_score_ < 0


BRANCHED = Hierarchy.from_paths(["A > B", "A > C", "D"])


@pytest.mark.parametrize(
    ("written", "hierarchy"),
    [
        (["cat ", "dog", " owl"], None),
        (["A > B ", "A >  C", "D"], None),
        # Sorted, names among paths are in another order than the paths are.
        (["B", "A > C", "D"], BRANCHED),
        (["A>B", "A > C", "D"], BRANCHED),
        (["A/B", "A>C", " D"], BRANCHED),
    ],
    ids=["blanks", "blanks in paths", "names and paths", "one separator is tight", "three ways"],
)
@pytest.mark.slow
def test_labels_come_back_as_they_were_written(written: list[str], hierarchy: Hierarchy | None, tmp_path: Path) -> None:
    texts, labels = uneven(60, written)
    model = make_model("linear", hierarchy=hierarchy).fit(texts, labels)
    model.save(tmp_path / "model")
    for each in (model, load_model(tmp_path / "model")):
        assert each.classes_.tolist() == np.unique(labels).tolist()
        assert accuracy_score(labels, each.predict(texts)) == 1 == each.score(texts, labels)
    for scoring, expected in (("accuracy", 1), ("neg_log_loss", 0)):
        found = cross_val_score(make_model("linear", hierarchy=hierarchy), texts, labels, cv=3, scoring=scoring)
        assert np.allclose(found, expected, atol=0.001)


@pytest.mark.parametrize(
    ("written", "hierarchy"),
    [
        (["cat", "cat ", "dog"], None),
        (["A>B", "A > B", "D"], None),
        (["A/B", "A > B", "D"], None),
        (["A>B", "A > B", "D"], BRANCHED),
        (["B", "A > B", "D"], BRANCHED),
    ],
)
def test_two_spellings_of_one_label_are_refused(written: list[str], hierarchy: Hierarchy | None) -> None:
    texts, labels = uneven(60, written)
    with pytest.raises(TreelabelError, match=r"are one label.* write them alike") as refused:
        make_model("linear", hierarchy=hierarchy).fit(texts, labels)
    assert all(repr(label) in str(refused.value) for label in written[:2])
    if hierarchy is not None:
        # What is compared by nodes takes any spelling.
        model = make_model("linear", hierarchy=hierarchy).fit(texts, [[label] for label in labels])
        assert model.score(texts, labels) == 1


class Digits:
    """An encoder: how often a text has each digit."""

    name = "digits"
    fingerprint = "digits 1"

    def transform(self, texts: Any) -> Any:
        return np.array([[text.count(digit) for digit in "0123456789"] for text in texts], float).reshape(-1, 10)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", [None, Digits()], ids=["words", "encoder"])
def test_models_are_searched_in_two_processes_and_pickled(
    encoder: Digits | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    texts, labels = uneven(60, noise=0.2)
    model = make_model("linear", encoder=encoder, tfidf=encoder is None)
    found = [
        GridSearchCV(model, {"min_df": [1, 2]}, scoring="neg_log_loss", cv=2, n_jobs=jobs).fit(texts, labels)
        for jobs in (1, 2)
    ]
    alone, beside = (grid.cv_results_["mean_test_score"] for grid in found)
    assert np.isfinite(alone).all()
    assert np.allclose(alone, beside, atol=1e-6)
    fitted = found[1].best_estimator_
    joblib.dump(fitted, tmp_path / "model.joblib")
    copied = joblib.load(tmp_path / "model.joblib")
    assert (copied.predict_proba(texts) == fitted.predict_proba(texts)).all()
    assert copied.predict(texts).tolist() == fitted.predict(texts).tolist()
    assert copied.classes_.tolist() == sorted(UNEVEN)
