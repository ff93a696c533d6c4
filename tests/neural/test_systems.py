"""The systems on the neural trainer: all modes learn, save, load, resume and export, and their settings are checked."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import clone

from tests.helpers import Run, WordVectors, registered, tiny_bert
from tests.neural.forked_fits import fit_in_process
from treelabel import MODELS, Dataset, TreelabelError, load_model, make_model
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.registry import find_encoder
from treelabel.encoders.token_states import StateEncoder
from treelabel.models.check import CASES, HARD_TEXTS, check_model, fit_case, it_learns
from treelabel.neural.network import Network

LEAF = CASES["leaf"]
DATA = Dataset.of(LEAF.texts, LEAF.labels, LEAF.hierarchy)
SYSTEMS = ("hitin", "hgclr", "hbgl", "aplc_xlnet", "x_transformer", "attention_xml", "light_xml")
MODES = ("words", "frozen", "lora", "fine-tuned", "scratch")
# AttentionXML reads word vectors, and has no transformer to train.
MODES_OF = dict.fromkeys(SYSTEMS, MODES) | {"attention_xml": ("words", "frozen", "scratch")}
OWN: dict[str, dict[str, Any]] = {
    "hgclr": {"contrastive_weight": 0.05},
    "hbgl": {"global_steps": 5},
    "attention_xml": {"max_flat_labels": 3, "cluster_size": 2, "top_clusters": 2, "lstm_size": 16, "mlp_size": 16},
    "light_xml": {"max_flat_labels": 3, "cluster_size": 2, "top_clusters": 2},
}


def systems_in(*modes: str) -> list[tuple[str, str]]:
    """Return the systems that can be trained in each mode, with the mode."""
    return [(mode, system) for mode in modes for system in SYSTEMS if mode in MODES_OF[system]]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [text for case in CASES.values() for text in case.texts]
    return tiny_bert(tmp_path_factory.mktemp("encoders") / "tiny", texts)


@pytest.fixture(scope="session")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformer of one layer, for what depends on the system and not on the encoder."""
    texts = [text for case in CASES.values() for text in case.texts]
    return tiny_bert(tmp_path_factory.mktemp("encoders") / "thin", texts, layers=1)


@pytest.fixture(autouse=True)
def words(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    torch.set_num_threads(1)
    with registered("words", WordVectors):
        yield


def weights_of(folder: Path) -> Path:
    """Return the file of a network's weights; that of a matcher has a prefix."""
    (found,) = folder.glob("*weights.safetensors")
    return found


def made(system: str, mode: str, folder: Path, **settings: Any) -> Any:
    """Make a model that learns in little time."""
    of_mode: dict[str, dict[str, Any]] = {
        "words": {"encoder": "words", "mode": "head", "epochs": 20, "learning_rate": 1e-2},
        "frozen": {"encoder": str(folder), "mode": "head", "epochs": 20, "learning_rate": 5e-3},
        "lora": {"encoder": str(folder), "mode": "lora", "epochs": 2, "learning_rate": 5e-3},
        # The first token of a random encoder says little.
        "fine-tuned": {
            "encoder": str(folder),
            "mode": "all",
            "pooling": "mean",
            "epochs": 12,
            "learning_rate": 3e-3,
        },
        "scratch": {"encoder": "scratch", "epochs": 12, "learning_rate": 3e-3},
    }
    return make_model(
        system, **{**of_mode[mode], "batch_size": 8, "weight_decay": 0.0, **OWN.get(system, {}), **settings}
    )


@pytest.mark.parametrize(("mode", "system"), systems_in("words", "frozen", "scratch"))
@pytest.mark.slow
def test_every_system_stands_the_battery(mode: str, system: str, folder: Path) -> None:
    assert not check_model(lambda: made(system, mode, folder, epochs=1), learns=False)


@pytest.mark.parametrize(("mode", "system"), systems_in("words", "fine-tuned"))
@pytest.mark.slow
def test_every_system_learns(mode: str, system: str, thin: Path) -> None:
    settings = {"epochs": 16} if mode == "words" else {"epochs": 12, "learning_rate": 6e-3}
    for kind in ("leaf", "many"):
        it_learns(fit_case(lambda: made(system, mode, thin, **settings), CASES[kind]), CASES[kind])


@pytest.mark.parametrize(("mode", "system"), systems_in(*MODES))
def test_a_saved_system_scores_as_before(mode: str, system: str, folder: Path, tmp_path: Path) -> None:
    model = made(system, mode, folder, epochs=2).fit(DATA)
    texts = [*LEAF.texts[:9], *HARD_TEXTS]
    expected = model.score(texts).dense()
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.score(texts).dense(), expected)
    assert loaded.default_rule == model.default_rule
    assert loaded.name == system
    assert str(clone(model)) == str(model)


