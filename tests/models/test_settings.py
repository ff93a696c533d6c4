"""Every setting of every model: what it may be, and what is refused when a model is made, before any work is done."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from tests.helpers import make_model
from treelabel import MODELS, TreelabelError
from treelabel.cli import main
from treelabel.models.base import Model
from treelabel.models.check import TREE
from treelabel.neural.training_arguments import TrainingArguments

NAN, INF = math.nan, math.inf
NO_NUMBER = ["two", NAN, INF, -INF, [1], True, object()]
NO_COUNT = [*NO_NUMBER, 0.5, 1.0, -1, 1 << 70]
NO_RANGE = ["two", 2, (0, 1), (1, 0), (2, 1), (1, 2, 3), (1.0, 2), ("1", 2), (1, 1000), NAN, True]
NO_TEXT = [1, 0.5, True, object()]
NO_MAPPING = [1, "a", ["a"], {"beta": NAN}, {"beta": "two"}]

# What must be refused, and what must be taken, of settings by name; None stands for every model that has it.
KINDS: dict[str, tuple[list[Any], list[Any]]] = {
    "seed": ([*NO_COUNT, None], [0, 7, np.int64(3)]),
    "count": ([*NO_COUNT, 0, None], [1, 5, np.int64(3)]),
    "optional count": ([*NO_COUNT, 0], [4, None]),
    "two or more": ([*NO_COUNT, 0, 1, None], [2, 10]),
    "count or zero": ([*NO_COUNT, None], [0, 5]),
    "cost": ([*NO_NUMBER, -1, 0, None], [1, 0.5, 100.0, np.float64(0.1), np.float32(0.5)]),
    "optional cost": ([*NO_NUMBER, -1, 0], [1.0, None]),
    "rate": ([*NO_NUMBER, -1, 0, None], [1e-5, 1, 1e6]),
    "optional rate": ([*NO_NUMBER, -1, 0], [1e-5, None]),
    "weight": ([*NO_NUMBER, -0.1, None], [0, 0.5]),
    "factor": ([*NO_NUMBER, 0, 0.5, None], [1, 2.0]),
    "optional strength": (["two", NAN, -INF, -1, True, [1]], [0, 3.5, None]),
    "optional weight": ([*NO_NUMBER, -0.1], [0, 0.5, None]),
    "norm": (["two", NAN, -INF, -1, True, None], [0, 1.0, INF]),
    "share": ([*NO_NUMBER, -0.1, 1.1, 7, None], [0, 0.5, 1]),
    "optional share": ([*NO_NUMBER, -0.1, 1.1, 7], [0, 0.5, 1, None]),
    "partial share": ([*NO_NUMBER, -0.1, 1, 7, None], [0, 0.5]),
    "optional partial share": ([*NO_NUMBER, -0.1, 1, 7], [0, 0.5, None]),
    "share above zero": ([*NO_NUMBER, 0, 1.1, None], [0.5, 1]),
    "threshold": ([*NO_NUMBER, -2, None], [0, 0.002]),
    "flag": ([0, 1, "yes", None, NAN], [True, False]),
    "flag or auto": ([0, 1, "yes", None, NAN, ["auto"]], [True, False, "auto"]),
    "range": ([*NO_RANGE, None], [(1, 1), (1, 3), [1, 2]]),
    "optional range": (NO_RANGE, [(1, 1), (2, 4), None]),
    "automatic range": (NO_RANGE, [(1, 1), (2, 4), None, "auto"]),
    "buckets": ([*NO_COUNT, 0, None], [1000, 1 << 20]),
    "power of two": ([*NO_COUNT, 0, 1, 3, 1000, None], [2, 1 << 20]),
    "text": ([*NO_TEXT, None], []),
    "optional text": (NO_TEXT, [None, "name"]),
    "metric": ([*NO_TEXT, "micro_f2"], [None, "micro_f1", "hf_beta@2"]),
    "encoder": ([1, 0.5, ["minilm"], object()], [None]),
    "mapping": (NO_MAPPING, [None]),
    "rates": ([*NO_MAPPING, {"outputs": -1.0}, {"elsewhere": 1.0}], [None, {"outputs": 1e-3}]),
    "descriptions": ([1, ["a"], {"a": 1}], [None, "file.tsv", {"cat": "an animal"}]),
    "stop words": ([1, "german", [1], {"the": 1}], [None, "english", ("the", "of")]),
    "hierarchy": ([1, "tree.tsv", {"a": "b"}], [None, TREE]),
    "estimators": ([1, "linear", (1,), ("linaer",), ({"C": 1.0},), ({"model": "linear", "C": -1},), ()], [("linear",)]),
    "callbacks": ([1, "print", None], [()]),
    "training": ([1, {"epochs": 3}, None], [TrainingArguments(epochs=3)]),
    "label embeddings": ([1, "pifa-tfidf", ("tfidf",), ()], [("pifa-tfidf",), ("text-emb", "pifa-tfidf")]),
}
SYSTEMS = ("hitin", "hgclr", "hbgl", "aplc_xlnet", "x_transformer", "attention_xml", "light_xml")
CHOICES: dict[tuple[str | None, str], list[Any]] = {
    ("linear", "head"): ["auto", "nodes", "leaves", "conditional_softmax", "conditional_sigmoid"],
    ("bag", "loss"): ["auto", "bce", "conditional_softmax"],
    ("neural", "loss"): ["auto", "bce", "conditional_softmax"],
    **{(model, "loss"): ["bce"] for model in SYSTEMS},
    ("extreme", "negatives"): ["gold", "matcher", "both"],
    ("x_transformer", "negatives"): ["gold", "matcher", "both"],
    ("extreme", "tree"): ["clusters", "hierarchy"],
    ("prototype", "label_text"): ["name", "path"],
    ("tuned_prototype", "label_text"): ["name", "path"],
    ("neural", "train"): ["auto", "head", "lora", "all"],
    (None, "precision"): ["auto", "fp32", "bf16"],
    (None, "lr_scheduler"): ["linear", "slanted", "constant", None],
    ("hitin", "tree_pooling"): ["sum", "mean", "max"],
    (None, "pooling"): ["cls", "mean", "max", "last", None],
    (None, "mode"): ["auto"],
}
# The kind of each setting; (model, setting) where models differ.
SETTINGS: dict[Any, str] = {
    "hierarchy": "hierarchy",
    "seed": "seed",
    "C": "cost",
    ("linear", "C"): "optional cost",
    "adaptive": "flag",
    "ancestor_weight": "weight",
    "descendant_weight": "weight",
    "batch_size": "optional count",
    "beam_size": "count",
    "blend": "optional share",
    "bottleneck_size": "count",
    "callbacks": "callbacks",
    ("linear", "char_ngram_range"): "automatic range",
    "char_ngram_range": "optional range",
    "checkpoint_dir": "optional text",
    "checkpoint_seconds": "weight",
    "cluster_size": "two or more",
    "contrastive_temperature": "cost",
    "contrastive_weight": "weight",
    "cv": "two or more",
    "decoder_size": "count",
    "descriptions": "descriptions",
    "div_value": "factor",
    "dropout": "optional partial share",
    "embedding_dropout": "partial share",
    "encoder": "encoder",
    "encoder_weight": "share",
    "epochs": "optional count",
    ("bag", "epochs"): "count",
    "estimators": "estimators",
    "frozen_layers": "count or zero",
    "global_batch_size": "count",
    "global_learning_rate": "rate",
    "global_mask": "share",
    "global_steps": "count or zero",
    "gradient_accumulation_steps": "count",
    "gradient_checkpointing": "flag",
    "gumbel_temperature": "cost",
    "height": "count",
    "hidden_layers": "count",
    "hidden_size": "count or zero",
    "label_embeddings": "label embeddings",
    "label_prior_strength": "optional strength",
    "parent_prior_strength": "optional strength",
    ("extreme", "label_text"): "flag",
    "label_weight": "optional weight",
    "layerwise_lr_decay": "share above zero",
    "leaf_size": "two or more",
    "learning_rate": "optional rate",
    ("bag", "learning_rate"): "rate",
    "learning_rates": "rates",
    "log_probabilities": "flag",
    "lora_rank": "count",
    "loss_params": "mapping",
    "lsa_components": "count",
    "lstm_size": "count",
    "max_flat_labels": "count",
    "max_grad_norm": "norm",
    "max_iter": "count",
    "max_length": "optional count",
    "min_df": "count",
    "mlp_size": "count",
    "n_candidates": "count",
    "n_clusters": "count or zero",
    "n_features": "buckets",
    ("bag", "n_features"): "power of two",
    "n_neighbors": "count",
    "n_trees": "count",
    "ngram_range": "optional range",
    ("linear", "ngram_range"): "automatic range",
    ("bag", "ngram_range"): "range",
    ("memory", "ngram_range"): "range",
    "optimize": "metric",
    "patience": "count",
    "power": "optional weight",
    "propensity": "weight",
    "prune": "weight",
    "recursive_regularization": "weight",
    "share": "share above zero",
    "shrinkage": "optional share",
    "slot_mask": "share",
    "states_dropout": "partial share",
    "stop_words": "stop words",
    "tail_clusters": "count",
    "tau": "weight",
    "temperature": "cost",
    "text_dropout": "partial share",
    "tfidf": "flag",
    "training": "training",
    "tune": "flag or auto",
    "tune_seconds": "optional weight",
    "threads": "count",
    "threshold": "optional share",
    ("hgclr", "threshold"): "threshold",
    "top_clusters": "count",
    "tree_size": "count",
    "validation_fraction": "optional partial share",
    "vector_size": "count",
    "vectors": "optional text",
    "warm_start": "flag",
    "warmup_ratio": "share",
    "weight_decay": "weight",
    "word_heads": "count",
}
NEURAL = ("neural", *SYSTEMS)
SETTINGS |= {(model, "validation_fraction"): "partial share" for model in NEURAL}
# Values that are right by themselves, but exclude another setting's default.
EXCLUDED = {
    *((model, name) for name in ("frozen_layers", "layerwise_lr_decay", "gradient_checkpointing") for model in NEURAL),
    ("bag", "ngram_range"),
}
ALL = [(name, setting) for name in MODELS for setting in MODELS[name].maker.setting_names()]


def values(model: str, setting: str) -> tuple[list[Any], list[Any]]:
    """Return values that must be refused, and values that must be taken."""
    choices = CHOICES.get((model, setting), CHOICES.get((None, setting)))
    if choices is not None:
        return [1, "elsewhere", NAN, ["auto"], *([] if None in choices else [None])], choices
    bad, good = KINDS[SETTINGS.get((model, setting), SETTINGS.get(setting, ""))]
    if setting == "max_length":
        return [*bad, 1, 2], [3, 512, None]
    return bad, [] if (model, setting) in EXCLUDED else good


def made(model: str, **settings: Any) -> Model:
    """Call a maker itself, which checks nothing."""
    maker: Any = MODELS[model].maker
    found: Model = maker.make(**settings)
    return found


def same(one: Any, other: Any) -> bool:
    return bool(one is other or one == other)


@pytest.mark.parametrize(("model", "setting"), ALL)
def test_wrong_values_are_refused_when_a_model_is_made(model: str, setting: str) -> None:
    default = make_model(model)
    for value in values(model, setting)[0]:
        for refuse in (
            partial(make_model, model, **{setting: value}),
            partial(Model.fit, made(model, **{setting: value}), object()),
        ):
            with pytest.raises(TreelabelError) as refused:
                refuse()
            assert setting in str(refused.value) or setting == "estimators", (value, refused.value)
            assert any(word in str(refused.value) for word in ("expected", "there are", "did you mean", "needs")), value
        # What only the combination of settings makes wrong is refused when it learns.
        before, refused_at_once = default.flat_settings().get(setting), not is_taken(default, {setting: value})
        assert not refused_at_once or default.flat_settings().get(setting) is before
        with pytest.raises(TreelabelError):
            (default if not refused_at_once else made(model, **{setting: value})).fit(object())
        default = make_model(model)


def is_taken(model: Model, settings: dict[str, Any]) -> bool:
    """Return whether settings can be changed."""
    try:
        model.set_params(**settings)
    except TreelabelError:
        return False
    return True


@pytest.mark.parametrize(("model", "setting"), ALL)
def test_defaults_and_documented_values_are_taken(model: str, setting: str) -> None:
    maker = MODELS[model].maker
    usual = maker().flat_settings().get(setting, TrainingArguments())
    for value in (usual, *values(model, setting)[1]):
        made = make_model(model, **{setting: value})
        changed = make_model(model).set_params(**{setting: value})
        for each in (made, clone(made), changed):
            assert same({**each.get_params(), **each.flat_settings()}[setting], value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"validation_fraction": 1}, "the setting validation_fraction is 1, expected a number from 0 to 0.99 or null"),
        ({"ngram_range": (0, 1)}, "the setting ngram_range[0] is 0, expected a whole number from 1 to 100"),
        ({"min_df": -5}, "the setting min_df is -5, expected a whole number from 1 to 2147483648"),
        ({"C": -1}, "the setting C is -1, expected a number from 1e-06 to 1e+06 or null"),
        ({"tau": NAN}, "the setting tau is nan, expected a number from 0 to 100"),
        ({"mindf": 1}, "the model linear has no setting 'mindf'; did you mean min_df?"),
        (
            {"head": "node"},
            "linear has no head 'node'; there are: auto, nodes, leaves, conditional_softmax, conditional_sigmoid",
        ),
    ],
)
def test_messages_name_the_setting_its_value_and_what_is_allowed(value: dict[str, Any], message: str) -> None:
    with pytest.raises(TreelabelError) as refused:
        make_model("linear", **value)
    assert str(refused.value) == message


def test_settings_on_the_command_line_are_checked_before_a_file_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fit", "nowhere.csv", "-o", "model", "--set", "ngram_range=two"])
    assert ended.value.code == 2
    assert "the setting ngram_range is 'two', expected a list of 2" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [NAN, -1, "two", True])
def test_a_deadline_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(TreelabelError, match=r"max_seconds is .*, expected a number from 0 to inf"):
        make_model("nothing").fit(object(), max_seconds=seconds)


def test_wrong_settings_leave_all_others_as_they_were() -> None:
    model = make_model("linear", C=2.0)
    with pytest.raises(TreelabelError, match="min_df"):
        model.set_params(C=1.0, min_df=0)
    with pytest.raises(TreelabelError, match="did you mean C"):
        model.set_params(C=1.0, c=3)
    assert model.C == 2.0


def test_the_maker_itself_only_stores_so_that_it_can_be_cloned() -> None:
    wrong = made("linear", C=-1)
    assert clone(wrong).get_params()["C"] == -1
    with pytest.raises(TreelabelError, match="the setting C is -1"):
        wrong.fit(["a"], ["b"])


def test_a_stack_knows_its_estimators_for_very_many_labels() -> None:
    stack = make_model("stack")
    assert {"linear__C", "prototype__shrinkage", "memory__n_neighbors", "extreme__n_trees"} <= set(stack.get_params())
    stack.set_params(memory__n_neighbors=5, extreme__n_trees=1)
    found = {each.name: each for each in stack._make_estimators()}
    assert list(found) == ["extreme", "memory", "lexical", "prototype"]
    assert (found["memory"].n_neighbors, found["extreme"].n_trees) == (5, 1)
    with pytest.raises(TreelabelError, match="the setting memory__n_neighbors is 0, expected a whole number from 1"):
        stack.set_params(memory__n_neighbors=0)
    with pytest.raises(TreelabelError, match="has no setting 'linear__C'"):
        stack.set_params(linear__C=1.0)
    with pytest.raises(TreelabelError, match="the setting C is -1"):
        make_model("stack", estimators=(made("linear", C=-1),))


def test_numbers_of_numpy_are_settings_and_are_saved_as_numbers(tmp_path: Any) -> None:
    from treelabel import load_model

    model: Model = make_model("linear", min_df=np.int64(2), C=np.float32(0.5), hierarchy=TREE)
    texts = [f"a text about {name}" for name in TREE.names] * 2
    model.fit(texts, list(TREE.names) * 2).save(tmp_path / "model")
    assert load_model(tmp_path / "model").get_params() | {"hierarchy": TREE} == model.get_params()
