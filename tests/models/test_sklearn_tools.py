"""Models within scikit-learn's tools: its checks of estimators, metadata routing, scorers, weights."""

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from tests.models.test_label_forms import PATHS, TREE, drawn
from treelabel import METRICS, TreelabelError, evaluate, fit, make_model, scorer
from treelabel.models.linear.model import Linear

NO_COLUMNS = "a text has no columns that could be counted, and no numbers that could be missing"
UNNAMED = "columns of an indicator matrix need names: classes= or a hierarchy"
# Checks of scikit-learn that do not apply to models of texts and labels, and why.
DO_NOT_APPLY = {
    "check_n_features_in": NO_COLUMNS,
    "check_n_features_in_after_fitting": NO_COLUMNS,
    "check_classifiers_train": NO_COLUMNS,
    "check_estimators_nan_inf": NO_COLUMNS,
    "check_complex_data": NO_COLUMNS,
    "check_estimators_empty_data_messages": "a text may be empty, and has no columns of which there could be none",
    "check_estimator_sparse_tag": "texts are neither sparse nor dense",
    "check_fit_score_takes_y": "labels are called labels; scikit-learn passes them by position",
    "check_classifier_multioutput": UNNAMED,
    "check_classifiers_multilabel_representation_invariance": UNNAMED,
    "check_classifiers_multilabel_output_format_predict": UNNAMED,
    "check_classifiers_multilabel_output_format_predict_proba": UNNAMED,
    "check_classifiers_multilabel_output_format_decision_function": UNNAMED,
    "check_supervised_y_2d": "a column of labels within an array is one level, of names",
    "check_do_not_raise_errors_in_init_or_set_params": "values that a setting cannot have are refused at once",
    "check_non_transformer_estimators_n_iter": "max_iter bounds the passes of each output, and of each trial, alone",
}
# What transformers of scikit-learn have, and models do not, and why.
NOT_OF_MODELS = {
    "transform": "a model scores and predicts; vectors of texts are made within it, and are those of its encoder",
    "fit_transform": "as transform",
    "get_feature_names_out": "n-grams are hashed, and folders hold no words; explain names the terms of a text",
}


def as_texts(rows: Any) -> list[str]:
    """Write the numbers of rows as words, so that checks for numbers can be run on a model of texts."""
    numbers = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
    if numbers.ndim != 2:
        raise ValueError(f"Reshape your data: expected a 2D array, found {numbers.ndim}D")
    return [
        " ".join(f"c{column}is{int(np.floor(2 * value))}" for column, value in enumerate(row))
        for row in numbers.astype(float)
    ]


class OfNumbers(Linear):
    """A model that reads rows of numbers as texts."""

    def fit(self, data: Any, labels: Any = None, **options: Any) -> "OfNumbers":
        return super().fit(as_texts(data), labels, **options)

    def predict(self, texts: Any, *options: Any, **further: Any) -> Any:
        self.require_fitted()
        return super().predict(as_texts(texts), *options, **further)

    def score(self, texts: Any, labels: Any = None, *options: Any, **further: Any) -> Any:
        self.require_fitted()
        return super().score(as_texts(texts), labels, *options, **further)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        return tags


@pytest.mark.slow
def test_models_pass_every_check_of_scikit_learn_that_applies_to_texts() -> None:
    with warnings.catch_warnings():
        # Checks that need packages or settings that are not there are skipped with a warning.
        warnings.simplefilter("ignore")
        results = check_estimator(OfNumbers(), on_fail=None, on_skip=None, expected_failed_checks=DO_NOT_APPLY)
    assert not [each["check_name"] for each in results if each["status"] == "failed"]
    # What fails as expected is what the list says, and no more than that.
    assert {each["check_name"] for each in results if each["status"] == "xfail"} == set(DO_NOT_APPLY)
    assert sum(each["status"] == "passed" for each in results) >= 35


def test_what_only_transformers_have_is_absent() -> None:
    for name, reason in NOT_OF_MODELS.items():
        assert not hasattr(make_model("linear"), name), reason