# Resuming

TREE = {"max_flat_labels": 3, "cluster_size": 2, "top_clusters": 2}
SMALL: dict[str, dict[str, Any]] = {
    "hbgl": {"global_steps": 5},
    "light_xml": TREE,
    "attention_xml": {**TREE, "lstm_size": 8, "mlp_size": 8},
}


@pytest.mark.parametrize(
    ("system", "mode"),
    [
        ("hitin", "head"),
        ("hgclr", "all"),
        ("hbgl", "head"),
        ("hbgl", "all"),
        ("aplc_xlnet", "head"),
        ("aplc_xlnet", "all"),
        ("x_transformer", "head"),
        ("x_transformer", "all"),
        ("attention_xml", "head"),
        ("light_xml", "head"),
        ("light_xml", "all"),
    ],
)
@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_weights(system: str, mode: str, thin: Path, tmp_path: Path) -> None:
    training = {"epochs": 2, "learning_rate": 5e-3, "batch_size": 8, "dropout": 0.1, "seed": 1}
    settings = {"encoder": str(thin), "mode": mode, **training, **SMALL.get(system, {})}
    # Enough for documents to be held out, and for learning from all of them afterwards.
    fit_in_process(system, settings, tmp_path / "whole", repeats=3)
    settings |= {"checkpoint_dir": str(tmp_path / "checkpoints"), "checkpoint_seconds": 0.0}
    # Killed in its second epoch, while the next step is under way.
    killed = fit_in_process(system, settings, tmp_path / "broken", repeats=3, kill_after=20)
    assert killed[0] == 1
    assert fit_in_process(system, settings, tmp_path / "broken", repeats=3)[0] > 15
    one, other = (load_file(weights_of(tmp_path / name)) for name in ("whole", "broken"))
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    with np.load(tmp_path / "whole" / "arrays.npz") as first, np.load(tmp_path / "broken" / "arrays.npz") as second:
        assert all(np.array_equal(first[name], second[name]) for name in first)


# Token states


@pytest.mark.slow
def test_token_states_are_computed_once_and_kept(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path))
    texts = [*LEAF.texts, *HARD_TEXTS, LEAF.texts[0], "word " * 60]
    encoder: Any = find_encoder(f"{folder}(pooling=mean)")
    first = StateEncoder(encoder).transform(texts)
    ids = encoder.tokens(texts)
    assert first.lengths.tolist() == [len(each) for each in ids]
    states, mask = first.batch(np.array([0, len(texts) - 1]))
    assert mask.sum(1).tolist() == [len(ids[0]), len(ids[-1])]
    # The mean of the states is the embedding that the encoder itself gives.
    mean = (states[0] * mask[0, :, None]).sum(0) / mask[0].sum()
    own = torch.from_numpy(CachedEncoder(encoder).transform(texts[:1])[0])
    assert torch.cosine_similarity(mean, own, dim=0) > 0.9999
    monkeypatch.setattr(
        StateEncoder, "_compute_states", lambda *_: [][1:] if not _[1] else pytest.fail("computed again")
    )
    again = StateEncoder(encoder).transform(texts)
    assert np.array_equal(first.values, again.values)
    assert np.array_equal(first.lengths, again.lengths)


def test_an_encoder_without_token_states_says_what_single_words_mean() -> None:
    found = StateEncoder(WordVectors()).transform(["cat dog cat", ""])
    vectors = WordVectors().transform(["cat", "dog"])
    assert found.lengths.tolist() == [3, 0]
    np.testing.assert_allclose(found.rows()[0], vectors[[0, 1, 0]], atol=1e-3)
    states, mask = found.batch(np.array([1]))
    assert states.shape[:2] == (1, 1)
    assert mask.tolist() == [[0]]


def test_words_are_kept_once_and_some_texts_share_those_of_all() -> None:
    found = StateEncoder(WordVectors()).transform(["cat dog cat", "", "dog"])
    # Those of padding, "cat", "dog" and the empty text.
    assert found.values.shape == (4, 32)
    some = found.select(np.array([2, 0]))
    assert some.values is found.values
    assert some.lengths.tolist() == [1, 3]
    for own, row in ((0, 2), (1, 0)):
        assert np.array_equal(some.rows()[own], found.rows()[row])
        for one, other in zip(some.batch(np.array([own])), found.batch(np.array([row])), strict=True):
            assert torch.equal(one, other)
    assert len(found.select(np.zeros(0, np.int64))) == 0


def test_as_many_words_are_read_as_the_encoder_says() -> None:
    class Short(WordVectors):
        max_length = 2

    found = StateEncoder(Short()).transform(["cat dog cat", "dog", "cat  dog "])
    assert found.lengths.tolist() == [2, 1, 2]


# Export


