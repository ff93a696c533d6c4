"""The model neural: what it trains, how, and that nothing changes by parts, processes, a kill or a stop."""

import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from tests.helpers import Run, WordVectors, load_model, make_model, put, registered, tiny_bert
from tests.neural.forked_fits import fit_in_process
from treelabel import Dataset, TreelabelError
from treelabel.core.strings import Strings
from treelabel.encoders.backbone import layers_of
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.files import Files
from treelabel.encoders.tokens import Tokens
from treelabel.models.check import CASES, HARD_TEXTS, check_model, fit_case, it_learns
from treelabel.models.model_inputs import training_of
from treelabel.neural.backbones import freeze, learned_tokenizer, small_bert
from treelabel.neural.featurizers import FrozenFeaturizer
from treelabel.neural.hardware import faster_in_bf16
from treelabel.neural.losses.registry import LOSSES
from treelabel.neural.network import LinearOutputs, Network
from treelabel.neural.objective import Objective
from treelabel.neural.optimization import SCHEDULES, Pacing, parameter_groups
from treelabel.neural.trainer import epoch_batches
from treelabel.neural.training_arguments import Callback, TrainingArguments
from treelabel.neural.validation_set import ValidationSet

LEAF = CASES["leaf"]
DATA = Dataset.of(LEAF.texts, LEAF.labels, LEAF.hierarchy)
# Which kinds of labels losses take: see `Loss.needs`.
KINDS = {
    "bce": ("leaf", "path", "many", "DAG"),
    "leaf_softmax": ("leaf", "path", "DAG"),
    "conditional_softmax": ("leaf", "path"),
    "conditional_softmax_la": ("leaf", "path"),
    "conditional_sigmoid": ("leaf", "path", "many", "DAG"),
    "champ": ("leaf", "path", "many", "DAG"),
    "match": ("leaf", "path", "many", "DAG"),
    "win_flat": ("leaf", "path"),
    "win_raw": ("leaf", "path"),
    "win_log": ("leaf", "path"),
    "win_coarse": ("leaf", "path"),
    "hierarchical_cross_entropy": ("leaf", "path"),
    "soft_labels": ("leaf", "path"),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [text for case in CASES.values() for text in case.texts]
    return tiny_bert(tmp_path_factory.mktemp("encoders") / "tiny", texts)


# Smaller ones, for what depends on the loss and not on the encoder.


@pytest.fixture(scope="session")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformer of one layer."""
    texts = [text for case in CASES.values() for text in case.texts]
    return tiny_bert(tmp_path_factory.mktemp("encoders") / "thin", texts, layers=1)


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One without layers: the vectors of words and their positions."""
    texts = [text for case in CASES.values() for text in case.texts]
    return tiny_bert(tmp_path_factory.mktemp("encoders") / "bare", texts, layers=0)


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    # Networks this small are slower on two cores than on one, and much slower where others use these.
    torch.set_num_threads(1)
    with registered("words", WordVectors):
        yield


def made(mode: str, folder: Path, **settings: Any) -> Any:
    """Make a model that learns in little time."""
    of_mode: dict[str, dict[str, Any]] = {
        "frozen": {"encoder": "words", "epochs": 12, "learning_rate": 0.03},
        "fine-tuned": {"encoder": str(folder), "train": "all", "epochs": 6, "learning_rate": 5e-3},
        "scratch": {"encoder": "scratch", "epochs": 6, "learning_rate": 5e-3},
    }
    return make_model("neural", **{**of_mode[mode], "batch_size": 8, "weight_decay": 0.0, **settings})


# The battery


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mode", ["frozen", "fine-tuned", "scratch"])
@pytest.mark.slow
def test_every_loss_stands_the_battery_in_every_mode(mode: str, loss: str, thin: Path) -> None:
    refused = check_model(lambda: made(mode, thin, loss=loss, epochs=1), learns=False)
    assert {*refused} == CASES.keys() - KINDS[loss]


def is_quick(mode: str, loss: str) -> bool:
    """Whether it is soon learned: heads are, and one loss stands for the others where an encoder is trained."""
    return mode == "frozen" or loss == "conditional_softmax"


# Two do not learn well, as the paper of the win says.
@pytest.mark.parametrize(
    ("mode", "loss"),
    [
        pytest.param(mode, loss, marks=[] if is_quick(mode, loss) else pytest.mark.slow)
        for mode in ("frozen", "fine-tuned", "scratch")
        for loss in LOSSES
        if loss not in ("win_raw", "win_coarse")
    ],
)
def test_every_loss_learns_in_every_mode(mode: str, loss: str, thin: Path) -> None:
    # The logarithm of the win takes its time.
    epochs = {"frozen": 12, "fine-tuned": 8, "scratch": 6}[mode] * (5 if loss == "win_log" else 2) // 2
    # The first token of a random encoder says little.
    given = {"pooling": "mean", "learning_rate": 0.01} if mode == "fine-tuned" else {}
    for kind in KINDS[loss]:
        it_learns(fit_case(lambda: made(mode, thin, loss=loss, epochs=epochs, **given), CASES[kind]), CASES[kind])


@pytest.mark.parametrize("loss", [name for name in LOSSES if len(KINDS[name]) < 4])
def test_a_loss_says_what_labels_it_cannot_learn(loss: str, folder: Path) -> None:
    for kind in {"many", "DAG"} - {*KINDS[loss]}:
        case = CASES[kind]
        with pytest.raises(TreelabelError, match=f"the loss {loss} needs"):
            made("frozen", folder, loss=loss).fit(case.texts, case.labels, hierarchy=case.hierarchy)


# Training arguments


def test_training_arguments_are_found_by_their_own_names_and_nested_ones() -> None:
    model: Any = make_model("neural", epochs=3, training=TrainingArguments(batch_size=4))
    assert model.training == TrainingArguments(epochs=3, batch_size=4)
    assert model.get_params()["training__epochs"] == 3
    assert "epochs" not in model.get_params(deep=False)
    model.set_params(training__epochs=5, patience=2)
    assert (model.training.epochs, model.training.patience, model.training.batch_size) == (5, 2, 4)
    assert clone(model).get_params() == model.get_params()
    assert model.flat_settings()["epochs"] == 5
    assert str(make_model("hitin", epochs=3)) == "Hitin(training=TrainingArguments(epochs=3))"
    for wrong in ({"training__epochs": 0}, {"epochs": 0}, {"training__epoch": 3}, {"training": 3}):
        with pytest.raises(TreelabelError, match=r"training|epochs"):
            model.set_params(**wrong)
    with pytest.raises(TreelabelError, match="the setting epochs is 0, expected"):
        make_model("neural", training=TrainingArguments(epochs=0))
    assert model.training.epochs == 5


# What is trained, and how fast


def small(layers: int = 2) -> Network:
    backbone = small_bert(50, 16)
    assert len(layers_of(backbone)) == layers
    return Network(backbone, "cls", LinearOutputs(64, 5, hidden_size=8))


def test_the_encoder_the_hidden_layer_and_the_outputs_have_rates_of_their_own() -> None:
    network, arguments = small(), TrainingArguments(layerwise_lr_decay=0.5)
    groups = parameter_groups(network, {"encoder": 1e-5, "hidden": 1e-4, "outputs": 1e-3}, arguments)
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert len(rates) == len(list(network.parameters()))
    outputs = network.outputs
    assert outputs.hidden is not None
    assert rates[id(outputs.linear.weight)] == 1e-3
    assert rates[id(outputs.hidden.weight)] == 1e-4
    last, first = network.backbone.encoder.layer[1], network.backbone.encoder.layer[0]
    assert rates[id(last.output.dense.weight)] == 1e-5
    assert rates[id(first.output.dense.weight)] == 5e-6
    assert rates[id(network.backbone.embeddings.word_embeddings.weight)] == 2.5e-6
    assert decays[id(outputs.linear.bias)] == decays[id(last.output.LayerNorm.weight)] == 0.0
    assert decays[id(last.output.dense.weight)] == 0.01


def test_groups_without_a_rate_of_their_own_have_the_learning_rate(folder: Path, tmp_path: Path) -> None:
    plain = made("scratch", folder, epochs=1).fit(DATA)
    rates = {"encoder": 5e-3, "outputs": 5e-3}
    grouped = made("scratch", folder, epochs=1, learning_rates=rates).fit(DATA)
    assert same(plain, grouped)
    other = made("scratch", folder, epochs=1, learning_rates={"outputs": 1e-3}).fit(DATA)
    assert not same(plain, other)
    grouped.save(tmp_path / "model")
    assert load_model(tmp_path / "model").get_params()["training__learning_rates"] == rates


def test_without_an_encoder_the_best_one_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = [Files("static", "model2vec", tmp_path), Files("tiny", "transformer", folder)]
    monkeypatch.setattr("treelabel.encoders.registry.usable_files", lambda: found)
    monkeypatch.setattr("treelabel.encoders.files.usable_files", lambda: found)
    with registered("static", WordVectors):
        frozen = make_model("neural", epochs=1).fit(DATA)
    assert frozen.fitted_.featurizer.encoder.name == "words"
    frozen.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").score(LEAF.texts).dense(), frozen.score(LEAF.texts).dense())
    tuned = make_model("neural", epochs=1, train="all").fit(DATA)
    assert tuned.fitted_.network.backbone.config.hidden_size == 32


def test_frozen_layers_are_neither_trained_nor_changed(folder: Path) -> None:
    network = small()
    freeze(network.backbone, 1)
    fixed = {name for name, p in network.backbone.named_parameters() if not p.requires_grad}
    assert any("embeddings" in name for name in fixed)
    assert any("layer.0" in name for name in fixed)
    assert not any("layer.1" in name for name in fixed)
    from treelabel.encoders.backbone import load_backbone

    before = load_backbone(folder).state_dict()
    after = made("fine-tuned", folder, frozen_layers=1).fit(DATA).fitted_.network.backbone.state_dict()
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed
    assert all("layer.1" in name for name in changed)


def test_rates_rise_over_a_tenth_of_the_steps_and_then_fall() -> None:
    steps = np.arange(101)
    linear, slanted, constant = (
        [SCHEDULES[name](int(step), 100, 0.1) for step in steps] for name in ("linear", "slanted", "constant")
    )
    for rates in (linear, slanted):
        assert int(np.argmax(rates)) == 10
        assert max(rates) == pytest.approx(1.0)
        assert np.diff(rates[:11]).min() > 0 > np.diff(rates[10:]).max()
    assert linear[0] == linear[100] == 0.0
    assert slanted[0] == pytest.approx(1 / 32) == slanted[100]
    assert constant[10:] == [1.0] * 91


@pytest.mark.slow
def test_lora_changes_what_the_encoder_says_by_matrices_of_low_rank(folder: Path) -> None:
    from treelabel.encoders.backbone import load_backbone

    before = load_backbone(folder).state_dict()
    model = made("fine-tuned", folder, train="lora", lora_rank=2, learning_rate=0.02, epochs=20).fit(DATA)
    after = model.fitted_.network.backbone.state_dict()
    assert before.keys() == after.keys()
    changed = {name: after[name] - before[name] for name in before if not torch.equal(before[name], after[name])}
    assert changed
    for name, change in changed.items():
        assert name.endswith("weight"), name
        assert int(torch.linalg.matrix_rank(change, rtol=1e-3)) <= 2, name
    assert model.score(DATA.texts, LEAF.labels) > 0.8


# Nothing changes by how a batch is computed


def same(one: Any, two: Any) -> bool:
    """Whether all weights are equal to the last bit."""
    a, b = (model.fitted_.network.state_dict() for model in (one, two))
    return all(torch.equal(a[name], b[name]) for name in a)


def alike(one: Any, two: Any) -> bool:
    """Whether scores are equal but for rounding; some weights, as keys' biases, are moved by rounding alone."""
    a, b = (model.score(LEAF.texts).dense() for model in (one, two))
    return bool(np.abs(a - b).max() < 1e-4)


@pytest.mark.parametrize("settings", [{"gradient_accumulation_steps": 3}, {"gradient_checkpointing": True}], ids=str)
def test_parts_and_saved_memory_change_nothing(settings: dict[str, Any], folder: Path) -> None:
    plain = made("fine-tuned", folder, dropout=0.0, epochs=3, loss="match").fit(DATA)
    other = made("fine-tuned", folder, dropout=0.0, epochs=3, loss="match", **settings).fit(DATA)
    assert alike(plain, other)
    shorter = made("fine-tuned", folder, dropout=0.0, epochs=2, loss="match").fit(DATA)
    assert not alike(plain, shorter)


# What is registered first is called last: by then, the processes must have left their group.
LAST = """
import atexit, os, torch
# In one piece, as both write to one file.
atexit.register(lambda: os.write(1, f"in a group at the end: {torch.distributed.is_initialized()}\\n".encode()))
from treelabel.cli import main
main()
"""


@pytest.mark.slow
def test_two_processes_learn_what_one_does(run: Run, folder: Path, tmp_path: Path) -> None:
    write_documents(tmp_path / "train.jsonl")
    settings = {"train": "all", "epochs": 3, "learning_rate": 0.005, "batch_size": 8, "dropout": 0.0}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    fit = ["fit", tmp_path / "train.jsonl", "--model", "neural", "--encoder", folder, *options, "-o"]
    alone = run(*fit, tmp_path / "1")
    assert alone.code == 0, alone.err
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29617"]
    arguments = [*launcher, str(put(tmp_path, "last.py", LAST)), *map(str, fit), str(tmp_path / "2")]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert alone.out.count("49 documents") == ended.stdout.count("49 documents") == 1
    assert ended.stdout.count("in a group at the end: False") == 2
    assert alike(load_model(tmp_path / "1"), load_model(tmp_path / "2"))


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_weights(folder: Path, tmp_path: Path) -> None:
    training = {"epochs": 4, "learning_rate": 5e-3, "batch_size": 8, "dropout": 0.1, "seed": 1}
    settings = {"encoder": str(folder), "train": "all", **training}
    fit_in_process("neural", settings, tmp_path / "whole")
    settings |= {"checkpoint_dir": str(tmp_path / "checkpoints"), "checkpoint_seconds": 0.0}
    # Killed after its fourth step, then in its last epoch, each time while the next step is under way.
    begins = [fit_in_process("neural", settings, tmp_path / "broken", kill_after=step)[0] for step in (4, 25, None)]
    assert begins[0] == 1 < begins[1] < begins[2]
    assert same(load_model(tmp_path / "whole"), load_model(tmp_path / "broken"))


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(folder: Path, tmp_path: Path) -> None:
    kept = {"checkpoint_dir": str(tmp_path), "checkpoint_seconds": 0.0, "epochs": 1}
    made("fine-tuned", folder, **kept).fit(DATA)
    with pytest.raises(TreelabelError, match=r"the checkpoint of another run .* remove it, or give another folder"):
        made("fine-tuned", folder, **kept, loss="bce").fit(DATA)
    with pytest.raises(TreelabelError, match="the checkpoint of another run"):
        made("fine-tuned", folder, **kept).fit(DATA, valid=DATA)
    (file,) = tmp_path.rglob("*.safetensors")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(TreelabelError, match="no checkpoint, or a damaged one"):
        made("fine-tuned", folder, **kept).fit(DATA)


# Stopping, and telling others


def test_ctrl_c_keeps_what_is_learned_and_a_checkpoint_to_go_on_from(folder: Path, tmp_path: Path) -> None:
    steps: list[int] = []

    def press(step: int, values: Mapping[str, float]) -> None:
        steps.append(step)
        if step == 10 and "learning_rate" in values:
            os.kill(os.getpid(), signal.SIGINT)

    kept = {"checkpoint_dir": str(tmp_path)}
    stopped = made("fine-tuned", folder, callbacks=(press,), **kept).fit(DATA)
    assert max(steps) == 10
    assert stopped.stopped_ == "interrupt"
    assert np.isfinite(stopped.score(LEAF.texts).dense()).all()
    whole, gone_on = made("fine-tuned", folder).fit(DATA), made("fine-tuned", folder, **kept).fit(DATA)
    assert [model.stopped_ for model in (whole, gone_on)] == [None, None]
    assert not same(stopped, whole)
    assert same(gone_on, whole)


@pytest.mark.slow
def test_a_deadline_gives_a_model_all_the_same(folder: Path) -> None:
    for mode in ("frozen", "fine-tuned", "scratch"):
        model = made(mode, folder, epochs=1_000).fit(DATA, max_seconds=0.5)
        assert len(model.losses_) < 1_000
        assert np.isfinite(model.score(LEAF.texts).dense()).all()


def ticking(monkeypatch: pytest.MonkeyPatch) -> tuple[Callback, list[float]]:
    """Let each step take a second and everything else no time; return what counts steps, and their rates."""
    clock, rates = [0.0], list[float]()

    def watch(step: int, values: Mapping[str, float]) -> None:
        if "learning_rate" in values:
            clock[0] += 1
            rates.append(values["learning_rate"])

    monkeypatch.setattr("treelabel.neural.trainer.time.monotonic", lambda: clock[0])
    return watch, rates


def test_rates_fall_before_a_deadline_and_a_later_run_goes_on_as_if_there_had_been_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, rates = ticking(monkeypatch)
    settings: dict[str, Any] = {"lr_scheduler": "constant", "warmup_ratio": 0.0, "checkpoint_dir": str(tmp_path)}
    stopped = made("fine-tuned", folder, callbacks=(watch,), **settings).fit(DATA, max_seconds=20)
    assert stopped.stopped_ == "deadline"
    # The last 6 of 20 seconds; the deadline is over after the 21st step, whose rate is 0.
    np.testing.assert_allclose(np.divide(rates, rates[0]), [1.0] * 15 + [5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0])
    whole = made("fine-tuned", folder, **{**settings, "checkpoint_dir": None}).fit(DATA)
    assert not same(stopped, whole)
    assert same(made("fine-tuned", folder, **settings).fit(DATA), whole)


def test_a_schedule_is_run_through_before_a_deadline_that_comes_first(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates rose over a tenth of all steps that were planned: a run that was cut early never got beyond."""
    watch, rates = ticking(monkeypatch)
    long: dict[str, Any] = {"epochs": 10_000, "learning_rate": 0.01, "callbacks": (watch,)}
    for mode in ("frozen", "fine-tuned"):
        rates.clear()
        model = made(mode, folder, **long).fit(DATA, max_seconds=40)
        assert model.stopped_ == "deadline"
        # The time of all but the first 3 steps, by which the pace is known: rates rise in a tenth of it.
        assert 1.0 >= max(rates) / 0.01 > 0.9
        assert int(np.argmax(rates)) in (5, 6, 7)
        assert rates[-1] == 0
    # Where a later run is to go on, only the last part of the time has rates of its own, but it has all of them.
    rates.clear()
    made("fine-tuned", folder, checkpoint_dir=str(tmp_path), **long).fit(DATA, max_seconds=100)
    assert max(rates[:71]) < 0.001
    assert max(rates[71:]) > 0.008
    assert rates[-1] == 0


def test_a_slow_first_step_does_not_shorten_a_schedule() -> None:
    pacing = Pacing(begun=0.0, deadline=100.0, first=0, planned=100)
    times = [0.0, *np.linspace(40.0, 99.0, 99)]
    assert [pacing.share(now, step, float) for step, now in enumerate(times)] == [*range(100)]
    # A deadline that is over.
    assert Pacing(0.0, 0.0, 0, 10).share(1.0, 0, lambda step: 1.0) == 0


def test_a_deadline_that_is_late_enough_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, rates = ticking(monkeypatch)
    for mode in ("frozen", "fine-tuned"):
        rates.clear()
        whole = made(mode, folder, callbacks=(watch,)).fit(DATA)
        limited = made(mode, folder, callbacks=(watch,)).fit(DATA, max_seconds=len(rates) + 2)
        assert limited.stopped_ is None
        assert same(whole, limited)


def test_what_cannot_be_learned_again_in_time_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, rates = ticking(monkeypatch)
    model = make_model("neural", encoder="words", epochs=4, patience=9, learning_rate=0.03, callbacks=(watch,))
    texts, labels = LEAF.texts * 4, LEAF.labels * 4
    model.fit(texts, labels, hierarchy=LEAF.hierarchy)
    both = len(rates)
    rates.clear()
    model.fit(texts, labels, hierarchy=LEAF.hierarchy, max_seconds=both / 2 + 2)
    assert model.stopped_ == "deadline"
    assert len(rates) <= both / 2
    assert model.score(LEAF.texts, LEAF.labels) > 0.5


def test_a_deadline_while_all_is_learned_again_keeps_what_was_learned_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("neural", encoder="words", epochs=6, learning_rate=0.03, batch_size=8)
    late, now = [False], time.monotonic

    def watch(step: int, values: Mapping[str, float]) -> None:
        late[0] = late[0] or step == 6 * 23

    monkeypatch.setattr("treelabel.neural.trainer.time.monotonic", lambda: now() + 1e6 * late[0])
    model.set_params(callbacks=(watch,)).fit(LEAF.texts * 4, LEAF.labels * 4, hierarchy=LEAF.hierarchy, max_seconds=1e3)
    assert late[0]
    assert model.score(LEAF.texts, LEAF.labels) > 0.9


def test_validation_data_that_a_loss_cannot_judge_are_left_aside(folder: Path) -> None:
    many = CASES["many"]
    valid = Dataset.of(many.texts[:1], many.labels[:1], many.hierarchy)
    model = made("frozen", folder, loss="leaf_softmax", epochs=9).fit(DATA, valid=valid)
    assert len(model.losses_) == 9
    assert np.isfinite(model.losses_).all()


def test_the_best_epoch_by_validation_is_kept(folder: Path) -> None:
    wrong = Dataset.of(LEAF.texts, LEAF.labels[1:] + LEAF.labels[:1], LEAF.hierarchy)
    told: dict[int, Mapping[str, float]] = {}

    def tell(step: int, values: Mapping[str, float]) -> None:
        if "validation_loss" in values:
            told[step] = values

    settings: dict[str, Any] = {"epochs": 8, "lr_scheduler": "constant", "warmup_ratio": 0.0, "callbacks": (tell,)}
    model = made("scratch", folder, **settings).fit(DATA, valid=wrong)
    assert model.losses_ == [values["validation_loss"] for values in told.values()]
    best = int(np.argmin(model.losses_)) + 1
    assert best < len(model.losses_) <= best + 5
    again = made("scratch", folder, **{**settings, "epochs": best}).fit(DATA, valid=wrong)
    assert same(model, again)


class Board:
    """TensorBoard's SummaryWriter, as far as it is needed."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float, int]] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))


class Tracker:
    """The module mlflow, as far as it is needed."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float, int]] = []

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        self.told += [(name, value, step) for name, value in values.items()]


class Experiment(Tracker):
    """A run of wandb, as far as it is needed."""

    log_metrics = None  # type: ignore[assignment]

    def log(self, values: dict[str, float], step: int) -> None:
        self.told += [(name, value, step) for name, value in values.items()]


def test_callbacks_are_told_the_same_whoever_they_are(folder: Path) -> None:
    board, tracker = Board(), Tracker()
    made("frozen", folder, epochs=2, callbacks=(board, tracker)).fit(DATA)
    assert board.told == tracker.told
    assert {name for name, _, _ in board.told} == {"loss", "learning_rate", "documents_per_second", "training_loss"}
    assert max(step for _, _, step in board.told) == 2 * -(-len(DATA) // 8)
    with pytest.raises(TreelabelError, match="expected a callback"):
        made("frozen", folder, callbacks=(3,)).fit(DATA)


# Texts and batches


def test_batches_hold_every_document_once_and_are_of_similar_length() -> None:
    lengths = np.random.default_rng(0).integers(2, 200, 1_000)
    batches = epoch_batches(lengths, 16, seed=1, epoch=2)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1_000))
    spread = np.mean([np.ptp(lengths[rows]) for rows in batches])
    assert spread < 15
    assert [rows.tolist() for rows in epoch_batches(lengths, 16, 1, 2)] == [rows.tolist() for rows in batches]
    assert [rows.tolist() for rows in epoch_batches(lengths, 16, 1, 3)] != [rows.tolist() for rows in batches]


def test_tokens_are_cut_and_filled_up() -> None:
    tokenizer = learned_tokenizer(Strings.of(["cat and dog", "cat and dog"]))
    tokens = Tokens.of(Strings.of(["cat", "cat and dog and cat", ""]), tokenizer, 5)
    assert tokens.lengths.tolist() == [3, 5, 2]
    ids, mask = tokens.batch(np.array([2, 1]))
    assert mask.tolist() == [[1, 1, 0, 0, 0], [1] * 5]
    assert ids[0, 2:].tolist() == [tokens.pad] * 3
    assert [tokenizer.id_to_token(token) for token in ids[1].tolist()] == ["[CLS]", "cat", "and", "dog", "[SEP]"]


def test_bfloat16_is_used_only_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    network, given = small(), (torch.ones((2, 4), dtype=torch.long), torch.ones((2, 4), dtype=torch.long))
    now = [0.0]
    cost = {False: 1.0, True: 0.4}

    def ticking(*_: Any, enabled: bool, **__: Any) -> Any:
        now[0] += cost[enabled]
        return nullcontext()

    monkeypatch.setattr("treelabel.neural.hardware.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("treelabel.neural.hardware.torch.autocast", ticking)
    assert faster_in_bf16(network, given)
    cost[True] = 0.6
    assert not faster_in_bf16(network, given)
    cost[True] = 20.0
    assert not faster_in_bf16(network, given)


# More of what users may ask for


def test_a_hidden_layer_and_tf_idf_stand_beside_embeddings(folder: Path, tmp_path: Path) -> None:
    model = made("frozen", folder, hidden_size=16, tfidf=True, lsa_components=8).fit(DATA)
    outputs = model.fitted_.network.outputs
    assert outputs.hidden is not None
    assert (outputs.hidden.in_features, outputs.hidden.out_features) == (32 + 8, 16)
    assert model.score(LEAF.texts, LEAF.labels) > 0.9
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").score(LEAF.texts).dense(), model.score(LEAF.texts).dense())


def test_documents_held_out_choose_the_epoch_and_all_are_learned_then() -> None:
    texts, labels = LEAF.texts * 4, LEAF.labels * 4
    model = make_model("neural", encoder="words", epochs=6, learning_rate=0.03)
    steps: list[int] = []
    model.set_params(callbacks=(lambda step, values: steps.append(step),), batch_size=8)
    model.fit(texts, labels, hierarchy=LEAF.hierarchy)
    best = int(np.argmin(model.losses_)) + 1
    first, second = len(texts) - int(0.1 * len(texts)), len(texts)
    assert max(steps) in (6 * -(-first // 8), best * -(-second // 8))
    assert steps[-1] == best * -(-second // 8)


@pytest.mark.slow
def test_length_and_pooling_reach_the_encoder_in_every_mode(folder: Path) -> None:
    text = "terrier " * 30
    for mode, settings in (("frozen", {"encoder": f"{folder}(runtime=torch)"}), ("fine-tuned", {})):
        short, plain, pooled = (
            made(mode, folder, epochs=1, **settings, **more).fit(DATA)
            for more in ({"max_length": 4}, {}, {"pooling": "max"})
        )
        assert np.array_equal(*(short.score([given]).dense() for given in (text, text + "cake")))
        found = [model.score([text]).dense() for model in (short, plain, pooled)]
        assert not any(np.allclose(one, two) for one, two in combinations(found, 2))
    with pytest.raises(TreelabelError, match="max_length is 600, expected a number from 3 to 64"):
        made("fine-tuned", folder, max_length=600).fit(DATA)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"train": "some"}, "the setting train is 'some', expected 'auto' or 'head'"),
        ({"encoder": "scratch", "pooling": "avg"}, "the setting pooling is 'avg', expected 'cls' or 'mean'"),
        (
            {"encoder": "scratch", "validation_fraction": 1.0},
            "the setting validation_fraction is 1.0, expected a number from 0 to 0.99",
        ),
        ({"encoder": "scratch", "learning_rates": (1e-3, 1e-3)}, "learning_rates is .*, expected a mapping or null"),
        ({"encoder": "scratch", "learning_rates": {"head": 1e-3}}, "by any of: encoder, hidden, outputs"),
        (
            {"encoder": "words", "epochs": "three"},
            "the setting epochs is 'three', expected a whole number from 1",
        ),
        ({"encoder": "words", "dropout": 2}, "the setting dropout is 2, expected a number from 0 to 0.99"),
        ({"encoder": "words", "tfidf": "maybe"}, "the setting tfidf is 'maybe', expected true or false"),
        ({"encoder": "words", "callbacks": print}, "the setting callbacks is .*, expected a list"),
        (
            {"encoder": "words", "frozen_layers": 2},
            "frozen_layers, layerwise_lr_decay and gradient_checkpointing are about training the encoder",
        ),
        ({"encoder": WordVectors(), "max_length": 9}, "those of the encoder object that was given"),
        ({"encoder": "scratch", "train": "head"}, "a random encoder has to be trained"),
        ({"encoder": "scratch", "tfidf": True}, "tfidf=True stands beside frozen embeddings"),
        ({"encoder": WordVectors(), "train": "all"}, "given by its name or folder"),
        ({"encoder": "words", "epochs": 0}, "the setting epochs is 0, expected a whole number from 1"),
        (
            {"encoder": "words", "loss": "bce", "loss_params": {"beta": 1}},
            "the loss bce has no parameter 'beta'; it has none",
        ),
        (
            {"encoder": "words", "loss_params": 1},
            "the setting loss_params is 1, expected a mapping or null",
        ),
        ({"encoder": "words", "loss": "bse"}, "unknown loss 'bse'; did you mean bce"),
        ({"encoder": "words", "learning_rate": 1e15, "hidden_size": 8}, "learning diverged"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(TreelabelError, match=match):
        make_model("neural", **settings).fit(DATA)


@pytest.mark.slow
def test_without_torch_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import treelabel as tl\n"
        "from treelabel.models.check import CASES\n"
        "c = CASES['leaf']\n"
        "try: tl.make_model('neural', encoder='scratch').fit(c.texts, c.labels, hierarchy=c.hierarchy)\n"
        "except tl.TreelabelError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == 'the model neural needs torch: pip install "treelabel[neural]"'


def test_without_torch_all_models_are_listed() -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom treelabel.cli import main\nmain(['models'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert 'hitin needs torch: pip install "treelabel[neural]"' in ended.stdout
    assert "epochs=None" in ended.stdout


# ONNX


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.slow
def test_an_exported_model_gives_the_same_scores(loss: str, folder: Path, bare: Path, tmp_path: Path) -> None:
    kind = KINDS[loss][1]
    case = CASES[kind]
    mode = {"train": "head"} if loss in ("bce", "win_log") else {}
    # Layers take most of the time of an export, and are the same for all losses.
    mode |= {} if loss in ("bce", "conditional_softmax") else {"encoder": str(bare), "pooling": "mean"}
    model = made("fine-tuned", folder, loss=loss, epochs=3, **mode)
    model.fit(case.texts, case.labels, hierarchy=case.hierarchy)
    texts = [*case.texts, *HARD_TEXTS]
    expected = model.score(texts).dense()
    exported = model.export()
    np.testing.assert_allclose(exported.score(texts).dense(), expected, atol=1e-4)
    # Saving the one leaves the other as it is.
    model.save(tmp_path / "torch")
    np.testing.assert_allclose(exported.score(texts).dense(), expected, atol=1e-4)
    exported.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.score(texts).dense(), exported.score(texts).dense())
    assert loaded.default_rule == model.default_rule
    copy_to_cpu = pickle.loads(pickle.dumps(loaded))
    assert np.array_equal(copy_to_cpu.score(texts).dense(), exported.score(texts).dense())


@pytest.mark.slow
def test_int8_is_near_and_smaller_and_needs_no_torch(folder: Path, tmp_path: Path) -> None:
    model = made("fine-tuned", folder, loss="conditional_softmax", epochs=12).fit(DATA)
    for runtime in ("onnx", "int8"):
        model.export(runtime).save(tmp_path / runtime)
    size = {name: (tmp_path / name / "model.onnx").stat().st_size for name in ("onnx", "int8")}
    assert size["int8"] < 0.7 * size["onnx"]
    near = np.abs(load_model(tmp_path / "int8").score(LEAF.texts).dense() - model.score(LEAF.texts).dense())
    assert near.mean() < 0.02
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "import treelabel as tl\n"
        f"print(tl.load_model({str(tmp_path / 'int8')!r}).predict(['small terrier barks digs']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[['terrier']]"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("chunk_size_feed_forward", "x", "no configuration of a transformer that can be run"),
        ("chunk_size_feed_forward", 3, "no configuration of a transformer that can be run"),
        ("num_attention_heads", -1, "no configuration of a transformer that can be run"),
        ("_attn_implementation", "somebody/kernel", "has _attn_implementation, which is not for a model's folder"),
        ("text_config", {"attn_implementation": "somebody/kernel"}, "has attn_implementation, which is not for"),
    ],
)
def test_a_crafted_configuration_is_refused_when_it_is_loaded(
    trained: Path, tmp_path: Path, name: str, value: Any, said: str
) -> None:
    model = tmp_path / "model"
    shutil.copytree(trained, model)
    config = json.loads((model / "encoder.json").read_text())
    put_file(model, "encoder.json", json.dumps({**config, name: value}).encode())
    with pytest.raises(TreelabelError, match=said):
        load_model(model)


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model with a transformer of its own."""
    place = tmp_path_factory.mktemp("trained") / "model"
    made("fine-tuned", folder, epochs=1).fit(DATA).save(place)
    return place


def put_file(model: Path, name: str, content: bytes) -> None:
    """Put a file in the place of one of a model, with its checksum."""
    (model / name).write_bytes(content)
    described = json.loads((model / "model.json").read_text())
    described["sha256"][name] = hashlib.sha256(content).hexdigest()
    (model / "model.json").write_text(json.dumps(described))


@pytest.mark.slow
def test_a_graph_with_weights_in_the_working_folder_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    model = tmp_path / "model"
    made("scratch", folder, epochs=1).fit(DATA).export().save(model)
    graph = onnx.load(str(model / "model.onnx"))
    monkeypatch.chdir(tmp_path)
    onnx.save_model(graph, "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    put_file(model, "model.onnx", Path("model.onnx").read_bytes())
    with pytest.raises(TreelabelError, match=r"model: the ONNX graph takes weights from another file"):
        load_model(model)


def test_what_cannot_be_exported_is_said(folder: Path) -> None:
    with pytest.raises(TreelabelError, match="the encoder words is no graph of one transformer"):
        made("frozen", folder).fit(DATA).export()
    with pytest.raises(TreelabelError, match="tf-idf is no graph of one transformer"):
        made("frozen", folder, encoder=f"{folder}(runtime=torch)", tfidf=True).fit(DATA).export()
    with pytest.raises(TreelabelError, match="expected the runtime onnx or int8, found 'tflite'"):
        made("frozen", folder).fit(DATA).export("tflite")
    with pytest.raises(TreelabelError, match="call fit before export"):
        made("frozen", folder).export()


# The command line


@pytest.mark.slow
def test_the_command_line_learns_exports_and_scores(run: Run, folder: Path, tmp_path: Path) -> None:
    write_documents(tmp_path / "train.jsonl")
    model, graph = tmp_path / "model", tmp_path / "graph"
    settings = ["--set", "epochs=2", "--set", "learning_rate=0.005", "--set", "train=all"]
    learned = run(
        "fit",
        tmp_path / "train.jsonl",
        "-o",
        model,
        "--model",
        "neural",
        "--encoder",
        folder,
        "--loss",
        "conditional_softmax_la",
        *settings,
    )
    assert learned.code == 0, learned.err
    assert run("export", model, "-o", graph, "--int8").code == 0
    for each in (model, graph):
        assert run("score", each, tmp_path / "train.jsonl", "-o", tmp_path / "scores.npz", "--force").code == 0
    refused = run("export", graph, "-o", tmp_path / "again")
    assert (refused.code, "is an ONNX graph already" in refused.err) == (2, True)
    for name, wrong, said in (
        ("--encoder", "minilmm", "unknown encoder 'minilmm'"),
        ("--loss", "champs", "unknown loss 'champs'; did you mean champ?"),
        ("--set", "learning_rat=1", "the model neural has no setting 'learning_rat'; did you mean learning_rate?"),
    ):
        ended = run("fit", tmp_path / "train.jsonl", "-o", tmp_path / "no", "--model", "neural", name, wrong)
        assert (ended.code, said in ended.err) == (2, True), ended.err
        assert not (tmp_path / "no").exists()
    both = ("--encoder", folder, "--set", "encoder=scratch")
    ended = run("fit", tmp_path / "train.jsonl", "-o", tmp_path / "no", "--model", "neural", *both)
    assert (ended.code, "encoder was given twice: as --encoder and as --set encoder=" in ended.err) == (2, True)
    assert len({file.stat().st_mode for file in model.iterdir()}) == 1
    hurried = run(
        "fit",
        tmp_path / "train.jsonl",
        "-o",
        tmp_path / "hurried",
        "--model",
        "neural",
        "--encoder",
        folder,
        "--max-seconds",
        "0",
        "--set",
        f"checkpoint_dir={tmp_path / 'kept'}",
        *settings,
    )
    assert "stopped before its end, and the best so far was kept; the same command goes on from its" in hurried.out


def write_documents(file: Path) -> None:
    paths = dict(zip(LEAF.hierarchy.names, LEAF.hierarchy.paths(), strict=True))
    rows = zip(LEAF.texts, LEAF.labels, strict=True)
    lines = [json.dumps({"text": text, "labels": [paths[label] for label in labels]}) for text, labels in rows]
    file.write_text("\n".join(lines))


def test_documents_that_judge_are_drawn_from_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treelabel.neural.validation_set.MIN_DOCUMENTS", 10)
    monkeypatch.setattr("treelabel.neural.validation_set.MAX_VALUES", 0)
    order = np.argsort([row[0] for row in LEAF.labels], kind="stable")
    data = training_of([LEAF.texts[i] for i in order], [LEAF.labels[i] for i in order], LEAF.hierarchy)
    judge = ValidationSet.of(
        data, FrozenFeaturizer(CachedEncoder(WordVectors())), Objective.of(data, "auto", {}), seed=0
    )
    assert judge is not None
    assert len(judge.data) == 10
    assert len(np.unique(judge.data.labels.indices)) >= 3
