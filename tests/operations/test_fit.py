"""One call fits a model to frames or texts: columns, presets, and labels in every form."""

from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.preprocessing import MultiLabelBinarizer

from tests.core.test_frames import KINDS
from tests.data.test_dataset_frames import PATHS, columns
from tests.encoders.test_encoders import has_minilm
from tests.helpers import Run
from treelabel import (
    PRESETS,
    Dataset,
    Hierarchy,
    TreelabelError,
    evaluate,
    fit,
    load_model,
    load_sample,
    make_model,
    scorer,
    write,
)
from treelabel.data import cut
from treelabel.models.base import Model
from treelabel.models.model_inputs import training_of
from treelabel.operations import fit as fitting
from treelabel.operations.fit import PresetWarning, describe_presets, make_preset
from treelabel.operations.update import update_model
from treelabel.rules.conformal import ConformalSets
from treelabel.rules.risk_bounds import conformal_quantile
from treelabel.selection.evidence import Evidence, SettingTrial
from treelabel.selection.guarantee import set_apart

COLUMNS = columns(32)
TEXTS = COLUMNS["body"]
NEW = ["about a cat", "about some soup"]


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_fitted_by_the_names_of_their_columns(kind: str) -> None:
    make, back = KINDS[kind]
    model = fit(make(COLUMNS), text="body", labels="category", preset="fast")
    assert model.hierarchy is not None
    assert model.hierarchy.paths() == ["animal", "food", *PATHS]
    assert model.predict(NEW).tolist() == ["animal/cat", "food/soup"]
    assert isinstance(model.predict_frame(make({"body": NEW})), back)
    levels = fit(make(COLUMNS), text="body", labels=["dept", "class"], preset="fast")
    assert levels.predict(NEW, paths=True) == [["animal > cat"], ["food > soup"]]


def test_columns_are_guessed_by_name_and_content() -> None:
    frame = pd.DataFrame({"said": TEXTS, "category": COLUMNS["category"]})
    assert fit(frame, preset="fast").predict_frame(frame[:1])["path"].tolist() == ["animal > cat"]


def test_texts_with_labels_are_fitted_like_a_frame() -> None:
    frame = pd.DataFrame(COLUMNS)
    expected = fit(frame, text="body", labels="category")
    for model in (
        fit(TEXTS, COLUMNS["category"]),
        fit(frame["body"], frame["category"]),
        fit(frame, text="body", labels=frame["category"]),
        fit(TEXTS, [path.replace(" > ", "__") for path in PATHS] * 8, sep="__"),
        fit(Dataset.from_frame(frame, text="body", labels="category")),
    ):
        assert model.hierarchy == expected.hierarchy
        assert (model.score(NEW).dense() == expected.score(NEW).dense()).all()


def test_presets_are_models_with_settings() -> None:
    assert list(PRESETS) == ["fast", "balanced", "best"]
    fast = make_preset("fast", seed=3)
    assert (fast.name, fast.flat_settings()["ngram_range"], fast.flat_settings()["seed"]) == ("linear", (1, 1), 3)
    assert repr(make_preset()) == "Linear()"
    assert make_preset("fast", ngram_range=(1, 2)).flat_settings()["ngram_range"] == (1, 2)


def test_the_best_preset_is_a_stack_or_says_what_is_taken_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "default_encoder_name", lambda: "minilm")
    assert make_preset("best").name == "stack"

    def none_installed() -> str:
        raise TreelabelError("no encoder is installed; get one with: pip install something")

    monkeypatch.setattr(fitting, "default_encoder_name", none_installed)
    with pytest.warns(PresetWarning, match="so that balanced is taken instead: no encoder is installed; get one"):
        assert make_preset("best").name == "linear"


@has_minilm
@pytest.mark.slow
def test_the_best_preset_learns_with_the_encoder_that_is_installed(tmp_path: Any, run: Run) -> None:
    sample = cut(load_sample(), 1)
    rows = np.random.default_rng(0).permutation(len(sample))
    train, test = sample[rows[:90]], sample[rows[90:290]]
    write(train, tmp_path / "train.csv")
    ended = run("fit", tmp_path / "train.csv", "-o", tmp_path / "model", "--preset", "best")
    assert ended.code == 0, ended.err
    assert "model: stack, 90 documents" in ended.out
    assert "encoder: minilm, the best that is installed" in ended.err
    best = load_model(tmp_path / "model")
    balanced = fit(train, preset="balanced")
    accuracy = {
        model.name: evaluate(test, scores=model.score(test), rule="best_leaf", metrics=["leaf_accuracy"])[
            "leaf_accuracy"
        ]
        for model in (best, balanced)
    }
    # With few texts, what an encoder knows of words counts for much.
    assert accuracy["stack"] > accuracy["linear"] + 0.05