@pytest.mark.parametrize("mode", ["frozen", "fine-tuned"])
@pytest.mark.parametrize("system", ["hitin", "hgclr", "aplc_xlnet"])
@pytest.mark.slow
def test_an_exported_system_gives_the_same_scores(system: str, mode: str, thin: Path, tmp_path: Path) -> None:
    model = made(system, mode, thin, epochs=3).fit(DATA)
    texts = [*LEAF.texts, *HARD_TEXTS]
    exported = model.export()
    np.testing.assert_allclose(exported.score(texts).dense(), model.score(texts).dense(), atol=1e-3)
    exported.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").score(texts).dense(), exported.score(texts).dense())


def test_a_system_that_writes_level_by_level_is_not_exported(folder: Path) -> None:
    model = made("hbgl", "words", folder, epochs=1).fit(DATA)
    with pytest.raises(TreelabelError, match="level by level is no graph"):
        model.export()


def test_scoring_needs_nothing_of_the_graph(folder: Path) -> None:
    network = made("hgclr", "fine-tuned", folder, epochs=1).fit(DATA).fitted_.network
    assert type(network) is Network
    assert {name.split(".")[0] for name in network.state_dict()} == {"backbone", "outputs"}


def test_hbgl_writes_sequences_of_labels(folder: Path) -> None:
    model = made("hbgl", "words", folder).fit(DATA)
    sequences = model.sequences(LEAF.texts[:5])
    assert len(sequences) == 5
    depth = LEAF.hierarchy.depth
    for levels in sequences:
        assert all(depth[LEAF.hierarchy.names.index(name)] == at + 1 for at, own in enumerate(levels) for name in own)


# Settings and files