def test_pipelines_may_be_asked_for_frames() -> None:
    texts, labels = drawn(24)

    def pipeline() -> Any:
        return make_pipeline(FunctionTransformer(feature_names_out="one-to-one"), make_model("most_frequent"))

    expected = pipeline().fit(texts, labels).predict(texts).tolist()
    for form in ("default", "pandas"):
        with sklearn.config_context(transform_output=form):
            alone = make_pipeline(make_model("most_frequent")).fit(texts, labels)
            assert alone.predict(texts).tolist() == expected
        asked = pipeline()
        asked[-1].set_output(transform=form)
        assert (
            make_pipeline(asked[-1]).set_output(transform=form).fit(texts, labels).predict(texts).tolist() == expected
        )
    assert pipeline().set_output(transform="default").fit(texts, labels).predict(texts).tolist() == expected
    with pytest.raises(TreelabelError, match="transform is 'numpy', expected 'default', 'pandas', 'polars' or None"):
        make_model("linear").set_output(transform="numpy")  # type: ignore[arg-type]


def test_columns_of_a_frame_are_feature_names() -> None:
    import pandas as pd

    texts, labels = drawn(24)
    model = make_model("most_frequent")
    assert not hasattr(model, "feature_names_in_")
    for unnamed in (texts, np.array(texts), pd.Series(texts)):
        model.fit(unnamed, labels)
        assert not hasattr(model, "feature_names_in_")
        assert not hasattr(model, "n_features_in_")
    assert model.fit(pd.Series(texts, name="body"), labels).feature_names_in_.tolist() == ["body"]
    frame = pd.DataFrame({"title": texts, "body": texts, "category": labels})
    made = fit(frame, text=["title", "body"], labels="category", model="most_frequent")
    assert made.feature_names_in_.tolist() == ["title", "body"]
    assert made.feature_names_in_.dtype == object
    assert made.n_features_in_ == 2
    pipe = make_pipeline(made)
    assert pipe.n_features_in_ == 2
    assert not hasattr(made.fit(texts, labels), "n_features_in_")


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_weights_and_groups_are_routed_to_fit_and_score(routing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = drawn(48)
    weights, groups = np.arange(1.0, 49.0), np.arange(48) % 12
    seen: list[dict[str, Any]] = []
    learn = Linear.fit

    def spied(self: Linear, data: Any, labels: Any = None, **options: Any) -> Linear:
        seen.append(options)
        return learn(self, data, labels, **options)

    monkeypatch.setattr(Linear, "fit", spied)
    model = make_model("linear").set_fit_request(sample_weight=True, groups=True).set_score_request(sample_weight=True)
    assert clone(model).get_metadata_routing().fit.requests["groups"] is True
    params = {"sample_weight": weights, "groups": groups}
    # Before 1.7, scikit-learn does not ask the last step of a pipeline what score takes.
    asks_steps = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 7)
    for estimator in (model, make_pipeline(FunctionTransformer(), model))[: 2 if asks_steps else 1]:
        seen.clear()
        found = cross_val_score(estimator, texts, labels, cv=GroupKFold(3), params=params)
        assert len(seen) == 3
        for (train, test), options, value in zip(GroupKFold(3).split(texts, labels, groups), seen, found, strict=True):
            assert np.array_equal(options["sample_weight"], weights[train])
            assert np.array_equal(options["groups"], groups[train])
            fitted = learn(
                make_model("linear"), [texts[row] for row in train], [labels[row] for row in train], **options
            )
            right = fitted.predict([texts[row] for row in test]) == np.array(labels)[test]
            assert value == pytest.approx(np.average(right, weights=weights[test]))


def test_what_is_not_requested_is_refused_by_scikit_learn(routing: None) -> None:
    texts, labels = drawn(24)
    with pytest.raises(ValueError, match="sample_weight"):
        cross_val_score(make_model("linear"), texts, labels, params={"sample_weight": np.ones(24)})
    with pytest.raises(TreelabelError, match=r"fit takes no 'sample_weights'; did you mean sample_weight"):
        make_model("linear").set_fit_request(sample_weights=True)


def test_requests_need_routing() -> None:
    with pytest.raises(TreelabelError, match=r"sklearn.set_config\(enable_metadata_routing=True\)"):
        make_model("linear").set_fit_request(groups=True)


def test_scores_are_weighed() -> None:
    texts, labels = drawn()
    model = make_model("linear").fit(texts, labels)
    wrong = [PATHS[0]] * len(texts)
    right = np.array(labels) == PATHS[0]
    weights = np.arange(1.0, len(texts) + 1)
    assert model.score(texts, wrong, sample_weight=weights) == pytest.approx(np.average(right, weights=weights))
    for unusable in ([1.0], [-1.0] * len(texts), np.zeros(len(texts))):
        with pytest.raises(TreelabelError, match="sample_weight must hold 48 numbers from 0 on"):
            model.score(texts, wrong, sample_weight=unusable)