def test_models_are_taken_by_name_or_as_they_are() -> None:
    assert fit(TEXTS, COLUMNS["category"], model="most_frequent").name == "most_frequent"
    model = make_model("linear")
    assert fit(TEXTS, COLUMNS["category"], model=model, min_df=2) is model
    assert model.get_params()["min_df"] == 2


def test_weights_and_groups_may_be_columns() -> None:
    frame = pl.DataFrame({**COLUMNS, "weight": [1.0, 2.0] * 16})
    model = fit(frame, text="body", labels="category", sample_weight="weight", groups="price", preset="fast")
    by_hand = fit(TEXTS, COLUMNS["category"], sample_weight=[1.0, 2.0] * 16, groups=COLUMNS["price"], preset="fast")
    assert (model.score(NEW).dense() == by_hand.score(NEW).dense()).all()


def test_a_frame_may_be_the_validation_set() -> None:
    frame = pd.DataFrame(COLUMNS)
    model = fit(frame, text="body", labels="category", valid=frame[:8])
    assert model.predict(NEW).tolist() == ["animal/cat", "food/soup"]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_matrix_of_a_binarizer_comes_with_its_classes(is_sparse: bool) -> None:
    sets = [{"x", "y"}, {"y"}, {"x"}, set()] * 8
    texts = ["both of them", "only why", "only ex", "neither one"] * 8
    binarizer = MultiLabelBinarizer(sparse_output=is_sparse, classes=["y", "x"])
    matrix = binarizer.fit_transform(sets)
    model = fit(texts, matrix, classes=binarizer.classes_)
    found = model.predict(texts)
    assert sparse.issparse(found) == is_sparse
    assert [set(row) for row in binarizer.inverse_transform(found)] == sets
    assert model.classes_.tolist() == ["y", "x"]
    assert model.score(texts, matrix) == 1
    assert model.predict_proba(texts).shape == (32, 2)
    assert (model.predict_proba(texts)[:3, 0] > 0.5).tolist() == [True, True, False]


def test_dummies_are_labels_by_their_columns_and_come_back_in_their_order() -> None:
    dummies = pd.get_dummies(pd.Series([PATHS[row % 4] for row in range(32)]))[PATHS[::-1]]
    for frame in (dummies, pl.from_pandas(dummies), dummies.astype(int)):
        model = fit(TEXTS, frame)
        assert model.hierarchy is not None
        assert model.hierarchy.paths() == ["animal", "food", *PATHS]
        assert model.classes_.tolist() == PATHS[::-1]
        assert (model.predict(TEXTS) == dummies.to_numpy()).all()
        assert model.score(TEXTS, frame) == 1 == scorer("subset_accuracy")(model, TEXTS, frame)
    h = Hierarchy.from_paths([*PATHS, "tool > axe"])
    under = fit(TEXTS, dummies, hierarchy=h)
    assert under.predict(TEXTS).shape == (32, 4)
    assert under.predict_proba(TEXTS[:1]).argmax() == 3


def test_matrices_that_do_not_fit_their_classes_are_refused(tmp_path: Any) -> None:
    with pytest.raises(TreelabelError, match="has 2 columns, but there are 3 classes"):
        fit(["a", "b"], np.eye(2), classes=["x", "y", "z"])
    with pytest.raises(TreelabelError, match="two columns of the indicator matrix are the label 'x'"):
        fit(["a", "b"], np.eye(2), classes=["x", "x"])
    with pytest.raises(TreelabelError, match="but labels are none"):
        fit(["a", "b"], ["x", "y"], classes=["x", "y"])
    model = fit(["a", "b"] * 9, np.tile(np.eye(2), (9, 1)), classes=["x", "y"])
    model.save(tmp_path / "model")
    assert (load_model(tmp_path / "model").predict(["a"]) == model.predict(["a"])).all()
    stored = (tmp_path / "model" / "model.json").read_text()
    (tmp_path / "model" / "model.json").write_text(stored.replace('"columns": [\n      0,', '"columns": [\n      9,'))
    with pytest.raises(TreelabelError, match="'form' has columns that are no nodes"):
        load_model(tmp_path / "model")


def test_columns_of_datasets_have_the_names_of_their_classes() -> None:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["cat", "dog", "soup", "tea"])}
    )
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 2, 3] * 8}, features=features)
    for model in (fit(data), fit(data["text"], data["label"]), make_model("linear").fit(data["text"], data["label"])):
        assert model.predict(NEW).tolist() == ["cat", "soup"]
        assert model.reading_["text"] == ["text"]