@pytest.mark.parametrize(
    ("system", "settings", "match"),
    [
        ("hbgl", {"loss": "champ"}, "a loss of its own: .*, found 'champ'"),
        ("hitin", {"height": 0}, "height"),
        ("hitin", {"tree_pooling": "best"}, "tree_pooling"),
        ("hgclr", {"contrastive_temperature": 0.0}, "contrastive_temperature"),
        ("hgclr", {"mode": "some"}, "the setting mode is 'some'"),
        ("hbgl", {"slot_mask": 1.5}, "slot_mask"),
        ("hbgl", {"epochs": 0}, "the setting epochs is 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(system: str, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(TreelabelError, match=match):
        make_model(system, encoder="words", **settings).fit(DATA)


def test_a_typo_in_a_setting_gets_the_nearest_name() -> None:
    with pytest.raises(TreelabelError, match="height"):
        make_model("hitin", heigth=3)


def rewrite(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Replace the weights of a model, with a checksum that fits."""
    file = weights_of(folder)
    # The weights may be a map of it.
    file.unlink()
    save_file(weights, file)
    described = json.loads((folder / "model.json").read_text())
    described["sha256"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(described))


@pytest.mark.parametrize("system", SYSTEMS)
def test_weights_that_are_not_the_model_s_are_refused(system: str, folder: Path, tmp_path: Path) -> None:
    made(system, "words", folder, epochs=1).fit(DATA).save(tmp_path)
    weights = load_file(weights_of(tmp_path))
    rewrite(tmp_path, weights)
    load_model(tmp_path)
    name = next(name for name, value in weights.items() if value.ndim == 2)
    for wrong, match in (
        ({**weights, name: weights[name][:-1].contiguous()}, f"{name} in weights.safetensors is .* say"),
        ({key: value for key, value in weights.items() if key != name}, "is missing"),
        ({**weights, name: torch.full_like(weights[name], torch.nan)}, "no finite number"),
        ({**weights, "more": torch.zeros(3)}, "more in weights.safetensors"),
    ):
        rewrite(tmp_path, wrong)
        with pytest.raises(TreelabelError, match=match):
            load_model(tmp_path)


def test_a_negative_variance_or_another_loss_in_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    made("hitin", "words", folder, epochs=1).fit(DATA).save(tmp_path / "hitin")
    weights = load_file(tmp_path / "hitin" / "weights.safetensors")
    name = next(name for name in weights if name.endswith("running_var"))
    rewrite(tmp_path / "hitin", {**weights, name: -weights[name]})
    with pytest.raises(TreelabelError, match="negative variance"):
        load_model(tmp_path / "hitin")
    made("hbgl", "words", folder, epochs=1).fit(DATA).save(tmp_path / "hbgl")
    described = json.loads((tmp_path / "hbgl" / "model.json").read_text())
    described["learned"]["loss"] = "leaf_softmax"
    (tmp_path / "hbgl" / "model.json").write_text(json.dumps(described))
    with pytest.raises(TreelabelError, match="trained with the loss bce"):
        load_model(tmp_path / "hbgl")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("hitin", {"height": 2}), ("hitin", {"height": 3})),
        (("hgclr", {"threshold": 0.2}), ("hgclr", {"threshold": 0.5})),
        (("hgclr", {}), ("hbgl", {})),
        (("aplc_xlnet", {"tail_clusters": 1}), ("aplc_xlnet", {"tail_clusters": 2})),
        (("x_transformer", {"beam_size": 1}), ("x_transformer", {"beam_size": 2})),
        (("light_xml", {"cluster_size": 2}), ("light_xml", {"cluster_size": 3})),
    ],
    ids=str,
)
def test_the_checkpoint_of_other_settings_is_refused(one: Any, other: Any, folder: Path, tmp_path: Path) -> None:
    kept = {"checkpoint_dir": str(tmp_path), "checkpoint_seconds": 0.0, "epochs": 1}
    made(one[0], "words", folder, **kept, **one[1]).fit(DATA)
    with pytest.raises(TreelabelError, match="the checkpoint of another run"):
        made(other[0], "words", folder, **kept, **other[1]).fit(DATA)


def test_a_stage_that_was_cut_short_is_no_state_to_go_on_from(folder: Path, tmp_path: Path) -> None:
    settings = {"checkpoint_dir": str(tmp_path), "checkpoint_seconds": 0.0, "epochs": 1}
    made("hbgl", "words", folder, **settings).fit(DATA, max_seconds=1e-6)
    assert not list(tmp_path.rglob("*.safetensors"))


# What is known of a model that has learned


@pytest.mark.parametrize("system", ["neural", *SYSTEMS])
def test_every_system_knows_how_good_it_is_and_how_far_it_came(system: str, tmp_path: Path) -> None:
    model = make_model(system, encoder="words", epochs=1, validation_fraction=0.3, **OWN.get(system, {}))
    model.fit(LEAF.texts * 3, LEAF.labels * 3, hierarchy=LEAF.hierarchy)
    evidence = model.evidence_
    assert evidence.documents == int(0.3 * 3 * len(LEAF.texts))
    assert evidence.describe(model.default_rule, model.regime_).startswith(f"held out ({evidence.documents} documents")
    assert evidence.stages
    for stage in evidence.stages:
        assert stage.steps == stage.planned > 0
        assert not stage.stopped
    model.save(tmp_path / "model")
    stored = json.loads((tmp_path / "model" / "model.json").read_text())["evidence"]["stages"]
    assert stored == [asdict(stage) for stage in evidence.stages]
    assert load_model(tmp_path / "model").evidence_ == evidence


@pytest.mark.slow
def test_a_run_that_was_cut_says_how_far_it_came_and_how_good_it_is(run: Run, tmp_path: Path) -> None:
    rows = zip(LEAF.texts * 3, LEAF.labels * 3, strict=True)
    (tmp_path / "train.tsv").write_text(
        "".join(f"{text}\t{'|'.join(of)}\n" for text, of in [("text", ["labels"]), *rows])
    )
    long = {"epochs": 100_000, "patience": 100_000, "global_steps": 1_000_000, "validation_fraction": 0.3}
    settings = [part for name, value in long.items() for part in ("--set", f"{name}={value}")]
    command = ["fit", tmp_path / "train.tsv", "--model", "hbgl", "--encoder", "words", "-o", tmp_path / "m", *settings]
    code, out, _ = run(*command, "--max-seconds", "1")
    assert code == 0
    told = out.splitlines()
    assert re.match(r"held out \(\d+ documents, .*: leaf accuracy \d\.\d+ (±|\(at).*, hF1 \d\.\d+ (±|\(at) ", told[1])
    assert told[-3] == "learning was stopped before its end, and the best so far was kept"
    assert re.fullmatch(r"  labels: [\d,]+ of 1,000,000 steps, stopped", told[-2])
    cut = re.fullmatch(r"  texts: ([\d,]+) of [\d,]+ steps \([\d.]+ of 100000 epochs\), stopped", told[-1])
    assert cut is not None
    assert cut[1] != "0"
    assert [str(stage) for stage in load_model(tmp_path / "m").evidence_.stages] == [line.strip() for line in told[-2:]]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.slow
def test_the_command_line_learns_and_predicts(system: str, run: Run, folder: Path, tmp_path: Path) -> None:
    lines = [f"{text}\t{'|'.join(labels)}" for text, labels in zip(LEAF.texts, LEAF.labels, strict=True)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabels", *lines]) + "\n")
    shown = run(
        "fit", tmp_path / "train.tsv", "--model", system, "--encoder", folder, "--set", "epochs=2", "-o", tmp_path / "m"
    )
    assert shown[0] == 0, shown
    assert run("predict", tmp_path / "m", tmp_path / "train.tsv")[0] == 0


def test_systems_are_listed() -> None:
    assert {*SYSTEMS} <= {*MODELS}