def test_logarithms_are_those_of_probabilities() -> None:
    texts, labels = drawn()
    model = make_model("linear").fit(texts, labels)
    assert np.allclose(np.exp(model.predict_log_proba(texts)), model.predict_proba(texts))
    assert make_model("most_frequent").fit(["a"], [["x"]]).predict_log_proba(["a"]).tolist() == [[0.0]]


@pytest.mark.parametrize("rule", [None, "best_leaf", "threshold@0.3"])
@pytest.mark.slow
def test_scorers_are_metrics_of_documents_left_out(rule: str | None) -> None:
    texts, labels = drawn()
    folds, by_hand = KFold(3), []
    for train, test in folds.split(texts):
        fitted = make_model("linear").fit([texts[row] for row in train], [labels[row] for row in train])
        some = [texts[row] for row in test]
        decided = fitted.predict(some, rule=rule or fitted.default_rule, paths=True)
        truth = [[labels[row]] for row in test]
        by_hand.append(evaluate(truth, decisions=decided, hierarchy=fitted.hierarchy, metrics=["hf1"])["hf1"])
    for estimator in (make_model("linear"), make_pipeline(FunctionTransformer(), make_model("linear"))):
        found = cross_val_score(estimator, texts, labels, cv=folds, scoring=scorer("hf1", rule=rule))
        assert found.tolist() == pytest.approx(by_hand)


def test_labels_that_training_never_saw_count() -> None:
    texts, labels = drawn()
    model = make_model("linear").fit(texts, labels)
    truth = ["animal > cat", "animal > bird", "plant > rose"]
    # Of two nodes each, all are right, one is, and none is.
    assert scorer("hf1", "best_leaf")(model, ["cat", "cat", "cat"], truth) == pytest.approx((1 + 0.5 + 0) / 3)
    numbers = make_model("linear").fit(["one", "two"] * 12, [1, 2] * 12)
    assert scorer("hf1", "best_leaf")(numbers, ["one", "two"], [1, 3]) == 0.5
    tuples = make_model("linear").fit(texts, [tuple(label.split(" > ")) for label in labels])
    assert scorer("hf1", "best_leaf")(tuples, ["cat"], [("animal", "bird")]) == 0.5
    given = make_model("linear", hierarchy=TREE).fit(texts, labels)
    with pytest.raises(TreelabelError, match="unknown label"):
        scorer("hf1")(given, ["cat"], ["plant > rose"])


def test_a_grid_is_searched_by_any_metric() -> None:
    texts, labels = drawn()
    scoring = {"hf1": scorer("hf1"), "auc": scorer("hf1_auc"), "sure": scorer("ece")}
    grid = GridSearchCV(make_model("linear"), {"min_df": [1, 3]}, cv=3, scoring=scoring, refit="hf1").fit(texts, labels)
    assert 0 < grid.best_score_ <= 1
    assert scorer("hf1")(grid, texts, labels) == scorer("hf1")(grid.best_estimator_, texts, labels)
    # Errors have a minus: the larger, the better.
    assert (grid.cv_results_["mean_test_sure"] < 0).all()
    assert pickle.loads(pickle.dumps(scoring["hf1"])) == scoring["hf1"]
    several = cross_validate(make_model("linear"), texts, labels, cv=3, scoring=scoring)
    assert set(several) >= {"test_hf1", "test_auc", "test_sure"}


def test_every_metric_of_single_paths_is_a_scorer() -> None:
    texts, labels = drawn()
    model = fit(texts, labels, preset="fast")
    for name in METRICS:
        value: float = scorer(name)(model, texts, labels)
        assert np.isfinite(value), name
        assert value <= 0 or METRICS[name].higher_is_better, name


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(TreelabelError, match="did you mean hf1"):
        scorer("hf11")
    with pytest.raises(TreelabelError, match="unknown rule"):
        scorer("hf1", rule="best")
    with pytest.raises(TreelabelError, match="expected a model of treelabel, or a Pipeline that ends in one"):
        scorer("hf1")(FunctionTransformer(), ["a"], ["x"])


def test_whole_floats_are_numbers_and_others_no_labels() -> None:
    numbers: npt.NDArray[np.float64] = np.array([1.0, 2.0] * 12)
    model = make_model("linear").fit(["one", "two"] * 12, numbers)
    assert model.predict(["one", "two"]).tolist() == [1, 2]
    with pytest.raises(TreelabelError, match="found a continuous target, "):
        make_model("linear").fit(["one", "two"], [0.5, 1.0])