def test_lists_are_what_they_are_said_to_be() -> None:
    lists = [path.split(" > ") for path in PATHS] * 8
    with pytest.raises(TreelabelError, match="look like the levels of a path"):
        fit(TEXTS, lists)
    assert fit(TEXTS, lists, lists="path").predict(NEW) == [("animal", "cat"), ("food", "soup")]
    several = fit(TEXTS, lists, lists="labels")
    assert several.hierarchy is not None
    assert several.hierarchy.max_depth == 1
    assert sorted(several.predict(NEW)[0]) == ["animal", "cat"]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"model": "linear", "preset": "fast"}, "model and preset exclude each other, found 'linear' and 'fast'"),
        ({"preset": "quick"}, "unknown preset 'quick'; there are: fast, balanced, best"),
        ({"text": "bod"}, r"no column 'bod' for the text; .* did you mean body"),
        ({"groups": "customer"}, "no column 'customer' for the values"),
        ({"mindf": 2}, "no setting 'mindf'; did you mean min_df"),
    ],
)
def test_what_cannot_be_fitted_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        fit(pd.DataFrame(COLUMNS), **{"text": "body", "labels": "category", **keywords})


def test_the_command_line_has_the_same_presets(tmp_path: Any, run: Run) -> None:
    pd.DataFrame(COLUMNS).to_csv(tmp_path / "train.csv", index=False)
    where = ("fit", tmp_path / "train.csv", "--text", "body", "--labels", "category", "-o", tmp_path / "model")
    assert run(*where, "--preset", "fast").code == 0
    assert load_model(tmp_path / "model").get_params()["ngram_range"] == (1, 1)
    both = run(*where, "--force", "--preset", "fast", "--model", "bag")
    assert both.code == 2
    assert "model and preset exclude each other, found 'bag' and 'fast'" in both.err


def test_fit_says_what_other_presets_would_be_worth() -> None:
    made = make_preset("balanced")
    assert isinstance(made, Model)
    for fast, chosen, about in (
        (0.6, 0.5, "+20% log loss on the sample"),
        (1e-5, 0.0, "+0.000 log loss on the sample"),
        (0.0, 0.0, "as good as what was chosen"),
    ):
        trials = (
            SettingTrial("ngram_range=(1, 1) head=nodes", fast, 0.01),
            SettingTrial("ngram_range=(1, 2) head=nodes", chosen, 0.01, chosen=True),
        )
        made.evidence_ = Evidence(trials=trials)
        assert describe_presets(made).startswith(f"presets: fast would be {about}; best ")
    made.evidence_ = Evidence()
    assert describe_presets(made) == ""


def test_a_file_a_series_and_a_misspelled_argument_are_refused_with_what_to_do() -> None:
    with pytest.raises(TreelabelError, match=r"found 'train\.csv'; .* fit\(treelabel\.read\('train\.csv'\)\)"):
        fit("train.csv")
    with pytest.raises(TreelabelError, match="fit has no argument 'label'; did you mean labels"):
        fit(pd.DataFrame(COLUMNS), text="body", label="category")
    model = fit(["woof", "meow"] * 9, ["dog", "cat"] * 9, preset="fast")
    for series in (pd.Series(["woof"]), pl.Series(["woof"])):
        with pytest.raises(TreelabelError, match=r"found Series; its to_frame\(\) makes one"):
            model.predict_frame(series)


# A coverage


@pytest.fixture(scope="module")
def covering() -> tuple[Model, Dataset]:
    """Fit to a part of the sample with a coverage; return the model and the other documents."""
    order = np.random.default_rng(0).permutation(len(load_sample()))
    train, test = load_sample()[np.sort(order[:1200])], load_sample()[np.sort(order[1200:4200])]
    return fit(train, preset="fast", coverage=0.8), test


def test_a_coverage_sets_the_default_rule_and_says_what_it_costs(covering: tuple[Model, Dataset]) -> None:
    model, test = covering
    assert model.default_rule.startswith("conformal(coverage=0.8, t=0.")
    promised = model.evidence_.guarantee
    assert promised is not None
    assert promised.documents == 200
    assert model.profile_.documents == 1000
    assert promised.reached == pytest.approx(0.8, abs=0.03)
    described = model.evidence_.describe(model.default_rule, model.regime_)
    assert "promised: the nodes cover the true label with a probability of at least 0.8" in described
    result = evaluate(test, scores=model.score(test), rule=model.default_rule, metrics=["set_coverage", "set_size"])
    # 200 documents leave a standard error of 0.028, and these are 3,000 others.
    assert promised.standard_error == pytest.approx(0.0281, abs=1e-4)
    assert result["set_coverage"] == pytest.approx(0.8, abs=2 * 0.0281)
    # The scores that calibrated are those of the model itself.
    assert result["set_size"] == pytest.approx(promised.leaves, rel=0.2)


