"""Tuned encoders: the loss is the paper's, one term a level; same seed, same bits; saved, resumed and grown alike."""

import re
import signal
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.helpers import Run, WordVectors, load_model, make_model, registered, tiny_bert
from treelabel import Dataset, Hierarchy, TreelabelError
from treelabel.core.stopping import StopSignal
from treelabel.encoders.registry import find_encoder
from treelabel.encoders.token_states import StateEncoder
from treelabel.encoders.tuned_encoder import TunedEncoder, weights_digest
from treelabel.models.base import Training
from treelabel.models.model_inputs import training_of
from treelabel.neural import tuning
from treelabel.neural.contrastive import LABELS, SIBLINGS, TEXTS, TreeBatches, contrastive_loss, level_loss
from treelabel.neural.tuning import EncoderTuner, with_label_texts
from treelabel.neural.upper_layers import UpperLayers

TREE = Hierarchy.from_paths(["animal > cat", "animal > dog", "food > cake", "food > soup"])
WORDS = {"cat": "purr claw", "dog": "bark bone", "cake": "sugar oven", "soup": "broth spoon"}
OTHERS = ["red", "blue", "old", "new", "big", "small", "warm", "cold", "loud", "mild"]


def documents(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts of one word of their label among many of no meaning, which a random transformer looks at just as much."""
    rng = np.random.default_rng(seed)
    labels = [list(WORDS)[row % 4] for row in range(count)]
    texts = [
        " ".join(rng.permutation([rng.choice(WORDS[label].split()), *rng.choice(OTHERS, 4)]).tolist())
        for label in labels
    ]
    return texts, labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("encoder") / "tiny", [*documents(400, 9)[0], *WORDS, *WORDS], layers=3)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREELABEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        # So that a transformer with random weights learns in a second.
        patch.setattr(tuning, "LEARNING_RATE", 3e-3)
        patch.setattr(tuning, "LEAST_STEPS", 100)
        yield


@pytest.fixture(scope="module")
def train() -> Training:
    return training_of(*documents(48, 0), TREE)


def encoder(folder: Path) -> Any:
    return find_encoder(f"{folder}(runtime=torch, max_length=16, pooling=mean)")


def tuned_on(train: Training, folder: Path, rows: Any = None, **settings: Any) -> TunedEncoder:
    tuner = EncoderTuner(train, encoder(folder), **settings)
    return tuner.tune(np.arange(len(train)) if rows is None else rows, StopSignal(), "all")


@pytest.fixture(scope="module")
def tuned(train: Training, folder: Path) -> TunedEncoder:
    """An encoder that was tuned on all documents; a copy knows no states, so that it runs the whole transformer."""
    return tuned_on(train, folder)


# The loss


def slow_loss(vectors: Any, positives: Any, temperature: float) -> float:
    """Khosla et al. 2020, with weights: loops over texts, straight from the formula."""
    losses = []
    for i in range(len(vectors)):
        others = [j for j in range(len(vectors)) if j != i]
        total = sum(positives[i][j] for j in others)
        if total > 0:
            exps = {j: np.exp(np.dot(vectors[i], vectors[j]) / temperature) for j in others}
            terms = [positives[i][j] * np.log(exps[j] / sum(exps.values())) for j in others]
            losses.append(-sum(terms) / total)
    return float(np.mean(losses)) if losses else 0.0


def test_the_loss_by_hand() -> None:
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    same = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    # The third text has no other of its label; the first two have ln(1 + e^(-1/t)).
    assert float(contrastive_loss(vectors, same, 0.5)) == pytest.approx(np.log(1 + np.exp(-2)))
    assert float(contrastive_loss(vectors, torch.eye(3))) == 0


@given(st.integers(0, 2**31), st.integers(1, 7), st.floats(0.05, 1))
def test_the_loss_is_its_slow_twin(seed: int, count: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    positives = rng.random((count, count)) * (rng.random((count, count)) < 0.5)
    fast = contrastive_loss(torch.from_numpy(vectors), torch.from_numpy(positives), temperature)
    assert float(fast) == pytest.approx(slow_loss(vectors, positives, temperature), abs=1e-9)


def test_a_flat_hierarchy_has_the_loss_of_the_paper() -> None:
    texts, labels = documents(12, 0)
    flat = TreeBatches.of(training_of(texts, labels, Hierarchy.flat(list(WORDS))))
    rows = np.arange(12)
    vectors = torch.nn.functional.normalize(torch.randn(12, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    same = torch.tensor([[float(a == b) for b in labels] for a in labels])
    assert torch.equal(level_loss(vectors, flat.levels(rows)), contrastive_loss(vectors, same))


def test_every_level_has_a_term(train: Training) -> None:
    levels = TreeBatches.of(train).levels(np.arange(4))
    # One text of each leaf: only parents are shared.
    assert [positives.tolist() for _, positives in levels] == [[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]]
    assert len(TreeBatches.of(train).levels(np.arange(8))) == 2


# Batches


def test_batches_have_siblings_and_depend_on_the_seed_and_the_step_alone() -> None:
    paths = [f"{parent} > {parent}{child}" for parent in "abcdefghij" for child in range(5)]
    h = Hierarchy.from_paths(paths)
    labels = [path for path in paths for _ in range(6)]
    batches = TreeBatches.of(training_of([str(row) for row in range(len(labels))], labels, h))
    rows = batches.draw(0, 3)
    assert len(rows) == len(set(rows.tolist())) == LABELS * TEXTS
    parents = [labels[row][0] for row in rows.tolist()]
    assert {parents.count(each) for each in parents} == {SIBLINGS * TEXTS}
    assert np.array_equal(batches.draw(0, 3), rows)
    assert not np.array_equal(batches.draw(0, 4), rows)
    assert not np.array_equal(batches.draw(1, 3), rows)


def test_names_and_descriptions_are_texts_of_their_labels() -> None:
    h = Hierarchy.from_paths(["big_animal > A1", "big_animal > CatDog", "food > B2", "food > soup"])
    data = training_of(["one", "two", "three"], ["A1", "CatDog", "B2"], h)
    extended = with_label_texts(data, {"B2": "a cake"})
    assert list(extended.texts) == ["one", "two", "three", "Cat Dog", "a cake"]
    assert [h.names[node] for node in extended.labels.indices] == ["A1", "CatDog", "B2", "CatDog", "B2"]
    assert list(with_label_texts(data[[0]], None).texts) == ["one"]


# Encoders


def test_states_below_and_layers_above_are_the_whole_encoder(folder: Path) -> None:
    whole, texts = encoder(folder), documents(9, 3)[0]
    upper = UpperLayers(whole, 1).eval()
    below = StateEncoder(whole, 2).transform(texts, progress=False)
    np.testing.assert_allclose(upper.embed(below), whole.transform(texts), atol=2e-3)
    assert all(name.startswith("encoder.layer.2.") for name in upper.weights())


def test_a_tuned_encoder_tells_labels_apart(tuned: TunedEncoder, folder: Path) -> None:
    texts, labels = documents(80, 5)
    same = np.array(labels)[:, None] == np.array(labels)

    def gap(vectors: Any) -> float:
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = unit @ unit.T
        return float(cosines[same & ~np.eye(len(texts), dtype=bool)].mean() - cosines[~same].mean())

    by_states = tuned.transform(texts)
    assert gap(by_states) > 3 * gap(encoder(folder).transform(texts))
    whole = copy(tuned)
    assert whole.by_states is None is not tuned.by_states
    np.testing.assert_allclose(whole.transform(texts), by_states, atol=0.02)


def test_the_same_seed_gives_the_same_bits(tuned: TunedEncoder, train: Training, folder: Path) -> None:
    again, other = (tuned_on(train, folder, seed=seed) for seed in (0, 1))
    assert tuned.digest == again.digest != other.digest
    assert tuned.fingerprint != encoder(folder).fingerprint


def test_texts_that_are_left_out_change_nothing(train: Training, folder: Path) -> None:
    texts, labels = documents(48, 0)
    others = training_of(["never seen" if row >= 40 else text for row, text in enumerate(texts)], labels, TREE)
    rows = np.arange(40)
    assert tuned_on(train, folder, rows).digest == tuned_on(others, folder, rows).digest


def test_a_tuning_that_was_killed_goes_on_to_the_same_bits(
    tuned: TunedEncoder, train: Training, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tuned.digest
    steps = [0]
    step = tuning._Training._step

    def killed(self: Any, *values: Any) -> float:
        steps[0] += 1
        if steps[0] == 11:
            raise MemoryError
        return step(self, *values)

    monkeypatch.setattr(tuning, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(tuning._Training, "_step", killed)
    with pytest.raises(MemoryError):
        tuned_on(train, folder, checkpoints=tmp_path)
    assert tuned_on(train, folder, checkpoints=tmp_path).digest == expected
    assert steps[0] == 11 + 90
    # What is over is not done again; other documents are another run.
    assert tuned_on(train, folder, checkpoints=tmp_path).digest == expected
    assert steps[0] == 101
    with pytest.raises(TreelabelError, match="the checkpoint of another run"):
        tuned_on(train, folder, np.arange(40), checkpoints=tmp_path)


def test_a_deadline_ends_tuning(train: Training, folder: Path) -> None:
    tuner = EncoderTuner(train, encoder(folder))
    tuned = tuner.tune(np.arange(48), StopSignal(deadline=0.0), "all")
    assert tuner.stages[0].steps == 1
    assert tuner.stages[0].stopped
    assert np.isfinite(tuned.transform(["cat"])).all()


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "error"), [("onnx", 1e-4), ("int8", 0.2)])
def test_a_tuned_encoder_runs_as_a_graph(tuned: TunedEncoder, folder: Path, runtime: str, error: float) -> None:
    tuned, texts = copy(tuned), documents(9, 3)[0]
    base: Any = find_encoder(f"{folder}(runtime={runtime}, max_length=16, pooling=mean)")
    graph = TunedEncoder(base, tuned.digest, tuned.weights)
    np.testing.assert_allclose(graph.transform(texts), tuned.transform(texts), atol=error)
    assert np.abs(graph.transform(texts) - base.transform(texts)).max() > error


def test_weights_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(TreelabelError, match="a of a tuned encoder holds what is no finite number"):
        weights_digest({"a": torch.tensor([np.nan], dtype=torch.float32)})


# In a stack


@pytest.fixture(scope="module")
def stacked(folder: Path) -> Any:
    return make_stack(folder).fit(data(96, 0))


def make_stack(folder: Path, **settings: Any) -> Any:
    usual = {"encoder": f"{folder}(runtime=torch, max_length=16, pooling=mean)", "tune": True}
    estimators = ({"model": "linear", "tfidf": False},)
    return make_model("stack", **{"estimators": estimators, **usual, **settings})


def data(count: int, seed: int) -> Dataset:
    texts, labels = documents(count, seed)
    return Dataset.of(texts, [[label] for label in labels], TREE)


def test_a_stack_keeps_what_pays(stacked: Any) -> None:
    trial = stacked.evidence_.tuning
    assert trial.kept
    assert trial.after > trial.before
    assert trial.documents == 24
    assert len(stacked.estimators_) == 3
    assert "exactly right on 24 held-out documents" in repr(stacked)
    assert [stage.name for stage in stacked.evidence_.stages] == ["tuning, part"]


def test_a_stack_drops_what_does_not_pay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LEARNING_RATE", 0.0)
    model = make_stack(folder, estimators=("linear",)).fit(data(96, 0))
    assert not model.evidence_.tuning.kept
    assert len(model.estimators_) == len(model.pool_.weights) == 1
    assert "does not pay" in repr(model)


def test_a_saved_stack_scores_the_same(stacked: Any, tmp_path: Path) -> None:
    texts = documents(20, 7)[0]
    stacked.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.score(texts).dense(), stacked.score(texts).dense())
    stored = load_file(tmp_path / "model" / "tuned.safetensors")
    assert all(name.startswith("encoder.layer.2.") for name in stored)


def test_other_weights_are_refused(stacked: Any, tmp_path: Path) -> None:
    stacked.save(tmp_path / "model")
    file = tmp_path / "model" / "tuned.safetensors"
    weights = load_file(file)
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(TreelabelError, match=r"tuned\.safetensors"):
        load_model(tmp_path / "model")
    first = next(iter(weights))
    # The weights may be a map of it.
    file.unlink()
    save_file({**weights, first: weights[first] + 1}, file)
    with pytest.raises(TreelabelError, match=r"tuned\.safetensors holds other weights"):
        stacked.tuned_.read(tmp_path / "model")


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "error"), [("onnx", 1e-3), ("int8", 0.3)])
def test_an_exported_stack_carries_its_graph(
    stacked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Any, error: float
) -> None:
    texts = documents(20, 7)[0]
    exported = stacked.export(runtime)
    expected = exported.score(texts).dense()
    np.testing.assert_allclose(expected, stacked.score(texts).dense(), atol=error)
    exported.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    # Neither weights nor an exporter are needed where the graph is.
    monkeypatch.setattr(TunedEncoder, "load_backbone", None)
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "cache"))
    made = loaded.tuned_.transform(texts)
    np.testing.assert_allclose(made, exported.tuned_.transform(texts), atol=1e-6)
    assert loaded.encoder.endswith(f"runtime={runtime})")
    monkeypatch.undo()
    assert np.array_equal(loaded.score(texts).dense(), expected)
    (tmp_path / "model" / "tuned.onnx").write_bytes(b"another graph")
    with pytest.raises(TreelabelError, match=r"tuned\.onnx"):
        load_model(tmp_path / "model")
    with pytest.raises(TreelabelError, match=r"tuned\.onnx is not the graph that the model was exported with"):
        exported.tuned_.read(tmp_path / "model")


def test_a_stack_without_a_tuned_encoder_is_not_exported(folder: Path) -> None:
    model = make_stack(folder, tune=False).fit(data(24, 0))
    with pytest.raises(TreelabelError, match="no tuned encoder to export"):
        model.export()
    with pytest.raises(TreelabelError, match="expected the runtime onnx or int8, found 'torch'"):
        model.export("torch")


@pytest.mark.parametrize("name", ["_step", "run"])
def test_an_interrupted_tuning_leaves_the_stack_that_there_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """At Ctrl-C, in a step and outside of one, what was learned before tuning is what is saved."""
    original = getattr(tuning._Training, name)

    def interrupted(self: Any, *values: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return original(self, *values)

    monkeypatch.setattr(tuning._Training, name, interrupted)
    texts = documents(20, 7)[0]
    # A shell that starts tests in the background has them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        model = make_stack(folder).fit(data(48, 0))
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.stopped_ == "interrupt"
    assert model.tuned_ is None
    assert model.tuned_pool_ is None
    assert len(model.estimators_) == 1
    assert np.array_equal(
        model.score(texts).dense(), make_stack(folder, tune=False).fit(data(48, 0)).score(texts).dense()
    )
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / "tuned.safetensors").exists()
    assert np.array_equal(load_model(tmp_path / "model").score(texts).dense(), model.score(texts).dense())


def test_the_same_seed_gives_the_same_stack(stacked: Any, folder: Path) -> None:
    again = make_stack(folder).fit(data(96, 0))
    assert again.tuned_.digest == stacked.tuned_.digest
    texts = documents(20, 7)[0]
    assert np.array_equal(again.score(texts).dense(), stacked.score(texts).dense())


def test_auto_leaves_other_encoders_alone(folder: Path) -> None:
    with registered("words", WordVectors):
        model = make_stack(folder, encoder="words", tune="auto").fit(data(24, 0))
        assert model.evidence_.tuning is None
        with pytest.raises(TreelabelError, match="the encoder words cannot be tuned; expected a transformer"):
            make_stack(folder, encoder="words").fit(data(24, 0))
    alone = Dataset.of(["purr", "bark"], [["cat"], ["dog"]], TREE)
    assert make_stack(folder, tune="auto").fit(alone).evidence_.tuning is None


def test_a_deadline_leaves_the_encoder_as_it_is(folder: Path) -> None:
    model = make_stack(folder).fit(data(48, 0), max_seconds=0)
    assert model.stopped_ == "deadline"
    assert model.tuned_ is None
    assert len(model.estimators_) == 1


def test_a_validation_set_judges_tuning(folder: Path) -> None:
    model = make_stack(folder).fit(data(48, 0), valid=data(40, 1))
    assert model.evidence_.tuning.documents == 40
    assert [stage.name for stage in model.evidence_.stages] == ["tuning, part"]


# Prototypes that grow


@pytest.fixture(scope="module")
def grown(folder: Path) -> Any:
    texts, labels = documents(96, 0)
    known = [row for row, label in enumerate(labels) if label != "soup"]
    return make_model("tuned_prototype", encoder=f"{folder}(runtime=torch, max_length=16, pooling=mean)").fit(
        [texts[row] for row in known], [labels[row] for row in known], hierarchy=TREE
    )


def test_a_label_is_added_without_tuning_again(grown: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts, labels = documents(160, 5)
    soups = [text for text, label in zip(texts, labels, strict=True) if label == "soup"]
    grown.save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert np.array_equal(model.score(texts).dense(), grown.score(texts).dense())
    digest = model.encoder_.encoder.digest
    model.partial_fit(soups[:2], ["soup"] * 2)
    assert not caplog.records
    model.partial_fit(soups[2:30], ["soup"] * 28)
    assert "the encoder was not tuned on" in caplog.text
    assert model.encoder_.encoder.digest == digest
    soup = TREE.names.index("soup")
    before, after = (each.score(soups[30:]).dense()[:, soup].mean() for each in (grown, model))
    assert after > before


def test_fit_says_what_tuning_was_worth(folder: Path, run: Run, tmp_path: Path) -> None:
    rows = zip(*documents(64, 0), strict=True)
    (tmp_path / "few.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    name = f"{folder}(runtime=torch, max_length=16, pooling=mean)"
    settings = ("--model", "stack", "--encoder", name, "--set", "tune=true", "--set", "estimators=('linear',)")
    ended = run("fit", tmp_path / "few.csv", "-o", tmp_path / "model", *settings)
    assert re.search(r"tuning: [01]\.\d+ -> [01]\.\d+ exactly right on 16 held-out documents.*, \d+ s\n", ended.out)