def test_a_promise_is_calibrated_on_documents_that_were_not_learned(covering: tuple[Model, Dataset]) -> None:
    model, _ = covering
    order = np.random.default_rng(0).permutation(len(load_sample()))
    train = load_sample()[np.sort(order[:1200])]
    learned, apart = set_apart(training_of(train, None, None), 0.8, 0)
    assert (len(learned), len(apart)) == (1000, 200)
    assert model.profile_.missing(learned.texts) == 0
    # Of these texts the model knows those alone that others repeat.
    assert model.profile_.count_learned(apart.texts) == sum(text in set(learned.texts) for text in apart.texts)
    t = conformal_quantile(ConformalSets().cover_limits(model.score(apart.texts), apart.closed_labels), 0.8)
    assert model.default_rule == f"conformal(coverage=0.8, t={t})"


def test_every_model_can_promise_a_coverage() -> None:
    """A model that holds nothing out, and one whose documents belong together in groups."""
    texts, labels = ["woof bow", "meow purr", "moo", "baa"] * 40, ["pet > dog", "pet > cat", "cow", "sheep"] * 40
    promised = fit(texts, labels, model="most_frequent", coverage=0.9).evidence_.guarantee
    assert promised is not None
    assert (promised.documents, promised.reached) == (32, 1.0)
    groups = [f"farm {row // 8}" for row in range(160)]
    model = fit(texts, labels, preset="fast", coverage=0.9, groups=groups)
    assert model.evidence_.guarantee is not None
    assert model.evidence_.guarantee.documents % 8 == 0
    with pytest.raises(TreelabelError, match=r"160 documents in few groups are too few to promise a coverage of 0.9"):
        fit(texts, labels, preset="fast", coverage=0.9, groups=[f"farm {row // 158}" for row in range(160)])


def test_a_promise_ends_with_an_update_and_is_made_anew_by_a_fit(covering: tuple[Model, Dataset]) -> None:
    model, test = covering
    order = np.random.default_rng(0).permutation(len(load_sample()))
    train = load_sample()[np.sort(order[:1200])]
    again = update_model(model, test[:50], train=train)
    assert again.evidence_.guarantee is not None
    assert again.evidence_.guarantee.documents == 200
    assert again.default_rule != model.default_rule
    h = model.hierarchy_
    memory = fit(train, model="memory", coverage=0.8)
    with pytest.warns(UserWarning, match="the promise of conformal was of the model before"):
        updated = update_model(memory, ["a fox"], [[h.names[int(h.leaves[0])]]])
    assert updated.evidence_.guarantee is None


def test_a_saved_model_keeps_what_it_promises(covering: tuple[Model, Dataset], tmp_path: Any) -> None:
    model, test = covering
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.evidence_ == model.evidence_
    assert loaded.default_rule == model.default_rule
    assert loaded.predict(test.texts[:20], paths=True) == model.predict(test.texts[:20], paths=True)


def test_several_labels_a_text_have_a_recall() -> None:
    rng = np.random.default_rng(0)
    words = ["cat", "dog", "soup", "tea"]
    labels = [sorted(set(rng.choice(words, 2).tolist())) for _ in range(200)]
    texts = [" ".join([*some, *rng.choice(words, 1).tolist()]) for some in labels]
    model = fit(texts, labels, preset="fast", coverage=0.7)
    assert model.default_rule.startswith("risk_control(at_least=0.7, t=0.")
    assert model.evidence_.guarantee is not None
    assert "in expectation, at least 0.7 of a document's true labels" in model.evidence_.guarantee.promise


def test_a_coverage_that_cannot_be_promised_is_refused() -> None:
    with pytest.raises(TreelabelError, match="coverage = 1, expected a share above 0 and below 1"):
        fit(TEXTS, COLUMNS["category"], preset="fast", coverage=1)
    with pytest.raises(TreelabelError, match=r"12 documents are too few to promise a coverage of 0.9: 30 have to be"):
        fit(TEXTS[:12], COLUMNS["category"][:12], preset="fast", coverage=0.9)
    with pytest.raises(TreelabelError, match=r"are too few to promise a coverage of 0.999: 999 have to be kept out"):
        fit(TEXTS, COLUMNS["category"], preset="fast", coverage=0.999)
    with pytest.raises(TreelabelError, match="coverage = nan, expected a share above 0 and below 1"):
        fit(TEXTS, COLUMNS["category"], preset="fast", coverage=float("nan"))


def test_the_command_promises_a_coverage(tmp_path: Any, run: Run) -> None:
    write(load_sample()[:400], tmp_path / "train.jsonl")
    options = ("--preset", "fast", "--coverage", "0.9")
    ended = run("fit", tmp_path / "train.jsonl", "-o", tmp_path / "model", *options)
    assert ended.code == 0, ended.err
    assert "promised: the nodes cover the true label with a probability of at least 0.9" in ended.out
    assert "leaves in 1.00 nodes of depth" in ended.out
